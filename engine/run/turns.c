// How turns begin and end on the engine's thread: commands, admission, deadlines.
#include "engine/run/turns.h"
#include "engine/run/branch_step.h"
#include "engine/run/command.h"
#include "engine/run/draft_step.h"
#include "engine/run/emit_later.h"
#include "engine/run/engine_core.h"
#include "engine/run/flight.h"

#include "base/log.h"

#define SHORT_ROPE                                                                                 \
    UINT64_C(0x6c6f6e67726f7065) // any number: what a hash of the other frequencies differs by

// --- slots ---------------------------------------------------------------------------------------

// There is one for each turn that may run, and a spare one (flush_text).
static int take_slot(struct engine_core *core, struct live_turn *t, struct err *err) {
    struct turn_slot *slot = core->slots;
    while (slot->taken) slot++;
    slot->taken = true;
    t->slot = slot;
    TRY(live_turn_begin(t, slot, core->tokenizer, core->eos_ids, core->n_eos, &core->scratch,
                        &core->text, err));
    return t->branches ? branches_begin(t, core->tokenizer, err) : 0;
}

static void release_slot(struct live_turn *t) {
    if (t->slot) sampler_unconstrain(&t->slot->sampler); // it may hold much memory
    if (t->slot) t->slot->taken = false;
    t->slot = NULL;
}

// --- the end of a turn ---------------------------------------------------------------------------

static void count_end(struct engine_core *core, const struct live_turn *t,
                      enum engine_finish finish) {
    const struct engine_metrics *m = &core->metrics;
    metric_add(m->finished[finish], 1);
    if (!t->first_us) return;
    struct turn_times times = live_turn_times(t, t->last_us);
    metric_observe(m->prefill_time, (double)times.prefill_us * 1e-6);
    metric_observe(m->decode_time, (double)times.decode_us * 1e-6);
}

// The turn's DONE event includes how long its first step waited for copies. If that step still runs, its
// waiting counts for no turn.
static void end_waiting(struct engine_core *core, struct live_turn *t) {
    struct tiers *tiers = &core->caches.tiers;
    if (tiers->waited_us != &t->restore_us) return;
    if (tiers_collect(tiers, false, clock_mono_us(core->emit.clock)) < 0)
        core->caches.device_lost = true;
    tiers->waited_us = NULL;
}

// The turn goes on in another engine, or here once there is memory, and text is made of the same tokens: text held
// back is dropped.
static bool goes_elsewhere(enum engine_finish finish, const struct err *why) {
    return finish == FINISH_YIELDED ||
           (finish == FINISH_ERROR && (why->code == E_DEVICE || why->code == E_NOMEM));
}

// A paused turn has no slot: it gets the spare one.
static int flush_text(struct engine_core *core, struct live_turn *t, enum engine_finish finish,
                      bool ran) {
    struct err err = {0};
    if (t->begun && !t->slot) TRY(take_slot(core, t, &err));
    if (t->branches && t->slot) TRY(core_branches_settle(core, t, finish, ran));
    buf_reset(&core->text);
    TRY(live_turn_flush(t, &core->scratch, &core->text));
    if (!t->branches || !t->slot) return 0;
    return branches_texts(t, t->slot, core->tokenizer, &core->scratch);
}

void core_finish(struct engine_core *core, struct live_turn *t, enum engine_finish finish,
                 const struct err *why, bool drop_cache) {
    struct caches *c = &core->caches;
    struct sequence *s = t->sequence;
    core->idle = false;
    core_emit_pending(core);
    core_leave_flight(core, t);
    core_settle_drafts(core, t);
    end_waiting(core, t);
    bool ran = t->sched.state == SCHED_PREFILL || t->sched.state == SCHED_DECODE;
    sched_leave(&core->sched, &t->sched);
    buf_reset(&core->text);
    if (!goes_elsewhere(finish, why) &&
        flush_text(core, t, finish, ran) < 0) { // after a stop string nothing is held back
        log_warn("engine.text_lost", "turn=%llu", (unsigned long long)t->spec.turn);
    }
    release_slot(t);
    if (ran) {
        sequence_take_log(s, t->spec.ids);
        t->spec.ids = NULL;
    }
    s->turn = NULL;
    cache_turn_over(c, s, drop_cache, sched_n_waiting(&core->sched));
    count_end(core, t, finish);
    emit_done(&core->emit, t, finish, why, buf_z(&core->text), core->text.len, s->ring.n_held,
              s->state == CACHE_PARKED);
    s->refused = NULL;
    if (t->then_release)
        cache_drop(c, s, RELEASE_ASKED);
    else
        cache_forget_if_empty(c, s);
    live_turn_free(t);
}

