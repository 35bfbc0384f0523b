// The instance's storage, and its loop's one round.
#include "engine/run/instance.h"

#include <stdlib.h>

// One token's text; a longer one would be no token. Allocated once, at init.
enum { TEXT_RESERVE = 4096, TEXT_MAX = 1 << 20 };
// How often a file that is being read is looked at for blocks that have come, where nobody steps.
enum { READ_POLL_US = 1000 };

#if defined(__SANITIZE_ADDRESS__)
enum { CHECK_EVERY_STEP = 1 };
#else
enum { CHECK_EVERY_STEP = 0 };
#endif

static int store_init(struct instance *in, struct err *err) {
    struct backend *be = in->model->backend;
    in->store = (struct kv_store){
        .dtype = in->opt.kv_dtype,
        .n_layers = in->model->n_layers,
        .n_kv_heads = in->model->n_kv_heads,
        .head_dim = in->model->config.head_dim,
        .block_tokens = in->opt.block_tokens,
        .n_blocks = in->opt.n_blocks,
    };
    return be->ops->kv_store_init(be, &in->store, err);
}

#ifdef PARLEY_DEBUG_KV
static void guard_block(void *ctx, int32_t block, bool is_free) {
    struct instance *in = ctx;
    struct backend *be = in->model->backend;
    if (be->ops->kv_block_guard) be->ops->kv_block_guard(be, &in->store, block, is_free);
}
#endif

