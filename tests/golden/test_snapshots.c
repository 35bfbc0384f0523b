// Caches restored from files, by this process or the next one: every turn gives the tokens and the
// bits of an undisturbed one. (Damaged files: test_snapshots_damage.c.)
#include "tests/golden/snapshots_world.h"

// --- through a file after every turn, on rings that wrap many times ------------------------------

enum { TURNS = 10, MOST = 480 };
enum way { CALM, FILES, RESTARTS };

static void play(const char *dir, enum way way, int32_t memory_len, int32_t sink_len,
                 struct rows *rows, int32_t *log, int64_t *n_log) {
    static struct outcome o;
    struct engine *e = open_one(dir, way != CALM);
    int64_t n = 0;
    seed = 21;
    *rows = rows_new(e->info.n_vocab);
    for (int i = 0; i < TURNS; i++) {
        int64_t n_input = 1 + below(30);
        random_log(e, log + n, n_input);
        n += n_input;
        struct engine_turn t = turn_for(e, 1, log, n, memory_len, sink_len);
        t.n_input = n_input;
        t.sampling.max_tokens = 1 + (int32_t)below(18);
        t.on_logits = rows_keep;
        t.on_logits_ctx = rows;
        t.lasting_id = "one";
        run_slowly(e, &t, &o);
        assert_int_equal(o.finish, FINISH_LENGTH);
        enum engine_cache_source want = i == 0        ? CACHE_NONE
                                        : way == CALM ? CACHE_KEPT
                                                      : CACHE_SNAPSHOT;
        assert_int_equal(o.source, want);
        if (i > 0) assert_int_equal(o.n_prefilled, n_input + 1); // as if it had never left
        memcpy(log + n, o.ids, (size_t)o.n * sizeof *log);
        n += o.n;
        if (way == FILES) {
            assert_true(leave(e, 1, "one"));
            assert_int_equal(e->core.caches.pool.n_free, e->core.caches.pool.n_blocks);
            assert_int_equal(e->core.caches.tiers.host.n_free, e->core.caches.tiers.host.n_blocks);
            assert_null(e->core.caches.sequences);
            assert_null(e->owned);
        } else if (way == RESTARTS) {
            finish_keeping(e);
            e = open_one(dir, true);
            assert_true(engine_has_snapshot(e, "one"));
        }
    }
    engine_close(e);
    *n_log = n;
}

static void compare_ways(const char *dir, enum way way) {
    static const int32_t windows[][2] = {{0, 0}, {48, 4}, {24, 9}};
    static int32_t calm_log[MOST + 64], log[MOST + 64];
    for (size_t w = 0; w < sizeof windows / sizeof *windows; w++) {
        int64_t n_calm, n;
        struct rows want, got;
        play(dir, CALM, windows[w][0], windows[w][1], &want, calm_log, &n_calm);
        play(dir, way, windows[w][0], windows[w][1], &got, log, &n);
        assert_int_equal(n, n_calm);
        assert_memory_equal(log, calm_log, (size_t)n * sizeof *log);
        same_bits(dir, &want, &got, 0, n - 1);
        free(want.data);
        free(got.data);
        empty_folder();
    }
}

static void test_through_files(void **state) {
    compare_ways(*state, FILES);
}

static void test_through_restarts(void **state) {
    compare_ways(*state, RESTARTS);
}

static void test_weights_of_8_bits(void **state) {
    int8 = true;
    compare_ways(*state, FILES);
    int8 = false;
}

static void test_narrow_caches(void **state) {
    for (int kv = 2; kv <= RUNNER_KV_INT8; kv++) { // f16, bf16, fp8, int8
        runner_kv = kv;
        compare_ways(*state, FILES);
    }
    runner_kv = RUNNER_KV_AUTO;
}

// --- the log went another way meanwhile ----------------------------------------------------------

