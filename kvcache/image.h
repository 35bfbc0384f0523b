// Copies of a ring's blocks in host memory: which of a sequence's blocks have one, and of how many
// positions. Bookkeeping like the ring's; the bytes are the caller's, at host block ids taken from
// a pool of their own (struct kv_pool again: a host block may have other holders, such as a file
// that is being written, or images of other sequences: forks', and those of equal beginnings).
// Engine thread only.
//
// Blocks are written once but for the last one, so an image is brought up to date, not made anew: a
// turn that adds a hundred tokens to ten thousand costs the copies of the blocks it wrote.
//
//   sequence idle -> kv_image_next, copy, kv_image_copied ... 0: the image is whole -> the ring's
//   blocks may go -> kv_ring_restore, copies back: a ring that is as it was
#pragma once
#include "kvcache/ring.h"

struct kv_copy {     // of one block
    int32_t host;    // host block id, -1: no copy
    int64_t logical; // the sequence's block: positions [logical, logical + 1) * block_tokens
    int64_t upto;    // the copy is right for positions below
};

struct kv_image {
    struct kv_pool *host;   // borrowed
    struct kv_copy *copies; // (n_slots) where the ring has the block; NULL: no image
    int32_t n_slots, n_held;
    int32_t memory_len, sink_len; // of the ring it is of
};

// An empty image for rings of this shape. E_NOMEM leaves it zeroed.
int kv_image_init(struct kv_image *m, struct kv_pool *host, const struct kv_ring *shape);
// A zeroed image begins with what another has of the first n positions, its host blocks shared:
// O(slots), and no byte moves. Whoever of the two goes on later copies to blocks of its own.
// E_NOMEM leaves it zeroed.
int kv_image_fork(struct kv_image *to, const struct kv_image *from, int64_t n,
                  int32_t block_tokens);
// Whether there are right copies of all that a ring of this shape and n positions holds.
bool kv_image_serves(const struct kv_image *m, const struct kv_ring *shape, int64_t n);
void kv_image_release(struct kv_image *m); // gives every host block back; of a zeroed one: nothing
// From position n on the log is another: what stands for that is not right any more.
void kv_image_cut(struct kv_image *m, int64_t n, int32_t block_tokens);

// How many of the ring's blocks have no copy that is right up to n_tokens. 0: the image is whole.
int32_t kv_image_missing(const struct kv_image *m, const struct kv_ring *r);
// The next block to copy, with a host block to copy it to: 1 with *slot (host id in
// copies[*slot].host, ring block in r->blocks[*slot]), then the bytes, then kv_image_copied, in any
// number of batches; 0: none is missing, and copies of blocks that the window has passed have been
// given back; E_NOMEM: no host block is free. A full block of a group (kv_names) whose copy another
// image has is shared with that one on the way: nothing is to be copied.
int kv_image_next(struct kv_image *m, const struct kv_ring *r, int32_t *slot);
void kv_image_copied(struct kv_image *m, const struct kv_ring *r, int32_t slot);
// Takes host blocks for all that a ring of this shape and n_tokens holds, to be filled from
// elsewhere, and says that they are right. All or nothing: E_NOMEM.
int kv_image_fill(struct kv_image *m, const struct kv_ring *r);
