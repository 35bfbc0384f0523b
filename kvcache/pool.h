// The block pool of one instance: which cache blocks are free, how many sequences hold each, who
// may, and what is in those that are full. Pure bookkeeping; the bytes are the backend's (struct
// kv_store). Engine thread only. O(1), no allocation after init.
#pragma once
#include "kvcache/name.h"

struct kv_pool {
    int32_t n_blocks, n_free;
    int32_t *free_list; // (n_blocks) a stack: the block freed last is taken first, while it is warm
    int32_t *refs;      // (n_blocks) holders; 0 = free
    uint64_t *tags;     // (n_blocks) of held ones: only rings with the same tag may hold the block
    uint64_t last_tag;  // of those that kv_pool_private_tag gave out
    struct kv_names names; // of full blocks that may be shared
    int64_t n_extra;       // holders beyond each block's first: 0 while nothing is shared
    uint32_t *counted;     // (n_blocks) the count in which the block was met last
    uint32_t count;        // the one under way
    // Debug builds: told of each block that becomes free (its bytes are to be made useless) or is
    // taken again. NULL: nobody asks.
    void (*guard)(void *ctx, int32_t block, bool is_free);
    void *guard_ctx;
};

int kv_pool_init(struct kv_pool *p, int32_t n_blocks, struct err *err);
void kv_pool_release(struct kv_pool *p);
int32_t kv_pool_take(struct kv_pool *p); // a block with one holder, or -1 when none is free
void kv_pool_ref(struct kv_pool *p, int32_t block);
void kv_pool_unref(struct kv_pool *p, int32_t block);

// Tags: who may hold what. One for all sequences that may share, and new ones, different from all
// of those and from each other, for sequences that share with none.
static inline uint64_t kv_group_tag(uint64_t group) {
    return group * 2;
}
uint64_t kv_pool_private_tag(struct kv_pool *p);

// Counts blocks of several rings, each block once (kv_ring_count). Begins anew.
void kv_pool_count_begin(struct kv_pool *p);
