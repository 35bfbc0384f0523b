// What the engine counts for /metrics. Updates are atomic and cost nanoseconds; without a registry
// they do nothing.
#pragma once
#include "base/metrics.h"
#include "engine/engine.h"

enum { N_FINISHES = FINISH_SHUTDOWN + 1, N_RELEASES = RELEASE_PRESSURE + 1 };

// Why a snapshot was not written, and why one was not used; the last stands for all others.
#define GIVEN_UP_REASONS                                                                           \
    { "full", "slow", "denied", "large", "memory", "pressed", "io" }
#define REFUSED_REASONS                                                                            \
    {                                                                                              \
        "model", "tokenizer", "dtype", "layout", "backend", "build", "session", "window",          \
            "tokens", "damaged", "version", "gone", "io"                                           \
    }
enum { N_GIVEN_UP = 7, N_REFUSED = 13 };

struct engine_metrics {
    struct metric *prompt_tokens, *cached_tokens, *shared_tokens, *generated_tokens, *steps;
    struct metric *finished[N_FINISHES], *released[N_RELEASES], *parked[N_RELEASES];
    struct metric *restored_bytes, *restored, *restored_overlapped;
    struct metric *snapshots_written, *snapshots_read, *snapshot_bytes_written;
    struct metric *given_up[N_GIVEN_UP], *refused[N_REFUSED];
    struct metric *first_token, *inter_token, *queue_time, *prefill_time, *decode_time;
    struct metric *step_time, *step_tokens, *step_turns;
};

// registry may be NULL. e: whose load the gauges ask for; it outlives the registry's last page.
void engine_metrics_init(struct engine_metrics *m, struct metrics *registry,
                         const struct engine *e);
