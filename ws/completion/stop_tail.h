// The last bytes of an answer as drawn, where the stop sequence that ended it is found: the tokens of the sequence are
// no part of the answer's text. Net thread.
#pragma once
#include "base/buf.h"
#include "engine/engine.h"

struct stop_tail {
    const struct sampling_words *stop; // borrowed; NULL: nothing is kept
    struct buf bytes;
};

// stop is borrowed; NULL, or one without texts: the tail keeps nothing.
void stop_tail_init(struct stop_tail *t, const struct sampling_words *stop);
void stop_tail_release(struct stop_tail *t);
// Errors of memory stay in t->bytes: then no stop string is found.
void stop_tail_add(struct stop_tail *t, const struct engine *e, const int32_t *ids, size_t n);
// The stop sequence that comes first, and how many bytes it begins before the answer's end. NULL, 0: there is none.
const char *stop_tail_find(const struct stop_tail *t, size_t *behind);
