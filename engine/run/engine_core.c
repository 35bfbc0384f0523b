// The core's storage, and one round of its loop.
#include "engine/run/engine_core.h"
#include "engine/run/command.h"
#include "engine/run/emit_later.h"
#include "engine/run/flight.h"
#include "engine/run/load.h"
#include "engine/run/masks.h"
#include "engine/run/step.h"
#include "engine/run/turns.h"

#include "base/log.h"
#include "engine/run/warm.h"

#include <stdio.h>
#include <stdlib.h>

// Bytes of one token's text. Allocated once, at init.
enum { TEXT_RESERVE = 4096, TEXT_MAX = 1 << 20 };
enum {
    READ_POLL_US = 1000,  // interval of polls of a snapshot that is being read, without steps
    SAVE_US = 8000000,    // for writing snapshots at the end: most supervisors kill after 10 s
    SAVE_POLL_US = 20000, // interval of polls of those writes
};

#if defined(__SANITIZE_ADDRESS__)
enum { CHECK_EVERY_STEP = 1 };
#else
enum { CHECK_EVERY_STEP = 0 };
#endif

// A turn with as many branches as max_running or more holds all places but one (core_places), and a step has a row of
// each branch. Beside it one turn of a place runs.
static int32_t max_seqs(const struct core_options *o) {
    return o->max_running > BEAMS_MAX ? o->max_running : BEAMS_MAX + 1;
}

int32_t core_max_rows(const struct core_options *o) {
    return max_seqs(o) + o->prefill_tokens;
}

int32_t core_places(int32_t max_running, int32_t n_branches) {
    const int32_t least = 3; // with two places, two such turns would run beside each other
    if (n_branches < max_running) return n_branches;
    return max_running < least ? max_running : max_running - 1;
}

// A turn alone may have a few rows of drafts; the head's matrix is read once for so many.
int32_t core_max_logits(const struct core_options *o) {
    const int32_t least = 16;
    return o->max_running > least ? o->max_running : least;
}

static size_t n_draws(const struct core_options *o) {
    size_t n_seqs = (size_t)max_seqs(o), n = (size_t)core_max_logits(o);
    return n < n_seqs ? n_seqs : n;
}

static int steps_init(struct engine_core *core, struct err *err) {
    const size_t n_seqs = (size_t)max_seqs(&core->opt), n = n_draws(&core->opt);
    const int32_t n_stages = core->model->split.pp_size;
    core->n_groups = core->forward.lead ? n_stages : 1;
    if (core->n_groups > PLAN_SLOTS) core->n_groups = PLAN_SLOTS;
    core->n_steps = core->n_groups > 1 ? core->n_groups : 2; // one may follow the other
    core->step = &core->steps[0];
    core->flight_rows = core_flight_rows(core->forward.backend);
    for (int32_t i = 0; i < core->n_steps; i++) {
        struct step *s = &core->steps[i];
        s->group = i % core->n_groups;
        TRY(batch_init(&s->batch, core_max_rows(&core->opt), (int32_t)n_seqs, err));
        s->turns = calloc(n_seqs, sizeof *s->turns);
        s->branches = calloc(n_seqs, sizeof *s->branches);
        s->draws = calloc(n, sizeof *s->draws);
        s->adjusts = calloc(n, sizeof *s->adjusts);
        if (!s->turns || !s->branches || !s->draws || !s->adjusts)
            return err_set(err, E_NOMEM, "no memory for a step of %zu turns", n_seqs);
    }
    return 0;
}

static void steps_release(struct engine_core *core) {
    for (int32_t i = 0; i < core->n_steps; i++) {
        struct step *s = &core->steps[i];
        batch_release(&s->batch);
        free(s->turns);
        free(s->branches);
        free(s->draws);
        free(s->adjusts);
    }
}

static int slots_init(struct engine_core *core, struct err *err) {
    size_t n = (size_t)core->opt.max_running;
    core->slots = calloc(n + 1, sizeof *core->slots);
    core->shares = calloc(n, sizeof *core->shares);
    core->drawn = calloc(n_draws(&core->opt), sizeof *core->drawn);
    core->hidden = calloc((size_t)core->model->config.width, sizeof *core->hidden);
    core->pending = calloc(n, sizeof *core->pending);
    if (!core->slots || !core->shares || !core->drawn || !core->pending || !core->hidden)
        return err_set(err, E_NOMEM, "no memory for %zu turns", n);
    for (size_t i = 0; i <= n; i++)
        TRY(sampler_init(&core->slots[i].sampler, core->model->config.vocab_size, err));
    return 0;
}

