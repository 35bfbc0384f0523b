// Threads stand for ranks: every rank gets the sum in rank order, whichever is late.
#include "base/err.h"
#include "engine/dist/host_sums.h"
#include "tests/cmocka.h"
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 300000, ROUNDS = 200, RANKS = 4 };

struct rank {
    pthread_t thread;
    struct host_sums sums;
    int n_wrong, rc;
};

static int patient(void *ctx, int64_t i) {
    sched_yield();
    return 0;
}

// Rounding makes the order of a sum show.
static float value(int32_t rank, int round, int64_t i) {
    return (float)((i * 7919 + round * 104729 + rank * 1299709) % 100003) *
           (rank % 2 ? 1e-3f : 1e3f);
}

static int64_t length(int round) { // mostly short, now and then longer than a slot
    return round % 50 == 49 ? MOST : 1 + round * 37 % 500;
}

static void *run(void *arg) {
    struct rank *r = arg;
    float *x = malloc(MOST * sizeof *x);
    for (int round = 0; x && round < ROUNDS; round++) {
        const int64_t n = length(round);
        for (int64_t i = 0; i < n; i++) x[i] = value(r->sums.me, round, i);
        for (int late = 0; late < (round + r->sums.me) % 7; late++) sched_yield();
        r->rc |= host_sums_run(&r->sums, x, n, patient, NULL);
        for (int64_t i = 0; i < n; i++) {
            float sum = value(0, round, i);
            for (int32_t k = 1; k < r->sums.n; k++) sum += value(k, round, i);
            r->n_wrong += memcmp(&sum, &x[i], sizeof sum) != 0;
        }
    }
    r->rc |= x ? 0 : E_NOMEM;
    free(x);
    return NULL;
}

static void all_ranks_have_the_sum_in_rank_order(void **state) {
    for (int32_t n = 2; n <= RANKS; n++) {
        struct rank ranks[RANKS] = {0};
        void *memory = calloc(1, host_sums_bytes(n));
        assert_non_null(memory);
        for (int32_t r = 0; r < n; r++) {
            host_sums_init(&ranks[r].sums, memory, n, r);
            assert_int_equal(pthread_create(&ranks[r].thread, NULL, run, &ranks[r]), 0);
        }
        for (int32_t r = 0; r < n; r++) {
            pthread_join(ranks[r].thread, NULL);
            assert_int_equal(ranks[r].rc, 0);
            assert_int_equal(ranks[r].n_wrong, 0);
        }
        free(memory);
    }
}

static int impatient(void *ctx, int64_t i) {
    return i < 10 ? 0 : E_DEVICE;
}

static void a_rank_that_never_comes_ends_the_wait(void **state) {
    struct host_sums s;
    float x[3] = {1, 2, 3};
    void *memory = calloc(1, host_sums_bytes(2));
    assert_non_null(memory);
    host_sums_init(&s, memory, 2, 1);
    assert_int_equal(host_sums_run(&s, x, 3, impatient, NULL), E_DEVICE);
    free(memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_have_the_sum_in_rank_order),
        cmocka_unit_test(a_rank_that_never_comes_ends_the_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
