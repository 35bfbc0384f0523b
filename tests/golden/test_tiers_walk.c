// Random turns, parking, forks, cancels and releases over caches on the device, in host memory, in
// files, or in transit. Every turn gives the tokens and the bits of the same turn alone, and
// nothing is lost or leaked.
#include "tests/golden/beside_world.h"

#include "base/log.h"
#include "tests/unit/tmp_dir.h"

static const char *const model = "tests/fixtures/models/qwen3",
                         *const windows_model = "tests/fixtures/models/qwen3_windows";

enum { SEQUENCES = 16, OPERATIONS = 6000, LOG = 256 };

struct player {
    uint64_t turn; // under way, or 0
    int32_t log[LOG], drawn[64];
    float logprobs[64];
    int64_t n_log, n_drawn;
    int32_t max_tokens, memory_len;
    uint64_t origin; // the player that it was forked from, or 0
    bool forked;     // and no turn since
    uint64_t group;
};
static struct player players[SEQUENCES];
static struct {
    int64_t done, by_source[CACHE_SNAPSHOT + 1], parked, released, compared;
    int64_t forked_parked, forks_by_source[CACHE_SNAPSHOT + 1];
} books;

// The same turn alone, from nothing.
static void compare(struct engine *calm, const struct player *p) {
    struct engine_turn t = turn_for(calm, 1, p->log, p->n_log, p->memory_len, 4);
    t.sampling.max_tokens = p->max_tokens;
    assert_same_alone(calm, &t, p->drawn, p->logprobs, p->n_drawn);
    books.compared++;
}

static void note(struct engine *calm, const struct engine_event *ev) {
    if (ev->kind == ENGINE_SNAPSHOT) return;
    struct player *p = &players[ev->sequence - 1];
    books.parked += ev->kind == ENGINE_PARKED;
    books.released += ev->kind == ENGINE_RELEASED;
    books.forked_parked += ev->kind == ENGINE_FORKED && ev->parked;
    if (ev->kind == ENGINE_STARTED) {
        books.by_source[ev->source]++;
        books.forks_by_source[ev->source] += p->forked;
        p->forked = false;
    }
    if (ev->kind == ENGINE_TOKEN && ev->id >= 0) {
        p->logprobs[p->n_drawn] = ev->logprob;
        p->drawn[p->n_drawn++] = ev->id;
    }
    if (ev->kind != ENGINE_DONE) return;
    if (ev->finish == FINISH_ERROR) assert_true(beside.n_failed > 0);
    if (ev->finish == FINISH_LENGTH && below(3) == 0) compare(calm, p);
    memcpy(p->log + p->n_log, p->drawn, (size_t)p->n_drawn * sizeof *p->drawn);
    p->n_log += p->n_drawn;
    p->turn = 0;
    books.done++;
}

static const char *name_of(uint64_t id, char name[16]) {
    snprintf(name, 16, "player-%d", (int)id);
    return name;
}

// A player without a cache begins as another did, wherever that one's cache is.
static void fork_one(struct engine *e, uint64_t id) {
    struct player *p = &players[id - 1];
    uint64_t from = 1 + below(SEQUENCES);
    const struct player *o = &players[from - 1];
    char name[16];
    if (p->turn || from == id || o->n_log < 2) return;
    int64_t n = below(3) == 0 ? 1 + below((uint32_t)o->n_log) : o->n_log - below(2);
    if (engine_sequence_fork(e, from, id, n) < 0) return; // it has a cache, or had one just now
    engine_snapshot_forget(e, id, name_of(id, name));
    memcpy(p->log, o->log, (size_t)n * sizeof *p->log);
    p->n_log = n;
    p->origin = from;
    p->forked = true;
    p->group = o->group;
}