static int text_init(struct engine_core *core, struct err *err) {
    buf_init(&core->scratch, TEXT_MAX);
    buf_init(&core->text, TEXT_MAX);
    if (buf_reserve(&core->scratch, TEXT_RESERVE) < 0 ||
        buf_reserve(&core->text, TEXT_RESERVE) < 0) {
        return err_set(err, E_NOMEM, "no memory for a token's text");
    }
    return 0;
}

// On one of the folder's threads. The queue has room for all jobs that can be under way.
static void job_done(void *ctx, struct snapshot_job *j) {
    struct engine_core *core = ctx;
    struct command c = {.kind = COMMAND_SNAPSHOT, .job = j};
    (void)queue_push(core->commands, &c);
}

static int caches_open(struct engine_core *core, struct err *err) {
    const struct core_options *o = &core->opt;
    struct cache_stores shape;
    cache_stores_shape(&shape, core->model, o->kv_dtype, o->block_tokens, o->n_blocks);
    const struct cache_options co = {
        .chunk_tokens = o->prefill_tokens,
        .max_idle = o->max_idle,
        .max_session_len = o->max_session_len,
        .host_bytes = o->host_cache_bytes,
        .host_transit = o->host_transit,
        .snapshot_dir = o->snapshot_dir,
        .snapshot_bytes = o->snapshot_bytes,
        .maker = o->maker,
        .lead = o->lead,
    };
    core->opt.snapshot_dir = NULL;
    TRY(caches_init(&core->caches, core->model->backend, &shape, &co, &core->emit, &core->metrics,
                    err));
    if (!snapshots_on(&core->caches.snapshots)) return 0;
    return snapshots_start(&core->caches.snapshots, job_done, core, err);
}

int core_init(struct engine_core *core, const struct core_parts *p, const struct core_options *opt,
              struct err *err) {
    *core = (struct engine_core){
        .model = p->model,
        .tokenizer = p->tokenizer,
        .eos_ids = p->eos_ids,
        .n_eos = p->n_eos,
        .commands = p->commands,
        .opt = *opt,
        .next_deadline_us = INT64_MAX,
        .emit = {.queue = p->events,
                 .clock = p->clock,
                 .sink = opt->sink,
                 .sink_ctx = opt->sink_ctx},
        .load = opt->load,
        .mask_effort = MASK_EFFORT,
        .check = CHECK_EVERY_STEP,
    };
    int rc;
    struct lead *lead = lead_is_alone(opt->lead) ? NULL : opt->lead;
    const struct forward_options fo = {.model = p->model,
                                       .comm = lead ? lead->comm : comm_none(),
                                       .lead = lead,
                                       .kv = &core->caches.stores,
                                       .max_rows = core_max_rows(opt),
                                       .max_logits = core_max_logits(opt),
                                       .progress = opt->measuring,
                                       .progress_ctx = opt->measuring_ctx};
    TRY_GOTO(fail, caches_open(core, err));
    TRY_GOTO(fail, sched_init(&core->sched, opt->max_running, opt->prefill_tokens, opt->n_blocks,
                              opt->max_turns, err));
    TRY_GOTO(fail, forward_init(&core->forward, &fo, err));
    TRY_GOTO(fail, steps_init(core, err));
    TRY_GOTO(fail, final_norm_init(&core->final_norm, p->model, core->forward.backend, err));
    TRY_GOTO(fail, forward_warm(&core->forward, err));
    TRY_GOTO(fail, drawings_init(&core->drawings, p->model->config.vocab_size, err));
    TRY_GOTO(fail, slots_init(core, err));
    TRY_GOTO(fail, text_init(core, err));
    atomic_store(&core->load->blocks_free, opt->n_blocks);
    atomic_store(&core->load->drawing_on, -1);
    atomic_store(&core->load->heartbeat_us, clock_mono_us(p->clock));
    return 0;
fail:
    core_release(core);
    return rc;
}

