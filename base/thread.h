// Starts threads that leave signals to the threads which wait for them.
#pragma once
#include <pthread.h>

// pthread_create, with every signal blocked in the new thread: the kernel may deliver a signal to any thread that does
// not block it. The caller joins the thread. Returns 0, or an errno, and then there is no thread.
int thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg);
