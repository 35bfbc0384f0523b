// Caches that leave the device and come back: after parking, eviction, partial restoring or
// recomputing, every turn gives the tokens and the bits of an undisturbed one, and nothing is lost
// or leaked.
#include "tests/golden/tiers_world.h"

#include "base/log.h"

static const char *const models[] = {"tests/fixtures/models/qwen3", "configs/demo-model"};
// A cache whose vectors are keys and values at once.
static const char *const latents = "tests/fixtures/later/glm4_moe_lite";
// Layers with a window of 24 tokens and one that sees everything: three cache groups.
static const char *const windows_model = "tests/fixtures/models/qwen3_windows";

// --- parked after every turn, on rings that wrap many times --------------------------------------

enum { TURNS = 14, MOST = 600 };

static void play(struct engine *e, bool park, int32_t memory_len, struct rows *rows, int32_t *log,
                 int64_t *n_log) {
    static struct outcome o;
    int64_t n = 0;
    seed = 21;
    for (int i = 0; i < TURNS; i++) {
        int64_t n_input = 1 + below(30);
        random_log(e, log + n, n_input);
        n += n_input;
        struct engine_turn t = turn_for(e, 1, log, n, memory_len, 4);
        t.n_input = n_input;
        t.sampling.max_tokens = 1 + (int32_t)below(20);
        t.on_logits = rows_keep;
        t.on_logits_ctx = rows;
        run_turn(e, &t, &o);
        assert_int_equal(o.finish, FINISH_LENGTH);
        enum engine_cache_source want = i == 0 ? CACHE_NONE : park ? CACHE_HOST : CACHE_KEPT;
        assert_int_equal(o.source, want);
        if (i > 0) assert_int_equal(o.n_prefilled, n_input + 1); // as if it had never left
        memcpy(log + n, o.ids, (size_t)o.n * sizeof *log);
        n += o.n;
        if (!park) continue;
        engine_sequence_park(e, 1);
        assert_int_equal(wait_for(e, 1), ENGINE_PARKED);
        assert_int_equal(e->core.caches.pool.n_free, e->core.caches.pool.n_blocks);
        struct engine_load load;
        engine_load(e, &load);
        assert_int_equal(load.parked, 1);
        assert_true(load.host_blocks_free < load.host_blocks_total);
    }
    *n_log = n;
}

static void test_parked_after_every_turn(void **state) {
    static const int32_t windows[] = {0, 48, 24};
    static int32_t calm_log[MOST + 64], log[MOST + 64];
    for (int w = 0; w < 3; w++) {
        int64_t n_calm, n;
        struct engine *calm = tiered(*state, 16, 400, 0), *e = tiered(*state, 16, 400, 400);
        struct rows want = rows_new(e->info.n_vocab), got = rows_new(e->info.n_vocab);
        play(calm, false, windows[w], &want, calm_log, &n_calm);
        play(e, true, windows[w], &got, log, &n);
        assert_int_equal(n, n_calm);
        assert_memory_equal(log, calm_log, (size_t)n * sizeof *log);
        same_bits("parked and resumed", &want, &got, 0, n - 1);
        release(e, 1);
        assert_int_equal(e->core.caches.tiers.host.n_free, e->core.caches.tiers.host.n_blocks);
        assert_null(e->core.caches.sequences);
        assert_null(e->owned);
        engine_close(calm);
        engine_close(e);
        free(want.data);
        free(got.data);
    }
}

// --- the log went another way meanwhile ----------------------------------------------------------

