// Forks of sessions whose cache has left the device: copies in host memory are shared, and a fork
// reads its parent's file up to the fork. Either side continues like a fresh session of the same log,
// also where the window has moved on; shared parts take host memory once; and no owner reads another
// owner's file.
#include "tests/golden/snapshots_world.h"

#include <fcntl.h>

enum { SINKS = 4, DRAW = 8 };

struct who {
    uint64_t sequence, group;
    const char *id, *origin, *owner;
    int32_t memory_len;
};

static struct outcome out; // of the last turn

// A turn over the log gives the tokens and bits that it gives alone; its cache came from there.
static void turn_is_right(struct engine *e, struct engine *calm, const struct who *w, int32_t *log,
                          int64_t n, enum engine_cache_source source, int64_t n_cached) {
    struct engine_turn t = turn_for(e, w->sequence, log, n, w->memory_len, SINKS);
    struct engine_turn same = turn_for(calm, 1, log, n, w->memory_len, SINKS);
    t.n_input = 5;
    t.sampling.max_tokens = same.sampling.max_tokens = DRAW;
    t.share_group = w->group;
    t.lasting_id = w->id;
    t.origin_id = w->origin;
    t.lasting_owner = w->owner;
    run_slowly(e, &t, &out);
    same_as_alone(&out, calm, &same, source, n_cached);
    memcpy(log + n, out.ids, DRAW * sizeof *out.ids);
}

static void first_turn(struct engine *e, const struct who *w, int32_t *log, int64_t n) {
    struct engine_turn t = turn_for(e, w->sequence, log, n, w->memory_len, SINKS);
    t.score_only = true;
    t.share_group = w->group;
    t.lasting_id = w->id;
    t.lasting_owner = w->owner;
    run_slowly(e, &t, &out);
}

static struct engine_event fork_at(struct engine *e, uint64_t from, uint64_t to, int64_t n) {
    assert_int_equal(engine_sequence_fork(e, from, to, n), 0);
    return wait_for(e, to, ENGINE_FORKED);
}

static void park(struct engine *e, uint64_t sequence) {
    engine_sequence_park(e, sequence);
    (void)wait_for(e, sequence, ENGINE_PARKED);
}

static void nothing_is_left(struct engine *e, uint64_t last) {
    struct engine_event ev;
    for (uint64_t s = 1; s <= last; s++) engine_sequence_release(e, s);
    for (int i = 0; i < 4; i++) assert_true(engine_round(e));
    while (engine_poll(e, &ev) == 1) continue;
    is_empty(e);
}

// --- host memory

// Parked at 150 tokens, forked, both go on in either order, park again, go on again.
static void fork_parked(struct engine *e, struct engine *calm, uint64_t group, int32_t memory_len,
                        int64_t n, bool shared, bool fork_first) {
    static int32_t a[400], b[400];
    struct who from = {.sequence = 1, .group = group, .memory_len = memory_len};
    struct who to = {.sequence = 2, .group = group, .memory_len = memory_len};
    random_log(e, a, 200);
    first_turn(e, &from, a, 150);
    park(e, 1);
    int32_t used = host_used(e);
    struct engine_event ev = fork_at(e, 1, 2, n);
    assert_int_equal(ev.parked, shared);
    assert_int_equal(ev.n_cached, shared ? n : 0);
    assert_int_equal(ev.blocks > 0, shared);
    assert_int_equal(host_used(e), used); // shared bytes are there once
    assert_int_equal(e->core.caches.tiers.n_parked, 1 + shared);
    memcpy(b, a, (size_t)n * sizeof *b);
    random_log(e, b + n, 20);
    int64_t n_a = 155, n_b = n + 5;
    enum engine_cache_source source = shared ? CACHE_HOST : CACHE_RECOMPUTED;
    for (int turn = 0; turn < 2; turn++) {
        if (fork_first) turn_is_right(e, calm, &to, b, n_b, source, shared ? n : 0);
        turn_is_right(e, calm, &from, a, n_a, CACHE_HOST, turn ? n_a - 6 : 150);
        if (!fork_first) turn_is_right(e, calm, &to, b, n_b, source, shared ? n : 0);
        park(e, 2);
        park(e, 1);
        n = n_b + DRAW - 1, n_a += DRAW + 5, n_b += DRAW + 5;
        random_log(e, a + n_a - 5, 5);
        random_log(e, b + n_b - 5, 5);
        source = CACHE_HOST, shared = true;
    }
    nothing_is_left(e, 2);
}