static void start(struct engine *e, uint64_t id) {
    static uint64_t next_turn = 1;
    struct player *p = &players[id - 1];
    struct err err = {0};
    if (p->turn) return;
    if (p->n_log > LOG - 60 || below(6) == 0) // rewind
        p->n_log = below((uint32_t)(p->n_log < LOG - 60 ? p->n_log : LOG - 60) + 1);
    int64_t n_input = 1 + below(24);
    random_log(e, p->log + p->n_log, n_input);
    p->memory_len = below(20) == 0 ? 24 : 56; // now and then the window changes
    struct engine_turn t = turn_for(e, id, p->log, p->n_log + n_input, p->memory_len, 4);
    t.turn = next_turn++;
    t.n_input = n_input;
    t.sampling.max_tokens = p->max_tokens = 1 + (int32_t)below(16);
    char name[16], origin[16];
    t.lasting_id = name_of(id, name);
    if (p->origin) t.origin_id = name_of(p->origin, origin);
    t.share_group = p->group;
    t.owner = id % 4; // so that turns are paused, too
    t.priority = id % 5 ? ENGINE_INTERACTIVE : ENGINE_IDLE;
    if (engine_turn_submit(e, &t, &err) < 0) { // full
        free(t.ids);
        return;
    }
    p->n_log += n_input;
    p->n_drawn = 0;
    p->turn = t.turn;
}

// Host blocks have as many holders as images and files that are being moved have them.
static void check_holders(const struct engine *e) {
    const struct engine_core *in = &e->core;
    const struct kv_pool *host = &in->caches.tiers.host;
    int32_t *holders = calloc((size_t)host->n_blocks + 1, sizeof *holders);
    assert_non_null(holders);
    for (const struct sequence *s = in->caches.tiers.images; s; s = s->image_next) {
        int32_t held = 0;
        for (int32_t i = 0; i < s->image.n_slots; i++) {
            if (s->image.copies[i].host < 0) continue;
            holders[s->image.copies[i].host]++;
            held++;
        }
        assert_int_equal(held, s->image.n_held);
    }
    bool moved = in->caches.snapshots.n_writing + in->caches.snapshots.n_reading > 0;
    int32_t n_free = 0;
    for (int32_t i = 0; i < host->n_blocks; i++) {
        assert_true(moved ? host->refs[i] >= holders[i] : host->refs[i] == holders[i]);
        assert_true(host->refs[i] > 0 || !kv_names_has(&host->names, i));
        n_free += host->refs[i] == 0;
    }
    assert_int_equal(n_free, host->n_free);
    free(holders);
}

// The leading rank's device failed alone, in a step of all ranks: every turn has ended, and no other starts.
static void expect_lost(struct engine *e, struct engine *calm) {
    const int32_t id = 5;
    struct err err = {0};
    struct engine_event ev;
    assert_int_equal(beside.n_failed, 1);
    while (engine_poll(e, &ev) == 1) {
        if (ev.kind == ENGINE_DONE && ev.finish == FINISH_ERROR)
            assert_int_equal(ev.error_code, E_DEVICE);
        note(calm, &ev);
    }
    for (int i = 0; i < SEQUENCES; i++) assert_int_equal(players[i].turn, 0);
    struct engine_turn t = turn_for(e, 1, &id, 1, 56, 4);
    assert_int_equal(engine_turn_submit(e, &t, &err), E_DEVICE);
    free(t.ids);
    engine_close(calm);
    engine_close(e);
}

