// A thread pool with ordered lanes. See workers.h.
//
// A lane exists while it has jobs. It is ready when it has a job to begin and none that runs. A group exists while
// it has lanes; those that are ready wait in it, in order. A worker takes the group whose turn it is, and runs the
// first job of its first lane. Lanes and groups are no more than jobs, so all are allocated when the pool is opened.
//
// It is the turn of the group with the fewest jobs that run; among equals, of the one that has waited longest since a
// job of it ended or, if none has, since it came. A group with a job that runs leaves the last free thread alone.
#include "base/workers.h"
#include "base/err.h"
#include "base/thread.h"
#include "base/thread_priority.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

struct group {
    uint64_t id;
    struct lane *first_ready, **last_ready;
    int n_lanes, n_running;
    uint64_t since;            // w->clock, when it came or a job of it ended
    struct group *prev, *next; // among those with lanes; next: among unused ones
};

struct lane {
    uint64_t id;
    struct group *group;
    struct work *first, **last; // not begun
    struct work *running;
    size_t n_jobs;             // not begun, running, or done() not called
    struct lane *next_ready;   // in its group
    struct lane *next_in_hash; // in its bucket, or in the list of unused lanes
};

struct workers {
    pthread_mutex_t mutex; // of everything below
    pthread_cond_t ready;
    pthread_t *threads; // (n_started)
    int n_threads, n_started, n_running;
    struct lane *lanes;       // (capacity)
    struct lane **buckets;    // (n_buckets)
    struct group *all_groups; // (capacity)
    size_t n_buckets, capacity, n_jobs;
    struct lane *unused;
    struct group *groups, *unused_groups;
    uint64_t clock;
    struct work *first_done, **last_done;
    bool closing;
    void (*wake)(void *ctx);
    void *wake_ctx;
};

// --- lanes ---

static struct lane **lane_place(struct workers *w, uint64_t id) {
    uint64_t mixed = (id ^ (id >> 32)) * UINT64_C(0x9e3779b97f4a7c15); // Fibonacci hashing
    struct lane **at = &w->buckets[(mixed >> 32) & (w->n_buckets - 1)];
    while (*at && (*at)->id != id) at = &(*at)->next_in_hash;
    return at;
}

static struct group *group_of(struct workers *w, uint64_t id) {
    struct group *g;
    LL_SEARCH_SCALAR(w->groups, g, id, id);
    if (g) return g;
    g = w->unused_groups;
    LL_DELETE(w->unused_groups, g);
    *g = (struct group){.id = id, .since = ++w->clock};
    g->last_ready = &g->first_ready;
    DL_APPEND(w->groups, g);
    return g;
}

static struct lane *lane_take(struct workers *w, uint64_t id, uint64_t group) {
    struct lane **at = lane_place(w, id);
    if (*at) return *at;
    struct lane *l = w->unused;
    w->unused = l->next_in_hash;
    *l = (struct lane){.id = id, .group = group_of(w, group)};
    l->last = &l->first;
    l->group->n_lanes++;
    return *at = l;
}

static void lane_drop_job(struct workers *w, uint64_t id) {
    struct lane **at = lane_place(w, id), *l = *at;
    if (--l->n_jobs > 0) return;
    *at = l->next_in_hash;
    l->next_in_hash = w->unused;
    w->unused = l;
    if (--l->group->n_lanes > 0) return;
    DL_DELETE(w->groups, l->group);
    LL_PREPEND(w->unused_groups, l->group);
}

static void lane_ready(struct workers *w, struct lane *l) {
    l->next_ready = NULL;
    *l->group->last_ready = l;
    l->group->last_ready = &l->next_ready;
    pthread_cond_signal(&w->ready);
}

// --- the workers' threads ---

// Whether one of the group's jobs may begin.
static bool is_next(const struct workers *w, const struct group *g) {
    bool takes_last = w->n_running + 1 == w->n_threads && !w->closing;
    return g->first_ready && !(takes_last && g->n_running > 0);
}

static struct lane *next_lane(struct workers *w) {
    struct group *next = NULL, *g;
    DL_FOREACH(w->groups, g) {
        if (!is_next(w, g)) continue;
        bool before = !next || g->n_running < next->n_running ||
                      (g->n_running == next->n_running && g->since < next->since);
        if (before) next = g;
    }
    if (!next) return NULL;
    struct lane *l = next->first_ready;
    next->first_ready = l->next_ready;
    if (!next->first_ready) next->last_ready = &next->first_ready;
    return l;
}

static struct lane *wait_for_lane(struct workers *w) {
    struct lane *l;
    while (!(l = next_lane(w)) && !w->closing) pthread_cond_wait(&w->ready, &w->mutex);
    return l;
}

static struct work *lane_begin(struct workers *w, struct lane *l) {
    struct work *job = l->first;
    l->first = job->next;
    if (!l->first) l->last = &l->first;
    l->group->n_running++;
    w->n_running++;
    return l->running = job;
}

// Returns whether the owner must be woken: it has nothing else to take.
static bool lane_end(struct workers *w, struct lane *l) {
    struct work *job = l->running;
    bool wake = !w->first_done;
    l->running = NULL;
    l->group->n_running--;
    l->group->since = ++w->clock;
    w->n_running--;
    job->next = NULL;
    *w->last_done = job;
    w->last_done = &job->next;
    if (l->first) lane_ready(w, l);
    return wake;
}

