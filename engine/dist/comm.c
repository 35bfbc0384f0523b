// The table for one rank, how ranks are numbered, and what a build without MPI answers. See comm.h.
#include "engine/dist/comm.h"
#include "kernels/backend.h"
#include <string.h>

// One rank's values are the sum, and its part of the logits is all of them: out and part are one
// buffer.
static int none_all_reduce(struct comm *c, struct backend *be, void *x, int64_t n) {
    return 0;
}
static int none_gather_rows(struct comm *c, struct backend *be, void *out, const void *part,
                            int32_t n_rows, int32_t part_width, int32_t width) {
    return 0;
}
static int none_share_draws(struct comm *c, struct backend *be, struct batch_drawn *drawn,
                            int32_t n) {
    return 0;
}
static int none_send(struct comm *c, struct backend *be, const void *x, int64_t n,
                     int32_t pp_rank) {
    return 0;
}
static int none_recv(struct comm *c, struct backend *be, void *x, int64_t n, int32_t pp_rank) {
    return 0;
}
static int none_sent(struct comm *c, bool wait) {
    return 0;
}
static int none_broadcast(struct comm *c, void *bytes, size_t n, enum comm_wait how) {
    return 0;
}
static int none_exchange(struct comm *c, const void *mine, void *all, size_t each) {
    memcpy(all, mine, each);
    return 0;
}
static int none_send_bytes(struct comm *c, const void *bytes, size_t n, int32_t to) {
    return 0;
}
static int none_recv_bytes(struct comm *c, void *bytes, size_t n, int32_t from) {
    return 0;
}
static int none_check(struct comm *c) {
    return 0;
}
static void none_close(struct comm *c) {}

static const struct comm_ops none_ops = {
    .name = "none",
    .all_reduce = none_all_reduce,
    .gather_rows = none_gather_rows,
    .share_draws = none_share_draws,
    .send = none_send,
    .recv = none_recv,
    .sent = none_sent,
    .broadcast = none_broadcast,
    .exchange = none_exchange,
    .send_bytes = none_send_bytes,
    .recv_bytes = none_recv_bytes,
    .check = none_check,
    .close = none_close,
};

struct comm *comm_none(void) {
    static struct comm none = {
        .ops = &none_ops, .split = {0, 1, 0, 1}, .n_ranks = 1, .n_sharing = 1, .n_local = 1};
    return &none;
}

// Ranks 0 .. tp - 1 are the last stage, the next tp ranks the stage before it.
struct split comm_split_of(int32_t rank, int32_t tp_size, int32_t pp_size) {
    return (struct split){rank % tp_size, tp_size, pp_size - 1 - rank / tp_size, pp_size};
}

// --- built without MPI ---------------------------------------------------------------------------

#if !PARLEY_MPI

const char *comm_mpi_version(void) {
    return NULL;
}
bool comm_is_launched(void) {
    return false;
}
bool comm_is_follower(void) {
    return false;
}
int comm_open(struct comm **out, const struct comm_options *o, struct err *err) {
    *out = comm_none();
    if (o->tp_size * o->pp_size == 1) return 0;
    return err_set(err, E_UNSUPPORTED,
                   "tensor_parallel and pipeline_parallel: this program was built without MPI; "
                   "install libopenmpi-dev and openmpi-bin and build it again");
}
int comm_follow(struct comm **out, int64_t startup_us, struct err *err) {
    return err_set(err, E_UNSUPPORTED, "this program was built without MPI");
}
int comm_split(struct comm *c, int32_t tp_size, int32_t pp_size, int64_t timeout_us,
               struct err *err) {
    return 0;
}
int comm_link(struct comm *c, struct backend *be, struct err *err) {
    return 0;
}
#endif
