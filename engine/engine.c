// Opens an engine. Computes the values that the options leave open once, for engine_info.
#include "engine/engine.h"

#include "base/build_id.h"
#include "base/log.h"
#include "base/path.h"
#include "base/patience.h"
#include "base/thread.h"
#include "base/xxh64.h"
#include "engine/device.h"
#include "engine/engine_internal.h"
#include "engine/model/ft_folder.h"
#include "engine/run/command.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    EVENT_QUEUE_LEN =
        1024, // events: about half a megabyte; a full queue makes the engine wait, not fail
    IDLE_ROUND_US = 500000, // interval of an idle engine's heartbeat
    MAX_KNOWN_IDLE = 16384, // sequences with a cache and no turn: beyond it, new ones are refused
    MAX_CHUNK_TOKENS = 8192,
    CPU_CHUNK_TOKENS = 256, // the default: bounds how long a prompt delays other turns
    GPU_CHUNK_TOKENS = 2048,
    MAX_SEQUENCES = 4096,
    MAX_RANKS = 1024, // of each kind
    MAX_QUEUED = 65536,
    FORGETS = 256, // commands that remove snapshots, at once
};

#define RANK_TIMEOUT_S 60.0
// Without host_cache_bytes, caches on the way to snapshots go through so much host memory, or room
// for one window.
#define TRANSIT_BYTES (INT64_C(64) << 20)

void engine_options_init(struct engine_options *o) {
    *o = (struct engine_options){
        .device = "cpu",
        .kv_dtype_auto = true,
        .block_tokens = 64,
        .max_sequences = 32,
        .max_queued_turns = 256,
    };
}

static int check_range(const char *name, int64_t value, int64_t min, int64_t max, struct err *err) {
    if (value >= min && value <= max) return 0;
    return err_set(err, E_INVAL, "%s: %lld is not in %lld .. %lld", name, (long long)value,
                   (long long)min, (long long)max);
}

static int32_t at_least_one(int32_t n) {
    return n > 0 ? n : 1;
}

static int options_check(const struct engine_options *o, struct err *err) {
    if (!o->model_dir) return err_set(err, E_INVAL, "model_dir: no model folder given");
    TRY(device_check(o->device, o->compute_dtype, err));
    if (!(o->gpu_memory_fraction >= 0 && o->gpu_memory_fraction <= 1)) {
        return err_set(err, E_INVAL, "gpu_memory_fraction: %g is not in 0 .. 1",
                       o->gpu_memory_fraction);
    }
    if (o->fp8_activations && o->deterministic)
        return err_set(err, E_INVAL,
                       "deterministic and fp8_activations exclude each other: products of fp8 by "
                       "fp8 have other bits in other batches");
    TRY(check_range("max_sequences", o->max_sequences, 0, MAX_SEQUENCES, err));
    TRY(check_range("max_queued_turns", o->max_queued_turns, 0, MAX_QUEUED, err));
    TRY(check_range("prefill_chunk_tokens", o->prefill_chunk_tokens, 0, MAX_CHUNK_TOKENS, err));
    TRY(check_range("block_tokens", o->block_tokens, 8, 256, err));
    TRY(check_range("default_memory_len", o->default_memory_len, 0, INT32_MAX / 2, err));
    TRY(check_range("max_session_len", o->max_session_len, 0, INT32_MAX / 2, err));
    TRY(check_range("kv_cache_bytes", o->kv_cache_bytes, 0, INT64_MAX, err));
    TRY(check_range("tensor_parallel", o->tensor_parallel, 0, MAX_RANKS, err));
    TRY(check_range("pipeline_parallel", o->pipeline_parallel, 0, MAX_RANKS, err));
    TRY(check_range("n_beside", o->n_beside, 0, INT32_MAX, err));
    TRY(check_range("snapshot_bytes", o->snapshot_bytes, 0, INT64_MAX, err));
    TRY(check_range("host_cache_bytes", o->host_cache_bytes, 0, INT64_MAX, err));
    if ((o->block_tokens & (o->block_tokens - 1)) != 0) {
        return err_set(err, E_INVAL, "block_tokens: %d is not a power of two", o->block_tokens);
    }
    return 0;
}

// --- info ----------------------------------------------------------------------------------------

