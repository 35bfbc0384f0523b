// Opens, checks and releases the caches of an engine.
#include "engine/cache/caches.h"

#include "base/log.h"
#include "engine/cache/movers.h"
#include "kvcache/check.h"
#include <assert.h>
#include <stdlib.h>

enum { PIECE_BYTES = 4 << 20 };

#ifdef PARLEY_DEBUG_KV
static void guard_block(void *ctx, int32_t block, bool is_free) {
    struct caches *c = ctx;
    if (c->backend->ops->kv_block_guard)
        c->backend->ops->kv_block_guard(c->backend, &c->stores.arena, block, is_free);
}
#endif

int caches_init(struct caches *c, struct backend *backend, const struct cache_stores *shape,
                const struct cache_options *o, struct emitter *emit,
                const struct engine_metrics *metrics, struct err *err) {
    int rc;
    *c = (struct caches){.opt = *o,
                         .backend = backend,
                         .emit = emit,
                         .metrics = metrics,
                         .stores = *shape,
                         .piece_bytes = PIECE_BYTES};
    TRY_GOTO(fail, kv_pool_init(&c->pool, shape->arena.n_blocks, err));
    TRY_GOTO(fail, cache_stores_init(&c->stores, backend, err));
#ifdef PARLEY_DEBUG_KV
    c->pool.guard = guard_block;
    c->pool.guard_ctx = c;
#endif
    TRY_GOTO(fail, tiers_init(&c->tiers, backend, o->lead, &c->stores.arena, o->host_bytes,
                              o->host_transit, err));
    if (o->snapshot_dir)
        TRY_GOTO(fail,
                 snapshots_open(&c->snapshots, o->snapshot_dir, o->snapshot_bytes, &o->maker, err));
    c->snapshots.emit = emit;
    c->opt.snapshot_dir = NULL;
    return 0;
fail:
    caches_release(c);
    return rc;
}

void caches_release(struct caches *c) {
    struct sequence *s, *next;
    if (c->tiers.copying) (void)tiers_collect(&c->tiers, true, 0);
    HASH_ITER(hh, c->sequences, s, next) {
        HASH_DEL(c->sequences, s);
        if (s->resume && s->state != CACHE_WAITING) s->resume->job = NULL; // returned and freed
        if (s->resume) resume_free(c, s);
        sequence_free(s);
    }
    snapshots_close(&c->snapshots);
    if (c->tiers.backend) tiers_release(&c->tiers);
    cache_stores_release(&c->stores, c->backend);
    kv_pool_release(&c->pool);
    *c = (struct caches){0};
}

void caches_job_done(struct caches *c, struct snapshot_job *j) {
    if (cache_pieces_next(c, j)) return;
    snapshots_done(&c->snapshots, j);
    c->look_for_writes = true;
    if (j->task == SNAPSHOT_WRITE)
        cache_written(c, j);
    else
        cache_read_done(c, j);
    cache_give_host_blocks_back(c, j);
    snapshot_job_free(j);
}

void cache_forget_snapshot(struct caches *c, struct sequence *s, struct hash128 name) {
    snapshots_forget(&c->snapshots, name);
    if (s) s->names.id[0] = '\0';
}

// Parks the most recently used idle cache; it is then written like any other.
static bool park_next(struct caches *c) {
    struct sequence *prev, *s = c->idle ? c->idle->idle_prev : NULL;
    for (; s; s = prev) {
        prev = s == c->idle ? NULL : s->idle_prev;
        if (!cache_is_on_device(s->state) || s->state == CACHE_DEVICE_ONLY || !s->names.id[0])
            continue;
        cache_ask_to_park(c, s, RELEASE_ASKED);
        return true;
    }
    return false;
}

enum saving caches_save_all(struct caches *c) {
    if (!snapshots_on(&c->snapshots) || !tiers_on(&c->tiers)) return SAVING_DONE;
    c->saving_all = true;
    bool parks = park_next(c), copies = caches_park(c, false, 0);
    c->look_for_writes = true;
    caches_write(c);
    if (!parks && c->snapshots.n_writing == 0) return SAVING_DONE;
    return copies ? SAVING_COPIES : SAVING_WRITES;
}

// --- checks --------------------------------------------------------------------------------------

static void check_state(const struct caches *c, const struct sequence *s) {
    assert(cache_is_resuming(s->state) == (s->resume != NULL));
    if (s->state == CACHE_EMPTY || s->state == CACHE_PARKED) assert(s->ring.n_held == 0 || s->turn);
    if (s->state == CACHE_PARKED) assert(s->image.copies);
    if (s->state == CACHE_CLEAN)
        assert(s->image.copies && kv_image_missing(&s->image, &s->ring) == 0);
    if (cache_is_on_device(s->state)) assert(s->ring.n_held > 0 || s->turn);
    assert(s->n_branches == 0 || s->turn_ids);
    assert((s->state == CACHE_STEPPING) == (c->stepping && c->stepping == s->resume));
}

void caches_check(const struct caches *c) {
    struct err err = {0};
    size_t n = 0;
    int32_t n_in[CACHE_N_STATES] = {0};
    size_t most = 1;
    for (const struct sequence *s = c->sequences; s; s = s->hh.next)
        most += 1 + (size_t)s->n_branches;
    const struct kv_ring **rings = malloc(most * sizeof *rings);
    if (!rings) return;
    for (const struct sequence *s = c->sequences; s; s = s->hh.next) {
        check_state(c, s);
        n_in[s->state]++;
        if (s->ring.blocks) rings[n++] = &s->ring;
        for (int32_t i = 0; i < s->n_branches; i++) rings[n++] = &s->branches[i];
    }
    for (int i = 0; i < CACHE_N_STATES; i++) assert(n_in[i] == c->n_in[i]);
    int rc = kv_check(&c->pool, rings, n, &err);
    if (rc < 0) log_error("engine.kv_check", "%s", err.text);
    assert(rc == 0); // stops at the first broken step, not at a later symptom
    free(rings);
}
