// The instance's storage, and one round of its loop.
#include "engine/run/instance.h"
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

// A turn with as many branches as max_running or more holds all places but one (instance_places), and a step has a row of
// each branch. Beside it one turn of a place runs.
static int32_t max_seqs(const struct instance_options *o) {
    return o->max_running > BEAMS_MAX ? o->max_running : BEAMS_MAX + 1;
}

int32_t instance_max_rows(const struct instance_options *o) {
    return max_seqs(o) + o->prefill_tokens;
}

int32_t instance_places(int32_t max_running, int32_t n_branches) {
    const int32_t least = 3; // with two places, two such turns would run beside each other
    if (n_branches < max_running) return n_branches;
    return max_running < least ? max_running : max_running - 1;
}

// A turn alone may have a few rows of drafts; the head's matrix is read once for so many.
int32_t instance_max_logits(const struct instance_options *o) {
    const int32_t least = 16;
    return o->max_running > least ? o->max_running : least;
}

static size_t n_draws(const struct instance_options *o) {
    size_t n_seqs = (size_t)max_seqs(o), n = (size_t)instance_max_logits(o);
    return n < n_seqs ? n_seqs : n;
}

static int steps_init(struct instance *in, struct err *err) {
    const size_t n_seqs = (size_t)max_seqs(&in->opt), n = n_draws(&in->opt);
    const int32_t n_stages = in->model->split.pp_size;
    in->n_groups = in->forward.lead ? n_stages : 1;
    if (in->n_groups > PLAN_SLOTS) in->n_groups = PLAN_SLOTS;
    in->n_steps = in->n_groups > 1 ? in->n_groups : 2; // one may follow the other
    in->step = &in->steps[0];
    in->flight_rows = instance_flight_rows(in->forward.backend);
    for (int32_t i = 0; i < in->n_steps; i++) {
        struct step *s = &in->steps[i];
        s->group = i % in->n_groups;
        TRY(batch_init(&s->batch, instance_max_rows(&in->opt), (int32_t)n_seqs, err));
        s->turns = calloc(n_seqs, sizeof *s->turns);
        s->branches = calloc(n_seqs, sizeof *s->branches);
        s->draws = calloc(n, sizeof *s->draws);
        s->adjusts = calloc(n, sizeof *s->adjusts);
        if (!s->turns || !s->branches || !s->draws || !s->adjusts)
            return err_set(err, E_NOMEM, "no memory for a step of %zu turns", n_seqs);
    }
    return 0;
}

static void steps_release(struct instance *in) {
    for (int32_t i = 0; i < in->n_steps; i++) {
        struct step *s = &in->steps[i];
        batch_release(&s->batch);
        free(s->turns);
        free(s->branches);
        free(s->draws);
        free(s->adjusts);
    }
}

static int slots_init(struct instance *in, struct err *err) {
    size_t n = (size_t)in->opt.max_running;
    in->slots = calloc(n + 1, sizeof *in->slots);
    in->shares = calloc(n, sizeof *in->shares);
    in->drawn = calloc(n_draws(&in->opt), sizeof *in->drawn);
    in->hidden = calloc((size_t)in->model->config.width, sizeof *in->hidden);
    in->pending = calloc(n, sizeof *in->pending);
    if (!in->slots || !in->shares || !in->drawn || !in->pending || !in->hidden)
        return err_set(err, E_NOMEM, "no memory for %zu turns", n);
    for (size_t i = 0; i <= n; i++)
        TRY(sampler_init(&in->slots[i].sampler, in->model->config.vocab_size, err));
    return 0;
}

static int text_init(struct instance *in, struct err *err) {
    buf_init(&in->scratch, TEXT_MAX);
    buf_init(&in->text, TEXT_MAX);
    if (buf_reserve(&in->scratch, TEXT_RESERVE) < 0 || buf_reserve(&in->text, TEXT_RESERVE) < 0) {
        return err_set(err, E_NOMEM, "no memory for a token's text");
    }
    return 0;
}

// On one of the folder's threads. The queue has room for all jobs that can be under way.
static void job_done(void *ctx, struct snapshot_job *j) {
    struct instance *in = ctx;
    struct command c = {.kind = COMMAND_SNAPSHOT, .job = j};
    (void)queue_push(in->commands, &c);
}

