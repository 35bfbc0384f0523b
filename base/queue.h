// Bounded queue between threads: fixed-size items copied by value, many producers, one consumer.
// Threads of Parley exchange messages through these queues only. On the net thread a full queue is
// an error (E_FULL), never a wait; the engine and store threads may wait for room, because the net
// thread never waits for them.
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

// wake, if not NULL, is called on the producer's thread after an item was added to an empty queue.
// Wake-ups coalesce: the consumer must drain the queue on each one.
int queue_init(struct queue *q, size_t item_size, size_t capacity, void (*wake)(void *ctx),
               void *wake_ctx, struct err *err);
// Drops the remaining items: drain the queue first if they own anything.
void queue_release(struct queue *q);

int queue_try_push(struct queue *q, const void *item); // 0, E_FULL or E_CLOSED
int queue_push(struct queue *q, const void *item);     // waits for room; 0 or E_CLOSED
// Adds several items in order under one lock, with one wake-up. (With a lock for each item, the first
// one would wake the consumer, which would then contend for the lock with the others.)
int queue_try_push_some(struct queue *q, const void *items, size_t n); // how many, or E_CLOSED
int queue_push_all(struct queue *q, const void *items, size_t n); // waits for room; 0, E_CLOSED
int queue_try_pop(struct queue *q, void *item);                   // 1 with an item, 0 when empty
// Waits up to timeout_us (negative: without limit). 1 with an item, 0 on timeout, E_CLOSED when
// closed and empty.
int queue_pop(struct queue *q, void *item, int64_t timeout_us);
// Wakes the threads that wait in push or pop (`wake` is not called). The remaining items can still
// be popped.
void queue_close(struct queue *q);
size_t queue_count(struct queue *q);
