// Bounded queue between threads: a ring of items under one mutex. See queue.h.
#include "base/queue.h"
#include "base/err.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int queue_init(struct queue *q, size_t item_size, size_t capacity, void (*wake)(void *ctx),
               void *wake_ctx, struct err *err) {
    *q = (struct queue){
        .item_size = item_size, .capacity = capacity, .wake = wake, .wake_ctx = wake_ctx};
    if (item_size == 0 || capacity == 0)
        return err_set(err, E_INVAL, "a queue needs room for at least one item of one byte");
    size_t bytes;
    if (!__builtin_mul_overflow(capacity, item_size, &bytes)) q->items = malloc(bytes);
    if (!q->items)
        return err_set(err, E_NOMEM, "no memory for a queue of %zu items of %zu bytes", capacity,
                       item_size);
    pthread_mutex_init(&q->mutex, NULL);
    pthread_condattr_t monotonic; // timeouts must not depend on the wall clock
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&q->not_empty, &monotonic);
    pthread_cond_init(&q->not_full, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return 0;
}

void queue_release(struct queue *q) {
    if (!q->items) return;
    pthread_cond_destroy(&q->not_full);
    pthread_cond_destroy(&q->not_empty);
    pthread_mutex_destroy(&q->mutex);
    free(q->items);
    q->items = NULL;
}

static char *slot(struct queue *q, size_t i) {
    return q->items + (q->head + i) % q->capacity * q->item_size;
}

// Adds as many of n items as there is room for; returns how many, 0 when it is full, or E_CLOSED.
static int push(struct queue *q, const char *items, size_t n, bool wait) {
    pthread_mutex_lock(&q->mutex);
    while (wait && !q->closed && q->count == q->capacity)
        pthread_cond_wait(&q->not_full, &q->mutex);
    size_t room = q->closed ? 0 : q->capacity - q->count;
    bool closed = q->closed, was_empty = q->count == 0;
    if (n > room) n = room;
    for (size_t i = 0; i < n; i++)
        memcpy(slot(q, q->count++), items + i * q->item_size, q->item_size);
    if (n > 0 && was_empty)
        pthread_cond_signal(&q->not_empty); // one consumer: it drains the rest itself
    pthread_mutex_unlock(&q->mutex);
    // Outside the lock: the consumer may run at once on another core and need it.
    if (n > 0 && was_empty && q->wake) q->wake(q->wake_ctx);
    return closed ? E_CLOSED : (int)n;
}

int queue_try_push(struct queue *q, const void *item) {
    int n = push(q, item, 1, false);
    return n == 0 ? E_FULL : n < 0 ? n : 0;
}

int queue_push(struct queue *q, const void *item) {
    int n = push(q, item, 1, true);
    return n < 0 ? n : 0;
}

int queue_try_push_some(struct queue *q, const void *items, size_t n) {
    return push(q, items, n, false);
}

int queue_push_all(struct queue *q, const void *items, size_t n) {
    for (const char *at = items; n > 0;) {
        int some = push(q, at, n, true);
        if (some < 0) return some;
        at += (size_t)some * q->item_size;
        n -= (size_t)some;
    }
    return 0;
}

// With the mutex held and count > 0.
static void take_first(struct queue *q, void *item) {
    memcpy(item, slot(q, 0), q->item_size);
    q->head = (q->head + 1) % q->capacity;
    q->count--;
    pthread_cond_signal(&q->not_full);
}

int queue_try_pop(struct queue *q, void *item) {
    pthread_mutex_lock(&q->mutex);
    int got = q->count > 0;
    if (got) take_first(q, item);
    pthread_mutex_unlock(&q->mutex);
    return got;
}

static struct timespec deadline_after(int64_t us) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t ns = t.tv_nsec + us % 1000000 * 1000;
    t.tv_sec += (time_t)(us / 1000000 + ns / 1000000000);
    t.tv_nsec = (long)(ns % 1000000000);
    return t;
}

int queue_pop(struct queue *q, void *item, int64_t timeout_us) {
    struct timespec deadline = {0};
    if (timeout_us >= 0) deadline = deadline_after(timeout_us);
    int waited = 0;
    pthread_mutex_lock(&q->mutex);
    while (q->count == 0 && !q->closed && waited != ETIMEDOUT)
        waited = timeout_us < 0 ? pthread_cond_wait(&q->not_empty, &q->mutex)
                                : pthread_cond_timedwait(&q->not_empty, &q->mutex, &deadline);
    int rc = q->count > 0 ? 1 : q->closed ? E_CLOSED : 0;
    if (rc == 1) take_first(q, item);
    pthread_mutex_unlock(&q->mutex);
    return rc;
}

void queue_close(struct queue *q) {
    pthread_mutex_lock(&q->mutex);
    q->closed = true;
    pthread_cond_broadcast(&q->not_empty);
    pthread_cond_broadcast(&q->not_full);
    pthread_mutex_unlock(&q->mutex);
}

size_t queue_count(struct queue *q) {
    pthread_mutex_lock(&q->mutex);
    size_t n = q->count;
    pthread_mutex_unlock(&q->mutex);
    return n;
}
