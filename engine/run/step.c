// One step: masks -> plan -> blocks -> batch -> forward -> late masks -> draws -> events. engine/README.md has the table.
#include "engine/run/step.h"
#include "engine/run/blocks.h"
#include "engine/run/branch_step.h"
#include "engine/run/draft_step.h"
#include "engine/run/emit_later.h"
#include "engine/run/flight.h"
#include "engine/run/instance.h"
#include "engine/run/load.h"
#include "engine/run/masks.h"
#include "engine/run/turns.h"

#include "base/log.h"
#include <sched.h>

static enum batch_logits wanted(const struct live_turn *t, int32_t n) {
    if (t->spec.on_logits || context_waits(&t->context, t->spec.n_ids)) return BATCH_LOGITS_ALL;
    if (t->n_drafted > 0) return BATCH_LOGITS_ALL;
    bool draws = t->sched.state == SCHED_DECODE || t->sched.n_todo == n;
    return draws && !t->spec.score_only ? BATCH_LOGITS_LAST : BATCH_LOGITS_NONE;
}

// Lets the device draw this step's tokens if it can draw, each turn needs the logits of at most one
// row and of its drafts, and nothing else is done with them.
static void plan_draws(struct instance *in) {
    struct batch *b = &in->step->batch.batch;
    const struct backend_ops *ops = in->forward.backend->ops;
    bool any = false;
    b->draws = NULL;
    if (!ops->draw || b->n_logits > b->n_seqs + in->step->n_draft_rows ||
        b->n_logits > in->forward.max_logits)
        return;
    for (int32_t i = 0; i < b->n_logits; i++) {
        const struct live_turn *t = in->step->turns[in->step->batch.logit_seqs[i]];
        int32_t at = b->positions[b->logit_rows[i]];
        int32_t ahead = (int32_t)(at + 1 - t->n_log); // drafts before the token to draw
        bool on_host = t->spec.on_logits || t->spec.score_only || t->branches || ahead < 0 ||
                       context_takes_logits(&t->context, &t->spec, at);
        in->step->draws[i] = (struct batch_draw){.kind = DRAW_NONE};
        if (!on_host) in->step->draws[i] = sampler_plan(&t->slot->sampler, at + 1, ahead);
        in->step->adjusts[i] = !on_host && t->n_drafted == 0 && ops->draw_adjust &&
                               sampler_is_adjustment(&t->slot->sampler);
        any = any || in->step->draws[i].kind != DRAW_NONE || in->step->adjusts[i];
    }
    if (any) b->draws = in->step->draws;
}

// The keys and values of a prefix are copied, not computed by the model. If a turn's next tokens are a
// prefix, the step writes only these: the turn's share is moved to the front and cut. Returns how many shares
// are left.
static int32_t prefix_first(struct instance *in, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        struct live_turn *t = (struct live_turn *)in->shares[i].turn;
        int64_t left = prompt_n_prefix(t->prompt) - t->sequence->ring.n_tokens;
        if (left <= 0) continue;
        in->shares[0] = in->shares[i];
        if (in->shares[0].n_tokens > left) in->shares[0].n_tokens = (int32_t)left;
        in->step->is_prefix = true;
        return 1;
    }
    return n;
}

// Ends a turn that gets no rows, because its blocks are missing or belong to another sequence.
static void no_rows(struct instance *in, struct live_turn *t, const char *event, const char *why) {
    struct err err;
    err_set(&err, E_INTERNAL, "%s", why);
    log_error(event, "turn=%llu", (unsigned long long)t->spec.turn);
    instance_finish(in, t, FINISH_ERROR, &err, true);
}

// The wanted row of the step before that draws the turn's input; -1: none. Both steps have one row of each turn
// and the same order, so the first row looked at is mostly the one.
static int32_t row_before(const struct step *s, const struct live_turn *t) {
    const int32_t n = s->before ? s->before->batch.batch.n_rows : 0;
    for (int32_t k = 0; k < n; k++) {
        int32_t i = (s->batch.batch.n_rows + k) % n;
        if (s->before->turns[i] == t) return i;
    }
    return -1;
}

