// Four lanes of eight bytes each, so that four multiplications overlap. See xxh64.h.
#include "base/xxh64.h"

#include <endian.h>
#include <string.h>

#define P1 UINT64_C(0x9E3779B185EBCA87)
#define P2 UINT64_C(0xC2B2AE3D27D4EB4F)
#define P3 UINT64_C(0x165667B19E3779F9)
#define P4 UINT64_C(0x85EBCA77C2B2AE63)
#define P5 UINT64_C(0x27D4EB2F165667C5)

static uint64_t rotl(uint64_t x, int n) {
    return x << n | x >> (64 - n);
}

static uint64_t read64(const unsigned char *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return le64toh(v);
}

static uint32_t read32(const unsigned char *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return le32toh(v);
}

static uint64_t mix(uint64_t lane, uint64_t in) {
    return rotl(lane + in * P2, 31) * P1;
}

static uint64_t merge(uint64_t h, uint64_t lane) {
    return (h ^ mix(0, lane)) * P1 + P4;
}

// Adds the last, incomplete stripe, then mixes the bits of the state.
static uint64_t finish(uint64_t h, const unsigned char *p, const unsigned char *end) {
    for (; end - p >= 8; p += 8) h = rotl(h ^ mix(0, read64(p)), 27) * P1 + P4;
    if (end - p >= 4) {
        h = rotl(h ^ read32(p) * P1, 23) * P2 + P3;
        p += 4;
    }
    for (; p < end; p++) h = rotl(h ^ *p * P5, 11) * P1;
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}

uint64_t xxh64(const void *data, size_t len, uint64_t seed) {
    const unsigned char *p = data, *end = p ? p + len : p;
    uint64_t h = seed + P5;
    if (len >= 32) {
        uint64_t a = seed + P1 + P2, b = seed + P2, c = seed, d = seed - P1;
        for (; end - p >= 32; p += 32) {
            a = mix(a, read64(p));
            b = mix(b, read64(p + 8));
            c = mix(c, read64(p + 16));
            d = mix(d, read64(p + 24));
        }
        h = rotl(a, 1) + rotl(b, 7) + rotl(c, 12) + rotl(d, 18);
        h = merge(merge(merge(merge(h, a), b), c), d);
    }
    return finish(h + len, p, end);
}
