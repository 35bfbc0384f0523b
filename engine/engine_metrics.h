// The engine's metrics. Updates are atomic and cost nanoseconds; without a registry they do nothing.
#pragma once
#include "base/metrics.h"
#include "engine/engine.h"

// Why a snapshot was not written, and why one was removed instead of used; the last reason stands for
// all others.
#define GIVEN_UP_REASONS                                                                           \
    { "full", "slow", "denied", "large", "memory", "pressed", "io" }
#define REFUSED_REASONS                                                                            \
    {                                                                                              \
        "model", "tokenizer", "dtype", "layout", "backend", "build", "session", "window",          \
            "tokens", "damaged", "version", "gone", "io"                                           \
    }
enum {
    N_FINISHES = FINISH_YIELDED + 1,
    N_RELEASES = RELEASE_PRESSURE + 1,
    N_GIVEN_UP = 7,
    N_REFUSED = 13,
    N_GAUGES = 13,
    METRIC_LABELS = 90, // at least as many as there are rows
    METRIC_LABEL_BYTES = 96
};

struct gauge { // asks the engine for its load when the page is made
    const struct engine *engine;
    const struct gauge_row *row;
};

struct engine_metrics {
    struct metric *prompt_tokens, *cached_tokens, *shared_tokens, *generated_tokens, *steps,
        *overlapped, *pauses, *drafted, *accepted, *restarts;
    struct metric *finished[N_FINISHES], *released[N_RELEASES], *parked[N_RELEASES];
    struct metric *restored_bytes, *restored, *restored_overlapped;
    struct metric *snapshots_written, *snapshots_read, *snapshot_bytes_written;
    struct metric *given_up[N_GIVEN_UP], *refused[N_REFUSED];
    struct metric *first_token, *inter_token, *queue_time, *prefill_time, *decode_time;
    struct metric *step_time, *step_tokens, *step_turns;
    struct gauge gauges[N_GAUGES];
    char labels[METRIC_LABELS][METRIC_LABEL_BYTES];
    int n_labels;
    struct metrics *registry;           // NULL: nothing is counted
    struct metric *rows[METRIC_LABELS]; // all of them
    int n_rows;
};

// registry: NULL: nothing is counted. instance: the value of a label `engine` of every row, for engines
// that share a registry; NULL: none. *m and e outlive the registry's last page, or engine_metrics_remove.
void engine_metrics_init(struct engine_metrics *m, struct metrics *registry, const char *instance,
                         const struct engine *e, enum dtype kv_dtype, double cache_bytes);
// The rows leave the registry, which lives on. Nothing is counted any more: the engine's thread has
// ended.
void engine_metrics_remove(struct engine_metrics *m);