// Adds the turn's rows. TURN_WAITS: none in this step.
static int add_turn(struct instance *in, struct live_turn *t, int32_t n_tokens) {
    struct kv_ring *r = &t->sequence->ring;
    const int32_t drawn_by = row_before(in->step, t), id = BATCH_DRAWN(drawn_by);
    const int32_t n_ahead = drawn_by >= 0;               // rows that are not committed
    if (n_ahead && t->n_log + 1 >= t->cap_log) return 0; // that token is the last one
    int rc = instance_take_blocks(in, r, n_ahead + n_tokens);
    if (rc != 0) return rc;
    if (!kv_ring_sound(r)) return E_INTERNAL;
    if (t->sequence->state == CACHE_STEPPING)
        in->step->batch.batch.load = cache_load_with_step(&in->caches, t->sequence, &t->restore_us);
    if (t->sched.state == SCHED_DECODE) t->n_drafted = t->n_unchecked = n_tokens - 1;
    in->step->n_draft_rows += t->n_drafted;
    in->step->turns[in->step->batch.batch.n_seqs] = t;
    in->step->branches[in->step->batch.batch.n_seqs] = 0;
    batch_add(&in->step->batch, n_ahead ? &id : t->spec.ids + r->n_tokens, r->n_tokens + n_ahead,
              n_tokens, in->step->is_prefix ? BATCH_LOGITS_NONE : wanted(t, n_tokens),
              r->memory_len, r->sink_len, r->maps, t->prompt, t->short_rope);
    return 0;
}

static void add_share(struct instance *in, const struct sched_share *share) {
    struct live_turn *t = (struct live_turn *)share->turn;
    int rc = t->branches ? instance_branch_rows(in, t, share->n_tokens)
                         : add_turn(in, t, share->n_tokens);
    if (rc == E_INTERNAL) // cannot happen; checked, since it would leak one user's text
        no_rows(in, t, "engine.foreign_block",
                "the cache holds a block that is not this sequence's");
    else if (rc < 0)
        no_rows(in, t, "engine.no_block", "the cache has no block for a turn that was admitted");
}

static int32_t plan(struct instance *in, bool all) {
    instance_prepare_masks(in);
    in->step->is_prefix = false;
    if (!all) return sched_plan_group(&in->sched, in->step->group, in->shares);
    instance_find_drafts(in);
    return prefix_first(in, sched_plan(&in->sched, in->shares));
}

bool instance_build_step(struct instance *in, bool all) {
    struct step *s = in->step;
    s->began_us = clock_mono_us(in->emit.clock);
    int32_t n = plan(in, all);
    batch_reset(&s->batch);
    s->batch.batch.follows = s->before;
    s->batch.batch.is_followed = !all && in->n_groups == 1;
    s->n_draft_rows = s->n_undrawn = 0;
    for (int32_t i = 0; i < n; i++) add_share(in, &in->shares[i]);
    plan_draws(in);
    s->before = NULL;
    return s->batch.batch.n_seqs > 0;
}

// Rows of turns that have ended before the step count as not computed. False: all rows are such.
static bool count_step(struct instance *in) {
    const struct batch *b = &in->step->batch.batch;
    int32_t n_rows = 0, n_turns = 0;
    for (int32_t i = 0; i < b->n_seqs; i++) {
        if (!in->step->turns[i]) continue;
        n_rows += b->seqs[i].n_rows;
        n_turns++;
    }
    if (n_turns == 0) return false;
    metric_add(in->metrics.steps, 1);
    metric_observe(in->metrics.step_tokens, n_rows);
    metric_observe(in->metrics.step_turns, n_turns);
    return true;
}

// --- draws ---------------------------------------------------------------------------------------

// The turn has ended: its rows of the step belong to no turn now.
static void leave_step(struct instance *in, const struct live_turn *t) {
    for (int32_t i = 0; i < in->step->batch.batch.n_seqs; i++)
        if (in->step->turns[i] == t) in->step->turns[i] = NULL;
}

static void turn_failed(struct instance *in, struct live_turn *t, int rc, const char *what,
                        struct err *err) {
    if (err->code == 0) err_set(err, rc, "%s", what);
    leave_step(in, t);
    instance_finish(in, t, FINISH_ERROR, err, false);
}

