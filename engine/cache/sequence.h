// One sequence: its ring of blocks on the device, its copy in host memory, and the logs that the two
// were computed from. The owner's log is the truth; these logs only say of which tokens the keys and
// values are, so that the next turn reuses the part that is still valid. Engine thread only.
#pragma once
#include "base/hash.h"
#include "base/siphash.h"
#include "engine/cache/cache_state.h"
#include "engine/engine.h"
#include "kvcache/image.h"
#include "kvcache/snapshot.h"

struct live_turn;

// The sequence's names in snapshots (snapshots.h); "": it has none.
struct sequence_names {
    char id[KV_SNAPSHOT_ID_MAX + 1];
    char origin[KV_SNAPSHOT_ID_MAX + 1]; // the sequence that this one was forked from
    struct hash128 owner;
};
void sequence_names_init(struct sequence_names *n, const char *id, const char *origin,
                         const char *owner); // each may be NULL

// How much of its log the admitted turn found in a cache, and where.
struct cached {
    int64_t n;                       // tokens that need not be computed again
    int64_t n_shared;                // of these, taken from other sequences of the group
    enum engine_cache_source source; // of the others; CACHE_NONE: there are none
    int64_t resume_began_us;         // 0: nothing was resumed
};

struct sequence {
    uint64_t id;                     // the owner's
    enum cache_state state, back_to; // back_to: while resuming, where the cache was
    enum engine_release why;         // while PARKING, and while parked: why it left the device
    struct kv_ring ring;             // ring.blocks is NULL until the first turn starts
    // (n_branches) while a turn with branches runs: the rings of its branches behind the first, whose
    // ring is `ring`. Until the turn ends, `ring` and the admitted log agree in n_agreed tokens at least.
    struct kv_ring *branches;
    int32_t n_branches;
    int64_t n_agreed;
    int32_t *ids; // (n_ids) the log of the last turn; its first ring.n_tokens are in the cache
    int64_t n_ids;
    int64_t version;         // of the ring's contents: a new number for each turn
    uint64_t group;          // shares equal blocks with sequences of this group; 0: with none
    struct hash128 prompt;   // sequence_shape's
    struct hash128 name;     // of its first n_named tokens, all of them in full blocks; only with a
    int64_t n_named;         // group, and only while a turn runs
    struct live_turn *turn;  // queued or running, or NULL
    const int32_t *turn_ids; // (n_turn_ids) the log of the admitted turn, borrowed; NULL: none
    int64_t n_turn_ids;
    struct cached cached; // for that turn
    // The copy in host memory, and the log that it was computed from: the ring may be further on, or
    // released.
    struct kv_image image; // image.copies is NULL: none
    int32_t *image_ids;    // (n_image)
    int64_t n_image;
    uint64_t image_group; // the ring's when it was copied
    struct hash128 image_prompt;
    int64_t image_version; // the ring's when it was copied; also of the snapshot made of it
    int64_t n_filed;       // tokens of the image that its snapshot has too; 0: none; NOT_WRITABLE
    struct sequence *image_prev, *image_next; // in tiers.images
    struct sequence *idle_prev, *idle_next;   // in caches.idle; NULL: not listed
    int64_t used_us;                          // when its last turn ended
    int64_t warm_until_us; // resumed on a hint, and parked again at this time; 0: no
    struct sequence_names names;
    const char *refused;   // why its snapshot was not used, until a turn reports it; NULL: none
    struct resume *resume; // while cache_is_resuming
    bool leaves_engine;    // once parked it is packed for another engine, unless a turn comes first
    UT_hash_handle hh;
};
enum { NOT_WRITABLE = -1 }; // writing its snapshot failed; not tried again before its next turn

struct sequence_shape {
    uint64_t group; // engine_turn.share_group
    // The hash of engine_turn.prompt, changed where the session has the rotary frequencies of short texts; 0: neither.
    struct hash128 prompt;
    // Its session_len is the longest log of any turn: the ring's size must not depend on one turn's bound.
    struct kv_ring_shape ring;
};

struct sequence *sequence_new(uint64_t id); // NULL: out of memory
void sequence_free(struct sequence *s);     // gives its blocks back; it is not resuming
void sequence_drop(struct sequence *s);     // gives its blocks back and forgets its log
// Makes n empty rings like the sequence's for the branches of its turn; those of an earlier call are
// given back. E_NOMEM: it has none then.
int sequence_branch(struct sequence *s, int32_t n, struct err *err);
// How many blocks of the device it holds, its branches included; each once.
int32_t sequence_n_blocks(const struct sequence *s);

// Makes the ring agree with this log: keeps the longest common prefix, at most n_ids - 1 tokens (the
// turn needs the last one's logits), cuts the rest, and starts empty if the cut is not possible
// (KV_GONE) or the window's shape or the group has changed. Then takes over blocks that continue the
// log from others of its group. *kept: tokens of the log that need not be computed again; *shared:
// of these, taken from others now. E_NOMEM.
int sequence_match(struct sequence *s, struct kv_pool *pool, const struct sequence_shape *shape,
                   const int32_t *ids, int64_t n_ids, int64_t *kept, int64_t *shared,
                   struct err *err);
// Lets others of its group find the blocks that have become full. ids: the running turn's log. Called
// after each step.
void sequence_name(struct sequence *s, const int32_t *ids);
// Replaces the sequence's ring if it cannot serve this shape. E_NOMEM.
int sequence_ready(struct sequence *s, struct kv_pool *pool, const struct sequence_shape *shape,
                   struct err *err);
void sequence_name_all(struct sequence *s, const int32_t *ids); // from the log's beginning
// The shape that the ring of this image had; the rest as in `all`.
struct sequence_shape sequence_image_shape(const struct sequence *s,
                                           const struct sequence_shape *all);
bool sequence_same_prompt(struct hash128 a, struct hash128 b);
bool sequence_has_shape(const struct sequence *s, const struct sequence_shape *shape);
// A new sequence takes over the cached part of another's first n_tokens tokens and shares its blocks.
// It stays empty if there is no cache, the window has moved on (KV_GONE) or memory is out (E_NOMEM).
int sequence_fork(struct sequence *to, const struct sequence *from, int64_t n_tokens);
int64_t sequence_common_prefix(const int32_t *a, int64_t n_a, const int32_t *b, int64_t n_b);
// The turn is over: the sequence takes its log (malloc'd) and keeps the part that is in the cache.
void sequence_take_log(struct sequence *s, int32_t *ids);
// The turn is paused: as above, with a copy. E_NOMEM.
int sequence_copy_log(struct sequence *s, const int32_t *ids);
