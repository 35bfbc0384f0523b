// A turn with branches in a step: its rows, its draws and its tokens. See branches.h.
#include "engine/run/branch_step.h"
#include "engine/run/blocks.h"
#include "engine/run/emit_later.h"
#include "engine/run/engine_core.h"

// --- rows ----------------------------------------------------------------------------------------

static void add_rows(struct engine_core *core, struct live_turn *t, int32_t branch,
                     const int32_t *ids, int32_t n, enum batch_logits logits) {
    const struct kv_ring *r = branch_ring(t, branch);
    core->step->turns[core->step->batch.batch.n_seqs] = t;
    core->step->branches[core->step->batch.batch.n_seqs] = branch;
    batch_add(&core->step->batch, ids, r->n_tokens, n, logits, r->memory_len, r->sink_len, r->maps,
              t->prompt, t->short_rope);
}

// The rows of the turn's log, in its first ring.
static int add_log(struct engine_core *core, struct live_turn *t, int32_t n) {
    struct kv_ring *r = &t->sequence->ring;
    int64_t left = branches_base(t) - r->n_tokens;
    if (n > left) n = (int32_t)left;
    int rc = core_take_blocks(core, r, n);
    if (rc != 0) return rc;
    bool draws = n == left && !branches_have_drawn(t->branches) && !core->step->is_prefix;
    enum batch_logits logits = core->step->is_prefix                       ? BATCH_LOGITS_NONE
                               : context_waits(&t->context, t->spec.n_ids) ? BATCH_LOGITS_ALL
                               : draws                                     ? BATCH_LOGITS_LAST
                                                                           : BATCH_LOGITS_NONE;
    if (t->sequence->state == CACHE_STEPPING)
        core->step->batch.batch.load =
            cache_load_with_step(&core->caches, t->sequence, &t->restore_us);
    add_rows(core, t, 0, t->spec.ids + r->n_tokens, n, logits);
    return 0;
}

// How many rows a branch has in a step that computes at most *left tokens of branches again.
static int32_t rows_of(const struct live_turn *t, int32_t branch, int32_t *left) {
    int32_t n;
    (void)branch_ids(t->branches, branch, &n);
    if (t->sched.state == SCHED_DECODE) return 1;
    int64_t uncomputed = t->spec.n_ids + n - 1 - branch_ring(t, branch)->n_tokens;
    if (uncomputed > *left) uncomputed = *left;
    *left -= (int32_t)uncomputed;
    return (int32_t)uncomputed;
}

// All rows or none: the beams of a search go on together.
int core_branch_rows(struct engine_core *core, struct live_turn *t, int32_t n_tokens) {
    struct branches *b = t->branches;
    int32_t n[BEAMS_MAX] = {0}, left = n_tokens, taken = 0;
    int rc = 0;
    if (t->sequence->ring.n_tokens < branches_base(t) && !b->forked)
        return add_log(core, t, n_tokens);
    if (!b->forked) branches_fork(t);
    for (; taken < b->n; taken++) {
        if (!branch_runs(b, taken)) continue;
        n[taken] = rows_of(t, taken, &left);
        struct kv_ring *r = branch_ring(t, taken);
        if (n[taken] > 0) rc = core_take_blocks(core, r, n[taken]);
        if (rc == 0 && !kv_ring_sound(r)) rc = E_INTERNAL;
        if (rc != 0) break;
    }
    for (int32_t i = 0; i < taken && rc != 0; i++)
        if (n[i] > 0) kv_ring_unextend(branch_ring(t, i), n[i]);
    for (int32_t i = 0; i < b->n && rc == 0; i++) {
        if (n[i] == 0) continue;
        int32_t len;
        const int32_t *ids = branch_ids(b, i, &len);
        int64_t at = branch_ring(t, i)->n_tokens - t->spec.n_ids;
        add_rows(core, t, i, ids + at, n[i],
                 t->sched.state == SCHED_DECODE ? BATCH_LOGITS_LAST : BATCH_LOGITS_NONE);
    }
    return rc;
}

// --- draws ---------------------------------------------------------------------------------------

bool core_branch_draws(const struct live_turn *t, int32_t branch, int64_t position) {
    int32_t n;
    (void)branch_ids(t->branches, branch, &n);
    return position == t->spec.n_ids + n - 1;
}

int32_t core_branch_jobs(const struct live_turn *t) {
    const struct branches *b = t->branches;
    return b->beams || b->samples[0].n > 0 ? 1 : b->n;
}

