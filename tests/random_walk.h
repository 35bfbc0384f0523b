// Random numbers for tests that must take the same path in every run.
#pragma once
#include <stdint.h>

// splitmix64 (Steele et al., 2014): the same walk in every run.
static uint64_t seed;
static inline uint32_t below(uint32_t n) {
    uint64_t z = seed += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ (z >> 31)) % n);
}
