// Caches on their way back to the device, for an admitted turn or on a hint. caches_resume continues
// all of them once a round, between the steps of the running turns.
#include "engine/cache/movers.h"

#include "base/log.h"
#include "engine/dist/lead.h"
#include <assert.h>
#include <stdlib.h>
#include <utlist.h>

// Between two steps copies may take a quarter of a step. Without steps they run in slices, between
// which the loop reads commands.
enum { STEP_PART = 4, LEAST_SLICE_US = 1000, ALONE_SLICE_US = 20000, SLICE_BATCHES = 256 };

// --- begin ---------------------------------------------------------------------------------------

bool cache_load_begin(struct caches *c, struct sequence *s, const int32_t *ids, int64_t n_ids,
                      int64_t n_cached) {
    const struct tiers *t = &c->tiers;
    const struct kv_image *m = &s->image;
    if (s->image_group != s->group || !sequence_same_prompt(s->image_prompt, s->prompt))
        return false;
    int64_t n = sequence_common_prefix(s->image_ids, s->n_image, ids, n_ids - 1);
    if (n <= n_cached || !kv_image_serves(m, &s->ring, n)) return false;
    double copy = rate_cost(t->load_rate, (double)m->n_held * (double)c->stores.arena.block_bytes);
    double compute = rate_cost(t->prefill_rate, (double)(n - n_cached));
    if (copy > 0 && compute > 0 && copy > compute) return false;
    if (!resume_begin(c, s, CACHE_WAITING, CACHE_HOST, n)) return false;
    kv_ring_truncate(&s->ring, 0);
    return true;
}

// Whether the tokens being resumed are the beginning of this log, with this window. The tokens of a
// snapshot that is being opened are unknown yet: judge() in read.c compares them.
static bool serves(const struct sequence *s, const struct sequence_shape *shape, const int32_t *ids,
                   int64_t n_ids) {
    const struct resume *r = s->resume;
    if (!sequence_has_shape(s, shape)) return false;
    if (s->state == CACHE_OPENING) return true;
    bool unread = s->state == CACHE_WAITING && r->job;
    const int32_t *theirs = unread ? r->job->ids : s->image_ids;
    int64_t n = unread ? r->n : s->n_image;
    return sequence_common_prefix(theirs, n, ids, n_ids - 1) >= r->n;
}

int cache_admit(struct caches *c, struct sequence *s, const struct sequence_shape *shape,
                const int32_t *ids, int64_t n_ids, struct err *err) {
    cache_idle_remove(c, s);
    s->leaves_engine = false;
    // The turn writes to these blocks or gives them back, so a copy of them must end first.
    if (c->tiers.copying == s && !c->tiers.loading)
        (void)tiers_collect(&c->tiers, true, clock_mono_us(c->emit->clock));
    if (s->resume && !serves(s, shape, ids, n_ids)) resume_end(c, s, RESUME_STOPPED);
    s->turn_ids = ids;
    s->n_turn_ids = n_ids;
    s->version = ++c->last_version;
    if (s->n_filed == NOT_WRITABLE) s->n_filed = 0;
    s->cached = (struct cached){.resume_began_us = s->resume ? s->resume->began_us : 0};
    // A ring whose blocks are being filled holds no tokens to compare yet.
    if (!s->resume || s->state == CACHE_OPENING)
        TRY(sequence_match(s, &c->pool, shape, ids, n_ids, &s->cached.n, &s->cached.n_shared, err));
    s->cached.source = s->cached.n > s->cached.n_shared ? CACHE_KEPT : CACHE_NONE;
    if (s->resume) return 0;
    warm_end(c, s);
    if (s->state != CACHE_PARKED) cache_set(c, s, CACHE_DEVICE);
    if (!cache_load_begin(c, s, ids, n_ids, s->cached.n) &&
        !cache_read_begin(c, s, n_ids, s->cached.n))
        cache_set(c, s, CACHE_DEVICE);
    return 0;
}

void cache_turn_over(struct caches *c, struct sequence *s, bool drop, int32_t n_queued) {
    if (s->resume) resume_end(c, s, RESUME_STOPPED);
    s->turn_ids = NULL;
    (void)sequence_branch(s, 0, NULL);
    if (drop) sequence_drop(s);
    if (cache_is_on_device(s->state) && s->ring.n_held == 0) cache_set(c, s, CACHE_EMPTY);
    s->used_us = clock_mono_us(c->emit->clock);
    tiers_used(&c->tiers, s);
    if (s->ring.n_held > 0) cache_go_idle(c, s, n_queued);
}

// --- with the turn's first step ------------------------------------------------------------------

// slice_us: the longest delay of other turns.
static bool comes_with_step(const struct caches *c, const struct resume *r, int64_t slice_us) {
    const struct tiers *t = &c->tiers;
    int32_t rest = r->n_slots - r->at;
    // Several ranks: the others copy before the step, and so does the leader.
    if (!t->backend->ops->kv_layer_wait || !lead_is_alone(t->lead) || rest > TIER_STEP_BLOCKS ||
        r->next || c->stepping || !r->sequence->turn_ids)
        return false;
    if (c->load.n_stepping == 0) return true;
    double cost = rate_cost(t->load_rate, (double)rest * (double)c->stores.arena.block_bytes);
    return cost > 0 && cost <= (double)slice_us;
}

static void begin_step(struct caches *c, struct resume *r) {
    struct sequence *s = r->sequence;
    s->cached.n = r->n;
    s->cached.n_shared = 0;
    s->cached.source = r->source;
    c->stepping = r;
    c->load.n_stepping++;
    cache_set(c, s, CACHE_STEPPING);
}

