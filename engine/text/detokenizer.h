// Token ids to text as they are sampled: feed() returns only complete UTF-8 characters and holds
// undecided text back; flush() at the end of a turn returns the rest, with U+FFFD for bytes that
// never became a character. For any ids, the concatenation of feed()s and flush() equals
// tokenizer_decode(skip_special = true); after detokenizer_start_after, the part of it after the
// text of the earlier ids.
#pragma once
#include "engine/text/decoder.h"
#include "engine/text/tokenizer.h"

// Zeroed before the first start; used by one thread at a time.
struct detokenizer {
    const struct tokenizer *tokenizer;
    struct decoding decoding;
    struct buf before; // the part of the earlier text that the decoder still holds; from `given` on
    size_t given;
};

// Also for a new turn: memory is reused
void detokenizer_start(struct detokenizer *d, const struct tokenizer *t);
// Starts inside a text, after ids: the space before the first word is kept, which a tokenizer
// removes at the start of a text, and a character that ids leave unfinished can be finished. Reads
// the last few ids; ids outside the vocabulary stand for nothing. E_NOMEM.
int detokenizer_start_after(struct detokenizer *d, const struct tokenizer *t, const int32_t *ids,
                            size_t n);
int detokenizer_feed(struct detokenizer *d, int32_t id, struct buf *out);
int detokenizer_flush(struct detokenizer *d, struct buf *out);
void detokenizer_release(struct detokenizer *d);
