// What a tokenizer makes of a text, as text.
#pragma once
#include "engine/text/tokenizer.h"
#include "tests/cmocka.h"
#include <stdio.h>
#include <string.h>

// "97 256"; valid until the next call.
static inline const char *encoded(const struct tokenizer *t, const char *text,
                                  const struct encode_options *opt) {
    static char out[4096];
    struct token_list ids;
    struct err err = {0};
    size_t n = 0;
    token_list_init(&ids);
    if (tokenizer_encode(t, text, strlen(text), opt, &ids, &err) < 0)
        fail_msg("'%s': %s", text, err.text);
    out[0] = '\0';
    for (size_t i = 0; i < ids.len; i++)
        n += (size_t)snprintf(out + n, sizeof out - n, "%s%d", i ? " " : "", ids.ids[i]);
    token_list_release(&ids);
    return out;
}