// Done at once; taking their time; that, and beside steps too; and steps that fail, with such
// copies and without.
enum copies { PROMPT, SLOW, BESIDE, FAILING };
static void walk(const char *dir, int64_t blocks, int64_t host_blocks, enum copies copies) {
    struct engine *e = tiered(dir, 16, blocks, host_blocks);
    const char *folder = snapshots;
    snapshots = NULL;
    struct engine *calm = tiered(dir, 16, 100, 0);
    if (copies == SLOW) slow_down(e);
    if (copies >= BESIDE) beside_down(e);
    beside.took_us = 1; // little of a step
    beside.one_in = copies == FAILING ? 60 : 0;
    struct engine_event ev;
    memset(players, 0, sizeof players);
    memset(&books, 0, sizeof books);
    for (uint64_t id = 1; id <= SEQUENCES; id++) players[id - 1].group = id % 3; // 0: of its own
    for (int op = 0; op < OPERATIONS; op++) {
        uint64_t id = 1 + below(SEQUENCES);
        // Computing counts as slower than any disk, and than a copy that was slow because the
        // machine was busy.
        if (folder || op % 4) e->core.caches.tiers.prefill_rate = 1e-12;
        if (folder && op % 16 == 0) usleep(100); // it gets a core now and then
        switch (below(8)) {
        case 0:
        case 1:
            start(e, id);
            break;
        case 2:
            if (below(4) == 0) engine_turn_cancel(e, id, players[id - 1].turn);
            break;
        case 3:
            if (below(8) == 0)
                engine_sequence_release(e, id);
            else
                fork_one(e, id);
            break;
        case 4:
            if (below(3) == 0)
                engine_sequence_warm(e, id);
            else
                engine_sequence_park(e, id);
            break;
        default:
            if (engine_round(e)) break;
            assert_true(copies == FAILING && several_ranks());
            expect_lost(e, calm);
            return;
        }
        while (below(4) > 0 && engine_poll(e, &ev) == 1) note(calm, &ev);
        if (op % 8 == 0) check_holders(e);
        if (copies >= BESIDE && op % 8 == 0) beside.looks = (int)below(16);
    }
    assert_false(copies == FAILING && several_ranks());
    for (int quiet = 0; quiet < 4;) {
        for (uint64_t i = 1; i <= SEQUENCES; i++) engine_sequence_release(e, i);
        assert_true(engine_round(e));
        const struct snapshots *files = &e->core.caches.snapshots;
        quiet = e->n_active[ENGINE_INTERACTIVE] + e->n_active[ENGINE_IDLE] + files->n_writing +
                            files->n_reading ==
                        0
                    ? quiet + 1
                    : 0;
        while (engine_poll(e, &ev) == 1) note(calm, &ev);
    }
    print_message(
        "%lld turns: %lld kept, %lld from host memory, %lld from files, %lld recomputed; "
        "%lld parked, %lld released, %lld compared; %lld forks parked, first turns of "
        "forks: %lld kept, %lld from host memory, %lld from files\n",
        (long long)books.done, (long long)books.by_source[CACHE_KEPT],
        (long long)books.by_source[CACHE_HOST], (long long)books.by_source[CACHE_SNAPSHOT],
        (long long)books.by_source[CACHE_RECOMPUTED], (long long)books.parked,
        (long long)books.released, (long long)books.compared, (long long)books.forked_parked,
        (long long)books.forks_by_source[CACHE_KEPT], (long long)books.forks_by_source[CACHE_HOST],
        (long long)books.forks_by_source[CACHE_SNAPSHOT]);
    assert_true(books.compared > 5 && (books.parked > 10 || folder));
    assert_int_equal(e->core.caches.pool.n_free, e->core.caches.pool.n_blocks);
    assert_int_equal(e->core.caches.tiers.host.n_free, e->core.caches.tiers.host.n_blocks);
    assert_int_equal(e->core.caches.tiers.n_images + e->core.caches.tiers.n_parked, 0);
    assert_int_equal(e->core.caches.n_in[CACHE_PARKING], 0);
    assert_int_equal(e->core.sched.n_reserved, 0);
    assert_null(e->core.caches.sequences);
    assert_null(e->core.caches.resuming);
    assert_null(e->owned);
    engine_close(calm);
    engine_close(e);
}

// Whether a cache is copied back is decided by what copies and prompts have cost so far. On a GPU
// a copy is seen to be done a round later at the earliest, and logs as short as these are mostly
// computed again.
static void test_anything_in_any_order(void **state) {
    int64_t some = strcmp(test_device(), "cpu") ? 0 : 20;
    seed = 7;
    walk(*state, 200, 300, PROMPT); // room for all
    assert_true(books.by_source[CACHE_HOST] > some);
    walk(*state, 40, 300, PROMPT); // a pool for four of sixteen
    assert_true(books.by_source[CACHE_HOST] >= some);
    assert_true(books.forked_parked >= some / 5 && books.forks_by_source[CACHE_HOST] >= some / 5);
    walk(*state, 40, 30, PROMPT); // and host memory for four
    assert_true(books.by_source[CACHE_HOST] >= some / 4 && books.by_source[CACHE_RECOMPUTED] > 5);
    walk(*state, 14, 300, PROMPT); // a pool for one at a time
}