static struct sampling_params suggested(const struct model_config *mc) {
    struct sampling_params p;
    sampling_params_init(&p);
    if (mc->temperature >= 0) p.temperature = mc->temperature;
    if (mc->top_p > 0) p.top_p = mc->top_p;
    if (mc->top_k >= 0) p.top_k = mc->top_k;
    if (mc->repetition_penalty > 0) p.repetition_penalty = mc->repetition_penalty;
    return p;
}

static void fill_info(struct engine *e, const struct core_options *io) {
    static const enum context_pooling poolings[] = {[EMBEDDING_MEAN] = POOLING_MEAN,
                                                    [EMBEDDING_LAST] = POOLING_LAST,
                                                    [EMBEDDING_FIRST] = POOLING_FIRST};
    const struct model_config *mc = &e->model->config;
    struct engine_info *i = &e->info;
    i->family = mc->family;
    i->fingerprint = e->model->fingerprint;
    i->backend = e->backend_name;
    i->n_vocab = mc->vocab_size;
    i->width = mc->width;
    i->n_params = model_config_n_params(mc);
    i->embeds_only = mc->no_head;
    i->unit_length = mc->embeddings.unit_length;
    i->pooling = poolings[mc->embeddings.pooling];
    i->weight_dtype = model_config_weight_dtype(mc);
    i->weight_format = e->model->weight_format;
    bool alone = lead_is_alone(&e->lead);
    i->weight_bytes = alone ? (int64_t)e->model->weight_bytes : e->lead.weight_bytes;
    i->weight_bytes_read = alone ? (int64_t)model_bytes_read(e->model) : e->lead.weight_bytes_read;
    i->max_session_len = io->max_session_len;
    i->block_tokens = io->block_tokens;
    i->n_blocks = io->n_blocks;
    i->max_sequences = io->max_running;
    i->kv_dtype = io->kv_dtype;
    i->suggested = suggested(mc);
}

const struct engine_info *engine_info(const struct engine *e) {
    return &e->info;
}

// --- opening -------------------------------------------------------------------------------------

// Everything that a cache's bytes depend on beside the log and the window. The number of threads
// changes no bit. How the ranks divide the model is first: a long name of a device is cut off.
static void describe_maker(const struct engine *e, const struct core_options *io,
                           struct kv_snapshot_maker *m) {
    const struct backend *be = e->backend;
    char build[BUILD_ID_DIGITS + 1];
    build_id(build);
    const struct lead *lead = &e->lead;
    char ranks[32] = "";
    const char *threads = be->ops->mem_info ? NULL : strrchr(be->description, ',');
    int n = threads ? (int)(threads - be->description) : (int)strlen(be->description);
    *m = (struct kv_snapshot_maker){.n_layers = e->model->n_layers,
                                    .n_kv_heads = e->model->of_kind[0].n_kv_heads,
                                    .head_dim = e->model->config.kinds[0].attention.head_dim,
                                    .block_tokens = io->block_tokens,
                                    .n_groups = e->model->cache_groups.n,
                                    .block_bytes = (uint64_t)e->info.block_bytes};
    if (!lead_is_alone(lead)) {
        snprintf(ranks, sizeof ranks, "tp %d pp %d, ", lead->comm->split.tp_size,
                 lead->comm->split.pp_size);
        m->block_bytes = lead->whole_bytes;
    }
    snprintf(m->model, sizeof m->model, "%s %s", e->info.fingerprint, e->info.weight_dtype);
    snprintf(m->backend, sizeof m->backend, "%s%s: %.*s", ranks, be->ops->name, n, be->description);
    snprintf(m->build, sizeof m->build, "%s", build);
    snprintf(m->dtype, sizeof m->dtype, "%s", engine_kv_dtype_name(io->kv_dtype));
    for (int32_t i = 0; e->tokenizer && i < tokenizer_n_tokens(e->tokenizer); i++) {
        size_t len = 0;
        const char *bytes = tokenizer_bytes(e->tokenizer, i, &len);
        if (bytes) m->tokenizer = xxh64(bytes, len, m->tokenizer + (uint64_t)i);
    }
}

// The snapshot folder and, without host_cache_bytes, host memory for the way there.
static void size_snapshots(struct engine *e, const struct engine_options *o,
                           struct core_options *io) {
    if (!o->snapshot_dir || !e->backend->ops->kv_blocks_save) return;
    e->has_snapshots = true;
    io->snapshot_dir = o->snapshot_dir;
    io->snapshot_bytes = o->snapshot_bytes;
    if (io->host_cache_bytes >= e->info.block_bytes) return;
    const struct kv_ring_shape window = {.memory_len = e->info.default_memory_len,
                                         .sink_len = 1,
                                         .chunk_tokens = o->prefill_chunk_tokens,
                                         .block_tokens = io->block_tokens,
                                         .session_len = io->max_session_len,
                                         .groups = &e->model->cache_groups};
    int64_t bytes = kv_ring_max_blocks(&window) * e->info.block_bytes;
    io->host_transit = true;
    io->host_cache_bytes = bytes > TRANSIT_BYTES ? bytes : TRANSIT_BYTES;
}

