// A long piece of work in ranges, on threads that are made for it: for what happens while a model
// is opened, or a cache is read from its file; not for steps.
#pragma once
#include <stdint.h>

typedef void parallel_fn(void *ctx, int64_t first, int64_t n);

// Calls fn for ranges that cover [0, n) once each, side by side, and returns when all are done: as
// many ranges as this process may use cores, at most 8, and none shorter than `least`, so that the
// making of a thread counts for nothing. One range, or where no thread can be made, runs here.
void parallel_ranges(int64_t n, int64_t least, parallel_fn *fn, void *ctx);
