// A new sequence begins with the cache of another, on the device and in host memory: it shares the
// blocks, and no byte is copied.
#include "engine/cache/movers.h"

#include "base/log.h"

// Shares the copy in host memory. Without blocks on the device the fork is parked from the start;
// with them it can park later without copying. Not shared: a copy on its way to a snapshot, which is
// dropped soon, and one that is being read, which is not complete.
static int fork_image(struct caches *c, struct sequence *to, const struct sequence *from,
                      int64_t n) {
    const struct sequence_shape all = {.ring = {.chunk_tokens = c->opt.chunk_tokens,
                                                .block_tokens = c->stores.arena.block_tokens,
                                                .session_len = c->opt.max_session_len,
                                                .groups = c->stores.groups}};
    const struct sequence_shape shape = sequence_image_shape(from, &all);
    bool parks = to->ring.n_held == 0;
    struct err err;
    if (n > from->n_image) n = from->n_image;
    if (!from->image.copies || c->tiers.transit || from->state == CACHE_READING || n <= 0) return 0;
    if (parks) { // a ring of this shape: which blocks n positions need
        TRY(sequence_ready(to, &c->pool, &shape, &err));
        bool serves = kv_image_serves(&from->image, &to->ring, n);
        sequence_drop(to);
        if (!serves) return 0;
    }
    TRY(tiers_fork(&c->tiers, to, from, n));
    to->used_us = clock_mono_us(c->emit->clock);
    to->image_version = ++c->last_version;
    if (parks) cache_set(c, to, CACHE_PARKED);
    c->look_for_writes = true;
    return 0;
}

void cache_fork(struct caches *c, struct sequence *to, struct sequence *from, int64_t n_tokens,
                int32_t n_queued) {
    int rc = sequence_fork(to, from, n_tokens);
    if (rc >= 0) rc = fork_image(c, to, from, n_tokens);
    if (rc < 0) log_warn("engine.fork", "code=%s", err_name(rc));
    if (to->ring.n_held == 0) return;
    to->version = ++c->last_version;
    cache_set(c, to, CACHE_DEVICE);
    cache_go_idle(c, to, n_queued);
}
