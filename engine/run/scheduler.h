// Who runs in the next step, and with how many tokens: pure policy over counts. It knows no model,
// no cache and no clock, so that its tests are tables of numbers.
//
//   enqueue -> FIFO queue -> admit (reserves blocks) -> running: PREFILL ... DECODE -> leave
//
// A turn is admitted when the blocks that it can need at most fit beside those that running turns
// can need at most. Blocks of idle sequences do not count: they can be evicted at any time, least
// recently used first. So an admitted turn always finds its blocks, and the queue's head, once
// everything else has finished, always fits: no deadlock. The queue is strictly FIFO: a large turn
// waits for its turn, and is not overtaken for ever by small ones.
//
// Engine thread only. Nothing allocates after init.
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

// WAIT: it runs, as admission and its end go, but takes part in no step yet.
enum sched_state { SCHED_OUT, SCHED_QUEUED, SCHED_WAIT, SCHED_PREFILL, SCHED_DECODE };

struct sched_turn { // embedded in the turn it stands for
    enum sched_state state;
    int32_t reserve;                // blocks it can need at most; set before enqueue
    int64_t n_todo;                 // PREFILL: tokens still to be computed; set on admission
    struct sched_turn *prev, *next; // while queued
};

struct sched_share { // one turn's part of a step
    struct sched_turn *turn;
    int32_t n_tokens;
};

struct scheduler {
    int32_t max_running, prefill_tokens, n_blocks; // limits
    int32_t n_running, n_queued, n_reserved;
    struct sched_turn **running; // (max_running) in the order of admission
    struct sched_turn queue;     // list head; .next is the oldest
    int32_t cursor;              // who prefills first in the next step: index into running
};

// prefill_tokens: most prompt tokens of one step, all turns together. A step that other turns decode
// in has fewer (scheduler.c).
int sched_init(struct scheduler *s, int32_t max_running, int32_t prefill_tokens, int32_t n_blocks,
               struct err *err);
void sched_release(struct scheduler *s);

void sched_enqueue(struct scheduler *s, struct sched_turn *t); // t->reserve <= n_blocks
// The queue's head, if it may run now: it is running then, in PREFILL, and the caller sets n_todo.
// NULL otherwise.
struct sched_turn *sched_admit(struct scheduler *s);
// Takes a queued or running turn out, and its reservation with it.
void sched_leave(struct scheduler *s, struct sched_turn *t);
// The next step, into share (max_running): every decoding turn with one token, then prefilling
// turns within the budget, in equal parts, what short ones leave over going to the others. Returns
// how many take part; changes nothing but who comes first next time.
int32_t sched_plan(struct scheduler *s, struct sched_share *share);
// The tokens of a share have been computed.
void sched_computed(struct sched_turn *t, int32_t n_tokens);
