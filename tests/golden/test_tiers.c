// Caches that leave the device and come back: whatever was parked, squeezed out, brought back in
// part or computed again, every turn gives the tokens and the bits of a turn that was never
// disturbed, and nothing is lost or left over.
#include "tests/golden/runner.h"

#include "base/log.h"
#include "tests/unit/tmp_dir.h"

static const char *const models[] = {"tests/fixtures/models/qwen3", "configs/demo-model"};

// splitmix64 (Steele et al., 2014): the same walk in every run.
static uint64_t seed;
static uint32_t below(uint32_t n) {
    uint64_t z = seed += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ (z >> 31)) % n);
}

static void random_log(const struct engine *e, int32_t *log, int64_t n) {
    for (int64_t i = 0; i < n; i++) log[i] = (int32_t)below((uint32_t)e->info.n_vocab);
}

// A device whose copies take their time: each is seen to be done at the fourth look, or when it is
// waited for, and until then neither side of it holds anything.
static struct backend_ops slow;
static const struct backend_ops *prompt_ops; // those underneath; NULL: copies as they are
static struct {
    bool save, load;
    bool waited_for; // done when somebody waits, and not before
    struct kv_store *kv;
    void *host[TIER_BATCH];
    int32_t blocks[TIER_BATCH], n;
} copying;

static void slow_begin(const struct kv_store *kv, void *const *host, const int32_t *blocks,
                       int32_t n) {
    assert_false(copying.save || copying.load);
    copying.kv = (struct kv_store *)kv;
    copying.n = n;
    memcpy(copying.host, host, (size_t)n * sizeof *host);
    memcpy(copying.blocks, blocks, (size_t)n * sizeof *blocks);
}
static int slow_save(struct backend *be, const struct kv_store *kv, void *const *host,
                     const int32_t *blocks, int32_t n) {
    slow_begin(kv, host, blocks, n);
    copying.save = true;
    return 0;
}
static int slow_load(struct backend *be, struct kv_store *kv, const int32_t *blocks,
                     void *const *host, int32_t n) {
    slow_begin(kv, host, blocks, n);
    copying.load = true;
    return 0;
}
static int slow_done(struct backend *be, bool wait) {
    static int looks;
    if (!copying.save && !copying.load) return 1;
    if (!wait && (copying.waited_for || ++looks % 4)) return 0;
    if (copying.save)
        prompt_ops->kv_blocks_save(be, copying.kv, copying.host, copying.blocks, copying.n);
    else
        prompt_ops->kv_blocks_load(be, copying.kv, copying.blocks, copying.host, copying.n);
    copying.save = copying.load = false;
    return 1;
}
static void slow_down(struct engine *e) {
    prompt_ops = e->backend->ops;
    slow = *prompt_ops;
    slow.kv_blocks_save = slow_save;
    slow.kv_blocks_load = slow_load;
    slow.kv_copies_done = slow_done;
    e->backend->ops = &slow;
}

static const char *snapshots; // their folder, of the engines opened next

static struct engine *tiered(const char *dir, int32_t chunk, int64_t blocks, int64_t host_blocks) {
    runner_host_bytes = 0;
    struct engine *e = engine_for(dir, chunk, 8, 0);
    int64_t bytes = e->info.block_bytes;
    engine_close(e);
    runner_host_bytes = host_blocks * bytes;
    runner_snapshots = snapshots;
    e = engine_for(dir, chunk, 8, blocks * bytes);
    runner_host_bytes = 0;
    runner_snapshots = NULL;
    return e;
}

// Rounds until the sequence says what became of it.
static enum engine_event_kind wait_for(struct engine *e, uint64_t sequence) {
    struct engine_event ev;
    for (int i = 0; i < 10000; i++) {
        assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1) {
            if (ev.sequence == sequence) return ev.kind;
        }
    }
    fail_msg("sequence %d: nothing happened", (int)sequence);
    return ENGINE_DONE;
}

static void same_bits(const char *what, const struct rows *a, const struct rows *b, int64_t from,
                      int64_t to) {
    for (int64_t p = from; p < to; p++) {
        if (memcmp(a->data + p * a->vocab, b->data + p * b->vocab,
                   (size_t)a->vocab * sizeof(float)) != 0)
            fail_msg("%s: position %lld has other bits", what, (long long)p);
    }
}

