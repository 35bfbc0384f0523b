// A cache that moves from one engine to an equal one: the next turn there computes nothing again and
// has the tokens and bits of a session alone, also with a window that has moved on; a turn that comes
// first finds the cache; what cannot travel is released; and neither engine keeps anything.
#include "tests/golden/snapshots_world.h"

enum { SINKS = 4, DRAW = 8, GROUP = 7 };

static struct outcome out;

// An engine with room for `host` parked blocks.
static struct engine *travelling(const char *dir, int32_t chunk, int32_t host) {
    const int64_t bytes = block_bytes_for(dir, WEIGHTS_OWN, 8);
    runner_host_bytes = host * bytes;
    struct engine *e = engine_for(dir, chunk, 8, 400 * bytes);
    runner_host_bytes = 0;
    return e;
}

static struct engine_turn a_turn(struct engine *e, uint64_t sequence, int32_t *log, int64_t n,
                                 int32_t memory_len) {
    struct engine_turn t = turn_for(e, sequence, log, n, memory_len, SINKS);
    t.share_group = GROUP;
    t.n_input = 5;
    t.sampling.max_tokens = DRAW;
    return t;
}

static void turn_is_right(struct engine *e, struct engine *calm, uint64_t sequence, int32_t *log,
                          int64_t n, int32_t memory_len, enum engine_cache_source source,
                          int64_t n_cached) {
    struct engine_turn t = a_turn(e, sequence, log, n, memory_len);
    struct engine_turn same = a_turn(calm, 1, log, n, memory_len);
    run_slowly(e, &t, &out);
    same_as_alone(&out, calm, &same, source, n_cached);
    memcpy(log + n, out.ids, DRAW * sizeof *out.ids);
}

static void let_go(struct engine *e, uint64_t sequence) {
    engine_sequence_release(e, sequence);
    (void)wait_for(e, sequence, ENGINE_RELEASED);
    is_empty(e);
}

static struct packed_cache *take(struct engine *e, uint64_t sequence) {
    struct engine_event ev;
    engine_sequence_export(e, sequence);
    engine_sequence_export(e, sequence); // one under way is enough
    for (int i = 0; i < 10000; i++) {
        while (engine_poll(e, &ev) == 1) {
            assert_int_not_equal(ev.kind, ENGINE_PARKED);
            if (ev.kind == ENGINE_EXPORTED && ev.sequence == sequence) return ev.cache;
        }
        assert_true(engine_round(e));
    }
    fail();
    return NULL;
}

static void there_and_back(struct engine *a, struct engine *b, struct engine *calm,
                           int32_t memory_len, bool park_first) {
    static int32_t log[500];
    struct engine *at = a, *next = b;
    int64_t n = 150;
    random_log(a, log, sizeof log / sizeof *log);
    turn_is_right(a, calm, 5, log, n, memory_len, CACHE_RECOMPUTED, 0);
    for (int i = 0; i < 4; i++) {
        int64_t cached = n + DRAW - 1;
        n += DRAW + 5;
        if (park_first) {
            engine_sequence_park(at, 5);
            (void)wait_for(at, 5, ENGINE_PARKED);
        }
        struct packed_cache *p = take(at, 5);
        is_empty(at);
        assert_int_equal(engine_packed_tokens(p), cached);
        assert_int_equal(engine_sequence_import(next, 5, p), 0);
        struct engine_event ev = wait_for(next, 5, ENGINE_FORKED);
        assert_true(ev.parked);
        assert_int_equal(ev.n_cached, cached);
        assert_int_equal(host_used(next), ev.blocks);
        turn_is_right(next, calm, 5, log, n, memory_len, CACHE_HOST, cached);
        struct engine *was = at;
        at = next, next = was;
    }
    let_go(at, 5);
}

