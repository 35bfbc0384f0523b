// Blocks of the device for a step.
#include "engine/run/blocks.h"
#include "engine/run/instance.h"

static int copy_block(void *ctx, int32_t dst, int32_t src) {
    struct instance *in = ctx;
    struct backend *be = in->forward.backend;
    TRY(lead_copy(in->forward.lead, dst, src));
    return be->ops->kv_block_copy(be, &in->caches.stores.arena, dst, src);
}

int instance_take_blocks(struct instance *in, struct kv_ring *ring, int32_t n) {
    int rc;
    while ((rc = kv_ring_extend(ring, n, copy_block, in)) == E_NOMEM) {
        enum evicted e = cache_evict(&in->caches);
        if (e == EVICT_WAIT) return TURN_WAITS;
        if (e == EVICT_NONE) return E_NOMEM;
    }
    return rc;
}
