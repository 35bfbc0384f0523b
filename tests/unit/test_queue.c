// Queues: order, bounds, closing, wake-ups, and many threads at once (run it under the thread
// sanitizer).
#include "base/clock.h"
#include "base/err.h"
#include "base/queue.h"
#include "tests/cmocka.h"
#include <string.h>
#include <time.h>

struct item {
    int producer, number;
    char ballast[20];
};

static void count_wake(void *ctx) {
    __atomic_fetch_add((int *)ctx, 1, __ATOMIC_RELAXED);
}

static void first_in_first_out_around_the_ring(void **state) {
    struct queue q;
    int popped = 0, pushed = 0, v;
    assert_int_equal(queue_init(&q, sizeof(int), 3, NULL, NULL, NULL), 0);
    assert_int_equal(queue_try_pop(&q, &v), 0);
    for (int round = 0; round < 20; round++) {
        for (int k = 0; k < 1 + round % 3; k++, pushed++)
            assert_int_equal(queue_try_push(&q, &pushed), 0);
        assert_int_equal(queue_count(&q), pushed - popped);
        while (queue_try_pop(&q, &v)) assert_int_equal(v, popped++);
    }
    assert_int_equal(popped, pushed);
    queue_release(&q);
}

static void a_full_queue_is_an_answer(void **state) {
    struct queue q;
    queue_init(&q, sizeof(int), 2, NULL, NULL, NULL);
    int v = 1;
    assert_int_equal(queue_try_push(&q, &v), 0);
    assert_int_equal(queue_try_push(&q, &v), 0);
    assert_int_equal(queue_try_push(&q, &v), E_FULL);
    assert_int_equal(queue_try_pop(&q, &v), 1);
    assert_int_equal(queue_try_push(&q, &v), 0);
    queue_release(&q);
}

static void impossible_queues_are_refused(void **state) {
    struct queue q;
    struct err err;
    assert_int_equal(queue_init(&q, 0, 1, NULL, NULL, &err), E_INVAL);
    queue_release(&q);
    assert_int_equal(queue_init(&q, 1, 0, NULL, NULL, &err), E_INVAL);
    assert_int_equal(queue_init(&q, SIZE_MAX / 2, 8, NULL, NULL, &err), E_NOMEM);
    queue_release(&q);
}

static void closing_lets_the_rest_out(void **state) {
    struct queue q;
    int v = 7;
    queue_init(&q, sizeof v, 4, NULL, NULL, NULL);
    queue_try_push(&q, &v);
    queue_close(&q);
    assert_int_equal(queue_try_push(&q, &v), E_CLOSED);
    assert_int_equal(queue_push(&q, &v), E_CLOSED);
    v = 0;
    assert_int_equal(queue_pop(&q, &v, -1), 1);
    assert_int_equal(v, 7);
    assert_int_equal(queue_pop(&q, &v, -1), E_CLOSED);
    assert_int_equal(queue_pop(&q, &v, 0), E_CLOSED);
    assert_int_equal(queue_try_pop(&q, &v), 0);
    queue_release(&q);
}

static void waiting_ends_at_the_timeout(void **state) {
    struct queue q;
    int v;
    queue_init(&q, sizeof v, 1, NULL, NULL, NULL);
    int64_t start = clock_mono_us(&clock_system);
    assert_int_equal(queue_pop(&q, &v, 0), 0);
    assert_int_equal(queue_pop(&q, &v, 20000), 0);
    int64_t took = clock_mono_us(&clock_system) - start;
    assert_true(took >= 20000 && took < 10000000);
    queue_release(&q);
}