// --- commands ------------------------------------------------------------------------------------

static void submit(struct engine_core *core, struct live_turn *t) {
    struct sequence *s = caches_find_or_add(&core->caches, t->spec.sequence);
    if (!s) {
        struct err err;
        err_set(&err, E_NOMEM, "no memory for another sequence");
        metric_add(core->metrics.finished[FINISH_ERROR], 1);
        emit_done(&core->emit, t, FINISH_ERROR, &err, "", 0, 0, false);
        live_turn_free(t);
        return;
    }
    t->sequence = s;
    s->turn = t;
    s->names = t->names;
    cache_idle_add(&core->caches, s); // used soon: evicted last
    if (t->deadline_us < core->next_deadline_us) core->next_deadline_us = t->deadline_us;
    sched_enqueue(&core->sched, &t->sched, t->spec.owner);
}

static void release(struct engine_core *core, struct sequence *s) {
    if (s->turn)
        s->turn->then_release = true;
    else
        cache_drop(&core->caches, s, RELEASE_ASKED);
}

// The new sequence is idle or parked, and may be evicted like any other. If nothing can be shared, there is
// no new sequence.
static void fork_sequence(struct engine_core *core, const struct command *cmd) {
    struct caches *c = &core->caches;
    struct sequence *from = caches_find(c, cmd->from);
    struct sequence *to = from ? caches_find_or_add(c, cmd->sequence) : NULL;
    if (to && to->state == CACHE_EMPTY && !to->turn)
        cache_fork(c, to, from, cmd->n_tokens, sched_n_waiting(&core->sched));
    if (to && to->state == CACHE_PARKED)
        emit_forked(&core->emit, cmd->sequence, to->n_image, to->image.n_held, true);
    else
        emit_forked(&core->emit, cmd->sequence, to ? to->ring.n_tokens : 0,
                    to ? to->ring.n_held : 0, false);
    if (to) cache_forget_if_empty(c, to);
}

static void import(struct engine_core *core, const struct command *cmd) {
    struct caches *c = &core->caches;
    struct sequence *s = caches_find_or_add(c, cmd->sequence);
    if (s && s->state == CACHE_EMPTY && !s->turn) cache_import(c, s, cmd->cache);
    bool there = s && s->state == CACHE_PARKED;
    emit_forked(&core->emit, cmd->sequence, there ? s->n_image : 0, there ? s->image.n_held : 0,
                there);
    packed_cache_free(cmd->cache);
    if (s) cache_forget_if_empty(c, s);
}

// What a cache depends on beside the log and its window: the table of virtual tokens, and which rotary frequencies.
static struct hash128 contents_of(const struct engine_turn *t, bool short_rope) {
    struct hash128 hash = t->prompt ? t->prompt->hash : (struct hash128){0};
    if (short_rope) hash.lo ^= SHORT_ROPE;
    return hash;
}

// The ring that a turn of this shape needs.
static struct sequence_shape shape_of(const struct engine_core *core, const struct engine_turn *t) {
    return (struct sequence_shape){
        .group = t->share_group,
        .prompt = contents_of(t, model_config_short_rope(&core->model->config, t->session_len)),
        .ring = {.memory_len = t->memory_len,
                 .sink_len = t->sink_len,
                 .chunk_tokens = core->opt.prefill_tokens,
                 .block_tokens = core->opt.block_tokens,
                 .session_len = core->opt.max_session_len,
                 .groups = &core->model->cache_groups},
    };
}

// Free blocks that are not promised to a running turn.
static int64_t blocks_to_spare(const struct engine_core *core) {
    int64_t held = 0;
    for (int32_t i = 0; i < core->sched.n_running; i++)
        held += sequence_n_blocks(((struct live_turn *)core->sched.running[i])->sequence);
    return core->caches.pool.n_free - (core->sched.n_reserved - held);
}

