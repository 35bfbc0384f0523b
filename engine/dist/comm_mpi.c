// The table for ranks on CPUs, over MPI. See comm.h, and mpi_wait.h for how its operations wait.
#include "engine/dist/comm.h"

#if PARLEY_MPI
#include "base/log.h"
#include "engine/dist/deadline.h"
#include "engine/dist/identity.h"
#include "engine/dist/mpi_process.h"
#include "engine/dist/mpi_wait.h"
#include "engine/dist/plan.h"
#include "kernels/backend.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    EXCHANGE_FACTOR = 10, // while ranks start and models load: they wait so much longer
    SCRATCH_BYTES = 4 << 20,
    MESSAGE_BYTES = 1 << 30, // of one message: MPI counts in int
    BYTES_TAG = 1,           // activations have tag 0
    PLAN_TAG = 2,
    COPIED_BYTES = 1 << 20, // activations up to this size are copied and leave in the background
};

// MPI's state is the process's, and so is this. Guarded by the lock.
static struct {
    pthread_mutex_t lock;
    bool is_started;      // by another parley
    struct mpi_comm *all; // every comm there has been; they live as long as the process
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

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
        struct mpi_waiting w = {.c = c, .limit_us = c->timeout_us};
        if (base->why.code < 0) return E_DEVICE;
        return host_sums_run(&c->sums, values, n, mpi_wait_on, &w);
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

static int mpi_share_draws(struct comm *base, struct backend *be, struct batch_drawn *drawn,
                           int32_t n) {
    struct mpi_comm *c = of(base);
    if (base->split.tp_size == 1 || n == 0) return 0;
    if (base->linked) return be->ops->share_draws(be, n);
    MPI_RUN(c, c->timeout_us,
            MPI_Ibcast(drawn, n * (int)sizeof *drawn, MPI_BYTE, 0, c->stage, &request_));
    return 0;
}

// The rank of another stage with the same part of each layer (comm_split_of).
static int stage_peer(const struct comm *c, int32_t pp_rank) {
    return (c->split.pp_size - 1 - pp_rank) * c->split.tp_size + c->split.tp_rank;
}

static int mpi_sent(struct comm *base, bool wait) {
    struct mpi_comm *c = of(base);
    struct mpi_waiting w = {.c = c, .limit_us = c->timeout_us};
    if (base->why.code < 0) return E_DEVICE;
    TRY(mpi_posts_move(c));
    for (int64_t i = 0; c->n_sent > 0; i++) {
        int all = 0;
        TRY(mpi_checked(c, MPI_Testall(c->n_sent, c->sent, &all, MPI_STATUSES_IGNORE)));
        if (all) c->n_sent = 0;
        if (all || !wait) return 0;
        TRY(mpi_wait_on(&w, i));
    }
    return 0;
}

static int mpi_send(struct comm *base, struct backend *be, const void *x, int64_t n,
                    int32_t pp_rank) {
    struct mpi_comm *c = of(base);
    const size_t bytes = (size_t)n * sizeof(float);
    const int to = stage_peer(base, pp_rank);
    if (base->linked) return be->ops->send(be, x, n);
    if (bytes <= COPIED_BYTES) return mpi_post(c, x, bytes, to, 0);
    TRY(mpi_sent(base, c->n_sent == MOST_SENT));
    return mpi_checked(c,
                       MPI_Isend(x, (int)bytes, MPI_BYTE, to, 0, c->world, &c->sent[c->n_sent++]));
}

static int mpi_recv(struct comm *base, struct backend *be, void *x, int64_t n, int32_t pp_rank) {
    struct mpi_comm *c = of(base);
    if (base->linked) return be->ops->recv(be, x, n);
    MPI_RUN(c, c->timeout_us,
            MPI_Irecv(x, (int)((size_t)n * sizeof(float)), MPI_BYTE, stage_peer(base, pp_rank), 0,
                      c->world, &request_));
    return 0;
}

// From the leader to each rank. A broadcast of MPI goes from rank to rank, so a rank that computes would keep
// it from others.
static int tell(struct mpi_comm *c, const char *bytes, size_t n, enum comm_wait how) {
    for (int32_t r = 1; r < c->base.n_ranks; r++) TRY(mpi_post(c, bytes, n, r, PLAN_TAG));
    for (int k = 0; k < c->n_posts && how != COMM_AHEAD; k++)
        TRY(mpi_wait_for(c, &c->posts[k].request, c->timeout_us, false));
    return 0;
}

static int mpi_broadcast(struct comm *base, void *bytes, size_t n, enum comm_wait how) {
    struct mpi_comm *c = of(base);
    const int64_t limit_us = how == COMM_ANSWERS ? c->timeout_us : 0;
    for (size_t at = 0, each; at < n; at += each) {
        char *x = (char *)bytes + at;
        each = n - at < MESSAGE_BYTES ? n - at : MESSAGE_BYTES;
        if (base->split.pp_size > 1 && base->rank == 0)
            TRY(tell(c, x, each, how));
        else if (base->split.pp_size > 1)
            MPI_RUN_ASLEEP(c, limit_us, how == COMM_ASLEEP,
                           MPI_Irecv(x, (int)each, MPI_BYTE, 0, PLAN_TAG, c->world, &request_));
        else
            MPI_RUN_ASLEEP(c, limit_us, how == COMM_ASLEEP,
                           MPI_Ibcast(x, (int)each, MPI_BYTE, 0, c->world, &request_));
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
    return base->why.code ? E_DEVICE : mpi_look(of(base));
}

static int link_check(void *ctx, int64_t waited_us) {
    struct mpi_comm *c = ctx;
    TRY(mpi_posts_move(c));
    if (waited_us > c->timeout_us)
        return mpi_broke(c, "a rank has not answered for %.3g s", (double)c->timeout_us * 1e-6);
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
    mpi_posts_release(c);
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
    .share_draws = mpi_share_draws,
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
        if (c->base.why.code) mpi_is_broken = true; // its user broke it, perhaps
    for (struct mpi_comm *c = process.all; c && !mpi_is_broken; c = c->next)
        if (c->base.rank == 0) (void)mpi_broadcast(&c->base, &end, sizeof end, COMM_ANSWERS);
    if (!mpi_is_broken && comm_is_launched() && !process.is_started) MPI_Finalize();
}

// --- opening -------------------------------------------------------------------------------------

// Who the others are. Until then their lives cannot be watched.
static int meet(struct mpi_comm *c) {
    struct identity me, *all = calloc((size_t)c->base.n_ranks, sizeof *all);
    if (!all) return mpi_broke(c, "no memory for %d ranks", c->base.n_ranks);
    identity_take(&me);
    int rc = mpi_exchange(&c->base, &me, c->ranks = all, sizeof me);
    for (int32_t r = 0; rc == 0 && r < c->base.n_ranks; r++) {
        c->base.n_sharing += mpi_same_host(c, r) && all[r].cpus == me.cpus;
        c->base.n_local += mpi_same_host(c, r);
        c->base.place += r < c->base.rank && mpi_same_host(c, r);
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
    for (int32_t r = 0; r < s->tp_size; r++) local = local && mpi_same_host(c, first + r);
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
    int rc = mpi_checked(c, MPI_Comm_split(c->world, base->split.pp_rank, base->rank, &c->stage));
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
