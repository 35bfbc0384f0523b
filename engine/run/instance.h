// The engine thread's whole world: scheduler, cache, forward, and the turns in flight.
// instance_round() is one turn of its loop; the thread calls it for ever, tests call it by hand.
//
// Engine thread only, once the thread runs; what other threads may read is in `load` (atomics),
// what they may say comes as commands.
#pragma once
#include "engine/run/batch.h"
#include "engine/run/drawing.h"
#include "engine/run/emit.h"
#include "engine/run/forward.h"
#include "engine/run/resume.h"
#include "engine/run/run_metrics.h"
#include "engine/run/sequence.h"
#include "engine/run/snapshots.h"
#include "engine/run/tiers.h"
#include "kvcache/check.h"
#include <stdatomic.h>

enum command_kind {
    COMMAND_SUBMIT,
    COMMAND_CANCEL,
    COMMAND_RELEASE,
    COMMAND_PARK,
    COMMAND_WARM,
    COMMAND_PREPARE,
    COMMAND_FORK,
    COMMAND_FORGET,
    COMMAND_SNAPSHOT,
    COMMAND_KEEP,
    COMMAND_STOP
};
struct command {
    enum command_kind kind;
    uint64_t sequence, turn_id;
    struct turn *turn; // SUBMIT, PREPARE: passes to the instance
    uint64_t from;     // FORK: whose first n_tokens tokens `sequence` begins with
    int64_t n_tokens;
    struct hash128 name;      // FORGET: whose file goes
    struct snapshot_job *job; // SNAPSHOT: from one of the folder's threads: it is done
};

struct instance_load { // written by the engine's thread, read by any
    _Atomic int32_t running, queued, sequences, blocks_free, blocks_idle, parked, host_blocks_free;
    _Atomic int32_t snapshots;
    _Atomic int64_t snapshot_bytes;
    _Atomic int64_t steps, step_us_ewma, heartbeat_us;
    _Atomic bool device_lost;
    _Atomic int32_t drawing_on; // the core on which tokens are being drawn, -1: none are
};

// A token that is in its turn's log, of which nobody has been told yet (step.c).
struct untold {
    struct turn *turn;
    struct sampled drawn;
};

struct instance_options { // what engine_open has worked out
    int32_t max_running, prefill_tokens;
    int32_t max_idle; // sequences with a cache and no turn; 0: as many as there is room for
    int64_t max_session_len;
    enum dtype kv_dtype;
    int32_t block_tokens, n_blocks;
    int64_t host_cache_bytes;
    bool host_transit;        // it is there for the way to the files only
    const char *snapshot_dir; // NULL: none; borrowed until init returns
    int64_t snapshot_bytes;
    struct kv_snapshot_maker maker;
    void (*measuring)(void *ctx, int64_t done, int64_t total); // engine_options'
    void *measuring_ctx;
};

struct instance {
    // Given at init, borrowed.
    const struct model *model;
    const struct tokenizer *tokenizer; // NULL: ids only
    const int32_t *eos_ids;            // (n_eos) what ends a turn
    int32_t n_eos;
    struct queue *commands; // of struct command
    struct instance_options opt;

    struct kv_pool pool;
    struct kv_store store;
    struct scheduler sched;
    struct batch_builder batch;
    struct forward forward;
    struct drawings drawings;
    struct turn_slot *slots;    // (max_running)
    struct sched_share *shares; // (max_running) the step's plan
    struct turn **in_step; // (max_running) whose rows are in the batch, by sequence of the batch;
                           // NULL once it has ended
    struct batch_draw *draws;  // (max_running) the step's, where the device draws; by wanted row
    struct batch_drawn *drawn; // (max_running) what came of them
    struct untold *untold;     // (max_running) told while the device is at the next step
    int32_t n_untold;
    struct asked { // steps that nobody has waited for yet (step.c)
        int64_t began_us, n_rows, n_seqs;
        bool unclear; // what they take cannot be told
    } asked;
    struct sequence *sequences; // uthash
    struct tiers tiers;
    struct snapshots snapshots;
    bool persist_look;        // something has changed in who is to be written
    bool keep_asked;          // at the end all is to be written
    bool keeping;             // and it is the end
    struct resume *resuming;  // list of those on their way back
    struct resume *stepping;  // the one of them that is at its STEP, or NULL
    int32_t n_park_asked;     // sequences with park_asked
    int32_t n_dear;           // files that looked too dear to read
    int32_t n_warm;           // sequences brought back for turns that have not come
    bool park_pressed;        // a turn waits for blocks
    int64_t park_debt_us;     // time of copies that steps have yet to make up for
    bool tier_work;           // there is more to copy: no waiting for commands
    bool reading;             // a file is being read: no long waiting
    int64_t next_deadline_us; // no turn's deadline is earlier
    struct buf scratch, text; // of one token at a time
    struct emitter emit;
    struct run_metrics metrics;
    struct instance_load load;
    bool check; // kv_check() after every step
    bool stopping;
};

