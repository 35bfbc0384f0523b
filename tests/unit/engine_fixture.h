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

// A turn of n tokens at most whose input is a text.
static inline struct engine_turn ask(uint64_t sequence, const char *text, int32_t n) {
    struct token_list ids;
    struct err err = {0};
    token_list_init(&ids);
    assert_int_equal(engine_tokenize(e, text, strlen(text), true, &ids, &err), 0);
    struct engine_turn t = turn_for(e, sequence, ids.ids, (int64_t)ids.len, 256, 4);
    token_list_release(&ids);
    t.turn = sequence;
    t.sampling.max_tokens = n;
    return t;
}

// What a greedy draw gives.
static inline int32_t best_of(const float *row, int32_t n) {
    int32_t best = 0;
    for (int32_t v = 1; v < n; v++)
        if (row[v] > row[best]) best = v;
    return best;
}
