// Steps of several groups of sessions under way at once (engine/run/flight.c): both stages
// really compute at the same time; turns that begin, end, fork, are cancelled, released and parked meanwhile have the
// bits of the same turn alone on one stage; a rank that is killed meanwhile ends all turns.
#include "tests/golden/flight_walk.h"

#include "base/log.h"
#include "engine/dist/comm.h"
#if PARLEY_MPI
#include "engine/dist/identity.h"
#include "engine/dist/mpi_wait.h"
#include <signal.h>
#include <time.h>

static const char *const model = "tests/fixtures/models/qwen3";

enum { TOGETHER = 8, LIMIT_S = 120 };

static struct mpi_comm *comm_of(const struct engine *e) {
    return (struct mpi_comm *)e->lead.comm;
}

// TOGETHER turns that draw n tokens each.
static void start_together(struct engine *e, int32_t n) {
    int32_t log[24];
    seed = 3;
    for (uint64_t id = 1; id <= TOGETHER; id++) {
        random_log(e, log, 24);
        struct engine_turn t = turn_for(e, id, log, 24, 56, SINKS);
        t.sampling.max_tokens = n;
        submit(e, &t);
    }
}

// --- both stages at once -------------------------------------------------------------------------

static struct {
    const struct backend_ops *ops; // the device's own
    const struct engine *engine;
    int held; // steps that waited for the other stage
} hold;

// The leader ends a step only when the stage before has computed its part of the next one, whose activations then
// wait here. If the other rank began that step later, they would never come.
static int launch_late(struct backend *be) {
    struct timespec now, nap = {0, 100000};
    const int64_t began = time(NULL);
    int there = hold.engine->core.flight.n < 2;
    hold.held += !there;
    while (!there) {
        MPI_Iprobe(1, 0, comm_of(hold.engine)->world, &there, MPI_STATUS_IGNORE);
        clock_gettime(CLOCK_REALTIME, &now);
        if (now.tv_sec - began > LIMIT_S) return E_DEVICE;
        nanosleep(&nap, NULL);
    }
    return hold.ops->step_launch(be);
}

static void test_both_stages_compute_at_once(void **state) {
    static struct backend_ops late;
    struct engine_event ev;
    int n_done = 0;
    if (strcmp(test_device(), "cpu")) skip(); // activations of GPUs go another way
    divide(1, 2);
    struct engine *e = engine_for(*state, 16, 8, 0);
    hold.ops = e->backend->ops;
    hold.engine = e;
    late = *hold.ops;
    late.step_launch = launch_late;
    e->backend->ops = &late;
    start_together(e, 40);
    while (n_done < TOGETHER) {
        assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1) {
            if (ev.kind != ENGINE_DONE) continue;
            assert_int_equal(ev.finish, FINISH_LENGTH);
            n_done++;
        }
    }
    print_message("%d steps ended while the other stage had computed the next\n", hold.held);
    assert_true(hold.held > 40);
    e->backend->ops = hold.ops;
    engine_close(e);
}

// --- anything in any order -----------------------------------------------------------------------

static void walk_stages(const char *dir, int tp, int pp, int64_t blocks, int64_t host_blocks) {
    divide(tp, pp);
    struct engine *e = tiered(dir, 16, blocks, host_blocks);
    e->core.flight_rows = 2; // on GPUs, too
    divide(tp, 1);
    struct engine *calm = tiered(dir, 16, 100, 0);
    walk(e, calm, 1);
    engine_close(calm);
    engine_close(e);
}

static void test_two_stages(void **state) {
    seed = 5;
    walk_stages(*state, 1, 2, 200, 300); // room for all
    walk_stages(*state, 1, 2, 70, 300);  // caches leave the device and come back
    walk_stages(*state, 1, 2, 70, 0);    // caches are dropped
}
static void test_three_stages(void **state) {
    if (strcmp(test_device(), "cpu")) skip(); // fewer GPUs are common
    seed = 7;
    walk_stages(*state, 1, 3, 200, 300);
}
static void test_stages_of_two_ranks(void **state) {
    if (strcmp(test_device(), "cpu")) skip();
    seed = 9;
    walk_stages(*state, 2, 2, 70, 300);
}

// --- a rank that ends ----------------------------------------------------------------------------

static void test_a_rank_is_killed(void **state) {
    struct engine_event ev;
    int n_done = 0;
    divide(1, 2);
    struct engine *e = engine_for(*state, 16, 8, 0);
    e->core.flight_rows = 2;
    start_together(e, 60);
    while (!flies(e)) assert_true(engine_round(e));
    log_set_level(LOG_OFF);
    kill(comm_of(e)->ranks[1].pid, SIGKILL);
    while (engine_round(e)) continue;
    log_set_level(LOG_ERROR);
    assert_false(flies(e));
    while (engine_poll(e, &ev) == 1) {
        if (ev.kind != ENGINE_DONE) continue;
        assert_int_equal(ev.finish, FINISH_ERROR);
        assert_int_equal(ev.error_code, E_DEVICE);
        n_done++;
    }
    assert_int_equal(n_done, TOGETHER);
    engine_close(e);
}

#define TEST(f)                                                                                    \
    { #f, f, NULL, NULL, (void *)model }
int main(void) {
    log_set_level(LOG_ERROR);
    signal(SIGPIPE, SIG_IGN); // as in the program: MPI may write to a rank that is gone
    const struct CMUnitTest tests[] = {
        TEST(test_both_stages_compute_at_once),
        TEST(test_two_stages),
        TEST(test_three_stages),
        TEST(test_stages_of_two_ranks),
        TEST(test_a_rank_is_killed), // last: MPI does not work afterwards
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

static void test_without_mpi(void **state) {
    skip();
}
int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_without_mpi)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
