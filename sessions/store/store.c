// The writing thread and the sender's side. See store.h.
#include "sessions/store/store.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/queue.h"
#include "base/thread.h"
#include "base/thread_priority.h"
#include "sessions/store/leaving.h"
#include "sessions/store/lock.h"
#include "sessions/store/news.h"
#include "sessions/store/read.h"
#include "sessions/store/reads.h"
#include "sessions/store/recover.h"
#include "sessions/store/schema.h"
#include "sessions/store/tail.h"
#include "sessions/store/tidy.h"
#include "sessions/store/watch.h"
#include "sessions/store/write.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#define QUEUE_JOBS 4096
#define GROUP_JOBS 256        // committed together at most
#define IDLE_US 250000        // without a job: time to checkpoint
#define STEP_IDLE_US 1000     // between two steps of a merge, idle
#define STEP_BUSY_US 100000   // and under load
#define EMPTY_BUSY_US 5000000 // under load, the log is emptied of deleted rows this often
#define NEWS_US 500000        // between two looks for imports and at the files
#define RETRY_US 1000000      // after a reader or a full disk was in the way
#define LAST_STEPS_US 500000  // of merging at a stop; the next start finishes it
#define BUSY_WAL_FRAMES 1024  // under load, a log of this size (4 MiB) is checkpointed
#define HOLD_WAL_FRAMES 8192  // from this size on, reads are held for a checkpoint
#define HOLD_US 5000          // between two attempts

// Reads that a turn waits for do not wait for lists and exports, and these do not wait for searches.
enum { READ_SESSIONS, READ_LISTS, READ_SEARCHES, N_READERS };

struct store {
    struct store_db db; // the store's thread; the opener's while that does not run
    pthread_t thread;
    int64_t stepped_us;         // last step of a merge
    int64_t looked_us;          // last look for news
    uint64_t n_looks;           // atomic: store_n_looks
    struct queue jobs, answers; // struct store_job *
    const struct clock *clock;
    // The sender's side: jobs not flushed, or without room in the queue, in order.
    struct store_job *backlog, **backlog_end;
    size_t n_waiting, n_writing;
    uint64_t n_sent;                  // writes that are in `jobs` or answered
    struct reads *readers[N_READERS]; // NULL: reads are the store's thread's
    struct metric *m_commit, *m_wal, *m_errors;
    struct store_job *news; // the store's thread: for the next look
    bool holding;           // reads wait for the log
    int64_t held_us;        // since or until when
    bool lost;              // the sender knows that the file was replaced or removed
    bool run_ahead;
};

// --- the store's thread ------------------------------------------------------

static bool is_write(const struct store_job *job) {
    return job->kind == STORE_SAVE || job->kind == STORE_DELETE || job->kind == STORE_IMPORT ||
           job->kind == STORE_PROBE;
}

static int write_one(struct store *st, struct store_job *job) {
    job->err = (struct err){0};
    switch (job->kind) {
    case STORE_SAVE:
        return store_write_save(&st->db, job->save, &job->err);
    case STORE_DELETE:
        if (!job->key) TRY(store_read_key(&st->db, job->owner, job->id, &job->key, &job->err));
        return store_write_delete_rows(&st->db, job->key, &job->err);
    case STORE_IMPORT:
        return store_write_session(&st->db, job->loaded, &job->err);
    default:
        return store_write_probe(&st->db, clock_wall_us(st->clock) / 1000, &job->err);
    }
}

struct group {
    struct store *st;
    struct store_job **jobs;
    size_t n;
    bool began; // a failure may be the fault of one job
};

static int write_jobs(struct store_db *db, void *ctx, struct err *err) {
    struct group *g = ctx;
    int rc = 0;
    g->began = true;
    for (size_t i = 0; rc == 0 && i < g->n; i++) {
        rc = write_one(g->st, g->jobs[i]);
        if (rc < 0) *err = g->jobs[i]->err;
    }
    return rc;
}

