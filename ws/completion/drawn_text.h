// Which of an answer's tokens belong to its text, and which stop sequence ended the text. Text is delivered later than
// its tokens, because text that may begin a stop sequence is held back. So tokens are counted by their bytes: a token
// belongs to the delivered text if its bytes begin before the end of that text. Net thread.
#pragma once
#include "base/buf.h"
#include "engine/engine.h"

struct drawn_text {
    const struct sampling_words *stop; // borrowed; NULL: no bytes are kept
    uint64_t drawn, given;             // bytes of the tokens; of the delivered text
    struct buf bytes;                  // of the tokens, from byte number `base` on
    uint64_t base;
};

// stop is borrowed; NULL: drawn_text_stop finds none.
void drawn_text_init(struct drawn_text *d, const struct sampling_words *stop);
void drawn_text_release(struct drawn_text *d);
// The place in the text where the token begins. Without memory, drawn_text_stop finds nothing.
uint64_t drawn_text_add(struct drawn_text *d, const struct engine *e, int32_t id);
void drawn_text_give(struct drawn_text *d, const char *text, size_t len); // delivered
// Where tokens begin whose text is held back; of an answer that has ended with "stop", which are no part of its
// text. UINT64_MAX: none.
uint64_t drawn_text_end(const struct drawn_text *d);
// The stop sequence with which such an answer was cut off; NULL: none.
const char *drawn_text_stop(const struct drawn_text *d);
