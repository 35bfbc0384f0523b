// Shared by the golden tests: an engine without its thread, turns run to their end, logits recorded
// by position. Run from the project's root.
//
// PARLEY_TEST_DEVICE: the engine's device (cpu). On a GPU the engine is deterministic and computes
// in F32, and the same must hold as on the CPU, bit for bit. With PARLEY_TEST_COMPUTE bf16 or f16
// it computes in that type, is deterministic only with PARLEY_TEST_DETERMINISTIC, and is less close
// to the references. The CPU uses bf16 for models with bf16 weights if the processor has it, and is
// always deterministic.
//
// PARLEY_TEST_TP, PARLEY_TEST_PP: the engines have so many tensor-parallel ranks and pipeline stages,
// processes of the same program. The same must hold as with one rank.
#pragma once
#include "base/json.h"
#include "engine/dist/rank.h"
#include "engine/engine_internal.h"
#include "engine/model/safetensors.h"
#include "tests/cmocka.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_LOG = 4096 };

struct rows { // logits by position, of one turn or several
    int32_t vocab;
    int64_t n_seen; // how often a row came
    int64_t last;   // position of the last one
    float *data;    // (MAX_LOG, vocab)
};

static inline struct rows rows_new(int32_t vocab) {
    struct rows r = {
        .vocab = vocab, .last = -1, .data = calloc((size_t)MAX_LOG * (size_t)vocab, sizeof(float))};
    assert_non_null(r.data);
    return r;
}

static inline void rows_keep(void *ctx, int64_t position, const float *logits) {
    struct rows *r = ctx;
    assert_in_range(position, 0, MAX_LOG - 1);
    r->n_seen++;
    r->last = position;
    memcpy(r->data + position * r->vocab, logits, (size_t)r->vocab * sizeof(float));
}

// Fails unless both have the same logits, bit for bit, at the positions [from, to).
static inline void same_bits(const char *what, const struct rows *a, const struct rows *b,
                             int64_t from, int64_t to) {
    for (int64_t p = from; p < to; p++) {
        if (memcmp(a->data + p * a->vocab, b->data + p * b->vocab,
                   (size_t)a->vocab * sizeof(float)) != 0)
            fail_msg("%s: position %lld has other bits", what, (long long)p);
    }
}

struct outcome { // what the events of one turn said
    bool done;
    int32_t ids[MAX_LOG];
    float logprobs[MAX_LOG];
    int64_t n;
    enum engine_finish finish;
    enum engine_cache_source source;
    int64_t n_cached, n_shared, n_prefilled, resume_us, paused_us;
    int64_t n_drafted, n_accepted;
    int32_t blocks, error_code;
    char text[16384];
    size_t text_len;
};

static inline void outcome_take(struct outcome *o, const struct engine_event *ev) {
    assert_false(o->done);
    if (ev->kind == ENGINE_STARTED) {
        o->source = ev->source;
        o->n_cached = ev->n_cached;
        o->n_shared = ev->n_shared;
    }
    if (ev->kind == ENGINE_TOKEN && ev->id >= 0) {
        o->logprobs[o->n] = ev->logprob;
        o->ids[o->n++] = ev->id;
    }
    if (ev->kind == ENGINE_TOKEN || ev->kind == ENGINE_DONE) {
        assert_true(o->text_len + ev->text_len < sizeof o->text);
        memcpy(o->text + o->text_len, ev->text, ev->text_len);
        o->text_len += ev->text_len;
        o->text[o->text_len] = '\0';
    }
    if (ev->kind == ENGINE_DONE) {
        o->done = true;
        o->finish = ev->finish;
        o->error_code = ev->error_code;
        o->n_prefilled = ev->n_prefilled;
        o->n_drafted = ev->n_drafted;
        o->n_accepted = ev->n_accepted;
        o->resume_us = ev->resume_us;
        o->paused_us = ev->paused_us;
        assert_true(ev->prefill_us >= 0 && ev->decode_us >= 0 && ev->paused_us >= 0);
        o->blocks = ev->blocks;
        assert_int_equal(ev->n_generated, o->n);
    }
}

// Both have ended alike, with the same tokens, bits and text.
static inline void outcome_same(const struct outcome *a, const struct outcome *b) {
    assert_true(a->done && b->done);
    assert_int_equal(a->finish, b->finish);
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->ids, b->ids, (size_t)a->n * sizeof *a->ids);
    assert_memory_equal(a->logprobs, b->logprobs, (size_t)a->n * sizeof *a->logprobs);
    assert_string_equal(a->text, b->text);
}