static void test_another_end(void **state) {
    static struct outcome o;
    int32_t log[300];
    struct engine *e = tiered(*state, 16, 200, 200), *calm = tiered(*state, 16, 200, 0);
    struct rows want = rows_new(e->info.n_vocab), got = rows_new(e->info.n_vocab);
    seed = 5;
    random_log(e, log, 300);
    static const struct {
        int32_t memory_len;
        int64_t cut;
        bool host;
    } cases[] = {
        {0, 100, true},   // cut: the part that is equal comes back
        {40, 195, true},  // still in the window
        {40, 100, false}, // the window has moved on: computed
        {0, 200, true},   // all of it, and more behind it
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct engine_turn t = turn_for(e, 9, log, 200, cases[i].memory_len, 4);
        t.score_only = true;
        run_turn(e, &t, &o);
        engine_sequence_park(e, 9);
        assert_int_equal(wait_for(e, 9), ENGINE_PARKED);
        random_log(e, log + cases[i].cut, 300 - cases[i].cut);
        t = turn_for(e, 9, log, 260, cases[i].memory_len, 4);
        t.n_input = 60;
        t.sampling.max_tokens = 5;
        struct engine_turn c = turn_for(calm, 9, log, 260, cases[i].memory_len, 4);
        t.on_logits = c.on_logits = rows_keep;
        t.on_logits_ctx = &got;
        c.on_logits_ctx = &want;
        c.sampling.max_tokens = 5;
        run_turn(e, &t, &o);
        assert_int_equal(o.source, cases[i].host ? CACHE_HOST : CACHE_RECOMPUTED);
        assert_int_equal(o.n_cached, cases[i].host ? cases[i].cut : 0);
        assert_true(o.resume_us >= 0);
        run_turn(calm, &c, &o);
        same_bits("another end", &want, &got, cases[i].host ? cases[i].cut : 0, 264);
        release(e, 9);
        release(calm, 9);
    }
    engine_close(calm);
    engine_close(e);
    free(want.data);
    free(got.data);
}

// Both ways are measured to choose the cheaper one: copies that are slower than computing are not
// used.
static void test_the_cheapest_way(void **state) {
    static struct outcome o;
    static const struct {
        double load_rate, prefill_rate; // bytes and tokens per microsecond
        enum engine_cache_source source;
    } cases[] = {
        {1e4, 1e-3, CACHE_HOST},
        {1e-6, 1e-3, CACHE_RECOMPUTED},
        {0, 1e-3, CACHE_HOST}, // not measured yet: to be measured
        {1e-6, 0, CACHE_HOST},
    };
    int32_t log[130];
    struct engine *e = tiered(*state, 16, 200, 200);
    seed = 9;
    random_log(e, log, 130);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct engine_turn t = turn_for(e, 3, log, 100, 0, 4);
        t.score_only = true;
        run_turn(e, &t, &o);
        engine_sequence_park(e, 3);
        assert_int_equal(wait_for(e, 3), ENGINE_PARKED);
        e->core.caches.tiers.load_rate = cases[i].load_rate;
        e->core.caches.tiers.prefill_rate = cases[i].prefill_rate;
        t = turn_for(e, 3, log, 110, 0, 4);
        t.n_input = 10;
        t.score_only = true;
        run_turn(e, &t, &o);
        assert_int_equal(o.source, cases[i].source);
        assert_int_equal(o.n_cached, o.source == CACHE_HOST ? 100 : 0);
        release(e, 3);
    }
    engine_close(e);
}

// --- a hint --------------------------------------------------------------------------------------