const struct kv_load *cache_load_with_step(struct caches *c, struct sequence *s,
                                           int64_t *waited_us) {
    struct resume *r = s->resume;
    assert(r == c->stepping);
    // A park may have begun meanwhile; at most one batch of it is under way.
    if (tiers_collect(&c->tiers, true, clock_mono_us(c->emit->clock)) < 0) c->device_lost = true;
    return tiers_load_with_step(&c->tiers, s, r->slots + r->at, r->n_slots - r->at, waited_us);
}

void cache_stepped(struct caches *c) {
    resume_end(c, c->stepping->sequence, RESUME_ARRIVED);
}

// --- continue ------------------------------------------------------------------------------------

// What a resume waits for: nothing (it is complete), another slice, the disk, or its turn's step.
enum progress { ARRIVED, MORE, READS, STEPS };

// 1: it has its blocks; 0: a cache is being copied to make room; E_NOMEM: no blocks can be freed.
static int take_blocks(struct caches *c, struct resume *r) {
    struct sequence *s = r->sequence;
    if (s->ring.n_held > 0) return 1;
    while (kv_ring_restore(&s->ring, r->n) == E_NOMEM) {
        if (!s->turn) return E_NOMEM; // a hint evicts no cache
        enum evicted e = cache_evict(c);
        if (e == EVICT_WAIT) return 0;
        if (e == EVICT_NONE) return E_NOMEM;
    }
    return 1;
}

static int begin_copies(struct caches *c, struct resume *r) {
    struct sequence *s = r->sequence;
    if (r->job) return cache_read_blocks(c, r);
    assert(kv_image_missing(&s->image, &s->ring) == 0); // checked by cache_load_begin()
    r->slots = malloc((size_t)s->ring.n_held * sizeof *r->slots);
    if (!r->slots) return E_NOMEM;
    for (int32_t i = 0; i < s->image.n_slots; i++) {
        if (s->ring.blocks[i] >= 0) r->slots[r->n_slots++] = i;
    }
    cache_set(c, s, CACHE_LOADING);
    return 0;
}

static int copy(struct caches *c, struct resume *r, int64_t slice_us, int64_t until) {
    struct tiers *t = &c->tiers;
    for (int i = 0; i < SLICE_BATCHES; i++) {
        int64_t now = clock_mono_us(c->emit->clock);
        int32_t ready =
            r->job ? atomic_load_explicit(&r->job->n_done, memory_order_acquire) : r->n_slots;
        int rc = tiers_collect(t, false, now);
        if (rc < 0) return rc;
        if (rc == 0 || (i > 0 && now >= until)) return MORE;
        if (r->at == r->n_slots && !r->job) return ARRIVED;
        if (r->at == ready) return READS;
        if (ready == r->n_slots && comes_with_step(c, r, slice_us)) {
            if (r->job) return READS; // all blocks have arrived: the job's command follows
            begin_step(c, r);
            return STEPS;
        }
        rc = tiers_load(t, r->sequence, r->slots + r->at, ready - r->at, now);
        if (rc < 0) return rc;
        r->at += rc;
        (void)tiers_collect(t, false, clock_mono_us(c->emit->clock));
    }
    return MORE;
}

static int go_on(struct caches *c, struct resume *r, int64_t slice_us, int64_t until) {
    enum cache_state state = r->sequence->state;
    if (state == CACHE_STEPPING) return STEPS;
    if (state == CACHE_OPENING) return READS;
    if (state == CACHE_WAITING) {
        int rc = take_blocks(c, r);
        if (rc == 0) return MORE;
        if (rc > 0) rc = begin_copies(c, r);
        if (rc == E_BUSY) return READS;
        if (rc < 0) return rc;
    }
    return copy(c, r, slice_us, until);
}

static void resume_failed(struct caches *c, struct resume *r, int rc) {
    struct sequence *s = r->sequence;
    bool from_host = r->source == CACHE_HOST;
    log_debug("engine.resume", "code=%s from_host=%d", err_name(rc), from_host);
    // After a hint without free blocks the cache stays parked.
    bool stays = rc == E_NOMEM && !s->turn && from_host;
    resume_end(c, s, stays ? RESUME_STOPPED : RESUME_FAILED);
}

static void end_preempted(struct caches *c, struct resume *r) {
    if (r->source == CACHE_HOST)
        resume_end(c, r->sequence, RESUME_STOPPED); // the cache stays parked
    else
        cache_drop(c, r->sequence, RELEASE_PRESSURE);
}

bool caches_resume(struct caches *c) {
    bool more = false;
    c->reads = false;
    struct resume *r, *next;
    int64_t part = c->load.step_us / STEP_PART;
    int64_t slice_us = c->load.n_stepping == 0 ? ALONE_SLICE_US
                       : part > LEAST_SLICE_US ? part
                                               : LEAST_SLICE_US;
    int64_t until = clock_mono_us(c->emit->clock) + slice_us;
    DL_FOREACH_SAFE(c->resuming, r, next) {
        if (r->preempted && !r->sequence->turn_ids) {
            end_preempted(c, r);
            continue;
        }
        int rc = go_on(c, r, slice_us, until);
        if (rc == E_DEVICE) c->device_lost = true;
        if (rc < 0)
            resume_failed(c, r, rc);
        else if (rc == ARRIVED) {
            c->load.n_stepping += r->sequence->turn_ids != NULL;
            resume_end(c, r->sequence, RESUME_ARRIVED);
        }
        more = more || rc == MORE;
        c->reads = c->reads || rc == READS;
        if (clock_mono_us(c->emit->clock) >= until) return c->resuming;
    }
    return more;
}
