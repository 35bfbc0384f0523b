// All state of the engine's thread: scheduler, caches, forward pass, and the live turns.
// instance_round() is one round of its loop; the thread calls it in a loop, tests call it directly.
//
//   instance.c (the round) -> turns.c (begin, end), flight.c -> step.c (one step) -> emit_later.c -> engine/cache
//
// Engine thread only, once the thread runs. Other threads read `load` (atomics) and send commands.
#pragma once
#include "engine/cache/caches.h"
#include "engine/run/batch.h"
#include "engine/run/drawing.h"
#include "engine/run/emit.h"
#include "engine/run/final_norm.h"
#include "engine/run/forward.h"
#include "engine/run/scheduler.h"
#include <stdatomic.h>

enum { MASK_EFFORT = 120000 }; // some 2 ms (grammar/machine.h)

enum command_kind {
    COMMAND_SUBMIT,
    COMMAND_CANCEL,
    COMMAND_YIELD,
    COMMAND_RELEASE,
    COMMAND_PARK,
    COMMAND_WARM,
    COMMAND_PREPARE,
    COMMAND_FORK,
    COMMAND_EXPORT,
    COMMAND_IMPORT,
    COMMAND_FORGET,
    COMMAND_SNAPSHOT,
    COMMAND_SAVE,
    COMMAND_STOP,
    COMMAND_BELL, // these two are for an engine process's supervisor alone (engine/process)
    COMMAND_TAKEN_UP
};
struct command {
    enum command_kind kind;
    uint64_t sequence, turn_id;
    struct live_turn *turn; // SUBMIT, PREPARE: passes to the instance
    uint64_t from;          // FORK: `sequence` begins with the first n_tokens of this one
    int64_t n_tokens;
    struct packed_cache *cache; // IMPORT: passes to the instance
    struct hash128 name;        // FORGET: of the snapshot
    struct snapshot_job *job;   // SNAPSHOT: a thread of the snapshot folder has finished it
};

struct instance_load { // written by the engine's thread, read by any
    struct {
        _Atomic int32_t running, queued, paused;
    } turns[ENGINE_N_PRIORITIES];
    _Atomic int32_t sequences, blocks_free, blocks_idle, parked, host_blocks_free, snapshots;
    _Atomic int64_t snapshot_bytes;
    _Atomic int64_t steps, step_us_ewma, heartbeat_us;
    _Atomic bool device_lost;
    char why_lost[256];         // how the device failed; written once, before says_why
    _Atomic bool says_why;      // why_lost can be read
    _Atomic int32_t drawing_on; // the core that is drawing tokens; -1: none
};

// A token that is in its turn's log and has not been emitted yet (emit_later.c).
struct pending_token {
    struct live_turn *turn;
    struct sampled drawn;
};

// One step from its plan to its last draw.
struct step {
    struct batch_builder batch;
    // (max_seqs) the turn of each sequence of the batch; NULL once the turn has ended
    struct live_turn **turns;
    int32_t *branches;        // (max_seqs) and its branch
    struct batch_draw *draws; // (max_logits) by wanted row, if the device draws
    bool *adjusts;            // (max_logits) the device changes this row's logits, then draws
    int32_t n_draft_rows;
    // Turns that wait for a mask since the launch: no token is drawn from their rows.
    int32_t n_undrawn;
    bool is_prefix;            // it writes a prefix's keys and values to the cache
    int32_t group;             // of sessions (flight.c)
    const struct step *before; // while it is built: the step that it follows (flight.c), or NULL
    int rc;                    // of the launch of a step that another may follow
    int64_t began_us;
};

// Several steps under way at once (flight.c).
enum flight_state {
    FLIGHT_OFF,   // whole steps, because there is other work
    FLIGHT_READY, // the last round was a whole step and left no other work
    FLIGHT_ON,    // each round begins a step and ends the oldest
    FLIGHT_ENDS,  // no step begins
};
struct flight {
    enum flight_state state;
    int32_t first, n;  // the steps under way, in order: first, first + 1, .. of n_steps
    int32_t left;      // steps until the next whole one
    int32_t n_running; // turns at the start
};

