// The table for ranks on CPUs, over MPI (written for Open MPI 4.1). See comm.h.
//
// Open MPI's own waits never end when a peer dies, and they occupy a core. So every operation is
// non-blocking, and a loop tests it. The loop yields the core, later sleeps between tests, checks that
// the peers of this machine live, and ends at the time limit. Where other programs want the cores, a
// yield gives away whole time slices, many for each layer, so the loop then sleeps from the start.
#include "engine/dist/comm.h"

#if PARLEY_MPI
#include "base/clock.h"
#include "base/log.h"
#include "engine/dist/deadline.h"
#include "engine/dist/host_sums.h"
#include "engine/dist/identity.h"
#include "engine/dist/mpi_process.h"
#include "engine/dist/plan.h"
#include "kernels/backend.h"
#include <errno.h>
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    NAP_AFTER_US = 20000,   // longer than a GPU's step; then it naps between tests
    NAP_US = 50,            // within a step
    SLICE_US = 500,         // a yield this long ran another program: the cores are crowded
    CROWDED_US = 200000,    // how long they are then taken to be
    IDLE_AFTER_US = 200000, // an idle rank naps longer
    IDLE_NAP_US = 1000,
    LOOK_US = 50000,      // between looks at the peers
    EXCHANGE_FACTOR = 10, // while ranks start and models load: they wait so much longer
    SCRATCH_BYTES = 4 << 20,
    MESSAGE_BYTES = 1 << 30, // of one message: MPI counts in int
    BYTES_TAG = 1,           // activations have tag 0
    MOST_SENT = 16,          // messages on their way to the next stage
};

struct mpi_comm {
    struct comm base;
    MPI_Comm world, stage; // all ranks; those of this pipeline stage
    struct mpi_comm *next;
    bool taken;
    int64_t timeout_us;
    struct identity *ranks; // (n_ranks)
    struct host_sums sums;  // of the stage, where all its ranks are on this machine
    int *counts, *starts;   // (n_ranks + 1) of gather_rows
    char *scratch;
    size_t scratch_bytes;
    int64_t crowded_until_us;
    MPI_Request sent[MOST_SENT];
    int n_sent;
};

// MPI's state is the process's, and so is this. Guarded by the lock; `broken` is only ever set.
static struct {
    pthread_mutex_t lock;
    bool is_started;      // by another parley
    struct mpi_comm *all; // every comm there has been; they live as long as the process
    _Atomic bool broken;
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

// --- waiting -------------------------------------------------------------------------------------

__attribute__((format(printf, 2, 3))) static int broke(struct mpi_comm *c, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    if (c->base.why.code == 0) {
        vsnprintf(c->base.why.text, sizeof c->base.why.text, fmt, ap);
        c->base.why.code = E_DEVICE;
    }
    va_end(ap);
    process.broken = true;
    return E_DEVICE;
}

static int check(struct mpi_comm *c, int rc) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    if (rc == MPI_SUCCESS) return 0;
    MPI_Error_string(rc, text, &n);
    return broke(c, "the ranks cannot talk to each other: %.300s", text);
}

static bool same_host(const struct mpi_comm *c, int32_t rank) {
    return strcmp(c->ranks[rank].host, c->ranks[c->base.rank].host) == 0;
}

// Processes of other machines are left to mpirun and to the time limit.
static int look(struct mpi_comm *c) {
    for (int32_t r = 0; c->ranks && r < c->base.n_ranks; r++) {
        if (r == c->base.rank || !same_host(c, r)) continue;
        if (kill(c->ranks[r].pid, 0) < 0 && errno == ESRCH)
            return broke(c, "rank %d of %d (process %d) has ended", r, c->base.n_ranks,
                         c->ranks[r].pid);
    }
    return 0;
}

struct waiting {
    struct mpi_comm *c;
    int64_t limit_us; // 0: none
    bool asleep;      // it naps from the start
    int64_t began, looked;
};

static void nap(int64_t us) {
    nanosleep(&(struct timespec){0, us * 1000}, NULL);
}

// Yields; naps instead where a yield took long a moment ago.
static void give_way(struct mpi_comm *c, int64_t now) {
    if (now < c->crowded_until_us) {
        nap(NAP_US);
        return;
    }
    sched_yield();
    const int64_t back = clock_mono_us(&clock_system);
    if (back - now >= SLICE_US) c->crowded_until_us = back + CROWDED_US;
}

