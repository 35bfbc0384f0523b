// Blocks of the device for a step.
#include "engine/run/blocks.h"
#include "engine/run/engine_core.h"

static int copy_block(void *ctx, int32_t dst, int32_t src) {
    struct engine_core *core = ctx;
    struct backend *be = core->forward.backend;
    TRY(lead_copy(core->forward.lead, dst, src));
    return be->ops->kv_block_copy(be, &core->caches.stores.arena, dst, src);
}

int core_take_blocks(struct engine_core *core, struct kv_ring *ring, int32_t n) {
    int rc;
    while ((rc = kv_ring_extend(ring, n, copy_block, core)) == E_NOMEM) {
        enum evicted e = cache_evict(&core->caches);
        if (e == EVICT_WAIT) return TURN_WAITS;
        if (e == EVICT_NONE) return E_NOMEM;
    }
    return rc;
}
