// The fingerprint of a model: 128 bits that are equal for equal models, however their files are
// sharded, whatever spelling config.json uses, on every rank and backend. Sessions carry it: a log
// replays on its own model only.
#pragma once
#include "engine/model/checkpoint.h"
#include "engine/model/model_config.h"

// Of the switches that decide logits (not of sampling suggestions or stop tokens, which a user may
// edit), and of each tensor's name, dtype, shape and samples of its bytes: a few kilobytes each,
// not the whole file. A folder in 8 bits that is as `parley quantize` wrote it has the fingerprint
// that its source has with that weight_dtype, since it holds the same numbers.
int fingerprint_compute(char out[FINGERPRINT_LEN + 1], const struct model_config *c,
                        const struct checkpoint *cp, struct err *err);