// The same, and where the cache of `a` came from.
static inline void outcome_same_from(const struct outcome *a, const struct outcome *b,
                                     enum engine_cache_source source, int64_t n_cached) {
    assert_int_equal(a->source, source);
    assert_int_equal(a->n_cached, n_cached);
    outcome_same(a, b);
}

static inline const char *test_device(void) {
    const char *device = getenv("PARLEY_TEST_DEVICE");
    return device ? device : "cpu";
}
static inline const char *test_compute(void) {
    const char *compute = getenv("PARLEY_TEST_COMPUTE");
    return compute ? compute : "f32";
}
static inline bool test_is_exact(void) {
    return strcmp(test_compute(), "f32") == 0;
}

static inline int32_t test_ranks(const char *variable) {
    const char *n = getenv(variable);
    return n ? atoi(n) : 1;
}
// Of the engines that open from now on.
static inline void divide(int tp, int pp) {
    char text[16];
    snprintf(text, sizeof text, "%d", tp);
    setenv("PARLEY_TEST_TP", text, 1);
    snprintf(text, sizeof text, "%d", pp);
    setenv("PARLEY_TEST_PP", text, 1);
}
static inline bool several_ranks(void) {
    return test_ranks("PARLEY_TEST_TP") * test_ranks("PARLEY_TEST_PP") > 1;
}
// Ranks are started as this program with one argument: such a process never reaches the tests, whose
// main is called test_main. Not before main: kernels are registered by then.
int test_main(void);
int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "rank") == 0) {
        if (rank_run() != 0) _exit(1);
        exit(0);
    }
    return test_main();
}
#define main test_main

static int64_t runner_host_bytes;     // for parked caches, of the engines opened next
static const char *runner_snapshots;  // their folder, NULL: none
static int64_t runner_snapshot_bytes; // 0: as many as there are
static int32_t runner_places = 8;

// The cache's number format of the engines opened next, of ENGINE_KV_DTYPES; and setups for a test
// that is to run with one.
enum { RUNNER_KV_AUTO = 0, RUNNER_KV_FP8 = 4, RUNNER_KV_INT8 = 5 };
static int runner_kv;
static inline int runner_with_fp8(void **state) {
    runner_kv = RUNNER_KV_FP8;
    return 0;
}
static inline int runner_with_int8(void **state) {
    runner_kv = RUNNER_KV_INT8;
    return 0;
}
static inline int runner_with_auto(void **state) {
    runner_kv = RUNNER_KV_AUTO;
    return 0;
}

// PARLEY_TEST_DEVICE may name a device for each rank: an engine of one rank takes the first.
static inline const char *test_device_for_ranks(void) {
    static char first[32];
    if (several_ranks()) return test_device();
    snprintf(first, sizeof first, "%.*s", (int)strcspn(test_device(), ","), test_device());
    return first;
}

static inline struct engine *engine_for_weights(const char *dir, enum weight_format weights,
                                                int32_t chunk, int32_t block_tokens,
                                                int64_t cache_bytes) {
    struct engine_options o;
    struct err err = {0};
    struct engine *e;
    engine_options_init(&o);
    o.model_dir = dir;
    o.weight_format = weights;
    o.device = test_device_for_ranks();
    o.compute_dtype = test_compute();
    o.deterministic = test_is_exact() || getenv("PARLEY_TEST_DETERMINISTIC");
    o.n_threads = 1;
    o.tensor_parallel = test_ranks("PARLEY_TEST_TP");
    o.pipeline_parallel = test_ranks("PARLEY_TEST_PP");
    o.prefill_chunk_tokens = chunk;
    o.block_tokens = block_tokens;
    o.max_sequences = runner_places;
    engine_options_kv_dtype(&o, runner_kv);
    o.kv_cache_bytes = cache_bytes;
    o.host_cache_bytes = runner_host_bytes;
    o.snapshot_dir = runner_snapshots;
    o.snapshot_bytes = runner_snapshot_bytes ? runner_snapshot_bytes : INT64_C(1) << 40;
    if (engine_open_manual(&e, &o, &clock_system, &err) < 0) fail_msg("%s: %s", dir, err.text);
    e->core.check = true;
    return e;
}

static inline struct engine *engine_for(const char *dir, int32_t chunk, int32_t block_tokens,
                                        int64_t cache_bytes) {
    return engine_for_weights(dir, WEIGHTS_OWN, chunk, block_tokens, cache_bytes);
}

