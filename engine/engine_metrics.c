// The names are those that vLLM's dashboards made common, with parley_engine_ in front; buckets are
// vLLM's too, so that both can be drawn in one panel. One row of a table for each metric.
#include "engine/engine_metrics.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>

// --- labels --------------------------------------------------------------------------------------

struct labels {
    struct engine_metrics *m;
    const char *instance; // NULL: none
};

// The instance and one more label (key NULL: none), written out; NULL where there is neither. The instance's
// label is `engine`, because Prometheus gives each of its targets a label `instance`.
static const char *label(const struct labels *l, const char *key, const char *value) {
    if (!l->instance && !key) return NULL;
    assert(l->m->n_labels < METRIC_LABELS);
    char *out = l->m->labels[l->m->n_labels++];
    int n = l->instance ? snprintf(out, METRIC_LABEL_BYTES, "engine=\"%.40s\"%s", l->instance,
                                   key ? "," : "")
                        : 0;
    if (key) snprintf(out + n, METRIC_LABEL_BYTES - (size_t)n, "%s=\"%s\"", key, value);
    return out;
}

static struct metric *note(const struct labels *l, struct metric *row) {
    assert(l->m->n_rows < METRIC_LABELS);
    l->m->rows[l->m->n_rows++] = row;
    return row;
}

// --- gauges --------------------------------------------------------------------------------------

struct gauge_row {
    const char *name, *help;
    enum { INT32, INT64, MICROSECONDS, USED_PART } kind; // USED_PART: 1 - at / of, both INT32
    size_t at, of;                                       // in struct engine_load
};
#define AT(field) offsetof(struct engine_load, field)

static const struct gauge_row gauge_rows[N_GAUGES] = {
    {"parley_engine_requests_running", "Turns in the running batch.", INT32, AT(running), 0},
    {"parley_engine_requests_waiting", "Turns in the queue.", INT32, AT(queued), 0},
    {"parley_engine_requests_paused", "Turns paused for another owner's.", INT32, AT(paused), 0},
    {"parley_engine_idle_requests_running", "Of the running turns, those of idle priority.", INT32,
     AT(idle_running), 0},
    {"parley_engine_idle_requests_waiting", "Of the queued turns, those of idle priority.", INT32,
     AT(idle_queued), 0},
    {"parley_engine_idle_requests_paused", "Of the paused turns, those of idle priority.", INT32,
     AT(idle_paused), 0},
    {"parley_engine_sequences", "Sequences with a turn or a cache.", INT32, AT(sequences), 0},
    {"parley_engine_kv_cache_usage_ratio", "Share of the cache blocks that are held.", USED_PART,
     AT(blocks_free), AT(blocks_total)},
    {"parley_engine_parked_sequences", "Sequences whose cache is in host memory only.", INT32,
     AT(parked), 0},
    {"parley_engine_host_cache_usage_ratio",
     "Share of the host memory for parked caches that is in use.", USED_PART, AT(host_blocks_free),
     AT(host_blocks_total)},
    {"parley_engine_snapshots", "Snapshots in snapshot_dir.", INT32, AT(snapshots), 0},
    {"parley_engine_snapshot_bytes", "Bytes of those snapshots.", INT64, AT(snapshot_bytes), 0},
    {"parley_engine_heartbeat_seconds", "Monotonic time of the engine loop's last round.",
     MICROSECONDS, AT(heartbeat_us), 0},
};

static double read_gauge(void *ctx) {
    const struct gauge *g = ctx;
    struct engine_load load;
    engine_load(g->engine, &load);
    const char *at = (const char *)&load + g->row->at, *of = (const char *)&load + g->row->of;
    switch (g->row->kind) {
    case INT32:
        return *(const int32_t *)at;
    case INT64:
        return (double)*(const int64_t *)at;
    case MICROSECONDS:
        return (double)*(const int64_t *)at * 1e-6;
    case USED_PART: {
        int32_t total = *(const int32_t *)of;
        if (load.device_lost) return 0; // nothing is held there any more
        return total > 0 ? 1.0 - (double)*(const int32_t *)at / total : 0;
    }
    }
    return 0;
}

