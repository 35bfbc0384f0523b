// What the engine counts for /metrics. Updates are atomic and cost nanoseconds; without a registry
// they do nothing.
#pragma once
#include "base/metrics.h"
#include "engine/engine.h"

enum { N_FINISHES = FINISH_SHUTDOWN + 1, N_RELEASES = RELEASE_PRESSURE + 1 };

struct run_metrics {
    struct metric *prompt_tokens, *cached_tokens, *shared_tokens, *generated_tokens, *steps;
    struct metric *finished[N_FINISHES], *released[N_RELEASES], *parked[N_RELEASES];
    struct metric *restored_bytes;
    struct metric *first_token, *inter_token, *queue_time, *prefill_time, *decode_time;
    struct metric *step_time, *step_tokens, *step_turns;
};

// registry may be NULL. e: whose load the gauges ask for; it outlives the registry's last page.
void run_metrics_init(struct run_metrics *m, struct metrics *registry, const struct engine *e);