static void test_another_end(void **state) {
    static struct outcome o;
    int32_t log[300];
    struct engine *e = open_one(*state, true), *calm = open_one(*state, false);
    struct rows want = rows_new(e->info.n_vocab), got = rows_new(e->info.n_vocab);
    seed = 5;
    random_log(e, log, 300);
    static const struct {
        int32_t memory_len;
        int64_t cut;
        bool file;
    } cases[] = {
        {0, 100, true},   // cut: the part that is equal comes back
        {40, 195, true},  // still in the window
        {40, 100, false}, // the window has moved on: computed, and said
        {0, 200, true},   // all of it, and a longer log
        {0, 0, false},    // nothing is equal
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct engine_turn t = turn_for(e, 9, log, 200, cases[i].memory_len, 4);
        t.score_only = true;
        t.lasting_id = "nine";
        run_slowly(e, &t, &o);
        assert_true(leave(e, 9, "nine"));
        log[cases[i].cut] = (log[cases[i].cut] + 1) % e->info.n_vocab;
        random_log(e, log + cases[i].cut + 1, 299 - cases[i].cut);
        t = turn_for(e, 9, log, 260, cases[i].memory_len, 4);
        t.n_input = 60;
        t.sampling.max_tokens = 5;
        t.lasting_id = "nine";
        struct engine_turn c = turn_for(calm, 9, log, 260, cases[i].memory_len, 4);
        t.on_logits = c.on_logits = rows_keep;
        t.on_logits_ctx = &got;
        c.on_logits_ctx = &want;
        c.sampling.max_tokens = 5;
        run_slowly(e, &t, &o);
        assert_int_equal(o.source, cases[i].file ? CACHE_SNAPSHOT : CACHE_RECOMPUTED);
        assert_int_equal(o.n_cached, cases[i].file ? cases[i].cut : 0);
        assert_int_equal(engine_has_snapshot(e, "nine"), cases[i].file);
        run_turn(calm, &c, &o);
        same_bits("another end", &want, &got, cases[i].file ? cases[i].cut : 0, 264);
        assert_true(leave(e, 9, "nine"));
        release(calm, 9);
    }
    engine_close(calm);
    engine_close(e);
    free(want.data);
    free(got.data);
    empty_folder();
}

// Forks, and beginnings that a user's sessions share: each has a file of its own, and comes back
// to the same bits.
static void test_forks_and_shared_beginnings(void **state) {
    static struct outcome o, c;
    static const char *const ids[] = {"", "first", "second", "forked"};
    int32_t log[4][200];
    struct engine *e = open_one(*state, true), *calm = open_one(*state, false);
    seed = 77;
    random_log(e, log[1], 200);
    for (int i = 2; i < 4; i++) memcpy(log[i], log[1], sizeof log[1]);
    random_log(e, log[2] + 70, 130);
    random_log(e, log[3] + 90, 110);
    for (uint64_t s = 1; s <= 2; s++) {
        struct engine_turn t = turn_for(e, s, log[s], 120, 64, 4);
        t.score_only = true;
        t.share_group = 5;
        t.lasting_id = ids[s];
        run_slowly(e, &t, &o);
        if (s == 2) assert_true(o.n_shared > 0);
    }
    assert_int_equal(engine_sequence_fork(e, 1, 3, 90), 0);
    for (int round = 0; round < 3; round++) {
        for (uint64_t s = 1; s <= 3; s++) {
            int64_t n = 130 + 20 * round;
            struct engine_turn t = turn_for(e, s, log[s], n, 64, 4);
            struct engine_turn same = turn_for(calm, s, log[s], n, 64, 4);
            t.n_input = 10;
            t.share_group = 5;
            t.lasting_id = ids[s];
            t.sampling.max_tokens = same.sampling.max_tokens = 6;
            run_slowly(e, &t, &o);
            run_turn(calm, &same, &c);
            if (round > 0) assert_int_equal(o.source, CACHE_SNAPSHOT);
            assert_int_equal(o.n, c.n);
            assert_memory_equal(o.ids, c.ids, (size_t)o.n * sizeof *o.ids);
            assert_memory_equal(o.logprobs, c.logprobs, (size_t)o.n * sizeof *o.logprobs);
            memcpy(log[s] + n, o.ids, (size_t)o.n * sizeof *o.ids);
            release(calm, s);
        }
        for (uint64_t s = 1; s <= 3; s++) assert_true(leave(e, s, ids[s]));
        assert_null(e->core.caches.sequences);
    }
    engine_close(calm);
    engine_close(e);
    empty_folder();
}

