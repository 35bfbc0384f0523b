// Communication between ranks, as a table: `none` for one rank; MPI on CPUs and NCCL on GPUs will
// be further tables. forward calls these where several ranks must agree and never depends on the
// number of ranks.
#pragma once
#include <stddef.h>
#include <stdint.h>

struct backend;
struct comm;

struct comm_ops {
    const char *name;
    // x (n), of the backend's activation dtype, becomes the sum over the tensor-parallel ranks, in
    // rank order, on every rank.
    int (*all_reduce)(struct comm *c, struct backend *be, void *x, int64_t n);
    // Logits: each rank's (n_rows, its vocab rows) become (n_rows, vocab) on every rank.
    int (*all_gather_rows)(struct comm *c, struct backend *be, void *out, const void *part,
                           int32_t n_rows, int32_t part_width);
    int (*send)(struct comm *c, struct backend *be, const void *x, int64_t n, int32_t pp_rank);
    int (*recv)(struct comm *c, struct backend *be, void *x, int64_t n, int32_t pp_rank);
    void (*close)(struct comm *c);
};
struct comm {
    const struct comm_ops *ops;
};

struct comm *comm_none(void); // one rank: every call is a no-op that succeeds; never closed
