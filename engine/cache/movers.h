// Calls among the files that move caches; engine/run includes caches.h only. Calls go down:
//   hint fork travel -> load -> read evict resume -> park -> room -> write -> pieces pack -> drop
#pragma once
#include "engine/cache/caches.h"

// --- drop.c
void cache_drop_image(struct caches *c, struct sequence *s); // drops its copy in host memory
void cache_empty(struct caches *c, struct sequence *s); // cache_drop without its event; s stays
// Drops the job's hold on the host blocks that it was writing; a second call does nothing.
void cache_give_host_blocks_back(struct caches *c, struct snapshot_job *j);

// --- write.c

// Whether s, which is parked, needs a snapshot before it is dropped.
bool cache_wants_snapshot(struct caches *c, const struct sequence *s);
// Begins to write the copy of s, which is complete. E_BUSY: try again later. Another error: the
// snapshot is given up.
int cache_write(struct caches *c, struct sequence *s);
void cache_count_given_up(struct caches *c, const char *reason);
void cache_written(struct caches *c, struct snapshot_job *j);

// --- pieces.c

// Before the job is handed over; a READ has its places (memory, host, n_wanted). E_NOMEM.
int cache_pieces_begin(struct caches *c, struct snapshot_job *j);
// The engine has the job back. True: it is under way again, with the next piece.
bool cache_pieces_next(struct caches *c, struct snapshot_job *j);

// --- room.c

// Makes room in host memory for s: drops the least recently used copy, if it was used before s. If the
// copies of s's owner fill more than half of host memory, only these are looked at.
// LATER: that copy is being written first. pressed: a turn waits, so the copy is dropped without a
// snapshot.
enum room { ROOM_NONE, ROOM_MADE, ROOM_LATER };
enum room cache_make_host_room(struct caches *c, const struct sequence *s, bool pressed);

// --- pack.c

// The parked cache of s leaves the engine: ENGINE_EXPORTED, or ENGINE_RELEASED where there is no
// memory for it. May free s.
void cache_pack(struct caches *c, struct sequence *s);

// --- park.c

// The cache leaves the device as soon as its copy is complete, which may be now.
void cache_ask_to_park(struct caches *c, struct sequence *s, enum engine_release why);

// --- read.c

// Looks for a snapshot that holds more of the log than n_cached tokens. True: CACHE_OPENING.
bool cache_read_begin(struct caches *c, struct sequence *s, int64_t n_ids, int64_t n_cached);
// The device's blocks are taken: begins to read into host memory, in CACHE_READING. E_BUSY: host
// memory will have room soon.
int cache_read_blocks(struct caches *c, struct resume *r);
void cache_read_done(struct caches *c, struct snapshot_job *j); // OPEN or READ

// --- load.c

// Begins to load from host memory if the copy holds more of the log than n_cached tokens and copying
// is not slower than computing. The ring has the right shape. True: CACHE_WAITING.
bool cache_load_begin(struct caches *c, struct sequence *s, const int32_t *ids, int64_t n_ids,
                      int64_t n_cached);
