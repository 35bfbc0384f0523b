// The engine's own thread: it serves, waits for room, stops, and sleeps when there is nothing to
// do.
#include "tests/random_walk.h"
#include "tests/unit/engine_fixture.h"
#include <time.h>
#include <unistd.h>

static int n_wakes;
static void count_wakes(void *ctx) {
    __atomic_fetch_add(&n_wakes, 1, __ATOMIC_RELAXED);
}

static int open_threaded(void **state) {
    struct engine_options o;
    struct err err = {0};
    metrics = metrics_new();
    options(&o);
    n_wakes = 0;
    o.wake = count_wakes;
    if (engine_open(&e, &o, &err) < 0) fail_msg("%s", err.text);
    return 0;
}

static void test_thread_serves_turns(void **state) {
    struct engine_event ev;
    int done = 0;
    static struct outcome outs[3];
    memset(outs, 0, sizeof outs);
    for (uint64_t s = 1; s <= 3; s++) {
        struct engine_turn t = prompt(s, 20);
        t.sampling.max_tokens = 10;
        submit(e, &t);
    }
    while (done < 3) {
        assert_int_equal(engine_wait(e, &ev, 20000000), 1);
        outcome_take(&outs[ev.sequence - 1], &ev);
        done += ev.kind == ENGINE_DONE;
    }
    assert_memory_equal(outs[0].ids, outs[1].ids, 10 * sizeof(int32_t));
    assert_memory_equal(outs[0].ids, outs[2].ids, 10 * sizeof(int32_t));
    assert_true(__atomic_load_n(&n_wakes, __ATOMIC_RELAXED) > 0);
    assert_int_equal(engine_wait(e, &ev, 1000), 0);
}

// Far more events occur than the queue holds while the owner does not poll: the engine waits, and
// no event is lost.
static void test_full_event_queue_loses_nothing(void **state) {
    struct engine_event ev;
    int64_t tokens = 0;
    int done = 0;
    for (uint64_t s = 1; s <= 4; s++) {
        struct engine_turn t = prompt(s, 4);
        t.sampling.max_tokens = 500;
        submit(e, &t);
    }
    while (queue_count(&e->events) < e->events.capacity) usleep(1000);
    while (done < 4) {
        assert_int_equal(engine_wait(e, &ev, 20000000), 1);
        tokens += ev.kind == ENGINE_TOKEN && ev.id >= 0;
        done += ev.kind == ENGINE_DONE;
    }
    assert_int_equal(tokens, 2000);
}

static void test_stop_ends_turns_and_tells(void **state) {
    struct engine_event ev;
    for (uint64_t s = 1; s <= 4; s++) { // two run, two wait
        struct engine_turn t = prompt(s, 4);
        submit(e, &t);
    }
    assert_int_equal(engine_wait(e, &ev, 20000000), 1);
    engine_stop(e);
    int done = 0;
    while (engine_wait(e, &ev, 20000000) == 1) {
        if (ev.kind != ENGINE_DONE) continue;
        assert_true(ev.finish == FINISH_SHUTDOWN || ev.finish == FINISH_LENGTH);
        done++;
    }
    assert_int_equal(done, 4);
}

static void test_close_with_turns_under_way(void **state) {
    for (uint64_t s = 1; s <= 4; s++) {
        struct engine_turn t = prompt(s, 4);
        t.sampling.max_tokens = 500;
        submit(e, &t);
    }
    while (queue_count(&e->events) < e->events.capacity) usleep(1000); // the thread waits for room
}

// The owner submits, cancels, releases and polls while the thread steps: every turn ends once,
// events are in order.
static void test_thread_under_random_operations(void **state) {
    enum { SEQUENCES = 6 };
    uint64_t under_way[SEQUENCES + 1] = {0}, next_turn = 1;
    int64_t submitted = 0, done = 0;
    struct engine_event ev;
    seed = 21;
    // The thread may rarely get a processor: continues until enough turns were accepted, then until
    // they end.
    for (int op = 0; op < 3000 || submitted <= 100 || done < submitted; op++) {
        uint64_t s = 1 + below(SEQUENCES);
        bool more = op < 3000 || submitted <= 100;
        uint32_t what = more ? below(4) : 3;
        if (what == 0 && !under_way[s]) {
            struct engine_turn t = prompt(s, 1 + below(40));
            struct err err = {0};
            t.turn = next_turn++;
            t.sampling.max_tokens = 1 + (int32_t)below(10);
            int rc = engine_turn_submit(e, &t, &err);
            if (rc < 0)
                free(t.ids);
            else
                under_way[s] = t.turn, submitted++;
        } else if (what == 1 && below(4) == 0) {
            engine_turn_cancel(e, s, under_way[s]);
        } else if (what == 2 && below(4) == 0) {
            engine_sequence_release(e, s);
        } else if (engine_wait(e, &ev, more ? 100 : 20000000) == 1 && ev.kind != ENGINE_RELEASED) {
            assert_int_equal(ev.turn, under_way[ev.sequence]);
            if (ev.kind != ENGINE_DONE) continue;
            assert_int_not_equal(ev.finish, FINISH_ERROR);
            under_way[ev.sequence] = 0;
            done++;
        }
    }
    assert_int_equal(done, submitted);
}

static void test_idle_engine_sleeps_and_is_alive(void **state) {
    struct engine_load before, after;
    clockid_t clock;
    struct timespec a, b;
    assert_int_equal(pthread_getcpuclockid(e->thread, &clock), 0);
    usleep(50000);
    int64_t used_us = 20000;
    for (int i = 0; i < 5 && used_us >= 20000; i++) { // a busy machine may still begin the thread
        engine_load(e, &before);
        clock_gettime(clock, &a);
        do { // a heartbeat comes each second, later where the machine is busy
            usleep(600000);
            engine_load(e, &after);
            clock_gettime(clock, &b);
        } while (after.heartbeat_us <= before.heartbeat_us);
        assert_int_equal(after.steps, before.steps);
        used_us = (b.tv_sec - a.tv_sec) * 1000000 + (b.tv_nsec - a.tv_nsec) / 1000;
    }
    assert_true(used_us < 20000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_thread_serves_turns, open_threaded, tear_down),
        cmocka_unit_test_setup_teardown(test_full_event_queue_loses_nothing, open_threaded,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_stop_ends_turns_and_tells, open_threaded, tear_down),
        cmocka_unit_test_setup_teardown(test_close_with_turns_under_way, open_threaded, tear_down),
        cmocka_unit_test_setup_teardown(test_thread_under_random_operations, open_threaded,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_idle_engine_sleeps_and_is_alive, open_threaded,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
