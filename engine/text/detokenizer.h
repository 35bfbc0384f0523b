// Token ids to text as they are sampled: feed() gives out only whole UTF-8 characters and keeps
// what is not known yet; flush() at the end of a turn gives out what is left, with U+FFFD for what
// never became a character. For any ids, the concatenation of feed()s and flush() equals
// tokenizer_decode(skip_special = true); after detokenizer_start_after, what that gives behind the
// text of the ids before.
#pragma once
#include "engine/text/decoder.h"
#include "engine/text/tokenizer.h"

// Zeroed before the first start; used by one thread at a time.
struct detokenizer {
    const struct tokenizer *tokenizer;
    struct decoding decoding;
    struct buf before; // of the text before, what the decoder still holds; from `given` on
    size_t given;
};

void detokenizer_start(struct detokenizer *d,
                       const struct tokenizer *t); // also a new turn: memory is kept
// A start in the midst of a text, behind ids: the space in front of a word stays, which a tokenizer
// takes off where a text begins, and a character that ids leave unfinished can be finished. Looks
// at the last few of them; those outside the vocabulary stand for nothing. E_NOMEM.
int detokenizer_start_after(struct detokenizer *d, const struct tokenizer *t, const int32_t *ids,
                            size_t n);
int detokenizer_feed(struct detokenizer *d, int32_t id, struct buf *out);
int detokenizer_flush(struct detokenizer *d, struct buf *out);
void detokenizer_release(struct detokenizer *d);