static void wake_comes_with_the_first_item(void **state) {
    struct queue q;
    int wakes = 0, v = 0;
    queue_init(&q, sizeof v, 2, count_wake, &wakes, NULL);
    queue_try_push(&q, &v);
    assert_int_equal(wakes, 1);
    queue_try_push(&q, &v);
    queue_try_push(&q, &v); // full
    assert_int_equal(wakes, 1);
    queue_try_pop(&q, &v);
    queue_try_push(&q, &v); // no wake-up: the consumer has not drained the queue yet
    assert_int_equal(wakes, 1);
    while (queue_try_pop(&q, &v)) {}
    queue_push(&q, &v);
    assert_int_equal(wakes, 2);
    queue_close(&q);
    assert_int_equal(wakes, 2);
    queue_release(&q);
}

static void several_go_in_together(void **state) {
    struct queue q;
    int wakes = 0, v, some[5] = {1, 2, 3, 4, 5};
    queue_init(&q, sizeof v, 4, count_wake, &wakes, NULL);
    assert_int_equal(queue_try_push_some(&q, some, 0), 0);
    assert_int_equal(wakes, 0);
    assert_int_equal(queue_try_push_some(&q, some, 3), 3);
    assert_int_equal(queue_try_push_some(&q, some + 3, 2), 1); // as far as there is room
    assert_int_equal(queue_try_push_some(&q, some + 4, 1), 0);
    assert_int_equal(wakes, 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(queue_try_pop(&q, &v), 1);
        assert_int_equal(v, some[i]);
    }
    assert_int_equal(queue_push_all(&q, some, 2), 0); // wraps around the end of the ring
    for (int i = 0; i < 4; i++) {
        assert_int_equal(queue_try_pop(&q, &v), 1);
        assert_int_equal(v, i < 2 ? some[i + 2] : some[i - 2]);
    }
    queue_close(&q);
    assert_int_equal(queue_try_push_some(&q, some, 2), E_CLOSED);
    assert_int_equal(queue_push_all(&q, some, 2), E_CLOSED);
    queue_release(&q);
}

// --- threads ---

#define N_PRODUCERS 4
#define N_EACH 5000

struct producer {
    struct queue *q;
    int number, refused;
    bool waits;
};

static void *produce(void *arg) {
    struct producer *p = arg;
    struct item item = {.producer = p->number};
    memset(item.ballast, p->number, sizeof item.ballast);
    for (item.number = 0; item.number < N_EACH;) {
        int rc = p->waits ? queue_push(p->q, &item) : queue_try_push(p->q, &item);
        if (rc == E_CLOSED) break;
        if (rc == E_FULL) {
            p->refused++;
            sched_yield();
        } else {
            item.number++;
        }
    }
    return NULL;
}

static void start(pthread_t *threads, struct producer *producers, struct queue *q) {
    for (int i = 0; i < N_PRODUCERS; i++) {
        producers[i] = (struct producer){.q = q, .number = i, .waits = i % 2};
        assert_int_equal(pthread_create(&threads[i], NULL, produce, &producers[i]), 0);
    }
}

static void check_next(int next[N_PRODUCERS], const struct item *item) {
    assert_in_range(item->producer, 0, N_PRODUCERS - 1);
    assert_int_equal(item->number, next[item->producer]++); // each producer's order is kept
    for (size_t k = 0; k < sizeof item->ballast; k++)       // and its items are whole
        assert_int_equal(item->ballast[k], item->producer);
}

static void nothing_is_lost_between_threads(void **state) {
    struct queue q;
    pthread_t threads[N_PRODUCERS];
    struct producer producers[N_PRODUCERS];
    int next[N_PRODUCERS] = {0};
    struct item item;
    queue_init(&q, sizeof item, 7, NULL, NULL, NULL);
    start(threads, producers, &q);
    for (int n = 0; n < N_PRODUCERS * N_EACH; n++) {
        assert_int_equal(queue_pop(&q, &item, n % 2 ? -1 : 60000000), 1);
        check_next(next, &item);
    }
    for (int i = 0; i < N_PRODUCERS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(queue_count(&q), 0);
    queue_release(&q);
}

static void *produce_all(void *arg) {
    static int numbers[1000];
    for (int i = 0; i < 1000; i++) numbers[i] = i;
    assert_int_equal(queue_push_all(arg, numbers, 1000), 0);
    return NULL;
}

static void all_of_them_wait_for_room(void **state) {
    struct queue q;
    pthread_t thread;
    int v;
    queue_init(&q, sizeof v, 7, NULL, NULL, NULL);
    assert_int_equal(pthread_create(&thread, NULL, produce_all, &q), 0);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(queue_pop(&q, &v, -1), 1);
        assert_int_equal(v, i);
    }
    pthread_join(thread, NULL);
    queue_release(&q);
}

