// All caches of one engine: the device's blocks, host memory and snapshots behind them, the
// sequences that hold them, and the functions that move them. engine/run asks for a cache when it
// admits a turn and looks at the sequence's state afterwards; nothing here calls back.
//
//   run/ -> caches.h -> load.c -> read.c, evict.c -> park.c -> room.c -> write.c -> drop.c
//                                                 sequence, tiers, snapshots, kvcache below all
//
// Engine thread only.
#pragma once
#include "engine/cache/packed_cache.h"
#include "engine/cache/resume.h"
#include "engine/cache/sequence.h"
#include "engine/cache/snapshots.h"
#include "engine/cache/stores.h"
#include "engine/cache/tiers.h"
#include "engine/engine_metrics.h"
#include "engine/events.h"

struct cache_options {
    int32_t chunk_tokens; // most tokens of a sequence in one step
    int32_t max_idle;     // sequences with a cache and no turn; 0: as many as have room
    int64_t max_session_len;
    int64_t host_bytes;       // 0: no host memory for caches
    bool host_transit;        // host memory is only a buffer on the way to snapshots
    const char *snapshot_dir; // NULL: none; borrowed until caches_init returns
    int64_t snapshot_bytes;
    struct kv_snapshot_maker maker;
    struct lead *lead; // of the other ranks; NULL: there are none
};

struct caches {
    struct cache_options opt;
    struct backend *backend;
    struct emitter *emit;                 // borrowed
    const struct engine_metrics *metrics; // borrowed
    struct kv_pool pool;
    struct cache_stores stores;
    struct tiers tiers;
    struct snapshots snapshots;
    struct sequence *sequences; // uthash
    struct sequence *idle;      // list: those without a running turn, least recently used first
    int32_t n_idle;
    int32_t n_in[CACHE_N_STATES]; // sequences by state
    struct resume *resuming;      // list
    struct resume *stepping;      // the one of them in CACHE_STEPPING, or NULL
    int32_t n_warm;               // sequences resumed on a hint, whose turn has not come
    int64_t last_version;         // the last one given to a ring or an image (struct sequence)
    // The needs of the running turns; set before caches_resume.
    struct turns_load {
        int32_t n_stepping;  // turns that take part in steps
        int64_t blocks_soon; // blocks that they will need in their next steps
        int64_t step_us;     // mean duration of a step
    } load;
    size_t piece_bytes;   // a piece of a snapshot of several ranks (pieces.c)
    bool look_for_writes; // the set of caches to write may have changed
    bool saving_all;      // the engine stops: all caches are to be written
    bool park_pressed;    // a turn waits for blocks of the device
    int64_t park_debt_us; // time spent on copies, not yet balanced by time of steps
    bool reads;           // a snapshot is being read
    int64_t rest_us;      // since when free blocks are watched (rest.c)
    bool device_lost;
};

// shape: without memory yet. On failure *c is zeroed.
int caches_init(struct caches *c, struct backend *backend, const struct cache_stores *shape,
                const struct cache_options *o, struct emitter *emit,
                const struct engine_metrics *metrics, struct err *err);
// Also frees the sequences; none may have a turn.
void caches_release(struct caches *c);
// Asserts kv_check of all rings, and that each sequence's state agrees with its ring and image.
void caches_check(const struct caches *c);

// --- sequences (table.c) -------------------------------------------------------------------------

struct sequence *caches_find(const struct caches *c, uint64_t id);  // NULL: none
struct sequence *caches_find_or_add(struct caches *c, uint64_t id); // NULL: out of memory
// Lists s as the sequence used last; moves it if it is listed.
void cache_idle_add(struct caches *c, struct sequence *s);
void cache_idle_remove(struct caches *c, struct sequence *s); // nothing when it is not listed

// --- a turn's cache (load.c) ---------------------------------------------------------------------

