// Names of blocks: what is in a full block, as one number, and the way back from the number to a
// block that holds it.
//
// A block's keys and values are a function of the window's shape and of the log up to the block's
// end (rule 8 of engine/README.md), so its name is a chain of hashes: of who may see it (the tag),
// of the shape, then of each block's tokens in turn. Two blocks of one name hold the same bits. 128
// bits under a key drawn for each index: no two things get one name, by chance or by design.
//
// Only blocks that somebody holds have a name, so the table is as large as the pool and holds
// nothing alive. Engine thread only. All O(1), no allocation after init.
#pragma once
#include "base/err.h"
#include "base/siphash.h"
#include <stdbool.h>
#include <stdint.h>

struct kv_names {
    uint64_t key[2];
    uint32_t mask; // of the table's places, a power of two
    int32_t n_blocks;
    int32_t *heads; // (mask + 1) first block of each place's list, -1 for none
    int32_t *next;  // (n_blocks) the list goes on there; -1 its end, -2 the block has no name
    struct hash128 *names; // (n_blocks) where next is not -2
};

int kv_names_init(struct kv_names *k, int32_t n_blocks, struct err *err);
void kv_names_release(struct kv_names *k);

// The name of an empty log; tag: kv_ring.tag.
struct hash128 kv_name_begin(const struct kv_names *k, uint64_t tag, int32_t memory_len,
                             int32_t sink_len);
// Of a log whose full blocks before have the name `before`, and whose next one holds ids (n).
struct hash128 kv_name_next(const struct kv_names *k, struct hash128 before, const int32_t *ids,
                            int32_t n);

int32_t kv_names_find(const struct kv_names *k, struct hash128 name); // a block, or -1
bool kv_names_has(const struct kv_names *k, int32_t block);
// The block has no name yet, and no other has this one.
void kv_names_put(struct kv_names *k, int32_t block, struct hash128 name);
void kv_names_drop(struct kv_names *k, int32_t block); // nothing where it has none
