// Token ids to text as they are sampled: feed() gives out only whole UTF-8 characters and keeps the
// rest; flush() at the end of a turn gives out what is left with U+FFFD for what never became a
// character. For any ids, the concatenation of feed()s and flush() equals
// tokenizer_decode(skip_special = true).
#pragma once
#include "engine/text/tokenizer.h"

struct detokenizer {
    const struct tokenizer *tokenizer;
    char pending[8]; // an unfinished character
    unsigned n_pending;
    bool started; // some decoders treat a text's first token differently
};

void detokenizer_init(struct detokenizer *d, const struct tokenizer *t); // also to start a new turn
int detokenizer_feed(struct detokenizer *d, int32_t id, struct buf *out);
int detokenizer_flush(struct detokenizer *d, struct buf *out);