// --- counters ------------------------------------------------------------------------------------

static const char *const given_up[N_GIVEN_UP] = GIVEN_UP_REASONS;
static const char *const refused[N_REFUSED] = REFUSED_REASONS;
static const char *const releases[N_RELEASES] = {
    [RELEASE_ASKED] = "asked", [RELEASE_PRESSURE] = "pressure"};

#define M(field) offsetof(struct engine_metrics, field)
static const struct {
    const char *name, *help;
    size_t at; // of the first
    const char *const *reasons;
    int n_reasons; // 0: one counter
} counter_rows[] = {
    {"parley_engine_evictions_total", "Caches that were dropped.", M(released), releases,
     N_RELEASES},
    {"parley_engine_parked_total", "Caches that went to host memory.", M(parked), releases,
     N_RELEASES},
    {"parley_engine_restored_bytes_total",
     "Bytes of caches that came back, from host memory or a snapshot.", M(restored_bytes), 0, 0},
    {"parley_engine_restored_total", "Caches that came back from host memory.", M(restored), 0, 0},
    {"parley_engine_restored_overlapped_total",
     "Caches, from host memory or a snapshot, whose last copies ran beside their turn's first "
     "step.",
     M(restored_overlapped), 0, 0},
    {"parley_engine_snapshots_written_total", "Caches that were written to snapshots.",
     M(snapshots_written), 0, 0},
    {"parley_engine_snapshot_bytes_written_total", "Bytes of those snapshots.",
     M(snapshot_bytes_written), 0, 0},
    {"parley_engine_snapshots_read_total", "Caches that came back from snapshots.",
     M(snapshots_read), 0, 0},
    {"parley_engine_snapshots_given_up_total", "Snapshots that could not be written.", M(given_up),
     given_up, N_GIVEN_UP},
    {"parley_engine_snapshots_refused_total", "Snapshots that were removed instead of used.",
     M(refused), refused, N_REFUSED},
    {"parley_engine_prompt_tokens_total", "Tokens prefilled.", M(prompt_tokens), 0, 0},
    {"parley_engine_cached_prompt_tokens_total", "Tokens of logs that were in the cache already.",
     M(cached_tokens), 0, 0},
    {"parley_engine_shared_prompt_tokens_total",
     "Tokens of logs that were in another sequence's cache.", M(shared_tokens), 0, 0},
    {"parley_engine_generated_tokens_total", "Tokens drawn.", M(generated_tokens), 0, 0},
    {"parley_engine_draft_tokens_total", "Drafted tokens that the model checked.", M(drafted), 0,
     0},
    {"parley_engine_accepted_draft_tokens_total", "Of the drafted tokens, those that were drawn.",
     M(accepted), 0, 0},
    {"parley_engine_steps_total", "Passes through the model.", M(steps), 0, 0},
    {"parley_engine_steps_overlapped_total",
     "Passes that began while the pass before them was not over.", M(overlapped), 0, 0},
    {"parley_engine_pauses_total",
     "Turns that gave their place up for another owner's or, with "
     "idle priority, for an interactive one.",
     M(pauses), 0, 0},
    {"parley_engine_restarts_total", "Engine processes that were started again.", M(restarts), 0,
     0},
};

// --- histograms ----------------------------------------------------------------------------------

static const double first_token[] = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                     1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
// vLLM's begin at 10 ms; small models on a CPU are faster than that.
static const double inter_token[] = {.0005, .001, .0025, .005, .01, .025, .05, .075,
                                     .1,    .15,  .2,    .3,   .4,  .5,   .75, 1,
                                     2.5,   5,    7.5,   10,   20,  40,   80};
