// Where a sequence's cache is, and the events that move it. One state for each sequence; cache_set()
// alone changes it, and cache_state.c has the table of legal changes.
//
//          turn             copied ahead of need            blocks wanted
//   EMPTY ------> DEVICE ----------------> COPYING -> CLEAN ------.
//     ^             |  \ asked to go, or blocks wanted            v
//     |             |   '---------------------------> PARKING -> PARKED
//     | dropped     |                                             |
//     '-------------+----------------- from any state             | turn, or hint
//                   ^                                             v
//                   |    copied       blocks taken      WAITING <-'      snapshot is of use
//                   '---- LOADING <------------------------|  <--------- OPENING
//                   ^        ^  '-> STEPPING ->.           v
//                   '--------|-----------------'        READING
//                            '---- all blocks read ------'
//
// Writing a snapshot is not a state, because a turn may bring the cache back meanwhile: see
// snapshots_is_writing().
#pragma once
#include <stdbool.h>

enum cache_state {
    CACHE_EMPTY,       // nothing in memory
    CACHE_DEVICE,      // on the device; a copy in host memory, if any, is stale
    CACHE_COPYING,     // on the device; being copied to host memory ahead of need
    CACHE_CLEAN,       // on the device, with a complete copy in host memory
    CACHE_DEVICE_ONLY, // on the device; host memory has no room: not copied before its next turn
    CACHE_PARKING,     // on the device; leaves when its copy is complete
    CACHE_PARKED,      // in host memory only
    // Being resumed (struct resume).
    CACHE_OPENING, // a thread reads the head of its snapshot; the ring is untouched
    CACHE_WAITING, // waits for blocks of the device
    CACHE_READING, // a thread reads its snapshot into host memory; blocks are copied as they arrive
    CACHE_LOADING, // being copied from host memory
    CACHE_STEPPING, // its turn runs; the last blocks come with the turn's first step
    CACHE_N_STATES
};

struct caches;
struct sequence;

// Changes the state; asserts that the change is legal and counts it.
void cache_set(struct caches *c, struct sequence *s, enum cache_state to);

// A turn or a hint brings the cache back; blocks may be taken, but no step may use it yet.
static inline bool cache_is_resuming(enum cache_state s) {
    return s >= CACHE_OPENING && s <= CACHE_STEPPING;
}
// The whole cache is in blocks of the device, also while it is being copied.
static inline bool cache_is_on_device(enum cache_state s) {
    return s >= CACHE_DEVICE && s <= CACHE_PARKING;
}
// Whether the sequence's turn waits for the cache.
static inline bool cache_is_awaited(enum cache_state s) {
    return cache_is_resuming(s) && s != CACHE_STEPPING;
}
