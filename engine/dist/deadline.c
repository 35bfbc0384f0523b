// See deadline.h.
#include "engine/dist/deadline.h"
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static void *watch(void *arg) {
    struct deadline *d = arg;
    struct timespec until;
    int rc = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += d->us / 1000000 + 1;
    pthread_mutex_lock(&d->lock);
    while (!d->is_met && rc == 0)
        rc = pthread_cond_clockwait(&d->met, &d->lock, CLOCK_MONOTONIC, &until);
    if (!d->is_met) {
        fprintf(stderr, "parley: the other ranks have not come for %lld s\n",
                (long long)(d->us / 1000000));
        _exit(1);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

void deadline_begin(struct deadline *d, int64_t us) {
    *d = (struct deadline){
        .us = us, .lock = PTHREAD_MUTEX_INITIALIZER, .met = PTHREAD_COND_INITIALIZER};
    d->watched = pthread_create(&d->thread, NULL, watch, d) == 0;
}

void deadline_end(struct deadline *d) {
    if (!d->watched) return;
    pthread_mutex_lock(&d->lock);
    d->is_met = true;
    pthread_cond_signal(&d->met);
    pthread_mutex_unlock(&d->lock);
    pthread_join(d->thread, NULL);
}