// Between the looks i = 0, 1, ... for what is awaited.
static int wait_on(void *ctx, int64_t i) {
    struct waiting *w = ctx;
    const int64_t now = clock_mono_us(&clock_system);
    if (i == 0) w->began = w->looked = now;
    const int64_t waited = now - w->began;
    if (now - w->looked >= LOOK_US) {
        w->looked = now;
        TRY(look(w->c));
    }
    if (w->limit_us > 0 && waited > w->limit_us)
        return broke(w->c, "a rank has not answered for %.3g s", (double)w->limit_us * 1e-6);
    if (waited < NAP_AFTER_US && !w->asleep)
        give_way(w->c, now);
    else
        nap(w->asleep || (w->limit_us == 0 && waited > IDLE_AFTER_US) ? IDLE_NAP_US : NAP_US);
    return 0;
}

static int wait_for(struct mpi_comm *c, MPI_Request *request, int64_t limit_us, bool asleep) {
    struct waiting w = {.c = c, .limit_us = limit_us, .asleep = asleep};
    for (int64_t i = 0;; i++) {
        int done = 0;
        TRY(check(c, MPI_Test(request, &done, MPI_STATUS_IGNORE)));
        if (done) return 0;
        TRY(wait_on(&w, i));
    }
}

// One operation: starts it and waits.
#define MPI_RUN(c, limit_us, start) MPI_RUN_ASLEEP(c, limit_us, false, start)
#define MPI_RUN_ASLEEP(c, limit_us, asleep, start)                                                 \
    do {                                                                                           \
        MPI_Request request_ = MPI_REQUEST_NULL;                                                   \
        if ((c)->base.why.code < 0) return E_DEVICE;                                               \
        TRY(check(c, start));                                                                      \
        TRY(wait_for(c, &request_, limit_us, asleep));                                             \
    } while (0)

// --- operations ----------------------------------------------------------------------------------

static struct mpi_comm *of(struct comm *c) {
    return (struct mpi_comm *)c;
}

// Every rank gets all parts and adds them in rank order, so all have the same bits.
static int mpi_all_reduce(struct comm *base, struct backend *be, void *values, int64_t n) {
    struct mpi_comm *c = of(base);
    const int32_t tp = base->split.tp_size;
    if (tp == 1) return 0;
    if (base->linked) return be->ops->all_reduce(be, values, n);
    if (c->sums.memory) {
        struct waiting w = {.c = c, .limit_us = c->timeout_us};
        if (base->why.code < 0) return E_DEVICE;
        return host_sums_run(&c->sums, values, n, wait_on, &w);
    }
    const int64_t most = (int64_t)(c->scratch_bytes / sizeof(float)) / tp;
    for (int64_t first = 0; first < n; first += most) {
        const int count = (int)(n - first < most ? n - first : most);
        float *x = (float *)values + first;
        const float *parts = (const float *)(void *)c->scratch;
        MPI_RUN(
            c, c->timeout_us,
            MPI_Iallgather(x, count, MPI_FLOAT, c->scratch, count, MPI_FLOAT, c->stage, &request_));
        memcpy(x, parts, (size_t)count * sizeof *x);
        for (int32_t r = 1; r < tp; r++) {
            const float *part = parts + (int64_t)r * count;
            for (int i = 0; i < count; i++) x[i] += part[i];
        }
    }
    return 0;
}

static int room(struct mpi_comm *c, size_t bytes) {
    if (bytes <= c->scratch_bytes) return 0;
    char *more = realloc(c->scratch, bytes);
    if (!more) return E_NOMEM;
    c->scratch = more;
    c->scratch_bytes = bytes;
    return 0;
}

