// A text on its way through one step of a normaliser: what stays is copied, what changes is put,
// and the plain spans of the text move with their bytes.
#pragma once
#include "engine/text/tokenizer.h"

struct rewrite {
    const char *text;
    size_t len, done; // read so far
    struct buf *out;
    struct text_span *spans;
    size_t next, n; // borders of spans that still wait, two for each
    bool bare;      // in the midst of a text: a step puts nothing in front
    bool at_start;  // the text's first bytes are the first of what the user gave, and have not
                    // become nothing
};

void rewrite_init(struct rewrite *r, const char *text, size_t len, struct buf *out,
                  struct text_span *spans, size_t n_spans);
int rewrite_copy(struct rewrite *r, size_t n); // the next n bytes stay
// The next n bytes become these. A span that begins or ends inside them takes in all of the new
// ones.
int rewrite_put(struct rewrite *r, size_t n, const char *bytes, size_t len);
int rewrite_end(struct rewrite *r); // copies what is left; E_NOMEM, E_LIMIT from the buffer