// Emits a drawn token, and ends its turn if the turn is over. True: it has ended.
static bool accept(struct instance *in, struct live_turn *t, const struct sampled *s,
                   int64_t time_us) {
    struct err err = {0};
    instance_mark_token(in, t, time_us);
    instance_compare_draft(t, s->id);
    buf_reset(&in->text);
    int rc = live_turn_append(t, s->id, &in->scratch, &in->text);
    emit_token(&in->emit, t, 0, s, buf_z(&in->text), in->text.len);
    if (rc < 0) // of a token that has been emitted: the turn cannot go on elsewhere
        turn_failed(in, t, rc == E_NOMEM ? E_INTERNAL : rc, "a token's text is too long", &err);
    else if (rc > 0 || sampler_at_stop(&t->slot->sampler))
        instance_finish(in, t, FINISH_STOP, NULL, false);
    else if (instance_ends_turn(in, t, s->id))
        instance_finish(in, t, FINISH_EOS, NULL, false);
    else if (t->n_log >= t->cap_log)
        instance_finish(in, t, FINISH_LENGTH, NULL, false);
    else
        return false;
    return true;
}

// The same for a turn with branches.
static void accept_branch(struct instance *in, struct live_turn *t, const struct drawing *one) {
    struct err err = {0};
    if (one->search) {
        t->branches->n_ranked++;
        return;
    }
    int rc = instance_branch_accept(in, t, one->branch, &one->drawn, one->time_us);
    if (rc < 0) {
        turn_failed(in, t, rc, "a token's text is too long", &err);
    } else if (instance_branches_over(t)) {
        leave_step(in, t);
        instance_finish(in, t, branches_finish(t->branches), NULL, false);
    }
}

// Draws the gathered tokens and emits them. Turns that are over leave in_step.
static void draw(struct instance *in) {
    struct drawings *d = &in->drawings;
    // Polling pays off only for tokens that come one by one (engine_token_is_near).
    bool alone = d->n == 1;
    atomic_store_explicit(&in->load->drawing_on, alone ? sched_getcpu() : -1, memory_order_relaxed);
    drawings_run(d, in->forward.backend, in->emit.clock);
    emit_hold(&in->emit);
    for (int i = 0; i < d->n; i++) {
        struct drawing *one = &d->of[i];
        struct live_turn *t = in->step->turns[one->seq];
        if (!t) continue; // another branch has failed
        if (one->rc < 0)
            turn_failed(in, t, one->rc, "no token could be drawn", &one->err);
        else if (t->branches)
            accept_branch(in, t, one);
        else if (accept(in, t, &one->drawn, one->time_us))
            in->step->turns[one->seq] = NULL;
    }
    emit_let_go(&in->emit);
    d->n = 0;
}

// Turns whose late masks are not complete (masks.c): no token is drawn from their last rows, and a later step computes
// these again.
static void leave_undrawn(struct instance *in) {
    const struct batch *b = &in->step->batch.batch;
    for (int32_t i = 0; i < b->n_logits; i++) {
        struct live_turn *t = in->step->turns[in->step->batch.logit_seqs[i]];
        if (!t->sched.needs_mask || b->positions[b->logit_rows[i]] != t->n_log - 1) continue;
        t->undrawn = true;
        t->n_unchecked = 1;
        in->step->adjusts[i] = false;
        in->step->n_undrawn++;
    }
}

static void settle_undrawn(struct instance *in) {
    for (int32_t i = 0; i < in->step->batch.batch.n_seqs && in->step->n_undrawn > 0; i++) {
        struct live_turn *t = in->step->turns[i];
        if (!t || !t->undrawn) continue;
        kv_ring_unextend(&t->sequence->ring, t->n_unchecked);
        t->n_unchecked = 0;
        t->undrawn = false;
    }
}

// Sends the device the changes that draws make to their logits, while it computes the step.
static int adjust_draws(struct instance *in) {
    bool any = false;
    if (!in->step->batch.batch.draws) return 0;
    for (int32_t i = 0; i < in->step->batch.batch.n_logits; i++) {
        if (!in->step->adjusts[i]) continue;
        const struct live_turn *t = in->step->turns[in->step->batch.logit_seqs[i]];
        struct batch_adjusted a;
        struct err err = {0};
        // What fails here fails again on the host, which then ends the turn.
        int rc = sampler_adjustment(&t->slot->sampler, &in->drawings.works[0], t->n_log, &a, &err);
        a.row = i;
        if (rc == 0) rc = forward_draw_adjust(&in->forward, &a);
        if (rc == E_DEVICE) return rc;
        in->step->adjusts[i] = rc == 0;
        any = any || rc == 0;
    }
    return any ? forward_draw_adjusted(&in->forward) : 0;
}