static int mpi_gather_rows(struct comm *base, struct backend *be, void *out, const void *part,
                           int32_t n_rows, int32_t part_width, int32_t width) {
    struct mpi_comm *c = of(base);
    const int32_t tp = base->split.tp_size;
    if (tp == 1) return 0;
    if (base->linked) {
        for (int32_t r = 0; r < tp; r++)
            c->starts[r] = split_even(&(struct split){r, tp, 0, 1}, width).first;
        c->starts[tp] = width;
        return be->ops->gather_rows(be, out, part, n_rows, c->starts);
    }
    const size_t row = (size_t)width * sizeof(float);
    TRY(room(c, row)); // the widest vocabulary asks once
    const int32_t most = (int32_t)(c->scratch_bytes / row);
    for (int32_t first = 0; first < n_rows; first += most) {
        const int32_t n = n_rows - first < most ? n_rows - first : most;
        for (int32_t r = 0; r < tp; r++) {
            struct range cols = split_even(&(struct split){r, tp, 0, 1}, width);
            c->counts[r] = cols.count * n;
            c->starts[r] = cols.first * n;
        }
        MPI_RUN(c, c->timeout_us,
                MPI_Igatherv((const float *)part + (int64_t)first * part_width, n * part_width,
                             MPI_FLOAT, c->scratch, c->counts, c->starts, MPI_FLOAT, 0, c->stage,
                             &request_));
        if (base->split.tp_rank > 0) continue;
        for (int32_t r = 0; r < tp; r++)
            for (int32_t i = 0; i < n; i++)
                memcpy((float *)out + (int64_t)(first + i) * width + c->starts[r] / n,
                       (float *)(void *)c->scratch + c->starts[r] + (int64_t)i * (c->counts[r] / n),
                       (size_t)(c->counts[r] / n) * sizeof(float));
    }
    return 0;
}

// The rank of another stage with the same part of each layer (comm_split_of).
static int stage_peer(const struct comm *c, int32_t pp_rank) {
    return (c->split.pp_size - 1 - pp_rank) * c->split.tp_size + c->split.tp_rank;
}

static int mpi_sent(struct comm *base, bool wait) {
    struct mpi_comm *c = of(base);
    struct waiting w = {.c = c, .limit_us = c->timeout_us};
    if (base->why.code < 0) return E_DEVICE;
    for (int64_t i = 0; c->n_sent > 0; i++) {
        int all = 0;
        TRY(check(c, MPI_Testall(c->n_sent, c->sent, &all, MPI_STATUSES_IGNORE)));
        if (all) c->n_sent = 0;
        if (all || !wait) return 0;
        TRY(wait_on(&w, i));
    }
    return 0;
}

static int mpi_send(struct comm *base, struct backend *be, const void *x, int64_t n,
                    int32_t pp_rank) {
    struct mpi_comm *c = of(base);
    if (base->linked) return be->ops->send(be, x, n);
    TRY(mpi_sent(base, c->n_sent == MOST_SENT));
    return check(c, MPI_Isend(x, (int)n, MPI_FLOAT, stage_peer(base, pp_rank), 0, c->world,
                              &c->sent[c->n_sent++]));
}

static int mpi_recv(struct comm *base, struct backend *be, void *x, int64_t n, int32_t pp_rank) {
    struct mpi_comm *c = of(base);
    if (base->linked) return be->ops->recv(be, x, n);
    MPI_RUN(c, c->timeout_us,
            MPI_Irecv(x, (int)n, MPI_FLOAT, stage_peer(base, pp_rank), 0, c->world, &request_));
    return 0;
}

static int mpi_broadcast(struct comm *base, void *bytes, size_t n, enum comm_wait how) {
    struct mpi_comm *c = of(base);
    for (size_t at = 0, each; at < n; at += each) {
        each = n - at < MESSAGE_BYTES ? n - at : MESSAGE_BYTES;
        MPI_RUN_ASLEEP(c, how == COMM_ANSWERS ? c->timeout_us : 0, how == COMM_ASLEEP,
                       MPI_Ibcast((char *)bytes + at, (int)each, MPI_BYTE, 0, c->world, &request_));
    }
    return 0;
}

static int mpi_send_bytes(struct comm *base, const void *bytes, size_t n, int32_t to) {
    struct mpi_comm *c = of(base);
    for (size_t at = 0, each; at < n; at += each) {
        each = n - at < MESSAGE_BYTES ? n - at : MESSAGE_BYTES;
        MPI_RUN(c, c->timeout_us,
                MPI_Isend((const char *)bytes + at, (int)each, MPI_BYTE, to, BYTES_TAG, c->world,
                          &request_));
    }
    return 0;
}

