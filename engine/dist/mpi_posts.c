// Messages that are copied and leave in the background: activations of a few rows, and the plans of steps
// that are sent ahead (lead.h). Their sender need not wait for a receiver that computes another step first,
// which may in turn wait for the sender. See mpi_wait.h.
#include "engine/dist/comm.h"

#if PARLEY_MPI
#include "engine/dist/mpi_wait.h"
#include <stdlib.h>
#include <string.h>

static int has_left(struct mpi_comm *c, struct mpi_post *p, int *left) {
    *left = 1;
    if (p->request == MPI_REQUEST_NULL) return 0;
    return mpi_checked(c, MPI_Test(&p->request, left, MPI_STATUS_IGNORE));
}

// Few posts are on their way at a time, so one of the first has left.
static int find(struct mpi_comm *c, struct mpi_post **out) {
    struct mpi_waiting w = {.c = c, .limit_us = c->timeout_us};
    for (int64_t i = 0;; i++) {
        for (int k = 0; k < c->n_posts; k++) {
            int left;
            TRY(has_left(c, *out = &c->posts[k], &left));
            if (left) return 0;
        }
        if (c->n_posts < MOST_POSTS) {
            *out = &c->posts[c->n_posts++];
            (*out)->request = MPI_REQUEST_NULL;
            return 0;
        }
        TRY(mpi_wait_on(&w, i));
    }
}

int mpi_post(struct mpi_comm *c, const void *bytes, size_t n, int32_t to, int tag) {
    struct mpi_post *p;
    if (c->base.why.code < 0) return E_DEVICE;
    TRY(find(c, &p));
    if (n > p->room) {
        char *more = realloc(p->bytes, n);
        if (!more) return E_NOMEM;
        p->bytes = more;
        p->room = n;
    }
    memcpy(p->bytes, bytes, n);
    return mpi_checked(c, MPI_Isend(p->bytes, (int)n, MPI_BYTE, to, tag, c->world, &p->request));
}

int mpi_posts_move(struct mpi_comm *c) {
    int left;
    for (int k = 0; k < c->n_posts; k++) TRY(has_left(c, &c->posts[k], &left));
    return 0;
}

void mpi_posts_release(struct mpi_comm *c) {
    for (int k = 0; k < c->n_posts; k++) free(c->posts[k].bytes);
    c->n_posts = 0;
}

#endif
