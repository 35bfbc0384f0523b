// See resume.h.
#include "engine/run/resume.h"

#include "base/log.h"
#include "engine/run/instance.h"
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

// What copies back may take between two steps of others, as a part of a step; and where nobody
// steps, between two looks at the commands.
enum { STEP_PART = 4, LEAST_SLICE_US = 1000, ALONE_SLICE_US = 20000, SLICE_BATCHES = 256 };

bool instance_resume_begin(struct instance *in, struct sequence *s, const int32_t *ids,
                           int64_t n_ids, int64_t n_cached) {
    const struct tiers *t = &in->tiers;
    const struct kv_image *m = &s->image;
    if (s->resume) return true; // somebody hinted at this turn
    if (!m->copies || m->memory_len != s->ring.memory_len || m->sink_len != s->ring.sink_len ||
        s->image_group != s->group)
        return false;
    int64_t n = sequence_common_prefix(s->image_ids, s->n_image, ids, n_ids - 1);
    if (n <= n_cached) return false;
    double copy = rate_cost(t->load_rate, (double)m->n_held * (double)in->store.block_bytes);
    double compute = rate_cost(t->prefill_rate, (double)(n - n_cached));
    if (copy > 0 && compute > 0 && copy > compute) return false;
    struct resume *r = malloc(sizeof *r);
    if (!r) return false;
    kv_ring_truncate(&s->ring, 0);
    *r = (struct resume){
        .sequence = s, .source = CACHE_HOST, .n = n, .began_us = clock_mono_us(in->emit.clock)};
    s->resume = r;
    DL_APPEND(in->resuming, r);
    return true;
}

bool instance_resume_serves(const struct sequence *s, const struct sequence_shape *shape,
                            const int32_t *ids, int64_t n_ids) {
    return s->ring.memory_len == shape->memory_len && s->ring.sink_len == shape->sink_len &&
           s->group == shape->group &&
           sequence_common_prefix(s->image_ids, s->n_image, ids, n_ids - 1) >= s->resume->n;
}

// Few at a time, from blocks that nobody holds and no running turn has been promised: whoever hints
// and never comes costs others nothing.
enum { MOST_WARM = 8 };

void instance_warm(struct instance *in, struct sequence *s) {
    const struct sequence_shape shape = {
        .group = s->image_group,
        .memory_len = s->image.memory_len,
        .sink_len = s->image.sink_len,
        .chunk_tokens = in->opt.prefill_tokens,
        .block_tokens = in->opt.block_tokens,
        .session_len = in->opt.max_session_len,
    };
    struct err err;
    int32_t held = 0;
    for (int32_t i = 0; i < in->sched.n_running; i++)
        held += ((struct turn *)in->sched.running[i])->sequence->ring.n_held;
    int32_t free_for_all = in->pool.n_free - (in->sched.n_reserved - held);
    if (!s->parked || s->resume || in->n_warm >= MOST_WARM || s->image.n_held > free_for_all)
        return;
    if (sequence_ready(s, &in->pool, &shape, &err) < 0) return;
    if (!instance_resume_begin(in, s, s->image_ids, s->n_image + 1, 0)) return;
    s->warm_until_us = clock_mono_us(in->emit.clock) + ENGINE_WARM_US;
    in->n_warm++;
}

void instance_not_warm(struct instance *in, struct sequence *s) {
    in->n_warm -= s->warm_until_us != 0;
    s->warm_until_us = 0;
}

static void resume_end(struct instance *in, struct resume *r) {
    r->sequence->resume = NULL;
    DL_DELETE(in->resuming, r);
    free(r);
}

void instance_resume_abort(struct instance *in, struct sequence *s) {
    if (!s->resume) return;
    if (in->tiers.copying == s)
        (void)tiers_collect(&in->tiers, true, clock_mono_us(in->emit.clock));
    kv_ring_truncate(&s->ring, 0);
    resume_end(in, s->resume);
    instance_not_warm(in, s);
}

// Its turn goes on, with what there is.
static void turn_on(struct instance *in, struct sequence *s, int64_t n_cached,
                    enum engine_cache_source source, int64_t began_us) {
    struct turn *t = s->turn;
    if (!t || t->sched.state != SCHED_WAIT) return;
    t->n_cached = n_cached;
    t->n_shared = 0;
    sequence_name_all(s, t->spec.ids);
    t->source = source;
    t->restore_us = clock_mono_us(in->emit.clock) - began_us;
    instance_turn_started(in, t);
}

