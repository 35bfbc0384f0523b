// One step: plan -> blocks -> batch -> forward -> draws -> events. engine/README.md has the table.
#include "engine/run/instance.h"

#include "base/log.h"
#include <assert.h>
#include <sched.h>
#include <stdlib.h>

static int copy_block(void *ctx, int32_t dst, int32_t src) {
    struct instance *in = ctx;
    struct backend *be = in->forward.backend;
    return be->ops->kv_block_copy(be, &in->caches.store, dst, src);
}

// Admission has promised the blocks; idle sequences that hold them are evicted here, when a turn
// needs them. TURN_WAITS: a cache is being copied first (cache/park.c).
enum { TURN_WAITS = 1 };
static int take_blocks(struct instance *in, struct live_turn *t, int32_t n) {
    int rc;
    while ((rc = kv_ring_extend(&t->sequence->ring, n, copy_block, in)) == E_NOMEM) {
        enum evicted e = cache_evict(&in->caches);
        if (e == EVICT_WAIT) return TURN_WAITS;
        if (e == EVICT_NONE) return E_NOMEM;
    }
    return rc;
}

static enum batch_logits wanted(const struct live_turn *t, int32_t n) {
    if (t->spec.on_logits) return BATCH_LOGITS_ALL;
    bool draws = t->sched.state == SCHED_DECODE || t->sched.n_todo == n;
    return draws && !t->spec.score_only ? BATCH_LOGITS_LAST : BATCH_LOGITS_NONE;
}

// Lets the device draw this step's tokens if it can draw, each turn needs the logits of at most one
// row, and the draws depend on the logits alone.
static void plan_draws(struct instance *in) {
    struct batch *b = &in->batch.batch;
    bool any = false;
    b->draws = NULL;
    if (!in->forward.backend->ops->draw || b->n_logits > b->n_seqs) return;
    for (int32_t i = 0; i < b->n_logits; i++) {
        const struct live_turn *t = in->in_step[in->batch.logit_seqs[i]];
        in->draws[i] = t->spec.on_logits ? (struct batch_draw){.kind = DRAW_NONE}
                                         : sampler_plan(&t->slot->sampler, t->n_log);
        any = any || in->draws[i].kind != DRAW_NONE;
    }
    if (any) b->draws = in->draws;
}

static void build(struct instance *in) {
    int32_t n = sched_plan(&in->sched, in->shares);
    batch_reset(&in->batch);
    for (int32_t i = 0; i < n; i++) {
        struct live_turn *t = (struct live_turn *)in->shares[i].turn;
        struct kv_ring *r = &t->sequence->ring;
        int32_t n_tokens = in->shares[i].n_tokens;
        int rc = take_blocks(in, t, n_tokens);
        if (rc == TURN_WAITS) continue; // until the next step
        if (rc < 0) {
            struct err err;
            err_set(&err, E_INTERNAL, "the cache has no block for a turn that was admitted");
            log_error("engine.no_block", "turn=%llu", (unsigned long long)t->spec.turn);
            instance_finish(in, t, FINISH_ERROR, &err, true);
            continue;
        }
        if (!kv_ring_sound(r)) { // cannot happen; checked, since it would leak one user's text
            struct err err;
            err_set(&err, E_INTERNAL, "the cache holds a block that is not this sequence's");
            log_error("engine.foreign_block", "turn=%llu", (unsigned long long)t->spec.turn);
            instance_finish(in, t, FINISH_ERROR, &err, true);
            continue;
        }
        if (t->sequence->state == CACHE_STEPPING)
            in->batch.batch.load = cache_load_with_step(&in->caches, t->sequence, &t->restore_us);
        in->in_step[in->batch.batch.n_seqs] = t;
        batch_add(&in->batch, t->spec.ids + r->n_tokens, r->n_tokens, n_tokens, wanted(t, n_tokens),
                  r->memory_len, r->sink_len, &r->map);
    }
    plan_draws(in);
}

// --- draws ---------------------------------------------------------------------------------------

static void turn_failed(struct instance *in, struct live_turn *t, int rc, const char *what,
                        struct err *err) {
    if (err->code == 0) err_set(err, rc, "%s", what);
    instance_finish(in, t, FINISH_ERROR, err, false);
}