static int caches_open(struct instance *in, struct err *err) {
    const struct instance_options *o = &in->opt;
    struct cache_stores shape;
    cache_stores_shape(&shape, in->model, o->kv_dtype, o->block_tokens, o->n_blocks);
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
    in->opt.snapshot_dir = NULL;
    TRY(caches_init(&in->caches, in->model->backend, &shape, &co, &in->emit, &in->metrics, err));
    if (!snapshots_on(&in->caches.snapshots)) return 0;
    return snapshots_start(&in->caches.snapshots, job_done, in, err);
}

int instance_init(struct instance *in, const struct instance_parts *p,
                  const struct instance_options *opt, struct err *err) {
    *in = (struct instance){
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
                                       .kv = &in->caches.stores,
                                       .max_rows = instance_max_rows(opt),
                                       .max_logits = instance_max_logits(opt),
                                       .progress = opt->measuring,
                                       .progress_ctx = opt->measuring_ctx};
    TRY_GOTO(fail, caches_open(in, err));
    TRY_GOTO(fail, sched_init(&in->sched, opt->max_running, opt->prefill_tokens, opt->n_blocks,
                              opt->max_turns, err));
    TRY_GOTO(fail, forward_init(&in->forward, &fo, err));
    TRY_GOTO(fail, steps_init(in, err));
    TRY_GOTO(fail, final_norm_init(&in->final_norm, p->model, in->forward.backend, err));
    TRY_GOTO(fail, forward_warm(&in->forward, err));
    TRY_GOTO(fail, drawings_init(&in->drawings, p->model->config.vocab_size, err));
    TRY_GOTO(fail, slots_init(in, err));
    TRY_GOTO(fail, text_init(in, err));
    atomic_store(&in->load->blocks_free, opt->n_blocks);
    atomic_store(&in->load->drawing_on, -1);
    atomic_store(&in->load->heartbeat_us, clock_mono_us(p->clock));
    return 0;
fail:
    instance_release(in);
    return rc;
}

void instance_release(struct instance *in) {
    for (struct sequence *s = in->caches.sequences; s; s = s->hh.next) live_turn_free(s->turn);
    buf_release(&in->text);
    buf_release(&in->scratch);
    for (int32_t i = 0; in->slots && i <= in->opt.max_running; i++) {
        sampler_release(&in->slots[i].sampler);
        turn_slot_release_text(&in->slots[i]);
    }
    free(in->pending);
    free(in->drawn);
    free(in->hidden);
    free(in->shares);
    free(in->slots);
    drawings_release(&in->drawings);
    final_norm_release(&in->final_norm);
    forward_release(&in->forward);
    steps_release(in);
    sched_release(&in->sched);
    if (in->caches.backend) caches_release(&in->caches);
    *in = (struct instance){0};
}

// --- the loop ------------------------------------------------------------------------------------

static int64_t wait_time(const struct instance *in, int64_t timeout_us) {
    if (in->next_deadline_us == INT64_MAX) return timeout_us;
    int64_t left = in->next_deadline_us - clock_mono_us(in->emit.clock);
    if (left < 0) left = 0;
    return left < timeout_us ? left : timeout_us;
}

// Whether the round may sleep until a command comes. Only after a round that changed nothing: the end of a turn, also one
// of a step, lets turns begin that waited for its places or blocks.
static bool may_sleep(const struct instance *in) {
    if (!in->idle || in->cache_work) return false;
    return in->sched.n_running == 0 || (in->caches.reads && instance_n_stepping(in) == 0);
}

static void take_commands(struct instance *in, int64_t timeout_us) {
    struct command c;
    if (in->caches.reads && timeout_us > READ_POLL_US) timeout_us = READ_POLL_US;
    if (may_sleep(in) && queue_pop(in->commands, &c, wait_time(in, timeout_us)) == 1)
        instance_command(in, &c);
    in->idle = true;
    while (queue_try_pop(in->commands, &c) == 1) instance_command(in, &c);
}

static void end_all(struct instance *in, enum engine_finish finish, const struct err *why) {
    struct sequence *s, *next;
    HASH_ITER(hh, in->caches.sequences, s, next) {
        if (s->turn) instance_finish(in, s->turn, finish, why, false);
    }
}

// Queued turns end too, because a failed GPU works again only in a new process.
static void end_lost(struct instance *in) {
    struct err err;
    const char *why = lead_why(in->forward.lead);
    err_set(&err, E_DEVICE,
            "the device %s failed%s%s; nothing runs on it until the server has restarted",
            in->forward.backend->ops->name, why ? ": " : "", why ? why : "");
    snprintf(in->load->why_lost, sizeof in->load->why_lost, "the device %s failed%s%.180s",
             in->forward.backend->ops->name, why ? ": " : "", why ? why : "");
    atomic_store(&in->load->says_why, true);
    if (why) log_error("engine.rank_lost", "why=\"%s\"", why);
    take_commands(in, 0);
    end_all(in, FINISH_ERROR, &err);
}