// --- parked after every turn, on rings that wrap many times
// ---------------------------------------------------

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
        assert_int_equal(e->instance.pool.n_free, e->instance.pool.n_blocks);
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
        assert_int_equal(e->instance.tiers.host.n_free, e->instance.tiers.host.n_blocks);
        assert_null(e->instance.sequences);
        assert_null(e->owned);
        engine_close(calm);
        engine_close(e);
        free(want.data);
        free(got.data);
    }
}

// --- the log went another way meanwhile
// -----------------------------------------------------------------------

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

// --- a hint
// ----------------------------------------------------------------------------------------------------

static void test_a_hint_brings_it_back(void **state) {
    static struct outcome o, calm;
    static struct clock_fake clock;
    struct engine_event ev;
    int32_t log[130];
    struct engine *e = tiered(*state, 16, 200, 200);
    clock_fake_init(&clock, 1700000000000000);
    clock_fake_advance(&clock, 1000000000);
    e->clock = e->instance.emit.clock = &clock.clock;
    seed = 8;
    random_log(e, log, 130);
    struct engine_turn t = turn_for(e, 3, log, 100, 48, 4);
    t.score_only = true;
    run_turn(e, &t, &o);
    engine_sequence_park(e, 3);
    assert_int_equal(wait_for(e, 3), ENGINE_PARKED);
    for (int round = 0; round < 2; round++) {
        clock_fake_advance(&clock, 6000000);
        assert_int_equal(e->instance.tiers.n_parked, 1);
        engine_sequence_warm(e, 3);
        engine_sequence_warm(e, 3); // too soon: ignored
        for (int i = 0; i < 5; i++) assert_true(engine_round(e));
        assert_int_equal(engine_poll(e, &ev), 0);
        assert_int_equal(e->instance.tiers.n_parked, 0);
        assert_int_equal(e->instance.n_warm, 1);
        if (round == 1) break;
        clock_fake_advance(&clock, ENGINE_WARM_US); // nobody came
        assert_int_equal(wait_for(e, 3), ENGINE_PARKED);
        assert_int_equal(e->instance.n_warm, 0);
        assert_int_equal(e->instance.pool.n_free, e->instance.pool.n_blocks);
    }
    t = turn_for(e, 3, log, 130, 48, 4);
    t.n_input = 30;
    t.sampling.max_tokens = 10;
    run_turn(e, &t, &o);
    assert_int_equal(o.source, CACHE_KEPT);
    assert_int_equal(o.n_cached, 100);
    assert_int_equal(e->instance.n_warm, 0);
    t = turn_for(e, 4, log, 130, 48, 4);
    t.sampling.max_tokens = 10;
    run_turn(e, &t, &calm);
    assert_memory_equal(o.ids, calm.ids, 10 * sizeof *o.ids);
    assert_memory_equal(o.logprobs, calm.logprobs, 10 * sizeof *o.logprobs);
    engine_close(e);
}

