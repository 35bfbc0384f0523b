// After the authors' reference code. Input words are read in the machine's order, little endian as
// everywhere in Parley.
#include "base/siphash.h"

#include <string.h>

static inline uint64_t rotl(uint64_t x, int b) {
    return x << b | x >> (64 - b);
}

static inline void rounds(uint64_t v[4], int n) {
    for (int i = 0; i < n; i++) {
        v[0] += v[1], v[1] = rotl(v[1], 13) ^ v[0], v[0] = rotl(v[0], 32);
        v[2] += v[3], v[3] = rotl(v[3], 16) ^ v[2];
        v[0] += v[3], v[3] = rotl(v[3], 21) ^ v[0];
        v[2] += v[1], v[1] = rotl(v[1], 17) ^ v[2], v[2] = rotl(v[2], 32);
    }
}

static inline void absorb(uint64_t v[4], uint64_t word) {
    v[3] ^= word;
    rounds(v, 2);
    v[0] ^= word;
}

struct hash128 siphash128(const uint64_t key[2], const void *data, size_t len) {
    uint64_t v[4] = {0x736f6d6570736575u ^ key[0], 0x646f72616e646f6du ^ key[1] ^ 0xee,
                     0x6c7967656e657261u ^ key[0], 0x7465646279746573u ^ key[1]};
    const unsigned char *at = data, *end = at + len / 8 * 8;
    uint64_t word;
    for (; at < end; at += 8) {
        memcpy(&word, at, 8);
        absorb(v, word);
    }
    word = (uint64_t)len << 56;
    for (size_t i = 0; i < len % 8; i++) word |= (uint64_t)at[i] << 8 * i;
    absorb(v, word);

    struct hash128 h;
    v[2] ^= 0xee;
    rounds(v, 4);
    h.lo = v[0] ^ v[1] ^ v[2] ^ v[3];
    v[1] ^= 0xdd;
    rounds(v, 4);
    h.hi = v[0] ^ v[1] ^ v[2] ^ v[3];
    return h;
}