// --- who goes, and when --------------------------------------------------------------------------

static void test_from_host_memory(void **state) {
    static struct outcome o;
    static const char *const ids[] = {"", "a", "b", "c", "d"};
    n_host = 22;
    struct engine *e = open_one(*state, true);
    for (uint64_t s = 1; s <= 4; s++) turn_of(e, s, ids[s], 80, &o);
    for (uint64_t s = 1; s <= 4; s++) {
        engine_sequence_park(e, s);
        (void)wait_for(e, s, ENGINE_PARKED);
    }
    assert_true(engine_has_snapshot(e, "a") && engine_has_snapshot(e, "b"));
    assert_null(e->owned ? NULL : e);
    turn_of(e, 4, "d", 90, &o);
    assert_int_equal(o.source, CACHE_HOST);
    turn_of(e, 1, "a", 90, &o);
    assert_int_equal(o.source, CACHE_SNAPSHOT);
    assert_int_equal(o.n_cached, 80);
    engine_close(e);
    n_host = 0;
    empty_folder();
}

static void test_the_folder_is_bounded(void **state) {
    static struct outcome o;
    struct engine *e = open_one(*state, true);
    turn_of(e, 1, "a", 80, &o);
    assert_true(leave(e, 1, "a"));
    int64_t one = e->core.caches.snapshots.bytes;
    assert_true(one > 10 * e->info.block_bytes);
    engine_close(e);
    runner_snapshot_bytes = 2 * one + one / 2;
    e = open_one(*state, true);
    turn_of(e, 2, "b", 80, &o);
    assert_true(leave(e, 2, "b"));
    turn_of(e, 1, "a", 90, &o); // used: b is the oldest now
    assert_int_equal(o.source, CACHE_SNAPSHOT);
    assert_true(leave(e, 1, "a"));
    usleep(20000); // by the file system's clock too
    turn_of(e, 3, "c", 80, &o);
    assert_true(leave(e, 3, "c"));
    assert_false(engine_has_snapshot(e, "b"));
    assert_true(engine_has_snapshot(e, "a"));
    assert_true(e->core.caches.snapshots.bytes <= runner_snapshot_bytes);
    turn_of(e, 4, "d", 300, &o); // larger than all of it
    assert_false(leave(e, 4, "d"));
    turn_of(e, 2, "b", 90, &o);
    assert_int_equal(o.source, CACHE_RECOMPUTED);
    engine_close(e);
    // Less room than is used, from now on: the file used last stays.
    runner_snapshot_bytes = one + one / 2;
    e = open_one(*state, true);
    assert_true(engine_has_snapshot(e, "c") && !engine_has_snapshot(e, "a"));
    engine_close(e);
    runner_snapshot_bytes = 0;
    empty_folder();
}

// The cost of reading is measured, and a disk slower than computing is not used.
static void test_the_cheapest_way(void **state) {
    static struct outcome o;
    struct engine *e = open_one(*state, true);
    turn_of(e, 1, "a", 80, &o);
    assert_true(leave(e, 1, "a"));
    turn_of(e, 1, "a", 90, &o);
    assert_int_equal(o.source, CACHE_SNAPSHOT);
    assert_true(e->core.caches.tiers.read_rate > 0 && e->core.caches.tiers.open_us > 0);
    assert_true(leave(e, 1, "a"));
    e->core.caches.tiers.read_rate = 1e-20;
    turn_of(e, 1, "a", 100, &o);
    assert_int_equal(o.source, CACHE_RECOMPUTED);
    assert_true(engine_has_snapshot(e, "a")); // nothing is wrong with it
    engine_close(e);
    empty_folder();
}

