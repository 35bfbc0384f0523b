// Steps that a device computes once while the engine opens, so that the first turn finds every
// kernel loaded and the decode step of one session recorded.
#pragma once
#include "engine/run/forward.h"

// Writes to blocks 0, 1, ... of the cache, which must be free. Does nothing on a device that computes
// on the host. Engine thread, or the thread that opens the engine.
int forward_warm(struct forward *f, struct err *err);
