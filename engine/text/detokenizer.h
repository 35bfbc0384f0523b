// Converts token ids to text while they are sampled. feed() returns only complete UTF-8 characters
// and holds undecided text back. flush() at the end of a turn returns the rest, with U+FFFD for bytes
// that never became a character. For any ids, the texts of all feed()s and of flush() concatenate to
// tokenizer_decode(skip_special = true); after detokenizer_start_after, to the part of it that
// follows the text of the earlier ids.
#pragma once
#include "engine/text/decoder.h"
#include "engine/text/tokenizer.h"

// Zeroed before the first start; used by one thread at a time.
struct detokenizer {
    const struct tokenizer *tokenizer;
    struct decoding decoding;
    // the part of the earlier text that the decoder still holds back, from `given` on
    struct buf before;
    size_t given;
};

// Starts a text. A further start reuses the memory
void detokenizer_start(struct detokenizer *d, const struct tokenizer *t);
// Starts inside a text, after ids. The space before the first word is kept (a decoder may remove it at
// the start of a text), and the next tokens can complete a character that ids leave unfinished. Reads
// only the last few ids and ignores ids outside the vocabulary. E_NOMEM.
int detokenizer_start_after(struct detokenizer *d, const struct tokenizer *t, const int32_t *ids,
                            size_t n);
int detokenizer_feed(struct detokenizer *d, int32_t id, struct buf *out);
int detokenizer_flush(struct detokenizer *d, struct buf *out);
void detokenizer_release(struct detokenizer *d);
