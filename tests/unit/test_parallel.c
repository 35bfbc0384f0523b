// Every element once, whatever the length; several threads at once where there is enough to do.
#include "base/parallel.h"
#include "tests/cmocka.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

enum { MOST = 5000 };
static _Atomic int touched[MOST], calls;

static void touch(void *ctx, int64_t first, int64_t n) {
    calls++;
    if (n < *(int64_t *)ctx) touched[first] = 100; // too short
    for (int64_t i = first; i < first + n; i++) touched[i]++;
}

static void covers_everything_once(void **state) {
    for (int64_t n = 1; n < MOST; n = n * 2 + 3)
        for (int64_t least = 1; least <= n; least = least * 3 + 1) {
            for (int i = 0; i < MOST; i++) touched[i] = 0;
            calls = 0;
            parallel_ranges(n, least, touch, &least);
            for (int i = 0; i < n; i++) assert_int_equal(touched[i], 1);
            for (int64_t i = n; i < MOST; i++) assert_int_equal(touched[i], 0);
            assert_in_range(calls, 1, 16);
        }
}

static void too_little_for_two_runs_here(void **state) {
    int64_t least = 1;
    for (int i = 0; i < MOST; i++) touched[i] = 0;
    calls = 0;
    parallel_ranges(10, 6, touch, &least);
    assert_int_equal(calls, 1);
    assert_int_equal(touched[9], 1);
}

struct sum {
    _Atomic int64_t of;
    bool nested;
};

static void add(void *ctx, int64_t first, int64_t n) {
    struct sum *sum = ctx, inner = {0};
    if (sum->nested) {
        parallel_ranges(n, 1, add, &inner);
        assert_int_equal(inner.of, n * (n - 1) / 2);
    }
    for (int64_t i = first; i < first + n; i++) sum->of += i;
}

static void *call_often(void *arg) {
    for (int64_t n = 1; n < 400; n++) {
        struct sum sum = {.nested = n % 50 == 0};
        parallel_ranges(n, 1, add, &sum);
        assert_int_equal(sum.of, n * (n - 1) / 2);
    }
    return arg;
}

static void several_threads_call_at_once(void **state) {
    pthread_t threads[6];
    for (int i = 0; i < 6; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, call_often, NULL), 0);
    for (int i = 0; i < 6; i++) pthread_join(threads[i], NULL);
}

// Threads end when nothing has come for a while, and the next call has new ones.
static void a_call_after_a_pause(void **state) {
    call_often(NULL);
    nanosleep(&(struct timespec){.tv_nsec = 400000000}, NULL);
    call_often(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(covers_everything_once),
        cmocka_unit_test(too_little_for_two_runs_here),
        cmocka_unit_test(several_threads_call_at_once),
        cmocka_unit_test(a_call_after_a_pause),
    };
    return cmocka_run_group_tests_name("parallel", tests, NULL, NULL);
}