// Allocates everything. On failure *in is zeroed.
int instance_init(struct instance *in, const struct model *model, const struct tokenizer *tokenizer,
                  const int32_t *eos_ids, int32_t n_eos, const struct instance_options *opt,
                  struct queue *commands, struct queue *events, const struct clock *clock,
                  struct err *err);
void instance_release(struct instance *in);

// Takes the commands that wait (waiting for the first where nothing runs, up to timeout_us), ends
// what is to be ended, admits, and runs one step. False once it has been told to stop and every
// turn has ended.
bool instance_round(struct instance *in, int64_t timeout_us);

// --- parts, one file each -----------------------------------------------------------------------
// turns.c: how turns begin and end
void instance_command(struct instance *in, const struct command *c);
void instance_expire(struct instance *in);
void instance_admit(struct instance *in);
// A turn ends: text it still held is shown, its sequence goes idle, DONE is said, the turn is
// freed. why: with FINISH_ERROR. drop_cache: what the cache holds of it is not to be trusted.
void instance_finish(struct instance *in, struct turn *t, enum engine_finish finish,
                     const struct err *why, bool drop_cache);
// A turn that waited for its cache, or did not have to, goes on: n_cached and source are known.
void instance_turn_started(struct instance *in, struct turn *t);
// The ring that a turn of this shape needs.
struct sequence_shape instance_turn_shape(const struct instance *in, const struct engine_turn *t);
// Out of the table, when it has neither a turn nor a cache.
void instance_forget_if_empty(struct instance *in, struct sequence *s);
// instance.c
int32_t instance_n_stepping(const struct instance *in); // running turns that do not wait
// park.c
// Makes places in the pool: the least recently used idle sequence parks or is given up. WAIT: it is
// being copied, or gives way; ask again after the next round. NONE: no idle sequence is left.
enum evicted { EVICT_NONE, EVICT_DONE, EVICT_WAIT };
enum evicted instance_evict(struct instance *in);
// The cache of a sequence without a turn goes, wherever it is, and ENGINE_RELEASED is said. It may
// leave the table.
void instance_give_up(struct instance *in, struct sequence *s, enum engine_release why);
void instance_unparked(struct instance *in, struct sequence *s); // it has another cache, or none
void instance_park_ask(struct instance *in, struct sequence *s, bool asked);
// Goes on with copies to host memory, after a round of step_us. busy: turns went on in it, and are
// held up by what is done here. True when there is more to do.
bool instance_park(struct instance *in, bool busy, int64_t step_us);
// Host memory for s, for one more try. E_NOMEM.
int instance_host_room(struct instance *in, struct sequence *s);
// persist.c
// Whether s, parked, ought to have a file before it is given up, and has none yet.
bool instance_file_wanted(struct instance *in, struct sequence *s);
// Begins to write the image of s, which is whole. E_BUSY: later; else it is given up.
int instance_file_write(struct instance *in, struct sequence *s);
// Writes who is next. Called in each round.
void instance_persist(struct instance *in);
// A job has come back.
void instance_snapshot_done(struct instance *in, struct snapshot_job *j);
void instance_file_given_up(struct instance *in, const char *reason); // counts it
// A file that was to serve s was not what it should be: said, and removed.
void instance_file_refused(struct instance *in, struct sequence *s, struct hash128 name,
                           const char *reason, const char *why);
// At the end: whatever is parked or idle is written, the one used last first, for a while.
void instance_keep_all(struct instance *in);
// step.c
bool instance_step(struct instance *in); // false: whoever runs waits for blocks
// Says what is untold. Before anything else is said of a turn, and before the engine waits.
void instance_tell(struct instance *in);
