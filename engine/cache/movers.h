// What the movers of caches ask of each other; engine/run sees caches.h only. Calls go down:
//   hint fork -> load -> read evict resume -> park -> room -> write -> drop
#pragma once
#include "engine/cache/caches.h"

// --- drop.c
void cache_drop_image(struct caches *c, struct sequence *s); // its copy in host memory goes
void cache_give_host_blocks_back(struct caches *c, struct snapshot_job *j);

// --- write.c

// Whether s, parked, should have a snapshot before it is dropped, and has none yet.
bool cache_wants_snapshot(struct caches *c, const struct sequence *s);
// Begins to write the copy of s, which is complete. E_BUSY: later; else the snapshot is given up.
int cache_write(struct caches *c, struct sequence *s);
void cache_count_given_up(struct caches *c, const char *reason);
void cache_written(struct caches *c, struct snapshot_job *j);

// --- room.c

// Makes room in host memory for s: the least recently used copy goes, if it was used before s. LATER:
// one is being written first. pressed: a turn waits for this, so a copy goes without a snapshot.
enum room { ROOM_NONE, ROOM_MADE, ROOM_LATER };
enum room cache_make_host_room(struct caches *c, const struct sequence *s, bool pressed);

// --- park.c

// Leaves the device as soon as its copy is complete, which may be now.
void cache_ask_to_park(struct caches *c, struct sequence *s, enum engine_release why);

// --- read.c

// Looks for a snapshot that holds more of the log than n_cached tokens. True: CACHE_OPENING.
bool cache_read_begin(struct caches *c, struct sequence *s, int64_t n_ids, int64_t n_cached);
// The blocks of the device are there: begins to read into host memory. E_BUSY: there will be room
// soon. CACHE_READING.
int cache_read_blocks(struct caches *c, struct resume *r);
void cache_read_done(struct caches *c, struct snapshot_job *j); // OPEN or READ

// --- load.c

// From host memory, if the copy has more of the log than n_cached tokens and copying is not slower
// than computing. The ring has the right shape. True: CACHE_WAITING.
bool cache_load_begin(struct caches *c, struct sequence *s, const int32_t *ids, int64_t n_ids,
                      int64_t n_cached);