static void test_forks_of_parked(void **state) {
    n_host = 200;
    struct engine *e = open_one(*state, false), *calm;
    n_host = 0;
    calm = open_one(*state, false);
    seed = 41;
    for (int order = 0; order < 2; order++) {
        fork_parked(e, calm, 0, 0, 150, true, order);
        fork_parked(e, calm, 0, 0, 144, true, order); // at a block's end
        fork_parked(e, calm, 0, 0, 13, true, order);  // far back, within a block
        fork_parked(e, calm, 0, 40, 150, true, order);
        fork_parked(e, calm, 0, 40, 147, true, order);
        fork_parked(e, calm, 0, 40, 60, false, order); // the window has moved on
        fork_parked(e, calm, 7, 40, 150, true, 1);
    }
    engine_close(calm);
    engine_close(e);
}

// A source on the device that has copies in host memory: when both park, what they share is copied
// and held once; without copies yet too, if they are in one group.
static void test_both_park(void **state) {
    static int32_t a[400], b[400];
    for (int copies = 0; copies < 2; copies++) {
        n_host = 200;
        struct engine *e = open_one(*state, false), *calm;
        n_host = 0;
        calm = open_one(*state, false);
        struct who from = {.sequence = 1, .group = copies ? 0 : 3};
        struct who to = {.sequence = 2, .group = from.group};
        seed = 42;
        random_log(e, a, 400);
        first_turn(e, &from, a, 150);
        if (copies) { // back on the device, by a turn that changes nothing
            park(e, 1);
            first_turn(e, &from, a, 151);
            assert_int_equal(out.source, CACHE_HOST);
        }
        struct engine_event ev = fork_at(e, 1, 2, 148);
        assert_false(ev.parked);
        assert_int_equal(ev.n_cached, 148);
        memcpy(b, a, 148 * sizeof *b);
        random_log(e, b + 148, 100);
        turn_is_right(e, calm, &to, b, 180, CACHE_KEPT, 148);
        park(e, 1);
        park(e, 2);
        assert_int_equal(host_used(e), 151 / 8 + 1 + (187 / 8 + 1) - 148 / 8);
        random_log(e, a + 151, 5);
        turn_is_right(e, calm, &from, a, 156, CACHE_HOST, copies ? 151 : 150);
        random_log(e, b + 188, 5);
        turn_is_right(e, calm, &to, b, 193, CACHE_HOST, 187);
        nothing_is_left(e, 2);
        engine_close(calm);
        engine_close(e);
    }
}

// One user's sessions that begin alike: the beginning is in host memory once, and another user's
// has its own.
static void test_equal_beginnings(void **state) {
    static int32_t logs[4][300];
    n_host = 200;
    struct engine *e = open_one(*state, false), *calm;
    n_host = 0;
    calm = open_one(*state, false);
    seed = 43;
    random_log(e, logs[0], 300);
    int32_t used = 0;
    for (uint64_t s = 1; s <= 3; s++) {
        struct who w = {.sequence = s, .group = s < 3 ? 5 : 6};
        memcpy(logs[s], logs[0], 100 * sizeof *logs[s]);
        random_log(e, logs[s] + 100, 100);
        first_turn(e, &w, logs[s], 130);
        park(e, s);
        assert_int_equal(host_used(e) - used, s == 2 ? 130 / 8 + 1 - 100 / 8 : 130 / 8 + 1);
        used = host_used(e);
    }
    engine_sequence_release(e, 1); // what the second one needs of it stays
    for (int i = 0; i < 3; i++) assert_true(engine_round(e));
    assert_int_equal(used - host_used(e), 130 / 8 + 1 - 100 / 8);
    for (uint64_t s = 2; s <= 3; s++) {
        struct who w = {.sequence = s, .group = s < 3 ? 5 : 6};
        struct engine_event ev;
        while (engine_poll(e, &ev) == 1) continue;
        turn_is_right(e, calm, &w, logs[s], 135, CACHE_HOST, 130);
    }
    nothing_is_left(e, 3);
    engine_close(calm);
    engine_close(e);
}

