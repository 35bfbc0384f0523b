// All state of the engine's thread: scheduler, caches, forward pass, and the live turns.
// core_round() is one round of its loop; the thread calls it in a loop, tests call it directly.
//
//   engine_core.c (the round) -> turns.h (begin, end), flight.h -> step.h (one step) -> emit_later.h -> engine/cache
//
// Engine thread only, once the thread runs. Other threads read `load` (load.h) and send commands (command.h).
#pragma once
#include "engine/cache/caches.h"
#include "engine/run/drawing.h"
#include "engine/run/emit.h"
#include "engine/run/final_norm.h"
#include "engine/run/flight.h"
#include "engine/run/forward.h"
#include "engine/run/scheduler.h"
#include "engine/run/step.h"

// A token that is in its turn's log and has not been emitted yet (emit_later.c).
struct pending_token {
    struct live_turn *turn;
    struct sampled drawn;
};

struct core_load;
struct core_options { // computed by engine_open
    int32_t max_running, prefill_tokens;
    int32_t max_turns; // of one priority, running or not
    int64_t max_session_len;
    enum dtype kv_dtype;
    int32_t block_tokens, n_blocks;
    int32_t max_idle; // these five as in struct cache_options
    int64_t host_cache_bytes;
    bool host_transit;
    const char *snapshot_dir;
    int64_t snapshot_bytes;
    struct kv_snapshot_maker maker;
    struct lead *lead;      // the engine's
    struct core_load *load; // where it publishes its load; zeroed
    // Takes its events instead of the queue, on the engine's thread. NULL: none.
    void (*sink)(void *ctx, struct engine_event *events, size_t n);
    void *sink_ctx;
    void (*measuring)(void *ctx, int64_t done, int64_t total); // engine_options'
    void *measuring_ctx;
};

struct engine_core {
    // Given at init, borrowed.
    const struct model *model;
    const struct tokenizer *tokenizer; // NULL: ids only
    const int32_t *eos_ids;            // (n_eos) these end a turn
    int32_t n_eos;
    struct queue *commands; // of struct command
    struct core_options opt;

    struct caches caches;
    struct scheduler sched;
    struct step steps[PLAN_SLOTS]; // [0, n_steps): whole steps are the first one
    int32_t n_steps, n_groups;     // n_groups: of sessions, one for each pipeline stage (flight.c)
    int32_t flight_rows;           // a group has at least so many turns
    struct step *step;             // the one that is built or computed now
    struct flight flight;
    struct forward forward;
    struct final_norm final_norm; // for context outputs
    struct drawings drawings;
    struct turn_slot *slots;       // (max_running + 1) one more for the end of a paused turn
    struct sched_share *shares;    // (max_running) the step's plan
    struct batch_drawn *drawn;     // (max_logits) what the device drew in the step
    float *hidden;                 // (width) of one row
    struct pending_token *pending; // (max_running) emitted while the device computes the next step
    int32_t n_pending;
    struct unwaited { // steps queued on the device that the host has not waited for (step.c)
        int64_t began_us, n_rows, n_seqs;
        bool unclear; // their duration cannot be measured
    } unwaited;
    int64_t mask_effort; // of the masks made in a round (masks.c)
    int64_t mask_left;   // of it, in this round
    int32_t mask_cursor; // index into the scheduler's running turns: the first to get masks
    bool idle;           // no turn has ended, begun or taken part in a step since the last commands
    bool cache_work;     // there is more to copy: the loop does not wait for commands
    int64_t next_deadline_us; // no turn's deadline is earlier
    struct buf scratch, text; // of one token at a time
    struct emitter emit;
    struct engine_metrics metrics;
    struct core_load *load; // the options'
    bool check;             // caches_check() after every step
    bool save_at_stop;      // the owner asked for snapshots of all caches when the engine stops
    bool stopping;
};

int32_t core_max_rows(const struct core_options *o); // of the widest step
// How many of max_running places a turn with n_branches branches (1: none) holds. One is left over, so that another
// owner's turn need not wait until a turn with branches is paused, which then computes all of its branches again.
int32_t core_places(int32_t max_running, int32_t n_branches);
// Rows whose logits are made together.
int32_t core_max_logits(const struct core_options *o);
struct core_parts { // what the engine has opened: borrowed until core_release
    const struct model *model;
    const struct tokenizer *tokenizer; // NULL: ids only
    const int32_t *eos_ids;            // (n_eos) these end a turn
    int32_t n_eos;
    struct queue *commands, *events; // of struct command, of struct engine_event
    const struct clock *clock;
};
// Allocates everything. On failure *in is zeroed.
int core_init(struct engine_core *core, const struct core_parts *p, const struct core_options *opt,
              struct err *err);
void core_release(struct engine_core *core);

// One round: commands (waits up to timeout_us for the first if no turn runs), deadlines, admission, one
// step, and copies of caches. False: COMMAND_STOP came, and every turn has ended.
bool core_round(struct engine_core *core, int64_t timeout_us);