// Turns arrive while caches are on their way to a place where they no longer belong.
static void test_copies_that_take_their_time(void **state) {
    if (strcmp(test_device(), "cpu")) skip(); // a device takes its time by itself
    seed = 11;
    walk(*state, 200, 300, SLOW);
    walk(*state, 40, 300, SLOW);
    walk(*state, 40, 30, SLOW);
    walk(*state, 14, 300, SLOW);
}

// Turns go on while the rest of their cache is copied beside their first step; with several ranks all of it is
// copied before.
static void test_copies_beside_steps(void **state) {
    int64_t n = 0;
    seed = 13;
    walk(*state, 200, 300, BESIDE);
    n += beside.n_loads;
    walk(*state, 40, 300, BESIDE);
    n += beside.n_loads;
    walk(*state, 40, 30, BESIDE);
    walk(*state, 14, 300, BESIDE);
    n += beside.n_loads;
    print_message("%lld loads with steps\n", (long long)n);
    assert_true(several_ranks() ? n == 0 : on_gpu() || n > 100);
}

// Steps fail before, during and after their copies: nothing is left of such a step, and later
// tokens are right. With several ranks the first one loses the device.
static void test_steps_that_fail(void **state) {
    if (strcmp(test_device(), "cpu")) skip();
    int64_t n = 0, failed = 0;
    seed = 17;
    log_set_level(LOG_OFF);
    walk(*state, 200, 300, FAILING);
    n += beside.n_loads, failed += beside.n_failed;
    walk(*state, 40, 300, FAILING);
    n += beside.n_loads, failed += beside.n_failed;
    walk(*state, 40, 30, FAILING);
    log_set_level(LOG_ERROR);
    beside.n_failed = 0;
    print_message("%lld loads with steps, %lld failures\n", (long long)n, (long long)failed);
    assert_true(several_ranks() ? n == 0 && failed == 2 : n > 100 && failed > 50);
}

// The same with files behind host memory, and with files alone.
static void with_files(void **state, enum copies copies) {
    struct tmp_dir folder;
    int64_t forks = 0, turns = 0; // from files; how many in one walk depends on the disk's thread
    for (int i = 0; i < 3; i++) {
        // In memory where there is such a folder: how long a sync takes is looked at elsewhere.
        strcpy(folder.path, "/dev/shm/parley-test-XXXXXX");
        if (!mkdtemp(folder.path)) tmp_dir_open(&folder);
        snapshots = folder.path;
        seed = 11 + (uint64_t)i;
        walk(*state, i == 2 ? 60 : 200, i == 0 ? 30 : i == 1 ? 0 : 40, copies);
        turns += books.by_source[CACHE_SNAPSHOT];
        forks += books.forks_by_source[CACHE_SNAPSHOT];
        tmp_dir_close(&folder);
    }
    if (copies == FAILING && several_ranks()) return; // the walks end early
    assert_true(turns > 15 && forks > 0);
}
static void test_anything_with_files(void **state) {
    with_files(state, PROMPT);
}
static void test_files_beside_steps(void **state) {
    with_files(state, BESIDE);
}
static void test_files_and_steps_that_fail(void **state) {
    if (strcmp(test_device(), "cpu")) skip();
    log_set_level(LOG_OFF);
    with_files(state, FAILING);
    log_set_level(LOG_ERROR);
    assert_true(several_ranks() ? beside.n_failed == 1 : beside.n_failed > 10);
    beside.n_failed = 0;
}

int main(void) {
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        {"fixture: anything in any order", test_anything_in_any_order, NULL, NULL, (void *)model},
        {"fixture: copies that take their time", test_copies_that_take_their_time, NULL, NULL,
         (void *)model},
        {"fixture: copies beside steps", test_copies_beside_steps, NULL, NULL, (void *)model},
        {"fixture: steps that fail", test_steps_that_fail, NULL, NULL, (void *)model},
        {"fixture: files beside steps", test_files_beside_steps, NULL, NULL, (void *)model},
        {"fixture: files and steps that fail", test_files_and_steps_that_fail, NULL, NULL,
         (void *)model},
        {"fixture: anything with files", test_anything_with_files, NULL, NULL, (void *)model},
        {"windows: anything with files", test_anything_with_files, NULL, NULL,
         (void *)windows_model},
        {"int8 cache: anything in any order", test_anything_in_any_order, runner_with_int8,
         runner_with_auto, (void *)model},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
