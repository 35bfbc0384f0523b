// Philox4x32-10, the counter-based generator of Salmon et al., "Parallel Random Numbers: As Easy as
// 1, 2, 3" (SC 2011). A draw is a pure function of (key, counter): no state to save, replay or
// share, and the same on every backend. This header is in the subset that C and CUDA share.
#pragma once
#include <stdint.h>

// out = Philox4x32-10 of the 128-bit counter {c0,c1,c2,c3} under the 64-bit key {k0 = low, k1 =
// high}.
void philox4x32(uint64_t key, const uint32_t counter[4], uint32_t out[4]);

// The draw for one token: key = the turn's seed, counter = {position low, position high, branch,
// 0}. Uniform in [0, 1) with 24 bits: (out[0] >> 8) * 2^-24.
float philox_uniform(uint64_t seed, uint64_t position, uint32_t branch);