// The parent goes, by wish or for want of room, and its forks keep what they share; a hint brings a
// fork back that has never had a turn.
static void test_the_parent_goes(void **state) {
    static int32_t a[400], b[400];
    struct who from = {.sequence = 1}, to = {.sequence = 2}, other = {.sequence = 3};
    n_host = 24;
    struct engine *e = open_one(*state, false), *calm;
    n_host = 0;
    calm = open_one(*state, false);
    seed = 44;
    random_log(e, a, 400);
    first_turn(e, &from, a, 150); // 19 blocks
    park(e, 1);
    (void)fork_at(e, 1, 2, 100); // 13 of them
    random_log(e, b, 400);
    first_turn(e, &other, b, 70); // 9: the parent has to go
    engine_sequence_park(e, 3);
    (void)wait_for(e, 1, ENGINE_RELEASED);
    struct engine_event ev = wait_for(e, 3, ENGINE_PARKED);
    assert_true(ev.parked);
    assert_int_equal(host_used(e), 13 + 9);
    engine_sequence_warm(e, 2);
    for (int i = 0; i < 20; i++) assert_true(engine_round(e));
    assert_int_equal(engine_poll(e, &ev), 0);
    assert_int_equal(e->core.caches.n_warm, 1);
    memcpy(b, a, 100 * sizeof *b);
    turn_is_right(e, calm, &to, b, 105, CACHE_KEPT, 100);
    nothing_is_left(e, 3);
    engine_close(calm);
    engine_close(e);
}

// --- files

// The parent is in its file alone; its fork reads that, the parent still does, and later each has
// its own.
static void fork_cold(const char *dir, int32_t memory_len, int64_t n, bool served, bool restart) {
    static int32_t a[400], b[400];
    struct engine *e = open_one(dir, true), *calm = open_one(dir, false);
    struct who from = {.sequence = 1, .id = "parent", .owner = "ann", .memory_len = memory_len};
    struct who to = {
        .sequence = 2, .id = "child", .origin = "parent", .owner = "ann", .memory_len = memory_len};
    seed = 45;
    random_log(e, a, 400);
    first_turn(e, &from, a, 150);
    assert_true(leave(e, 1, "parent"));
    assert_int_equal(engine_sequence_fork(e, 1, 2, n), 0); // nothing is there to share
    if (restart) {
        engine_close(e);
        e = open_one(dir, true);
    }
    memcpy(b, a, (size_t)n * sizeof *b);
    random_log(e, b + n, 100);
    turn_is_right(e, calm, &to, b, n + 5, served ? CACHE_SNAPSHOT : CACHE_RECOMPUTED,
                  served ? n : 0);
    assert_true(engine_has_snapshot(e, "parent")); // also where it was of no use here
    turn_is_right(e, calm, &from, a, 155, CACHE_SNAPSHOT, 150);
    assert_true(leave(e, 2, "child"));
    assert_true(leave(e, 1, "parent"));
    random_log(e, b + n + 5 + DRAW, 5);
    turn_is_right(e, calm, &to, b, n + 10 + DRAW, CACHE_SNAPSHOT, n + 4 + DRAW);
    engine_snapshot_forget(e, 1, "parent");
    engine_snapshot_forget(e, 2, "child");
    assert_true(engine_round(e));
    engine_close(calm);
    engine_close(e);
    empty_folder();
}

static void test_forks_of_cold(void **state) {
    for (int restart = 0; restart < 2; restart++) {
        fork_cold(*state, 0, 150, true, restart);
        fork_cold(*state, 0, 77, true, restart);
        fork_cold(*state, 40, 148, true, restart);
        fork_cold(*state, 40, 60, false, restart); // the window has moved on
    }
}