static void test_a_hint_brings_it_back(void **state) {
    static struct outcome o, calm;
    static struct clock_fake clock;
    struct engine_event ev;
    int32_t log[130];
    struct engine *e = tiered(*state, 16, 200, 200);
    clock_fake_init(&clock, 1700000000000000);
    clock_fake_advance(&clock, 1000000000);
    e->clock = e->core.emit.clock = &clock.clock;
    seed = 8;
    random_log(e, log, 130);
    struct engine_turn t = turn_for(e, 3, log, 100, 48, 4);
    t.score_only = true;
    run_turn(e, &t, &o);
    engine_sequence_park(e, 3);
    assert_int_equal(wait_for(e, 3), ENGINE_PARKED);
    for (int round = 0; round < 2; round++) {
        clock_fake_advance(&clock, 6000000);
        assert_int_equal(e->core.caches.tiers.n_parked, 1);
        engine_sequence_warm(e, 3);
        engine_sequence_warm(e, 3); // too soon: ignored
        // A GPU's copies run beside the rounds.
        for (int i = 0; i < 10000 && e->core.caches.tiers.n_parked > 0; i++)
            assert_true(engine_round(e));
        assert_int_equal(engine_poll(e, &ev), 0);
        assert_int_equal(e->core.caches.tiers.n_parked, 0);
        assert_int_equal(e->core.caches.n_warm, 1);
        if (round == 1) break;
        clock_fake_advance(&clock, ENGINE_WARM_US); // no turn came
        assert_int_equal(wait_for(e, 3), ENGINE_PARKED);
        assert_int_equal(e->core.caches.n_warm, 0);
        assert_int_equal(e->core.caches.pool.n_free, e->core.caches.pool.n_blocks);
    }
    t = turn_for(e, 3, log, 130, 48, 4);
    t.n_input = 30;
    t.sampling.max_tokens = 10;
    run_turn(e, &t, &o);
    assert_int_equal(o.source, CACHE_KEPT);
    assert_int_equal(o.n_cached, 100);
    assert_int_equal(e->core.caches.n_warm, 0);
    t = turn_for(e, 4, log, 130, 48, 4);
    t.sampling.max_tokens = 10;
    run_turn(e, &t, &calm);
    assert_memory_equal(o.ids, calm.ids, 10 * sizeof *o.ids);
    assert_memory_equal(o.logprobs, calm.logprobs, 10 * sizeof *o.logprobs);
    engine_close(e);
}

// A cache that a hint brings back is in no list until it is complete: an admitted turn still gets its
// blocks, and the session stays parked.
static void test_a_hint_is_preempted(void **state) {
    static struct outcome o;
    int32_t log[130], other[100];
    if (strcmp(test_device(), "cpu")) skip(); // its copies are over too soon
    struct engine *e = tiered(*state, 16, 22, 200), *calm = tiered(*state, 16, 200, 0);
    slow_down(e);
    seed = 14;
    random_log(e, log, 130);
    random_log(e, other, 100);
    struct engine_turn t = turn_for(e, 1, log, 100, 0, 4);
    t.score_only = true;
    run_turn(e, &t, &o);
    engine_sequence_park(e, 1);
    assert_int_equal(wait_for(e, 1), ENGINE_PARKED);
    engine_sequence_warm(e, 1);
    copying.waited_for = true;
    for (int i = 0; i < 3; i++) assert_true(engine_round(e));
    assert_true(copying.load);
    assert_true(e->core.caches.pool.n_free < 12);
    t = turn_for(e, 2, other, 90, 0, 4); // 12 blocks
    t.sampling.max_tokens = 5;
    run_turn(e, &t, &o);
    assert_int_equal(o.finish, FINISH_LENGTH);
    assert_int_equal(e->core.caches.tiers.n_parked, 1);
    assert_int_equal(e->core.caches.n_warm, 0);
    copying.waited_for = false;
    release(e, 2);
    e->core.caches.tiers.prefill_rate = 1e-12; // copies that waited have cost much
    t = turn_for(e, 1, log, 130, 0, 4);
    t.n_input = 30;
    t.sampling.max_tokens = 5;
    run_turn(e, &t, &o);
    assert_int_equal(o.source, CACHE_HOST);
    struct engine_turn c = turn_for(calm, 1, log, 130, 0, 4);
    static struct outcome alone;
    c.sampling.max_tokens = 5;
    run_turn(calm, &c, &alone);
    assert_memory_equal(o.ids, alone.ids, 5 * sizeof *o.ids);
    assert_memory_equal(o.logprobs, alone.logprobs, 5 * sizeof *o.logprobs);
    engine_close(calm);
    engine_close(e);
}

