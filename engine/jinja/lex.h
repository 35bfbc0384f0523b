// Splits a chat template into tokens, in the environment that Hugging Face transformers sets up: the
// text contains neither the newline after a block tag (trim_blocks), nor the white space before one
// at the start of a line (lstrip_blocks), nor a newline at the end of the template.
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
#define JINJA_OP(a, b) ((a) | (b) << 8) // an operator of two characters; others are their character

struct jinja_token {
    enum jinja_token_kind kind;
    int line, op;
    struct jinja_string s; // the text, name, string's value or number's digits
};
struct jinja_tokens {
    struct jinja_token *items; // the last one is JINJA_T_END
    size_t len, cap;
};

// The tokens' strings point into text or into the arena. E_FORMAT "line N: ...". Release on failure
// too.
int jinja_tokens_read(struct jinja_tokens *out, struct jinja_arena *a, struct jinja_string text,
                      struct err *err);
void jinja_tokens_release(struct jinja_tokens *t);