static bool device_draws(const struct instance *in, int32_t row) {
    return in->step->draws[row].kind != DRAW_NONE || in->step->adjusts[row];
}

// The draws of a step whose logits the next step overwrites. What the device could not draw is computed again in a
// whole step, whose logits the host draws from; such a turn takes part in no further flight.
static int read_followed(struct instance *in) {
    const struct batch *b = &in->step->batch.batch;
    TRY(forward_draws_before(&in->forward, b->n_logits, in->drawn));
    for (int32_t i = 0; i < b->n_logits; i++) {
        struct live_turn *t = in->step->turns[in->step->batch.logit_seqs[i]];
        if (!t || in->drawn[i].id >= 0) continue;
        t->drawn_by_host = true;
        in->flight.state = FLIGHT_ENDS;
        instance_leave_flight(in, t);
        leave_step(in, t);
        kv_ring_unextend(&t->sequence->ring, 1);
    }
    return 0;
}

// Takes the tokens that the device drew. *all: it drew all of them, so no logits are needed.
static int use_draws(struct instance *in, bool *all) {
    const struct batch *b = &in->step->batch.batch;
    *all = b->draws;
    if (!b->draws) return 0;
    if (!instance_is_followed(in)) TRY(forward_draws(&in->forward, b->n_logits, in->drawn));
    for (int32_t i = 0; i < b->n_logits; i++) {
        int32_t seq = in->step->batch.logit_seqs[i];
        struct live_turn *t = in->step->turns[seq];
        struct sampled s = {.id = in->drawn[i].id, .logprob = in->drawn[i].logprob};
        if (!t || t->undrawn) continue;
        if (t->n_drafted > 0 && !instance_is_next(in, t, b->logit_rows[i])) continue;
        if (s.id < 0 || !device_draws(in, i)) {
            *all = false;
            continue;
        }
        if (t->n_drafted > 0) instance_keep_draft(t, b->positions[b->logit_rows[i]]);
        bool later = t->n_drafted == 0 && instance_emit_later(in, t, &s);
        if (!later && accept(in, t, &s, clock_mono_us(in->emit.clock))) in->step->turns[seq] = NULL;
    }
    return 0;
}

// Whether a wanted row's logits are used, beside its draw on the device.
static bool reads_logits(const struct instance *in, int32_t row) {
    const struct batch *b = &in->step->batch.batch;
    const struct live_turn *t = in->step->turns[in->step->batch.logit_seqs[row]];
    int32_t position = b->positions[b->logit_rows[row]];
    if (!t || t->undrawn)
        return false; // its turn ended with the token that the device drew; or waits for a mask
    if (t->branches)
        return context_takes_logits(&t->context, &t->spec, position) ||
               instance_branch_draws(t, in->step->branches[in->step->batch.logit_seqs[row]],
                                     position);
    if (t->n_drafted > 0 && !instance_is_next(in, t, b->logit_rows[row])) return false;
    if (b->draws && device_draws(in, row) && in->drawn[row].id >= 0) return false;
    return t->spec.on_logits || context_takes_logits(&t->context, &t->spec, position) ||
           (position == t->n_log - 1 && !t->spec.score_only);
}

static void gather(struct instance *in, int32_t seq, const float *logits) {
    struct live_turn *t = in->step->turns[seq];
    int32_t n = t->branches ? instance_branch_jobs(t) : 1;
    for (int32_t i = 0; i < n && in->step->turns[seq]; i++) {
        if (t->branches)
            instance_branch_job(in, seq, i, logits);
        else
            drawings_add(&in->drawings, seq, &t->slot->sampler, logits, t->n_log);
        if (drawings_are_full(&in->drawings, in->step->batch.batch.n_seqs)) draw(in);
    }
}

// The beams of each search go on together.
static void advance_beams(struct instance *in) {
    for (int32_t i = 0; i < in->step->batch.batch.n_seqs; i++) {
        struct live_turn *t = in->step->turns[i];
        if (!t || !t->branches || !t->branches->beams) continue;
        struct err err = {0};
        int rc = instance_branches_advance(in, t);
        if (rc < 0) {
            turn_failed(in, t, rc, "a token's text is too long", &err);
        } else if (t->branches->search.over) {
            leave_step(in, t);
            instance_finish(in, t, branches_finish(t->branches), NULL, false);
        }
    }
}

