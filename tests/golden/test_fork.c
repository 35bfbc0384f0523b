// Forks: two sequences over the same blocks go on as if each had always been alone. Compared bit
// for bit with fresh sequences of the same logs, in the middle of blocks, on wrapped rings, while
// the source runs, and when there is too little room for all. On a fixture model and the demo
// model.
#include "tests/golden/lines.h"

static const char *const models[] = {"tests/fixtures/models/qwen3", "configs/demo-model"};
// A cache whose vectors are keys and values at once.
static const char *const latents = "tests/fixtures/later/glm4_moe_lite";
enum { M = 40, CHUNK = 16, BLOCK = 8 };

// Forks `from` at n tokens and continues both.
static void fork_and_compare(struct engine *e, int64_t length, int64_t n, int32_t memory_len,
                             bool shared) {
    static struct line a, b;
    a.sequence = 1, b.sequence = 2;
    a.n = length;
    a.n_done = b.n_done = 0;
    a.rows = rows_new(e->info.n_vocab), b.rows = rows_new(e->info.n_vocab);
    random_log(e, a.log, a.n);
    go_on(e, &a, 5, memory_len);
    int32_t held = e->info.n_blocks - e->core.caches.pool.n_free;
    assert_int_equal(engine_sequence_fork(e, 1, 2, n), 0);
    assert_true(engine_round(e));
    assert_int_equal(e->info.n_blocks - e->core.caches.pool.n_free, held); // nothing was copied

    memcpy(b.log, a.log, (size_t)n * sizeof *b.log);
    b.n = n;
    hear(e, &b, 7);
    hear(e, &a, 3);
    int64_t a_from = a.n - 4, kept = n < a_from ? n : a_from;
    go_on(e, &b, 30, memory_len); // both write behind the fork, the new one first
    assert_int_equal(out.n_cached, shared ? kept : 0);
    assert_int_equal(out.source, shared ? CACHE_KEPT : CACHE_NONE);
    go_on(e, &a, 30, memory_len);
    assert_int_equal(out.n_cached, a_from);
    hear(e, &b, 20);
    go_on(e, &b, 10, memory_len);
    compare_fresh(e, &a, a_from, memory_len);
    compare_fresh(e, &b, shared ? kept : 0, memory_len);
    release(e, 1);
    release(e, 2);
    assert_int_equal(e->core.caches.pool.n_free, e->info.n_blocks);
    assert_int_equal(e->core.caches.pool.n_extra, 0);
    assert_null(e->owned);
    free(a.rows.data);
    free(b.rows.data);
}

static void test_both_sides_go_on(void **state) {
    seed = 21;
    struct engine *e = engine_for(*state, CHUNK, BLOCK, 0);
    int32_t whole = e->info.max_memory_len;
    fork_and_compare(e, 50, 54, whole, true); // at the end: the last block is half full
    fork_and_compare(e, 50, 40, whole, true); // at a block's end
    fork_and_compare(e, 50, 13, whole, true); // far back, in the middle of a block
    fork_and_compare(e, 50, 1, whole, true);
    fork_and_compare(e, 150, 154, M, true); // the ring has wrapped
    fork_and_compare(e, 150, 152, M, true);
    fork_and_compare(e, 150, 60, M, false); // the window has moved on
    engine_close(e);
}