struct instance_options { // computed by engine_open
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
    struct lead *lead;          // the engine's
    struct instance_load *load; // where it publishes its load; zeroed
    // Takes its events instead of the queue, on the engine's thread. NULL: none.
    void (*sink)(void *ctx, struct engine_event *events, size_t n);
    void *sink_ctx;
    void (*measuring)(void *ctx, int64_t done, int64_t total); // engine_options'
    void *measuring_ctx;
};

struct instance {
    // Given at init, borrowed.
    const struct model *model;
    const struct tokenizer *tokenizer; // NULL: ids only
    const int32_t *eos_ids;            // (n_eos) these end a turn
    int32_t n_eos;
    struct queue *commands; // of struct command
    struct instance_options opt;

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
    struct instance_load *load; // the options'
    bool check;                 // caches_check() after every step
    bool save_at_stop;          // the owner asked for snapshots of all caches when the engine stops
    bool stopping;
};

int32_t instance_max_rows(const struct instance_options *o); // of the widest step
// How many of max_running places a turn with n_branches branches (1: none) holds. One is left over, so that another
// owner's turn need not wait until a turn with branches is paused, which then computes all of its branches again.
int32_t instance_places(int32_t max_running, int32_t n_branches);
// Rows whose logits are made together.
int32_t instance_max_logits(const struct instance_options *o);
struct instance_parts { // what the engine has opened: borrowed until instance_release
    const struct model *model;
    const struct tokenizer *tokenizer; // NULL: ids only
    const int32_t *eos_ids;            // (n_eos) these end a turn
    int32_t n_eos;
    struct queue *commands, *events; // of struct command, of struct engine_event
    const struct clock *clock;
};
// Allocates everything. On failure *in is zeroed.
int instance_init(struct instance *in, const struct instance_parts *p,
                  const struct instance_options *opt, struct err *err);
void instance_release(struct instance *in);

// One round: commands (waits up to timeout_us for the first if no turn runs), deadlines, admission, one
// step, and copies of caches. False: COMMAND_STOP came, and every turn has ended.
bool instance_round(struct instance *in, int64_t timeout_us);

// --- turns.c: how turns begin and end ------------------------------------------------------------

// Carries out one command of the queue, and takes what it owns.
void instance_command(struct instance *in, const struct command *c);
void instance_expire(struct instance *in); // ends turns whose deadline has passed
void instance_admit(struct instance *in);  // and pauses turns for others
// Lets turns whose resume has ended, with or without their cache, take part in steps.
void instance_start_resumed(struct instance *in);
// A turn ends: emits the text that was held back and DONE; the sequence goes idle; frees the turn.
// why: with FINISH_ERROR. drop_cache: the cache's contents cannot be trusted.
void instance_finish(struct instance *in, struct live_turn *t, enum engine_finish finish,
                     const struct err *why, bool drop_cache);
int32_t instance_n_stepping(const struct instance *in); // running turns that do not wait

// --- blocks.c ------------------------------------------------------------------------------------

// Admission has promised the blocks; idle sequences that hold them are evicted here, when a turn
// needs them. TURN_WAITS: a cache is being copied first (cache/park.c).
enum { TURN_WAITS = 1 };
int instance_take_blocks(struct instance *in, struct kv_ring *ring, int32_t n);

// --- branch_step.c: turns with branches ----------------------------------------------------------

