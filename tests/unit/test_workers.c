// Worker threads: order within a lane, turns between lanes, cancelling, bounds, the end (run it
// under the thread sanitizer).
#include "base/err.h"
#include "base/workers.h"
#include "tests/cmocka.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N_LANES = 7, N_JOBS = 300 };

// A gate that holds workers until the test opens it.
static pthread_mutex_t gate_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_changed = PTHREAD_COND_INITIALIZER;
static bool gate_open;
static int n_at_gate;

static void gate_set(bool open) {
    pthread_mutex_lock(&gate_mutex);
    gate_open = open;
    if (!open) n_at_gate = 0;
    pthread_cond_broadcast(&gate_changed);
    pthread_mutex_unlock(&gate_mutex);
}

static void gate_pass(void) {
    pthread_mutex_lock(&gate_mutex);
    n_at_gate++;
    pthread_cond_broadcast(&gate_changed);
    while (!gate_open) pthread_cond_wait(&gate_changed, &gate_mutex);
    pthread_mutex_unlock(&gate_mutex);
}

static void gate_wait_for(int n) {
    pthread_mutex_lock(&gate_mutex);
    while (n_at_gate < n) pthread_cond_wait(&gate_changed, &gate_mutex);
    pthread_mutex_unlock(&gate_mutex);
}

struct job {
    struct work work;
    int number, ran_as; // ran_as: how many had begun before, -1: not run
    bool gated, saw_cancel;
};

static struct workers *pool;
static int n_begun;              // atomic
static int running[N_LANES + 1]; // atomic: jobs of the lane that run now
static struct job *done_jobs[N_JOBS * 2];
static int n_done;

static void run(struct work *w) {
    struct job *j = (struct job *)w;
    assert_int_equal(__atomic_fetch_add(&running[w->lane], 1, __ATOMIC_SEQ_CST), 0);
    j->ran_as = __atomic_fetch_add(&n_begun, 1, __ATOMIC_SEQ_CST);
    if (j->gated) gate_pass();
    j->saw_cancel = work_cancelled(w);
    __atomic_fetch_sub(&running[w->lane], 1, __ATOMIC_SEQ_CST);
}

static void run_anywhere(struct work *w) {
    ((struct job *)w)->ran_as = __atomic_fetch_add(&n_begun, 1, __ATOMIC_SEQ_CST);
}

static void run_at_gate(struct work *w) {
    run_anywhere(w);
    gate_pass();
}

static void done(struct work *w) {
    done_jobs[n_done++] = (struct job *)w;
}

static void job_init(struct job *j, uint64_t lane, int number, bool gated) {
    *j = (struct job){.work = {.lane = lane, .run = run, .done = done},
                      .number = number,
                      .ran_as = -1,
                      .gated = gated};
}

static void setup(int n_threads, size_t capacity, void (*wake)(void *), void *ctx) {
    n_begun = n_done = 0;
    gate_set(false);
    assert_int_equal(workers_open(&pool, n_threads, capacity, wake, ctx, NULL), 0);
}