static int mpi_recv_bytes(struct comm *base, void *bytes, size_t n, int32_t from) {
    struct mpi_comm *c = of(base);
    for (size_t at = 0, each; at < n; at += each) {
        each = n - at < MESSAGE_BYTES ? n - at : MESSAGE_BYTES;
        MPI_RUN(c, c->timeout_us,
                MPI_Irecv((char *)bytes + at, (int)each, MPI_BYTE, from, BYTES_TAG, c->world,
                          &request_));
    }
    return 0;
}

static int link_exchange(void *ctx, const void *mine, void *all, size_t each) {
    struct mpi_comm *c = ctx;
    MPI_RUN(
        c, c->timeout_us * EXCHANGE_FACTOR,
        MPI_Iallgather(mine, (int)each, MPI_BYTE, all, (int)each, MPI_BYTE, c->world, &request_));
    return 0;
}

static int mpi_exchange(struct comm *base, const void *mine, void *all, size_t each) {
    return link_exchange(base, mine, all, each);
}

static int mpi_check(struct comm *base) {
    return base->why.code ? E_DEVICE : look(of(base));
}

static int link_check(void *ctx, int64_t waited_us) {
    struct mpi_comm *c = ctx;
    if (waited_us > c->timeout_us)
        return broke(c, "a rank has not answered for %.3g s", (double)c->timeout_us * 1e-6);
    return mpi_check(&c->base);
}

int comm_link(struct comm *base, struct backend *be, struct err *err) {
    struct mpi_comm *c = of(base);
    const struct split *s = &base->split;
    if (!be->ops->ranks_open || base->n_ranks == 1) return 0;
    const struct rank_links l = {
        .rank = base->rank,
        .n_ranks = base->n_ranks,
        .first_tp = base->rank - s->tp_rank,
        .tp_rank = s->tp_rank,
        .tp_size = s->tp_size,
        .before = s->pp_rank > 0 ? stage_peer(base, s->pp_rank - 1) : -1,
        .after = s->pp_rank < s->pp_size - 1 ? stage_peer(base, s->pp_rank + 1) : -1,
        .exchange = link_exchange,
        .check = link_check,
        .ctx = c,
    };
    TRY(be->ops->ranks_open(be, &l, err));
    base->linked = be;
    return 0;
}

static int barrier(struct mpi_comm *c) {
    MPI_RUN(c, c->timeout_us, MPI_Ibarrier(c->world, &request_));
    return 0;
}

static void release(struct mpi_comm *c) {
    free(c->ranks);
    free(c->counts);
    free(c->starts);
    free(c->scratch);
    free(c);
}

// The ranks wait for the next engine. A broken comm keeps all it has: freeing would wait for the peer
// that is gone.
static void mpi_close(struct comm *base) {
    struct mpi_comm *c = of(base);
    if (base->linked) base->linked->ops->ranks_close(base->linked);
    base->linked = NULL;
    if (c->sums.memory) munmap(c->sums.memory, host_sums_bytes(c->sums.n));
    c->sums.memory = NULL;
    if (base->why.code == 0 && barrier(c) == 0 && c->stage != MPI_COMM_NULL)
        MPI_Comm_free(&c->stage);
    c->taken = false;
}

static const struct comm_ops mpi_ops = {
    .name = "mpi",
    .all_reduce = mpi_all_reduce,
    .gather_rows = mpi_gather_rows,
    .send = mpi_send,
    .recv = mpi_recv,
    .sent = mpi_sent,
    .broadcast = mpi_broadcast,
    .exchange = mpi_exchange,
    .send_bytes = mpi_send_bytes,
    .recv_bytes = mpi_recv_bytes,
    .check = mpi_check,
    .close = mpi_close,
};

// --- the process ---------------------------------------------------------------------------------

// At exit: the other ranks end with the leader. Started ranks and their leader end without
// MPI_Finalize: Open MPI 4.1's sometimes never returns in a process that has started others.
static void end_process(void) {
    static struct plan end; // PLAN_END
    for (struct mpi_comm *c = process.all; c; c = c->next)
        if (c->base.why.code) process.broken = true; // its user broke it, perhaps
    for (struct mpi_comm *c = process.all; c && !process.broken; c = c->next)
        if (c->base.rank == 0) (void)mpi_broadcast(&c->base, &end, sizeof end, COMM_ANSWERS);
    if (!process.broken && comm_is_launched() && !process.is_started) MPI_Finalize();
}