void core_release(struct engine_core *core) {
    for (struct sequence *s = core->caches.sequences; s; s = s->hh.next) live_turn_free(s->turn);
    buf_release(&core->text);
    buf_release(&core->scratch);
    for (int32_t i = 0; core->slots && i <= core->opt.max_running; i++) {
        sampler_release(&core->slots[i].sampler);
        turn_slot_release_text(&core->slots[i]);
    }
    free(core->pending);
    free(core->drawn);
    free(core->hidden);
    free(core->shares);
    free(core->slots);
    drawings_release(&core->drawings);
    final_norm_release(&core->final_norm);
    forward_release(&core->forward);
    steps_release(core);
    sched_release(&core->sched);
    if (core->caches.backend) caches_release(&core->caches);
    *core = (struct engine_core){0};
}

// --- the loop ------------------------------------------------------------------------------------

static int64_t wait_time(const struct engine_core *core, int64_t timeout_us) {
    if (core->next_deadline_us == INT64_MAX) return timeout_us;
    int64_t left = core->next_deadline_us - clock_mono_us(core->emit.clock);
    if (left < 0) left = 0;
    return left < timeout_us ? left : timeout_us;
}

// Whether the round may sleep until a command comes. Only after a round that changed nothing: the end of a turn, also one
// of a step, lets turns begin that waited for its places or blocks.
static bool may_sleep(const struct engine_core *core) {
    if (!core->idle || core->cache_work) return false;
    return core->sched.n_running == 0 || (core->caches.reads && core_n_stepping(core) == 0);
}

static void take_commands(struct engine_core *core, int64_t timeout_us) {
    struct command c;
    if (core->caches.reads && timeout_us > READ_POLL_US) timeout_us = READ_POLL_US;
    if (may_sleep(core) && queue_pop(core->commands, &c, wait_time(core, timeout_us)) == 1)
        core_command(core, &c);
    core->idle = true;
    while (queue_try_pop(core->commands, &c) == 1) core_command(core, &c);
}

static void end_all(struct engine_core *core, enum engine_finish finish, const struct err *why) {
    struct sequence *s, *next;
    HASH_ITER(hh, core->caches.sequences, s, next) {
        if (s->turn) core_finish(core, s->turn, finish, why, false);
    }
}

// Queued turns end too, because a failed GPU works again only in a new process.
static void end_lost(struct engine_core *core) {
    struct err err;
    const char *why = lead_why(core->forward.lead);
    err_set(&err, E_DEVICE,
            "the device %s failed%s%s; nothing runs on it until the server has restarted",
            core->forward.backend->ops->name, why ? ": " : "", why ? why : "");
    snprintf(core->load->why_lost, sizeof core->load->why_lost, "the device %s failed%s%.180s",
             core->forward.backend->ops->name, why ? ": " : "", why ? why : "");
    atomic_store(&core->load->says_why, true);
    if (why) log_error("engine.rank_lost", "why=\"%s\"", why);
    take_commands(core, 0);
    end_all(core, FINISH_ERROR, &err);
}

static void beat(struct engine_core *core) {
    int64_t now = clock_mono_us(core->emit.clock);
    atomic_store_explicit(&core->load->heartbeat_us, now, memory_order_relaxed);
}

static void publish(struct engine_core *core) {
    struct core_load *l = core->load;
    struct caches *c = &core->caches;
    int32_t running = 0; // blocks of running turns, shared ones counted once
    kv_pool_count_begin(&c->pool);
    for (int32_t i = 0; i < core->sched.n_running; i++) {
        const struct sequence *s = ((struct live_turn *)core->sched.running[i])->sequence;
        running += kv_ring_count(&s->ring);
        for (int32_t b = 0; b < s->n_branches; b++) running += kv_ring_count(&s->branches[b]);
    }
    for (int p = 0; p < ENGINE_N_PRIORITIES; p++) {
        const struct fair *f = &core->sched.fair[p];
        int32_t paused = core->sched.n_paused[p];
        atomic_store_explicit(&l->turns[p].running, f->n_held, memory_order_relaxed);
        atomic_store_explicit(&l->turns[p].queued, f->n_waiting - paused, memory_order_relaxed);
        atomic_store_explicit(&l->turns[p].paused, paused, memory_order_relaxed);
    }
    atomic_store_explicit(&l->sequences, (int32_t)HASH_COUNT(c->sequences), memory_order_relaxed);
    atomic_store_explicit(&l->blocks_free, c->pool.n_free, memory_order_relaxed);
    atomic_store_explicit(&l->blocks_idle, c->pool.n_blocks - c->pool.n_free - running,
                          memory_order_relaxed);
    atomic_store_explicit(&l->parked, c->tiers.n_parked, memory_order_relaxed);
    atomic_store_explicit(&l->host_blocks_free, c->tiers.host.n_free, memory_order_relaxed);
    atomic_store_explicit(&l->snapshots, (int32_t)HASH_COUNT(c->snapshots.by_name),
                          memory_order_relaxed);
    atomic_store_explicit(&l->snapshot_bytes, c->snapshots.bytes, memory_order_relaxed);
    beat(core);
}