// A turn over ids (n_ids) begins: the ring keeps the part of this log that it holds; a longer part in
// host memory or in a snapshot is resumed if that is cheaper than computing. While
// cache_is_awaited(s->state) the turn waits; then s->cached says how much is cached. ids is borrowed
// until the turn is over; a caller that moves the log sets s->turn_ids. E_NOMEM.
int cache_admit(struct caches *c, struct sequence *s, const struct sequence_shape *shape,
                const int32_t *ids, int64_t n_ids, struct err *err);
// Ends the sequence's turn. A turn that ran has handed its log over before (sequence_take_log).
// drop: the ring's contents cannot be trusted.
void cache_turn_over(struct caches *c, struct sequence *s, bool drop, int32_t n_queued);
// The copies that come with the step being built; it has rows of s, which is in CACHE_STEPPING. The
// time that the step waits for them is added to *waited_us.
const struct kv_load *cache_load_with_step(struct caches *c, struct sequence *s,
                                           int64_t *waited_us);
void cache_stepped(struct caches *c); // that step has been queued on the device

// --- making room (evict.c, drop.c) ---------------------------------------------------------------

// Frees blocks of the device: parks the least recently used idle cache, or drops it if there is no
// host memory. WAIT: it is being copied first; ask again in the next round. NONE: no cache is idle.
enum evicted { EVICT_NONE, EVICT_DONE, EVICT_WAIT };
enum evicted cache_evict(struct caches *c);
// The sequence goes idle; beyond max_idle the least recently used is evicted. n_queued: idle
// sequences with a queued turn, which do not count.
void cache_go_idle(struct caches *c, struct sequence *s, int32_t n_queued);
// Drops the cache, wherever it is, and emits ENGINE_RELEASED. The sequence has no turn; this call may
// free it.
void cache_drop(struct caches *c, struct sequence *s, enum engine_release why);
void cache_forget_if_empty(struct caches *c, struct sequence *s);

// --- requests of the owner -----------------------------------------------------------------------

// Lets an idle cache leave the device, in the background. (park.c)
void cache_park(struct caches *c, struct sequence *s);
// A hint that a turn will come: resumes a parked cache if it fits into n_free blocks. (hint.c)
void cache_warm(struct caches *c, struct sequence *s, int64_t n_free);
// The same for a new sequence with a snapshot. Takes ids (n_ids), the log of the turn to come.
// False: it stays empty.
bool cache_prepare(struct caches *c, struct sequence *s, const struct sequence_shape *shape,
                   int32_t *ids, int64_t n_ids);
// `to`, which has no cache, begins with the cached part of the first n_tokens of `from`. (fork.c)
void cache_fork(struct caches *c, struct sequence *to, struct sequence *from, int64_t n_tokens,
                int32_t n_queued);
// The idle cache leaves the engine, through host memory: ENGINE_EXPORTED, or ENGINE_RELEASED where
// that is not possible. (travel.c)
void cache_export(struct caches *c, struct sequence *s);
// `to`, which has no cache, gets one of another engine, parked. Without room in host memory it stays
// empty.
void cache_import(struct caches *c, struct sequence *to, const struct packed_cache *p);
// Removes the snapshot of this name, and writes none of s (may be NULL) any more.
void cache_forget_snapshot(struct caches *c, struct sequence *s, struct hash128 name);

// --- the loop's part -----------------------------------------------------------------------------

// One of the folder's threads has finished this job.
void caches_job_done(struct caches *c, struct snapshot_job *j);
// Continue resuming, parking and writing after a round of round_us. stepped: the round had a step,
// so turns wait while copies are made. True: more can be done at once.
bool caches_resume(struct caches *c);
bool caches_park(struct caches *c, bool stepped, int64_t round_us);
void caches_write(struct caches *c);
// Gives memory of blocks back that have been free for seconds (rest.c).
void caches_rest(struct caches *c, int64_t now_us);
// Continues to write all idle and parked caches while the engine stops, the most recently used first.
// COPIES: more can be done at once; WRITES: waits for the disk.
enum saving { SAVING_DONE, SAVING_COPIES, SAVING_WRITES };
enum saving caches_save_all(struct caches *c);