static void failed(struct instance *in, struct resume *r) {
    struct sequence *s = r->sequence;
    int64_t began = r->began_us;
    instance_resume_abort(in, s);
    tiers_drop(&in->tiers, s);
    instance_unparked(in, s);
    if (!s->turn) { // on a hint: nobody waits, but the owner believes it parked
        instance_give_up(in, s, RELEASE_PRESSURE);
        return;
    }
    turn_on(in, s, 0, CACHE_RECOMPUTED, began);
}

static void succeeded(struct instance *in, struct resume *r) {
    struct sequence *s = r->sequence;
    int32_t *ids = malloc((size_t)r->n * sizeof *ids);
    if (!ids) {
        failed(in, r);
        return;
    }
    memcpy(ids, s->image_ids, (size_t)r->n * sizeof *ids);
    free(s->ids);
    s->ids = ids;
    s->n_ids = r->n;
    instance_unparked(in, s);
    struct resume was = *r;
    resume_end(in, r);
    metric_add(in->metrics.restored_bytes, (double)s->ring.n_held * (double)in->store.block_bytes);
    if (s->turn) {
        instance_not_warm(in, s);
    } else { // on a hint: the copies stay, so it may go again in no time
        s->image_state = IMAGE_WHOLE;
        sched_idle_add(&in->sched, &s->idle);
    }
    turn_on(in, s, was.n, was.source, was.began_us);
}

// 1: it has its blocks; 0: not yet; negative: it cannot have them, or the image lacks some.
static int take_blocks(struct instance *in, struct resume *r) {
    struct sequence *s = r->sequence;
    while (kv_ring_restore(&s->ring, r->n) == E_NOMEM) {
        if (!s->turn) return E_NOMEM; // nobody else gives way to a hint
        enum evicted e = instance_evict(in);
        if (e == EVICT_WAIT) return 0;
        if (e == EVICT_NONE) return E_NOMEM;
    }
    return kv_image_missing(&s->image, &s->ring) == 0 ? 1 : E_NOTFOUND;
}

// Goes on until `until`. 1: done; 0: not yet; 2: there is more to do at once; negative: failed.
static int go_on(struct instance *in, struct resume *r, int64_t until) {
    struct tiers *t = &in->tiers;
    if (r->stage == RESUME_BLOCKS) {
        int rc = take_blocks(in, r);
        if (rc <= 0) return rc;
        r->stage = RESUME_COPY;
    }
    for (int i = 0; i < SLICE_BATCHES; i++) {
        int64_t now = clock_mono_us(in->emit.clock);
        int rc = tiers_collect(t, false, now);
        if (rc < 0) return rc;
        if (rc == 0 || (i > 0 && now >= until)) return 2;
        rc = tiers_load(t, r->sequence, &r->slot, TIER_BATCH, now);
        if (rc < 0) return rc;
        if (rc == 0) return 1;
        (void)tiers_collect(t, false, clock_mono_us(in->emit.clock));
    }
    return 2;
}

bool instance_resume(struct instance *in) {
    bool more = false;
    struct resume *r, *next;
    int64_t step = atomic_load_explicit(&in->load.step_us_ewma, memory_order_relaxed) / STEP_PART;
    int64_t slice = instance_n_stepping(in) == 0 ? ALONE_SLICE_US
                    : step > LEAST_SLICE_US      ? step
                                                 : LEAST_SLICE_US;
    int64_t until = clock_mono_us(in->emit.clock) + slice;
    DL_FOREACH_SAFE(in->resuming, r, next) {
        int rc = go_on(in, r, until);
        if (rc == E_DEVICE) atomic_store(&in->load.device_lost, true);
        if (rc == E_NOMEM && !r->sequence->turn)
            instance_resume_abort(in, r->sequence); // it stays parked
        else if (rc < 0)
            failed(in, r);
        else if (rc == 1)
            succeeded(in, r);
        more = more || rc == 2;
        if (clock_mono_us(in->emit.clock) >= until) break;
    }
    return more || in->resuming;
}
