// Invariants under any load: the same bits for any split and any batch, a bounded cache, eviction
// that changes no bit, and consistent accounting after thousands of random operations. On a fixture
// model and the demo model.
#include "tests/golden/random_log.h"
#include "tests/scale.h"

static const char *const models[] = {"tests/fixtures/models/qwen3", "configs/demo-model"};
// Layers with a window of 24 tokens and one that sees everything: three cache groups.
static const char *const windows_model = "tests/fixtures/models/qwen3_windows";

static struct engine_turn scoring_turn(const struct engine *e, uint64_t sequence,
                                       const int32_t *log, int64_t n, int32_t memory_len,
                                       int32_t sink_len, struct rows *rows) {
    struct engine_turn t = turn_for(e, sequence, log, n, memory_len, sink_len);
    t.score_only = true;
    t.on_logits = rows_keep;
    t.on_logits_ctx = rows;
    return t;
}

static void score(struct engine *e, uint64_t sequence, const int32_t *log, int64_t n,
                  int32_t memory_len, int32_t sink_len, struct rows *rows) {
    static struct outcome o;
    struct engine_turn t = scoring_turn(e, sequence, log, n, memory_len, sink_len, rows);
    run_turn(e, &t, &o);
    assert_int_equal(o.finish, FINISH_LENGTH);
}

// --- (a) any split, any company ------------------------------------------------------------------

// Rounds until the sequence's turn is done, with up to three other turns kept going beside it all
// the time.
static void run_in_company(struct engine *e, struct engine_turn *t) {
    struct engine_event ev;
    bool busy[4] = {false}, done = false;
    static uint64_t next_turn = 100;
    submit(e, t);
    while (!done) {
        for (uint64_t other = 0; other < 3; other++) {
            if (busy[other] || below(4) == 0) continue;
            int32_t log[64];
            int64_t n = 1 + below(60);
            random_log(e, log, n);
            struct engine_turn o =
                turn_for(e, 500 + other, log, n, 16 + (int32_t)below(40), (int32_t)below(8));
            o.turn = next_turn++;
            o.sampling.max_tokens = 1 + (int32_t)below(12);
            submit(e, &o);
            busy[other] = true;
        }
        assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1) {
            if (ev.kind != ENGINE_DONE) continue;
            assert_int_not_equal(ev.finish, FINISH_ERROR);
            if (ev.sequence == t->sequence)
                done = true;
            else
                busy[ev.sequence - 500] = false;
        }
    }
    for (uint64_t other = 0; other < 3;
         other++) { // and they end, so that the next run finds a quiet engine
        while (busy[other]) {
            assert_true(engine_round(e));
            while (engine_poll(e, &ev) == 1) {
                if (ev.kind == ENGINE_DONE) busy[ev.sequence - 500] = false;
            }
        }
    }
}

static void test_any_split_and_any_company(void **state) {
    enum { N = 130 };
    static const struct { int32_t memory_len, sink_len; } windows[] = {{0, 0}, {24, 4}, {17, 0}};
    static const int32_t chunks[] = {5, 16, 33, 128}, blocks[] = {8, 16, 32, 64};
    seed = 11;
    size_t step = *state == models[1] ? 2 : 1; // the larger model: every other case
    for (size_t w = 0; w < sizeof windows / sizeof *windows; w += step) {
        int32_t m = windows[w].memory_len, s = windows[w].sink_len, log[N];
        struct engine *e = engine_for(*state, N, 8, 0);
        struct rows want = rows_new(e->info.n_vocab), got = rows_new(e->info.n_vocab);
        random_log(e, log, N / 2);
        // The second half is what the model itself says: those positions were first computed one by
        // one, as decode does.
        static struct outcome o;
        struct engine_turn t = turn_for(e, 1, log, N / 2, m, s);
        t.sampling.max_tokens = N - N / 2;
        t.on_logits = rows_keep;
        t.on_logits_ctx = &want;
        run_turn(e, &t, &o);
        assert_int_equal(o.n, N - N / 2);
        memcpy(log + N / 2, o.ids, (size_t)o.n * sizeof *log);
        engine_close(e);

        for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c += step) {
            e = engine_for(*state, chunks[c], blocks[c], 0);
            score(e, 1, log, N - 1, m, s, &got);
            same_bits("one turn", &want, &got, 0, N - 1);
            memset(got.data, 0, (size_t)N * (size_t)got.vocab * sizeof(float));
            int64_t n = 0;
            while (n < N - 1) { // many turns
                n += 1 + below(40);
                if (n > N - 1) n = N - 1;
                t = scoring_turn(e, 2, log, n, m, s, &got);
                run_in_company(e, &t);
            }
            same_bits("many turns in company", &want, &got, 0, N - 1);
            engine_close(e);
        }
        free(want.data);
        free(got.data);
    }
}

