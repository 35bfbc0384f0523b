// Caches that are loaded during their turn's first step: on a device with slow copies no layer is
// read before its part has arrived, and none waits for the next layer's part. After any
// interruption (a cancel, a failure, a fork, another turn, parking again) every turn gives the
// tokens and the bits of an undisturbed one. On a GPU the real device is used.
#include "base/log.h"
#include "engine/cache/movers.h"
#include "tests/golden/beside_world.h"
#include "tests/unit/tmp_dir.h"

static const char *const model = "tests/fixtures/models/qwen3";

static struct engine *opened(int64_t host_blocks) {
    struct engine *e = tiered(model, 16, 200, host_blocks);
    beside_down(e);
    return e;
}

// --- what the tests do ---------------------------------------------------------------------------

enum { OLD = 100, NEW = 50, DRAW = 6 };

static struct outcome out, alone;

static void parked(struct engine *e, uint64_t sequence, const int32_t *log, int32_t memory_len) {
    struct engine_turn t = turn_for(e, sequence, log, OLD, memory_len, 4);
    t.score_only = true;
    run_turn(e, &t, &out);
    engine_sequence_park(e, sequence);
    assert_int_equal(wait_for(e, sequence), ENGINE_PARKED);
    assert_int_equal(e->core.caches.pool.n_free, e->core.caches.pool.n_blocks);
}

// The turn that brings a cache back: copies are what is cheaper, whatever they have taken so far.
static struct engine_turn later(struct engine *e, uint64_t sequence, const int32_t *log,
                                int32_t memory_len) {
    e->core.caches.tiers.prefill_rate = 1e-12;
    struct engine_turn t = turn_for(e, sequence, log, OLD + NEW, memory_len, 4);
    t.n_input = NEW;
    t.sampling.max_tokens = DRAW;
    return t;
}

static void later_is_right(struct engine *e, struct engine *calm, uint64_t sequence,
                           const int32_t *log, int32_t memory_len, enum engine_cache_source source,
                           int64_t n_cached) {
    struct engine_turn t = later(e, sequence, log, memory_len), c = later(calm, 1, log, memory_len);
    run_turn(e, &t, &out);
    run_turn(calm, &c, &alone);
    release(calm, 1);
    assert_int_equal(out.finish, FINISH_LENGTH);
    outcome_same_from(&out, &alone, source, n_cached);
}

// Runs rounds until the start of a turn of the sequence is reported; returns its outcome so far.
static void until_started(struct engine *e, uint64_t sequence, struct outcome *o) {
    struct engine_event ev;
    memset(o, 0, sizeof *o);
    for (int i = 0; i < 1000; i++) {
        assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1) {
            if (ev.sequence != sequence) continue;
            outcome_take(o, &ev);
            if (ev.kind == ENGINE_STARTED) return;
        }
    }
    fail_msg("no turn has started");
}

static void until_done(struct engine *e, uint64_t sequence, struct outcome *o) {
    struct engine_event ev;
    for (int i = 0; i < 1000 && !o->done; i++) {
        (void)engine_round(e);
        while (engine_poll(e, &ev) == 1) {
            if (ev.sequence == sequence && !o->done) outcome_take(o, &ev);
        }
    }
    assert_true(o->done);
}

static void close_both(struct engine *e, struct engine *calm) {
    struct engine_event ev;
    for (uint64_t s = 1; s <= 9; s++) engine_sequence_release(e, s);
    for (int i = 0; i < 20; i++) assert_true(engine_round(e));
    while (engine_poll(e, &ev) == 1) continue;
    const struct tiers *t = &e->core.caches.tiers;
    assert_null(t->copying);
    assert_int_equal(t->host.n_free, t->host.n_blocks);
    assert_int_equal(e->core.caches.pool.n_free, e->core.caches.pool.n_blocks);
    assert_null(e->core.caches.stepping);
    assert_null(e->core.caches.sequences);
    engine_close(e);
    engine_close(calm);
}

// --- tests ---------------------------------------------------------------------------------------

