// Persistent worker pool.
//
// One 64-bit word, `claim`, holds the job's generation, its number of items and the next item, so
// that claiming is one fetch_add and a worker that wakes late can never take an item of a job that
// is over: whatever it claims, it claims from the job that the word itself describes. The caller
// waits for items, not for workers; a worker that slept through a job is not waited for.
#include "kernels/cpu/threads.h"
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// claim: generation (22 bits) | n_items (21 bits) | next (21 bits). `next` may run past n_items by
// one for each worker, hence a bit more than THREADS_MAX_ITEMS needs.
enum { FIELD_BITS = 21, GENERATION_SHIFT = 42 };
#define FIELD_MASK ((UINT64_C(1) << FIELD_BITS) - 1)

struct worker {
    struct threads *pool;
    pthread_t thread;
    int index;
};

struct threads {
    _Alignas(64) _Atomic uint64_t claim;
    threads_fn *fn; // of the current job; stable while any of its items is unfinished
    void *ctx;
    _Alignas(64) _Atomic uint32_t done; // items finished; the caller may sleep on it
    _Atomic uint32_t caller_waits;
    _Alignas(64) _Atomic uint32_t wake; // futex that idle workers sleep on
    _Atomic int32_t sleepers;
    _Atomic bool stop;
    uint64_t generation;
    int64_t spin_ns;
    int n, n_started;
    struct worker workers[];
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

// Claims and runs items until none is left. Looks before it adds, so that `next` cannot run away.
static void work(struct threads *t, int worker) {
    while (claimable(atomic_load_explicit(&t->claim, memory_order_acquire))) {
        uint64_t mine = atomic_fetch_add_explicit(&t->claim, 1, memory_order_acq_rel);
        if (!claimable(mine)) return;
        uint32_t n_items = (uint32_t)((mine >> FIELD_BITS) & FIELD_MASK);
        t->fn(t->ctx, (int)(mine & FIELD_MASK), worker);
        uint32_t finished = atomic_fetch_add(&t->done, 1) + 1;
        if (finished == n_items && worker != 0 && atomic_load(&t->caller_waits))
            futex_wake(&t->done, 1);
    }
}

// Waits until there is something to claim: spins, then sleeps.
static void wait_for_work(struct threads *t) {
    int64_t until = now_ns() + t->spin_ns;
    do {
        for (int i = 0; i < 64; i++) {
            if (claimable(atomic_load_explicit(&t->claim, memory_order_relaxed)) ||
                atomic_load_explicit(&t->stop, memory_order_relaxed))
                return;
            relax();
        }
    } while (now_ns() < until);
    // The caller publishes and then reads `sleepers`; we count ourselves and then look again. Both
    // are sequentially consistent, so one of the two sees the other.
    uint32_t seen = atomic_load(&t->wake);
    atomic_fetch_add(&t->sleepers, 1);
    if (!claimable(atomic_load(&t->claim)) && !atomic_load(&t->stop)) futex_wait(&t->wake, seen);
    atomic_fetch_sub(&t->sleepers, 1);
}

static void *worker_main(void *arg) {
    struct worker *w = arg;
    struct threads *t = w->pool;
    while (!atomic_load(&t->stop)) {
        work(t, w->index);
        wait_for_work(t);
    }
    return NULL;
}

static void wake_sleepers(struct threads *t) {
    if (atomic_load(&t->sleepers) == 0) return;
    atomic_fetch_add(&t->wake, 1);
    futex_wake(&t->wake, INT_MAX);
}

// The last items run elsewhere: spin for them, and sleep if they take long (their core was taken
// away).
static void wait_until_done(struct threads *t, uint32_t n_items) {
    int64_t until = now_ns() + t->spin_ns;
    uint32_t done;
    while ((done = atomic_load_explicit(&t->done, memory_order_acquire)) < n_items) {
        if (now_ns() < until) {
            for (int i = 0;
                 i < 32 && atomic_load_explicit(&t->done, memory_order_relaxed) < n_items; i++)
                relax();
            continue;
        }
        atomic_store(&t->caller_waits, 1);
        done = atomic_load(&t->done);
        if (done < n_items) futex_wait(&t->done, done);
        atomic_store(&t->caller_waits, 0);
    }
}

void threads_for(struct threads *t, int n_items, threads_fn *fn, void *ctx) {
    if (n_items <= 1 || t->n == 1) {
        for (int i = 0; i < n_items; i++) fn(ctx, i, 0);
        return;
    }
    t->fn = fn;
    t->ctx = ctx;
    atomic_store_explicit(&t->done, 0, memory_order_relaxed);
    t->generation++;
    atomic_store(&t->claim, t->generation << GENERATION_SHIFT | (uint64_t)n_items << FIELD_BITS);
    wake_sleepers(t);
    work(t, 0);
    wait_until_done(t, (uint32_t)n_items);
}

int threads_count(const struct threads *t) {
    return t->n;
}

void threads_free(struct threads *t) {
    if (!t) return;
    atomic_store(&t->stop, true);
    atomic_fetch_add(&t->wake, 1);
    futex_wake(&t->wake, INT_MAX);
    for (int i = 0; i < t->n_started; i++) pthread_join(t->workers[i].thread, NULL);
    free(t);
}

static int n_cores(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    return CPU_COUNT(&set);
}

int threads_new(struct threads **out, int n, struct err *err) {
    *out = NULL;
    size_t bytes = (sizeof(struct threads) + (size_t)n * sizeof(struct worker) + 63) & ~(size_t)63;
    struct threads *t = aligned_alloc(64, bytes);
    if (!t) return err_set(err, E_NOMEM, "out of memory for %d workers", n);
    *t = (struct threads){.n = n};
    // With a core for each worker a long spin bridges the gaps inside a step; with fewer, spinning
    // takes the core from the worker that it waits for.
    t->spin_ns = n <= n_cores() ? 100000 : 2000;
    for (int i = 0; i < n - 1; i++) {
        t->workers[i] = (struct worker){.pool = t, .index = i + 1};
        int rc = pthread_create(&t->workers[i].thread, NULL, worker_main, &t->workers[i]);
        if (rc != 0) {
            threads_free(t);
            errno = rc;
            return err_errno(err, "cannot start worker thread %d of %d", i + 1, n);
        }
        t->n_started++;
    }
    *out = t;
    return 0;
}