// A consumer that, like an event loop, looks only when it was woken, and then drains.
struct waker {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    int pending;
};

static void wake_loop(void *ctx) {
    struct waker *w = ctx;
    pthread_mutex_lock(&w->mutex);
    w->pending++;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->mutex);
}

static void no_wake_up_is_lost(void **state) {
    struct waker w = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
    struct queue q;
    pthread_t threads[N_PRODUCERS];
    struct producer producers[N_PRODUCERS];
    int next[N_PRODUCERS] = {0}, n = 0;
    struct item item;
    queue_init(&q, sizeof item, 64, wake_loop, &w, NULL);
    start(threads, producers, &q);
    while (n < N_PRODUCERS * N_EACH) {
        struct timespec limit;
        clock_gettime(CLOCK_REALTIME, &limit);
        limit.tv_sec += 60;
        pthread_mutex_lock(&w.mutex);
        int waited = 0;
        while (w.pending == 0 && waited == 0)
            waited = pthread_cond_timedwait(&w.cond, &w.mutex, &limit);
        assert_true(w.pending > 0); // otherwise an item would wait without a wake-up
        w.pending = 0;              // coalesced
        pthread_mutex_unlock(&w.mutex);
        while (queue_try_pop(&q, &item)) {
            check_next(next, &item);
            n++;
        }
    }
    for (int i = 0; i < N_PRODUCERS; i++) pthread_join(threads[i], NULL);
    queue_release(&q);
}

static void closing_frees_waiting_producers(void **state) {
    struct queue q;
    pthread_t threads[N_PRODUCERS];
    struct producer producers[N_PRODUCERS];
    int next[N_PRODUCERS] = {0};
    struct item item;
    queue_init(&q, sizeof item, 3, NULL, NULL, NULL);
    start(threads, producers, &q);
    for (int n = 0; n < 100; n++) {
        assert_int_equal(queue_pop(&q, &item, -1), 1);
        check_next(next, &item);
    }
    queue_close(&q);
    for (int i = 0; i < N_PRODUCERS; i++) pthread_join(threads[i], NULL);
    int rc;
    while ((rc = queue_pop(&q, &item, -1)) == 1) check_next(next, &item);
    assert_int_equal(rc, E_CLOSED);
    queue_release(&q);
}

static void *close_later(void *arg) {
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    queue_close(arg);
    return NULL;
}

static void closing_frees_a_waiting_consumer(void **state) {
    struct queue q;
    pthread_t closer;
    int v;
    queue_init(&q, sizeof v, 1, NULL, NULL, NULL);
    pthread_create(&closer, NULL, close_later, &q);
    assert_int_equal(queue_pop(&q, &v, -1), E_CLOSED);
    pthread_join(closer, NULL);
    queue_release(&q);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_in_first_out_around_the_ring),
        cmocka_unit_test(a_full_queue_is_an_answer),
        cmocka_unit_test(impossible_queues_are_refused),
        cmocka_unit_test(closing_lets_the_rest_out),
        cmocka_unit_test(waiting_ends_at_the_timeout),
        cmocka_unit_test(wake_comes_with_the_first_item),
        cmocka_unit_test(several_go_in_together),
        cmocka_unit_test(all_of_them_wait_for_room),
        cmocka_unit_test(nothing_is_lost_between_threads),
        cmocka_unit_test(no_wake_up_is_lost),
        cmocka_unit_test(closing_frees_waiting_producers),
        cmocka_unit_test(closing_frees_a_waiting_consumer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
