// Our own chat templates, chosen by name: the fallback for a model folder without one, and a choice
// for the user.
#pragma once
#include <stddef.h>

struct chat_form {
    const char *name;
    const char *text; // run like any template
};
extern const struct chat_form chat_forms[];
extern const size_t n_chat_forms;

const struct chat_form *chat_form_named(const char *name); // or NULL
const char *chat_form_names(void);                         // "chatml, chatml-bos, ..."