// --- (b) ten times memory_len --------------------------------------------------------------------

static void test_ten_windows_long(void **state) {
    enum { M = 40, S = 4, N = 10 * M, CHUNK = 24, BLOCK = 8 };
    int32_t log[N];
    seed = 12;
    struct engine *e = engine_for(*state, CHUNK, BLOCK, 0);
    struct rows want = rows_new(e->info.n_vocab), got = rows_new(e->info.n_vocab);
    random_log(e, log, N);
    score(e, 1, log, N, M, S, &want);
    const struct kv_groups *groups = &e->model->cache_groups;
    int32_t idle_bound = kv_ring_max_blocks(&(struct kv_ring_shape){M, S, 1, BLOCK, N, groups}),
            busy_bound = kv_ring_max_blocks(&(struct kv_ring_shape){M, S, CHUNK, BLOCK, N, groups});
    for (int64_t n = 0; n < N;) {
        struct engine_event ev;
        bool done = false;
        n += 1 + below(50);
        if (n > N) n = N;
        struct engine_turn t = scoring_turn(e, 2, log, n, M, S, &got);
        submit(e, &t);
        while (!done) {
            assert_true(engine_round(e));
            int32_t others = e->core.caches.sequences->ring.n_held; // sequence 1, idle
            assert_true(e->info.n_blocks - e->core.caches.pool.n_free - others <= busy_bound);
            while (engine_poll(e, &ev) == 1) {
                if (ev.kind != ENGINE_DONE) continue;
                done = true;
                assert_true(ev.blocks <= idle_bound);
            }
        }
    }
    same_bits("ten windows", &want, &got, 0, N);
    engine_close(e);
    free(want.data);
    free(got.data);
}

// --- (c) eviction and resume ---------------------------------------------------------------------

enum { TURNS = 12, ROWS = 600 };

struct script { // of one session
    int32_t input[TURNS][24];
    int64_t n_input[TURNS];
    struct sampling_params sampling[TURNS];
};

static void make_script(const struct engine *e, struct script *s) {
    for (int i = 0; i < TURNS; i++) {
        s->n_input[i] = 1 + below(24);
        random_log(e, s->input[i], s->n_input[i]);
        sampling_params_init(&s->sampling[i]);
        s->sampling[i].seed = below(1000000);
        s->sampling[i].has_seed = true;
        s->sampling[i].temperature = 0.9f;
        s->sampling[i].top_k = 40;
        s->sampling[i].repetition_penalty = 1.1f;
        s->sampling[i].presence_penalty = 0.2f;
        s->sampling[i].max_tokens = 1 + (int32_t)below(20);
        s->sampling[i].ignore_eos = true;
    }
}

// A neighbour that needs most of the pool: idle sequences are evicted.
static void press(struct engine *e) {
    static int32_t log[MAX_LOG];
    static struct outcome o;
    int64_t n = (int64_t)e->info.n_blocks * e->info.block_tokens - 40;
    struct engine_event ev;
    random_log(e, log, n);
    struct engine_turn t = turn_for(e, 77, log, n, (int32_t)n, 0);
    t.score_only = true;
    submit(e, &t);
    memset(&o, 0, sizeof o);
    while (!o.done) {
        assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1) {
            if (ev.sequence == 77)
                outcome_take(&o, &ev);
            else
                assert_int_equal(ev.why, RELEASE_PRESSURE);
        }
    }
    release(e, 77);
}

struct record {
    int32_t log[ROWS];
    float logprobs[ROWS];
    int64_t n, n_drawn;
    int n_recomputed;
};