static void a_cache_travels(void **state) {
    struct engine *a = travelling(*state, 32, 200);
    struct engine *b = travelling(*state, 16, 200); // other chunks: another ring
    struct engine *calm = travelling(*state, 32, 0);
    for (int i = 0; i < 4; i++) there_and_back(a, b, calm, i % 2 ? 64 : 512, i / 2);
    engine_close(calm);
    engine_close(b);
    engine_close(a);
}

// The turn and the import are commands in order: the turn finds the cache that comes before it.
static void a_turn_comes_first(void **state) {
    static int32_t log[300];
    struct engine *a = travelling(*state, 32, 200);
    struct engine *b = travelling(*state, 32, 200);
    struct engine *calm = travelling(*state, 32, 0);
    random_log(a, log, 300);
    turn_is_right(a, calm, 5, log, 150, 512, CACHE_RECOMPUTED, 0);
    engine_sequence_export(a, 5);
    turn_is_right(a, calm, 5, log, 163, 512, CACHE_KEPT, 157); // two commands of one round
    struct packed_cache *p = take(a, 5);
    struct engine_turn t = a_turn(b, 5, log, 176, 512);
    assert_int_equal(engine_sequence_import(b, 5, p), 0);
    run_slowly(b, &t, &out);
    assert_int_equal(out.source, CACHE_HOST);
    assert_int_equal(out.n_cached, 170);
    let_go(b, 5);
    engine_close(calm);
    engine_close(b);
    engine_close(a);
}

static struct packed_cache *taken_after_a_turn(struct engine *e, int32_t *log) {
    struct engine_turn t = a_turn(e, 5, log, 150, 512);
    run_slowly(e, &t, &out);
    return take(e, 5);
}

static void another_model_refuses(struct engine *a, int32_t *log) {
    struct engine *other = travelling("tests/fixtures/models/gpt2", 32, 200);
    struct packed_cache *p = taken_after_a_turn(a, log);
    assert_int_equal(engine_sequence_import(other, 5, p), E_INVAL);
    assert_int_equal(engine_sequence_import(a, 0, p), E_INVAL);
    assert_int_equal(engine_sequence_import(a, 5, p), 0); // as good as before
    (void)wait_for(a, 5, ENGINE_FORKED);
    let_go(a, 5);
    engine_close(other);
}

static void too_little_host_memory_releases(struct engine *a, int32_t *log, const char *dir,
                                            int32_t host) {
    struct engine *tight = travelling(dir, 32, host);
    assert_int_equal(engine_sequence_import(tight, 5, taken_after_a_turn(a, log)), 0);
    struct engine_event ev = wait_for(tight, 5, ENGINE_FORKED);
    assert_int_equal(ev.blocks, 0);
    assert_int_equal(ev.n_cached, 0);
    is_empty(tight);
    if (host == 0) {
        struct engine_turn t = a_turn(tight, 5, log, 150, 512);
        run_slowly(tight, &t, &out);
        engine_sequence_export(tight, 5);
        (void)wait_for(tight, 5, ENGINE_RELEASED);
        is_empty(tight);
        engine_sequence_export(tight, 6); // unknown
    }
    engine_close(tight);
}

// Two engines at a time: of four ranks each, more are too much for two processors.
static void what_cannot_travel(void **state) {
    static int32_t log[300];
    struct engine *a = travelling(*state, 32, 200);
    random_log(a, log, 300);
    another_model_refuses(a, log);
    too_little_host_memory_releases(a, log, *state, 2);
    too_little_host_memory_releases(a, log, *state, 0);
    // Events and commands that are never taken are freed with the engine.
    struct packed_cache *p = taken_after_a_turn(a, log);
    assert_int_equal(engine_sequence_import(a, 5, p), 0);
    engine_stop(a);
    assert_int_equal(engine_sequence_import(a, 6, p), E_CLOSED);
    engine_close(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        OF("qwen3", a_cache_travels),
        OF("qwen3_windows", a_cache_travels),
        OF("llama", a_turn_comes_first),
        OF("qwen3", what_cannot_travel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