static void write_group(struct store *st, struct store_job **jobs, size_t n) {
    struct err err = {0};
    struct group g = {.st = st, .jobs = jobs, .n = n};
    int64_t start = clock_mono_us(&clock_system);
    int rc = store_db_transaction(&st->db, write_jobs, &g, &err);
    if (rc < 0 && g.began && n > 1) { // one by one: a bad job takes no other down
        for (size_t i = 0; i < n; i++) write_group(st, &jobs[i], 1);
        return;
    }
    store_hide_path(st->db.path, &err);
    if (rc == 0)
        metric_observe(st->m_commit, (double)(clock_mono_us(&clock_system) - start) * 1e-6);
    for (size_t i = 0; i < n; i++) {
        jobs[i]->rc = rc;
        jobs[i]->err = err;
    }
    if (rc < 0 && rc != E_EXISTS && rc != E_NOTFOUND) metric_add(st->m_errors, 1);
}

// In memory there is one connection. A read that the readers refused has its code.
static void read_here(struct store *st, struct store_job *job) {
    if (job->rc == 0 && job->kind != STORE_STOP) read_job(&st->db, job, true);
}

static void count_writes(struct store *st, size_t n) {
    for (int i = 0; i < N_READERS; i++)
        if (st->readers[i]) reads_written(st->readers[i], n);
}

static void serve(struct store *st, struct store_job **jobs, size_t n) {
    for (size_t i = 0; i < n;) {
        size_t end = i, n_writes;
        while (end < n && is_write(jobs[end])) end++;
        n_writes = end - i;
        if (n_writes > 0)
            write_group(st, &jobs[i], n_writes);
        else
            read_here(st, jobs[end++]);
        queue_push_all(&st->answers, &jobs[i], end - i); // the sender may free them now
        count_writes(st, n_writes);
        i = end;
    }
}

// One step of a merge after deletions. False when it failed.
static bool tidy(struct store *st) {
    int rc = store_tidy_step(&st->db, NULL);
    st->stepped_us = clock_mono_us(&clock_system);
    return rc == 0;
}

static void hold_reads(struct store *st, bool hold) {
    for (int i = 0; i < N_READERS; i++) reads_hold(st->readers[i], hold && i != READ_SESSIONS);
    st->holding = hold;
    st->held_us = clock_mono_us(&clock_system);
}

// SQLite restarts the write-ahead log when the database has all of the log and no read uses it. Reads without a pause
// would let the log grow without bound. So now and then the store holds new reads until one attempt was made without
// any: first lists, until the running list ends, then the reads that turns wait for, which are short. Reads go on even
// if the attempt fails, because another process may be reading.
//
// A commit waits for the checkpoint before it: a checkpoint of 16 MiB took 20 to 130 ms, one of 4 MiB 5 to 30 ms.
static void tend_log(struct store *st) {
    bool alone = st->holding && !reads_hold(st->readers[READ_LISTS], true) &&
                 !reads_hold(st->readers[READ_SEARCHES], true) &&
                 !reads_hold(st->readers[READ_SESSIONS], true);
    if (st->db.wal_frames > BUSY_WAL_FRAMES) store_db_checkpoint(&st->db, CHECKPOINT_SOME);
    metric_set(st->m_wal, (double)store_db_wal_bytes(&st->db));
    bool large = st->db.wal_frames > HOLD_WAL_FRAMES;
    if (st->holding && (alone || !large))
        hold_reads(st, false);
    else if (large && !st->holding && st->readers[READ_LISTS] &&
             clock_mono_us(&clock_system) - st->held_us >= RETRY_US)
        hold_reads(st, true);
}

// After a group: small steps of work that cannot wait for an idle moment.
static void tend_busy(struct store *st) {
    int64_t now = clock_mono_us(&clock_system);
    if (st->db.unmerged && now - st->stepped_us >= STEP_BUSY_US) tidy(st);
    if (!st->db.unmerged && st->db.deleted && now - st->stepped_us >= EMPTY_BUSY_US) {
        store_db_checkpoint(&st->db, CHECKPOINT_EMPTY);
        st->stepped_us = now;
    }
    tend_log(st);
}