// Again and again, on rings that wrap; each turn comes back beside its own first step.
static void test_every_turn(void **state) {
    enum { TURNS = 12 };
    static const int32_t windows[] = {0, 48, 24};
    static int32_t log[1000];
    for (int w = 0; w < 3; w++) {
        struct engine *e = opened(200), *calm = tiered(model, 16, 200, 0);
        struct rows want = rows_new(e->info.n_vocab), got = rows_new(e->info.n_vocab);
        int64_t n = 0;
        seed = 31;
        for (int i = 0; i < TURNS; i++) {
            int64_t n_input = 1 + below(40);
            random_log(e, log + n, n_input);
            n += n_input;
            struct engine_turn t = turn_for(e, 1, log, n, windows[w], 4);
            struct engine_turn c = turn_for(calm, 1, log, n, windows[w], 4);
            t.n_input = c.n_input = n_input;
            t.sampling.max_tokens = c.sampling.max_tokens = 1 + (int32_t)below(12);
            t.on_logits = c.on_logits = rows_keep;
            t.on_logits_ctx = &got;
            c.on_logits_ctx = &want;
            beside.looks = (int)below(4);
            e->core.caches.tiers.prefill_rate = 1e-12;
            run_turn(e, &t, &out);
            run_turn(calm, &c, &alone);
            assert_int_equal(out.source, i == 0 ? CACHE_NONE : CACHE_HOST);
            if (i > 0) assert_int_equal(out.n_prefilled, n_input + 1);
            assert_int_equal(beside.n_loads, i);
            assert_int_equal(out.n, alone.n);
            assert_memory_equal(out.ids, alone.ids, (size_t)out.n * sizeof *out.ids);
            memcpy(log + n, out.ids, (size_t)out.n * sizeof *log);
            n += out.n;
            engine_sequence_park(e, 1);
            assert_int_equal(wait_for(e, 1), ENGINE_PARKED);
        }
        same_bits("beside its first step", &want, &got, 0, n - 1);
        free(want.data);
        free(got.data);
        close_both(e, calm);
    }
}

// Cancelled after it started and before its step: nothing was copied, and it is still parked.
static void test_cancelled_before_its_step(void **state) {
    int32_t log[OLD + NEW];
    struct engine *e = opened(200), *calm = tiered(model, 16, 200, 0);
    seed = 32;
    random_log(e, log, OLD + NEW);
    parked(e, 1, log, 0);
    struct engine_turn t = later(e, 1, log, 0);
    submit(e, &t);
    until_started(e, 1, &out);
    assert_non_null(e->core.caches.stepping);
    assert_int_equal(out.source, CACHE_HOST);
    engine_turn_cancel(e, 1, 1);
    until_done(e, 1, &out);
    assert_int_equal(out.finish, FINISH_CANCELLED);
    assert_int_equal(beside.n_loads, 0);
    assert_null(e->core.caches.stepping);
    assert_int_equal(e->core.caches.tiers.n_parked, 1);
    assert_int_equal(e->core.caches.pool.n_free, e->core.caches.pool.n_blocks);
    later_is_right(e, calm, 1, log, 0, CACHE_HOST, OLD);
    assert_int_equal(beside.n_loads, 1);
    close_both(e, calm);
}

// Other sequences of its group find blocks when their step has been launched, not before.
static void test_named_when_there(void **state) {
    int32_t log[OLD + NEW];
    struct engine *e = opened(200), *calm = tiered(model, 16, 200, 0);
    seed = 40;
    random_log(e, log, OLD + NEW);
    struct engine_turn t = turn_for(e, 1, log, OLD, 0, 4);
    t.score_only = true;
    t.share_group = 7;
    run_turn(e, &t, &out);
    engine_sequence_park(e, 1);
    assert_int_equal(wait_for(e, 1), ENGINE_PARKED);
    t = later(e, 1, log, 0);
    t.share_group = 7;
    submit(e, &t);
    until_started(e, 1, &out);
    const struct kv_ring *r = &e->core.caches.sequences->ring;
    const struct kv_names *names = &e->core.caches.pool.names;
    assert_non_null(e->core.caches.stepping);
    for (int32_t i = 0; i < OLD / 8; i++)
        assert_false(kv_names_has(names, r->blocks[kv_map_slot(&r->maps[0], i * 8)]));
    assert_true(engine_round(e));
    for (int32_t i = 0; i < OLD / 8; i++)
        assert_true(kv_names_has(names, r->blocks[kv_map_slot(&r->maps[0], i * 8)]));
    until_done(e, 1, &out);
    close_both(e, calm);
}

// The first step of it has been asked for, and its copies are not over (on a GPU: may not be).
static void in_the_middle(struct engine *e, const int32_t *log, int32_t memory_len) {
    parked(e, 1, log, memory_len);
    struct engine_turn t = later(e, 1, log, memory_len);
    submit(e, &t);
    until_started(e, 1, &out);
    beside.looks = 1000000;
    int64_t before = beside.n_loads;
    assert_true(engine_round(e)); // 16 of 51 tokens
    assert_int_equal(beside.n_loads, before + 1);
    if (on_gpu()) return;
    assert_ptr_equal(e->core.caches.tiers.copying, e->core.caches.sequences);
    assert_true(e->core.caches.tiers.with_step);
}

