// See thread.h.
#include "base/thread.h"
#include "base/err.h"
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

int thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg) {
    sigset_t all, old; // a thread inherits its creator's mask
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}

static size_t stack_bytes(void) {
    pthread_attr_t attr;
    size_t bytes = 0;
    pthread_attr_init(&attr); // with the default size
    pthread_attr_getstacksize(&attr, &bytes);
    pthread_attr_destroy(&attr);
    return bytes;
}

static bool stack_fits(size_t bytes) {
    void *stack = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED) return false;
    munmap(stack, bytes);
    return true;
}

int thread_refused(struct err *err, int rc, const char *what) {
    size_t bytes = stack_bytes();
    if (rc == EAGAIN && !stack_fits(bytes))
        return err_set(
            err, E_NOMEM,
            "cannot start %s: no memory for its stack of %zu KiB: raise the limit of the "
            "process's memory (ulimit -v), or lower that of stacks (ulimit -s)",
            what, bytes >> 10);
    if (rc == EAGAIN)
        return err_set(err, E_NOMEM,
                       "cannot start %s: too many threads: raise the limit of the user (ulimit -u) "
                       "or of the container (pids.max)",
                       what);
    return err_set(err, E_NOMEM, "cannot start %s: %s", what, strerror(rc));
}
