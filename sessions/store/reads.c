// See reads.h.
#include "sessions/store/reads.h"
#include "base/err.h"
#include "base/queue.h"
#include "base/thread.h"
#include "base/thread_priority.h"
#include "sessions/store/lock.h"
#include "sessions/store/read.h"
#include "sessions/store/watch.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

#define FULL_PAUSE_US 1000

struct waiting {
    struct store_job *job;
    uint64_t after;
    struct waiting *prev, *next;
};
struct lane { // one owner's reads; it is gone when they are
    char *owner;
    struct waiting *jobs;
    size_t n;
    struct lane *prev, *next;
};
struct reads {
    struct store_db db;
    struct queue *answers;
    const char *thread_name;
    bool run_ahead;
    pthread_t thread;
    bool joined;           // owner only
    pthread_mutex_t mutex; // for all below
    pthread_cond_t changed;
    struct lane *lanes; // the first one is served next
    uint64_t n_written;
    const struct store_job *running;
    bool cancelled; // its client has gone
    bool stop, hold;
};

// --- one read ----------------------------------------------------------------

// The owner whose queue it waits in, "" for none.
static const char *read_owner(const struct store_job *job) {
    const char *owner = job->list ? job->list->owner : job->owner;
    return owner ? owner : "";
}

// By owner too: another owner's session does not exist.
static int load(struct store_db *db, struct store_job *job) {
    TRY(store_read_key(db, job->owner, job->id, &job->key, &job->err));
    return store_read_session(db, job->key, &job->loaded, &job->err);
}

// The store's thread repairs an index that was cut short, within half a second.
static int watch(struct store_db *db, bool between, struct err *err) {
    const struct timespec pause = {.tv_nsec = 10000000};
    int rc = store_watch(db, between, err);
    for (int ms = 0; rc == E_BUSY && ms < STORE_BUSY_MS; ms += 10) {
        nanosleep(&pause, NULL);
        rc = store_watch(db, between, err);
    }
    return rc;
}

static int read_it(struct store_db *db, struct store_job *job) {
    int rc;
    switch (job->kind) {
    case STORE_LOAD:
        return load(db, job);
    case STORE_TURNS:
        return store_read_turns(db, job->key, job->turns, job->n_turns, &job->loaded, &job->err);
    case STORE_TOLD:
        return store_read_told(db, job->owner, job->told, &job->err);
    case STORE_EXPORT:
        buf_reset(&job->archive);
        rc = job->cursor->read(job->cursor, db, &job->archive, &job->err);
        job->more = rc > 0;
        return rc > 0 ? 0 : rc;
    default:
        rc = store_read_list(db, job->list, &job->err);
        if (rc > 0) return rc;
        job->more = rc == 0 && job->list->at < job->list->n_keys;
        return rc;
    }
}

void read_job(struct store_db *db, struct store_job *job, bool between) {
    job->rc = watch(db, between, &job->err);
    if (job->rc == 0) {
        job->err = (struct err){0};
        job->rc = read_it(db, job);
    }
    store_hide_path(db->path, &job->err);
}

// --- queues ------------------------------------------------------------------

static void lane_free(struct reads *r, struct lane *l) {
    DL_DELETE(r->lanes, l);
    free(l->owner);
    free(l);
}

static void unlink_job(struct reads *r, struct lane *l, struct waiting *w) {
    DL_DELETE(l->jobs, w);
    free(w);
    if (--l->n == 0) lane_free(r, l);
}

static struct lane *lane_of(struct reads *r, const char *owner) {
    struct lane *l;
    DL_FOREACH(r->lanes, l) if (strcmp(l->owner, owner) == 0) return l;
    l = calloc(1, sizeof *l);
    if (!l || !(l->owner = strdup(owner))) {
        free(l);
        return NULL;
    }
    DL_APPEND(r->lanes, l);
    return l;
}

static int push(struct reads *r, struct store_job *job, uint64_t after) {
    struct lane *l = lane_of(r, read_owner(job));
    if (!l) return E_NOMEM;
    if (l->n >= READS_PER_OWNER && !job->goes_on) return E_LIMIT;
    struct waiting *w = calloc(1, sizeof *w);
    if (!w) {
        if (l->n == 0) lane_free(r, l);
        return E_NOMEM;
    }
    *w = (struct waiting){.job = job, .after = after};
    DL_APPEND(l->jobs, w);
    l->n++;
    return 0;
}

int reads_push(struct reads *r, struct store_job *job, uint64_t after) {
    pthread_mutex_lock(&r->mutex);
    int rc = push(r, job, after);
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->mutex);
    return rc;
}

// The first read whose writes are committed; its lane goes to the end.
static struct store_job *pop(struct reads *r) {
    struct lane *l;
    DL_FOREACH(r->lanes, l) {
        struct store_job *job = l->jobs->job;
        if (l->jobs->after > r->n_written) continue;
        DL_DELETE(r->lanes, l);
        DL_APPEND(r->lanes, l);
        unlink_job(r, l, l->jobs);
        return job;
    }
    return NULL;
}

