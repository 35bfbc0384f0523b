// A sequence's cache on its way back to the device, from host memory or from its snapshot. Blocks of
// the device are taken, then filled a slice at a time between the steps of the running turns. A turn
// of the sequence is admitted and waits; where nothing can be brought back it computes.
//
// On a device that copies beside its steps (kv_layer_wait), the last blocks come with the turn's own
// first step: the turn goes on at once, and each layer waits for its own part only. A step holds all
// its turns up to the same copy. So beside other turns this is done only where the copy takes a small
// part of a step, and with one cache at a time, the last to come: turns that are copied whole share
// a step.
//
// From a snapshot: one of the folder's threads reads and checks it block by block into host memory;
// what has arrived there is copied on while the rest is read.
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
    int64_t n;                       // tokens that will be there
    int32_t *slots;                  // (n_slots) of the ring, in the order in which they are copied
    int32_t n_slots, at;             // copied up to here
    bool gives_way;                  // on a hint, and running turns need its blocks
    int32_t *hint_ids;               // (n_hint) the log of the turn that a hint announced; NULL
    int64_t n_hint;
    struct snapshot_job *job; // a thread has it, but for READ in CACHE_WAITING; NULL: no reading
    int64_t began_us;
    struct resume *prev, *next;
};

// n: tokens that will be there. NULL: memory is out.
struct resume *resume_begin(struct caches *c, struct sequence *s, enum cache_state state,
                            enum engine_cache_source source, int64_t n);

enum resume_result {
    RESUME_ARRIVED,  // all is there, or queued on the device ahead of its first reader
    RESUME_DECLINED, // the snapshot is not used, and nothing has been touched
    RESUME_STOPPED,  // the cache goes back to where it was, where it still is there
    RESUME_FAILED,   // neither it nor its copy can be used
};
// Ends it. With an admitted turn, s->cached says what the turn goes on with; on a hint the cache is
// idle, or ENGINE_RELEASED is emitted and the sequence may be freed.
void resume_end(struct caches *c, struct sequence *s, enum resume_result result);
// Frees it and stops its thread; state, ring and image are the caller's. _discard waits for its
// copies first.
void resume_free(struct caches *c, struct sequence *s);
void resume_discard(struct caches *c, struct sequence *s);

void warm_end(struct caches *c, struct sequence *s); // its turn has come, or its cache goes