static void note_found(struct engine *e) {
    for (const struct snapshot_entry *s = e->core.caches.snapshots.lru; s; s = s->next)
        engine_note_snapshot(e, s->name, s->id);
}

// Before the leader's own cache, whose first steps the other ranks take part in.
static int size_ranks(struct engine *e, const struct core_options *io, struct err *err) {
    int64_t parked = io->host_cache_bytes / e->info.block_bytes;
    if (parked > INT32_MAX / 2) parked = INT32_MAX / 2;
    const struct plan_size size = {.dtype = io->kv_dtype,
                                   .block_tokens = io->block_tokens,
                                   .n_blocks = io->n_blocks,
                                   .n_groups = e->model->cache_groups.n,
                                   .max_rows = core_max_rows(io),
                                   .max_logits = core_max_logits(io),
                                   .n_host_blocks = (int32_t)parked};
    return lead_size(&e->lead, e->backend, &size, (size_t)e->info.block_bytes, err);
}

static int open_core(struct engine *e, const struct engine_options *o,
                     const struct engine_outlets *at, const struct clock *clock, struct err *err) {
    struct core_options io = {
        .max_running = o->max_sequences,
        .prefill_tokens = o->prefill_chunk_tokens,
        .block_tokens = o->block_tokens,
        .host_cache_bytes = o->host_cache_bytes,
        .measuring = o->measuring,
        .measuring_ctx = o->measuring_ctx,
        .lead = &e->lead,
        .load = e->load,
        .sink = at->sink,
        .sink_ctx = at->sink_ctx,
    };
    TRY(engine_size_cache(e, o, &io, err));
    engine_describe_texts(e);
    fill_info(e, &io);
    size_snapshots(e, o, &io);
    int64_t idle = io.n_blocks < MAX_KNOWN_IDLE ? io.n_blocks : MAX_KNOWN_IDLE;
    io.max_idle = (int32_t)idle;
    e->max_queued = o->max_queued_turns;
    int64_t parked = io.host_cache_bytes / e->info.block_bytes;
    if (parked > TIERS_MAX_IMAGES) parked = TIERS_MAX_IMAGES;
    io.max_turns = TURNS_OVERFULL * (o->max_sequences + o->max_queued_turns);
    e->max_known =
        (int32_t)(idle + parked) + io.max_turns + io.max_turns / TURNS_IDLE_PART + TURNS_OVERFULL;
    // Each sequence has at most one fork or release, one submit, one cancel, one more release, one
    // park, one export or import and one hint under way; the folder's threads return each job once.
    // So no command is refused.
    size_t files = SNAPSHOTS_MAX_READS + SNAPSHOTS_MAX_WRITES + FORGETS;
    TRY(queue_init(&e->commands, sizeof(struct command), (size_t)e->max_known * 7 + 2 + files, NULL,
                   NULL, err));
    TRY(queue_init(&e->events, sizeof(struct engine_event), EVENT_QUEUE_LEN, o->wake, o->wake_ctx,
                   err));
    TRY(size_ranks(e, &io, err));
    describe_maker(e, &io, &e->maker);
    engine_note_windows(e);
    io.maker = e->maker;
    const struct core_parts parts = {.model = e->model,
                                     .tokenizer = e->tokenizer,
                                     .eos_ids = e->eos_ids,
                                     .n_eos = e->n_eos,
                                     .commands = &e->commands,
                                     .events = &e->events,
                                     .clock = clock};
    TRY(core_init(&e->core, &parts, &io, err));
    e->max_running = io.max_running;
    e->prefill_tokens = io.prefill_tokens;
    e->host_blocks = io.host_transit ? 0 : e->core.caches.tiers.host.n_blocks;
    e->has_final_norm = final_norm_usable(&e->core.final_norm);
    engine_metrics_init(&e->core.metrics, o->metrics, o->instance, e, e->info.kv_dtype,
                        (double)e->info.n_blocks * (double)e->info.block_bytes);
    note_found(e);
    return 0;
}

