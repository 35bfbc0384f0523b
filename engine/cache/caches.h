// All caches of one engine: the device's blocks, host memory and snapshots behind them, the
// sequences that hold them, and what moves them. engine/run asks for a cache when it admits a turn
// and looks at the sequence's state afterwards; nothing here calls back.
//
//   run/ -> caches.h -> load.c -> read.c, evict.c -> park.c -> room.c -> write.c -> drop.c
//                                                 sequence, tiers, snapshots, kvcache below all
//
// Engine thread only.
#pragma once
#include "base/clock.h"
#include "engine/cache/resume.h"
#include "engine/cache/sequence.h"
#include "engine/cache/snapshots.h"
#include "engine/cache/tiers.h"
#include "engine/engine_metrics.h"
#include "engine/events.h"

struct cache_options {
    int32_t chunk_tokens; // most tokens of a sequence in one step
    int32_t max_idle;     // sequences with a cache and no turn; 0: as many as have room
    int64_t max_session_len;
    int64_t host_bytes;       // 0: no host memory for caches
    bool host_transit;        // host memory is only the way to the snapshots
    const char *snapshot_dir; // NULL: none; borrowed until caches_init returns
    int64_t snapshot_bytes;
    struct kv_snapshot_maker maker;
};

struct caches {
    struct cache_options opt;
    struct backend *backend;
    struct emitter *emit;                 // borrowed
    const struct engine_metrics *metrics; // borrowed
    struct kv_pool pool;
    struct kv_store store;
    struct tiers tiers;
    struct snapshots snapshots;
    struct sequence *sequences; // uthash
    struct sequence *idle;      // list: those without a running turn, least recently used first
    int32_t n_idle;
    int32_t n_in[CACHE_N_STATES]; // sequences by state
    struct resume *resuming;      // list
    struct resume *stepping;      // the one of them in CACHE_STEPPING, or NULL
    int32_t n_warm;               // sequences resumed on a hint, whose turn has not come
    int64_t last_version;         // of what a ring or an image holds (struct sequence)
    // What the running turns need; set before caches_move.
    struct turns_load {
        int32_t n_stepping;  // turns that take part in steps
        int64_t blocks_soon; // blocks that they will need in their next steps
        int64_t step_us;     // mean duration of a step
    } load;
    bool look_for_writes; // what is to be written may have changed
    bool saving_all;      // the engine stops: everything is to be written
    bool park_pressed;    // a turn waits for blocks of the device
    int64_t park_debt_us; // time of copies that steps have yet to make up for
    bool reads;           // a snapshot is being read
    bool device_lost;
};

// shape: what the store is to be (dtype, layers, heads, blocks). On failure *c is zeroed.
int caches_init(struct caches *c, struct backend *backend, const struct kv_store *shape,
                const struct cache_options *o, struct emitter *emit,
                const struct engine_metrics *metrics, struct err *err);
// The sequences are freed too; none has a turn.
void caches_release(struct caches *c);
// kv_check over all rings, and that each state tells the truth. Asserts.
void caches_check(const struct caches *c);

// --- sequences (table.c) -------------------------------------------------------------------------

struct sequence *caches_find(const struct caches *c, uint64_t id);
struct sequence *caches_find_or_add(struct caches *c, uint64_t id); // NULL: memory is out
void cache_idle_add(struct caches *c,
                    struct sequence *s); // as the one used last; moves it if listed
void cache_idle_remove(struct caches *c, struct sequence *s); // nothing when it is not listed

// --- a turn's cache (load.c) ---------------------------------------------------------------------

// A turn over ids (n_ids) begins: the ring keeps what it has of this log; what else is in memory or
// in a snapshot is resumed if that is cheaper than computing. While cache_is_awaited(s->state) the
// turn waits; then s->cached says what is there. ids is borrowed until the turn is over
// (s->turn_ids, which follows if the log moves). E_NOMEM.
int cache_admit(struct caches *c, struct sequence *s, const struct sequence_shape *shape,
                const int32_t *ids, int64_t n_ids, struct err *err);
// The turn that is over has handed its log over (sequence_take_log) if it ran. drop: what the ring
// holds cannot be trusted.
void cache_turn_over(struct caches *c, struct sequence *s, bool drop, int32_t n_queued);
// The step that is being built has rows of s, which is CACHE_STEPPING: what the batch has to load.
// *waited_us grows by the time that the step stands still for it.
const struct kv_load *cache_load_with_step(struct caches *c, struct sequence *s,
                                           int64_t *waited_us);
void cache_stepped(struct caches *c); // that step has been queued on the device

// --- making room (evict.c, drop.c) ---------------------------------------------------------------

// Frees blocks of the device: the least recently used idle cache is parked, or dropped where there
// is no host memory. WAIT: it is being copied first; ask again in the next round. NONE: no cache is
// idle.
enum evicted { EVICT_NONE, EVICT_DONE, EVICT_WAIT };
enum evicted cache_evict(struct caches *c);
// The sequence goes idle; beyond max_idle the oldest is evicted. n_queued: idle sequences whose turn
// is queued, which do not count.
void cache_go_idle(struct caches *c, struct sequence *s, int32_t n_queued);
// The cache goes, wherever it is, and ENGINE_RELEASED is emitted. The sequence has no turn, and may
// be freed.
void cache_drop(struct caches *c, struct sequence *s, enum engine_release why);
void cache_forget_if_empty(struct caches *c, struct sequence *s);

// --- what the owner asks for ---------------------------------------------------------------------

// Lets an idle cache leave the device, in the background. (park.c)
void cache_park(struct caches *c, struct sequence *s);
// A hint that a turn will come: what is parked is resumed, if it fits n_free blocks. (hint.c)
void cache_warm(struct caches *c, struct sequence *s, int64_t n_free);
// The same for a new sequence with a snapshot. Takes ids (n_ids), the log of the turn to come.
// False: it stays empty.
bool cache_prepare(struct caches *c, struct sequence *s, const struct sequence_shape *shape,
                   int32_t *ids, int64_t n_ids);
// `to`, a sequence without a cache, begins with what `from` has of its first n_tokens. (fork.c)
void cache_fork(struct caches *c, struct sequence *to, struct sequence *from, int64_t n_tokens,
                int32_t n_queued);
// The id's snapshot goes, and none of s (may be NULL) is written any more.
void cache_forget_snapshot(struct caches *c, struct sequence *s, struct hash128 name);

// --- the loop's part -----------------------------------------------------------------------------

// A thread of the folder's has finished this job.
void caches_job_done(struct caches *c, struct snapshot_job *j);
// Goes on with what is being resumed, parked and written, after a round of round_us. stepped: turns
// took part, and wait while copies are made. True: there is more to do at once.
bool caches_resume(struct caches *c);
bool caches_park(struct caches *c, bool stepped, int64_t round_us);
void caches_write(struct caches *c);
// The engine stops: goes on with writing everything idle or parked, the one used last first.
// COPIES: there is more to do at once; WRITES: the disk is waited for.
enum saving { SAVING_DONE, SAVING_COPIES, SAVING_WRITES };
enum saving caches_save_all(struct caches *c);
