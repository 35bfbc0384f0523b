// The CPU backend's workers. The thread that calls threads_for is one of them (worker 0). The
// others spin for a moment between calls and then sleep on a futex, so that an idle server uses no
// processor time.
//
// Work is a number of independent items, divided into ranges: worker w of n has those from n_items
// * w / n on, in ascending order. If the machine takes a core away, that delays one item, not half
// of the op: the other workers steal the rest of its range. The result of an item does not depend
// on the worker that computes it.
#pragma once
#include "base/err.h"

struct threads;

// n workers, the caller included.
int threads_new(struct threads **out, int n, struct err *err);
void threads_free(struct threads *t);
int threads_count(const struct threads *t);

typedef void threads_fn(void *ctx, int item, int worker);

enum { THREADS_MAX = 64, THREADS_MAX_ITEMS = 1 << 20 };

// Calls fn(ctx, item, worker) once for each item in [0, n_items), worker in [0, threads_count), and
// returns when all are done. With one item or one thread, the caller runs everything and wakes no
// worker. Owner's thread only.
void threads_for(struct threads *t, int n_items, threads_fn *fn, void *ctx);