// --- opening -------------------------------------------------------------------------------------

// Who the others are. Until then their lives cannot be watched.
static int meet(struct mpi_comm *c) {
    struct identity me, *all = calloc((size_t)c->base.n_ranks, sizeof *all);
    if (!all) return broke(c, "no memory for %d ranks", c->base.n_ranks);
    identity_take(&me);
    int rc = mpi_exchange(&c->base, &me, c->ranks = all, sizeof me);
    for (int32_t r = 0; rc == 0 && r < c->base.n_ranks; r++) {
        c->base.n_sharing += same_host(c, r) && all[r].cpus == me.cpus;
        c->base.n_local += same_host(c, r);
        c->base.place += r < c->base.rank && same_host(c, r);
    }
    for (int32_t r = 0; rc == 0 && c->base.rank == 0 && r < c->base.n_ranks; r++)
        log_info("engine.rank", "rank=%d pid=%d host=%.*s", r, all[r].pid,
                 (int)strcspn(all[r].host, " "), all[r].host);
    return rc;
}

static int make(struct mpi_comm **out, MPI_Comm world, int64_t timeout_us, struct err *err) {
    int rank = 0, size = 1;
    MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &size);
    struct mpi_comm *c = calloc(1, sizeof *c);
    if (!c) return err_set(err, E_NOMEM, "no memory for %d ranks", size);
    *c = (struct mpi_comm){.base = {.ops = &mpi_ops, .rank = rank, .n_ranks = size},
                           .world = world,
                           .stage = MPI_COMM_NULL,
                           .timeout_us = timeout_us,
                           .scratch = malloc(SCRATCH_BYTES),
                           .scratch_bytes = SCRATCH_BYTES,
                           .counts = calloc((size_t)size + 1, sizeof *c->counts),
                           .starts = calloc((size_t)size + 1, sizeof *c->starts)};
    bool fits = c->scratch && c->counts && c->starts;
    *out = c;
    if (fits && meet(c) == 0) {
        c->taken = true;
        c->next = process.all;
        process.all = c;
        return 0;
    }
    err_set(err, E_DEVICE, "%s", fits ? c->base.why.text : "no memory to talk to other ranks");
    release(c);
    *out = NULL;
    return err->code;
}

// Processes of this program. A singleton's MPI starts them through a daemon of its own, which would bind one or two
// processes to a core each, with all their threads.
static int spawn(MPI_Comm *world, int n, struct err *err) {
    MPI_Comm inter;
    char self[PATH_MAX], word[] = "rank";
    char *argv[] = {word, NULL};
    MPI_Info unbound;
    identity_program(self, sizeof self);
    int rc = MPI_Info_create(&unbound);
    if (rc == MPI_SUCCESS) rc = MPI_Info_set(unbound, "bind_to", "none");
    if (rc == MPI_SUCCESS)
        rc = MPI_Comm_spawn(self, argv, n, unbound, 0, MPI_COMM_SELF, &inter, MPI_ERRCODES_IGNORE);
    if (rc == MPI_SUCCESS) rc = MPI_Info_free(&unbound);
    if (rc == MPI_SUCCESS) rc = MPI_Intercomm_merge(inter, 0, world);
    if (rc == MPI_SUCCESS) return 0;
    return err_set(err, E_DEVICE, "Open MPI cannot start %d ranks on this machine", n);
}

// --- the leader ----------------------------------------------------------------------------------

static int join_job(struct mpi_comm **out, const struct comm_options *o, struct err *err) {
    const int want = o->tp_size * o->pp_size;
    bool first = !process.all;
    if (first) TRY(make(out, MPI_COMM_WORLD, o->timeout_us, err));
    struct mpi_comm *job = process.all;
    if (job->taken && !first)
        return err_set(err, E_BUSY, "the ranks that mpirun started already serve another model");
    job->taken = job->base.n_ranks == want;
    *out = job;
    if (job->taken) return 0;
    return err_set(err, E_INVAL,
                   "%d ranks were started, but tensor_parallel %d x pipeline_parallel %d makes %d",
                   job->base.n_ranks, o->tp_size, o->pp_size, want);
}

