// kv_check(): proves the cache's invariants; called after every test step, and in debug builds
// after every engine step.
#pragma once
#include "kvcache/ring.h"
#include <stddef.h>

// 0, or E_INTERNAL with the first broken one: every block's holders counted in the rings equal pool
// refs; free list and refs agree, no block twice in one ring; each ring holds exactly the blocks
// that the window rule still needs of its n_tokens (sinks and window covered, bound kept), in the
// right slots; a ring's blocks have its tag; names lead to the blocks that have them, each name to
// one, and no free block has one.
int kv_check(const struct kv_pool *pool, const struct kv_ring *const *rings, size_t n_rings,
             struct err *err);
