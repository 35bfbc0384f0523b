// Runs a piece of work in ranges, on threads of its own: for opening a model or reading a snapshot, not for steps.
#pragma once
#include <stdint.h>

typedef void parallel_fn(void *ctx, int64_t first, int64_t n);

// Calls fn in parallel for ranges that cover [0, n) once, and returns when all are done. There are
// as many ranges as the process may use cores, at most 16, and none is shorter than `least`, so that
// the cost of waking a thread does not matter. A single range, or a range that no thread has taken
// when the caller's own is done, runs on the caller's thread. Any thread may call it, several at once.
//
// Loading a model calls this for each of thousands of matrices, so threads wait a moment for the next call before they end.
void parallel_ranges(int64_t n, int64_t least, parallel_fn *fn, void *ctx);
