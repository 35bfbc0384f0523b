// The table for one rank, and how ranks are numbered. See comm.h.
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
static int none_send(struct comm *c, struct backend *be, const void *x, int64_t n,
                     int32_t pp_rank) {
    return 0;
}
static int none_recv(struct comm *c, struct backend *be, void *x, int64_t n, int32_t pp_rank) {
    return 0;
}
static int none_broadcast(struct comm *c, void *bytes, size_t n, bool idle) {
    return 0;
}
static int none_exchange(struct comm *c, const void *mine, void *all, size_t each) {
    memcpy(all, mine, each);
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
    .send = none_send,
    .recv = none_recv,
    .broadcast = none_broadcast,
    .exchange = none_exchange,
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
