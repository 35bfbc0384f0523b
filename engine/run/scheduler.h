// Which turns take part in the next step, and with how many tokens: pure policy over counts. It knows
// no model, no cache and no clock, so its tests are tables of numbers.
//
//   enqueue -> the owner's queue -> admit (reserves blocks) -> running: PREFILL ... DECODE -> leave
//                        ^                                          |
//                        '---------------- pause -------------------'
//
// Each turn reserves the most blocks that it can need. A turn is admitted when its reservation fits
// beside those of the running turns. Blocks of idle sequences and of paused turns do not count, since
// they can be evicted at any time. So an admitted turn always finds its blocks. There is no deadlock,
// because the next turn fits once all others have ended. No turn overtakes the next one, so small turns
// do not keep a large one waiting for ever.
//
// fair.h chooses the next turn, and decides whether another owner's running turn is paused for it. A
// turn of idle priority is admitted only when no interactive turn waits. It is paused when an interactive
// turn needs its place or its blocks, and computes little beside interactive turns.
//
// Engine thread only. Nothing allocates after init.
#pragma once
#include "base/err.h"
#include "engine/engine.h"
#include "engine/run/fair.h"
#include <stdbool.h>
#include <stdint.h>

// WAIT: admitted, but takes no part in steps until its cache has been resumed. PAUSED: was admitted, lost
// its place, and waits for one again.
enum sched_state { SCHED_OUT, SCHED_QUEUED, SCHED_PAUSED, SCHED_WAIT, SCHED_PREFILL, SCHED_DECODE };

struct sched_turn {        // embedded in struct live_turn
    struct fair_turn fair; // first: the fair queue's pointer is the turn's
    enum sched_state state;
    // Set before enqueue.
    enum engine_priority priority;
    bool never_paused;
    int32_t reserve; // the most blocks that it can need
    int32_t places;  // of max_running; 0 means 1. More for a turn with branches
    // Its next draw waits for a grammar's mask: it draws no token in the step (masks.c).
    bool needs_mask;
    int32_t n_rows; // DECODE: tokens of a step, one for each running branch; 0 means 1
    // DECODE: drafts for the next step to check, a token each. The plan may leave some out.
    int32_t n_drafts;
    int32_t group;  // DECODE: of sched_group
    int64_t n_todo; // PREFILL: tokens still to be computed; set on admission
    // After a pause: how many tokens of the log are computed again because the cache was evicted, plus
    // one. They are not charged. Until they are computed, turns of the same priority do not pause this
    // turn again; otherwise it might never get past them.
    int64_t n_again;
};

struct sched_share { // one turn's part of a step
    struct sched_turn *turn;
    int32_t n_tokens;
};

struct scheduler {
    int32_t max_running, prefill_tokens, n_blocks; // limits
    int32_t n_running, n_places, n_reserved;       // turns, their places, their blocks
    int32_t n_paused[ENGINE_N_PRIORITIES];
    struct fair fair[ENGINE_N_PRIORITIES]; // by priority
    struct sched_turn **running;           // (max_running) in the order of admission
    int32_t cursor; // index into running of the turn that prefills first in the next step
    // Beside interactive turns: the idle turn that comes first, and how many tokens it has saved up.
    int32_t idle_cursor, idle_saved;
};

// prefill_tokens: most prompt tokens of one step, all turns together; fewer if other turns decode in
// the step (scheduler.c). max_turns: the most of one priority, running or not.
int sched_init(struct scheduler *s, int32_t max_running, int32_t prefill_tokens, int32_t n_blocks,
               int32_t max_turns, struct err *err);
void sched_release(struct scheduler *s);

// t: SCHED_OUT, with `reserve` (at most the pool) and `places` set; borrowed until sched_leave.
void sched_enqueue(struct scheduler *s, struct sched_turn *t, uint64_t owner);
// Admits the next turn if it fits, and puts it into PREFILL; the caller sets n_todo. NULL: it does not
// fit, or none waits.
struct sched_turn *sched_admit(struct scheduler *s);
// If the next turn does not fit: the running turn that must be paused for it. NULL: none.
struct sched_turn *sched_victim(struct scheduler *s);
void sched_pause(struct scheduler *s, struct sched_turn *t);
// Removes a waiting or running turn with its reservation.
void sched_leave(struct scheduler *s, struct sched_turn *t);
int32_t sched_n_waiting(const struct scheduler *s); // queued and paused turns
// Plans the next step into share (max_running) and returns how many turns take part. Every decoding turn
// gets one token for each of its branches and, in a step without prompts, its drafts. Prefilling turns
// share the budget of prompt tokens: each owner gets an equal part, and so does each turn of an owner.
// What short prompts leave over goes to the other prompts. Changes only the cursors.
int32_t sched_plan(struct scheduler *s, struct sched_share *share);
// Divides the decoding turns into n groups of about the same size, whose steps take turns (flight.c).
void sched_group(struct scheduler *s, int32_t n);
// A step of one group: a token for each of its decoding turns, those excepted that wait for a mask.
int32_t sched_plan_group(struct scheduler *s, int32_t group, struct sched_share *share);
// Call when a step has computed a share: charges its tokens to the owner. sched_checked charges the drafts,
// each like a prompt token.
void sched_computed(struct sched_turn *t, int32_t n_tokens);
void sched_checked(struct sched_turn *t, int32_t n_drafts);
