// Steps of several groups of sessions under way at once (engine/run/flight.c): both stages
// really compute at the same time; turns that begin, end, fork, are cancelled, released and parked meanwhile have the
// bits of the same turn alone on one stage; a rank that is killed meanwhile ends all turns.
#include "tests/golden/tiers_world.h"

#include "base/log.h"
#include "engine/dist/comm.h"
#if PARLEY_MPI
#include "engine/dist/identity.h"
#include "engine/dist/mpi_wait.h"
#include <signal.h>
#include <time.h>

static const char *const model = "tests/fixtures/models/qwen3";

enum { SEQUENCES = 12, OPERATIONS = 3000, LOG = 256, SINKS = 4, TOGETHER = 8, LIMIT_S = 120 };

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

static bool flies(const struct engine *e) {
    return e->instance.flight.n > 0;
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
    int there = hold.engine->instance.flight.n < 2;
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

static struct player {
    uint64_t turn; // under way, or 0
    int32_t log[LOG], drawn[64];
    float logprobs[64];
    int64_t n_log, n_drawn;
    int32_t max_tokens, memory_len;
    bool draws; // at random, with penalties
} players[SEQUENCES];
static struct { int64_t done, compared, flights, changed, cancelled; } books;

static void shape(struct engine_turn *t, const struct player *p) {
    t->sampling.max_tokens = p->max_tokens;
    if (!p->draws) return;
    t->sampling.temperature = 1;
    t->sampling.repetition_penalty = 1.2f;
    t->sampling.has_seed = true;
    t->sampling.seed = (uint64_t)p->n_log;
}

static void compare(struct engine *calm, const struct player *p) {
    struct engine_turn t = turn_for(calm, 1, p->log, p->n_log, p->memory_len, SINKS);
    shape(&t, p);
    assert_same_alone(calm, &t, p->drawn, p->logprobs, p->n_drawn);
    books.compared++;
}

static void note(struct engine *calm, const struct engine_event *ev) {
    struct player *p = &players[ev->sequence - 1];
    if (ev->kind == ENGINE_TOKEN && ev->id >= 0) {
        p->logprobs[p->n_drawn] = ev->logprob;
        p->drawn[p->n_drawn++] = ev->id;
    }
    if (ev->kind != ENGINE_DONE) return;
    assert_true(ev->finish == FINISH_LENGTH || ev->finish == FINISH_CANCELLED);
    books.cancelled += ev->finish == FINISH_CANCELLED;
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
    if (p->n_log > LOG - 90) p->n_log = below(LOG - 90); // rewind
    int64_t n_input = 1 + below(24);
    random_log(e, p->log + p->n_log, n_input);
    p->n_log += n_input;
    p->memory_len = below(8) == 0 ? 24 : 56; // now and then the window changes
    p->draws = below(2);
    p->max_tokens = 12 + (int32_t)below(48);
    struct engine_turn t = turn_for(e, id, p->log, p->n_log, p->memory_len, SINKS);
    t.n_input = n_input;
    shape(&t, p);
    t.turn = next_turn++;
    t.share_group = id % 3;
    t.owner = id % 4;
    if (engine_turn_submit(e, &t, &err) < 0) { // full
        free(t.ids);
        p->n_log -= n_input;
        return;
    }
    p->n_drawn = 0;
    p->turn = t.turn;
}

// Also from a session whose turn is under way.
static void fork_one(struct engine *e, uint64_t id) {
    struct player *p = &players[id - 1];
    uint64_t from = 1 + below(SEQUENCES);
    const struct player *o = &players[from - 1];
    if (p->turn || from == id || o->n_log < 2) return;
    int64_t n = 1 + below((uint32_t)o->n_log);
    if (engine_sequence_fork(e, from, id, n) < 0) return; // it has a cache
    memcpy(p->log, o->log, (size_t)n * sizeof *p->log);
    p->n_log = n;
}

static void disturb(struct engine *e, uint64_t id) {
    switch (below(5)) {
    case 0:
        engine_turn_cancel(e, id, players[id - 1].turn);
        break;
    case 1:
        engine_sequence_release(e, id);
        break;
    case 2:
        engine_sequence_park(e, id);
        break;
    default:
        fork_one(e, id);
    }
}

static void walk(const char *dir, int tp, int pp, int64_t blocks, int64_t host_blocks) {
    divide(tp, pp);
    struct engine *e = tiered(dir, 16, blocks, host_blocks);
    e->instance.flight_rows = 2; // on GPUs, too
    divide(tp, 1);
    struct engine *calm = tiered(dir, 16, 100, 0);
    struct engine_event ev;
    bool over = false;
    memset(players, 0, sizeof players);
    memset(&books, 0, sizeof books);
    for (int op = 0; op < OPERATIONS || !over; op++) {
        uint64_t id = 1 + below(SEQUENCES);
        bool flew = flies(e), acts = op < OPERATIONS && below(8) == 0;
        if (op < OPERATIONS && below(3) == 0) start(e, id);
        if (acts) disturb(e, 1 + below(SEQUENCES));
        books.changed += acts && flew;
        assert_true(engine_round(e));
        books.flights += flies(e);
        while (engine_poll(e, &ev) == 1) note(calm, &ev);
        over = e->n_active[ENGINE_INTERACTIVE] == 0;
    }
    print_message(
        "%lld turns, %lld compared, %lld cancelled; %lld rounds with steps under way, %lld "
        "disturbed\n",
        (long long)books.done, (long long)books.compared, (long long)books.cancelled,
        (long long)books.flights, (long long)books.changed);
    assert_true(books.compared > 20 && books.flights > 100 && books.changed > 20 &&
                books.cancelled > 5);
    assert_int_equal(e->instance.sched.n_reserved, 0);
    assert_int_equal(e->lead.n_ahead, 0);
    engine_close(calm);
    engine_close(e);
}

static void test_two_stages(void **state) {
    seed = 5;
    walk(*state, 1, 2, 200, 300); // room for all
    walk(*state, 1, 2, 70, 300);  // caches leave the device and come back
    walk(*state, 1, 2, 70, 0);    // caches are dropped
}
static void test_three_stages(void **state) {
    if (strcmp(test_device(), "cpu")) skip(); // fewer GPUs are common
    seed = 7;
    walk(*state, 1, 3, 200, 300);
}
static void test_stages_of_two_ranks(void **state) {
    if (strcmp(test_device(), "cpu")) skip();
    seed = 9;
    walk(*state, 2, 2, 70, 300);
}

// --- a rank that ends ----------------------------------------------------------------------------

static void test_a_rank_is_killed(void **state) {
    struct engine_event ev;
    int n_done = 0;
    divide(1, 2);
    struct engine *e = engine_for(*state, 16, 8, 0);
    e->instance.flight_rows = 2;
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