static bool any_reads_logits(const struct instance *in, int32_t first, int32_t n) {
    for (int32_t i = first; i < first + n; i++)
        if (reads_logits(in, i)) return true;
    return false;
}

// The hidden states that the turns' context outputs need.
static int use_hidden(struct instance *in) {
    const struct batch *b = &in->step->batch.batch;
    for (int32_t i = 0; i < b->n_logits; i++) {
        struct live_turn *t = in->step->turns[in->step->batch.logit_seqs[i]];
        int32_t position = b->positions[b->logit_rows[i]];
        if (!t || !context_takes_hidden(&t->context, &t->spec, position)) continue;
        TRY(forward_hidden(&in->forward, b, i, in->hidden));
        if (t->context.pooling != POOLING_SUM) final_norm_apply(&in->final_norm, in->hidden);
        context_add_hidden(&t->context, in->hidden);
    }
    return 0;
}

// Passes the logits of the wanted rows, a few at a time, to on_logits and to the draws.
static int use_logits(struct instance *in) {
    const struct batch *b = &in->step->batch.batch;
    int32_t vocab = in->model->config.vocab_size;
    bool all;
    TRY(use_hidden(in));
    TRY(use_draws(in, &all));
    if (all) return 0;
    for (int32_t first = 0; first < b->n_logits; first += in->forward.max_logits) {
        int32_t n = b->n_logits - first < in->forward.max_logits ? b->n_logits - first
                                                                 : in->forward.max_logits;
        const float *logits;
        if (!any_reads_logits(in, first, n)) continue;
        TRY(forward_logits(&in->forward, first, n, &logits));
        for (int32_t i = 0; i < n; i++, logits += vocab) {
            int32_t seq = in->step->batch.logit_seqs[first + i];
            // Whether this row counts depends on the token drawn from the turn's previous row.
            if (in->drawings.n > 0 && in->drawings.of[in->drawings.n - 1].seq == seq) draw(in);
            struct live_turn *t = in->step->turns[seq];
            if (!t || !reads_logits(in, first + i)) continue; // the turn may have ended
            int32_t position = b->positions[b->logit_rows[first + i]];
            if (t->spec.on_logits) t->spec.on_logits(t->spec.on_logits_ctx, position, logits);
            struct err err = {0};
            int rc = context_takes_logits(&t->context, &t->spec, position)
                         ? context_add_logits(&t->context, &t->spec, logits, vocab, &err)
                         : 0;
            if (rc < 0) {
                turn_failed(in, t, rc, "the input has no log-probability", &err);
                continue;
            }
            bool last = t->branches ? instance_branch_draws(t, in->step->branches[seq], position)
                                    : position == t->n_log - 1 && !t->spec.score_only;
            if (last && t->n_drafted > 0) instance_keep_draft(t, position);
            if (last) gather(in, seq, logits);
        }
        if (in->drawings.n > 0) draw(in); // these logits are valid until the next are read
    }
    advance_beams(in);
    return 0;
}

// Commits the step's tokens to the cache, whether their draws succeed or not; drafts are committed later,
// when they are checked, and rows of turns that wait for a mask are not.
static void commit(struct instance *in) {
    for (int32_t i = 0; i < in->step->batch.batch.n_seqs; i++) {
        struct live_turn *t = in->step->turns[i];
        if (!t) continue;
        int32_t n = in->step->batch.seqs[i].n_rows - t->n_unchecked;
        bool of_log = !t->branches || !t->branches->forked; // else of a branch's own tokens
        kv_ring_commit(t->branches ? branch_ring(t, in->step->branches[i]) : &t->sequence->ring, n);
        if (of_log) sequence_name(t->sequence, t->spec.ids);
        if (t->sched.state == SCHED_PREFILL) {
            t->n_prefilled += live_turn_has_drawn(t) ? 0 : n;
            metric_add(in->metrics.prompt_tokens, n);
        }
        sched_computed(&t->sched, n);
        sched_checked(&t->sched, t->n_drafted);
    }
}

static void settle_drafts(struct instance *in) {
    for (int32_t i = 0; i < in->step->batch.batch.n_seqs && in->step->n_draft_rows > 0; i++)
        if (in->step->turns[i]) instance_settle_drafts(in, in->step->turns[i]);
}

