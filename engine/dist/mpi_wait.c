// How operations over MPI wait. See mpi_wait.h.
#include "engine/dist/comm.h"

#if PARLEY_MPI
#include "base/clock.h"
#include "engine/dist/identity.h"
#include "engine/dist/mpi_wait.h"
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    NAP_AFTER_US = 20000,   // longer than a GPU's step; then it naps between tests
    NAP_US = 50,            // within a step
    SLICE_US = 500,         // a yield this long ran another program: the cores are crowded
    CROWDED_US = 200000,    // how long they are then taken to be
    IDLE_AFTER_US = 200000, // an idle rank naps longer
    IDLE_NAP_US = 1000,
    LOOK_US = 50000,    // between looks at the peers
    STILL_US = 1000000, // between two tests: far longer than a nap
};

_Atomic bool mpi_is_broken; // only ever set

int mpi_broke(struct mpi_comm *c, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    if (c->base.why.code == 0) {
        vsnprintf(c->base.why.text, sizeof c->base.why.text, fmt, ap);
        c->base.why.code = E_DEVICE;
    }
    va_end(ap);
    mpi_is_broken = true;
    return E_DEVICE;
}

int mpi_checked(struct mpi_comm *c, int rc) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    if (rc == MPI_SUCCESS) return 0;
    MPI_Error_string(rc, text, &n);
    return mpi_broke(c, "the ranks cannot talk to each other: %.300s", text);
}

bool mpi_same_host(const struct mpi_comm *c, int32_t rank) {
    return strcmp(c->ranks[rank].host, c->ranks[c->base.rank].host) == 0;
}

// Processes of other machines are left to mpirun and to the time limit.
int mpi_look(struct mpi_comm *c) {
    for (int32_t r = 0; c->ranks && r < c->base.n_ranks; r++) {
        if (r == c->base.rank || !mpi_same_host(c, r)) continue;
        if (kill(c->ranks[r].pid, 0) < 0 && errno == ESRCH)
            return mpi_broke(c, "rank %d of %d (process %d) has ended", r, c->base.n_ranks,
                             c->ranks[r].pid);
    }
    return 0;
}

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
int mpi_wait_on(void *ctx, int64_t i) {
    struct mpi_waiting *w = ctx;
    const int64_t now = clock_mono_us(&clock_system);
    if (i == 0) w->began = w->looked = w->last = now;
    // A process that stood still itself, with its machine perhaps, heard nothing meanwhile.
    if (now - w->last > STILL_US) w->began += now - w->last;
    w->last = now;
    const int64_t waited = now - w->began;
    if (now - w->looked >= LOOK_US) {
        w->looked = now;
        TRY(mpi_look(w->c));
    }
    if (w->limit_us > 0 && waited > w->limit_us)
        return mpi_broke(w->c, "a rank has not answered for %.3g s", (double)w->limit_us * 1e-6);
    if (waited < NAP_AFTER_US && !w->asleep)
        give_way(w->c, now);
    else
        nap(w->asleep || (w->limit_us == 0 && waited > IDLE_AFTER_US) ? IDLE_NAP_US : NAP_US);
    return 0;
}

int mpi_wait_for(struct mpi_comm *c, MPI_Request *request, int64_t limit_us, bool asleep) {
    struct mpi_waiting w = {.c = c, .limit_us = limit_us, .asleep = asleep};
    for (int64_t i = 0;; i++) {
        int done = 0;
        TRY(mpi_checked(c, MPI_Test(request, &done, MPI_STATUS_IGNORE)));
        if (done) return 0;
        TRY(mpi_wait_on(&w, i));
    }
}

#endif