// Where a file must not or cannot be used, the fork computes. A damaged file is reported and
// removed; an intact one stays.
static void test_files_that_are_not_for_it(void **state) {
    static int32_t a[400], b[400];
    struct engine *e = open_one(*state, true), *calm = open_one(*state, false);
    struct who from = {.sequence = 1, .id = "parent", .owner = "ann"};
    seed = 46;
    random_log(e, a, 400);
    first_turn(e, &from, a, 150);
    assert_true(leave(e, 1, "parent"));
    memcpy(b, a, 100 * sizeof *b);
    struct who other = {.sequence = 2, .id = "x", .origin = "parent", .owner = "bob"};
    turn_is_right(e, calm, &other, b, 105, CACHE_RECOMPUTED, 0);
    assert_true(engine_has_snapshot(e, "parent"));
    struct who window = {
        .sequence = 3, .id = "y", .origin = "parent", .owner = "ann", .memory_len = 48};
    memcpy(b, a, 100 * sizeof *b);
    turn_is_right(e, calm, &window, b, 105, CACHE_RECOMPUTED, 0);
    random_log(e, b, 105);
    struct who log = {.sequence = 4, .id = "z", .origin = "parent", .owner = "ann"};
    turn_is_right(e, calm, &log, b, 105, CACHE_RECOMPUTED, 0);
    assert_true(engine_has_snapshot(e, "parent"));
    // Another session with the name that the parent had.
    struct who again = {.sequence = 5, .id = "parent", .owner = "bob"};
    memcpy(b, a, 100 * sizeof *b);
    turn_is_right(e, calm, &again, b, 105, CACHE_RECOMPUTED, 0);
    assert_false(engine_has_snapshot(e, "parent"));
    engine_close(e);
    empty_folder();

    e = open_one(*state, true);
    first_turn(e, &from, a, 150);
    assert_true(leave(e, 1, "parent"));
    char name[SNAPSHOT_NAME_BYTES];
    snapshot_file_name(snapshot_name("parent"), name);
    int fd = open(tmp_path(&folder, name), O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "damage", 6, 9000), 6);
    close(fd);
    struct who to = {.sequence = 2, .id = "child", .origin = "parent", .owner = "ann"};
    memcpy(b, a, 100 * sizeof *b);
    turn_is_right(e, calm, &to, b, 105, CACHE_RECOMPUTED, 0);
    assert_false(engine_has_snapshot(e, "parent"));
    engine_close(calm);
    engine_close(e);
    empty_folder();
}

static bool has_arrived(struct engine *e, uint64_t sequence) {
    struct sequence *s;
    HASH_FIND(hh, e->core.caches.sequences, &sequence, sizeof sequence, s);
    return s && !s->resume && s->ring.n_tokens > 0;
}

// A hint for a cold fork reads the parent's file.
static void test_a_hint_for_a_cold_fork(void **state) {
    static int32_t a[400];
    struct engine *e = open_one(*state, true), *calm = open_one(*state, false);
    struct who from = {.sequence = 1, .id = "parent", .owner = "ann"};
    struct who to = {.sequence = 2, .id = "child", .origin = "parent", .owner = "ann"};
    seed = 47;
    random_log(e, a, 400);
    first_turn(e, &from, a, 150);
    assert_true(leave(e, 1, "parent"));
    struct engine_turn t = turn_for(e, 2, a, 140, 0, SINKS);
    t.lasting_id = "child";
    t.origin_id = "parent";
    t.lasting_owner = "ann";
    engine_sequence_prepare(e, &t);
    // A busy machine gives the files' thread its turn late.
    for (int i = 0; i < 2000 || (i < 500000 && !has_arrived(e, 2)); i++) {
        computing_is_dear(e);
        assert_true(engine_round(e));
        usleep(20);
    }
    random_log(e, a + 140, 5);
    turn_is_right(e, calm, &to, a, 145, CACHE_KEPT, 140);
    engine_close(calm);
    engine_close(e);
    empty_folder();
}

int main(void) {
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        OF("qwen3", test_forks_of_parked),
        OF("llama", test_forks_of_parked),
        OF("qwen3", test_both_park),
        OF("qwen3", test_equal_beginnings),
        OF("qwen3", test_the_parent_goes),
        OF("qwen3", test_forks_of_cold),
        OF("bloom", test_forks_of_cold),
        OF("qwen3", test_files_that_are_not_for_it),
        OF("qwen3", test_a_hint_for_a_cold_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
