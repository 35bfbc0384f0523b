// Drops a cache: its copy, its resume and its blocks.
#include "engine/cache/caches.h"
#include "engine/cache/movers.h"

#include <stdlib.h>
#include <utlist.h>

void cache_drop_image(struct caches *c, struct sequence *s) {
    tiers_drop(&c->tiers, s);
    if (s->state == CACHE_COPYING || s->state == CACHE_CLEAN) cache_set(c, s, CACHE_DEVICE);
}

void warm_end(struct caches *c, struct sequence *s) {
    c->n_warm -= s->warm_until_us != 0;
    s->warm_until_us = 0;
}

void cache_give_host_blocks_back(struct caches *c, struct snapshot_job *j) {
    for (int32_t i = 0; i < j->n_host; i++) kv_pool_unref(&c->tiers.host, j->host[i]);
    j->n_host = 0;
}

void resume_free(struct caches *c, struct sequence *s) {
    struct resume *r = s->resume;
    struct snapshot_job *j = r->job;
    s->resume = NULL;
    if (c->stepping == r) c->stepping = NULL;
    DL_DELETE(c->resuming, r);
    if (j && s->state == CACHE_WAITING) { // no thread holds the job
        cache_give_host_blocks_back(c, j);
        snapshot_job_free(j);
    } else if (j) { // its thread gives it back later
        j->resume = NULL;
        atomic_store(&j->stop, true);
    }
    free(r->hint_ids);
    free(r->slots);
    free(r);
}

void resume_discard(struct caches *c, struct sequence *s) {
    if (c->tiers.copying == s) (void)tiers_collect(&c->tiers, true, clock_mono_us(c->emit->clock));
    resume_free(c, s);
}

void cache_forget_if_empty(struct caches *c, struct sequence *s) {
    if (s->turn || s->state != CACHE_EMPTY) return;
    tiers_drop(&c->tiers, s);
    warm_end(c, s);
    cache_idle_remove(c, s);
    HASH_DEL(c->sequences, s);
    c->n_in[CACHE_EMPTY]--;
    sequence_free(s);
}

void cache_empty(struct caches *c, struct sequence *s) {
    if (s->resume) resume_discard(c, s);
    tiers_drop(&c->tiers, s);
    sequence_drop(s);
    cache_set(c, s, CACHE_EMPTY);
    warm_end(c, s);
    s->leaves_engine = false;
    c->look_for_writes = true;
}

void cache_drop(struct caches *c, struct sequence *s, enum engine_release why) {
    int32_t blocks = s->ring.n_held;
    bool has_snapshot = snapshots_find(&c->snapshots, s->names.id);
    cache_empty(c, s);
    metric_add(c->metrics->released[why], 1);
    emit_released(c->emit, s->id, why, blocks, has_snapshot);
    cache_forget_if_empty(c, s);
}