static void test_forgotten(void **state) {
    static struct outcome o;
    char name[SNAPSHOT_NAME_BYTES];
    struct engine *e = open_one(*state, true);
    turn_of(e, 1, "a", 80, &o);
    assert_true(leave(e, 1, "a"));
    snapshot_file_name(snapshot_name("a"), name);
    assert_int_equal(access(tmp_path(&folder, name), F_OK), 0);
    struct stat st;
    assert_int_equal(stat(tmp_path(&folder, name), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_null(strstr(name, "a.kv.a"));
    engine_snapshot_forget(e, 1, "a");
    assert_true(engine_round(e));
    for (int i = 0; i < 500000 && access(tmp_path(&folder, name), F_OK) == 0; i++) usleep(100);
    assert_int_not_equal(access(tmp_path(&folder, name), F_OK), 0);
    // Also a file that is being written then, or was to be written.
    turn_of(e, 2, "b", 200, &o);
    engine_sequence_park(e, 2);
    for (int i = 0; i < 3; i++) assert_true(engine_round(e));
    engine_snapshot_forget(e, 2, "b");
    (void)wait_for(e, 2, ENGINE_RELEASED);
    struct engine_event ev;
    assert_true(engine_round(e));
    while (engine_poll(e, &ev) == 1) continue;
    assert_false(engine_has_snapshot(e, "b"));
    engine_close(e);
    snapshot_file_name(snapshot_name("b"), name);
    assert_int_not_equal(access(tmp_path(&folder, name), F_OK), 0);
    empty_folder();
}

// Two processes with one folder would take each other's files away.
static void test_one_at_a_time(void **state) {
    struct engine *e = open_one(*state, true), *other;
    struct engine_options o;
    struct err err = {0};
    engine_options_init(&o);
    o.model_dir = *state;
    o.snapshot_dir = folder.path;
    o.snapshot_bytes = 1 << 20;
    assert_int_equal(engine_open_manual(&other, &o, &clock_system, &err), E_BUSY);
    assert_non_null(strstr(err.text, folder.path));
    o.snapshot_dir = "/proc/no-such-folder/snapshots";
    assert_int_equal(engine_open_manual(&other, &o, &clock_system, &err), E_NOTFOUND);
    o.snapshot_dir = "/dev/null";
    assert_true(engine_open_manual(&other, &o, &clock_system, &err) < 0);
    assert_non_null(strstr(err.text, "/dev/null"));
    engine_close(e);
    empty_folder();
}

// A snapshot serves only as many ranks as wrote it: others compute, and write their own.
static void test_another_division(void **state) {
    static struct outcome o;
    const int tp = test_ranks("PARLEY_TEST_TP"), pp = test_ranks("PARLEY_TEST_PP");
    if (tp * pp == 1) {
        print_message("one rank has no other division: not run\n");
        skip();
    }
    log_set_level(LOG_OFF);
    for (int i = 0; i < 4; i++) {
        if (i % 2 == 0)
            divide(tp, pp);
        else
            divide(tp == pp ? 1 : pp, tp == pp ? 1 : tp);
        struct engine *e = open_one(*state, true);
        assert_int_equal(engine_has_snapshot(e, "a"), i > 0);
        turn_of(e, 1, "a", 80, &o);
        assert_int_equal(o.source, CACHE_RECOMPUTED);
        assert_int_equal(o.n_cached, 0);
        assert_true(leave(e, 1, "a"));
        turn_of(e, 1, "a", 90, &o);
        assert_int_equal(o.source, CACHE_SNAPSHOT);
        assert_int_equal(o.n_cached, 80);
        assert_true(leave(e, 1, "a"));
        engine_close(e);
    }
    log_set_level(LOG_ERROR);
    divide(tp, pp);
    empty_folder();
}

// --- hints ---------------------------------------------------------------------------------------

static void prepare(struct engine *e, uint64_t sequence, const int32_t *log, int64_t n,
                    const char *id) {
    struct engine_turn t = turn_for(e, sequence, log, n, 48, 4);
    t.lasting_id = id;
    engine_sequence_prepare(e, &t);
    assert_null(t.ids);
}

static void rounds(struct engine *e, int n) {
    struct engine_event ev;
    for (int i = 0; i < n; i++) {
        computing_is_dear(e);
        assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1)
            assert_true(ev.kind == ENGINE_SNAPSHOT || ev.kind == ENGINE_RELEASED);
        usleep(50);
    }
}

static int64_t tokens_of(struct engine *e, uint64_t sequence) {
    struct sequence *s;
    HASH_FIND(hh, e->core.caches.sequences, &sequence, sizeof sequence, s);
    return s && !s->resume && !s->turn ? s->ring.n_tokens : 0;
}

// A turn after a hint, whenever it comes, has the bits of a turn without a hint.
static void then_turn(struct engine *e, struct engine *calm, const int32_t *log, int64_t n,
                      struct outcome *o) {
    static struct outcome c;
    struct engine_turn t = turn_for(e, 3, log, n, 48, 4), same = turn_for(calm, 3, log, n, 48, 4);
    t.n_input = same.n_input = 5;
    t.sampling.max_tokens = same.sampling.max_tokens = 8;
    t.lasting_id = "three";
    run_slowly(e, &t, o);
    run_turn(calm, &same, &c);
    assert_int_equal(o->finish, FINISH_LENGTH);
    assert_memory_equal(o->ids, c.ids, 8 * sizeof *c.ids);
    assert_memory_equal(o->logprobs, c.logprobs, 8 * sizeof *c.logprobs);
    release(calm, 3);
}

static void test_a_hint_reads(void **state) {
    static struct outcome o;
    int32_t log[200];
    struct engine *e = open_one(*state, true), *calm = open_one(*state, false);
    // Rounds between the hint and its turn; whether that is of the log as it was.
    static const struct {
        int n;
        int64_t length;
        bool other;
    } cases[] = {
        {2000, 125, false}, {0, 125, false},   {1, 125, false}, {2, 125, false}, {3, 125, false},
        {4, 125, false},    {6, 125, false},   {0, 60, false},  {1, 60, false},  {2, 60, false},
        {3, 60, false},     {2000, 60, false}, {1, 125, true},  {3, 125, true},  {2000, 125, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        seed = 300 + i;
        random_log(e, log, 200);
        struct engine_turn t = turn_for(e, 3, log, 120, 48, 4);
        t.score_only = true;
        t.lasting_id = "three";
        run_slowly(e, &t, &o);
        assert_true(leave(e, 3, "three"));
        prepare(e, 3, log, 120, "three");
        rounds(e, cases[i].n);
        for (int k = 0; cases[i].n == 2000 && tokens_of(e, 3) != 120 && k < 500000; k++)
            rounds(e, 1); // a busy machine gives the files' thread its turn late
        if (cases[i].n == 2000) assert_int_equal(tokens_of(e, 3), 120);
        if (cases[i].other) log[10] = (log[10] + 1) % e->info.n_vocab;
        then_turn(e, calm, log, cases[i].length, &o);
        if (cases[i].n == 2000 && cases[i].length > 120 && !cases[i].other)
            assert_int_equal(o.source, CACHE_KEPT);
        rounds(e, 200); // the load in progress is dropped
        assert_true(leave(e, 3, "three"));
        assert_int_equal(e->core.caches.n_warm, 0);
        assert_int_equal(e->core.caches.pool.n_free, e->core.caches.pool.n_blocks);
        assert_int_equal(e->core.caches.tiers.host.n_free, e->core.caches.tiers.host.n_blocks);
        assert_null(e->owned);
    }
    engine_close(calm);
    engine_close(e);
}

static int64_t n_steps(const struct engine *e) {
    return atomic_load(&e->core.load->steps);
}

// A hint for a cold session without a snapshot computes nothing, alone or beside another session.
static void test_a_hint_computes_nothing(void **state) {
    static struct outcome o;
    int32_t log[200];
    struct engine *e = open_one(*state, true), *calm = open_one(*state, false);
    seed = 9;
    random_log(e, log, 200);
    for (int after_turn = 0; after_turn < 2; after_turn++) {
        if (after_turn) {
            struct engine_turn other = turn_for(e, 5, log, 100, 48, 4);
            other.sampling.max_tokens = 1;
            run_slowly(e, &other, &o);
        }
        int64_t steps = n_steps(e);
        prepare(e, 3, log, 120, "three");
        rounds(e, 20);
        assert_int_equal(n_steps(e), steps);
        assert_int_equal(tokens_of(e, 3), 0);
        assert_int_equal(e->core.caches.n_warm, 0);
        then_turn(e, calm, log, 125, &o);
        assert_int_equal(o.n_cached, 0);
        assert_true(leave(e, 3, "three"));
        engine_snapshot_forget(e, 3, "three");
        rounds(e, 2);
    }
    engine_close(calm);
    engine_close(e);
}

// A turn that needs the blocks into which a hint reads a snapshot gets them. The hint's session is
// cold again then, and its own turn reads the snapshot.
static void test_a_hint_is_preempted(void **state) {
    static struct outcome o, c;
    int32_t log[200], other[100];
    n_blocks = 18;
    struct engine *e = open_one(*state, true), *calm;
    n_blocks = 400;
    calm = open_one(*state, false);
    seed = 10;
    random_log(e, log, 200);
    random_log(e, other, 100);
    int preempted = 0;
    for (int n = 0; n < 40; n += 1 + n / 4) {
        struct engine_turn t = turn_for(e, 3, log, 120, 48, 4);
        t.score_only = true;
        t.lasting_id = "three";
        run_slowly(e, &t, &o);
        assert_true(leave(e, 3, "three"));
        prepare(e, 3, log, 120, "three");
        rounds(e, n); // asked what is in it, its blocks are taken, they come
        struct sequence *s = e->core.caches.sequences;
        bool holds = s && s->ring.n_held > 0;
        t = turn_for(e, 4, other, 90, 100, 4);
        t.sampling.max_tokens = 30;
        struct engine_turn same = turn_for(calm, 4, other, 90, 100, 4);
        same.sampling.max_tokens = 30;
        run_slowly(e, &t, &o);
        run_turn(calm, &same, &c);
        release(calm, 4);
        assert_int_equal(o.finish, FINISH_LENGTH);
        assert_memory_equal(o.ids, c.ids, 30 * sizeof *c.ids);
        if (holds) preempted += !e->core.caches.resuming && tokens_of(e, 3) == 0;
        engine_sequence_release(e, 4);
        rounds(e, 20);
        then_turn(e, calm, log, 125, &o);
        assert_true(leave(e, 3, "three"));
        assert_int_equal(e->core.caches.n_warm, 0);
        assert_int_equal(e->core.caches.pool.n_free, e->core.caches.pool.n_blocks);
        assert_null(e->owned);
    }
    assert_true(preempted > 0);
    engine_close(calm);
    engine_close(e);
}

int main(void) {
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        OF("gpt2", test_through_files),
        OF("opt", test_through_files),
        OF("gptj", test_through_files),
        OF("gpt_neox", test_through_files),
        OF("bloom", test_through_files),
        OF("xglm", test_through_files),
        OF("llama", test_through_files),
        OF("mistral", test_through_files),
        OF("qwen3", test_through_files),
        OF("qwen3_windows", test_through_files),
        OF("qwen3", test_through_restarts),
        OF("qwen3_windows", test_through_restarts),
        OF("bloom", test_through_restarts),
        OF("llama", test_weights_of_8_bits),
        OF("llama", test_narrow_caches),
        OF("qwen3", test_another_end),
        OF("qwen3", test_forks_and_shared_beginnings),
        OF("qwen3", test_from_host_memory),
        OF("qwen3", test_the_folder_is_bounded),
        OF("qwen3", test_the_cheapest_way),
        OF("qwen3", test_forgotten),
        OF("qwen3", test_one_at_a_time),
        OF("qwen3", test_another_division),
        OF("qwen3", test_a_hint_reads),
        OF("qwen3", test_a_hint_computes_nothing),
        OF("qwen3", test_a_hint_is_preempted),
    };
    // Four ranks on few cores take a minute for all of it.
    const struct CMUnitTest of_many_ranks[] = {
        OF("llama", test_through_files),
        OF("qwen3", test_through_restarts),
        OF("qwen3_windows", test_through_restarts),
        OF("qwen3", test_forks_and_shared_beginnings),
        OF("qwen3", test_another_division),
    };
    if (test_ranks("PARLEY_TEST_TP") * test_ranks("PARLEY_TEST_PP") > 2)
        return cmocka_run_group_tests(of_many_ranks, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
