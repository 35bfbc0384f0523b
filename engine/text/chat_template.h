// Chat templates convert roles and messages to the exact text and ids that a model was trained on,
// by running the template that was published with it. Read-only after opening. The users' text is
// marked as plain for the tokenizer, so that `<|im_end|>` in a message stays ten characters and
// never ends a turn.
#pragma once
#include "engine/text/tokenizer.h"

struct chat_template;

struct chat_message {
    const char *role;    // "system", "user", "assistant"
    const char *content; // UTF-8
};

// override: NULL takes DIR/chat_template.jinja, then chat_template in DIR/tokenizer_config.json;
// otherwise the name of a built-in form (chat_template_names) or a file with a template.
// E_NOTFOUND: the folder has none; E_FORMAT, E_LIMIT, E_UNSUPPORTED: the template is broken, too
// large, or uses an unsupported part of Jinja (engine/jinja/jinja.h); the sentence names file, line
// and construct.
int chat_template_open(struct chat_template **out, const char *model_dir, const char *override,
                       const struct tokenizer *t, struct err *err);
void chat_template_close(struct chat_template *c);
// the name of the built-in form, or the template's file
const char *chat_template_name(const struct chat_template *c);
const char *chat_template_text(const struct chat_template *c); // its source
const char *chat_template_names(void);                         // "chatml, llama2, ..." for --help
// The token that ends an assistant's turn (<|im_end|>, <|eot_id|>, eos ...): the first one that the
// template puts after an assistant's text. -1: none.
int32_t chat_template_end_of_turn(const struct chat_template *c);
// Sets the clock of strftime_now instead of the system's. For tests, before any rendering.
struct clock;
void chat_template_set_clock(struct chat_template *c, const struct clock *clock);

// Renders a whole conversation. Either out may be NULL. forge = true also parses special tokens
// inside the messages, as Hugging Face does (`parley tokenize --chat`); sessions never pass it.
// E_INVAL: the error that the template raises, an error in it ("line N: ..."), or, unless forge, a
// system or user message that the template omits. E_LIMIT: it takes too long.
int chat_template_render(const struct chat_template *c, const struct chat_message *messages,
                         size_t n, bool add_generation_prompt, bool forge, struct token_list *ids,
                         struct buf *text, struct err *err);
// The next turn of a running session: renders [user X][assistant MARK][messages...] with the
// generation prompt, takes what follows MARK, and drops the end-of-turn token at its start if
// `last_id`, the log's last token, is already that token. E_INVAL if the template changes MARK or
// writes a new message before it. If the log is empty (last_id < 0), the same as
// chat_template_render with the generation prompt.
int chat_template_render_next(const struct chat_template *c, const struct chat_message *messages,
                              size_t n, int32_t last_id, struct token_list *ids, struct err *err);

// --- conversations with tools (chat_conversation.c) ---

// How a model writes what is more than text, found in the template's words: its tool calls ...
enum tool_syntax {
    TOOL_SYNTAX_NONE, // the template shows no tools
    TOOL_SYNTAX_JSON, // the answer is {"name":..,"arguments":..}: of templates that say nothing else
    TOOL_SYNTAX_HERMES,  // <tool_call>{"name":..,"arguments":..}</tool_call>
    TOOL_SYNTAX_XML,     // <tool_call><function=NAME><parameter=KEY>VALUE</parameter></function>
    TOOL_SYNTAX_LLAMA,   // {"name":..,"parameters":..}, perhaps behind <|python_tag|>
    TOOL_SYNTAX_MISTRAL, // [TOOL_CALLS][{..}, {..}] or [TOOL_CALLS]NAME[ARGS]{..}
};
// ... and its thinking, which ends before the answer. NULL: it has none.
struct chat_syntax {
    enum tool_syntax tools;
    const char *think_open, *think_close;
};
struct chat_syntax chat_template_syntax(const struct chat_template *c);

struct cJSON;
struct chat_conversation {
    const struct cJSON *messages; // array, in the form that templates take (OpenAI's)
    const struct cJSON *tools;    // array; NULL: none
    const struct cJSON *args;     // object: further variables, as enable_thinking; NULL: none
};

// A rendered conversation with the origin of each byte. Its text ends where the model goes on: behind
// the generation prompt or, if the last message is the assistant's, behind its words.
struct chat_rendering;
int chat_rendering_new(const struct chat_template *c, const struct chat_conversation *conversation,
                       struct chat_rendering **out, struct err *err);
void chat_rendering_free(struct chat_rendering *r); // NULL is fine
const char *chat_rendering_text(const struct chat_rendering *r, size_t *len);
// Appends the ids of the text's bytes [from, to), as far as there are; from > 0 follows text that is
// encoded already.
int chat_rendering_encode(const struct chat_rendering *r, size_t from, size_t to,
                          struct token_list *ids, struct err *err);
// Behind the end-of-turn token that the template writes at or after `from`, before the next message;
// SIZE_MAX: there is none.
size_t chat_rendering_turn_end(const struct chat_rendering *r, size_t from);
