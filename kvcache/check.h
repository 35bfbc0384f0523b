// kv_check(): checks the cache's invariants, after every test step and, in sanitizer builds, after
// every engine step.
#pragma once
#include "kvcache/ring.h"
#include <stddef.h>

// 0, or E_INTERNAL with the first broken invariant:
//   - refs equal the holders counted in the rings, and agree with the free list;
//   - no ring holds a block twice, or one of another tag;
//   - each ring holds exactly the blocks that the window rule needs of its n_tokens, in their slots;
//   - each name leads to the one block that has it, and no free block has a name.
int kv_check(const struct kv_pool *pool, const struct kv_ring *const *rings, size_t n_rings,
             struct err *err);