static void play(struct engine *e, const struct script *s, bool disturb, struct rows *rows,
                 struct record *r) {
    static struct outcome o;
    r->n = r->n_drawn = r->n_recomputed = 0;
    for (int i = 0; i < TURNS; i++) {
        if (disturb && below(3) == 0)
            release(e, 1);
        else if (disturb && below(2) == 0)
            press(e);
        memcpy(r->log + r->n, s->input[i], (size_t)s->n_input[i] * sizeof *r->log);
        r->n += s->n_input[i];
        struct engine_turn t = turn_for(e, 1, r->log, r->n, 48, 4);
        t.n_input = s->n_input[i];
        t.sampling = s->sampling[i];
        t.on_logits = rows_keep;
        t.on_logits_ctx = rows;
        run_turn(e, &t, &o);
        assert_int_equal(o.source, i == 0           ? CACHE_NONE
                                   : o.n_cached > 0 ? CACHE_KEPT
                                                    : CACHE_RECOMPUTED);
        r->n_recomputed += o.source == CACHE_RECOMPUTED;
        if (!disturb && i > 0)
            assert_int_equal(o.n_prefilled, s->n_input[i] + 1); // new tokens and the pending one
        memcpy(r->log + r->n, o.ids, (size_t)o.n * sizeof *o.ids);
        memcpy(r->logprobs + r->n_drawn, o.logprobs, (size_t)o.n * sizeof *o.logprobs);
        r->n += o.n;
        r->n_drawn += o.n;
        assert_true(r->n < ROWS - 50);
    }
}

static void test_evict_and_resume(void **state) {
    static struct script script;
    static struct record calm, disturbed;
    seed = 13;
    struct engine *e = engine_for(*state, 16, 8, 0);
    struct rows want = rows_new(e->info.n_vocab), got = rows_new(e->info.n_vocab);
    int64_t block_bytes = e->info.block_bytes;
    make_script(e, &script);
    play(e, &script, false, &want, &calm);
    assert_int_equal(calm.n_recomputed, 0);
    engine_close(e);
    for (int round = 0; round < 3; round++) {
        e = engine_for(*state, round == 1 ? 7 : 16, 8, 30 * block_bytes);
        play(e, &script, true, &got, &disturbed);
        assert_true(disturbed.n_recomputed > 2);
        assert_int_equal(disturbed.n, calm.n);
        assert_memory_equal(disturbed.log, calm.log, (size_t)calm.n * sizeof *calm.log);
        assert_memory_equal(disturbed.logprobs, calm.logprobs,
                            (size_t)calm.n_drawn * sizeof *calm.logprobs);
        same_bits("evicted and resumed", &want, &got, 0, calm.n - 1);
        engine_close(e);
    }
    free(want.data);
    free(got.data);
}

// --- (d) random operations -----------------------------------------------------------------------

enum { SEQUENCES = 24 };

struct player {    // the owner's view of one sequence
    uint64_t turn; // under way, or 0
    bool started, cancelled;
    int64_t n_tokens;
    int32_t max_tokens;
    int32_t log[256];
    int64_t n_log;
    int32_t blocks; // held after the last event that said so
};

struct books {
    int64_t submitted, refused, done, cancelled, tokens, released;
};

static void note(struct player *players, struct books *b, const struct engine_event *ev) {
    assert_in_range(ev->sequence, 1, SEQUENCES);
    struct player *p = &players[ev->sequence - 1];
    if (ev->kind == ENGINE_RELEASED) {
        b->released++;
        p->blocks = 0;
        return;
    }
    assert_int_not_equal(p->turn, 0); // nothing comes after DONE
    assert_int_equal(ev->turn, p->turn);
    if (ev->kind == ENGINE_STARTED) {
        assert_false(p->started);
        p->started = true;
    } else if (ev->kind == ENGINE_TOKEN && ev->id >= 0) {
        assert_true(p->started);
        p->n_tokens++;
        if (p->n_log < 200) p->log[p->n_log++] = ev->id;
        b->tokens++;
    } else if (ev->kind == ENGINE_DONE) {
        assert_int_not_equal(ev->finish, FINISH_ERROR);
        assert_int_equal(ev->n_generated, p->n_tokens);
        if (ev->finish == FINISH_LENGTH) assert_int_equal(p->n_tokens, p->max_tokens);
        if (ev->finish == FINISH_CANCELLED) assert_true(p->cancelled);
        b->done++;
        b->cancelled += ev->finish == FINISH_CANCELLED;
        p->turn = 0;
        p->blocks = ev->blocks;
    }
}

