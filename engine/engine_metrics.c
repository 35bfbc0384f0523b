// Names follow the table that vLLM's dashboards made common, with parley_engine_ in front; buckets
// are vLLM's, so that the two can be drawn in one panel.
#include "engine/engine_metrics.h"

static const double first_token_bounds[] = {.001, .005, .01, .02, .04, .06, .08, .1,
                                            .25,  .5,   .75, 1,   2.5, 5,   7.5, 10,
                                            20,   40,   80,  160, 640, 2560};
// vLLM's begin at 10 ms; small models on a CPU are faster than that.
static const double inter_token_bounds[] = {.0005, .001, .0025, .005, .01, .025, .05, .075,
                                            .1,    .15,  .2,    .3,   .4,  .5,   .75, 1,
                                            2.5,   5,    7.5,   10,   20,  40,   80};
static const double phase_bounds[] = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                      30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
static const double count_bounds[] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000};
#define N_BOUNDS(a) ((int)(sizeof(a) / sizeof *(a)))

static double read_running(void *ctx) {
    struct engine_load l;
    engine_load(ctx, &l);
    return l.running;
}

static double read_waiting(void *ctx) {
    struct engine_load l;
    engine_load(ctx, &l);
    return l.queued;
}

static double read_sequences(void *ctx) {
    struct engine_load l;
    engine_load(ctx, &l);
    return l.sequences;
}

static double read_usage(void *ctx) {
    struct engine_load l;
    engine_load(ctx, &l);
    return 1.0 - (double)l.blocks_free / l.blocks_total;
}

static double read_cache_bytes(void *ctx) {
    const struct engine_info *info = engine_info(ctx);
    return (double)info->n_blocks * (double)info->block_bytes;
}

static double read_parked(void *ctx) {
    struct engine_load l;
    engine_load(ctx, &l);
    return l.parked;
}

static double read_host_usage(void *ctx) {
    struct engine_load l;
    engine_load(ctx, &l);
    return l.host_blocks_total > 0 ? 1.0 - (double)l.host_blocks_free / l.host_blocks_total : 0;
}

static double read_snapshots(void *ctx) {
    struct engine_load l;
    engine_load(ctx, &l);
    return l.snapshots;
}

static double read_snapshot_bytes(void *ctx) {
    struct engine_load l;
    engine_load(ctx, &l);
    return (double)l.snapshot_bytes;
}

static double read_heartbeat(void *ctx) {
    struct engine_load l;
    engine_load(ctx, &l);
    return (double)l.heartbeat_us * 1e-6;
}

static void add_gauges(struct metrics *r, void *e) {
    static const char *const cache_labels[DTYPE_COUNT] = {[DTYPE_F32] = "dtype=\"f32\"",
                                                          [DTYPE_F16] = "dtype=\"f16\"",
                                                          [DTYPE_BF16] = "dtype=\"bf16\"",
                                                          [DTYPE_F8_E4M3] = "dtype=\"fp8\"",
                                                          [DTYPE_I8] = "dtype=\"int8\""};
    metrics_gauge_fn(r, "parley_engine_requests_running", "Turns in the running batch.", NULL,
                     read_running, e);
    metrics_gauge_fn(r, "parley_engine_requests_waiting", "Turns in the queue.", NULL, read_waiting,
                     e);
    metrics_gauge_fn(r, "parley_engine_sequences", "Sequences known to the engine.", NULL,
                     read_sequences, e);
    metrics_gauge_fn(r, "parley_engine_kv_cache_usage_ratio",
                     "Share of the cache blocks that are held.", NULL, read_usage, e);
    metrics_gauge_fn(r, "parley_engine_kv_cache_bytes",
                     "Size of the KV cache, scales of 8-bit formats included.",
                     cache_labels[engine_info(e)->kv_dtype], read_cache_bytes, e);
    metrics_gauge_fn(r, "parley_engine_parked_sequences", "Sequences with a cache in host memory.",
                     NULL, read_parked, e);
    metrics_gauge_fn(r, "parley_engine_host_cache_usage_ratio",
                     "Share of the host memory for parked caches that is in use.", NULL,
                     read_host_usage, e);
    metrics_gauge_fn(r, "parley_engine_snapshots", "Snapshots in snapshot_dir.", NULL,
                     read_snapshots, e);
    metrics_gauge_fn(r, "parley_engine_snapshot_bytes", "Bytes of those files.", NULL,
                     read_snapshot_bytes, e);
    metrics_gauge_fn(r, "parley_engine_heartbeat_seconds",
                     "Monotonic time of the engine loop's last round.", NULL, read_heartbeat, e);
}

