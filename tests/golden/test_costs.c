// Measured costs: the rates by which an engine chooses the cheapest way to resume, and the waiting
// time that a turn reports, on a device that works on by itself after a call.
#include "tests/golden/beside_world.h"

#include "base/log.h"

static const char *const model = "tests/fixtures/models/qwen3";

enum { OLD = 100, NEW = 50, LONG_US = 3000000 };

static struct outcome out;

static struct engine *opened(void) {
    struct engine *e = tiered(model, 16, 200, 200);
    beside_down(e);
    return e;
}

static void parked(struct engine *e, const int32_t *log) {
    struct engine_turn t = turn_for(e, 1, log, OLD, 0, 4);
    t.score_only = true;
    run_turn(e, &t, &out);
    engine_sequence_park(e, 1);
    assert_int_equal(wait_for(e, 1), ENGINE_PARKED);
}

// The turn that brings it back.
static struct engine_turn later(struct engine *e, const int32_t *log, int64_t n_new) {
    e->core.caches.tiers.prefill_rate = 1e-12;
    struct engine_turn t = turn_for(e, 1, log, OLD + n_new, 0, 4);
    t.n_input = n_new;
    t.sampling.max_tokens = 1;
    return t;
}

// --- what a turn waited for ----------------------------------------------------------------------

// A turn's first step was delayed, and the turn ended before that was known: the next turn must not
// count it as waiting.
static void test_not_the_next_turns(void **state) {
    if (on_gpu()) skip();
    int32_t log[OLD + NEW];
    struct engine_event ev;
    struct engine *e = opened();
    seed = 51;
    random_log(e, log, OLD + NEW);
    parked(e, log);
    struct engine_turn t = later(e, log, NEW);
    beside.held_us = LONG_US;
    beside.looks = 1000000;
    submit(e, &t);
    for (int i = 0; i < 100 && !e->core.caches.tiers.with_step; i++) assert_true(engine_round(e));
    assert_true(e->core.caches.tiers.with_step);
    engine_turn_cancel(e, 1, 1);
    assert_true(engine_round(e));
    while (engine_poll(e, &ev) == 1) continue;
    assert_int_equal(ev.kind, ENGINE_DONE);
    assert_true(e->core.caches.tiers.with_step); // the copies are not over
    beside.looks = 0;                            // seen to be over behind its first step of several
    t = later(e, log, NEW);
    run_turn(e, &t, &out);
    assert_int_equal(out.source, CACHE_KEPT);
    assert_false(e->core.caches.tiers.with_step);
    assert_true(out.resume_us < LONG_US);
    engine_close(e);
}

// Loading on a hint does not count as waiting of the turn that follows.
static void test_not_before_it_came(void **state) {
    if (on_gpu()) skip();
    int32_t log[OLD + NEW];
    struct engine *e = opened();
    seed = 52;
    random_log(e, log, OLD + NEW);
    parked(e, log);
    e->core.caches.tiers.prefill_rate = 1e-12;
    copying.waited_for = true;
    engine_sequence_warm(e, 1);
    assert_true(engine_round(e));
    assert_non_null(e->core.caches.resuming);
    e->core.caches.resuming->began_us -= LONG_US;
    struct engine_turn t = later(e, log, NEW);
    submit(e, &t);
    assert_true(engine_round(e));
    copying.waited_for = false;
    struct engine_event ev;
    memset(&out, 0, sizeof out);
    for (int i = 0; i < 1000 && !out.done; i++) {
        assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1) outcome_take(&out, &ev);
    }
    assert_int_equal(out.source, CACHE_HOST);
    assert_true(out.resume_us >= 0 && out.resume_us < LONG_US);
    engine_close(e);
}

// --- what prompts take ---------------------------------------------------------------------------

// A device that takes ROW_US for each row; a call takes ASK_US of the host's time. Reading from it
// waits for all earlier calls.
enum { ASK_US = 1, ROW_US = 100 };
static struct clock_fake time_of;
static int64_t busy_until;

static int asked(struct backend *be, const struct batch *b, const struct batch **run) {
    clock_fake_advance(&time_of, ASK_US);
    if (busy_until < time_of.mono) busy_until = time_of.mono;
    busy_until += (int64_t)b->n_rows * ROW_US;
    return beside_begin(be, b, run);
}

static int waited(struct backend *be, float *host, const void *logits, int32_t n, int32_t vocab) {
    if (busy_until > time_of.mono) clock_fake_advance(&time_of, busy_until - time_of.mono);
    memcpy(host, logits, (size_t)n * (size_t)vocab * sizeof *host);
    return 0;
}

static struct engine *opened_ahead(void) {
    struct engine *e = opened();
    const struct forward *f = &e->core.forward;
    clock_fake_init(&time_of, 0);
    clock_fake_advance(&time_of, 1000);
    busy_until = 0;
    e->core.emit.clock = &time_of.clock;
    e->core.forward.host = malloc((size_t)f->max_logits * (size_t)e->info.n_vocab * sizeof(float));
    slow.step_begin = asked;
    slow.logits_read = waited;
    return e;
}

static void prompt(struct engine *e, uint64_t sequence, int64_t n, bool score_only) {
    int32_t log[OLD];
    random_log(e, log, n);
    struct engine_turn t = turn_for(e, sequence, log, n, 0, 4);
    t.sampling.max_tokens = 1;
    t.score_only = score_only;
    run_turn(e, &t, &out);
    release(e, sequence);
}

static void rate_is_the_devices(const struct engine *e) {
    double us = 1 / e->core.caches.tiers.prefill_rate;
    assert_true(us > 0.9 * ROW_US && us < 1.1 * ROW_US);
}

// Chunks without logits are only launched: their time is known with the chunk that has logits.
static void test_prompts_in_chunks(void **state) {
    if (on_gpu()) skip();
    struct engine *e = opened_ahead();
    const double *rate = &e->core.caches.tiers.prefill_rate;
    seed = 53;
    prompt(e, 1, 40, false); // 16, 16, 8
    rate_is_the_devices(e);
    for (uint64_t i = 0; i < 8; i++) prompt(e, 2 + i, 17 + (int64_t)i * 8, false);
    rate_is_the_devices(e);
    // These were not waited for, so it is unknown how long the device has been idle since.
    double was = *rate;
    prompt(e, 11, 40, true);
    assert_true(*rate == was);
    clock_fake_advance(&time_of, 1000000);
    prompt(e, 12, 40, false);
    assert_true(*rate == was);
    prompt(e, 13, 33, false);
    assert_true(*rate != was);
    rate_is_the_devices(e);
    engine_close(e);
}

// A prompt whose first chunk ran beside copies is not measured.
static void test_chunks_behind_copies(void **state) {
    if (on_gpu()) skip();
    int32_t log[OLD + NEW];
    struct engine *e = opened_ahead();
    seed = 54;
    random_log(e, log, OLD + NEW);
    parked(e, log);
    prompt(e, 2, 40, false); // whatever was asked for is over
    struct engine_turn t = later(e, log, NEW);
    run_turn(e, &t, &out);
    assert_int_equal(out.source, CACHE_HOST);
    assert_int_equal(beside.n_loads, 1);
    assert_true(e->core.caches.tiers.prefill_rate == 1e-12);
    prompt(e, 2, 40, false);
    assert_true(e->core.caches.tiers.prefill_rate > 1e-12);
    engine_close(e);
}

int main(void) {
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_not_the_next_turns),
        cmocka_unit_test(test_not_before_it_came),
        cmocka_unit_test(test_prompts_in_chunks),
        cmocka_unit_test(test_chunks_behind_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
