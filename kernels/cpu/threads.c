// Persistent worker pool.
//
// A job's items are divided between the workers: each has a range of them, the same in every job
// with as many items. The caches near a worker therefore hold what it read in the step before. Two
// cores of one machine may share no cache and be some hundred nanoseconds apart. For the same
// reason a worker touches no cache line of another while it has items of its own.
//
// A worker that has finished its range steals items of the others, but not at once: a worker that
// only began later will process them itself, one whose core was taken away will not.
//
// One 64-bit word, `claim`, holds a range: the job's generation, the end and the next item. A claim
// is therefore one fetch_add, and a worker that wakes late can never take an item of a finished
// job, because the word itself names the job. The caller waits for items, not for workers: a worker
// that slept through a job does not delay it.
#include "kernels/cpu/threads.h"
#include "base/cgroup.h"
#include "base/thread.h"
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// claim: generation (22 bits) | end (21 bits) | next (21 bits). `next` may run past the end by one
// for each worker, hence a bit more than THREADS_MAX_ITEMS needs.
enum { FIELD_BITS = 21, GENERATION_SHIFT = 42 };
#define FIELD_MASK ((UINT64_C(1) << FIELD_BITS) - 1)

enum { STEAL_AFTER_NS = 3000 };

struct worker {
    _Alignas(64) _Atomic uint64_t claim; // its range of the job
    _Alignas(64) _Atomic uint32_t done;  // items that it has finished, of all jobs
    struct threads *pool;
    pthread_t thread;
    int index;
};

struct threads {
    _Alignas(64) threads_fn *fn; // of the current job; unchanged while an item of it is unfinished
    void *ctx;
    _Alignas(64) _Atomic uint32_t finished; // the caller may sleep on it
    _Atomic uint32_t caller_waits;
    _Alignas(64) _Atomic uint32_t wake; // futex that idle workers sleep on
    _Atomic int32_t sleepers;
    _Atomic bool stop;
    _Alignas(64) uint64_t generation;
    int64_t spin_ns;
    uint32_t given; // items of all jobs
    int n, n_started;
    struct worker workers[]; // [0] is the caller's
};

static void futex_wait(_Atomic uint32_t *word, uint32_t seen) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int how_many) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, how_many, NULL, NULL, 0);
}

static int64_t now_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool claimable(uint64_t claim) {
    return (claim & FIELD_MASK) < ((claim >> FIELD_BITS) & FIELD_MASK);
}

static bool has_items(const struct worker *w) {
    return claimable(atomic_load_explicit(&w->claim, memory_order_relaxed));
}

// Claims and runs items of `of` until none is left. Reads before it adds, so that `next` cannot
// grow without bound.
static void run_items(struct threads *t, struct worker *me, struct worker *of) {
    while (claimable(atomic_load_explicit(&of->claim, memory_order_acquire))) {
        uint64_t mine = atomic_fetch_add_explicit(&of->claim, 1, memory_order_acq_rel);
        if (!claimable(mine)) return;
        t->fn(t->ctx, (int)(mine & FIELD_MASK), me->index);
        // The caller announces that it waits and then counts; we count and then check whether it
        // waits. Both are sequentially consistent, so one of the two sees the other.
        atomic_store(&me->done, me->done + 1);
        if (me->index == 0 || !atomic_load(&t->caller_waits)) continue;
        atomic_fetch_add(&t->finished, 1);
        futex_wake(&t->finished, 1);
    }
}

// A worker that has items left, or NULL.
static struct worker *behind(struct threads *t, const struct worker *me) {
    for (int i = 1; i < t->n; i++) {
        struct worker *w = &t->workers[(me->index + i) % t->n];
        if (has_items(w)) return w;
    }
    return NULL;
}

static void work(struct threads *t, struct worker *me) {
    run_items(t, me, me);
    struct worker *of = behind(t, me);
    if (!of) return;
    for (int64_t until = now_ns() + STEAL_AFTER_NS; now_ns() < until;) {
        for (int i = 0; i < 8; i++) relax(); // each read slows the other's next claim
        if (has_items(me)) return;           // the next job
        if (!has_items(of) && !(of = behind(t, me))) return;
    }
    for (; of; of = behind(t, me)) run_items(t, me, of);
}

