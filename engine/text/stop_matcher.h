// Finds stop strings across token borders. Passes detokenised text on, except for a tail that may be
// the start of a stop string. Bounded memory, no allocation after init.
#pragma once
#include "base/buf.h"
#include <stddef.h>

#define STOP_MAX_STRINGS 64
#define STOP_MAX_BYTES 256

struct stop_matcher {
    const char *strings[STOP_MAX_STRINGS]; // borrowed
    size_t lens[STOP_MAX_STRINGS];
    int n_strings;
    char held[STOP_MAX_BYTES]; // at most the longest string's length - 1 bytes, always whole UTF-8
    size_t n_held;
    int matched; // index of the completed stop string, or -1
};

// Borrows the strings. E_INVAL: one is empty or over STOP_MAX_BYTES - 1 bytes.
int stop_matcher_init(struct stop_matcher *m, const char *const *strings, int n_strings);
// Appends the text that is now safe to show. Returns 1 if a stop string is complete: out ends just
// before it, and the rest of the text is dropped. Otherwise returns 0, or the buffer's error.
int stop_matcher_feed(struct stop_matcher *m, const char *text, size_t len, struct buf *out);
// The same without a match: a stop string that ends in this text does not end the answer.
int stop_matcher_pass(struct stop_matcher *m, const char *text, size_t len, struct buf *out);
// Appends the tail, after the turn has ended for another reason
int stop_matcher_flush(struct stop_matcher *m, struct buf *out);
