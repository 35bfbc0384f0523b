// Which turns take part in the next step, and with how many tokens: pure policy over counts. It knows
// no model, no cache and no clock, so its tests are tables of numbers.
//
//   enqueue -> FIFO queue -> admit (reserves blocks) -> running: PREFILL ... DECODE -> leave
//
// A turn is admitted when the most blocks that it can need fit beside the most that running turns can
// need. Blocks of idle sequences do not count, since they can be evicted at any time. So an admitted
// turn always finds its blocks, and the queue's head fits once all other turns have ended: there is
// no deadlock. The queue is strictly FIFO, so small turns do not overtake a large one for ever.
//
// Engine thread only. Nothing allocates after init.
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

// WAIT: admitted, but takes no part in steps yet, because its cache is being resumed.
enum sched_state { SCHED_OUT, SCHED_QUEUED, SCHED_WAIT, SCHED_PREFILL, SCHED_DECODE };

struct sched_turn { // embedded in struct live_turn
    enum sched_state state;
    int32_t reserve;                // the most blocks that it can need; set before enqueue
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
    int32_t cursor; // index into running of the turn that prefills first in the next step
};

// prefill_tokens: most prompt tokens of one step, all turns together; fewer if other turns decode in
// the step (scheduler.c).
int sched_init(struct scheduler *s, int32_t max_running, int32_t prefill_tokens, int32_t n_blocks,
               struct err *err);
void sched_release(struct scheduler *s);

void sched_enqueue(struct scheduler *s, struct sched_turn *t); // t->reserve <= n_blocks
// Admits the queue's head, if it fits: it is in PREFILL then, and the caller sets n_todo. NULL:
// none fits.
struct sched_turn *sched_admit(struct scheduler *s);
// Removes a queued or running turn with its reservation.
void sched_leave(struct scheduler *s, struct sched_turn *t);
// Plans the next step into share (max_running): every decoding turn with one token, then prefilling
// turns, which share the budget in equal parts; the others get what short prompts leave over.
// Returns how many turns take part. Changes only the cursor.
int32_t sched_plan(struct scheduler *s, struct sched_share *share);
// The tokens of a share have been computed.
void sched_computed(struct sched_turn *t, int32_t n_tokens);