static int slots_init(struct instance *in, struct err *err) {
    size_t n = (size_t)in->opt.max_running;
    in->slots = calloc(n, sizeof *in->slots);
    in->shares = calloc(n, sizeof *in->shares);
    in->in_step = calloc(n, sizeof *in->in_step);
    in->draws = calloc(n, sizeof *in->draws);
    in->drawn = calloc(n, sizeof *in->drawn);
    in->untold = calloc(n, sizeof *in->untold);
    if (!in->slots || !in->shares || !in->in_step || !in->draws || !in->drawn || !in->untold)
        return err_set(err, E_NOMEM, "no memory for %zu turns", n);
    for (size_t i = 0; i < n; i++)
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

// On one of the folder's threads. There is a place for each job that can be under way.
static void job_done(void *ctx, struct snapshot_job *j) {
    struct instance *in = ctx;
    struct command c = {.kind = COMMAND_SNAPSHOT, .job = j};
    (void)queue_push(in->commands, &c);
}

static void file_changed(void *ctx, struct hash128 name, bool present) {
    struct instance *in = ctx;
    emit_snapshot(&in->emit, name, present);
}

static int folder_init(struct instance *in, struct err *err) {
    const struct instance_options *o = &in->opt;
    TRY(snapshots_open(&in->snapshots, o->snapshot_dir, o->snapshot_bytes, &o->maker, err));
    TRY(snapshots_start(&in->snapshots, job_done, in, err));
    in->snapshots.changed = file_changed;
    in->snapshots.changed_ctx = in;
    return 0;
}

int instance_init(struct instance *in, const struct model *model, const struct tokenizer *tokenizer,
                  const int32_t *eos_ids, int32_t n_eos, const struct instance_options *opt,
                  struct queue *commands, struct queue *events, const struct clock *clock,
                  struct err *err) {
    *in = (struct instance){
        .model = model,
        .tokenizer = tokenizer,
        .eos_ids = eos_ids,
        .n_eos = n_eos,
        .commands = commands,
        .opt = *opt,
        .next_deadline_us = INT64_MAX,
        .emit = {.queue = events, .clock = clock},
        .check = CHECK_EVERY_STEP,
    };
    int rc;
    int32_t rows = opt->max_running + opt->prefill_tokens; // the widest step
    TRY_GOTO(fail, kv_pool_init(&in->pool, opt->n_blocks, err));
    TRY_GOTO(fail, store_init(in, err));
#ifdef PARLEY_DEBUG_KV
    in->pool.guard = guard_block;
    in->pool.guard_ctx = in;
#endif
    TRY_GOTO(fail, tiers_init(&in->tiers, model->backend, &in->store, opt->host_cache_bytes, err));
    in->tiers.transit = opt->host_transit;
    if (opt->snapshot_dir) TRY_GOTO(fail, folder_init(in, err));
    in->opt.snapshot_dir = NULL;
    TRY_GOTO(fail,
             sched_init(&in->sched, opt->max_running, opt->prefill_tokens, opt->n_blocks, err));
    TRY_GOTO(fail, batch_init(&in->batch, rows, opt->max_running, err));
    TRY_GOTO(fail, forward_init(&in->forward, model, comm_none(), &in->store, rows,
                                opt->max_running, opt->measuring, opt->measuring_ctx, err));
    TRY_GOTO(fail, drawings_init(&in->drawings, model->config.vocab_size, err));
    TRY_GOTO(fail, slots_init(in, err));
    TRY_GOTO(fail, text_init(in, err));
    atomic_store(&in->load.blocks_free, opt->n_blocks);
    atomic_store(&in->load.drawing_on, -1);
    atomic_store(&in->load.heartbeat_us, clock_mono_us(clock));
    return 0;
fail:
    instance_release(in);
    return rc;
}

void instance_release(struct instance *in) {
    struct sequence *s, *next;
    if (in->tiers.copying) (void)tiers_collect(&in->tiers, true, 0);
    HASH_ITER(hh, in->sequences, s, next) {
        HASH_DEL(in->sequences, s);
        engine_turn_free(s->turn);
        sequence_free(s);
    }
    buf_release(&in->text);
    buf_release(&in->scratch);
    for (int32_t i = 0; in->slots && i < in->opt.max_running; i++) {
        sampler_release(&in->slots[i].sampler);
        detokenizer_release(&in->slots[i].detokenizer);
    }
    free(in->untold);
    free(in->drawn);
    free(in->draws);
    free(in->in_step);
    free(in->shares);
    free(in->slots);
    drawings_release(&in->drawings);
    forward_release(&in->forward);
    batch_release(&in->batch);
    sched_release(&in->sched);
    snapshots_close(&in->snapshots);
    if (in->tiers.backend) tiers_release(&in->tiers);
    if (in->store.data) in->model->backend->ops->kv_store_release(in->model->backend, &in->store);
    kv_pool_release(&in->pool);
    *in = (struct instance){0};
}

// --- the loop ------------------------------------------------------------------------------------

static int64_t wait_time(const struct instance *in, int64_t timeout_us) {
    if (in->next_deadline_us == INT64_MAX) return timeout_us;
    int64_t left = in->next_deadline_us - clock_mono_us(in->emit.clock);
    if (left < 0) left = 0;
    return left < timeout_us ? left : timeout_us;
}

static void take_commands(struct instance *in, int64_t timeout_us) {
    struct command c;
    bool waits = in->sched.n_running == 0 || (in->reading && instance_n_stepping(in) == 0);
    if (in->tier_work) timeout_us = 0;
    if (in->reading && timeout_us > READ_POLL_US) timeout_us = READ_POLL_US;
    if (waits && queue_pop(in->commands, &c, wait_time(in, timeout_us)) == 1) {
        instance_command(in, &c);
    }
    while (queue_try_pop(in->commands, &c) == 1) instance_command(in, &c);
}

static void end_all(struct instance *in, enum engine_finish finish, const struct err *why) {
    struct sequence *s, *next;
    HASH_ITER(hh, in->sequences, s, next) {
        if (s->turn) instance_finish(in, s->turn, finish, why, false);
    }
}

// A GPU that has failed stays so until its process is another one: whatever waits ends too.
static void end_lost(struct instance *in) {
    struct err err;
    err_set(&err, E_DEVICE,
            "the device %s failed; nothing runs on it until the server has restarted",
            in->forward.backend->ops->name);
    take_commands(in, 0);
    end_all(in, FINISH_ERROR, &err);
}

static void publish(struct instance *in) {
    struct instance_load *l = &in->load;
    int32_t running = 0; // blocks; what two of them share counts once
    kv_pool_count_begin(&in->pool);
    for (int32_t i = 0; i < in->sched.n_running; i++) {
        running += kv_ring_count(&((struct turn *)in->sched.running[i])->sequence->ring);
    }
    atomic_store_explicit(&l->running, in->sched.n_running, memory_order_relaxed);
    atomic_store_explicit(&l->queued, in->sched.n_queued, memory_order_relaxed);
    atomic_store_explicit(&l->sequences, (int32_t)HASH_COUNT(in->sequences), memory_order_relaxed);
    atomic_store_explicit(&l->blocks_free, in->pool.n_free, memory_order_relaxed);
    atomic_store_explicit(&l->blocks_idle, in->pool.n_blocks - in->pool.n_free - running,
                          memory_order_relaxed);
    atomic_store_explicit(&l->parked, in->tiers.n_parked, memory_order_relaxed);
    atomic_store_explicit(&l->host_blocks_free, in->tiers.host.n_free, memory_order_relaxed);
    atomic_store_explicit(&l->snapshots, (int32_t)HASH_COUNT(in->snapshots.by_name),
                          memory_order_relaxed);
    atomic_store_explicit(&l->snapshot_bytes, in->snapshots.bytes, memory_order_relaxed);
    atomic_store_explicit(&l->heartbeat_us, clock_mono_us(in->emit.clock), memory_order_relaxed);
}

int32_t instance_n_stepping(const struct instance *in) {
    int32_t n = 0;
    for (int32_t i = 0; i < in->sched.n_running; i++)
        n += in->sched.running[i]->state != SCHED_WAIT;
    return n;
}

bool instance_round(struct instance *in, int64_t timeout_us) {
    take_commands(in, timeout_us);
    if (in->stopping) {
        end_all(in, FINISH_SHUTDOWN, NULL);
        if (in->keep_asked) instance_keep_all(in);
        publish(in);
        return false;
    }
    instance_expire(in);
    instance_admit(in);
    int64_t began = clock_mono_us(in->emit.clock);
    bool stepped = instance_n_stepping(in) > 0 && instance_step(in);
    if (!stepped) {
        instance_tell(in);
        in->asked.unclear = in->asked.n_rows > 0;
    }
    bool resuming = instance_resume(in);
    int64_t step_us = clock_mono_us(in->emit.clock) - began;
    in->tier_work = instance_park(in, stepped, step_us) || resuming;
    instance_persist(in);
    bool lost = atomic_load_explicit(&in->load.device_lost, memory_order_relaxed);
    if (lost) end_lost(in);
    publish(in);
    return !lost;
}
