// The cache of one sequence, and the log that it was computed from. The owner's log is the truth;
// this one only says what the cached keys and values stand for, so that the next turn keeps what
// still holds. Engine thread only.
#pragma once
#include "base/hash.h"
#include "base/siphash.h"
#include "engine/run/scheduler.h"
#include "kvcache/image.h"
#include "kvcache/snapshot.h"

struct turn;
struct snapshot_job;

// What a sequence is called in files (snapshots.h); "": it has none there.
struct sequence_names {
    char id[KV_SNAPSHOT_ID_MAX + 1];
    char origin[KV_SNAPSHOT_ID_MAX + 1]; // whose log its own began as
    struct hash128 owner;
};
void sequence_names_init(struct sequence_names *n, const char *id, const char *origin,
                         const char *owner); // each may be NULL

struct sequence {
    uint64_t id;         // the owner's
    struct kv_ring ring; // ring.blocks is NULL until the first turn starts
    int32_t *ids; // (n_ids) the log of the last turn; its first ring.n_tokens are in the cache
    int64_t n_ids;
    uint64_t group;      // whose equal blocks it shares; 0: nobody's
    struct hash128 name; // of its first n_named tokens, all of them in full blocks; group sequences
    int64_t n_named;     // only, and only while a turn runs
    struct turn *turn;   // queued or running, or NULL
    bool release_asked;  // while a turn is under way: drop the cache when it ends
    struct sched_idle idle; // in the scheduler's list unless a turn runs
    // Copies in host memory (tiers.h), and the log that they stand for: a log of their own, since
    // the ring may have gone on, or have gone.
    struct kv_image image; // image.copies is NULL: none
    int32_t *image_ids;    // (n_image)
    int64_t n_image;
    uint64_t image_group;  // whose it was
    int64_t image_version; // how often it has been made, or made anew
    struct sequence *image_prev, *image_next;
    enum { IMAGE_STALE, IMAGE_FRESH, IMAGE_WHOLE } image_state; // turned; being made; clean
    bool parked;           // the image is all there is, and the owner knows
    bool park_asked;       // let the device's blocks go once the image is whole
    bool park_pressed;     // because others need them
    bool park_refused;     // there was no room for it
    int64_t used_us;       // when its last turn ended
    int64_t warm_until_us; // brought back on a hint, and parks again then; 0: no
    struct sequence_names names;
    int64_t n_filed;          // the file is of the image as it is, of so many tokens; 0: it isn't
    bool file_refused;        // it cannot be written, until the sequence has been used again
    const char *file_refusal; // why its file was not used, until a turn has told it; NULL
    struct snapshot_job *writing; // under way
    bool leaving;                 // parked on its way to the file only; released when that is there
    int leaving_why;              // enum engine_release
    struct resume *resume; // the cache is being brought back (resume.h): what the ring holds is
                           // not there yet. NULL: no
    UT_hash_handle hh;
};

struct sequence_shape {
    uint64_t group; // engine_turn.share_group
    int32_t memory_len, sink_len, chunk_tokens, block_tokens;
    int64_t session_len; // the most that any log may have: the ring's size must not depend on one
                         // turn's bound
};

struct sequence *sequence_new(uint64_t id); // NULL when memory is out
void sequence_free(struct sequence *s);     // gives its blocks back
void sequence_drop(struct sequence *s);     // gives its blocks back and forgets its log

// Makes the cache agree with this log: keeps the longest common prefix, at most n_ids - 1 tokens
// (the last one's logits are what the turn wants), cuts the rest, and starts from nothing where the
// cut is not possible (KV_GONE) or the window's shape or the group has changed. Then goes on with
// blocks that others of its group hold. *kept: tokens of the log that need not be computed again;
// *shared: those of them that came from others just now. E_NOMEM.
int sequence_match(struct sequence *s, struct kv_pool *pool, const struct sequence_shape *shape,
                   const int32_t *ids, int64_t n_ids, int64_t *kept, int64_t *shared,
                   struct err *err);
// Others of its group may find what has been computed since. ids: the running turn's log. Called
// after each step.
void sequence_name(struct sequence *s, const int32_t *ids);
// The sequence's ring, made anew where what there is cannot serve this shape. E_NOMEM.
int sequence_ready(struct sequence *s, struct kv_pool *pool, const struct sequence_shape *shape,
                   struct err *err);
void sequence_name_all(struct sequence *s, const int32_t *ids); // from the log's beginning
// A new sequence takes over what the cache of another holds of its first n_tokens tokens, blocks
// shared. It stays empty where that is nothing: no cache, the window has moved on (KV_GONE), no
// memory (E_NOMEM).
int sequence_fork(struct sequence *to, const struct sequence *from, int64_t n_tokens);
int64_t sequence_common_prefix(const int32_t *a, int64_t n_a, const int32_t *b, int64_t n_b);
// The turn is over: the sequence takes its log (malloc'd). What the cache has not seen of it is
// forgotten.
void sequence_take_log(struct sequence *s, int32_t *ids);