void core_branch_job(struct engine_core *core, int32_t seq, int32_t job, const float *logits) {
    struct live_turn *t = core->step->turns[seq];
    struct branches *b = t->branches;
    int32_t branch = core->step->branches[seq] + job;
    struct sampler *s = branch_sampler(t, branch);
    if (b->beams) {
        drawings_add_beam(&core->drawings, seq, branch, s, &b->search, logits);
        return;
    }
    drawings_add(&core->drawings, seq, s, logits, t->spec.n_ids + b->samples[branch].n);
    core->drawings.of[core->drawings.n - 1].branch = branch;
}

// --- samples -------------------------------------------------------------------------------------

// The text that was held back of a sample that is over.
static void flush(struct engine_core *core, struct live_turn *t, int32_t branch) {
    buf_reset(&core->text);
    (void)turn_slot_flush(&t->branches->samples[branch].slot, &core->scratch, &core->text);
    emit_text(&core->emit, t, branch, buf_z(&core->text), core->text.len);
}

int core_branch_accept(struct engine_core *core, struct live_turn *t, int32_t branch,
                       const struct sampled *s, int64_t time_us) {
    struct branches *b = t->branches;
    struct turn_slot *slot = branch > 0 ? &b->samples[branch].slot : t->slot;
    int rc;
    if (branch == 0)
        core_mark_token(core, t, time_us);
    else
        metric_add(core->metrics.generated_tokens, 1);
    bool full = branch_take(b, branch, s);
    buf_reset(&core->text);
    if (branch == 0) {
        rc = live_turn_append(t, s->id, &core->scratch, &core->text);
    } else {
        sampler_accept(&slot->sampler, s->id);
        rc = turn_slot_text(slot, s->id, &core->scratch, &core->text);
    }
    emit_token(&core->emit, t, branch, s, buf_z(&core->text), core->text.len);
    if (rc < 0) return rc;
    if (rc > 0 || sampler_at_stop(&slot->sampler))
        branch_end(t, branch, FINISH_STOP);
    else if (core_ends_turn(core, t, s->id))
        branch_end(t, branch, FINISH_EOS);
    else if (full)
        branch_end(t, branch, FINISH_LENGTH);
    else
        return 0;
    if (branch > 0) flush(core, t, branch);
    t->sched.n_rows = branches_n_running(b);
    return 0;
}

bool core_branches_over(const struct live_turn *t) {
    return branches_n_running(t->branches) == 0;
}

// --- beams ---------------------------------------------------------------------------------------

// The tokens in which all beams agree become the turn's.
static int emit_beam(struct engine_core *core, struct live_turn *t, const int32_t *ids,
                     const float *logprobs, int32_t n) {
    for (int32_t i = (int32_t)t->n_generated; i < n; i++) {
        const struct sampled s = {.id = ids[i], .logprob = logprobs[i]};
        buf_reset(&core->text);
        TRY(live_turn_append(t, s.id, &core->scratch, &core->text));
        emit_token(&core->emit, t, 0, &s, buf_z(&core->text), core->text.len);
    }
    return 0;
}

int core_branches_advance(struct engine_core *core, struct live_turn *t) {
    struct branches *b = t->branches;
    struct beam_search *s = &b->search;
    if (!b->beams || b->n_ranked == 0 || b->n_ranked < s->n_running) return 0;
    core_mark_token(core, t, clock_mono_us(core->emit.clock));
    branches_advance(t);
    t->sched.n_rows = s->n_running;
    if (s->over) return 0;
    const struct beam *first = s->n_ended > 0 ? &s->ended[0] : &s->running[0];
    int rc = emit_beam(core, t, first->ids, first->logprobs,
                       branches_agreed(b, (int32_t)t->n_generated));
    t->sequence->n_agreed = t->n_log;
    return rc;
}

// --- the end -------------------------------------------------------------------------------------

int core_branches_settle(struct engine_core *core, struct live_turn *t, enum engine_finish finish,
                         bool ran) {
    struct branches *b = t->branches;
    for (int32_t i = 1; !b->beams && i < b->n && b->begun; i++)
        if (!b->samples[i].over) flush(core, t, i);
    branches_settle(t, finish, ran);
    const struct engine_branch *best = &b->result.of[0];
    if (!b->beams || b->result.n == 0) return 0;
    return emit_beam(core, t, best->ids, best->logprobs, best->n);
}