static void prepare(struct engine_core *core, struct live_turn *t) {
    struct caches *c = &core->caches;
    struct sequence *s = caches_find_or_add(c, t->spec.sequence);
    struct sequence_shape shape = shape_of(core, &t->spec);
    bool is_new = !s || (s->state == CACHE_EMPTY && !s->turn), begun = false;
    if (s && is_new) {
        s->names = t->names;
        if (t->sched.reserve <= blocks_to_spare(core)) {
            begun = cache_prepare(c, s, &shape, t->spec.ids, t->n_log);
            t->spec.ids = NULL;
        }
    }
    if (is_new && !begun) { // the server has noted a cache for it
        bool has_snapshot = snapshots_find(&c->snapshots, t->names.id);
        emit_released(&core->emit, t->spec.sequence, RELEASE_ASKED, 0, has_snapshot);
        if (s) cache_forget_if_empty(c, s);
    }
    live_turn_free(t);
}

void core_command(struct engine_core *core, const struct command *cmd) {
    struct caches *c = &core->caches;
    struct sequence *s = caches_find(c, cmd->sequence);
    bool idle = s && !s->turn;
    switch (cmd->kind) {
    case COMMAND_SUBMIT:
        submit(core, cmd->turn);
        break;
    case COMMAND_CANCEL:
        if (s && s->turn && s->turn->spec.turn == cmd->turn_id)
            core_finish(core, s->turn, FINISH_CANCELLED, NULL, false);
        break;
    case COMMAND_YIELD:
        if (s && s->turn && s->turn->spec.turn == cmd->turn_id)
            core_finish(core, s->turn, FINISH_YIELDED, NULL, false);
        break;
    case COMMAND_RELEASE:
        if (s) release(core, s); // else it was dropped before, and its event is under way
        break;
    case COMMAND_PARK:
        if (idle) cache_park(c, s);
        break;
    case COMMAND_WARM:
        if (idle) cache_warm(c, s, blocks_to_spare(core));
        break;
    case COMMAND_PREPARE:
        prepare(core, cmd->turn);
        break;
    case COMMAND_FORK:
        fork_sequence(core, cmd);
        break;
    case COMMAND_EXPORT:
        if (idle) cache_export(c, s);
        break;
    case COMMAND_IMPORT:
        import(core, cmd);
        break;
    case COMMAND_FORGET:
        cache_forget_snapshot(c, s, cmd->name);
        break;
    case COMMAND_SNAPSHOT:
        caches_job_done(c, cmd->job);
        core_start_resumed(core); // the snapshot may have been declined
        break;
    case COMMAND_SAVE:
        core->save_at_stop = true;
        break;
    case COMMAND_STOP:
        core->stopping = true;
        break;
    case COMMAND_BELL: // these stay on the server's side
    case COMMAND_TAKEN_UP:
        break;
    }
}

// Checks the deadlines only if one can have passed.
void core_expire(struct engine_core *core) {
    int64_t now = clock_mono_us(core->emit.clock);
    if (now < core->next_deadline_us) return;
    struct sequence *s, *next;
    core->next_deadline_us = INT64_MAX;
    HASH_ITER(hh, core->caches.sequences, s, next) {
        if (!s->turn) continue;
        int64_t deadline = s->turn->deadline_us;
        if (deadline <= now)
            core_finish(core, s->turn, FINISH_DEADLINE, NULL, false);
        else if (deadline < core->next_deadline_us)
            core->next_deadline_us = deadline;
    }
}

// --- admission -----------------------------------------------------------------------------------

static void take_cached(struct live_turn *t) {
    const struct cached *found = &t->sequence->cached;
    t->n_cached = found->n;
    t->n_shared = found->n_shared;
    t->source = found->source != CACHE_NONE       ? found->source
                : t->spec.n_ids > t->spec.n_input ? CACHE_RECOMPUTED
                                                  : CACHE_NONE;
}

static int begin(struct engine_core *core, struct live_turn *t, struct err *err) {
    struct sequence *s = t->sequence;
    struct sequence_shape shape = shape_of(core, &t->spec);
    int64_t n_usable =
        context_usable(&t->context, &t->spec, t->branches ? branches_base(t) : t->n_log);
    t->short_rope = model_config_short_rope(&core->model->config, t->spec.session_len);
    TRY(cache_admit(&core->caches, s, &shape, t->spec.ids, n_usable, err));
    if (cache_is_awaited(s->state)) t->sched.state = SCHED_WAIT;
    int rc = take_slot(core, t, err);
    s->turn_ids = t->spec.ids; // the log may have moved
    return rc;
}

