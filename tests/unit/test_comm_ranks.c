// Two ranks that are processes of this test, over MPI: what a stage sends leaves it while it goes on, and is
// received in order; what the leader sends ahead it need not wait for.
#include "engine/dist/comm.h"
#include "tests/cmocka.h"
#include <stdlib.h>
#include <string.h>

enum {
    FLOATS = 1 << 19, // too many for a buffer of the MPI library, and for a copy
    MESSAGES = 20,
    FEW = 1 << 17, // copied when they are sent
    PLANS = 40,
    PLAN_BYTES = 1 << 16, // too large for a buffer of the MPI library
};

static const int64_t limit_us = 60 * 1000 * 1000;

static float value(int message, int i) {
    return (float)(message * 1000 + i % 997);
}

// Few floats may change as soon as they are sent. Waiting for the others does not wait for these.
static int send_few(struct comm *c, float *x) {
    int rc = 0;
    for (int m = 0; rc == 0 && m < MESSAGES; m++) {
        for (int i = 0; i < FEW; i++) x[i] = value(m, i);
        rc = c->ops->send(c, NULL, x, FEW, 1);
    }
    return rc < 0 ? rc : c->ops->sent(c, true);
}

// Each plan as it was when it was sent.
static int take_plans(struct comm *c, char *bytes) {
    int rc = 0;
    for (int p = 0; rc == 0 && p < PLANS; p++) {
        rc = c->ops->broadcast(c, bytes, PLAN_BYTES, COMM_IDLE);
        if (rc == 0 && (bytes[0] != (char)p || bytes[PLAN_BYTES - 1] != (char)p)) rc = E_INVAL;
    }
    return rc;
}

// The first stage: sends all before the last stage has asked for any, says so, then waits.
static int follow(void) {
    struct comm *c = NULL;
    struct err err = {0};
    char mine = 1, all[2];
    float *x = calloc((size_t)FLOATS * MESSAGES, sizeof *x);
    int rc = x ? comm_follow(&c, limit_us, &err) : E_NOMEM;
    if (rc == 0) rc = comm_split(c, 1, 2, limit_us, &err);
    for (int m = 0; rc == 0 && m < MESSAGES; m++) {
        float *of = x + (size_t)m * FLOATS;
        for (int i = 0; i < FLOATS; i++) of[i] = value(m, i);
        // More than sixteen wait for room, so half of them.
        if (m == MESSAGES / 2) rc = c->ops->exchange(c, &mine, all, 1);
        if (rc == 0) rc = c->ops->send(c, NULL, of, FLOATS, 1);
        if (rc == 0) rc = c->ops->sent(c, false);
    }
    if (rc == 0) rc = c->ops->sent(c, true);
    memset(x, 0, (size_t)FLOATS * MESSAGES * sizeof *x); // nothing reads it any more
    if (rc == 0) rc = c->ops->exchange(c, &mine, all, 1);
    if (rc == 0) rc = send_few(c, x);
    // The leader has sent all of its plans before this rank asks for the first.
    if (rc == 0) rc = c->ops->exchange(c, &mine, all, 1);
    if (rc == 0) rc = take_plans(c, (char *)x);
    if (rc == 0) rc = c->ops->exchange(c, &mine, all, 1);
    free(x);
    return rc < 0;
}

static void a_stage_goes_on_while_the_next_is_busy(void **state) {
    struct comm *c = NULL;
    struct err err = {0};
    const struct comm_options o = {.tp_size = 1, .pp_size = 2, .timeout_us = limit_us};
    char mine = 0, all[2];
    float *x = calloc(FLOATS, sizeof *x);
    assert_non_null(x);
    assert_int_equal(comm_open(&c, &o, &err), 0);
    assert_int_equal(comm_split(c, 1, 2, limit_us, &err), 0);
    // The other rank has sent half of its messages, none of which was asked for.
    assert_int_equal(c->ops->exchange(c, &mine, all, 1), 0);
    for (int m = 0; m < MESSAGES; m++) {
        assert_int_equal(c->ops->recv(c, NULL, x, FLOATS, 0), 0);
        for (int i = 0; i < FLOATS; i += 101)
            if (x[i] != value(m, i)) fail_msg("message %d differs at %d", m, i);
    }
    assert_int_equal(c->ops->exchange(c, &mine, all, 1), 0);
    // The other rank may be past its wait, and none of these was asked for.
    char *plan = (char *)x;
    for (int p = 0; p < PLANS; p++) {
        memset(plan, p, PLAN_BYTES);
        assert_int_equal(c->ops->broadcast(c, plan, PLAN_BYTES, COMM_AHEAD), 0);
    }
    assert_int_equal(c->ops->exchange(c, &mine, all, 1), 0);
    for (int m = 0; m < MESSAGES; m++) {
        assert_int_equal(c->ops->recv(c, NULL, x, FEW, 0), 0);
        for (int i = 0; i < FEW; i += 101)
            if (x[i] != value(m, i)) fail_msg("copied message %d differs at %d", m, i);
    }
    assert_int_equal(c->ops->exchange(c, &mine, all, 1), 0);
    free(x);
}

static void without_mpi_ranks_are_refused(void **state) {
    struct comm *c = NULL;
    struct err err = {0};
    const struct comm_options o = {.tp_size = 1, .pp_size = 2, .timeout_us = limit_us};
    assert_int_equal(comm_open(&c, &o, &err), E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "without MPI"));
}

int main(int argc, char **argv) {
    const struct CMUnitTest with[] = {cmocka_unit_test(a_stage_goes_on_while_the_next_is_busy)};
    const struct CMUnitTest without[] = {cmocka_unit_test(without_mpi_ranks_are_refused)};
    if (argc > 1 && strcmp(argv[1], "rank") == 0) return follow();
    return comm_mpi_version() ? cmocka_run_group_tests(with, NULL, NULL)
                              : cmocka_run_group_tests(without, NULL, NULL);
}