static void cancel_it(struct engine *e) {
    engine_turn_cancel(e, 1, 1);
    until_done(e, 1, &out);
    assert_int_equal(out.finish, FINISH_CANCELLED);
    assert_int_equal(e->core.caches.tiers.n_parked, 0);
}

static void test_cancelled_in_the_middle(void **state) {
    static const int32_t windows[] = {0, 48};
    int32_t log[OLD + NEW], other[OLD + NEW];
    for (int w = 0; w < 2; w++) {
        struct engine *e = opened(200), *calm = tiered(model, 16, 200, 0);
        int32_t m = windows[w];
        seed = 33;
        random_log(e, log, OLD + NEW);
        random_log(e, other, OLD + NEW);
        // Another turn right behind: what came back is kept.
        in_the_middle(e, log, m);
        cancel_it(e);
        later_is_right(e, calm, 1, log, m, CACHE_KEPT, OLD + 16);
        engine_sequence_park(e, 1);
        beside.looks = 3;
        assert_int_equal(wait_for(e, 1), ENGINE_PARKED);
        release(e, 1);
        // Released at once: another sequence has its blocks while the copies count as running.
        in_the_middle(e, log, m);
        cancel_it(e);
        release(e, 1);
        assert_null(e->core.caches.tiers.copying); // host memory was waited for
        later_is_right(e, calm, 2, other, m, CACHE_RECOMPUTED, 0);
        release(e, 2);
        // Parked again behind it, and back.
        in_the_middle(e, log, m);
        cancel_it(e);
        engine_sequence_park(e, 1);
        for (int i = 0; i < 10; i++) assert_true(engine_round(e));
        if (!on_gpu()) assert_int_equal(e->core.caches.tiers.n_parked, 0); // not over a copy
        beside.looks = 2;
        assert_int_equal(wait_for(e, 1), ENGINE_PARKED);
        later_is_right(e, calm, 1, log, m, CACHE_HOST, OLD + 16);
        // An end that asks for release in the middle.
        release(e, 1);
        in_the_middle(e, log, m);
        engine_sequence_release(e, 1);
        cancel_it(e);
        later_is_right(e, calm, 1, log, m, CACHE_RECOMPUTED, 0);
        close_both(e, calm);
    }
}

// Forks during the load share the blocks, and continue while the copies still count as running.
static void test_forked_in_the_middle(void **state) {
    static struct outcome whole;
    int32_t log[OLD + NEW], fork[OLD + NEW];
    struct engine_event ev;
    struct engine *e = opened(200), *calm = tiered(model, 16, 200, 0);
    seed = 34;
    random_log(e, log, OLD + NEW);
    in_the_middle(e, log, 0);
    assert_int_equal(engine_sequence_fork(e, 1, 2, OLD), 0);
    until_done(e, 1, &out);
    struct engine_turn c = later(calm, 1, log, 0);
    run_turn(calm, &c, &whole);
    release(calm, 1);
    assert_memory_equal(out.ids, whole.ids, DRAW * sizeof *out.ids);
    assert_memory_equal(out.logprobs, whole.logprobs, DRAW * sizeof *out.logprobs);
    while (engine_poll(e, &ev) == 1) continue;
    memcpy(fork, log, sizeof fork);
    random_log(e, fork + OLD, NEW);
    later_is_right(e, calm, 2, fork, 0, CACHE_KEPT, OLD);
    // Before its step there is nothing on the device to share: the fork is parked too.
    release(e, 1);
    release(e, 2);
    beside.looks = 0;
    parked(e, 1, log, 0);
    struct engine_turn t = later(e, 1, log, 0);
    submit(e, &t);
    until_started(e, 1, &out);
    assert_int_equal(engine_sequence_fork(e, 1, 2, OLD), 0);
    until_done(e, 1, &out);
    while (engine_poll(e, &ev) == 1) continue;
    assert_memory_equal(out.ids, whole.ids, DRAW * sizeof *out.ids);
    later_is_right(e, calm, 2, fork, 0, CACHE_HOST, OLD);
    close_both(e, calm);
}

