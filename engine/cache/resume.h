// A sequence's cache on its way back to the device, from host memory or from its snapshot. It takes
// blocks of the device, then fills them a slice at a time between the steps of the running turns. A
// turn of the sequence is admitted and waits; it computes the part that does not come back.
//
// On a device that copies beside its steps (kv_layer_wait), the last blocks come with the turn's own
// first step: the turn continues at once, and each layer waits for its own part only. All turns of a
// step wait for the same copy. So beside other turns this is done only if the copy takes a small part
// of a step, and for one cache at a time, the last of several that come back together.
//
// From a snapshot: one of the folder's threads reads and checks it block by block into host memory;
// blocks that have arrived are copied to the device while the thread reads the rest.
//
// The sequence's state (cache_state.h) says how far it is. resume_end() is the one way out.
#pragma once
#include "engine/cache/cache_state.h"
#include "engine/engine.h"

struct snapshot_job;

struct resume {
    struct sequence *sequence;
    enum engine_cache_source source; // CACHE_HOST or CACHE_SNAPSHOT
    bool is_origins;                 // the snapshot is that of the sequence it was forked from
    int64_t n;                       // tokens that will be cached
    int32_t *slots;                  // (n_slots) of the ring, in the order in which they are copied
    int32_t n_slots, at;             // at: how many of them have been copied
    bool preempted;                  // begun on a hint, and running turns need its blocks
    int32_t *hint_ids;               // (n_hint) the log that a hint announced; NULL: none
    int64_t n_hint;
    struct snapshot_job *job; // a thread's, except READ in CACHE_WAITING; NULL: reads no snapshot
    int64_t began_us;
    struct resume *prev, *next;
};

// n: tokens that will be cached. NULL: out of memory.
struct resume *resume_begin(struct caches *c, struct sequence *s, enum cache_state state,
                            enum engine_cache_source source, int64_t n);

enum resume_result {
    RESUME_ARRIVED,  // all blocks are filled, or queued on the device ahead of their first reader
    RESUME_DECLINED, // the snapshot is not used; ring and image are unchanged
    RESUME_STOPPED,  // given up; the cache is where it was, if that copy still exists
    RESUME_FAILED,   // neither the ring nor its copy can be used
};
// Ends it. With an admitted turn, s->cached says how much the turn starts with; on a hint the cache
// is idle, or ENGINE_RELEASED is emitted and the sequence may be freed.
void resume_end(struct caches *c, struct sequence *s, enum resume_result result);
// Frees it and stops its job; the caller sees to state, ring and image. _discard waits for its copies
// first.
void resume_free(struct caches *c, struct sequence *s);
void resume_discard(struct caches *c, struct sequence *s);

void warm_end(struct caches *c, struct sequence *s); // its turn has come, or its cache goes
