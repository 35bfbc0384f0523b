// Cache blocks for a step's turns. Engine thread only.
#pragma once
#include <stdint.h>

struct engine_core;
struct kv_ring;

// Admission has promised the blocks; idle sequences that hold them are evicted here, when a turn
// needs them. TURN_WAITS: a cache is being copied first (cache/park.c).
enum { TURN_WAITS = 1 };
int core_take_blocks(struct engine_core *core, struct kv_ring *ring, int32_t n);
