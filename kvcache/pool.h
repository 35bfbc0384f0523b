// The block pool of one instance: which cache blocks are free, how many holders each has, which rings
// may hold it, and the names of full blocks. It does bookkeeping only; the backend has the bytes (struct
// kv_store). Engine thread only. O(1), no allocation after init.
#pragma once
#include "kvcache/name.h"

struct kv_pool {
    int32_t n_blocks, n_free;
    int32_t *free_list; // (n_blocks) a stack: the block freed last is taken first, while it is warm
    // Blocks at the bottom of the stack that have never been taken. Their entries are unwritten: a pool costs memory
    // for the blocks that have been used, however many a model's context asks for.
    int32_t n_new;
    // Free blocks at the bottom of the stack: those that have not been taken since they were new, or
    // since their memory was given back, and those that have not been taken since kv_pool_watch.
    int32_t n_fresh, n_rested;
    int32_t *refs;     // (n_blocks) holders; 0 = free
    uint64_t *tags;    // (n_blocks) of held blocks: only rings with the same tag may hold the block
    uint64_t last_tag; // given out by kv_pool_private_tag
    struct kv_names names; // of full blocks that may be shared
    int64_t n_extra;       // holders beyond each block's first: 0 while nothing is shared
    uint32_t *counted;     // (n_blocks) number of the last count that included the block
    uint32_t count;        // number of the current count (kv_pool_count_begin)
    // Debug builds: called when a block becomes free, to poison its bytes, and when it is taken.
    // May be NULL.
    void (*guard)(void *ctx, int32_t block, bool is_free);
    void *guard_ctx;
};

int kv_pool_init(struct kv_pool *p, int32_t n_blocks,
                 struct err *err);       // all free. E_INVAL, E_NOMEM
void kv_pool_release(struct kv_pool *p); // a zeroed one is allowed
int32_t kv_pool_free_block(const struct kv_pool *p,
                           int32_t i);   // entry i of the free list, i < n_free
int32_t kv_pool_take(struct kv_pool *p); // a block with one holder, or -1 when none is free
void kv_pool_ref(struct kv_pool *p, int32_t block);   // one holder more of a held block
void kv_pool_unref(struct kv_pool *p, int32_t block); // one less; without any, the block is free

// Blocks that rest can give their memory back. The last `keep` blocks that would be taken next stay
// warm. Returns how many there are of those free since kv_pool_watch, at most `most`, which count
// as fresh from then on; *blocks is valid until the next call.
void kv_pool_watch(struct kv_pool *p);
int32_t kv_pool_give_back(struct kv_pool *p, int32_t keep, int32_t most, const int32_t **blocks);

// Tags: one for each group of sequences that may share blocks, and a new, unique one for each
// sequence that shares with none.
static inline uint64_t kv_group_tag(uint64_t group) {
    return group * 2;
}
uint64_t kv_pool_private_tag(struct kv_pool *p); // odd, as group tags are even

// Begins a new count of the blocks of several rings, each block once (kv_ring_count).
void kv_pool_count_begin(struct kv_pool *p);
