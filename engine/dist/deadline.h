// A time limit for MPI calls, which cannot be interrupted: when it is past, a thread ends the process with a
// sentence and status 1.
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct deadline {
    int64_t us;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t met;
    bool is_met, watched;
};
// d is to stay where it is until deadline_end. If no thread can be started, nothing watches the call.
void deadline_begin(struct deadline *d, int64_t us);
void deadline_end(struct deadline *d); // the call returned in time