// A turn is queued while its cache comes back on a hint: it is in the list of those that may be
// evicted then, and must not be, with blocks that are being filled.
static void test_a_queued_turn_on_its_way(void **state) {
    static struct outcome two[2], alone;
    static struct engine_event ev;
    int32_t log[130], other[100];
    if (strcmp(test_device(), "cpu")) skip(); // its copies are over too soon
    struct engine *e = tiered(*state, 16, 40, 200), *calm = tiered(*state, 16, 200, 0);
    slow_down(e);
    copying.waited_for = false;
    seed = 15;
    random_log(e, log, 130);
    random_log(e, other, 100);
    struct engine_turn t = turn_for(e, 1, log, 100, 0, 4);
    t.score_only = true;
    run_turn(e, &t, &two[0]);
    engine_sequence_park(e, 1);
    assert_int_equal(wait_for(e, 1), ENGINE_PARKED);
    t = turn_for(e, 3, other, 60, 0, 4);
    t.score_only = true;
    run_turn(e, &t, &two[0]);
    copying.waited_for = true;
    engine_sequence_park(e, 3); // under way
    for (int i = 0; i < 2; i++) assert_true(engine_round(e));
    assert_true(copying.save);
    engine_sequence_warm(e, 1); // has its blocks, and waits for that
    for (int i = 0; i < 2; i++) assert_true(engine_round(e));
    assert_int_equal(e->core.caches.pool.n_free, 40 - 8 - 13);
    memset(two, 0, sizeof two);
    t = turn_for(e, 2, other, 100, 0, 4);
    t.sampling.max_tokens = 120;
    submit(e, &t);
    assert_true(engine_round(e));
    t = turn_for(e, 1, log, 130, 0, 4);
    t.n_input = 30;
    t.sampling.max_tokens = 5;
    submit(e, &t);
    for (int i = 0; i < 2000 && !(two[0].done && two[1].done); i++) {
        if (i == 200) copying.waited_for = false;
        assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1) {
            if (ev.sequence <= 2 && ev.kind != ENGINE_PARKED && ev.kind != ENGINE_RELEASED)
                outcome_take(&two[ev.sequence - 1], &ev);
        }
    }
    assert_int_equal(two[0].finish, FINISH_LENGTH);
    assert_int_equal(two[1].finish, FINISH_LENGTH);
    for (uint64_t s = 1; s <= 2; s++) {
        t = turn_for(calm, s, s == 1 ? log : other, s == 1 ? 130 : 100, 0, 4);
        t.sampling.max_tokens = s == 1 ? 5 : 120;
        run_turn(calm, &t, &alone);
        assert_memory_equal(two[s - 1].ids, alone.ids, (size_t)alone.n * sizeof *alone.ids);
    }
    for (uint64_t s = 1; s <= 3; s++) engine_sequence_release(e, s);
    for (int i = 0; i < 5; i++) assert_true(engine_round(e));
    assert_int_equal(e->core.caches.tiers.n_parked, 0);
    assert_int_equal(e->core.caches.pool.n_free, 40);
    engine_close(calm);
    engine_close(e);
}

// --- a turn comes while its cache is copied ------------------------------------------------------

// The copies under way are of the log as it was; the turn moves the window on, and others take the
// blocks that it gives back. Coming back to the log as it was must not bring those back.
static void test_copied_while_it_goes_on(void **state) {
    enum { MEMORY_LEN = 48, BEFORE = 100, BEHIND = 190 };
    static struct outcome o, calm;
    int32_t log[BEHIND], other[BEHIND];
    struct engine *e = tiered(*state, 16, 60, 200);
    slow_down(e);
    seed = 12;
    random_log(e, log, BEHIND);
    struct engine_turn t = turn_for(e, 1, log, BEFORE, MEMORY_LEN, 4);
    t.score_only = true;
    run_turn(e, &t, &o);
    copying.waited_for = true;
    engine_sequence_park(e, 1);
    assert_true(engine_round(e));
    assert_true(copying.save);
    t = turn_for(e, 1, log, BEHIND, MEMORY_LEN, 4);
    t.n_input = BEHIND - BEFORE;
    t.score_only = true;
    run_turn(e, &t, &o);
    assert_int_equal(o.source, CACHE_KEPT);
    for (uint64_t id = 2; id <= 5; id++) { // every block has an owner
        random_log(e, other, BEHIND);
        t = turn_for(e, id, other, BEHIND, MEMORY_LEN, 4);
        t.score_only = true;
        run_turn(e, &t, &o);
    }
    copying.waited_for = false;
    t = turn_for(e, 1, log, BEFORE + 20, MEMORY_LEN, 4);
    t.n_input = 20;
    t.sampling.max_tokens = 10;
    run_turn(e, &t, &o);
    assert_int_equal(o.source, CACHE_HOST);
    t = turn_for(e, 9, log, BEFORE + 20, MEMORY_LEN, 4);
    t.sampling.max_tokens = 10;
    run_turn(e, &t, &calm);
    assert_memory_equal(o.ids, calm.ids, 10 * sizeof *o.ids);
    assert_memory_equal(o.logprobs, calm.logprobs, 10 * sizeof *o.logprobs);
    engine_close(e);
}

