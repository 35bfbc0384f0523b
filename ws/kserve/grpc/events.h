// gRPC's completion queue as events of the net thread: a thread waits for the queue, puts what has
// completed on a list and rings the loop's bell; everything else happens on the net thread.
#pragma once
#include "ws/net/bell.h"
#include <grpc/grpc.h>
#include <pthread.h>

// What gRPC is given as a tag; part of the object that waits. One at a time is under way.
struct event {
    void (*done)(struct event *e, bool ok); // net thread; ok: the operation succeeded
    bool ok;
    struct event *next;
};

struct events {
    grpc_completion_queue *queue;
    struct bell bell;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t some;
    struct event *first, **last; // completed, in order; mutex
};

int events_open(struct events *v, uv_loop_t *loop, struct err *err);
// Calls done() of what has completed. With wait: waits for one, if none has.
void events_take(struct events *v, bool wait);
void events_stop(struct events *v); // nothing is under way any more: ends the queue and the thread
void events_release(struct events *v); // when the loop has closed its handles