// Without a job. Returns when to come again, -1: all is done.
static int64_t tend_idle(struct store *st) {
    int64_t again = -1;
    if (st->db.unmerged) {
        again = tidy(st) ? STEP_IDLE_US : RETRY_US;
    } else if (st->db.deleted) {
        store_db_checkpoint(&st->db, CHECKPOINT_EMPTY);
        if (st->db.deleted) again = RETRY_US;
    } else if (st->db.wal_frames > 0) {
        store_db_checkpoint(&st->db, CHECKPOINT_SOME);
    }
    tend_log(st);
    return st->holding && again < 0 ? HOLD_US : again;
}

static int look(struct store *st, struct store_job *job) {
    job->err = (struct err){0};
    TRY(store_db_write_begin(&st->db, &job->err));
    store_db_write_end(&st->db); // the files are as they were
    return store_news_read(&st->db, job->list, &job->err);
}

// Sends imported sessions, and once that the file was replaced or removed. A look that fails is
// repeated.
static void look_for_news(struct store *st) {
    struct store_job *job = st->news ? st->news : store_job_new(STORE_NEWS, 0);
    st->news = job;
    if (job && !job->list) job->list = calloc(1, sizeof *job->list);
    if (!job || !job->list) return;
    job->rc = look(st, job);
    store_hide_path(st->db.path, &job->err);
    bool lost = job->rc == E_IO && !st->lost;
    if (job->rc != E_BUSY) st->lost = job->rc == E_IO;
    if (!lost && (job->rc < 0 || job->list->n_rows == 0)) {
        store_list_clear(job->list);
        return;
    }
    st->news = NULL;
    queue_push(&st->answers, &job);
}

static void look_when_due(struct store *st) {
    int64_t now = clock_mono_us(&clock_system);
    if (now - st->looked_us < NEWS_US) return;
    st->looked_us = now;
    look_for_news(st);
    __atomic_add_fetch(&st->n_looks, 1, __ATOMIC_RELEASE);
}

static void tend_last(struct store *st) {
    int64_t end = clock_mono_us(&clock_system) + LAST_STEPS_US;
    while (st->db.unmerged && clock_mono_us(&clock_system) < end && tidy(st)) continue;
}

static void *store_main(void *arg) {
    struct store *st = arg;
    struct store_job *jobs[GROUP_JOBS];
    pthread_setname_np(pthread_self(), "parley-store");
    if (st->run_ahead) (void)thread_run_ahead(); // denied: commits wait for a core
    int64_t wait_us = IDLE_US;                   // the last run may have left work
    for (bool stop = false; !stop;) {
        int got = queue_pop(&st->jobs, &jobs[0], wait_us);
        if (got < 0) break;
        if (got == 0) {
            look_when_due(st);
            wait_us = tend_idle(st);
            if (wait_us < 0 || wait_us > NEWS_US) wait_us = NEWS_US;
            continue;
        }
        size_t n = 1;
        while (n < GROUP_JOBS && jobs[n - 1]->kind != STORE_STOP &&
               queue_try_pop(&st->jobs, &jobs[n]) == 1)
            n++;
        stop = jobs[n - 1]->kind == STORE_STOP;
        serve(st, jobs, n);
        if (stop) {
            tend_last(st);
        } else {
            tend_busy(st);
            look_when_due(st);
        }
        wait_us = st->holding ? HOLD_US : IDLE_US;
    }
    return NULL;
}

// --- the sender's side --------------------------------------------------------

static void register_metrics(struct store *st, struct metrics *m) {
    static const double bounds[] = {0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2};
    if (!m) return;
    st->m_commit = metrics_histogram(m, "parley_store_commit_seconds", "Time of one group commit.",
                                     NULL, bounds, (int)(sizeof bounds / sizeof *bounds));
    st->m_wal =
        metrics_gauge(m, "parley_store_wal_bytes", "Size of the database's write-ahead log.", NULL);
    st->m_errors =
        metrics_counter(m, "parley_store_errors_total", "Writes that the database refused.", NULL);
}