// Reads the model's configuration first: a GPU computes in the model's dtype. model_load reports a
// configuration that is wrong.
static int open_backend(struct engine *e, const struct engine_options *o, struct err *err) {
    struct model_config *mc = calloc(1, sizeof *mc);
    if (!mc) return err_set(err, E_NOMEM, "no memory for an engine");
    char device[DEVICE_WORD_BYTES] = "";
    struct device_options d = {.device = device,
                               .isa = o->isa,
                               .n_threads = lead_threads(e->lead.comm, o->n_threads),
                               .compute_dtype = o->compute_dtype,
                               .deterministic = o->deterministic,
                               .fp8_activations = o->fp8_activations};
    int rc = model_config_load(mc, o->model_dir, err);
    if (rc == 0)
        rc = device_of_rank(device, o->device, e->lead.comm->place, e->lead.comm->n_local, err);
    if (rc == 0 && o->fp8_activations && !mc->fp8 && o->weight_format != WEIGHTS_FP8)
        rc = err_set(err, E_INVAL,
                     "fp8_activations needs weights of fp8: set weight_dtype = fp8, or take a "
                     "model folder in fp8");
    if (rc == 0) device_fit(&d, mc, o->model_dir, o->weight_format);
    if (rc == 0) rc = device_open(&e->backend, &d, err);
    if (rc == 0) {
        const struct comm *c = e->lead.comm;
        char ranks[48] = "";
        if (c->n_ranks > 1)
            snprintf(ranks, sizeof ranks, " on %d ranks (tp %d, pp %d)", c->n_ranks,
                     c->split.tp_size, c->split.pp_size);
        snprintf(e->backend_name, sizeof e->backend_name, "%s: %s%s", e->backend->ops->name,
                 e->backend->description, ranks);
    }
    if (rc == 0) rc = engine_check_weights(e, o, mc, err);
    free(mc);
    return rc;
}

static int open_ranks(struct engine *e, const struct engine_options *o, struct err *err) {
    struct lead_options *lo = calloc(1, sizeof *lo);
    if (!lo) return err_set(err, E_NOMEM, "no memory for an engine");
    double timeout = o->rank_timeout > 0 ? o->rank_timeout : RANK_TIMEOUT_S;
    lo->comm = (struct comm_options){.tp_size = at_least_one(o->tensor_parallel),
                                     .pp_size = at_least_one(o->pipeline_parallel),
                                     .timeout_us = (int64_t)(timeout * 1e6)};
    lo->open.n_threads = o->n_threads;
    lo->open.weights = o->weight_format;
    lo->open.has_compute = o->compute_dtype;
    lo->open.deterministic = o->deterministic;
    lo->open.fp8_activations = o->fp8_activations;
    if (snprintf(lo->open.device, PLAN_DEVICE_BYTES, "%s", o->device ? o->device : "auto") >=
        PLAN_DEVICE_BYTES) {
        free(lo);
        return err_set(err, E_INVAL, "device: a list of more than %d characters",
                       PLAN_DEVICE_BYTES - 1);
    }
    snprintf(lo->open.isa, sizeof lo->open.isa, "%s", o->isa ? o->isa : "auto");
    snprintf(lo->open.compute_dtype, sizeof lo->open.compute_dtype, "%s",
             o->compute_dtype ? o->compute_dtype : "");
    if (path_absolute(lo->open.model_dir, o->model_dir, NULL) < 0) // the loader says what is wrong
        snprintf(lo->open.model_dir, sizeof lo->open.model_dir, "%s", o->model_dir);
    int rc = lead_open(&e->lead, lo, err);
    free(lo);
    return rc;
}

static int load_model(struct engine *e, const struct engine_options *o, struct err *err) {
    const struct model_load_options lo = {.dir = o->model_dir,
                                          .backend = e->backend,
                                          .split = &e->lead.comm->split,
                                          .weights = o->weight_format,
                                          .progress = o->progress,
                                          .progress_ctx = o->progress_ctx};
    return model_load(&e->model, &lo, err);
}

// All ranks load at the same time, each its part.
static int open_model(struct engine *e, const struct engine_options *o, struct err *err) {
    struct rank_report mine = {0};
    int rc = open_backend(e, o, &mine.err);
    int64_t began = clock_mono_us(&clock_system);
    if (rc == 0) rc = engine_open_texts(e, o, &mine.err);
    if (rc == 0) rc = load_model(e, o, &mine.err);
    if (rc == 0) lead_describe(&mine, e->model);
    rc = lead_loaded(&e->lead, &mine, err);
    e->info.load_us = clock_mono_us(&clock_system) - began;
    return rc;
}

