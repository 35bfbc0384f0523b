// The worker pool: every item runs exactly once, jobs follow one another safely, idle workers
// sleep.
#include "kernels/cpu/threads.h"
#include "tests/cmocka.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct tally {
    _Atomic int *count;
    int n_workers;
    _Atomic int bad_worker;
};

static void count_item(void *ctx, int item, int worker) {
    struct tally *t = ctx;
    if (worker < 0 || worker >= t->n_workers) atomic_store(&t->bad_worker, 1);
    atomic_fetch_add(&t->count[item], 1);
}

// Many short jobs of all sizes, so that workers wake late, early and in the middle.
static void test_each_item_once(void **state) {
    for (int n = 1; n <= 5; n += 2) {
        struct threads *t;
        assert_int_equal(threads_new(&t, n, NULL), 0);
        assert_int_equal(threads_count(t), n);
        for (int job = 0; job < 3000; job++) {
            _Atomic int count[64];
            int items = job % 64;
            for (int i = 0; i < 64; i++) atomic_init(&count[i], 0);
            struct tally tally = {count, n, 0};
            threads_for(t, items, count_item, &tally);
            for (int i = 0; i < 64; i++) assert_int_equal(atomic_load(&count[i]), i < items);
            assert_int_equal(atomic_load(&tally.bad_worker), 0);
            if (job % 500 == 0) usleep(1000); // workers fall asleep
        }
        threads_free(t);
    }
}

static void test_largest_job(void **state) {
    struct threads *t;
    assert_int_equal(threads_new(&t, 3, NULL), 0);
    _Atomic int *count = calloc(THREADS_MAX_ITEMS, sizeof *count);
    struct tally tally = {count, 3, 0};
    threads_for(t, THREADS_MAX_ITEMS, count_item, &tally);
    for (int i = 0; i < THREADS_MAX_ITEMS; i++) assert_int_equal(atomic_load(&count[i]), 1);
    threads_free(t);
    free(count);
}

// If a worker is held up in its first item, the caller takes the rest of that worker's items.
struct held {
    _Atomic int done;
    int n_items;
    _Atomic int gave_up;
};

static void hold_workers(void *ctx, int item, int worker) {
    struct held *h = ctx;
    const time_t until = time(NULL) + 20;
    while (worker != 0 && atomic_load(&h->done) < h->n_items - 1 && !atomic_load(&h->gave_up))
        if (time(NULL) > until) atomic_store(&h->gave_up, 1);
    atomic_fetch_add(&h->done, 1);
}

static void test_held_up(void **state) {
    struct threads *t;
    assert_int_equal(threads_new(&t, 2, NULL), 0);
    for (int job = 0; job < 200; job++) {
        struct held h = {0, 2 + job % 14, 0};
        threads_for(t, h.n_items, hold_workers, &h);
        assert_int_equal(atomic_load(&h.done), h.n_items);
        assert_int_equal(atomic_load(&h.gave_up), 0);
    }
    threads_free(t);
}

static double cpu_seconds(void) {
    struct timespec ts;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static void test_idle_workers_sleep(void **state) {
    struct threads *t;
    assert_int_equal(threads_new(&t, 4, NULL), 0);
    double used = 1;
    for (int i = 0; i < 50 && used >= 0.02; i++) { // until the workers have stopped spinning
        double before = cpu_seconds();
        usleep(200000);
        used = cpu_seconds() - before;
    }
    assert_true(used < 0.02);
    threads_free(t);
}

static void test_free_null(void **state) {
    threads_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_item_once), cmocka_unit_test(test_largest_job),
        cmocka_unit_test(test_held_up),        cmocka_unit_test(test_idle_workers_sleep),
        cmocka_unit_test(test_free_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
