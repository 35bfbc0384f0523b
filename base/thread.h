// Starts threads that leave signals to the threads which wait for them.
#pragma once
#include <pthread.h>

struct err;

// pthread_create, with every signal blocked in the new thread: the kernel may deliver a signal to any thread that does
// not block it. The caller joins or detaches it. Returns 0, or an errno, and then there is no thread.
int thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg);

// Says why the kernel refused a thread: rc is pthread_create's, which returns EAGAIN for three limits. what: the thread,
// as in "cannot start WHAT". Returns E_NOMEM.
int thread_refused(struct err *err, int rc, const char *what);
