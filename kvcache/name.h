// Names of full blocks: the contents of a block as one number, and a table from the number to a block
// that has these contents.
//
// A block's keys and values are a function of the window's shape and of the log up to the block's
// end (rule 8 of engine/README.md). So its name is a chain of hashes: of the tag, of the shape, then
// of each block's tokens in turn. Two blocks of one name hold the same bits. Names have 128 bits
// under a key drawn at start, so a collision happens neither by chance nor by design.
//
// Only held blocks have a name, so the table is as large as the pool. Engine thread only. All O(1),
// no allocation after init.
#pragma once
#include "base/err.h"
#include "base/siphash.h"
#include <stdbool.h>
#include <stdint.h>

struct kv_names {
    uint64_t key[2];
    uint32_t mask; // number of buckets, a power of two, less one
    int32_t n_blocks;
    // Zero is the empty state, so that buckets and blocks which have never been used cost no memory.
    int32_t *heads; // (mask + 1) 1 + the first block of each bucket's list; 0: none
    int32_t *next;  // (n_blocks) 2 + the next block; 1: the list's end, 0: the block has no name
    struct hash128 *names; // (n_blocks) where next is not 0
};

// A bucket's first block, and the next block of a list; -1: none.
static inline int32_t kv_names_first(const struct kv_names *k, uint64_t bucket) {
    return k->heads[bucket] - 1;
}
static inline int32_t kv_names_after(const struct kv_names *k, int32_t block) {
    return k->next[block] - 2;
}

int kv_names_init(struct kv_names *k, int32_t n_blocks, struct err *err); // E_NOMEM
void kv_names_release(struct kv_names *k);                                // a zeroed one is allowed

// The name of an empty log; tag: kv_ring.tag.
struct hash128 kv_name_begin(const struct kv_names *k, uint64_t tag, int32_t memory_len,
                             int32_t sink_len);
// The name of the log that follows from the log named `before` by one more block, of tokens ids (n).
struct hash128 kv_name_next(const struct kv_names *k, struct hash128 before, const int32_t *ids,
                            int32_t n);

// The name of a group's block, of the log's name up to the block's end. Group 0 has the log's.
static inline struct hash128 kv_name_of_group(struct hash128 log, int32_t group) {
    log.lo ^= (uint64_t)group * UINT64_C(0x9e3779b97f4a7c15);
    return log;
}

int32_t kv_names_find(const struct kv_names *k, struct hash128 name); // a block, or -1
bool kv_names_has(const struct kv_names *k, int32_t block);           // the block has a name
// The block has no name yet, and no other block has this one.
void kv_names_put(struct kv_names *k, int32_t block, struct hash128 name);
void kv_names_drop(struct kv_names *k, int32_t block); // nothing where it has none