size_t reads_cancel(struct reads *r, uint64_t client) {
    struct lane *l, *next_lane;
    struct waiting *w, *next;
    size_t n = 0;
    pthread_mutex_lock(&r->mutex);
    DL_FOREACH_SAFE(r->lanes, l, next_lane) {
        for (w = l->jobs; w; w = next) {
            next = w->next;
            if (w->job->client != client) continue;
            store_job_free(w->job);
            unlink_job(r, l, w); // the lane goes with its last one
            n++;
        }
    }
    if (r->running && r->running->client == client) {
        r->cancelled = true;
        sqlite3_interrupt(r->db.sql);
    }
    pthread_mutex_unlock(&r->mutex);
    return n;
}

void reads_written(struct reads *r, uint64_t n) {
    pthread_mutex_lock(&r->mutex);
    r->n_written += n;
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->mutex);
}

bool reads_hold(struct reads *r, bool hold) {
    pthread_mutex_lock(&r->mutex);
    r->hold = hold;
    bool runs = r->running;
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->mutex);
    return runs;
}

// --- the thread --------------------------------------------------------------

static bool stopped(struct reads *r) {
    pthread_mutex_lock(&r->mutex);
    bool stop = r->stop;
    pthread_mutex_unlock(&r->mutex);
    return stop;
}

static struct store_job *next_job(struct reads *r) {
    struct store_job *job = NULL;
    pthread_mutex_lock(&r->mutex);
    while (!r->stop && (r->hold || !(job = pop(r)))) pthread_cond_wait(&r->changed, &r->mutex);
    r->running = job;
    r->cancelled = false;
    pthread_mutex_unlock(&r->mutex);
    return job;
}

// A slice of a search is done: other owners come first, then this owner's next slice. False: its
// client has gone, or there is no memory.
static bool go_on_later(struct reads *r, struct store_job *job) {
    struct waiting *w = calloc(1, sizeof *w);
    pthread_mutex_lock(&r->mutex);
    struct lane *l = w && !r->cancelled ? lane_of(r, read_owner(job)) : NULL;
    if (l) {
        w->job = job;
        DL_PREPEND(l->jobs, w);
        l->n++;
        r->running = NULL;
    } else {
        free(w);
        job->rc = err_set(&job->err, E_NOMEM, "no memory for a search");
    }
    pthread_mutex_unlock(&r->mutex);
    return l;
}

// A stop does not wait for room: no thread takes answers then.
static void answer(struct reads *r, struct store_job *job) {
    pthread_mutex_lock(&r->mutex);
    r->running = NULL;
    pthread_mutex_unlock(&r->mutex);
    while (queue_try_push(r->answers, &job) < 0) {
        if (stopped(r)) {
            store_job_free(job);
            return;
        }
        usleep(FULL_PAUSE_US);
    }
}

static void *reads_main(void *arg) {
    struct reads *r = arg;
    struct store_job *job;
    pthread_setname_np(pthread_self(), r->thread_name);
    if (r->run_ahead) (void)thread_run_ahead();
    while ((job = next_job(r))) {
        job->rc = 0;
        if (job->list) job->list->sliced = true;
        read_job(&r->db, job, false);
        if (job->rc <= 0 || !go_on_later(r, job)) answer(r, job);
    }
    return NULL;
}

int reads_open(struct reads **out, const struct store_db *writer, struct queue *answers,
               const char *thread_name, bool run_ahead, struct err *err) {
    struct reads *r = calloc(1, sizeof *r);
    if (!r) return err_set(err, E_NOMEM, "no memory for the store's readers");
    r->answers = answers;
    r->thread_name = thread_name;
    r->run_ahead = run_ahead;
    int rc;
    TRY_GOTO(free, store_db_open_beside(&r->db, writer, err));
    pthread_mutex_init(&r->mutex, NULL);
    pthread_cond_init(&r->changed, NULL);
    int failed = pthread_create(&r->thread, NULL, reads_main, r);
    if (failed) TRY_GOTO(close, thread_refused(err, failed, "a thread of the store's readers"));
    *out = r;
    return 0;
close:
    store_db_close(&r->db, false);
free:
    free(r);
    return rc;
}

void reads_stop(struct reads *r) {
    if (!r || r->joined) return;
    pthread_mutex_lock(&r->mutex);
    r->stop = true;
    if (r->running) sqlite3_interrupt(r->db.sql);
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->mutex);
    pthread_join(r->thread, NULL);
    r->joined = true;
}

void reads_close(struct reads *r) {
    if (!r) return;
    reads_stop(r);
    while (r->lanes) {
        store_job_free(r->lanes->jobs->job);
        unlink_job(r, r->lanes, r->lanes->jobs);
    }
    store_db_close(&r->db, false);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->mutex);
    free(r);
}