static void add_finished(struct engine_metrics *m, struct metrics *r) {
    static const char *const labels[N_FINISHES] = {
        [FINISH_EOS] = "reason=\"eos\"",           [FINISH_STOP] = "reason=\"stop\"",
        [FINISH_LENGTH] = "reason=\"length\"",     [FINISH_CANCELLED] = "reason=\"cancelled\"",
        [FINISH_DEADLINE] = "reason=\"deadline\"", [FINISH_ERROR] = "reason=\"error\"",
        [FINISH_SHUTDOWN] = "reason=\"shutdown\"",
    };
    for (int i = 0; i < N_FINISHES; i++) {
        m->finished[i] = metrics_counter(r, "parley_engine_requests_finished_total",
                                         "Turns that ended.", labels[i]);
    }
    static const char *const why[N_RELEASES] = {
        [RELEASE_ASKED] = "reason=\"asked\"", [RELEASE_PRESSURE] = "reason=\"pressure\""};
    for (int i = 0; i < N_RELEASES; i++) {
        m->released[i] = metrics_counter(r, "parley_engine_evictions_total",
                                         "Sequences whose cache was given up.", why[i]);
    }
    for (int i = 0; i < N_RELEASES; i++) {
        m->parked[i] = metrics_counter(r, "parley_engine_parked_total",
                                       "Sequences whose cache went to host memory.", why[i]);
    }
    m->restored_bytes =
        metrics_counter(r, "parley_engine_restored_bytes_total",
                        "Bytes of caches that came back, from host memory or a snapshot.", NULL);
    m->restored = metrics_counter(r, "parley_engine_restored_total",
                                  "Caches that came back from host memory.", NULL);
    m->restored_overlapped = metrics_counter(r, "parley_engine_restored_overlapped_total",
                                             "Caches, from host memory or a snapshot, that were "
                                             "copied on beside their turn's first step.",
                                             NULL);
}

static void add_snapshots(struct engine_metrics *m, struct metrics *r) {
    static const char *const given_up[N_GIVEN_UP] = {
        "reason=\"full\"",   "reason=\"slow\"",    "reason=\"denied\"", "reason=\"large\"",
        "reason=\"memory\"", "reason=\"pressed\"", "reason=\"io\""};
    static const char *const refused[N_REFUSED] = {
        "reason=\"model\"",   "reason=\"tokenizer\"", "reason=\"dtype\"",   "reason=\"layout\"",
        "reason=\"backend\"", "reason=\"build\"",     "reason=\"session\"", "reason=\"window\"",
        "reason=\"tokens\"",  "reason=\"damaged\"",   "reason=\"version\"", "reason=\"gone\"",
        "reason=\"io\""};
    m->snapshots_written = metrics_counter(r, "parley_engine_snapshots_written_total",
                                           "Caches that were written to files.", NULL);
    m->snapshot_bytes_written = metrics_counter(r, "parley_engine_snapshot_bytes_written_total",
                                                "Bytes of those files.", NULL);
    m->snapshots_read = metrics_counter(r, "parley_engine_snapshots_read_total",
                                        "Caches that came back from files.", NULL);
    for (int i = 0; i < N_GIVEN_UP; i++)
        m->given_up[i] =
            metrics_counter(r, "parley_engine_snapshots_given_up_total",
                            "Caches that ought to have been written and were not.", given_up[i]);
    for (int i = 0; i < N_REFUSED; i++)
        m->refused[i] = metrics_counter(r, "parley_engine_snapshots_refused_total",
                                        "Files that were not used, but removed.", refused[i]);
}

static struct metric *seconds(struct metrics *r, const char *name, const char *help,
                              const double *bounds, int n) {
    return metrics_histogram(r, name, help, NULL, bounds, n);
}

void engine_metrics_init(struct engine_metrics *m, struct metrics *registry,
                         const struct engine *e) {
    *m = (struct engine_metrics){0};
    if (!registry) return;
    add_gauges(registry, (void *)e);
    add_finished(m, registry);
    add_snapshots(m, registry);
    m->prompt_tokens =
        metrics_counter(registry, "parley_engine_prompt_tokens_total", "Tokens prefilled.", NULL);
    m->cached_tokens = metrics_counter(registry, "parley_engine_cached_prompt_tokens_total",
                                       "Tokens of logs that were in the cache already.", NULL);
    m->shared_tokens =
        metrics_counter(registry, "parley_engine_shared_prompt_tokens_total",
                        "Tokens of logs that were in another sequence's cache.", NULL);
    m->generated_tokens =
        metrics_counter(registry, "parley_engine_generated_tokens_total", "Tokens drawn.", NULL);
    m->steps =
        metrics_counter(registry, "parley_engine_steps_total", "Passes through the model.", NULL);
    m->first_token = seconds(registry, "parley_engine_time_to_first_token_seconds",
                             "From submission to the first token.", first_token_bounds,
                             N_BOUNDS(first_token_bounds));
    m->inter_token = seconds(registry, "parley_engine_inter_token_latency_seconds",
                             "From a turn's token to its next.", inter_token_bounds,
                             N_BOUNDS(inter_token_bounds));
    m->queue_time = seconds(registry, "parley_engine_request_queue_time_seconds",
                            "From submission to admission.", phase_bounds, N_BOUNDS(phase_bounds));
    m->prefill_time =
        seconds(registry, "parley_engine_request_prefill_time_seconds",
                "From admission to the first token.", phase_bounds, N_BOUNDS(phase_bounds));
    m->decode_time =
        seconds(registry, "parley_engine_request_decode_time_seconds",
                "From the first token to the last.", phase_bounds, N_BOUNDS(phase_bounds));
    m->step_time =
        seconds(registry, "parley_engine_step_seconds", "One pass, from schedule to events.",
                inter_token_bounds, N_BOUNDS(inter_token_bounds));
    m->step_tokens = metrics_histogram(registry, "parley_engine_batch_tokens", "Tokens in a pass.",
                                       NULL, count_bounds, N_BOUNDS(count_bounds));
    m->step_turns = metrics_histogram(registry, "parley_engine_batch_size", "Turns in a pass.",
                                      NULL, count_bounds, N_BOUNDS(count_bounds));
}