// The source is in the middle of its prefill, or decodes: neither notices.
static void test_fork_of_a_running_source(void **state) {
    static struct line a, b;
    struct engine_event ev;
    seed = 22;
    struct engine *e = engine_for(*state, CHUNK, BLOCK, 0);
    a = (struct line){.sequence = 1, .n = 60, .rows = rows_new(e->info.n_vocab)};
    b = (struct line){.sequence = 2, .rows = rows_new(e->info.n_vocab)};
    random_log(e, a.log, a.n);
    struct engine_turn t = turn_for(e, 1, a.log, a.n, M, LINE_SINKS);
    t.sampling.max_tokens = 60;
    t.on_logits = rows_keep;
    t.on_logits_ctx = &a.rows;
    memset(&out, 0, sizeof out);
    submit(e, &t);
    uint64_t next = 2;
    for (int round = 0; !out.done; round++) {
        assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1) outcome_take(&out, &ev);
        // During prefill more than is computed is asked for; while decoding, just behind the input.
        if (round == 1 || round == 6) assert_int_equal(engine_sequence_fork(e, 1, next++, 60), 0);
    }
    memcpy(a.log + a.n, out.ids, (size_t)out.n * sizeof *out.ids);
    a.n += out.n;
    compare_fresh(e, &a, 0, M);
    for (uint64_t s = 2; s < next; s++) {
        b.sequence = s;
        memcpy(b.log, a.log, 60 * sizeof *b.log);
        b.n = 60;
        b.n_done = 0;
        hear(e, &b, 9);
        go_on(e, &b, 30, M);
        assert_int_equal(out.n_cached, s == 2 ? 32 : 60);
        compare_fresh(e, &b, 60, M);
    }
    engine_close(e);
    free(a.rows.data);
    free(b.rows.data);
}

// A pool that holds little more than one sequence: running turns get the blocks of idle ones,
// shared ones too, and the turn that was admitted never fails for want of one.
static void test_forks_in_a_pool_for_one(void **state) {
    static struct line lines[5];
    enum { N = sizeof lines / sizeof *lines };
    seed = 23;
    const int64_t block_bytes = block_bytes_for(*state, WEIGHTS_OWN, BLOCK);
    int32_t one = kv_ring_max_blocks(&(struct kv_ring_shape){.memory_len = M,
                                                             .sink_len = LINE_SINKS,
                                                             .chunk_tokens = CHUNK,
                                                             .block_tokens = BLOCK,
                                                             .session_len = 4096});
    for (int32_t room = one; room < 2 * one; room += 2) {
        struct engine *e = engine_for(*state, CHUNK, BLOCK, room * block_bytes);
        e->core.opt.max_session_len = e->info.max_session_len = 4096;
        assert_int_equal(e->info.n_blocks, room);
        for (int i = 0; i < N; i++) lines[i] = (struct line){.sequence = 0};
        lines[0].rows = rows_new(e->info.n_vocab);
        lines[0].sequence = 1;
        lines[0].n = 20;
        random_log(e, lines[0].log, 20);
        uint64_t next = 2;
        for (int step = 0; step < 60; step++) {
            struct line *l = &lines[below(N)], *from = &lines[below(N)];
            if (!l->sequence && from->sequence) {
                int64_t n = from->n - below(12);
                assert_int_equal(engine_sequence_fork(e, from->sequence, next, n), 0);
                *l = (struct line){.sequence = next++, .n = n, .rows = rows_new(e->info.n_vocab)};
                memcpy(l->log, from->log, (size_t)n * sizeof *l->log);
            } else if (l->sequence && step % 7 == 6) {
                engine_sequence_release(e, l->sequence);
                l->sequence = 0;
                free(l->rows.data);
                l->rows.data = NULL;
                if (!lines[0].sequence && !lines[1].sequence && !lines[2].sequence &&
                    !lines[3].sequence && !lines[4].sequence)
                    break;
            } else if (l->sequence) {
                hear(e, l, 3);
                go_on(e, l, 8, M);
                int64_t from_row = out.n_cached;
                if (step % 5 == 0) { // an engine with room says what is right
                    struct engine *calm = engine_for(*state, CHUNK, BLOCK, 0);
                    calm->core.opt.max_session_len = calm->info.max_session_len = 4096;
                    compare_fresh(calm, l, from_row, M);
                    engine_close(calm);
                }
            }
        }
        engine_close(e);
        for (int i = 0; i < N; i++) free(lines[i].sequence ? lines[i].rows.data : NULL);
    }
}

