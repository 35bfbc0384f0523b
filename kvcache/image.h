// An image: the copy of a ring's blocks in host memory. It knows which blocks have a copy, and up to
// which position each copy is valid. It does bookkeeping only: the caller copies the bytes, into host
// blocks that have a pool of their own. A host block may have several holders: images of forks and of
// equal beginnings, and a snapshot that is being written. Engine thread only.
//
// All blocks but the last are written once, so an image is updated, not made anew: after a turn only
// the blocks that the turn wrote are copied.
//
//   idle: kv_image_next, copy, kv_image_copied, ... until 0: the image is complete, and the ring may
//   be released. Back: kv_ring_restore, then copies to the ring's new blocks.
#pragma once
#include "kvcache/ring.h"

struct kv_copy {    // of one block
    int32_t host;   // host block id, -1: no copy
    int64_t number; // of the block (ring.h)
    int64_t upto;   // the copy is valid for positions below this one
};

struct kv_image {
    struct kv_pool *host;         // borrowed
    struct kv_copy *copies;       // (n_slots) by the ring's slot; NULL: no image
    int32_t n_slots, n_held;      // of all groups
    int32_t memory_len, sink_len; // of the ring that was copied
};

// An empty image for rings of this shape. E_NOMEM leaves it zeroed.
int kv_image_init(struct kv_image *m, struct kv_pool *host, const struct kv_ring *shape);
// A zeroed image takes over another image's copies of the first n positions. They share the host blocks;
// later each copies into blocks of its own. O(slots), no bytes are copied. E_NOMEM leaves it zeroed.
int kv_image_fork(struct kv_image *to, const struct kv_image *from, int64_t n,
                  int32_t block_tokens);
// Whether it has valid copies of all blocks that a ring of this shape and n positions holds.
bool kv_image_serves(const struct kv_image *m, const struct kv_ring *shape, int64_t n);
void kv_image_release(struct kv_image *m); // gives every host block back; of a zeroed one: nothing
// The log has changed from position n on: copies of later positions are no longer valid.
void kv_image_cut(struct kv_image *m, int64_t n, int32_t block_tokens);

// How many of the ring's blocks have no copy that is valid up to n_tokens. 0: the image is complete.
int32_t kv_image_missing(const struct kv_image *m, const struct kv_ring *r);
// The next block to copy. 1: *slot, with its host block in copies[*slot].host and the ring's in
// r->blocks[*slot]; the caller copies the bytes and calls kv_image_copied. 0: none is missing, and
// copies of blocks that the window has passed have been given back. E_NOMEM: no host block is free.
// A full block of a group whose copy another image has is shared with that image instead.
int kv_image_next(struct kv_image *m, const struct kv_ring *r, int32_t *slot);
void kv_image_copied(struct kv_image *m, const struct kv_ring *r, int32_t slot);
// Takes host blocks for all blocks of the ring and marks them valid; the caller fills them, from a
// snapshot. All or nothing: E_NOMEM.
int kv_image_fill(struct kv_image *m, const struct kv_ring *r);
// The same for the blocks that a ring of this shape and n positions would hold; of `shape` it reads
// the lengths and the map's sizes only.
int kv_image_take(struct kv_image *m, const struct kv_ring *shape, int64_t n);
