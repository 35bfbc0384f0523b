// Sampling parameters from and to JSON, under the wire's names (ws/PROTOCOL.md). Types are strict,
// ranges are checked, unknown keys are ignored, a null counts as absent.
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "engine/engine.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct turn_sampling {
    struct sampling_params params;
    bool logprobs; // deltas carry the log-probabilities
    uint32_t set;  // which keys were given: one bit each, in the order of the table
};
#define SAMPLING_EVERY_KEY UINT32_MAX

// Puts what the object says over *s. On failure *s is unchanged and *err names the key. json may be
// NULL: nothing.
int sampling_json_apply(struct turn_sampling *s, const char *json, int32_t n_vocab,
                        struct err *err);

bool sampling_json_knows(const char *key); // it is one of the keys

// Appends an object with the keys of `keys`: s->set for what was given, SAMPLING_EVERY_KEY for
// every value in force (seed only where there is one). Floats come back as the same bits.
int sampling_json_write(struct buf *out, const struct turn_sampling *s, uint32_t keys);