// --- a turn comes while its cache is copied
// ------------------------------------------------------------------------------------------------

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
    for (uint64_t id = 2; id <= 5; id++) { // all blocks are somebody's
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

// --- the bound
// --------------------------------------------------------------------------------------------------

// Host memory for two of three: the one used longest ago goes cold, and says so.
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
    // More than all of it: not parked, and said at once.
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

// --- anything, in any order
// --------------------------------------------------------------------------------------

enum { SEQUENCES = 16, OPERATIONS = 6000, LOG = 256 };

struct player {
    uint64_t turn; // under way, or 0
    int32_t log[LOG], drawn[64];
    float logprobs[64];
    int64_t n_log, n_drawn;
    int32_t max_tokens, memory_len;
};
static struct player players[SEQUENCES];
static struct { int64_t done, by_source[CACHE_SNAPSHOT + 1], parked, released, compared; } books;

// The same turn alone, from nothing.
static void compare(struct engine *calm, const struct player *p) {
    static struct outcome o;
    struct engine_turn t = turn_for(calm, 1, p->log, p->n_log, p->memory_len, 4);
    t.sampling.max_tokens = p->max_tokens;
    run_turn(calm, &t, &o);
    assert_int_equal(o.n, p->n_drawn);
    assert_memory_equal(o.ids, p->drawn, (size_t)o.n * sizeof *o.ids);
    assert_memory_equal(o.logprobs, p->logprobs, (size_t)o.n * sizeof *o.logprobs);
    release(calm, 1);
    books.compared++;
}

static void note(struct engine *calm, const struct engine_event *ev) {
    if (ev->kind == ENGINE_SNAPSHOT) return;
    struct player *p = &players[ev->sequence - 1];
    books.parked += ev->kind == ENGINE_PARKED;
    books.released += ev->kind == ENGINE_RELEASED;
    if (ev->kind == ENGINE_STARTED) books.by_source[ev->source]++;
    if (ev->kind == ENGINE_TOKEN && ev->id >= 0) {
        p->logprobs[p->n_drawn] = ev->logprob;
        p->drawn[p->n_drawn++] = ev->id;
    }
    if (ev->kind != ENGINE_DONE) return;
    assert_int_not_equal(ev->finish, FINISH_ERROR);
    if (ev->finish == FINISH_LENGTH && below(3) == 0) compare(calm, p);
    memcpy(p->log + p->n_log, p->drawn, (size_t)p->n_drawn * sizeof *p->drawn);
    p->n_log += p->n_drawn;
    p->turn = 0;
    books.done++;
}

static void start(struct engine *e, uint64_t id) {
    static uint64_t next_turn = 1;
    struct player *p = &players[id - 1];
    struct err err = {0};
    if (p->turn) return;
    if (p->n_log > LOG - 60 || below(6) == 0) p->n_log = below((uint32_t)p->n_log + 1); // rewind
    int64_t n_input = 1 + below(24);
    random_log(e, p->log + p->n_log, n_input);
    p->memory_len = below(20) == 0 ? 24 : 56; // now and then the window changes
    struct engine_turn t = turn_for(e, id, p->log, p->n_log + n_input, p->memory_len, 4);
    t.turn = next_turn++;
    t.n_input = n_input;
    t.sampling.max_tokens = p->max_tokens = 1 + (int32_t)below(16);
    char name[16];
    snprintf(name, sizeof name, "player-%d", (int)id);
    t.lasting_id = name;
    if (engine_turn_submit(e, &t, &err) < 0) { // full
        free(t.ids);
        return;
    }
    p->n_log += n_input;
    p->n_drawn = 0;
    p->turn = t.turn;
}

static void walk(const char *dir, int64_t blocks, int64_t host_blocks, bool slowly) {
    struct engine *e = tiered(dir, 16, blocks, host_blocks);
    const char *folder = snapshots;
    snapshots = NULL;
    struct engine *calm = tiered(dir, 16, 100, 0);
    if (slowly) slow_down(e);
    struct engine_event ev;
    memset(players, 0, sizeof players);
    memset(&books, 0, sizeof books);
    for (int op = 0; op < OPERATIONS; op++) {
        uint64_t id = 1 + below(SEQUENCES);
        // Any disk is faster; and on a crowded machine a copy that was measured slow must not
        // make all others too dear.
        if (folder || op % 4) e->instance.tiers.prefill_rate = 1e-12;
        if (folder && op % 16 == 0) usleep(100);            // it gets a core now and then
        switch (below(8)) {
        case 0:
        case 1:
            start(e, id);
            break;
        case 2:
            if (below(4) == 0) engine_turn_cancel(e, id, players[id - 1].turn);
            break;
        case 3:
            if (below(8) == 0) engine_sequence_release(e, id);
            break;
        case 4:
            if (below(3) == 0)
                engine_sequence_warm(e, id);
            else
                engine_sequence_park(e, id);
            break;
        default:
            assert_true(engine_round(e));
        }
        while (below(4) > 0 && engine_poll(e, &ev) == 1) note(calm, &ev);
    }
    for (int quiet = 0; quiet < 4;) {
        for (uint64_t i = 1; i <= SEQUENCES; i++) engine_sequence_release(e, i);
        assert_true(engine_round(e));
        const struct snapshots *files = &e->instance.snapshots;
        quiet = e->n_active + files->n_writing + files->n_reading == 0 ? quiet + 1 : 0;
        while (engine_poll(e, &ev) == 1) note(calm, &ev);
    }
    print_message("%lld turns: %lld kept, %lld from host memory, %lld from files, %lld recomputed; "
                  "%lld parked, "
                  "%lld released, %lld compared\n",
                  (long long)books.done, (long long)books.by_source[CACHE_KEPT],
                  (long long)books.by_source[CACHE_HOST],
                  (long long)books.by_source[CACHE_SNAPSHOT],
                  (long long)books.by_source[CACHE_RECOMPUTED], (long long)books.parked,
                  (long long)books.released, (long long)books.compared);
    assert_true(books.compared > 5 && (books.parked > 10 || folder));
    assert_int_equal(e->instance.pool.n_free, e->instance.pool.n_blocks);
    assert_int_equal(e->instance.tiers.host.n_free, e->instance.tiers.host.n_blocks);
    assert_int_equal(e->instance.tiers.n_images + e->instance.tiers.n_parked, 0);
    assert_int_equal(e->instance.n_park_asked, 0);
    assert_int_equal(e->instance.sched.n_reserved, 0);
    assert_null(e->instance.sequences);
    assert_null(e->instance.resuming);
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
    walk(*state, 200, 300, false); // room for all
    assert_true(books.by_source[CACHE_HOST] > some);
    walk(*state, 40, 300, false); // a pool for four of sixteen
    assert_true(books.by_source[CACHE_HOST] >= some);
    walk(*state, 40, 30, false); // and host memory for four
    assert_true(books.by_source[CACHE_HOST] >= some / 4 && books.by_source[CACHE_RECOMPUTED] > 5);
    walk(*state, 14, 300, false); // a pool for one at a time
}

// Turns come while caches are on their way to where they do not belong any more.
static void test_copies_that_take_their_time(void **state) {
    if (strcmp(test_device(), "cpu")) skip(); // a device takes its time by itself
    seed = 11;
    walk(*state, 200, 300, true);
    walk(*state, 40, 300, true);
    walk(*state, 40, 30, true);
    walk(*state, 14, 300, true);
}

// The same with files behind host memory, and with files alone.
static void test_anything_with_files(void **state) {
    struct tmp_dir folder;
    for (int i = 0; i < 3; i++) {
        tmp_dir_open(&folder);
        snapshots = folder.path;
        seed = 11 + (uint64_t)i;
        walk(*state, i == 2 ? 60 : 200, i == 0 ? 30 : i == 1 ? 0 : 40, false);
        assert_true(books.by_source[CACHE_SNAPSHOT] > 5);
        tmp_dir_close(&folder);
    }
}

int main(void) {
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        {"fixture: parked after every turn", test_parked_after_every_turn, NULL, NULL,
         (void *)models[0]},
        {"fixture: another end", test_another_end, NULL, NULL, (void *)models[0]},
        {"fixture: a hint brings it back", test_a_hint_brings_it_back, NULL, NULL,
         (void *)models[0]},
        {"fixture: copied while it goes on", test_copied_while_it_goes_on, NULL, NULL,
         (void *)models[0]},
        {"fixture: the oldest goes first", test_the_oldest_goes_first, NULL, NULL,
         (void *)models[0]},
        {"fixture: anything in any order", test_anything_in_any_order, NULL, NULL,
         (void *)models[0]},
        {"fixture: copies that take their time", test_copies_that_take_their_time, NULL, NULL,
         (void *)models[0]},

        {"fixture: anything with files", test_anything_with_files, NULL, NULL, (void *)models[0]},
        {"demo: parked after every turn", test_parked_after_every_turn, NULL, NULL,
         (void *)models[1]},
        {"int8 cache: parked after every turn", test_parked_after_every_turn, runner_with_int8,
         runner_with_auto, (void *)models[0]},
        {"int8 cache: anything in any order", test_anything_in_any_order, runner_with_int8,
         runner_with_auto, (void *)models[0]},
        {"fp8 cache: parked after every turn", test_parked_after_every_turn, runner_with_fp8,
         runner_with_auto, (void *)models[0]},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
