// Chat templates convert messages with roles to the exact text and ids that a model was trained on,
// by running the template that was published with the model. Read-only after opening. The users' text
// is marked as plain for the tokenizer, so that `<|im_end|>` in a message stays ten characters and
// never ends a turn.
#pragma once
#include "engine/text/chat_syntax.h"
#include "engine/text/tokenizer.h"

struct chat_template;

struct chat_message {
    const char *role;    // "system", "user", "assistant"
    const char *content; // UTF-8
};

// override: the name of a built-in form (chat_template_names), or a file with a template. NULL:
// DIR/chat_template.jinja, or else chat_template in DIR/tokenizer_config.json or DIR/chat_template.json. A further template named tool_use, of
// the list there or in DIR/additional_chat_templates, renders conversations with tools, as in transformers.
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
// The token that ends an assistant's turn (<|im_end|>, <|eot_id|>, eos ...): the first special token
// that the template writes after an assistant's text. -1: none.
int32_t chat_template_end_of_turn(const struct chat_template *c);
// Replaces the system's clock for strftime_now. For tests, before any rendering.
struct clock;
void chat_template_set_clock(struct chat_template *c, const struct clock *clock);

// Renders a whole conversation. Either out may be NULL. forge = true also parses special tokens
// inside the messages, as Hugging Face does (`parley tokenize --chat`); sessions never pass it.
// E_INVAL: the template raises an error, or has one ("line N: ..."), or, unless forge, omits a system
// or user message. E_LIMIT: the rendering takes too long.
int chat_template_render(const struct chat_template *c, const struct chat_message *messages,
                         size_t n, bool add_generation_prompt, bool forge, struct token_list *ids,
                         struct buf *text, struct err *err);
// The next turn of a running session: renders [user X][assistant MARK][messages...] with the
// generation prompt and returns the text after MARK. If `last_id`, the log's last token, is the
// end-of-turn token, drops such a token at the start of that text. E_INVAL if the template changes
// MARK or writes a new message before it. If the log is empty (last_id < 0), does the same as
// chat_template_render with the generation prompt.
int chat_template_render_next(const struct chat_template *c, const struct chat_message *messages,
                              size_t n, int32_t last_id, struct token_list *ids, struct err *err);

// --- conversations with tools (chat_conversation.c) ---

// Found by its marks in the template; the texts are c's.
struct chat_syntax chat_template_syntax(const struct chat_template *c);

struct cJSON;
struct chat_conversation {
    const struct cJSON *messages; // array, in the form that templates take (OpenAI's)
    const struct cJSON *tools;    // array; NULL: none
    const struct cJSON *args;     // object: further variables (enable_thinking ...); NULL: none
};

// Where the template refuses the conversation's roles, it gets another layout of them (chat_layout.h); the first error
// is reported where none suits it. A rendered conversation with the origin of each byte. Its text ends where the model continues: after
// the generation prompt or, if the last message is the assistant's, after that message's text.
struct chat_rendering;
int chat_rendering_new(const struct chat_template *c, const struct chat_conversation *conversation,
                       struct chat_rendering **out, struct err *err);
void chat_rendering_free(struct chat_rendering *r); // NULL is fine
const char *chat_rendering_text(const struct chat_rendering *r, size_t *len);
// Appends the ids of the text's bytes [from, to), with `to` cut to the text's length. from > 0: the
// bytes before it are encoded already.
int chat_rendering_encode(const struct chat_rendering *r, size_t from, size_t to,
                          struct token_list *ids, struct err *err);
// The position after the end-of-turn token that the template writes at or after `from` and before the
// next message; SIZE_MAX: there is none.
size_t chat_rendering_turn_end(const struct chat_rendering *r, size_t from);