// Adds the turn's rows to the batch; n_tokens: its share. TURN_WAITS: adds none in this step. Negative:
// the turn ends.
int instance_branch_rows(struct instance *in, struct live_turn *t, int32_t n_tokens);
// Whether the logits of this position draw the branch's next token.
bool instance_branch_draws(const struct live_turn *t, int32_t branch, int64_t position);
// How many draws use one row's logits: all samples draw their first token from the same row.
int32_t instance_branch_jobs(const struct live_turn *t);
void instance_branch_job(struct instance *in, int32_t seq, int32_t job, const float *logits);
// Adds a sample's drawn token. Negative: the turn ends with an error.
int instance_branch_accept(struct instance *in, struct live_turn *t, int32_t branch,
                           const struct sampled *s, int64_t time_us);
bool instance_branches_over(const struct live_turn *t);
// Makes the next step's beams, once all beams of this step are ranked. Negative: the turn ends with an error.
int instance_branches_advance(struct instance *in, struct live_turn *t);
// Called when the turn ends and still has its slot: emits the rest of its answer, and makes the result.
int instance_branches_settle(struct instance *in, struct live_turn *t, enum engine_finish finish,
                             bool ran);

// --- masks.c -------------------------------------------------------------------------------------

// Make masks that the next draws of turns need, and mark the turns that wait. The first one is called before the plan,
// for turns whose masks must be complete before the step; the second one while the device computes, and where there is
// no step, for the others.
void instance_prepare_masks(struct instance *in);
void instance_make_masks_late(struct instance *in);

// --- draft_step.c: drafts in a step ---------------------------------------------------------------

// Called before the plan: finds drafts for each decoding turn, and writes them after its log.
void instance_find_drafts(struct instance *in);
// Whether the turn's next token is drawn from this row: all drafts before the row were accepted.
bool instance_is_next(const struct instance *in, const struct live_turn *t, int32_t row);
// Called when the turn's next token is drawn from this position: commits the draft there to the cache.
void instance_keep_draft(struct live_turn *t, int64_t position);
// Compares a drawn token, which is not in the log yet, with the draft in its place.
void instance_compare_draft(struct live_turn *t, int32_t id);
// Called after the step's draws: removes the rejected drafts from the cache.
void instance_settle_drafts(struct instance *in, struct live_turn *t);

// --- step.c --------------------------------------------------------------------------------------

bool instance_step(struct instance *in); // false: every running turn waits for blocks or a mask

// The parts of a step, for in->step. all: false for a step of in->step's group alone.
// False: it has no rows.
bool instance_build_step(struct instance *in, bool all);
// sent: forward_send was called. Returns once the device computes the step, or has computed it.
int instance_launch_step(struct instance *in, bool sent);
void instance_complete_step(struct instance *in, int rc); // rc: of the launch

// --- flight.c ------------------------------------------------------------------------------------

int32_t instance_flight_rows(const struct backend *be); // from which a flight is faster

// Whether the next round is a flight's: it goes on, or one begins where the last round was a whole step.
bool instance_flies_on(struct instance *in);
bool instance_takes_off(struct instance *in);
// Such a round: begins the next groups' steps, and ends the oldest one.
void instance_fly(struct instance *in);
// Ends all steps under way, so that turns and caches may change. Without a device their turns end with an error.
void instance_land(struct instance *in);
// The turn's rows of steps under way do not count: it ends, or its last token is computed again.
void instance_leave_flight(struct instance *in, const struct live_turn *t);
// Whether a step that follows in->step is under way: the draws of in->step come by forward_draws_before, and its
// logits are lost.
bool instance_is_followed(const struct instance *in);

// --- emit_later.c --------------------------------------------------------------------------------

// Counts a token that was drawn at this time.
void instance_mark_token(struct instance *in, struct live_turn *t, int64_t time_us);
bool instance_ends_turn(const struct instance *in, const struct live_turn *t, int32_t id);
// Puts the token into its turn's log; the next instance_emit_pending emits its event. False: the
// token may end the turn, and has to be emitted now.
bool instance_emit_later(struct instance *in, struct live_turn *t, const struct sampled *s);
// Emits the pending tokens. Called before any other event of a turn, and before the engine waits.
void instance_emit_pending(struct instance *in);
