// Protocol buffers in text form, as far as config.pbtxt needs it: fields with scalars, messages and
// lists. No schema: a field is a name with a scalar or a message.
#pragma once
#include "base/err.h"

struct pbtxt {
    char *name;             // "": the file itself
    char *value;            // a scalar, strings without their quotes; NULL: a message
    int line;               // where it begins
    struct pbtxt *children; // of a message, in order; a list is several fields of one name
    struct pbtxt *next;
};

// E_FORMAT: "FILE:LINE: sentence". text is NUL-terminated; path is for errors.
int pbtxt_parse(struct pbtxt **out, const char *text, const char *path, struct err *err);
void pbtxt_free(struct pbtxt *p); // NULL is fine
// The first field of this name; NULL: none, also of NULL.
const struct pbtxt *pbtxt_find(const struct pbtxt *message, const char *name);