// Beside others' steps it waits for its copies, unless the missing part is small.
static void test_beside_others(void **state) {
    static const struct {
        double load_rate; // bytes per microsecond
        bool with_step;
    } cases[] = {{0, false}, {1e-3, false}, {1e9, true}};
    int32_t log[OLD + NEW], other[20];
    struct engine *e = opened(200), *calm = tiered(model, 16, 200, 0);
    seed = 35;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct engine_event ev;
        struct outcome *o = &out;
        random_log(e, log, OLD + NEW);
        random_log(e, other, 20);
        parked(e, 1, log, 0);
        struct engine_turn t = turn_for(e, 2, other, 20, 0, 4);
        t.sampling.max_tokens = 1000;
        submit(e, &t);
        for (int k = 0; k < 5; k++) assert_true(engine_round(e));
        int64_t before = beside.n_loads;
        e->core.caches.tiers.load_rate = cases[i].load_rate;
        e->core.caches.tiers.prefill_rate = 1e-12;
        t = later(e, 1, log, 0);
        submit(e, &t);
        memset(o, 0, sizeof *o);
        until_done(e, 1, o);
        assert_int_equal(o->source, CACHE_HOST);
        assert_int_equal(beside.n_loads - before, cases[i].with_step);
        struct engine_turn c = later(calm, 1, log, 0);
        run_turn(calm, &c, &alone);
        release(calm, 1);
        assert_memory_equal(o->ids, alone.ids, DRAW * sizeof *o->ids);
        engine_turn_cancel(e, 2, 1);
        engine_sequence_release(e, 1);
        engine_sequence_release(e, 2);
        for (int k = 0; k < 20; k++) assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1) continue;
    }
    close_both(e, calm);
}

// Two at once: the first is copied whole, the last beside the step that both are in.
static void test_two_at_once(void **state) {
    int32_t log[2][OLD + NEW];
    struct engine *e = opened(200), *calm = tiered(model, 16, 200, 0);
    seed = 36;
    for (uint64_t s = 1; s <= 2; s++) {
        random_log(e, log[s - 1], OLD + NEW);
        struct engine_turn t = turn_for(e, s, log[s - 1], OLD, 0, 4);
        t.score_only = true;
        run_turn(e, &t, &out);
    }
    for (uint64_t s = 1; s <= 2; s++) {
        engine_sequence_park(e, s);
        assert_int_equal(wait_for(e, s), ENGINE_PARKED);
    }
    e->core.caches.tiers.load_rate = 1e9;
    static struct outcome both[2];
    struct engine_event ev;
    memset(both, 0, sizeof both);
    for (uint64_t s = 1; s <= 2; s++) {
        struct engine_turn t = later(e, s, log[s - 1], 0);
        submit(e, &t);
    }
    for (int i = 0; i < 1000 && !(both[0].done && both[1].done); i++) {
        assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1) outcome_take(&both[ev.sequence - 1], &ev);
    }
    assert_int_equal(beside.n_loads, 1);
    for (int s = 0; s < 2; s++) {
        struct engine_turn c = later(calm, 1, log[s], 0);
        run_turn(calm, &c, &alone);
        release(calm, 1);
        assert_int_equal(both[s].source, CACHE_HOST);
        assert_memory_equal(both[s].ids, alone.ids, DRAW * sizeof *alone.ids);
        assert_memory_equal(both[s].logprobs, alone.logprobs, DRAW * sizeof *alone.logprobs);
    }
    close_both(e, calm);
}

// The rates are those of copies and of computing alone, not of a step with both; and the turn
// reports its own waiting time.
static void test_what_it_cost(void **state) {
    enum { HELD = 3000000, TOOK = 250 };
    if (on_gpu()) return; // it has its own figures
    int32_t log[OLD + NEW];
    struct engine *e = opened(200), *calm = tiered(model, 512, 200, 0);
    struct tiers *t = &e->core.caches.tiers;
    seed = 37;
    random_log(e, log, OLD + NEW);
    parked(e, 1, log, 0);
    double bytes = 13.0 * (double)e->info.block_bytes; // 100 tokens in blocks of 8
    beside.took_us = TOOK;
    beside.held_us = HELD;
    t->load_rate = 0;
    double prefill_rate = t->prefill_rate;
    struct engine_turn turn = turn_for(e, 1, log, OLD + 10, 0, 4);
    turn.n_input = 10;
    turn.sampling.max_tokens = 1; // one step, which also reports its end
    run_turn(e, &turn, &out);
    assert_int_equal(out.source, CACHE_HOST);
    assert_true(t->load_rate == bytes / TOOK);
    assert_true(t->prefill_rate == prefill_rate);
    assert_true(out.resume_us >= HELD);
    // On a device that cannot tell, no rate is recorded.
    engine_sequence_park(e, 1);
    assert_int_equal(wait_for(e, 1), ENGINE_PARKED);
    beside.took_us = beside.held_us = 0;
    turn = later(e, 1, log, 0);
    run_turn(e, &turn, &out);
    assert_int_equal(out.source, CACHE_HOST);
    assert_true(t->load_rate == bytes / TOOK);
    assert_true(out.resume_us < HELD);
    close_both(e, calm);
}

