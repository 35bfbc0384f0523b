// A chat template's text as tokens, in the environment that Hugging Face transformers sets up: the
// newline behind a block tag and the white space before one are not part of the text (trim_blocks,
// lstrip_blocks), nor is a newline at the end.
#pragma once
#include "base/err.h"
#include "engine/jinja/text.h"

enum jinja_token_kind {
    JINJA_T_TEXT,
    JINJA_T_PRINT,     // {{
    JINJA_T_PRINT_END, // }}
    JINJA_T_TAG,       // {%
    JINJA_T_TAG_END,   // %}
    JINJA_T_NAME,
    JINJA_T_INT,
    JINJA_T_FLOAT,
    JINJA_T_STRING,
    JINJA_T_OP,
    JINJA_T_END
};
#define JINJA_OP(a, b) ((a) | (b) << 8) // of two characters; those of one are their character

struct jinja_token {
    enum jinja_token_kind kind;
    int line, op;
    struct jinja_string s; // text, name, or a string's value; numbers as written
};
struct jinja_tokens {
    struct jinja_token *items; // the last one is JINJA_T_END
    size_t len, cap;
};

// Texts point into text or lie in the arena. E_FORMAT "line N: ...". Release on failure too.
int jinja_tokens_read(struct jinja_tokens *out, struct jinja_arena *a, struct jinja_string text,
                      struct err *err);
void jinja_tokens_release(struct jinja_tokens *t);
