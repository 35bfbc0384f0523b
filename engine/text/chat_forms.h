// Our own chat templates. A user chooses one by name, for a model folder without a template or
// instead of its template.
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
