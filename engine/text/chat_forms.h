// The forms of conversation that can be asked for by name, as chat templates of our own: what
// Parley falls back on where a model's folder has none, and what a user chooses to write instead.
#pragma once
#include <stddef.h>

struct chat_form {
    const char *name;
    const char *text; // run as any template is
};
extern const struct chat_form chat_forms[];
extern const size_t n_chat_forms;

const struct chat_form *chat_form_named(const char *name); // or NULL
const char *chat_form_names(void);                         // "chatml, chatml-bos, ..."