static void random_submit(struct engine *e, struct player *p, uint64_t sequence, struct books *b) {
    static uint64_t next_turn = 1;
    struct err err = {0};
    bool was_busy = p->turn != 0;
    if (!was_busy && (below(3) == 0 || p->n_log > 150))
        p->n_log = below((uint32_t)p->n_log + 1); // rewind
    int64_t n_input = 1 + below(30);
    random_log(e, p->log + p->n_log, n_input);
    p->n_log += n_input;
    int32_t memory_len = below(8) == 0 ? 20 : 64; // now and then the window changes
    struct engine_turn t = turn_for(e, sequence, p->log, p->n_log, memory_len, 4);
    t.turn = next_turn++;
    t.n_input = n_input;
    t.sampling.max_tokens = 1 + (int32_t)below(20);
    int rc = engine_turn_submit(e, &t, &err);
    if (rc < 0) {
        assert_int_equal(rc, E_BUSY);
        free(t.ids);
        p->n_log -= n_input;
        b->refused++;
        return;
    }
    assert_false(was_busy);
    b->submitted++;
    p->turn = t.turn;
    p->max_tokens = t.sampling.max_tokens;
    p->n_tokens = 0;
    p->started = p->cancelled = false;
}

static void test_random_operations(void **state) {
    static struct player players[SEQUENCES];
    struct books b = {0};
    struct engine_event ev;
    memset(players, 0, sizeof players);
    seed = 14;
    const int64_t block_bytes = block_bytes_for(*state, WEIGHTS_OWN, 8);
    struct engine *e = engine_for(*state, 16, 8, 40 * block_bytes); // room for three or four of 24
    e->max_queued = 6;
    // Of ranks, each sum waits for another process, which many running programs keep from a processor.
    const int n_ranks = test_ranks("PARLEY_TEST_TP") * test_ranks("PARLEY_TEST_PP");
    int n_operations = test_scaled(n_ranks > 1 ? 3000 : 20000);
    for (int op = 0; op < n_operations; op++) {
        uint64_t sequence = 1 + below(SEQUENCES);
        struct player *p = &players[sequence - 1];
        switch (below(6)) {
        case 0:
        case 1:
            if (p->turn == 0 || below(10) == 0) random_submit(e, p, sequence, &b);
            break;
        case 2:
            if (below(3) == 0) {
                p->cancelled = p->cancelled || p->turn != 0;
                engine_turn_cancel(e, sequence, p->turn);
            } else {
                engine_turn_cancel(e, sequence, 999999999); // no such turn: ignored
            }
            break;
        case 3:
            if (below(4) == 0) engine_sequence_release(e, sequence);
            break;
        default:
            assert_true(engine_round(e));
            break;
        }
        while (below(3) > 0 && engine_poll(e, &ev) == 1) note(players, &b, &ev);
    }
    for (uint64_t i = 1; i <= SEQUENCES; i++) engine_sequence_release(e, i);
    for (int quiet = 0; quiet < 3;) {
        assert_true(engine_round(e));
        quiet = e->n_active[ENGINE_INTERACTIVE] == 0 ? quiet + 1 : 0;
        while (engine_poll(e, &ev) == 1) note(players, &b, &ev);
        for (uint64_t i = 1; i <= SEQUENCES; i++) engine_sequence_release(e, i);
    }
    assert_int_equal(b.submitted, b.done);
    print_message("%lld turns, %lld refused, %lld cancelled, %lld tokens, %lld caches given up\n",
                  (long long)b.submitted, (long long)b.refused, (long long)b.cancelled,
                  (long long)b.tokens, (long long)b.released);
    assert_true(b.submitted * 40 > n_operations && b.cancelled * 200 > n_operations &&
                b.tokens * 20 > n_operations && b.released * 200 > n_operations && b.refused > 0);
    assert_int_equal(e->core.caches.pool.n_free, e->core.caches.pool.n_blocks);
    assert_null(e->core.caches.sequences);
    assert_null(e->owned);
    assert_int_equal(e->n_active[ENGINE_INTERACTIVE], 0);
    assert_int_equal(e->core.sched.n_reserved, 0);
    struct engine_load load;
    engine_load(e, &load);
    assert_int_equal(load.running + load.queued + load.sequences, 0);
    assert_int_equal(load.blocks_free, load.blocks_total);
    engine_close(e);
}

