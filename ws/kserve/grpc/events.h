// Brings the events of gRPC's completion queue to the net thread: a thread of its own waits for the queue,
// appends completed operations to a list and rings the loop's bell. All else happens on the net thread.
#pragma once
#include "ws/net/bell.h"
#include <grpc/grpc.h>
#include <pthread.h>

// The tag of an operation; part of the object that waits for it. It serves one operation at a time.
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

// Starts the thread. On an error the caller still calls events_release. E_NOMEM, E_IO.
int events_open(struct events *v, uv_loop_t *loop, struct err *err);
// Calls done() of each completed operation. With wait: waits for one if none has completed.
void events_take(struct events *v, bool wait);
void events_stop(struct events *v); // once no operation is pending: ends the queue and the thread
void events_release(struct events *v); // when the loop has closed its handles
