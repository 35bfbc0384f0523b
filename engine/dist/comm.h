// Communication between the ranks of an instance, as a table: `none` for one rank, `mpi` for several.
// The forward pass calls these operations where ranks must agree, so it is the same for any number of
// ranks. Plans travel over MPI, and so do activations in host memory. GPUs exchange activations in other
// ways (comm_link, kernels/cuda/ranks.h).
//
// Rank 0 leads. It schedules, draws tokens and sends each step's plan to the others (lead.h), which run
// it (rank.h). It belongs to the last pipeline stage, which computes the logits; README.md has the
// numbering.
//
// No call waits for ever: it returns E_DEVICE when a peer has died or stays silent for the time limit.
// The first such failure breaks the comm for good (`why` says what happened), and later calls fail at
// once.
//
// One thread at a time: the one that opens, then the engine's.
#pragma once
#include "base/err.h"
#include "engine/dist/split.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct backend;
struct batch_drawn;
struct comm;

enum comm_wait {
    COMM_ANSWERS, // at most the time limit
    COMM_IDLE,    // for ever while the leader lives; looks often at first
    COMM_ASLEEP,  // the same, seldom from the start
    // The leader does not wait, because a rank may take the bytes only after a step that needs the leader. Where
    // there is one stage, no step is sent ahead, and this is COMM_ANSWERS.
    COMM_AHEAD,
};

struct comm_ops {
    const char *name;
    // x (n), of the backend's activation dtype, becomes the sum over the tensor-parallel ranks of
    // this stage, added in rank order. Every rank gets it.
    int (*all_reduce)(struct comm *c, struct backend *be, void *x, int64_t n);
    // Logits: each rank's (n_rows, part_width), the columns that split_even gives it, become
    // (n_rows, width) f32 on the stage's first rank. On the other ranks, out is not written.
    int (*gather_rows)(struct comm *c, struct backend *be, void *out, const void *part,
                       int32_t n_rows, int32_t part_width, int32_t width);
    // What the stage's first rank has drawn for n wanted rows reaches its other ranks: where the device reads
    // it, and for ranks in host memory into drawn (n).
    int (*share_draws)(struct comm *c, struct backend *be, struct batch_drawn *drawn, int32_t n);
    // Sends and receives activations x (n): to and from the rank of stage pp_rank that has the same part
    // of each layer. send may return before x has left: x must not change until `sent` has waited.
    int (*send)(struct comm *c, struct backend *be, const void *x, int64_t n, int32_t pp_rank);
    int (*recv)(struct comm *c, struct backend *be, void *x, int64_t n, int32_t pp_rank);
    // Moves what has been sent on its way, and with `wait` returns when all of it has left. Call it now
    // and then while computing: some networks move nothing in between.
    int (*sent)(struct comm *c, bool wait);
    // The leader's bytes reach all ranks. The leader may change them when the call returns.
    int (*broadcast)(struct comm *c, void *bytes, size_t n, enum comm_wait how);
    // Each rank's `each` bytes reach all ranks: all (n_ranks, each), in rank order.
    int (*exchange)(struct comm *c, const void *mine, void *all, size_t each);
    // Bytes of host memory from one rank to another, which calls the other of the two with the same n.
    int (*send_bytes)(struct comm *c, const void *bytes, size_t n, int32_t to);
    int (*recv_bytes)(struct comm *c, void *bytes, size_t n, int32_t from);
    // E_DEVICE where a peer of this machine has ended. Does not wait.
    int (*check)(struct comm *c);
    void (*close)(struct comm *c); // after the leader has told the others to close, or a failure
};
struct comm {
    const struct comm_ops *ops;
    struct split split; // what this rank computes
    int32_t rank, n_ranks;
    int32_t n_sharing;      // ranks on the same processors as this one, itself included
    int32_t place, n_local; // this rank among those of its machine, and their number
    struct backend *linked; // its device reaches those of the other ranks itself; NULL: none does
    struct err why;         // the failure that broke it; code 0: none
};

struct comm *comm_none(void); // one rank: every call is a no-op that succeeds; never closed

struct comm_options {
    int32_t tp_size, pp_size;
    int64_t timeout_us; // how long a peer may stay silent while others wait for it
};
// For the leader. Under mpirun or srun it joins all ranks of this process's job. Otherwise it starts
// tp_size * pp_size - 1 processes of this program, with the argument `rank`, on this machine. Started
// ranks outlive close: they wait for the next engine with as many ranks, and end with this process. With
// one rank it checks that the process was started alone, and gives comm_none(). E_INVAL: the job's size
// is not tp_size * pp_size. E_UNSUPPORTED: built without MPI. E_BUSY: another comm uses the job's ranks.
int comm_open(struct comm **out, const struct comm_options *o, struct err *err);
// The MPI library, "Open MPI v4.1.4"; NULL: built without MPI. Any thread, also before comm_open; valid for good.
const char *comm_mpi_version(void);
// Whether mpirun or srun has started this process as another rank than the first.
bool comm_is_follower(void);
bool comm_is_launched(void); // as any rank
// For the other ranks: waits for the leader, for at most startup_us. Then the process ends with a sentence
// and status 1, because MPI cannot be interrupted. comm_split sets c->split later.
int comm_follow(struct comm **out, int64_t startup_us, struct err *err);
// Divides the ranks into stages. Every rank calls it with the same sizes and limit.
int comm_split(struct comm *c, int32_t tp_size, int32_t pp_size, int64_t timeout_us,
               struct err *err);
// Connects the device with those of the other ranks, if it has memory of its own. All ranks call it after
// the caches have been allocated. close ends the connection, so call it before any rank closes its backend.
int comm_link(struct comm *c, struct backend *be, struct err *err);
// Which part of the model a rank computes.
struct split comm_split_of(int32_t rank, int32_t tp_size, int32_t pp_size);
