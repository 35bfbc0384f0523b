// One step: masks -> plan -> blocks -> batch -> forward -> late masks -> draws -> events. engine/README.md has the table.
#include "engine/run/step.h"
#include "engine/run/blocks.h"
#include "engine/run/branch_step.h"
#include "engine/run/draft_step.h"
#include "engine/run/emit_later.h"
#include "engine/run/engine_core.h"
#include "engine/run/flight.h"
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
static void plan_draws(struct engine_core *core) {
    struct batch *b = &core->step->batch.batch;
    const struct backend_ops *ops = core->forward.backend->ops;
    bool any = false;
    b->draws = NULL;
    if (!ops->draw || b->n_logits > b->n_seqs + core->step->n_draft_rows ||
        b->n_logits > core->forward.max_logits)
        return;
    for (int32_t i = 0; i < b->n_logits; i++) {
        const struct live_turn *t = core->step->turns[core->step->batch.logit_seqs[i]];
        int32_t at = b->positions[b->logit_rows[i]];
        int32_t ahead = (int32_t)(at + 1 - t->n_log); // drafts before the token to draw
        bool on_host = t->spec.on_logits || t->spec.score_only || t->branches || ahead < 0 ||
                       context_takes_logits(&t->context, &t->spec, at);
        core->step->draws[i] = (struct batch_draw){.kind = DRAW_NONE};
        if (!on_host) core->step->draws[i] = sampler_plan(&t->slot->sampler, at + 1, ahead);
        core->step->adjusts[i] = !on_host && t->n_drafted == 0 && ops->draw_adjust &&
                                 sampler_is_adjustment(&t->slot->sampler);
        any = any || core->step->draws[i].kind != DRAW_NONE || core->step->adjusts[i];
    }
    if (any) b->draws = core->step->draws;
}

// The keys and values of a prefix are copied, not computed by the model. If a turn's next tokens are a
// prefix, the step writes only these: the turn's share is moved to the front and cut. Returns how many shares
// are left.
static int32_t prefix_first(struct engine_core *core, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        struct live_turn *t = (struct live_turn *)core->shares[i].turn;
        int64_t left = prompt_n_prefix(t->prompt) - t->sequence->ring.n_tokens;
        if (left <= 0) continue;
        core->shares[0] = core->shares[i];
        if (core->shares[0].n_tokens > left) core->shares[0].n_tokens = (int32_t)left;
        core->step->is_prefix = true;
        return 1;
    }
    return n;
}

