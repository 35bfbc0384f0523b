// Shared by the tests of snapshots: a folder, engines on it, and ways to make a cache leave the
// device.
#pragma once
#include "tests/golden/random_log.h"

#include "base/log.h"
#include "tests/unit/tmp_dir.h"

static struct tmp_dir folder;

static bool int8; // of the engines opened next
static int32_t n_blocks = 400, n_host;

static inline struct engine *open_one(const char *dir, bool files) {
    const int64_t bytes = block_bytes_for(dir, int8, 8);
    runner_host_bytes = n_host * bytes;
    runner_snapshots = files ? folder.path : NULL;
    struct engine *e = engine_for_weights(dir, int8, 16, 8, n_blocks * bytes);
    runner_snapshots = NULL;
    e->core.caches.piece_bytes = 3 * (size_t)bytes; // of several ranks: many pieces
    return e;
}

// Models as small as these compute faster than any disk reads: here the disk is to be cheaper. Said
// again before every round: whether a file is worth writing is asked long after the last step has
// measured.
static inline void computing_is_dear(struct engine *e) {
    e->core.caches.tiers.prefill_rate = 1e-12;
}

static inline struct engine_event wait_for(struct engine *e, uint64_t sequence,
                                           enum engine_event_kind kind) {
    struct engine_event ev;
    for (int i = 0; i < 1000000; i++) { // a busy machine gives the files' thread its turn late
        computing_is_dear(e);
        assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1) {
            if (ev.sequence == sequence && ev.kind == kind) return ev;
        }
        usleep(50);
    }
    fail_msg("sequence %d: nothing happened", (int)sequence);
    return ev;
}

static inline void run_slowly(struct engine *e, struct engine_turn *t, struct outcome *o) {
    struct engine_event ev;
    memset(o, 0, sizeof *o);
    submit(e, t);
    for (int i = 0; !o->done && i < 1000000; i++) {
        computing_is_dear(e);
        assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1) {
            if (ev.sequence == t->sequence && ev.kind != ENGINE_FORKED) outcome_take(o, &ev);
        }
        if (e->core.caches.reads) usleep(20);
    }
    assert_true(o->done);
}

// The turn with this outcome had the tokens and bits of the same turn alone on the engine `calm`, and its cache came from
// there.
static inline void same_as_alone(const struct outcome *out, struct engine *calm,
                                 struct engine_turn *same, enum engine_cache_source source,
                                 int64_t n_cached) {
    static struct outcome alone;
    run_turn(calm, same, &alone);
    release(calm, same->sequence);
    assert_int_equal(out->finish, FINISH_LENGTH);
    outcome_same_from(out, &alone, source, n_cached);
}

// Moves the cache to its file; returns whether it did.
static inline bool leave(struct engine *e, uint64_t sequence, const char *id) {
    engine_sequence_park(e, sequence);
    struct engine_event ev = wait_for(e, sequence, ENGINE_RELEASED);
    assert_int_equal(ev.snapshot, snapshots_find(&e->core.caches.snapshots, id) != NULL);
    assert_int_equal(ev.snapshot, engine_has_snapshot(e, id));
    return ev.snapshot;
}

static inline void finish_keeping(struct engine *e) {
    struct engine_event ev;
    engine_save_at_stop(e);
    engine_stop(e);
    do computing_is_dear(e);
    while (engine_round(e));
    while (engine_poll(e, &ev) == 1) continue;
    engine_close(e);
}

// In memory if there is such a folder: syncing is tested elsewhere.
static inline void open_folder(void) {
    strcpy(folder.path, "/dev/shm/parley-test-XXXXXX");
    if (!mkdtemp(folder.path)) tmp_dir_open(&folder);
}

static inline void empty_folder(void) {
    tmp_dir_close(&folder);
    open_folder();
}

static inline void turn_of(struct engine *e, uint64_t s, const char *id, int64_t n,
                           struct outcome *o) {
    int32_t log[300];
    seed = s;
    random_log(e, log, 300);
    struct engine_turn t = turn_for(e, s, log, n, 0, 4);
    t.n_input = 10;
    t.score_only = true;
    t.lasting_id = id;
    run_slowly(e, &t, o);
}

static inline int set_up(void **state) {
    n_host = 0;
    int8 = false;
    runner_snapshot_bytes = 0;
    runner_kv = RUNNER_KV_AUTO;
    open_folder();
    return 0;
}

static inline int tear_down(void **state) {
    tmp_dir_close(&folder);
    return 0;
}

#define OF(model, test)                                                                            \
    { model ": " #test, test, set_up, tear_down, (void *)("tests/fixtures/models/" model) }

static inline int32_t host_used(const struct engine *e) {
    return e->core.caches.tiers.host.n_blocks - e->core.caches.tiers.host.n_free;
}

// The engine has no sequence and holds no block.
static inline void is_empty(struct engine *e) {
    assert_int_equal(host_used(e), 0);
    assert_int_equal(e->core.caches.pool.n_free, e->core.caches.pool.n_blocks);
    assert_int_equal(e->core.caches.tiers.n_images + e->core.caches.tiers.n_parked, 0);
    assert_null(e->core.caches.sequences);
    assert_null(e->owned);
}
