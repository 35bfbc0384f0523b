// Memory of free blocks goes back to the system. See caches.h.
//
// A burst of turns writes to many blocks of the arena once, and from then on they would stay
// resident. A block that stayed free for REST_US is given back, a few at a time, because the kernel
// takes 0.1 ms for a MiB in which the engine's thread computes nothing. The blocks that the next
// turns take first stay warm, so a few users never wait for pages.
#include "engine/cache/caches.h"

enum {
    REST_US = 2000000,
    KEEP_BYTES = 32 << 20, // free and warm
    PART_BYTES = 8 << 20,  // given back in one round
};

static int32_t blocks_in(const struct caches *c, size_t bytes) {
    size_t n = bytes / c->stores.arena.block_bytes;
    return n < 1 ? 1 : (int32_t)n;
}

void caches_rest(struct caches *c, int64_t now_us) {
    const struct backend_ops *ops = c->backend->ops;
    const int32_t *blocks;
    if (!ops->kv_blocks_unused || now_us - c->rest_us < REST_US) return;
    int32_t n =
        kv_pool_give_back(&c->pool, blocks_in(c, KEEP_BYTES), blocks_in(c, PART_BYTES), &blocks);
    if (n > 0) {
        ops->kv_blocks_unused(c->backend, &c->stores.arena, blocks, n);
        return;
    }
    c->rest_us = now_us;
    kv_pool_watch(&c->pool);
}
