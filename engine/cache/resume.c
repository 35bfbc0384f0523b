// How a resume begins and ends. See resume.h.
#include "engine/cache/resume.h"

#include "engine/cache/movers.h"
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

struct resume *resume_begin(struct caches *c, struct sequence *s, enum cache_state state,
                            enum engine_cache_source source, int64_t n) {
    struct resume *r = malloc(sizeof *r);
    if (!r) return NULL;
    *r = (struct resume){
        .sequence = s, .source = source, .n = n, .began_us = clock_mono_us(c->emit->clock)};
    s->resume = r;
    s->cached.resume_began_us = r->began_us;
    DL_APPEND(c->resuming, r);
    cache_set(c, s, state);
    return r;
}

// The ring's log is now the image's.
static int take_image_log(struct sequence *s, int64_t n) {
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    if (!ids) return E_NOMEM;
    memcpy(ids, s->image_ids, (size_t)n * sizeof *ids);
    free(s->ids);
    s->ids = ids;
    s->n_ids = n;
    return 0;
}

static enum cache_state arrived(struct caches *c, struct sequence *s) {
    const struct resume *r = s->resume;
    bool from_host = r->source == CACHE_HOST, beside_step = s->state == CACHE_STEPPING;
    metric_add(from_host ? c->metrics->restored : c->metrics->snapshots_read, 1);
    metric_add(c->metrics->restored_bytes,
               (double)r->n_slots * (double)c->stores.arena.block_bytes);
    if (beside_step) metric_add(c->metrics->restored_overlapped, 1);
    s->cached.n = r->n;
    s->cached.n_shared = 0;
    s->cached.source = r->source;
    resume_free(c, s); // copies beside a step continue; the device runs them before later work
    if (c->tiers.transit && !beside_step) tiers_drop(&c->tiers, s); // others need the room
    if (s->turn || c->tiers.transit) return CACHE_DEVICE;
    s->version = s->image_version; // the copy is current: parking again copies nothing
    return CACHE_CLEAN;
}

static enum cache_state stopped(struct caches *c, struct sequence *s) {
    bool half_read = s->state >= CACHE_READING && s->resume->source == CACHE_SNAPSHOT;
    enum cache_state back = s->back_to == CACHE_PARKED ? CACHE_PARKED : CACHE_EMPTY;
    resume_discard(c, s);
    // Also if its snapshot was only being opened: cache_admit has matched the ring to the turn's log.
    kv_ring_truncate(&s->ring, 0);
    if (half_read) tiers_drop(&c->tiers, s);
    return back;
}

static enum cache_state failed(struct caches *c, struct sequence *s) {
    s->cached =
        (struct cached){.source = CACHE_RECOMPUTED, .resume_began_us = s->cached.resume_began_us};
    resume_discard(c, s);
    kv_ring_truncate(&s->ring, 0);
    tiers_drop(&c->tiers, s);
    return CACHE_EMPTY;
}

static enum cache_state declined(struct caches *c, struct sequence *s) {
    resume_discard(c, s);
    return CACHE_EMPTY;
}

void resume_end(struct caches *c, struct sequence *s, enum resume_result result) {
    if (result == RESUME_ARRIVED && s->state != CACHE_STEPPING &&
        take_image_log(s, s->resume->n) < 0)
        result = RESUME_FAILED;
    enum engine_release why = s->resume->source == CACHE_HOST ? RELEASE_PRESSURE : RELEASE_ASKED;
    enum cache_state to = result == RESUME_ARRIVED    ? arrived(c, s)
                          : result == RESUME_DECLINED ? declined(c, s)
                          : result == RESUME_STOPPED  ? stopped(c, s)
                                                      : failed(c, s);
    // The search for writes skipped this cache while it was being resumed
    c->look_for_writes = true;
    // An admitted turn continues with the ring's contents, even if it is empty.
    if (s->turn_ids && result != RESUME_STOPPED) to = CACHE_DEVICE;
    if (s->turn || result != RESUME_ARRIVED) warm_end(c, s);
    cache_set(c, s, to);
    if (s->turn_ids && (result == RESUME_ARRIVED || result == RESUME_FAILED))
        sequence_name_all(s, s->turn_ids);
    if (s->turn || result == RESUME_STOPPED) return;
    if (to == CACHE_EMPTY)
        cache_drop(c, s, why);
    else
        cache_idle_add(c, s);
}