static void *work_on(void *ctx) {
    struct workers *w = ctx;
    struct lane *l;
    thread_run_behind();
    pthread_mutex_lock(&w->mutex);
    while ((l = wait_for_lane(w))) {
        struct work *job = lane_begin(w, l);
        pthread_mutex_unlock(&w->mutex);
        if (!work_cancelled(job)) job->run(job);
        pthread_mutex_lock(&w->mutex);
        if (!lane_end(w, l) || !w->wake) continue;
        pthread_mutex_unlock(&w->mutex);
        w->wake(w->wake_ctx);
        pthread_mutex_lock(&w->mutex);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

// --- the owner's thread ---

static int allocate(struct workers *w, struct err *err) {
    w->n_buckets = 1;
    while (w->n_buckets < w->capacity) w->n_buckets *= 2;
    w->lanes = calloc(w->capacity, sizeof *w->lanes);
    w->buckets = calloc(w->n_buckets, sizeof *w->buckets);
    w->all_groups = calloc(w->capacity, sizeof *w->all_groups);
    w->threads = calloc((size_t)w->n_threads, sizeof *w->threads);
    if (!w->lanes || !w->buckets || !w->all_groups || !w->threads)
        return err_set(err, E_NOMEM, "no memory for %zu jobs of worker threads", w->capacity);
    for (size_t i = 0; i < w->capacity; i++) {
        LL_PREPEND(w->unused_groups, &w->all_groups[i]);
        w->lanes[i].next_in_hash = w->unused;
        w->unused = &w->lanes[i];
    }
    return 0;
}

int workers_open(struct workers **out, int n_threads, size_t capacity, void (*wake)(void *ctx),
                 void *wake_ctx, struct err *err) {
    struct workers *w = calloc(1, sizeof *w);
    int rc = 0;
    if (!w) return err_set(err, E_NOMEM, "no memory for worker threads");
    *w = (struct workers){
        .n_threads = n_threads, .capacity = capacity, .wake = wake, .wake_ctx = wake_ctx};
    w->last_done = &w->first_done;
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->ready, NULL);
    rc = allocate(w, err);
    for (; rc == 0 && w->n_started < n_threads; w->n_started++) {
        int failed = pthread_create(&w->threads[w->n_started], NULL, work_on, w);
        if (failed) {
            rc = thread_refused(err, failed, "a worker thread");
            break;
        }
    }
    if (rc < 0)
        workers_close(w);
    else
        *out = w;
    return rc;
}

static void cancel_job(struct work *job) {
    __atomic_store_n(&job->cancelled, true, __ATOMIC_RELAXED);
}

static void cancel_lane(struct lane *l) {
    if (l->running) cancel_job(l->running);
    for (struct work *job = l->first; job; job = job->next) cancel_job(job);
}

void workers_close(struct workers *w) {
    if (!w) return;
    pthread_mutex_lock(&w->mutex);
    for (size_t i = 0; w->buckets && i < w->n_buckets; i++)
        for (struct lane *l = w->buckets[i]; l; l = l->next_in_hash) cancel_lane(l);
    w->closing = true;
    pthread_cond_broadcast(&w->ready);
    pthread_mutex_unlock(&w->mutex);
    for (int i = 0; i < w->n_started; i++) pthread_join(w->threads[i], NULL);
    workers_poll(w);
    pthread_cond_destroy(&w->ready);
    pthread_mutex_destroy(&w->mutex);
    free(w->threads);
    free(w->all_groups);
    free(w->buckets);
    free(w->lanes);
    free(w);
}

int workers_submit(struct workers *w, struct work *job) {
    int rc = E_FULL;
    job->next = NULL;
    job->cancelled = false;
    pthread_mutex_lock(&w->mutex);
    if (w->closing) rc = E_CLOSED;
    if (!w->closing && w->n_jobs < w->capacity) {
        struct lane *l = lane_take(w, job->lane, job->group);
        bool idle = !l->running && !l->first;
        *l->last = job;
        l->last = &job->next;
        l->n_jobs++;
        w->n_jobs++;
        if (idle) lane_ready(w, l);
        rc = 0;
    }
    pthread_mutex_unlock(&w->mutex);
    return rc;
}

static struct work *take_done(struct workers *w) {
    pthread_mutex_lock(&w->mutex);
    struct work *list = w->first_done;
    w->first_done = NULL;
    w->last_done = &w->first_done;
    pthread_mutex_unlock(&w->mutex);
    return list;
}

static void forget(struct workers *w, const struct work *job) {
    pthread_mutex_lock(&w->mutex);
    lane_drop_job(w, job->lane);
    w->n_jobs--;
    pthread_mutex_unlock(&w->mutex);
}

int workers_poll(struct workers *w) {
    struct work *list = take_done(w);
    int n = 0;
    for (struct work *next; list; list = next, n++) {
        next = list->next;
        forget(w, list);
        list->done(list);
    }
    return n;
}

void workers_cancel(struct workers *w, uint64_t lane) {
    pthread_mutex_lock(&w->mutex);
    struct lane *l = *lane_place(w, lane);
    if (l) cancel_lane(l);
    pthread_mutex_unlock(&w->mutex);
}

size_t workers_outstanding(struct workers *w, uint64_t lane) {
    pthread_mutex_lock(&w->mutex);
    struct lane *l = *lane_place(w, lane);
    size_t n = l ? l->n_jobs : 0;
    pthread_mutex_unlock(&w->mutex);
    return n;
}

bool work_cancelled(const struct work *job) {
    return __atomic_load_n(&job->cancelled, __ATOMIC_RELAXED);
}