static int prepare(struct store *st, const struct store_options *o, struct store_start *start,
                   struct err *err) {
    int64_t began = clock_mono_us(&clock_system), n_removed = 0;
    TRY(store_db_open(&st->db, o->path, err));
    TRY(store_leaving_check(&st->db, NULL, err));
    TRY(tail_recover(&st->db, &start->n_recovered, err));
    TRY(store_recover(&st->db, clock_wall_us(o->clock) / 1000, &start->n_interrupted, err));
    TRY(store_remove_temporary(&st->db, &n_removed, err));
    TRY(store_read_next_key(&st->db, &start->next_key, err));
    TRY(store_tidy_init(&st->db, err));
    TRY(store_news_init(&st->db, err));
    TRY(store_read_owners(&st->db, start, err));
    TRY(store_read_secret(&st->db, start->secret, err));
    if (n_removed > 0) log_info("store.temporary", "removed=%lld", (long long)n_removed);
    log_info("store.open", "schema=%d interrupted_turns=%lld recovered_tokens=%lld took_ms=%.1f",
             store_schema_version(), (long long)start->n_interrupted, (long long)start->n_recovered,
             (double)(clock_mono_us(&clock_system) - began) * 1e-3);
    return 0;
}

static void close_readers(struct store *st) {
    for (int i = 0; i < N_READERS; i++) {
        reads_close(st->readers[i]);
        st->readers[i] = NULL;
    }
}

static int open_readers(struct store *st, struct err *err) {
    static const char *const names[] = {"parley-reads", "parley-lists", "parley-search"};
    if (!st->db.watched) return 0; // in memory
    TRY(store_watch(&st->db, true, err));
    for (int i = 0; i < N_READERS; i++)
        TRY(reads_open(&st->readers[i], &st->db, &st->answers, names[i],
                       st->run_ahead && i == READ_SESSIONS, err));
    return 0;
}

void store_start_release(struct store_start *start) {
    for (size_t i = 0; i < start->n_owners; i++) free(start->owners[i].name);
    free(start->owners);
    *start = (struct store_start){0};
}

int store_open(struct store **out, const struct store_options *o, struct store_start *start,
               struct err *err) {
    struct store *st = calloc(1, sizeof *st);
    *start = (struct store_start){0};
    if (!st) return err_set(err, E_NOMEM, "no memory for the store");
    st->clock = o->clock;
    st->run_ahead = o->run_ahead;
    st->stepped_us = clock_mono_us(&clock_system);
    st->backlog_end = &st->backlog;
    st->db.lock_fd = st->db.file_fd = -1;
    int rc;
    TRY_GOTO(fail, prepare(st, o, start, err));
    TRY_GOTO(fail, queue_init(&st->jobs, sizeof(struct store_job *), QUEUE_JOBS, NULL, NULL, err));
    TRY_GOTO(fail, queue_init(&st->answers, sizeof(struct store_job *), QUEUE_JOBS, o->wake,
                              o->wake_ctx, err));
    register_metrics(st, o->metrics);
    TRY_GOTO(fail, open_readers(st, err));
    int failed = pthread_create(&st->thread, NULL, store_main, st);
    if (failed) TRY_GOTO(fail, thread_refused(err, failed, "the store's thread"));
    *out = st;
    return 0;
fail: // what it has not got is zero
    close_readers(st);
    queue_release(&st->answers);
    queue_release(&st->jobs);
    store_db_close(&st->db, false);
    free(st);
    return rc;
}

static struct reads *reader_of(struct store *st, const struct store_job *job) {
    if (job->kind == STORE_LOAD || job->kind == STORE_TURNS || job->kind == STORE_TOLD)
        return st->readers[READ_SESSIONS];
    bool old = job->kind == STORE_OLD; // looks at all sessions of all owners
    if (old || (job->kind == STORE_LIST && job->list->query && !job->list->keys))
        return st->readers[READ_SEARCHES];
    if (job->kind == STORE_LIST || job->kind == STORE_EXPORT) return st->readers[READ_LISTS];
    return NULL;
}