// A step that fails in the middle of its layers ends the turn; what was parked is parked still.
static void test_failed_in_the_middle(void **state) {
    if (on_gpu()) return; // tests/gpu has a device that fails
    int32_t log[OLD + NEW];
    struct engine *e = opened(200), *calm = tiered(model, 16, 200, 0);
    seed = 38;
    random_log(e, log, OLD + NEW);
    parked(e, 1, log, 0);
    beside.fails_at = 1;
    beside.code = E_NOMEM;
    beside.looks = 5;
    log_set_level(LOG_OFF);
    struct engine_turn t = later(e, 1, log, 0);
    run_turn(e, &t, &out);
    log_set_level(LOG_ERROR);
    assert_int_equal(out.finish, FINISH_ERROR);
    assert_int_equal(e->core.caches.tiers.n_parked, 1);
    assert_int_equal(e->core.caches.pool.n_free, e->core.caches.pool.n_blocks);
    beside.fails_at = -1;
    later_is_right(e, calm, 1, log, 0, CACHE_HOST, OLD);
    // The device itself fails: nothing continues.
    engine_sequence_park(e, 1);
    assert_int_equal(wait_for(e, 1), ENGINE_PARKED);
    beside.fails_at = 1;
    beside.code = E_DEVICE;
    log_set_level(LOG_OFF);
    t = later(e, 1, log, 0);
    submit(e, &t);
    memset(&out, 0, sizeof out);
    until_done(e, 1, &out);
    assert_int_equal(out.finish, FINISH_ERROR);
    assert_int_equal(out.error_code, E_DEVICE);
    assert_false(engine_round(e));
    log_set_level(LOG_ERROR);
    engine_close(e);
    engine_close(calm);
}

// From a file: the threads read all of it into host memory, and it goes on from there the same way;
// where host memory is only the way there, it is given back when the copies are over.
static void test_from_a_file(void **state) {
    int32_t log[OLD + NEW];
    struct tmp_dir folder;
    for (int transit = 0; transit < 2; transit++) {
        tmp_dir_open(&folder);
        snapshots = folder.path;
        struct engine *e = opened(transit ? 0 : 200), *calm;
        snapshots = NULL;
        calm = tiered(model, 16, 200, 0);
        assert_int_equal(e->core.caches.tiers.transit, transit);
        seed = 39;
        random_log(e, log, OLD + NEW);
        struct engine_turn t = turn_for(e, 1, log, OLD, 0, 4);
        t.score_only = true;
        t.lasting_id = "one";
        run_turn(e, &t, &out);
        engine_sequence_park(e, 1);
        enum engine_event_kind kind = wait_for(e, 1);
        if (!transit) { // as if others had wanted host memory
            assert_int_equal(kind, ENGINE_PARKED);
            for (int i = 0; i < 200000 && !snapshots_find(&e->core.caches.snapshots, "one"); i++) {
                e->core.caches.look_for_writes = true;
                struct sequence *s = e->core.caches.sequences;
                if (!snapshots_is_writing(&e->core.caches.snapshots, s->id))
                    (void)cache_write(&e->core.caches, s);
                assert_true(engine_round(e));
                usleep(500);
            }
            cache_drop(&e->core.caches, e->core.caches.sequences, RELEASE_PRESSURE);
            kind = wait_for(e, 1);
        }
        while (kind != ENGINE_RELEASED) kind = wait_for(e, 1);
        e->core.caches.tiers.prefill_rate = 1e-12; // the disk is cheaper
        t = later(e, 1, log, 0);
        t.lasting_id = "one";
        submit(e, &t);
        memset(&out, 0, sizeof out);
        beside.looks = 3;
        for (int i = 0; i < 3; i++) { // asked what is in it; asked for its blocks; they are there
            assert_true(engine_round(e));
            // A thread of the folder answers by a command.
            for (int ms = 0; i < 2 && queue_count(&e->commands) == 0 && ms < 60000; ms++)
                usleep(1000);
        }
        until_done(e, 1, &out);
        assert_int_equal(out.source, CACHE_SNAPSHOT);
        assert_int_equal(out.n_cached, OLD);
        assert_int_equal(beside.n_loads, 1);
        struct engine_turn c = later(calm, 1, log, 0);
        run_turn(calm, &c, &alone);
        release(calm, 1);
        assert_memory_equal(out.ids, alone.ids, DRAW * sizeof *out.ids);
        assert_memory_equal(out.logprobs, alone.logprobs, DRAW * sizeof *out.logprobs);
        if (transit) assert_int_equal(e->core.caches.tiers.n_images, 0);
        close_both(e, calm);
        tmp_dir_close(&folder);
    }
}

