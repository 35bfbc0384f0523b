// Bounded queue between threads: fixed-size items copied by value, many producers, one consumer.
// The only way that threads of Parley talk. A full queue is an answer (E_FULL), not a wait, on the
// net thread; the engine and store threads may wait for room, because the net thread never waits
// for them.
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

struct queue {
    pthread_mutex_t mutex;
    pthread_cond_t not_empty, not_full;
    char *items; // (capacity, item_size)
    size_t item_size, capacity, head, count;
    bool closed;
    void (*wake)(void *ctx); // may be NULL
    void *wake_ctx;
};

// wake, when given, is called on the producer's thread after an item went into an empty queue: the
// consumer must drain the queue on each wake-up (wake-ups coalesce).
int queue_init(struct queue *q, size_t item_size, size_t capacity, void (*wake)(void *ctx),
               void *wake_ctx, struct err *err);
// Items still inside are dropped: drain first if they own anything.
void queue_release(struct queue *q);

int queue_try_push(struct queue *q, const void *item); // 0, E_FULL or E_CLOSED
int queue_push(struct queue *q, const void *item);     // waits for room; 0 or E_CLOSED
// Several under one lock, in order, with one wake-up: a consumer of higher priority, woken by the
// first of them, would meet the producer at the lock for each of the others.
int queue_try_push_some(struct queue *q, const void *items, size_t n); // how many, or E_CLOSED
int queue_push_all(struct queue *q, const void *items, size_t n); // waits for room; 0, E_CLOSED
int queue_try_pop(struct queue *q, void *item);                   // 1 with an item, 0 when empty
// Waits up to timeout_us (negative: for ever). 1 with an item, 0 on timeout, E_CLOSED when closed
// and empty.
int queue_pop(struct queue *q, void *item, int64_t timeout_us);
// Wakes whoever waits in push or pop (`wake` is not called); what is inside can still be popped.
void queue_close(struct queue *q);
size_t queue_count(struct queue *q);