// The engine stops: writes snapshots of idle and parked caches for at most SAVE_US.
static void save_all(struct engine_core *core) {
    int64_t until = clock_mono_us(core->emit.clock) + SAVE_US;
    enum saving how;
    while ((how = caches_save_all(&core->caches)) != SAVING_DONE &&
           clock_mono_us(core->emit.clock) <= until) {
        struct command c;
        int64_t wait_us = how == SAVING_COPIES ? 0 : SAVE_POLL_US;
        if (queue_pop(core->commands, &c, wait_us) == 1) core_command(core, &c);
        beat(core); // a process without one is taken for hung (process/supervise.c)
    }
}

// Blocks that running turns will need in their next steps.
static int64_t blocks_soon(const struct engine_core *core) {
    int64_t n = 0, n_groups = core->model->cache_groups.n;
    for (int32_t i = 0; i < core->sched.n_running; i++) {
        const struct live_turn *t = (const struct live_turn *)core->sched.running[i];
        int64_t left = t->sched.reserve - sequence_n_blocks(t->sequence);
        int64_t rows = t->branches ? t->branches->n : 1;
        int64_t soon = (t->sched.n_todo / core->opt.block_tokens + 2 * rows) * n_groups;
        if (left > 0) n += left < soon ? left : soon;
    }
    return n;
}

// Resumes, parks and writes caches after the step. True: more can be done at once.
static bool move_caches(struct engine_core *core, bool stepped, int64_t began_us) {
    struct caches *c = &core->caches;
    c->load.n_stepping = core_n_stepping(core);
    c->load.step_us = atomic_load_explicit(&core->load->step_us_ewma, memory_order_relaxed);
    bool more = caches_resume(c);
    core_start_resumed(core);
    c->load.blocks_soon = blocks_soon(core);
    more = caches_park(c, stepped, clock_mono_us(core->emit.clock) - began_us) || more;
    caches_write(c);
    return more;
}

// True: the loop goes on.
static bool end_round(struct engine_core *core) {
    bool lost = core->caches.device_lost;
    if (lost) {
        atomic_store(&core->load->device_lost, true);
        core_land(core);
        end_lost(core);
    }
    publish(core);
    return !lost;
}

bool core_round(struct engine_core *core, int64_t timeout_us) {
    if (core_flies_on(core)) {
        core_fly(core);
        return end_round(core);
    }
    core_land(core);
    take_commands(core, timeout_us);
    if (core->stopping) {
        end_all(core, FINISH_SHUTDOWN, NULL);
        if (core->save_at_stop) save_all(core);
        publish(core);
        return false;
    }
    core_expire(core);
    core_admit(core);
    if (core_takes_off(core)) {
        core_fly(core);
        return end_round(core);
    }
    int64_t began = clock_mono_us(core->emit.clock);
    bool stepped = core_n_stepping(core) > 0 && core_step(core);
    if (stepped) core->idle = false;
    if (!stepped) {
        core_emit_pending(core);
        core->unwaited.unclear = core->unwaited.n_rows > 0;
    }
    core->cache_work = move_caches(core, stepped, began);
    caches_rest(&core->caches, clock_mono_us(core->emit.clock));
    if (!stepped && lead_check(core->forward.lead) < 0) core->caches.device_lost = true;
    core->flight.state = stepped && !core->cache_work ? FLIGHT_READY : FLIGHT_OFF;
    return end_round(core);
}
