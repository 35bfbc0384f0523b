// The CPU backend's workers. The thread that calls threads_for is one of them (worker 0); the
// others spin for a moment between calls and then sleep on a futex, so an idle server costs no CPU.
//
// Work is a number of independent items, shared out in stretches: worker w of n has those from
// n_items * w / n on, in ascending order. A core that the machine takes away for a while holds up
// one item, not half of the op: the others take what is left of its stretch. Which worker computes
// an item never shows in its result.
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
// returns when all are done. One item, or one thread, runs on the
// caller without waking anybody. Called from the owner's thread only.
void threads_for(struct threads *t, int n_items, threads_fn *fn, void *ctx);
