// What the files of the MPI comm share: its state, and how an operation waits (written for Open MPI 4.1).
//
// Open MPI's own waits never end when a peer dies, and they occupy a core. So every operation is
// non-blocking, and a loop tests it. The loop yields the core, later sleeps between tests, checks that
// the peers of this machine live, and ends at the time limit. Where other programs want the cores, a
// yield gives away whole time slices, many for each layer, so the loop then sleeps from the start.
#pragma once
#include "engine/dist/comm.h"
#include "engine/dist/host_sums.h"
#include <mpi.h>

enum {
    MOST_SENT = 16, // messages on their way to the next stage whose bytes are the caller's
    MOST_POSTS = 128,
};

// A message that was copied, so that its bytes may change before it has left (mpi_posts.c).
struct mpi_post {
    char *bytes;
    size_t room;
    MPI_Request request; // MPI_REQUEST_NULL: the message has left
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
    struct mpi_post posts[MOST_POSTS]; // [n_posts ..) have never been used
    int n_posts;
};

// Whether any comm of this process has failed. MPI then no longer ends in an orderly way.
extern _Atomic bool mpi_is_broken;

// Breaks the comm, with a sentence. Returns E_DEVICE.
__attribute__((format(printf, 2, 3))) int mpi_broke(struct mpi_comm *c, const char *fmt, ...);
// The result of an MPI call as 0 or E_DEVICE.
int mpi_checked(struct mpi_comm *c, int rc);
bool mpi_same_host(const struct mpi_comm *c, int32_t rank);
// E_DEVICE where a peer of this machine has ended.
int mpi_look(struct mpi_comm *c);

struct mpi_waiting {
    struct mpi_comm *c;
    int64_t limit_us; // 0: none
    bool asleep;      // it naps from the start
    int64_t began, looked, last;
};
// Between the looks i = 0, 1, ... for what is awaited. ctx: a struct mpi_waiting.
int mpi_wait_on(void *ctx, int64_t i);
int mpi_wait_for(struct mpi_comm *c, MPI_Request *request, int64_t limit_us, bool asleep);

// One operation: starts it and waits.
#define MPI_RUN(c, limit_us, start) MPI_RUN_ASLEEP(c, limit_us, false, start)
#define MPI_RUN_ASLEEP(c, limit_us, asleep, start)                                                 \
    do {                                                                                           \
        MPI_Request request_ = MPI_REQUEST_NULL;                                                   \
        if ((c)->base.why.code < 0) return E_DEVICE;                                               \
        TRY(mpi_checked(c, start));                                                                \
        TRY(mpi_wait_for(c, &request_, limit_us, asleep));                                         \
    } while (0)

// --- mpi_posts.c ---------------------------------------------------------------------------------

// Copies n bytes and sends them to a rank. Returns before they have left. E_NOMEM breaks nothing.
int mpi_post(struct mpi_comm *c, const void *bytes, size_t n, int32_t to, int tag);
// Moves the posts on their way, as `sent` of struct comm_ops does.
int mpi_posts_move(struct mpi_comm *c);
void mpi_posts_release(struct mpi_comm *c);
