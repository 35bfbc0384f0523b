// Chat templates: roles and words to the exact text and ids that a model was trained on. Read-only after
// opening. What people typed is marked as plain text for the tokenizer, so that `<|im_end|>` in a message
// stays seven characters and never ends a turn.
#pragma once
#include "engine/text/tokenizer.h"

struct chat_template;

struct chat_message {
    const char *role;    // "system", "user", "assistant"
    const char *content; // UTF-8
};

// override: NULL takes DIR/chat_template.jinja, then chat_template in DIR/tokenizer_config.json; otherwise the name
// of a built-in form (chat_template_names) or a file with a template. A template is recognised from its text.
// E_NOTFOUND: the folder has none; E_UNSUPPORTED: none of the known forms fits (the sentence lists them).
int chat_template_open(struct chat_template **out, const char *model_dir, const char *override,
                       const struct tokenizer *t, struct err *err);
void chat_template_close(struct chat_template *c);
const char *chat_template_name(const struct chat_template *c); // "chatml", "llama3", ...
const char *chat_template_names(void);                         // "chatml, llama2, ..." for --help
// The token that ends an assistant's turn (<|im_end|>, <|eot_id|>, eos ...), or -1 where the form has none.
int32_t chat_template_end_of_turn(const struct chat_template *c);

// A whole conversation. Either out may be NULL. forge = true parses special tokens inside the messages too, as
// Hugging Face does (`parley tokenize --chat`); sessions never pass it. E_INVAL: roles the form cannot express.
int chat_template_render(const struct chat_template *c, const struct chat_message *messages, size_t n,
                         bool add_generation_prompt, bool forge, struct token_list *ids,
                         struct buf *text, struct err *err);
// The next turn of a running session: renders [user X][assistant MARK][messages...] with the generation prompt, takes
// what follows MARK, and drops the end-of-turn token at its start if `last_id`, the log's last token, already is it.
// When the log is empty (last_id < 0), the same as chat_template_render with the generation prompt.
int chat_template_render_next(const struct chat_template *c, const struct chat_message *messages,
                              size_t n, int32_t last_id, struct token_list *ids, struct err *err);
