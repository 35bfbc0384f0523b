// The block pool of one instance: which cache blocks are free, and how many sequences hold each.
// Pure bookkeeping; the bytes are the backend's (struct kv_store). Engine thread only. O(1), no
// allocation after init.
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct kv_pool {
    int32_t n_blocks, n_free;
    int32_t *free_list; // (n_blocks) a stack: the block freed last is taken first, while it is warm
    int32_t *refs;      // (n_blocks) holders; 0 = free
    int64_t n_extra;    // holders beyond each block's first: 0 while nothing is shared
    uint32_t *counted;  // (n_blocks) the count in which the block was met last
    uint32_t count;     // the one under way
};

int kv_pool_init(struct kv_pool *p, int32_t n_blocks, struct err *err);
void kv_pool_release(struct kv_pool *p);
int32_t kv_pool_take(struct kv_pool *p); // a block with one holder, or -1 when none is free
void kv_pool_ref(struct kv_pool *p, int32_t block);
void kv_pool_unref(struct kv_pool *p, int32_t block);

// Counts blocks of several rings, each block once (kv_ring_count). Begins anew.
void kv_pool_count_begin(struct kv_pool *p);