// False: the job takes the writer's queue, where a refused one is answered.
static bool push_read(struct store *st, struct store_job *job) {
    struct reads *r = job->rc == 0 ? reader_of(st, job) : NULL;
    if (!r) return false;
    if (reads_push(r, job, st->n_sent) == 0) return true; // it may be gone by now
    job->rc = err_set(&job->err, E_BUSY, "too many requests of this owner wait for the database");
    return false;
}

static void drop_first(struct store *st, struct store_job *rest) {
    st->backlog = rest;
    if (!rest) st->backlog_end = &st->backlog;
}

// In order: a read knows which writes come before it.
void store_flush(struct store *st) {
    struct store_job *some[64];
    while (st->backlog) {
        struct store_job *rest = st->backlog->next;
        if (push_read(st, st->backlog)) {
            drop_first(st, rest);
            continue;
        }
        size_t n = 0, n_writes = 0;
        for (rest = st->backlog; rest && n < sizeof some / sizeof *some; rest = rest->next) {
            if (rest->rc == 0 && reader_of(st, rest)) break;
            some[n++] = rest;
        }
        bool writes[64];
        for (size_t i = 0; i < n; i++) writes[i] = is_write(some[i]);
        int pushed = queue_try_push_some(&st->jobs, some, n);
        if (pushed <= 0) return;
        // The jobs that went may be freed by now.
        for (int i = 0; i < pushed; i++) n_writes += writes[i];
        st->n_sent += n_writes;
        drop_first(st, (size_t)pushed == n ? rest : some[pushed]);
    }
}

void store_send(struct store *st, struct store_job *job) {
    job->next = NULL;
    *st->backlog_end = job;
    st->backlog_end = &job->next;
    st->n_waiting++;
    st->n_writing += is_write(job);
}

void store_cancel(struct store *st, uint64_t client) {
    store_flush(st);
    for (int i = 0; i < N_READERS; i++)
        if (st->readers[i]) st->n_waiting -= reads_cancel(st->readers[i], client);
}

struct store_job *store_receive(struct store *st) {
    return store_wait(st, 0);
}

struct store_job *store_wait(struct store *st, int64_t timeout_us) {
    struct store_job *job = NULL;
    store_flush(st);
    int got = timeout_us == 0 ? queue_try_pop(&st->answers, &job)
                              : queue_pop(&st->answers, &job, timeout_us);
    if (got != 1) return NULL;
    if (job->kind != STORE_NEWS) st->n_waiting--; // the store sends those itself
    st->n_writing -= is_write(job);
    store_flush(st);
    return job;
}

uint64_t store_n_looks(const struct store *st) {
    return __atomic_load_n(&st->n_looks, __ATOMIC_ACQUIRE);
}

size_t store_n_waiting(const struct store *st) {
    return st->n_waiting;
}

size_t store_n_writing(const struct store *st) {
    return st->n_writing;
}

const char *store_path(const struct store *st) {
    return st->db.path;
}

#define ROOM_BYTES ((uint64_t)128 << 10)
bool store_has_room(const struct store *st) {
    struct statvfs fs;
    if (statvfs(st->db.path, &fs) < 0) return true; // in memory, or gone: other checks say so
    return (uint64_t)fs.f_bavail * fs.f_frsize >= ROOM_BYTES;
}

void store_close(struct store *st) {
    if (!st) return;
    for (int i = 0; i < N_READERS; i++) reads_stop(st->readers[i]);
    struct store_job stop = {.kind = STORE_STOP};
    store_send(st, &stop);
    for (struct store_job *job = NULL; job != &stop; job = store_wait(st, -1)) store_job_free(job);
    pthread_join(st->thread, NULL);
    close_readers(st); // the writer's thread tells them of its commits
    queue_release(&st->jobs);
    queue_release(&st->answers);
    store_job_free(st->news);
    store_db_close(&st->db, true);
    free(st);
}