static int open_at(struct engine **out, const struct engine_options *o,
                   const struct engine_outlets *at, const struct clock *clock, struct err *err) {
    *out = NULL;
    TRY(options_check(o, err));
    struct engine *e = calloc(1, sizeof *e);
    if (!e) return err_set(err, E_NOMEM, "no memory for an engine");
    e->clock = clock;
    e->load = at->load ? at->load : &e->own_load;
    ft_folder_model_name(e->model_name, sizeof e->model_name, o->model_dir);
    int rc;
    TRY_GOTO(fail, open_ranks(e, o, err));
    TRY_GOTO(fail, open_model(e, o, err));
    e->config = &e->model->config;
    e->groups = &e->model->cache_groups;
    TRY_GOTO(fail, engine_open_tasks(e, o, err));
    struct engine_options sized = *o;
    if (sized.prefill_chunk_tokens == 0) // a GPU is fast only with many rows
        sized.prefill_chunk_tokens =
            e->backend->ops->mem_info ? GPU_CHUNK_TOKENS : CPU_CHUNK_TOKENS;
    TRY_GOTO(fail, engine_size_places(e, &sized, err));
    TRY_GOTO(fail, open_core(e, &sized, at, clock, err));
    TRY_GOTO(fail, engine_open_grammars(e, err));
    *out = e;
    return 0;
fail:
    engine_close(e);
    return rc;
}

int engine_open_manual(struct engine **out, const struct engine_options *o,
                       const struct clock *clock, struct err *err) {
    static const struct engine_outlets none;
    return open_at(out, o, &none, clock, err);
}

int engine_open_inside(struct engine **out, const struct engine_options *o,
                       const struct engine_outlets *at, struct err *err) {
    return open_at(out, o, at, &clock_system, err);
}

bool engine_round(struct engine *e) {
    return core_round(&e->core, 0);
}

static void *engine_main(void *arg) {
    struct engine *e = arg;
    const int64_t idle_us = patience_us(IDLE_ROUND_US);
    pthread_setname_np(pthread_self(), "parley-engine");
    while (core_round(&e->core, idle_us)) continue;
    queue_close(&e->events); // the owner can still poll the remaining events
    if (e->events.wake)
        e->events.wake(e->events.wake_ctx); // of a lost device no event may have come
    return NULL;
}

int engine_open(struct engine **out, const struct engine_options *o, struct err *err) {
    if (o->process) {
        TRY(options_check(o, err));
        return engine_open_outside(out, o, err);
    }
    TRY(engine_open_manual(out, o, &clock_system, err));
    struct engine *e = *out;
    int rc = thread_start(&e->thread, engine_main, e);
    if (rc != 0) {
        *out = NULL;
        engine_close(e);
        return thread_refused(err, rc, "the engine's thread");
    }
    e->has_thread = true;
    log_info("engine.open",
             "model=%s backend=\"%s\" kv_dtype=%s blocks=%d block_bytes=%lld load_ms=%lld",
             e->model_name, e->backend_name, engine_kv_dtype_name(e->info.kv_dtype),
             e->info.n_blocks, (long long)e->info.block_bytes, (long long)(e->info.load_us / 1000));
    return 0;
}

bool engine_is_launched(void) {
    return comm_is_launched();
}

int engine_n_gpus(void) {
    return device_n_gpus();
}

static int32_t ranks_of(const struct engine_options *o) {
    return at_least_one(o->tensor_parallel) * at_least_one(o->pipeline_parallel);
}

_Static_assert((int)ENGINE_DEVICES_BYTES == (int)DEVICE_LIST_BYTES, "one number");
int engine_devices(const struct engine_options *o, int32_t i, int32_t n,
                   char out[ENGINE_DEVICES_BYTES], int32_t *n_sharing, struct err *err) {
    TRY(device_of_instance(out, o->device, i, n, ranks_of(o), device_n_gpus(), n_sharing, err));
    if (*n_sharing < 1) *n_sharing = 1;
    return 0;
}

_Static_assert((int)ENGINE_MAX_GPUS == (int)DEVICE_MAX_GPUS, "one number");
int engine_gpus(const struct engine_options *o, bool used[ENGINE_MAX_GPUS]) {
    return device_gpus(o->device, ranks_of(o), used);
}