// Emits a drawn token, and ends its turn if the turn is over. True: it has ended.
static bool accept(struct instance *in, struct live_turn *t, const struct sampled *s,
                   int64_t time_us) {
    struct err err = {0};
    instance_mark_token(in, t, time_us);
    buf_reset(&in->text);
    int rc = live_turn_append(t, s->id, &in->scratch, &in->text);
    emit_token(&in->emit, t, s, buf_z(&in->text), in->text.len);
    if (rc < 0)
        turn_failed(in, t, rc, "a token's text is too long", &err);
    else if (rc > 0)
        instance_finish(in, t, FINISH_STOP, NULL, false);
    else if (instance_ends_turn(in, t, s->id))
        instance_finish(in, t, FINISH_EOS, NULL, false);
    else if (t->n_log >= t->cap_log)
        instance_finish(in, t, FINISH_LENGTH, NULL, false);
    else
        return false;
    return true;
}

// Draws the gathered tokens and emits them. Turns that are over leave in_step.
static void draw(struct instance *in) {
    struct drawings *d = &in->drawings;
    // Polling pays off only for tokens that come one by one (engine_token_is_near).
    bool alone = d->n == 1;
    atomic_store_explicit(&in->load.drawing_on, alone ? sched_getcpu() : -1, memory_order_relaxed);
    drawings_run(d, in->forward.backend, in->emit.clock);
    emit_hold(&in->emit);
    for (int i = 0; i < d->n; i++) {
        struct drawing *one = &d->of[i];
        struct live_turn *t = in->in_step[one->seq];
        bool over = one->rc < 0 || accept(in, t, &one->drawn, one->time_us);
        if (one->rc < 0) turn_failed(in, t, one->rc, "no token could be drawn", &one->err);
        if (over) in->in_step[one->seq] = NULL;
    }
    emit_let_go(&in->emit);
    d->n = 0;
}

// Takes the tokens that the device drew. *all: it drew all of them, so no logits are needed.
static int use_draws(struct instance *in, bool *all) {
    const struct batch *b = &in->batch.batch;
    *all = b->draws;
    if (!b->draws) return 0;
    TRY(forward_draws(&in->forward, b->n_logits, in->drawn));
    for (int32_t i = 0; i < b->n_logits; i++) {
        int32_t seq = in->batch.logit_seqs[i];
        struct sampled s = {.id = in->drawn[i].id, .logprob = in->drawn[i].logprob};
        if (s.id < 0 || in->draws[i].kind == DRAW_NONE)
            *all = false;
        else if (!instance_emit_later(in, in->in_step[seq], &s) &&
                 accept(in, in->in_step[seq], &s, clock_mono_us(in->emit.clock)))
            in->in_step[seq] = NULL;
    }
    return 0;
}

// Passes the logits of the wanted rows, a few at a time, to on_logits and to the draws.
static int use_logits(struct instance *in) {
    const struct batch *b = &in->batch.batch;
    int32_t vocab = in->model->config.vocab_size;
    int together = drawings_together(b->n_seqs);
    bool all;
    TRY(use_draws(in, &all));
    if (all) return 0;
    for (int32_t first = 0; first < b->n_logits; first += in->forward.max_logits) {
        int32_t n = b->n_logits - first < in->forward.max_logits ? b->n_logits - first
                                                                 : in->forward.max_logits;
        const float *logits;
        TRY(forward_logits(&in->forward, first, n, &logits));
        for (int32_t i = 0; i < n; i++, logits += vocab) {
            int32_t seq = in->batch.logit_seqs[first + i];
            bool drawn =
                b->draws && in->draws[first + i].kind != DRAW_NONE && in->drawn[first + i].id >= 0;
            if (drawn) continue; // the turn may have ended
            struct live_turn *t = in->in_step[seq];
            int32_t position = b->positions[b->logit_rows[first + i]];
            if (t->spec.on_logits) t->spec.on_logits(t->spec.on_logits_ctx, position, logits);
            bool last = position == t->n_log - 1;
            if (!last || t->spec.score_only) continue;
            drawings_add(&in->drawings, seq, &t->slot->sampler, logits, t->n_log);
            if (in->drawings.n == together) draw(in);
        }
        if (in->drawings.n > 0) draw(in); // these logits are valid until the next are read
    }
    return 0;
}

