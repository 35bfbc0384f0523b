// See parallel.h.
#include "base/parallel.h"
#include "base/cgroup.h"
#include "base/thread.h"
#include <stdbool.h>
#include <time.h>

enum { MOST = 16, IDLE_MS = 200 };

// A call: its ranges, of which the first `taken` are done or under way.
struct work {
    parallel_fn *fn;
    void *ctx;
    int64_t n;
    int count, taken, done;
    struct work *next;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t came, finished; // work came; a call's last range was finished
    struct work *first;            // the calls whose ranges are not all taken
    int threads, idle;             // of these, threads that wait for work
    int processors;                // that the process may use, while there are threads
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER,
          .came = PTHREAD_COND_INITIALIZER,
          .finished = PTHREAD_COND_INITIALIZER};

static void remove_work(struct work *w) {
    struct work **at = &pool.first;
    while (*at != w) at = &(*at)->next;
    *at = w->next;
}

// With the lock, which is open while the range runs.
static void run_range(struct work *w) {
    const int i = w->taken++;
    const int64_t each = w->n / w->count, first = each * i;
    if (w->taken == w->count) remove_work(w);
    pthread_mutex_unlock(&pool.lock);
    w->fn(w->ctx, first, i == w->count - 1 ? w->n - first : each);
    pthread_mutex_lock(&pool.lock);
    if (++w->done == w->count) pthread_cond_broadcast(&pool.finished);
}

static bool wait_for_work(void) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += IDLE_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    int rc = 0;
    pool.idle++;
    while (!pool.first && rc == 0)
        rc = pthread_cond_clockwait(&pool.came, &pool.lock, CLOCK_MONOTONIC, &until);
    pool.idle--;
    return pool.first != NULL;
}

static void *help(void *arg) {
    (void)arg;
    pthread_mutex_lock(&pool.lock);
    while (wait_for_work()) run_range(pool.first);
    pool.threads--;
    pthread_mutex_unlock(&pool.lock);
    return NULL;
}

// As many threads as there are ranges for them, if the kernel gives them.
static void call_threads(int ranges) {
    for (int i = 0; i < ranges && i < pool.idle; i++) pthread_cond_signal(&pool.came);
    for (int more = ranges - pool.idle; more > 0 && pool.threads < MOST - 1; more--) {
        pthread_t thread;
        if (thread_start(&thread, help, NULL) != 0) return;
        pthread_detach(thread);
        pool.threads++;
    }
}

void parallel_ranges(int64_t n, int64_t least, parallel_fn *fn, void *ctx) {
    const int64_t most = least > 0 ? n / least : n;
    if (most < 2) { // most reads are a few bytes long
        if (n > 0) fn(ctx, 0, n);
        return;
    }
    pthread_mutex_lock(&pool.lock);
    if (pool.threads == 0) pool.processors = cgroup_processors();
    struct work w = {fn, ctx, n, pool.processors < MOST ? pool.processors : MOST, 0, 0, pool.first};
    if (most < w.count) w.count = (int)most;
    pool.first = &w;
    call_threads(w.count - 1);
    while (w.taken < w.count) run_range(&w);
    while (w.done < w.count) pthread_cond_wait(&pool.finished, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}