static void poll_until(int n) {
    while (n_done < n) {
        if (workers_poll(pool) > 0) continue;
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
}

static void a_lane_keeps_its_order(void **state) {
    static struct job jobs[N_JOBS];
    int next[N_LANES] = {0};
    setup(4, N_JOBS, NULL, NULL);
    for (int i = 0; i < N_JOBS; i++) {
        job_init(&jobs[i], (uint64_t)(i % N_LANES), i / N_LANES, false);
        assert_int_equal(workers_submit(pool, &jobs[i].work), 0);
    }
    poll_until(N_JOBS);
    for (int i = 0; i < N_JOBS; i++) {
        struct job *j = done_jobs[i];
        assert_int_equal(j->number, next[j->work.lane]++);
        assert_true(j->ran_as >= 0);
    }
    for (int l = 0; l < N_LANES; l++) assert_int_equal(workers_outstanding(pool, (uint64_t)l), 0);
    workers_close(pool);
}

static void a_long_lane_does_not_delay_a_short_one(void **state) {
    static struct job first, many[50], one;
    setup(1, 64, NULL, NULL);
    job_init(&first, 0, 0, true);
    workers_submit(pool, &first.work);
    gate_wait_for(1);
    for (int i = 0; i < 50; i++) {
        job_init(&many[i], 1, i, false);
        workers_submit(pool, &many[i].work);
    }
    job_init(&one, 2, 0, false);
    workers_submit(pool, &one.work);
    assert_int_equal(workers_outstanding(pool, 1), 50);
    gate_set(true);
    poll_until(52);
    assert_int_equal(one.ran_as, 2); // behind `first` and one job of the long lane
    workers_close(pool);
}

static void many_lanes_of_a_group_do_not_delay_another_one(void **state) {
    static struct job first, many[50][2], others[3];
    setup(1, 128, NULL, NULL);
    job_init(&first, 0, 0, true);
    workers_submit(pool, &first.work);
    gate_wait_for(1);
    for (int i = 0; i < 50; i++) {
        for (int k = 0; k < 2; k++) {
            job_init(&many[i][k], 100 + (uint64_t)i, i, false);
            many[i][k].work.group = 1;
            many[i][k].work.run = run_anywhere;
            workers_submit(pool, &many[i][k].work);
        }
    }
    for (int i = 0; i < 3; i++) { // two lanes of a second group, one of a third
        job_init(&others[i], 1 + (uint64_t)i, i, false);
        others[i].work.group = i < 2 ? 2 : 3;
        workers_submit(pool, &others[i].work);
    }
    gate_set(true);
    poll_until(104);
    assert_int_equal(others[0].ran_as, 2);
    assert_int_equal(others[2].ran_as, 3);
    assert_int_equal(others[1].ran_as, 5);
    for (int i = 0; i < 50; i++) {
        assert_true(many[i][0].ran_as < many[i][1].ran_as);
        if (i > 0) assert_true(many[i - 1][0].ran_as < many[i][0].ran_as); // lanes in turn
    }
    workers_close(pool);
}

// Though the other group came first, and has had jobs ready all the time.
static void a_new_group_waits_for_one_job_at_most(void **state) {
    static struct job many[50], other;
    setup(1, 64, NULL, NULL);
    for (int i = 0; i < 50; i++) {
        job_init(&many[i], (uint64_t)(i % N_LANES), i, i == 0);
        workers_submit(pool, &many[i].work);
    }
    gate_wait_for(1);
    job_init(&other, N_LANES, 0, false);
    other.work.group = 1;
    workers_submit(pool, &other.work);
    gate_set(true);
    poll_until(51);
    assert_int_equal(other.ran_as, 1);
    workers_close(pool);
}

static void one_group_leaves_a_thread_free(void **state) {
    static struct job many[50], others[2];
    setup(3, 64, NULL, NULL);
    for (int i = 0; i < 50; i++) {
        job_init(&many[i], 10 + (uint64_t)i, i, true);
        many[i].work.run = run_at_gate;
        workers_submit(pool, &many[i].work);
    }
    gate_wait_for(2);
    for (int i = 0; i < 2; i++) { // one after the other, while the gate is closed
        job_init(&others[i], 1, i, false);
        others[i].work.group = 1;
        workers_submit(pool, &others[i].work);
        poll_until(i + 1);
        assert_int_equal(others[i].ran_as, 2 + i); // behind two of the many
    }
    gate_set(true);
    poll_until(52);
    workers_close(pool);
}

static void a_cancelled_lane_does_not_run(void **state) {
    static struct job running_job, waiting, other;
    setup(1, 8, NULL, NULL);
    job_init(&running_job, 1, 0, true);
    job_init(&waiting, 1, 1, false);
    job_init(&other, 2, 0, false);
    workers_submit(pool, &running_job.work);
    gate_wait_for(1);
    workers_submit(pool, &waiting.work);
    workers_submit(pool, &other.work);
    workers_cancel(pool, 1);
    workers_cancel(pool, 99); // a lane without jobs
    gate_set(true);
    poll_until(3);
    assert_true(running_job.saw_cancel);
    assert_int_equal(waiting.ran_as, -1);
    assert_true(waiting.work.cancelled);
    assert_true(other.ran_as >= 0);
    assert_false(other.work.cancelled);
    workers_close(pool);
}

static void a_full_pool_is_an_answer(void **state) {
    static struct job jobs[3];
    setup(1, 2, NULL, NULL);
    for (int i = 0; i < 3; i++) job_init(&jobs[i], (uint64_t)i, i, i == 0);
    assert_int_equal(workers_submit(pool, &jobs[0].work), 0);
    assert_int_equal(workers_submit(pool, &jobs[1].work), 0);
    assert_int_equal(workers_submit(pool, &jobs[2].work), E_FULL);
    gate_set(true);
    poll_until(2);
    assert_int_equal(workers_submit(pool, &jobs[2].work), 0);
    poll_until(3);
    workers_close(pool);
}

static struct job follow_up;
static void done_and_submit(struct work *w) {
    done(w);
    job_init(&follow_up, 1, 1, false);
    assert_int_equal(workers_submit(pool, &follow_up.work), 0); // its place is free already
}

static void done_may_submit(void **state) {
    static struct job job;
    setup(1, 1, NULL, NULL);
    job_init(&job, 1, 0, false);
    job.work.done = done_and_submit;
    workers_submit(pool, &job.work);
    poll_until(2);
    assert_ptr_equal(done_jobs[1], &follow_up);
    workers_close(pool);
}

static void closing_answers_every_job(void **state) {
    static struct job jobs[20];
    int n_run = 0;
    setup(2, 32, NULL, NULL);
    for (int i = 0; i < 20; i++) {
        job_init(&jobs[i], (uint64_t)(i % 2), i, i < 2);
        jobs[i].work.group = jobs[i].work.lane;
        workers_submit(pool, &jobs[i].work);
    }
    gate_wait_for(2);
    workers_cancel(pool, 1);
    gate_set(true);
    workers_close(pool);
    assert_int_equal(n_done, 20);
    for (int i = 0; i < 20; i++) n_run += jobs[i].ran_as >= 0;
    assert_in_range(n_run, 2, 11); // the two that ran, and at most the rest of lane 0
    workers_close(NULL);
}

static void count_wake(void *ctx) {
    __atomic_fetch_add((int *)ctx, 1, __ATOMIC_SEQ_CST);
}

static void wakes_once_for_what_waits_together(void **state) {
    static struct job jobs[5];
    int n_wakes = 0;
    setup(1, 8, count_wake, &n_wakes);
    for (int i = 0; i < 5; i++) {
        job_init(&jobs[i], 1, i, i == 4);
        workers_submit(pool, &jobs[i].work);
    }
    gate_wait_for(1); // the first four have ended, and nothing has been polled
    assert_int_equal(__atomic_load_n(&n_wakes, __ATOMIC_SEQ_CST), 1);
    assert_int_equal(workers_poll(pool), 4);
    gate_set(true);
    while (__atomic_load_n(&n_wakes, __ATOMIC_SEQ_CST) < 2)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    assert_int_equal(workers_poll(pool), 1);
    workers_close(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lane_keeps_its_order),
        cmocka_unit_test(a_long_lane_does_not_delay_a_short_one),
        cmocka_unit_test(many_lanes_of_a_group_do_not_delay_another_one),
        cmocka_unit_test(a_new_group_waits_for_one_job_at_most),
        cmocka_unit_test(one_group_leaves_a_thread_free),
        cmocka_unit_test(a_cancelled_lane_does_not_run),
        cmocka_unit_test(a_full_pool_is_an_answer),
        cmocka_unit_test(done_may_submit),
        cmocka_unit_test(closing_answers_every_job),
        cmocka_unit_test(wakes_once_for_what_waits_together),
    };
    return cmocka_run_group_tests_name("workers", tests, NULL, NULL);
}