static void report_prefill(struct instance *in) {
    for (int32_t i = 0; i < in->step->batch.batch.n_seqs; i++) {
        struct live_turn *t = in->step->turns[i];
        if (!t || live_turn_has_drawn(t)) continue;
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
    const char *why = lead_why(in->forward.lead);
    err_set(&err, rc == 0 ? E_INTERNAL : rc, "the model's step failed on %s (%s)",
            in->forward.backend->ops->name, why ? why : err_name(rc));
    if (rc == E_DEVICE) {
        in->caches.device_lost = true;
        atomic_store(&in->load->device_lost, true); // before any turn's end is emitted
    }
    log_error("engine.step_failed", "code=%s sequences=%d", err_name(rc),
              in->step->batch.batch.n_seqs);
    for (int32_t i = 0; i < in->step->batch.batch.n_seqs; i++) {
        struct live_turn *t = in->step->turns[i];
        if (!t) continue;
        leave_step(in, t);
        instance_finish(in, t, FINISH_ERROR, &err, true);
    }
}

// Measures how fast prompts are computed. A step without logits is only queued on the device when it
// returns; a step with logits has been waited for. So steps without logits count together with the
// next one that has some, unless copies ran beside one of them, one failed, or there was a pause.
static void note_prefill(struct instance *in, int64_t start, int64_t now, bool over, bool failed) {
    const struct batch *b = &in->step->batch.batch;
    struct unwaited *a = &in->unwaited;
    if (a->n_rows == 0) a->began_us = start;
    a->n_rows += b->n_rows - in->step->n_draft_rows;
    a->n_seqs += b->n_seqs;
    a->unclear = a->unclear || b->load || failed || in->step->is_prefix;
    if (!over) return;
    if (a->n_rows >= 2 * a->n_seqs && !a->unclear) // mostly prompts
        rate_note(&in->caches.tiers.prefill_rate, (double)a->n_rows, now - a->began_us);
    *a = (struct unwaited){0};
}

int instance_launch_step(struct instance *in, bool sent) {
    const struct batch *b = &in->step->batch.batch;
    if (in->step->is_prefix) return forward_prefix(&in->forward, b);
    TRY(sent ? forward_run_sent(&in->forward, b) : forward_run(&in->forward, b));
    instance_make_masks_late(in);
    leave_undrawn(in);
    return adjust_draws(in);
}

void instance_complete_step(struct instance *in, int rc) {
    const struct batch *b = &in->step->batch.batch;
    const bool counts = count_step(in);
    if (rc == 0 && instance_is_followed(in)) rc = read_followed(in);
    if (rc == 0) {
        if (b->load) cache_stepped(&in->caches);
        commit(in);
        rc = use_logits(in);
        settle_drafts(in);
        settle_undrawn(in);
        atomic_store_explicit(&in->load->drawing_on, -1, memory_order_relaxed);
    }
    bool over = b->n_logits > 0 || !in->forward.backend->ops->logits_read;
    int done = forward_done(&in->forward);
    if (rc == 0) rc = done;
    if (rc < 0)
        fail_step(in, rc);
    else
        report_prefill(in);

    int64_t start = in->step->began_us, now = clock_mono_us(in->emit.clock), took = now - start;
    if (b->load && tiers_collect(&in->caches.tiers, false, now) < 0) in->caches.device_lost = true;
    if (counts) metric_observe(in->metrics.step_time, (double)took * 1e-6);
    note_prefill(in, start, now, over, rc < 0);
    int64_t mean = atomic_load_explicit(&in->load->step_us_ewma, memory_order_relaxed);
    atomic_store_explicit(&in->load->step_us_ewma, mean == 0 ? took : mean + (took - mean) / 8,
                          memory_order_relaxed);
    atomic_fetch_add_explicit(&in->load->steps, 1, memory_order_relaxed);
    if (in->check && in->flight.n == 0) caches_check(&in->caches);
}

bool instance_step(struct instance *in) {
    in->step = &in->steps[0];
    if (!instance_build_step(in, true)) {
        instance_make_masks_late(in);
        return false;
    }
    int rc = instance_launch_step(in, false);
    instance_emit_pending(in); // the previous step's tokens, while a device computes this step
    instance_complete_step(in, rc);
    return true;
}