// Continues a paused turn. If its cache was evicted meanwhile, part of its log is computed again.
static void go_on(struct live_turn *t) {
    int64_t found = t->sequence->cached.n;
    if (t->branches && branches_have_drawn(t->branches)) {
        t->sched.n_again = t->sched.n_todo + branches_n_running(t->branches);
        return;
    }
    if (t->n_computed > found) t->sched.n_again = t->n_computed - found + 1;
    if (t->n_generated > 0) {
        if (t->sched.n_todo == 1) t->sched.state = SCHED_DECODE;
        return;
    }
    if (found < t->n_cached) t->n_cached = found;
    if (found < t->n_shared) t->n_shared = found;
    t->n_prefilled = found - t->n_cached;
}

static void start(struct engine_core *core, struct live_turn *t) {
    core->idle = false;
    live_turn_goes_on(t, clock_mono_us(core->emit.clock));
    t->sched.state = SCHED_PREFILL;
    t->sched.n_todo = t->branches ? branches_uncomputed(t, t->sequence->cached.n)
                                  : t->n_log - t->sequence->cached.n;
    if (t->begun) {
        go_on(t);
        return;
    }
    t->begun = true;
    if (t->n_given > 0) t->sched.n_again = t->sched.n_todo; // its owner was charged for that
    take_cached(t);
    metric_add(core->metrics.cached_tokens, (double)t->n_cached);
    metric_add(core->metrics.shared_tokens, (double)t->n_shared);
    emit_started(&core->emit, t, t->source, t->sched.n_todo, t->sequence->ring.n_held);
}

static void admit(struct engine_core *core, struct live_turn *t) {
    struct err err = {0};
    if (!t->started_us) {
        t->started_us = clock_mono_us(core->emit.clock);
        metric_observe(core->metrics.queue_time, (double)(t->started_us - t->submitted_us) * 1e-6);
    }
    // A turn's wait for its cache before it begins counts as prefill.
    if (!t->begun) live_turn_goes_on(t, clock_mono_us(core->emit.clock));
    int rc = begin(core, t, &err);
    if (t->sched.state != SCHED_WAIT) start(core, t);
    if (rc < 0) core_finish(core, t, FINISH_ERROR, &err, false);
}

// Between two steps: the turn waits like a queued one, and its cache is kept like an idle one. Everything else
// follows from its log. False: no memory.
static bool pause_turn(struct engine_core *core, struct live_turn *t) {
    struct sequence *s = t->sequence;
    bool ran = t->sched.state != SCHED_WAIT;
    core_emit_pending(core);
    if (t->branches) branches_pause(t);
    if (ran && sequence_copy_log(s, t->spec.ids) < 0) return false;
    end_waiting(core, t);
    t->n_computed = ran && !s->resume ? s->ring.n_tokens : 0;
    sched_pause(&core->sched, &t->sched);
    live_turn_paused(t, clock_mono_us(core->emit.clock));
    release_slot(t);
    cache_turn_over(&core->caches, s, false, sched_n_waiting(&core->sched));
    metric_add(core->metrics.pauses, 1);
    return true;
}

void core_admit(struct engine_core *core) {
    struct sched_turn *t;
    do
        while ((t = sched_admit(&core->sched))) admit(core, (struct live_turn *)t);
    while ((t = sched_victim(&core->sched)) && pause_turn(core, (struct live_turn *)t));
}

void core_start_resumed(struct engine_core *core) {
    for (int32_t i = 0; i < core->sched.n_running; i++) {
        struct live_turn *t = (struct live_turn *)core->sched.running[i];
        const struct sequence *s = t->sequence;
        if (t->sched.state != SCHED_WAIT || cache_is_awaited(s->state)) continue;
        // A hint may have begun the resume before the turn came.
        int64_t began = s->cached.resume_began_us;
        if (began < t->started_us) began = t->started_us;
        if (!t->begun) t->restore_us = clock_mono_us(core->emit.clock) - began;
        start(core, t);
    }
}

int32_t core_n_stepping(const struct engine_core *core) {
    int32_t n = 0;
    for (int32_t i = 0; i < core->sched.n_running; i++)
        n += core->sched.running[i]->state != SCHED_WAIT;
    return n;
}
