// An engine on a small fixture model, stepped by the test or with its thread, for the tests of its
// interface.
#pragma once
#include "base/metrics.h"
#include "tests/golden/runner.h"

static struct engine *e;
static struct metrics *metrics;

static inline void options(struct engine_options *o) {
    engine_options_init(o);
    o->model_dir = "tests/fixtures/models/llama";
    o->n_threads = 1;
    o->prefill_chunk_tokens = 16;
    o->block_tokens = 8;
    o->max_sequences = 2;
    o->max_queued_turns = 2;
    o->max_session_len = 600;
    o->kv_cache_bytes = 64 << 20;
    o->metrics = NULL;
}

static inline int tear_down(void **state) {
    engine_close(e);
    metrics_free(metrics);
    e = NULL;
    return 0;
}

static inline struct engine_turn prompt(uint64_t sequence, int64_t n) {
    int32_t log[600];
    for (int64_t i = 0; i < n; i++) log[i] = (int32_t)(5 + i * 7 % 300);
    return turn_for(e, sequence, log, n, 128, 4);
}