// Waits for an item to claim: spins, then sleeps.
static void wait_for_work(struct threads *t, struct worker *me) {
    int64_t until = now_ns() + t->spin_ns;
    do {
        for (int i = 0; i < 64; i++) {
            if (has_items(me) || atomic_load_explicit(&t->stop, memory_order_relaxed)) return;
            relax();
        }
    } while (now_ns() < until);
    // The caller publishes and then reads `sleepers`; we count ourselves and then check again, so
    // one of the two sees the other. (Otherwise the caller would run our items itself.)
    uint32_t seen = atomic_load(&t->wake);
    atomic_fetch_add(&t->sleepers, 1);
    if (!claimable(atomic_load(&me->claim)) && !atomic_load(&t->stop)) futex_wait(&t->wake, seen);
    atomic_fetch_sub(&t->sleepers, 1);
}

static void *worker_main(void *arg) {
    struct worker *w = arg;
    struct threads *t = w->pool;
    pthread_setname_np(pthread_self(), "parley-worker");
    while (!atomic_load(&t->stop)) {
        work(t, w);
        wait_for_work(t, w);
    }
    return NULL;
}

static void wake_sleepers(struct threads *t) {
    if (atomic_load(&t->sleepers) == 0) return;
    atomic_fetch_add(&t->wake, 1);
    futex_wake(&t->wake, INT_MAX);
}

static bool all_done(const struct threads *t) {
    uint32_t done = 0;
    for (int i = 0; i < t->n; i++) done += atomic_load(&t->workers[i].done);
    return done == t->given;
}

// Other workers run the last items: spin, then sleep if they take long (their core was taken away).
static void wait_until_done(struct threads *t) {
    if (all_done(t)) return;
    int64_t until = now_ns() + t->spin_ns;
    do {
        for (int i = 0; i < 32; i++) {
            if (all_done(t)) return;
            relax();
        }
    } while (now_ns() < until);
    atomic_store(&t->caller_waits, 1);
    for (;;) {
        uint32_t seen = atomic_load(&t->finished);
        if (all_done(t)) break;
        futex_wait(&t->finished, seen);
    }
    atomic_store(&t->caller_waits, 0);
}

void threads_for(struct threads *t, int n_items, threads_fn *fn, void *ctx) {
    if (n_items <= 1 || t->n == 1) {
        for (int i = 0; i < n_items; i++) fn(ctx, i, 0);
        return;
    }
    t->fn = fn;
    t->ctx = ctx;
    t->given += (uint32_t)n_items;
    uint64_t generation = ++t->generation << GENERATION_SHIFT;
    // The caller's own range last: it cannot begin before.
    for (int i = t->n - 1; i >= 0; i--) {
        uint64_t first = (uint64_t)n_items * (uint64_t)i / (uint64_t)t->n,
                 end = (uint64_t)n_items * (uint64_t)(i + 1) / (uint64_t)t->n,
                 claim = generation | end << FIELD_BITS | first;
        if (i == 0)
            atomic_store(&t->workers[i].claim, claim);
        else if (first < end)
            atomic_store_explicit(&t->workers[i].claim, claim, memory_order_release);
    }
    wake_sleepers(t);
    work(t, &t->workers[0]);
    wait_until_done(t);
}

int threads_count(const struct threads *t) {
    return t->n;
}

void threads_free(struct threads *t) {
    if (!t) return;
    atomic_store(&t->stop, true);
    atomic_fetch_add(&t->wake, 1);
    futex_wake(&t->wake, INT_MAX);
    for (int i = 1; i <= t->n_started; i++) pthread_join(t->workers[i].thread, NULL);
    free(t);
}

int threads_new(struct threads **out, int n, struct err *err) {
    *out = NULL;
    size_t bytes = (sizeof(struct threads) + (size_t)n * sizeof(struct worker) + 63) & ~(size_t)63;
    struct threads *t = aligned_alloc(64, bytes);
    if (!t) return err_set(err, E_NOMEM, "out of memory for %d workers", n);
    *t = (struct threads){.n = n};
    for (int i = 0; i < n; i++) t->workers[i] = (struct worker){.pool = t, .index = i};
    // If each worker has a core, a long spin bridges the gaps inside a step. With fewer cores,
    // spinning takes the core from the worker that it waits for.
    t->spin_ns = n <= cgroup_processors() ? 100000 : 2000;
    for (int i = 1; i < n; i++) {
        int rc = pthread_create(&t->workers[i].thread, NULL, worker_main, &t->workers[i]);
        if (rc != 0) {
            threads_free(t);
            return thread_refused(err, rc, "a worker thread of the CPU (threads)");
        }
        t->n_started++;
    }
    *out = t;
    return 0;
}
