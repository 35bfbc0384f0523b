// A flat hash table from byte strings to ids: open addressing, linear probing, at most half full. The
// strings stay in the caller's arena. Since the arena may move, entries hold offsets, and each call
// passes the arena.
#pragma once
#include <stddef.h>
#include <stdint.h>

struct string_slot {
    uint64_t hash;
    uint32_t offset, len; // into the arena
    int32_t id;           // -1: free
};
struct string_table {
    struct string_slot *slots;
    size_t mask, n;
    uint64_t seed; // random for each table, so that no file can be crafted to collide
};

int string_table_init(struct string_table *t, size_t n_expected); // E_NOMEM, E_IO (no randomness)
void string_table_release(struct string_table *t);                // a zeroed one is allowed
// Adds arena[offset, offset + len) as id >= 0, and sets *existing to -1. If the table has the string
// already, it does not change, and *existing is the string's id. E_NOMEM.
int string_table_add(struct string_table *t, const char *arena, uint32_t offset, uint32_t len,
                     int32_t id, int32_t *existing);
// -1: it is not there.
int32_t string_table_find(const struct string_table *t, const char *arena, const char *s,
                          size_t len);

// 64 random bits for a hash's seed, from the operating system.
int hash_seed(uint64_t *seed);
// Folds the 128-bit product to 64 bits, after wyhash.
static inline uint64_t hash_mix(uint64_t a, uint64_t b) {
    __uint128_t product = (__uint128_t)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}