static int open_ranks(struct mpi_comm **out, const struct comm_options *o, struct err *err) {
    const int n = o->tp_size * o->pp_size;
    MPI_Comm world;
    TRY(mpi_process_start(end_process, err));
    if (comm_is_launched()) return join_job(out, o, err);
    for (*out = process.all; *out; *out = (*out)->next) {
        if ((*out)->taken || (*out)->base.n_ranks != n || (*out)->base.why.code) continue;
        (*out)->taken = true;
        return 0;
    }
    TRY(spawn(&world, n - 1, err));
    return make(out, world, o->timeout_us, err);
}

int comm_open(struct comm **out, const struct comm_options *o, struct err *err) {
    struct deadline d;
    struct mpi_comm *c = NULL;
    *out = comm_none();
    if (o->tp_size * o->pp_size == 1 && (!comm_is_launched() || mpi_process_job_size() == 1))
        return 0;
    pthread_mutex_lock(&process.lock);
    deadline_begin(&d, o->timeout_us * EXCHANGE_FACTOR);
    int rc = open_ranks(&c, o, err);
    deadline_end(&d);
    pthread_mutex_unlock(&process.lock);
    if (rc == 0) *out = &c->base;
    return rc;
}

// The stage's first rank makes the memory, which goes with its last user; the others open it by that
// process. Where one of them cannot, all sum over MPI.
static int share_memory(struct mpi_comm *c) {
    const struct split *s = &c->base.split;
    const int32_t first = c->base.rank - s->tp_rank;
    bool local = true;
    for (int32_t r = 0; r < s->tp_size; r++) local = local && same_host(c, first + r);
    int fd = local && s->tp_rank == 0 ? host_sums_make(s->tp_size) : -1;
    int theirs = fd;
    MPI_RUN(c, c->timeout_us, MPI_Ibcast(&theirs, 1, MPI_INT, 0, c->stage, &request_));
    void *p = theirs >= 0 ? host_sums_map(c->ranks[first].pid, theirs, s->tp_size) : NULL;
    int mine = p != NULL, all = 0;
    MPI_RUN(c, c->timeout_us,
            MPI_Iallreduce(&mine, &all, 1, MPI_INT, MPI_MIN, c->stage, &request_));
    if (fd >= 0) close(fd);
    if (all)
        host_sums_init(&c->sums, p, s->tp_size, s->tp_rank);
    else if (mine)
        munmap(p, host_sums_bytes(s->tp_size));
    return 0;
}

int comm_split(struct comm *base, int32_t tp_size, int32_t pp_size, int64_t timeout_us,
               struct err *err) {
    struct mpi_comm *c = of(base);
    if (base->ops != &mpi_ops) return 0;
    base->split = comm_split_of(base->rank, tp_size, pp_size);
    c->timeout_us = timeout_us;
    int rc = check(c, MPI_Comm_split(c->world, base->split.pp_rank, base->rank, &c->stage));
    if (rc < 0) return err_set(err, rc, "%s", base->why.text);
    MPI_Comm_set_errhandler(c->stage, MPI_ERRORS_RETURN);
    if (tp_size > 1 && share_memory(c) < 0) return err_set(err, E_DEVICE, "%s", base->why.text);
    return 0;
}

// --- the others ----------------------------------------------------------------------------------

static int join_leader(struct mpi_comm **out, int64_t timeout_us, struct err *err) {
    MPI_Comm parent = MPI_COMM_NULL, world = MPI_COMM_NULL;
    TRY(mpi_process_start(end_process, err));
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL) {
        process.is_started = true;
        MPI_Intercomm_merge(parent, 1, &world);
        return make(out, world, timeout_us, err);
    }
    if (!comm_is_launched())
        return err_set(err, E_INVAL, "`parley rank` is started by another parley alone");
    return make(out, MPI_COMM_WORLD, timeout_us, err);
}

int comm_follow(struct comm **out, int64_t startup_us, struct err *err) {
    struct deadline d;
    struct mpi_comm *c = NULL;
    deadline_begin(&d, startup_us);
    int rc = join_leader(&c, startup_us, err);
    deadline_end(&d);
    if (rc == 0) *out = &c->base;
    return rc;
}

const char *comm_mpi_version(void) {
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int len;
    if (MPI_Get_library_version(text, &len) != MPI_SUCCESS) return "yes";
    text[strcspn(text, ",\n")] = '\0'; // where and by whom it was built
    return text;
}

#endif
