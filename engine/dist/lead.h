// The leader's side of an instance of several ranks: opens them and sends them every step. With one rank
// each call returns at once.
//
//   lead_open    starts or joins the ranks, which begin to load the model
//   lead_loaded  waits until all have loaded the same model with the same build
//   lead_size    sets the size of the cache on every rank; then the ranks wait for steps
//   lead_step .. sends the ranks an operation, before the leader's device does the same
//
// The engine's owner opens and closes it; the engine's thread makes all other calls. A call that fails
// returns E_DEVICE, and lead_why says which rank is gone.
#pragma once
#include "engine/dist/comm.h"
#include "engine/dist/plan.h"
#include "engine/model/model.h"
#include "kernels/backend.h"

enum { LEAD_PING_US = 5000000 };

// Payloads too large for `plan`: of[sent] is the last one, which all ranks still have (sent_bytes; 0: none),
// and the other the one being made.
struct lead_payloads {
    char *of[2];
    size_t room[2];
    int sent;
    int64_t sent_bytes;
};

struct lead {
    struct comm *comm;
    struct plan *plan; // the message that is sent; NULL with one rank
    struct lead_payloads payloads[PLAN_SLOTS];
    int32_t n_groups; // of the caches; after lead_size
    int32_t n_ahead;  // steps that were sent and that the leader's device has not begun
    char *host; // memory of the leader's parked blocks, which have the same numbers on all ranks
    size_t host_block_bytes;
    size_t *parts;      // (n_ranks) bytes of each rank's part of a block; NULL with one rank
    size_t whole_bytes; // their sum
    int64_t quiet_us;   // since when no plan was sent, as lead_check has seen it; 0: one was
    int64_t weight_bytes, weight_bytes_read; // of all ranks; after lead_loaded
};

struct lead_options {
    struct comm_options comm;
    struct plan_open open; // without the sizes and the build, which lead_open fills in
};
// One rank: opens only l->comm. More: sends them o->open, and returns when all have answered that they are the
// same build. Call lead_close after an error too. E_NOMEM, or the error of comm_open or of a rank.
int lead_open(struct lead *l, const struct lead_options *o, struct err *err);
void lead_close(struct lead *l); // a zeroed or closed one is allowed
// No other rank takes part in this engine's steps. NULL: alone.
static inline bool lead_is_alone(const struct lead *l) {
    return !l || !l->plan;
}
// Threads of one rank: `asked`, or, if that is 0, its share of the processors that the ranks have in common.
int lead_threads(const struct comm *c, int asked);

// What a rank has loaded, for its report.
void lead_describe(struct rank_report *r, const struct model *m);
// mine: the leader's own report of what it has loaded, or why it could not. E_*: the error of the first
// rank that failed, with its number and machine.
int lead_loaded(struct lead *l, const struct rank_report *mine, struct err *err);
// block_bytes: of the leader's own blocks. Also connects the ranks' devices with that of the leader's
// backend `be`.
int lead_size(struct lead *l, struct backend *be, const struct plan_size *size, size_t block_bytes,
              struct err *err);
void lead_host(struct lead *l, void *memory, size_t block_bytes); // of the parked blocks

// n_parts: how many parts the step is computed in (engine/run/parts.h). virtual_width: floats of each of
// the batch's virtual rows.
int lead_step(struct lead *l, enum plan_kind kind, const struct batch *b, bool one_layer,
              int32_t n_parts, int32_t virtual_width);
// A whole step that the other ranks may begin before the leader does. slot: of its payload, the same one for
// the same group of sessions. Until the leader has begun all such steps (lead_begins, in the order in which
// they were sent), ranks may be waiting for it, so only lead_copy, lead_move and further steps may follow: no
// call that needs an answer, or logits of the last step.
int lead_step_ahead(struct lead *l, const struct batch *b, int32_t slot);
void lead_begins(struct lead *l);
int lead_logits(struct lead *l, int32_t first, int32_t n);
int lead_copy(struct lead *l, int32_t dst, int32_t src);
// kind: PLAN_SAVE or PLAN_LOAD; n blocks of the device and of host memory.
int lead_move(struct lead *l, enum plan_kind kind, const int32_t *blocks, void *const *host,
              int32_t n);
// The parts that the other ranks have of n parked blocks, `host` being their numbers: fetched to or put
// from memory of the leader. whole[i] (whole_bytes) is block i: the ranks' parts in rank order. The
// leader's own part, at the front, is left to the caller.
int lead_fetch(struct lead *l, const int32_t *host, int32_t n, void *const *whole);
int lead_put(struct lead *l, const int32_t *host, int32_t n, const void *const *whole);
// For an idle engine, a few times a second: E_DEVICE where a rank of this machine has ended. After LEAD_PING_US
// without a plan it also asks every rank for an answer, and waits for that, so that a rank that hangs is found
// before a turn needs it.
int lead_check(struct lead *l);
// What the leader's own result rc means once the other ranks have the plan. A failure is E_DEVICE: they wait in its sums,
// which it will never join, so this instance computes nothing more, and closing it does not wait for them. With one
// rank rc itself.
int lead_among_ranks(struct lead *l, int rc);
// The sentence of the failure; NULL: none.
const char *lead_why(const struct lead *l);