// run_turn, but events of a sequence that was released while its file was written are allowed.
static void run_beside_a_file(struct engine *e, struct engine_turn *t) {
    struct engine_event ev;
    memset(&out, 0, sizeof out);
    submit(e, t);
    for (int rounds = 0; !out.done; rounds++) {
        assert_true(rounds < 10 * MAX_LOG);
        assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1)
            if (ev.sequence == t->sequence) outcome_take(&out, &ev);
    }
}

// Its file was written while its turn waited, and the turn did not need it after all: it leaves
// host memory, which was only the way to the file, without a further request.
static void test_filed_while_its_turn_waited(void **state) {
    if (on_gpu()) skip();
    int32_t log[OLD + NEW];
    struct tmp_dir folder;
    tmp_dir_open(&folder);
    snapshots = folder.path;
    struct engine *e = tiered(model, 16, 200, 0);
    snapshots = NULL;
    slow_down(e);
    assert_true(e->core.caches.tiers.transit);
    seed = 41;
    random_log(e, log, OLD + NEW);
    bool came = false; // before the file was done
    for (uint64_t id = 1; !came && id < 100; id++) {
        char name[16];
        snprintf(name, sizeof name, "%d", (int)id);
        struct engine_turn t = turn_for(e, id, log, OLD, 0, 4);
        t.score_only = true;
        t.lasting_id = name;
        run_beside_a_file(e, &t);
        struct sequence *s = e->core.caches.sequences;
        engine_sequence_park(e, id);
        const struct snapshots *files = &e->core.caches.snapshots;
        while (!snapshots_is_writing(files, id)) {
            e->core.caches.tiers.prefill_rate = 1e-12;
            assert_true(engine_round(e));
        }
        copying.waited_for = true;
        t = later(e, id, log, 0);
        t.lasting_id = name;
        submit(e, &t);
        assert_true(engine_round(e));
        s = e->core.caches.sequences;
        came = cache_is_resuming(s->state) && s->back_to == CACHE_PARKED;
        for (int i = 0; came && snapshots_is_writing(files, id) && i < 100000; i++) {
            usleep(1000);
            assert_true(engine_round(e));
        }
        assert_true(engine_round(e));
        engine_turn_cancel(e, id, 1);
        assert_true(engine_round(e));
        copying.waited_for = false;
        if (!came) engine_sequence_release(e, id);
        struct engine_event ev = {.kind = ENGINE_DONE};
        bool gone = false;
        for (int i = 0; (!gone || e->core.caches.tiers.n_images > 0) && i < 100000; i++) {
            if (i > 100) usleep(1000); // a released one's file is still being written from there
            assert_true(engine_round(e));
            while (engine_poll(e, &ev) == 1)
                gone |= ev.sequence == id && ev.kind == ENGINE_RELEASED;
        }
        assert_true(gone);
        assert_int_equal(e->core.caches.tiers.n_images, 0);
    }
    assert_true(came);
    engine_close(e);
    tmp_dir_close(&folder);
}

int main(void) {
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_turn),
        cmocka_unit_test_setup_teardown(test_every_turn, runner_with_int8, runner_with_auto),
        cmocka_unit_test(test_cancelled_before_its_step),
        cmocka_unit_test(test_named_when_there),
        cmocka_unit_test(test_cancelled_in_the_middle),
        cmocka_unit_test(test_forked_in_the_middle),
        cmocka_unit_test(test_beside_others),
        cmocka_unit_test(test_two_at_once),
        cmocka_unit_test(test_what_it_cost),
        cmocka_unit_test(test_failed_in_the_middle),
        cmocka_unit_test(test_from_a_file),
        cmocka_unit_test(test_filed_while_its_turn_waited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
