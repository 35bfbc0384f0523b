// Runs a long piece of work in ranges, on threads created for it: for opening a model or reading a
// snapshot, not for steps.
#pragma once
#include <stdint.h>

typedef void parallel_fn(void *ctx, int64_t first, int64_t n);

// Calls fn in parallel for ranges that cover [0, n) once, and returns when all are done. There are
// as many ranges as the process may use cores, at most 16, and none is shorter than `least`, so that
// the cost of creating a thread does not matter. A single range, or a range for which no thread
// could be created, runs on the caller's thread.
void parallel_ranges(int64_t n, int64_t least, parallel_fn *fn, void *ctx);
