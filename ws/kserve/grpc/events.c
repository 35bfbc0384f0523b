// The completion queue's thread. See events.h.
#include "ws/kserve/grpc/events.h"
#include "base/thread.h"

static void *run(void *arg) {
    struct events *v = arg;
    for (;;) {
        grpc_event e =
            grpc_completion_queue_next(v->queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
        if (e.type == GRPC_QUEUE_SHUTDOWN) return NULL;
        if (e.type != GRPC_OP_COMPLETE) continue;
        struct event *event = e.tag;
        event->ok = e.success;
        event->next = NULL;
        pthread_mutex_lock(&v->mutex);
        *v->last = event;
        v->last = &event->next;
        pthread_cond_signal(&v->some);
        pthread_mutex_unlock(&v->mutex);
        bell_ring(&v->bell);
    }
}

static void on_bell(void *ctx) {
    events_take(ctx, false);
}

int events_open(struct events *v, uv_loop_t *loop, struct err *err) {
    *v = (struct events){.last = &v->first, .bell.fd = -1};
    pthread_mutex_init(&v->mutex, NULL);
    pthread_cond_init(&v->some, NULL);
    v->queue = grpc_completion_queue_create_for_next(NULL);
    TRY(bell_open(&v->bell, loop, on_bell, v, err));
    int rc = pthread_create(&v->thread, NULL, run, v);
    return rc == 0 ? 0 : thread_refused(err, rc, "the thread of gRPC");
}

void events_take(struct events *v, bool wait) {
    pthread_mutex_lock(&v->mutex);
    while (wait && !v->first) pthread_cond_wait(&v->some, &v->mutex);
    struct event *e = v->first, *next;
    v->first = NULL;
    v->last = &v->first;
    pthread_mutex_unlock(&v->mutex);
    for (; e; e = next) {
        next = e->next; // done() may free it
        e->done(e, e->ok);
    }
}

void events_stop(struct events *v) {
    grpc_completion_queue_shutdown(v->queue);
    pthread_join(v->thread, NULL);
    grpc_completion_queue_destroy(v->queue);
}

void events_release(struct events *v) {
    bell_close(&v->bell);
    pthread_mutex_destroy(&v->mutex);
    pthread_cond_destroy(&v->some);
}