static void beat(struct instance *in) {
    int64_t now = clock_mono_us(in->emit.clock);
    atomic_store_explicit(&in->load->heartbeat_us, now, memory_order_relaxed);
}

static void publish(struct instance *in) {
    struct instance_load *l = in->load;
    struct caches *c = &in->caches;
    int32_t running = 0; // blocks of running turns, shared ones counted once
    kv_pool_count_begin(&c->pool);
    for (int32_t i = 0; i < in->sched.n_running; i++) {
        const struct sequence *s = ((struct live_turn *)in->sched.running[i])->sequence;
        running += kv_ring_count(&s->ring);
        for (int32_t b = 0; b < s->n_branches; b++) running += kv_ring_count(&s->branches[b]);
    }
    for (int p = 0; p < ENGINE_N_PRIORITIES; p++) {
        const struct fair *f = &in->sched.fair[p];
        int32_t paused = in->sched.n_paused[p];
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
    beat(in);
}

// The engine stops: writes snapshots of idle and parked caches for at most SAVE_US.
static void save_all(struct instance *in) {
    int64_t until = clock_mono_us(in->emit.clock) + SAVE_US;
    enum saving how;
    while ((how = caches_save_all(&in->caches)) != SAVING_DONE &&
           clock_mono_us(in->emit.clock) <= until) {
        struct command c;
        int64_t wait_us = how == SAVING_COPIES ? 0 : SAVE_POLL_US;
        if (queue_pop(in->commands, &c, wait_us) == 1) instance_command(in, &c);
        beat(in); // a process without one is taken for hung (process/supervise.c)
    }
}

// Blocks that running turns will need in their next steps.
static int64_t blocks_soon(const struct instance *in) {
    int64_t n = 0, n_groups = in->model->cache_groups.n;
    for (int32_t i = 0; i < in->sched.n_running; i++) {
        const struct live_turn *t = (const struct live_turn *)in->sched.running[i];
        int64_t left = t->sched.reserve - sequence_n_blocks(t->sequence);
        int64_t rows = t->branches ? t->branches->n : 1;
        int64_t soon = (t->sched.n_todo / in->opt.block_tokens + 2 * rows) * n_groups;
        if (left > 0) n += left < soon ? left : soon;
    }
    return n;
}

// Resumes, parks and writes caches after the step. True: more can be done at once.
static bool move_caches(struct instance *in, bool stepped, int64_t began_us) {
    struct caches *c = &in->caches;
    c->load.n_stepping = instance_n_stepping(in);
    c->load.step_us = atomic_load_explicit(&in->load->step_us_ewma, memory_order_relaxed);
    bool more = caches_resume(c);
    instance_start_resumed(in);
    c->load.blocks_soon = blocks_soon(in);
    more = caches_park(c, stepped, clock_mono_us(in->emit.clock) - began_us) || more;
    caches_write(c);
    return more;
}

// True: the loop goes on.
static bool end_round(struct instance *in) {
    bool lost = in->caches.device_lost;
    if (lost) {
        atomic_store(&in->load->device_lost, true);
        instance_land(in);
        end_lost(in);
    }
    publish(in);
    return !lost;
}

bool instance_round(struct instance *in, int64_t timeout_us) {
    if (instance_flies_on(in)) {
        instance_fly(in);
        return end_round(in);
    }
    instance_land(in);
    take_commands(in, timeout_us);
    if (in->stopping) {
        end_all(in, FINISH_SHUTDOWN, NULL);
        if (in->save_at_stop) save_all(in);
        publish(in);
        return false;
    }
    instance_expire(in);
    instance_admit(in);
    if (instance_takes_off(in)) {
        instance_fly(in);
        return end_round(in);
    }
    int64_t began = clock_mono_us(in->emit.clock);
    bool stepped = instance_n_stepping(in) > 0 && instance_step(in);
    if (stepped) in->idle = false;
    if (!stepped) {
        instance_emit_pending(in);
        in->unwaited.unclear = in->unwaited.n_rows > 0;
    }
    in->cache_work = move_caches(in, stepped, began);
    caches_rest(&in->caches, clock_mono_us(in->emit.clock));
    if (!stepped && lead_check(in->forward.lead) < 0) in->caches.device_lost = true;
    in->flight.state = stepped && !in->cache_work ? FLIGHT_READY : FLIGHT_OFF;
    return end_round(in);
}
