// SipHash-2-4 with 128 bits of result (Aumasson, Bernstein, "SipHash: a fast short-input PRF",
// 2012, and their reference code). A keyed hash: collisions cannot be constructed without the key.
#pragma once
#include <stddef.h>
#include <stdint.h>

struct hash128 {
    uint64_t lo, hi;
};

// The same on every machine. data may be NULL if len is 0.
struct hash128 siphash128(const uint64_t key[2], const void *data, size_t len);