// Bytes of a block in the caches of such engines. An engine of several ranks is slow to open, so the
// same question is not asked twice in a row.
static inline int64_t block_bytes_for(const char *dir, enum weight_format weights,
                                      int32_t block_tokens) {
    static struct {
        char dir[256];
        enum weight_format weights;
        int32_t block_tokens;
        int kv;
        int64_t bytes;
    } last;
    if (strcmp(last.dir, dir) == 0 && last.weights == weights &&
        last.block_tokens == block_tokens && last.kv == runner_kv)
        return last.bytes;
    const int64_t host_bytes = runner_host_bytes;
    const char *snapshots = runner_snapshots;
    runner_host_bytes = 0;
    runner_snapshots = NULL;
    struct engine *e = engine_for_weights(dir, weights, 16, block_tokens, 0);
    runner_host_bytes = host_bytes;
    runner_snapshots = snapshots;
    assert_true(snprintf(last.dir, sizeof last.dir, "%s", dir) < (int)sizeof last.dir);
    last.weights = weights;
    last.block_tokens = block_tokens;
    last.kv = runner_kv;
    last.bytes = e->info.block_bytes;
    engine_close(e);
    return last.bytes;
}

static inline struct engine_turn turn_for(const struct engine *e, uint64_t sequence,
                                          const int32_t *log, int64_t n, int32_t memory_len,
                                          int32_t sink_len) {
    struct engine_turn t = {
        .sequence = sequence,
        .turn = 1,
        .ids = malloc((size_t)n * sizeof(int32_t)),
        .n_ids = n,
        .n_input = n,
        .memory_len = memory_len > 0 ? memory_len : e->info.max_memory_len,
        .sink_len = sink_len,
        .session_len = e->info.max_session_len,
    };
    assert_non_null(t.ids);
    memcpy(t.ids, log, (size_t)n * sizeof(int32_t));
    sampling_params_init(&t.sampling);
    t.sampling.temperature = 0;
    t.sampling.ignore_eos = true;
    return t;
}

static inline void submit(struct engine *e, struct engine_turn *t) {
    struct err err = {0};
    if (engine_turn_submit(e, t, &err) < 0) fail_msg("submit: %s", err.text);
}

// Submits, then rounds until the turn is done. Other sequences' events are an error.
static inline void run_turn(struct engine *e, struct engine_turn *t, struct outcome *o) {
    struct engine_event ev;
    memset(o, 0, sizeof *o);
    submit(e, t);
    for (int rounds = 0; !o->done; rounds++) {
        assert_true(rounds < 10 * MAX_LOG);
        assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1) {
            assert_int_equal(ev.sequence, t->sequence);
            outcome_take(o, &ev);
        }
    }
}

// Releases a sequence's cache and drops the event. Copies that end now are reported before it.
static inline void release(struct engine *e, uint64_t sequence) {
    struct engine_event ev;
    bool gone = false;
    engine_sequence_release(e, sequence);
    assert_true(engine_round(e));
    while (engine_poll(e, &ev) == 1) {
        assert_true(ev.kind == ENGINE_RELEASED || ev.kind == ENGINE_PARKED);
        assert_false(gone && ev.kind == ENGINE_PARKED && ev.sequence == sequence);
        gone |= ev.kind == ENGINE_RELEASED && ev.sequence == sequence;
    }
}

// The turn alone, as sequence 1 and from nothing, draws these n ids with the same bits of log-probabilities.
static inline void assert_same_alone(struct engine *calm, struct engine_turn *t, const int32_t *ids,
                                     const float *logprobs, int64_t n) {
    static struct outcome o;
    run_turn(calm, t, &o);
    assert_int_equal(o.n, n);
    assert_memory_equal(o.ids, ids, (size_t)n * sizeof *ids);
    assert_memory_equal(o.logprobs, logprobs, (size_t)n * sizeof *logprobs);
    release(calm, 1);
}

// --- fixtures ------------------------------------------------------------------------------------

static inline int64_t json_ids(const cJSON *array, int32_t *out) {
    int64_t n = 0;
    for (const cJSON *i = array->child; i; i = i->next) out[n++] = i->valueint;
    return n;
}

static inline int64_t json_log(const cJSON *object, const char *key, int32_t *out) {
    const cJSON *array = cJSON_GetObjectItemCaseSensitive(object, key);
    assert_non_null(array);
    return json_ids(array, out);
}