// The same with x rounded to bf16, where the processor has products of bf16; only which sums are
// made differs, so a few are enough.
static int run_with_bf16(void) {
    const struct CMUnitTest tests[] = {
        {"fixture, bf16: any split and any company", test_any_split_and_any_company, NULL, NULL,
         (void *)models[0]},
        {"fixture, bf16: ten windows long", test_ten_windows_long, NULL, NULL, (void *)models[0]},
        {"fixture, bf16: evict and resume", test_evict_and_resume, NULL, NULL, (void *)models[0]},
        {"demo, bf16: any split and any company", test_any_split_and_any_company, NULL, NULL,
         (void *)models[1]},
    };
    struct backend *be;
    if (strcmp(test_device(), "cpu") != 0 || !test_is_exact()) return 0;
    if (backend_cpu_open_for(&be, DTYPE_BF16, 1, "auto", NULL) < 0) {
        print_message("no AVX512-BF16 and no AMX here: products of bf16 not run\n");
        return 0;
    }
    be->ops->close(be);
    setenv("PARLEY_TEST_COMPUTE", "bf16", 1);
    return cmocka_run_group_tests_name("products of bf16", tests, NULL, NULL);
}

// The runner makes two programs of this one; by hand all runs.
static bool runs_part(const char *name) {
    const char *part = getenv("PARLEY_TEST_PART");
    return !part || strcmp(part, name) == 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        {"fixture: any split and any company", test_any_split_and_any_company, NULL, NULL,
         (void *)models[0]},
        {"fixture: ten windows long", test_ten_windows_long, NULL, NULL, (void *)models[0]},
        {"fixture: evict and resume", test_evict_and_resume, NULL, NULL, (void *)models[0]},
        {"fixture: random operations", test_random_operations, NULL, NULL, (void *)models[0]},
        {"windows: any split and any company", test_any_split_and_any_company, NULL, NULL,
         (void *)windows_model},
        {"windows: ten windows long", test_ten_windows_long, NULL, NULL, (void *)windows_model},
        {"windows: random operations", test_random_operations, NULL, NULL, (void *)windows_model},
        {"demo: any split and any company", test_any_split_and_any_company, NULL, NULL,
         (void *)models[1]},
        {"demo: ten windows long", test_ten_windows_long, NULL, NULL, (void *)models[1]},
        {"demo: evict and resume", test_evict_and_resume, NULL, NULL, (void *)models[1]},
        {"int8 cache: windows, any split and any company", test_any_split_and_any_company,
         runner_with_int8, runner_with_auto, (void *)windows_model},
        {"fp8 cache: evict and resume", test_evict_and_resume, runner_with_fp8, runner_with_auto,
         (void *)models[0]},
    };
    const struct CMUnitTest more[] = {
        // what the two above say of a cache of 8 bits, in full
        {"int8 cache: any split and any company", test_any_split_and_any_company, runner_with_int8,
         runner_with_auto, (void *)models[0]},
        {"int8 cache: ten windows long", test_ten_windows_long, runner_with_int8, runner_with_auto,
         (void *)models[0]},
        {"int8 cache: evict and resume", test_evict_and_resume, runner_with_int8, runner_with_auto,
         (void *)models[0]},
        {"int8 cache: demo, any split and any company", test_any_split_and_any_company,
         runner_with_int8, runner_with_auto, (void *)models[1]},
        {"fp8 cache: any split and any company", test_any_split_and_any_company, runner_with_fp8,
         runner_with_auto, (void *)models[0]},
        {"fp8 cache: ten windows long", test_ten_windows_long, runner_with_fp8, runner_with_auto,
         (void *)models[0]},
    };
    int failed = 0;
    if (runs_part("short")) failed += cmocka_run_group_tests(tests, NULL, NULL);
    if (runs_part("long"))
        failed += cmocka_run_group_tests_name("more caches of 8 bits", more, NULL, NULL) +
                  run_with_bf16();
    return failed;
}
