// Token ids to text as they are sampled: feed() gives out only whole UTF-8 characters and keeps
// what is not known yet; flush() at the end of a turn gives out what is left, with U+FFFD for what
// never became a character. For any ids, the concatenation of feed()s and flush() equals
// tokenizer_decode(skip_special = true).
#pragma once
#include "engine/text/decoder.h"
#include "engine/text/tokenizer.h"

// Zeroed before the first start; used by one thread at a time.
struct detokenizer {
    const struct tokenizer *tokenizer;
    struct decoding decoding;
};

void detokenizer_start(struct detokenizer *d,
                       const struct tokenizer *t); // also a new turn: memory is kept
int detokenizer_feed(struct detokenizer *d, int32_t id, struct buf *out);
int detokenizer_flush(struct detokenizer *d, struct buf *out);
void detokenizer_release(struct detokenizer *d);