static const double phase[] = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                               30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
static const double counts[] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000};
#define BOUNDS(a) a, (int)(sizeof(a) / sizeof *(a))

static const struct {
    const char *name, *help;
    size_t at;
    const double *bounds;
    int n_bounds;
} histogram_rows[] = {
    {"parley_engine_time_to_first_token_seconds", "From submission to the first token.",
     M(first_token), BOUNDS(first_token)},
    {"parley_engine_inter_token_latency_seconds", "From a turn's token to its next.",
     M(inter_token), BOUNDS(inter_token)},
    {"parley_engine_request_queue_time_seconds", "From submission to admission.", M(queue_time),
     BOUNDS(phase)},
    {"parley_engine_request_prefill_time_seconds", "From admission to the first token.",
     M(prefill_time), BOUNDS(phase)},
    {"parley_engine_request_decode_time_seconds", "From the first token to the last.",
     M(decode_time), BOUNDS(phase)},
    {"parley_engine_step_seconds", "One pass, from schedule to events.", M(step_time),
     BOUNDS(inter_token)},
    {"parley_engine_batch_tokens", "Tokens in a pass.", M(step_tokens), BOUNDS(counts)},
    {"parley_engine_batch_size", "Turns in a pass.", M(step_turns), BOUNDS(counts)},
};
#define N_ROWS(a) (sizeof(a) / sizeof *(a))

static void add_gauges(const struct labels *l, struct metrics *r, const struct engine *e,
                       enum dtype kv_dtype, double cache_bytes) {
    for (int i = 0; i < N_GAUGES; i++) {
        struct gauge *g = &l->m->gauges[i];
        *g = (struct gauge){e, &gauge_rows[i]};
        note(l,
             metrics_gauge_fn(r, g->row->name, g->row->help, label(l, NULL, NULL), read_gauge, g));
    }
    struct metric *bytes = metrics_gauge(r, "parley_engine_kv_cache_bytes",
                                         "Size of the KV cache, scales of 8-bit formats included.",
                                         label(l, "dtype", engine_kv_dtype_name(kv_dtype)));
    note(l, bytes);
    metric_set(bytes, cache_bytes);
}

void engine_metrics_init(struct engine_metrics *m, struct metrics *registry, const char *instance,
                         const struct engine *e, enum dtype kv_dtype, double cache_bytes) {
    const struct labels l = {m, instance};
    *m = (struct engine_metrics){0};
    if (!registry) return;
    m->registry = registry;
    add_gauges(&l, registry, e, kv_dtype, cache_bytes);
    for (int i = 0; i < N_FINISHES; i++)
        m->finished[i] = note(&l, metrics_counter(registry, "parley_engine_requests_finished_total",
                                                  "Turns that ended.",
                                                  label(&l, "reason", engine_finish_name(i))));
    for (size_t i = 0; i < N_ROWS(counter_rows); i++) {
        struct metric **at = (struct metric **)((char *)m + counter_rows[i].at);
        int n = counter_rows[i].n_reasons;
        for (int k = 0; k < (n ? n : 1); k++)
            at[k] = note(&l, metrics_counter(registry, counter_rows[i].name, counter_rows[i].help,
                                             n ? label(&l, "reason", counter_rows[i].reasons[k])
                                               : label(&l, NULL, NULL)));
    }
    for (size_t i = 0; i < N_ROWS(histogram_rows); i++) {
        struct metric **at = (struct metric **)((char *)m + histogram_rows[i].at);
        *at = note(&l, metrics_histogram(registry, histogram_rows[i].name, histogram_rows[i].help,
                                         label(&l, NULL, NULL), histogram_rows[i].bounds,
                                         histogram_rows[i].n_bounds));
    }
}

void engine_metrics_remove(struct engine_metrics *m) {
    metrics_remove(m->registry, m->rows, m->n_rows);
    *m = (struct engine_metrics){0};
}