// Invalid calls, and forks that find nothing.
static void test_refusals_and_empty_forks(void **state) {
    static struct line a, b;
    seed = 24;
    struct engine *e = engine_for(*state, CHUNK, BLOCK, 0);
    a = (struct line){.sequence = 1, .n = 20, .rows = rows_new(e->info.n_vocab)};
    b = (struct line){.sequence = 2, .n = 20, .rows = rows_new(e->info.n_vocab)};
    random_log(e, a.log, a.n);
    memcpy(b.log, a.log, 20 * sizeof *b.log);
    assert_int_equal(engine_sequence_fork(e, 1, 2, 20), 0); // 1 is unknown
    assert_null(e->owned);
    go_on(e, &a, 5, M);
    assert_int_equal(engine_sequence_fork(e, 1, 0, 20), E_INVAL);
    assert_int_equal(engine_sequence_fork(e, 1, 1, 20), E_INVAL);
    assert_int_equal(engine_sequence_fork(e, 1, 2, 0), 0);
    // The source is released before the fork is looked at: the new one starts empty, and a turn and
    // a release that came at once find their place.
    engine_sequence_release(e, 1);
    assert_int_equal(engine_sequence_fork(e, 1, 2, 20), 0);
    assert_int_equal(engine_sequence_fork(e, 1, 2, 20), E_INVAL); // not new any more
    struct engine_turn t = turn_for(e, 2, b.log, b.n, M, LINE_SINKS);
    t.sampling.max_tokens = 2;
    struct engine_event ev;
    memset(&out, 0, sizeof out);
    submit(e, &t);
    engine_sequence_release(e, 2);
    bool released = false;
    for (int i = 0; i < 20; i++) {
        assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1) {
            if (ev.sequence == 2 && ev.kind == ENGINE_RELEASED)
                released = true;
            else if (ev.sequence == 2)
                outcome_take(&out, &ev);
        }
    }
    assert_true(out.done && released);
    assert_int_equal(out.n_cached, 0);
    assert_null(e->owned);
    // A fork that finds nothing and is released leaves nothing behind.
    go_on(e, &a, 5, M);
    engine_sequence_release(e, 1);
    assert_int_equal(engine_sequence_fork(e, 1, 2, 20), 0);
    engine_sequence_release(e, 2);
    for (int i = 0; i < 3; i++) {
        assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1) {
            if (ev.kind == ENGINE_FORKED) assert_int_equal(ev.blocks, 0);
            assert_int_equal(ev.sequence, ev.kind == ENGINE_FORKED ? 2 : 1);
        }
    }
    assert_null(e->owned);
    assert_null(e->core.caches.sequences);
    engine_stop(e);
    assert_int_equal(engine_sequence_fork(e, 1, 2, 20), E_CLOSED);
    engine_close(e);
    free(a.rows.data);
    free(b.rows.data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        {"fixture: both sides go on", test_both_sides_go_on, NULL, NULL, (void *)models[0]},
        {"fixture: a running source", test_fork_of_a_running_source, NULL, NULL, (void *)models[0]},
        {"fixture: a pool for one", test_forks_in_a_pool_for_one, NULL, NULL, (void *)models[0]},
        {"fixture: refusals and empty forks", test_refusals_and_empty_forks, NULL, NULL,
         (void *)models[0]},
        {"demo: both sides go on", test_both_sides_go_on, NULL, NULL, (void *)models[1]},
        {"latents: both sides go on", test_both_sides_go_on, NULL, NULL, (void *)latents},
        {"demo: a running source", test_fork_of_a_running_source, NULL, NULL, (void *)models[1]},
        {"int8 cache: both sides go on", test_both_sides_go_on, runner_with_int8, runner_with_auto,
         (void *)models[0]},
        {"int8 cache: a running source", test_fork_of_a_running_source, runner_with_int8,
         runner_with_auto, (void *)models[0]},
        {"fp8 cache: both sides go on", test_both_sides_go_on, runner_with_fp8, runner_with_auto,
         (void *)models[0]},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
