// A text during one step of a normaliser: unchanged bytes are copied, changed ones replaced, and
// the plain spans move with their bytes.
#pragma once
#include "engine/text/tokenizer.h"

struct rewrite {
    const char *text;
    size_t len, done; // done: bytes read so far
    struct buf *out;
    struct text_span *spans;
    size_t next, n; // remaining borders of spans, two for each
    bool bare;      // a step must add no prefix: the text continues another one
    bool at_start;  // the text begins with the user's first bytes, and no step has removed them
};

// Borrows all of it. spans: ascending and disjoint, positions in text; they are changed in place.
void rewrite_init(struct rewrite *r, const char *text, size_t len, struct buf *out,
                  struct text_span *spans, size_t n_spans);
int rewrite_copy(struct rewrite *r, size_t n); // copies the next n bytes unchanged
// Replaces the next n bytes. A span that begins or ends inside them grows to include all of the new
// bytes.
int rewrite_put(struct rewrite *r, size_t n, const char *bytes, size_t len);
int rewrite_end(struct rewrite *r); // copies the rest; E_NOMEM, E_LIMIT from the buffer