// Ends a turn that gets no rows, because its blocks are missing or belong to another sequence.
static void no_rows(struct engine_core *core, struct live_turn *t, const char *event,
                    const char *why) {
    struct err err;
    err_set(&err, E_INTERNAL, "%s", why);
    log_error(event, "turn=%llu", (unsigned long long)t->spec.turn);
    core_finish(core, t, FINISH_ERROR, &err, true);
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
static int add_turn(struct engine_core *core, struct live_turn *t, int32_t n_tokens) {
    struct kv_ring *r = &t->sequence->ring;
    const int32_t drawn_by = row_before(core->step, t), id = BATCH_DRAWN(drawn_by);
    const int32_t n_ahead = drawn_by >= 0;               // rows that are not committed
    if (n_ahead && t->n_log + 1 >= t->cap_log) return 0; // that token is the last one
    int rc = core_take_blocks(core, r, n_ahead + n_tokens);
    if (rc != 0) return rc;
    if (!kv_ring_sound(r)) return E_INTERNAL;
    if (t->sequence->state == CACHE_STEPPING)
        core->step->batch.batch.load =
            cache_load_with_step(&core->caches, t->sequence, &t->restore_us);
    if (t->sched.state == SCHED_DECODE) t->n_drafted = t->n_unchecked = n_tokens - 1;
    core->step->n_draft_rows += t->n_drafted;
    core->step->turns[core->step->batch.batch.n_seqs] = t;
    core->step->branches[core->step->batch.batch.n_seqs] = 0;
    batch_add(&core->step->batch, n_ahead ? &id : t->spec.ids + r->n_tokens, r->n_tokens + n_ahead,
              n_tokens, core->step->is_prefix ? BATCH_LOGITS_NONE : wanted(t, n_tokens),
              r->memory_len, r->sink_len, r->maps, t->prompt, t->short_rope);
    return 0;
}

static void add_share(struct engine_core *core, const struct sched_share *share) {
    struct live_turn *t = (struct live_turn *)share->turn;
    int rc = t->branches ? core_branch_rows(core, t, share->n_tokens)
                         : add_turn(core, t, share->n_tokens);
    if (rc == E_INTERNAL) // cannot happen; checked, since it would leak one user's text
        no_rows(core, t, "engine.foreign_block",
                "the cache holds a block that is not this sequence's");
    else if (rc < 0)
        no_rows(core, t, "engine.no_block", "the cache has no block for a turn that was admitted");
}

static int32_t plan(struct engine_core *core, bool all) {
    core_prepare_masks(core);
    core->step->is_prefix = false;
    if (!all) return sched_plan_group(&core->sched, core->step->group, core->shares);
    core_find_drafts(core);
    return prefix_first(core, sched_plan(&core->sched, core->shares));
}

bool core_build_step(struct engine_core *core, bool all) {
    struct step *s = core->step;
    s->began_us = clock_mono_us(core->emit.clock);
    int32_t n = plan(core, all);
    batch_reset(&s->batch);
    s->batch.batch.follows = s->before;
    s->batch.batch.is_followed = !all && core->n_groups == 1;
    s->n_draft_rows = s->n_undrawn = 0;
    for (int32_t i = 0; i < n; i++) add_share(core, &core->shares[i]);
    plan_draws(core);
    s->before = NULL;
    return s->batch.batch.n_seqs > 0;
}

// Rows of turns that have ended before the step count as not computed. False: all rows are such.
static bool count_step(struct engine_core *core) {
    const struct batch *b = &core->step->batch.batch;
    int32_t n_rows = 0, n_turns = 0;
    for (int32_t i = 0; i < b->n_seqs; i++) {
        if (!core->step->turns[i]) continue;
        n_rows += b->seqs[i].n_rows;
        n_turns++;
    }
    if (n_turns == 0) return false;
    metric_add(core->metrics.steps, 1);
    metric_observe(core->metrics.step_tokens, n_rows);
    metric_observe(core->metrics.step_turns, n_turns);
    return true;
}

// --- draws ---------------------------------------------------------------------------------------

// The turn has ended: its rows of the step belong to no turn now.
static void leave_step(struct engine_core *core, const struct live_turn *t) {
    for (int32_t i = 0; i < core->step->batch.batch.n_seqs; i++)
        if (core->step->turns[i] == t) core->step->turns[i] = NULL;
}

static void turn_failed(struct engine_core *core, struct live_turn *t, int rc, const char *what,
                        struct err *err) {
    if (err->code == 0) err_set(err, rc, "%s", what);
    leave_step(core, t);
    core_finish(core, t, FINISH_ERROR, err, false);
}

// Emits a drawn token, and ends its turn if the turn is over. True: it has ended.
static bool accept(struct engine_core *core, struct live_turn *t, const struct sampled *s,
                   int64_t time_us) {
    struct err err = {0};
    core_mark_token(core, t, time_us);
    core_compare_draft(t, s->id);
    buf_reset(&core->text);
    int rc = live_turn_append(t, s->id, &core->scratch, &core->text);
    emit_token(&core->emit, t, 0, s, buf_z(&core->text), core->text.len);
    if (rc < 0) // of a token that has been emitted: the turn cannot go on elsewhere
        turn_failed(core, t, rc == E_NOMEM ? E_INTERNAL : rc, "a token's text is too long", &err);
    else if (rc > 0 || sampler_at_stop(&t->slot->sampler))
        core_finish(core, t, FINISH_STOP, NULL, false);
    else if (core_ends_turn(core, t, s->id))
        core_finish(core, t, FINISH_EOS, NULL, false);
    else if (t->n_log >= t->cap_log)
        core_finish(core, t, FINISH_LENGTH, NULL, false);
    else
        return false;
    return true;
}

// The same for a turn with branches.
static void accept_branch(struct engine_core *core, struct live_turn *t,
                          const struct drawing *one) {
    struct err err = {0};
    if (one->search) {
        t->branches->n_ranked++;
        return;
    }
    int rc = core_branch_accept(core, t, one->branch, &one->drawn, one->time_us);
    if (rc < 0) {
        turn_failed(core, t, rc, "a token's text is too long", &err);
    } else if (core_branches_over(t)) {
        leave_step(core, t);
        core_finish(core, t, branches_finish(t->branches), NULL, false);
    }
}

// Draws the gathered tokens and emits them. Turns that are over leave in_step.
static void draw(struct engine_core *core) {
    struct drawings *d = &core->drawings;
    // Polling pays off only for tokens that come one by one (engine_token_is_near).
    bool alone = d->n == 1;
    atomic_store_explicit(&core->load->drawing_on, alone ? sched_getcpu() : -1,
                          memory_order_relaxed);
    drawings_run(d, core->forward.backend, core->emit.clock);
    emit_hold(&core->emit);
    for (int i = 0; i < d->n; i++) {
        struct drawing *one = &d->of[i];
        struct live_turn *t = core->step->turns[one->seq];
        if (!t) continue; // another branch has failed
        if (one->rc < 0)
            turn_failed(core, t, one->rc, "no token could be drawn", &one->err);
        else if (t->branches)
            accept_branch(core, t, one);
        else if (accept(core, t, &one->drawn, one->time_us))
            core->step->turns[one->seq] = NULL;
    }
    emit_let_go(&core->emit);
    d->n = 0;
}

// Turns whose late masks are not complete (masks.c): no token is drawn from their last rows, and a later step computes
// these again.
static void leave_undrawn(struct engine_core *core) {
    const struct batch *b = &core->step->batch.batch;
    for (int32_t i = 0; i < b->n_logits; i++) {
        struct live_turn *t = core->step->turns[core->step->batch.logit_seqs[i]];
        if (!t->sched.needs_mask || b->positions[b->logit_rows[i]] != t->n_log - 1) continue;
        t->undrawn = true;
        t->n_unchecked = 1;
        core->step->adjusts[i] = false;
        core->step->n_undrawn++;
    }
}

static void settle_undrawn(struct engine_core *core) {
    for (int32_t i = 0; i < core->step->batch.batch.n_seqs && core->step->n_undrawn > 0; i++) {
        struct live_turn *t = core->step->turns[i];
        if (!t || !t->undrawn) continue;
        kv_ring_unextend(&t->sequence->ring, t->n_unchecked);
        t->n_unchecked = 0;
        t->undrawn = false;
    }
}

// Sends the device the changes that draws make to their logits, while it computes the step.
static int adjust_draws(struct engine_core *core) {
    bool any = false;
    if (!core->step->batch.batch.draws) return 0;
    for (int32_t i = 0; i < core->step->batch.batch.n_logits; i++) {
        if (!core->step->adjusts[i]) continue;
        const struct live_turn *t = core->step->turns[core->step->batch.logit_seqs[i]];
        struct batch_adjusted a;
        struct err err = {0};
        // What fails here fails again on the host, which then ends the turn.
        int rc =
            sampler_adjustment(&t->slot->sampler, &core->drawings.works[0], t->n_log, &a, &err);
        a.row = i;
        if (rc == 0) rc = forward_draw_adjust(&core->forward, &a);
        if (rc == E_DEVICE) return rc;
        core->step->adjusts[i] = rc == 0;
        any = any || rc == 0;
    }
    return any ? forward_draw_adjusted(&core->forward) : 0;
}

static bool device_draws(const struct engine_core *core, int32_t row) {
    return core->step->draws[row].kind != DRAW_NONE || core->step->adjusts[row];
}

// The draws of a step whose logits the next step overwrites. What the device could not draw is computed again in a
// whole step, whose logits the host draws from; such a turn takes part in no further flight.
static int read_followed(struct engine_core *core) {
    const struct batch *b = &core->step->batch.batch;
    TRY(forward_draws_before(&core->forward, b->n_logits, core->drawn));
    for (int32_t i = 0; i < b->n_logits; i++) {
        struct live_turn *t = core->step->turns[core->step->batch.logit_seqs[i]];
        if (!t || core->drawn[i].id >= 0) continue;
        t->drawn_by_host = true;
        core->flight.state = FLIGHT_ENDS;
        core_leave_flight(core, t);
        leave_step(core, t);
        kv_ring_unextend(&t->sequence->ring, 1);
    }
    return 0;
}

// Takes the tokens that the device drew. *all: it drew all of them, so no logits are needed.
static int use_draws(struct engine_core *core, bool *all) {
    const struct batch *b = &core->step->batch.batch;
    *all = b->draws;
    if (!b->draws) return 0;
    if (!core_is_followed(core)) TRY(forward_draws(&core->forward, b->n_logits, core->drawn));
    for (int32_t i = 0; i < b->n_logits; i++) {
        int32_t seq = core->step->batch.logit_seqs[i];
        struct live_turn *t = core->step->turns[seq];
        struct sampled s = {.id = core->drawn[i].id, .logprob = core->drawn[i].logprob};
        if (!t || t->undrawn) continue;
        if (t->n_drafted > 0 && !core_is_next(core, t, b->logit_rows[i])) continue;
        if (s.id < 0 || !device_draws(core, i)) {
            *all = false;
            continue;
        }
        if (t->n_drafted > 0) core_keep_draft(t, b->positions[b->logit_rows[i]]);
        bool later = t->n_drafted == 0 && core_emit_later(core, t, &s);
        if (!later && accept(core, t, &s, clock_mono_us(core->emit.clock)))
            core->step->turns[seq] = NULL;
    }
    return 0;
}

// Whether a wanted row's logits are used, beside its draw on the device.
static bool reads_logits(const struct engine_core *core, int32_t row) {
    const struct batch *b = &core->step->batch.batch;
    const struct live_turn *t = core->step->turns[core->step->batch.logit_seqs[row]];
    int32_t position = b->positions[b->logit_rows[row]];
    if (!t || t->undrawn)
        return false; // its turn ended with the token that the device drew; or waits for a mask
    if (t->branches)
        return context_takes_logits(&t->context, &t->spec, position) ||
               core_branch_draws(t, core->step->branches[core->step->batch.logit_seqs[row]],
                                 position);
    if (t->n_drafted > 0 && !core_is_next(core, t, b->logit_rows[row])) return false;
    if (b->draws && device_draws(core, row) && core->drawn[row].id >= 0) return false;
    return t->spec.on_logits || context_takes_logits(&t->context, &t->spec, position) ||
           (position == t->n_log - 1 && !t->spec.score_only);
}

static void gather(struct engine_core *core, int32_t seq, const float *logits) {
    struct live_turn *t = core->step->turns[seq];
    int32_t n = t->branches ? core_branch_jobs(t) : 1;
    for (int32_t i = 0; i < n && core->step->turns[seq]; i++) {
        if (t->branches)
            core_branch_job(core, seq, i, logits);
        else
            drawings_add(&core->drawings, seq, &t->slot->sampler, logits, t->n_log);
        if (drawings_are_full(&core->drawings, core->step->batch.batch.n_seqs)) draw(core);
    }
}

// The beams of each search go on together.
static void advance_beams(struct engine_core *core) {
    for (int32_t i = 0; i < core->step->batch.batch.n_seqs; i++) {
        struct live_turn *t = core->step->turns[i];
        if (!t || !t->branches || !t->branches->beams) continue;
        struct err err = {0};
        int rc = core_branches_advance(core, t);
        if (rc < 0) {
            turn_failed(core, t, rc, "a token's text is too long", &err);
        } else if (t->branches->search.over) {
            leave_step(core, t);
            core_finish(core, t, branches_finish(t->branches), NULL, false);
        }
    }
}

static bool any_reads_logits(const struct engine_core *core, int32_t first, int32_t n) {
    for (int32_t i = first; i < first + n; i++)
        if (reads_logits(core, i)) return true;
    return false;
}

// The hidden states that the turns' context outputs need.
static int use_hidden(struct engine_core *core) {
    const struct batch *b = &core->step->batch.batch;
    for (int32_t i = 0; i < b->n_logits; i++) {
        struct live_turn *t = core->step->turns[core->step->batch.logit_seqs[i]];
        int32_t position = b->positions[b->logit_rows[i]];
        if (!t || !context_takes_hidden(&t->context, &t->spec, position)) continue;
        TRY(forward_hidden(&core->forward, b, i, core->hidden));
        if (t->context.pooling != POOLING_SUM) final_norm_apply(&core->final_norm, core->hidden);
        context_add_hidden(&t->context, core->hidden);
    }
    return 0;
}

// Passes the logits of the wanted rows, a few at a time, to on_logits and to the draws.
static int use_logits(struct engine_core *core) {
    const struct batch *b = &core->step->batch.batch;
    int32_t vocab = core->model->config.vocab_size;
    bool all;
    TRY(use_hidden(core));
    TRY(use_draws(core, &all));
    if (all) return 0;
    for (int32_t first = 0; first < b->n_logits; first += core->forward.max_logits) {
        int32_t n = b->n_logits - first < core->forward.max_logits ? b->n_logits - first
                                                                   : core->forward.max_logits;
        const float *logits;
        if (!any_reads_logits(core, first, n)) continue;
        TRY(forward_logits(&core->forward, first, n, &logits));
        for (int32_t i = 0; i < n; i++, logits += vocab) {
            int32_t seq = core->step->batch.logit_seqs[first + i];
            // Whether this row counts depends on the token drawn from the turn's previous row.
            if (core->drawings.n > 0 && core->drawings.of[core->drawings.n - 1].seq == seq)
                draw(core);
            struct live_turn *t = core->step->turns[seq];
            if (!t || !reads_logits(core, first + i)) continue; // the turn may have ended
            int32_t position = b->positions[b->logit_rows[first + i]];
            if (t->spec.on_logits) t->spec.on_logits(t->spec.on_logits_ctx, position, logits);
            struct err err = {0};
            int rc = context_takes_logits(&t->context, &t->spec, position)
                         ? context_add_logits(&t->context, &t->spec, logits, vocab, &err)
                         : 0;
            if (rc < 0) {
                turn_failed(core, t, rc, "the input has no log-probability", &err);
                continue;
            }
            bool last = t->branches ? core_branch_draws(t, core->step->branches[seq], position)
                                    : position == t->n_log - 1 && !t->spec.score_only;
            if (last && t->n_drafted > 0) core_keep_draft(t, position);
            if (last) gather(core, seq, logits);
        }
        if (core->drawings.n > 0) draw(core); // these logits are valid until the next are read
    }
    advance_beams(core);
    return 0;
}

// Commits the step's tokens to the cache, whether their draws succeed or not; drafts are committed later,
// when they are checked, and rows of turns that wait for a mask are not.
static void commit(struct engine_core *core) {
    for (int32_t i = 0; i < core->step->batch.batch.n_seqs; i++) {
        struct live_turn *t = core->step->turns[i];
        if (!t) continue;
        int32_t n = core->step->batch.seqs[i].n_rows - t->n_unchecked;
        bool of_log = !t->branches || !t->branches->forked; // else of a branch's own tokens
        kv_ring_commit(t->branches ? branch_ring(t, core->step->branches[i]) : &t->sequence->ring,
                       n);
        if (of_log) sequence_name(t->sequence, t->spec.ids);
        if (t->sched.state == SCHED_PREFILL) {
            t->n_prefilled += live_turn_has_drawn(t) ? 0 : n;
            metric_add(core->metrics.prompt_tokens, n);
        }
        sched_computed(&t->sched, n);
        sched_checked(&t->sched, t->n_drafted);
    }
}

static void settle_drafts(struct engine_core *core) {
    for (int32_t i = 0; i < core->step->batch.batch.n_seqs && core->step->n_draft_rows > 0; i++)
        if (core->step->turns[i]) core_settle_drafts(core, core->step->turns[i]);
}

static void report_prefill(struct engine_core *core) {
    for (int32_t i = 0; i < core->step->batch.batch.n_seqs; i++) {
        struct live_turn *t = core->step->turns[i];
        if (!t || live_turn_has_drawn(t)) continue;
        if (t->sched.state == SCHED_PREFILL)
            emit_progress(&core->emit, t, t->n_prefilled, t->n_log - t->n_cached);
        else if (t->spec.score_only)
            core_finish(core, t, FINISH_LENGTH, NULL, false);
    }
}

// The device failed during the step: the contents of the step's caches are unknown; other caches are
// unchanged.
static void fail_step(struct engine_core *core, int rc) {
    struct err err;
    const char *why = lead_why(core->forward.lead);
    err_set(&err, rc == 0 ? E_INTERNAL : rc, "the model's step failed on %s (%s)",
            core->forward.backend->ops->name, why ? why : err_name(rc));
    if (rc == E_DEVICE) {
        core->caches.device_lost = true;
        atomic_store(&core->load->device_lost, true); // before any turn's end is emitted
    }
    log_error("engine.step_failed", "code=%s sequences=%d", err_name(rc),
              core->step->batch.batch.n_seqs);
    for (int32_t i = 0; i < core->step->batch.batch.n_seqs; i++) {
        struct live_turn *t = core->step->turns[i];
        if (!t) continue;
        leave_step(core, t);
        core_finish(core, t, FINISH_ERROR, &err, true);
    }
}

// Measures how fast prompts are computed. A step without logits is only queued on the device when it
// returns; a step with logits has been waited for. So steps without logits count together with the
// next one that has some, unless copies ran beside one of them, one failed, or there was a pause.
static void note_prefill(struct engine_core *core, int64_t start, int64_t now, bool over,
                         bool failed) {
    const struct batch *b = &core->step->batch.batch;
    struct unwaited *a = &core->unwaited;
    if (a->n_rows == 0) a->began_us = start;
    a->n_rows += b->n_rows - core->step->n_draft_rows;
    a->n_seqs += b->n_seqs;
    a->unclear = a->unclear || b->load || failed || core->step->is_prefix;
    if (!over) return;
    if (a->n_rows >= 2 * a->n_seqs && !a->unclear) // mostly prompts
        rate_note(&core->caches.tiers.prefill_rate, (double)a->n_rows, now - a->began_us);
    *a = (struct unwaited){0};
}

int core_launch_step(struct engine_core *core, bool sent) {
    const struct batch *b = &core->step->batch.batch;
    if (core->step->is_prefix) return forward_prefix(&core->forward, b);
    TRY(sent ? forward_run_sent(&core->forward, b) : forward_run(&core->forward, b));
    core_make_masks_late(core);
    leave_undrawn(core);
    return adjust_draws(core);
}

void core_complete_step(struct engine_core *core, int rc) {
    const struct batch *b = &core->step->batch.batch;
    const bool counts = count_step(core);
    if (rc == 0 && core_is_followed(core)) rc = read_followed(core);
    if (rc == 0) {
        if (b->load) cache_stepped(&core->caches);
        commit(core);
        rc = use_logits(core);
        settle_drafts(core);
        settle_undrawn(core);
        atomic_store_explicit(&core->load->drawing_on, -1, memory_order_relaxed);
    }
    bool over = b->n_logits > 0 || !core->forward.backend->ops->logits_read;
    int done = forward_done(&core->forward);
    if (rc == 0) rc = done;
    if (rc < 0)
        fail_step(core, rc);
    else
        report_prefill(core);

    int64_t start = core->step->began_us, now = clock_mono_us(core->emit.clock), took = now - start;
    if (b->load && tiers_collect(&core->caches.tiers, false, now) < 0)
        core->caches.device_lost = true;
    if (counts) metric_observe(core->metrics.step_time, (double)took * 1e-6);
    note_prefill(core, start, now, over, rc < 0);
    int64_t mean = atomic_load_explicit(&core->load->step_us_ewma, memory_order_relaxed);
    atomic_store_explicit(&core->load->step_us_ewma, mean == 0 ? took : mean + (took - mean) / 8,
                          memory_order_relaxed);
    atomic_fetch_add_explicit(&core->load->steps, 1, memory_order_relaxed);
    if (core->check && core->flight.n == 0) caches_check(&core->caches);
}

bool core_step(struct engine_core *core) {
    core->step = &core->steps[0];
    if (!core_build_step(core, true)) {
        core_make_masks_late(core);
        return false;
    }
    int rc = core_launch_step(core, false);
    core_emit_pending(core); // the previous step's tokens, while a device computes this step
    core_complete_step(core, rc);
    return true;
}
