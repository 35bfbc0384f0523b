// Philox4x32-10, the counter-based generator of Salmon et al., "Parallel Random Numbers: As Easy as
// 1, 2, 3" (SC 2011). A draw is a pure function of (key, counter): no state to save, replay or
// share. The code is in a header so that CPU and CUDA compile the same lines; it stays in the
// subset that C and CUDA share.
#pragma once
#include <stdint.h>

#ifdef __CUDACC__
#define PHILOX_FN static __host__ __device__ inline
#else
#define PHILOX_FN static inline
#endif

// out = Philox4x32-10 of the 128-bit counter under the 64-bit key {k0 = low half, k1 = high half}.
PHILOX_FN void philox4x32(uint64_t key, const uint32_t counter[4], uint32_t out[4]) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    for (int round = 0; round < 10; round++) {
        // Two 32 x 32 -> 64 bit products by the paper's multipliers. The halves are exchanged, and
        // the high ones mixed with the key and the words that were not multiplied.
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u; // the key's Weyl sequence: the golden ratio
        k1 += 0xBB67AE85u; // sqrt(3) - 1
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

// The draw for one token: key = the turn's seed, counter = {position low, position high, branch,
// 0}. Uniform in [0, 1) with 24 bits: (out[0] >> 8) * 2^-24.
PHILOX_FN float philox_uniform(uint64_t seed, uint64_t position, uint32_t branch) {
    uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), branch, 0}, out[4];
    philox4x32(seed, counter, out);
    return (float)(out[0] >> 8) * (1.0f / 16777216.0f);
}
