// See thread.h.
#include "base/thread.h"
#include <signal.h>

int thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg) {
    sigset_t all, old; // a thread inherits its creator's mask
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}