// --- the bound -----------------------------------------------------------------------------------

// Host memory for two of three: the least recently used one goes cold, with an event.
static void test_the_oldest_goes_first(void **state) {
    static struct outcome o;
    struct engine_event ev;
    int32_t log[80];
    struct engine *e = tiered(*state, 16, 200, 22);
    seed = 6;
    for (uint64_t id = 1; id <= 3; id++) {
        random_log(e, log, 80);
        struct engine_turn t = turn_for(e, id, log, 80, 0, 0);
        t.score_only = true;
        run_turn(e, &t, &o);
    }
    for (uint64_t id = 1; id <= 2; id++) {
        engine_sequence_park(e, id);
        assert_int_equal(wait_for(e, id), ENGINE_PARKED);
    }
    engine_sequence_park(e, 3);
    int released = 0, parked = 0;
    for (int i = 0; i < 50; i++) {
        assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1) {
            released += ev.kind == ENGINE_RELEASED && ev.sequence == 1;
            parked += ev.kind == ENGINE_PARKED && ev.sequence == 3;
        }
    }
    assert_int_equal(released, 1);
    assert_int_equal(parked, 1);
    // Larger than all of host memory: not parked, and reported at once.
    int32_t large[300];
    random_log(e, large, 300);
    struct engine_turn t = turn_for(e, 4, large, 300, 0, 0);
    t.score_only = true;
    run_turn(e, &t, &o);
    engine_sequence_park(e, 4);
    enum engine_event_kind kind = wait_for(e, 4);
    assert_int_equal(kind, ENGINE_RELEASED);
    engine_close(e);
}

int main(void) {
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        {"fixture: parked after every turn", test_parked_after_every_turn, NULL, NULL,
         (void *)models[0]},
        {"latents: parked after every turn", test_parked_after_every_turn, NULL, NULL,
         (void *)latents},
        {"fixture: another end", test_another_end, NULL, NULL, (void *)models[0]},
        {"fixture: the cheapest way", test_the_cheapest_way, NULL, NULL, (void *)models[0]},
        {"fixture: a hint brings it back", test_a_hint_brings_it_back, NULL, NULL,
         (void *)models[0]},
        {"fixture: a hint is preempted", test_a_hint_is_preempted, NULL, NULL, (void *)models[0]},
        {"fixture: a queued turn on its way", test_a_queued_turn_on_its_way, NULL, NULL,
         (void *)models[0]},
        {"fixture: copied while it goes on", test_copied_while_it_goes_on, NULL, NULL,
         (void *)models[0]},
        {"fixture: the oldest goes first", test_the_oldest_goes_first, NULL, NULL,
         (void *)models[0]},
        {"windows: parked after every turn", test_parked_after_every_turn, NULL, NULL,
         (void *)windows_model},
        {"demo: parked after every turn", test_parked_after_every_turn, NULL, NULL,
         (void *)models[1]},
        {"int8 cache: parked after every turn", test_parked_after_every_turn, runner_with_int8,
         runner_with_auto, (void *)models[0]},
        {"fp8 cache: parked after every turn", test_parked_after_every_turn, runner_with_fp8,
         runner_with_auto, (void *)models[0]},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
