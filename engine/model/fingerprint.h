// The fingerprint of a model: 128 bits, equal for equal models, independent of sharding, of
// config.json's spelling, of rank and backend. Sessions record it, because a log replays only on its
// own model.
#pragma once
#include "engine/model/checkpoint.h"
#include "engine/model/model_config.h"

// Hashes the switches that decide logits (not sampling suggestions or stop tokens, which a user may
// edit), and each tensor's name, dtype, shape and a few kilobytes of its bytes. An unchanged folder of
// `parley quantize` has the fingerprint of its source with that weight_dtype, since it holds the same
// numbers.
int fingerprint_compute(char out[FINGERPRINT_LEN + 1], const struct model_config *c,
                        const struct checkpoint *cp, struct err *err);