// Commits the step's tokens to the cache, also if a draw has failed.
static void commit(struct instance *in) {
    for (int32_t i = 0; i < in->batch.batch.n_seqs; i++) {
        struct live_turn *t = in->in_step[i];
        int32_t n = in->batch.seqs[i].n_rows;
        kv_ring_commit(&t->sequence->ring, n);
        sequence_name(t->sequence, t->spec.ids);
        if (t->sched.state == SCHED_PREFILL) {
            t->n_prefilled += t->n_generated == 0 ? n : 0;
            metric_add(in->metrics.prompt_tokens, n);
        }
        sched_computed(&t->sched, n);
    }
}

static void report_prefill(struct instance *in) {
    for (int32_t i = 0; i < in->batch.batch.n_seqs; i++) {
        struct live_turn *t = in->in_step[i];
        if (!t || t->n_generated > 0) continue;
        if (t->sched.state == SCHED_PREFILL)
            emit_progress(&in->emit, t, t->n_prefilled, t->n_log - t->n_cached);
        else if (t->spec.score_only)
            instance_finish(in, t, FINISH_LENGTH, NULL, false);
    }
}

// The device failed during the step: the contents of the step's caches are unknown; other caches are
// unchanged.
static void fail_step(struct instance *in, int rc) {
    struct err err;
    err_set(&err, rc == 0 ? E_INTERNAL : rc, "the model's step failed on %s (%s)",
            in->forward.backend->ops->name, err_name(rc));
    if (rc == E_DEVICE) {
        in->caches.device_lost = true;
        atomic_store(&in->load.device_lost, true); // before any turn's end is emitted
    }
    log_error("engine.step_failed", "code=%s sequences=%d", err_name(rc), in->batch.batch.n_seqs);
    for (int32_t i = 0; i < in->batch.batch.n_seqs; i++) {
        if (in->in_step[i]) instance_finish(in, in->in_step[i], FINISH_ERROR, &err, true);
    }
}

// Measures how fast prompts are computed. A step without logits is only queued on the device when it
// returns; a step with logits has been waited for. So steps without logits count together with the
// next one that has some, unless copies ran beside one of them, one failed, or there was a pause.
static void note_prefill(struct instance *in, int64_t start, int64_t now, bool over, bool failed) {
    const struct batch *b = &in->batch.batch;
    struct asked *a = &in->asked;
    if (a->n_rows == 0) a->began_us = start;
    a->n_rows += b->n_rows;
    a->n_seqs += b->n_seqs;
    a->unclear = a->unclear || b->load || failed;
    if (!over) return;
    if (a->n_rows >= 2 * a->n_seqs && !a->unclear) // mostly prompts
        rate_note(&in->caches.tiers.prefill_rate, (double)a->n_rows, now - a->began_us);
    *a = (struct asked){0};
}

bool instance_step(struct instance *in) {
    int64_t start = clock_mono_us(in->emit.clock);
    build(in);
    const struct batch *b = &in->batch.batch;
    if (b->n_seqs == 0) return false;
    metric_add(in->metrics.steps, 1);
    metric_observe(in->metrics.step_tokens, b->n_rows);
    metric_observe(in->metrics.step_turns, b->n_seqs);

    int rc = forward_run(&in->forward, b);
    instance_emit_pending(in); // the previous step's tokens, while a device computes this step
    if (rc == 0) {
        if (b->load) cache_stepped(&in->caches);
        commit(in);
        rc = use_logits(in);
        atomic_store_explicit(&in->load.drawing_on, -1, memory_order_relaxed);
    }
    bool over = b->n_logits > 0 || !in->forward.backend->ops->logits_read;
    int done = forward_done(&in->forward);
    if (rc == 0) rc = done;
    if (rc < 0)
        fail_step(in, rc);
    else
        report_prefill(in);

    int64_t now = clock_mono_us(in->emit.clock), took = now - start;
    if (b->load && tiers_collect(&in->caches.tiers, false, now) < 0) in->caches.device_lost = true;
    metric_observe(in->metrics.step_time, (double)took * 1e-6);
    note_prefill(in, start, now, over, rc < 0);
    int64_t mean = atomic_load_explicit(&in->load.step_us_ewma, memory_order_relaxed);
    atomic_store_explicit(&in->load.step_us_ewma, mean == 0 ? took : mean + (took - mean) / 8,
                          memory_order_relaxed);
    atomic_fetch_add_explicit(&in->load.steps, 1, memory_order_relaxed);
    if (in->check) caches_check(&in->caches);
    return true;
}
