// Weighted fair queueing of the turns of one priority: which owner's turn gets the next place, and which
// owner gives one up. Pure policy over counts, without model, cache and clock.
//
// An owner's turns are first in, first out; a paused turn waits in front of them. A turn takes one
// place, a turn with branches as many places as it has rows in a step. The next places go to the owner
// with the fewest places; among equals, to the owner with the least computed (`used`, in units of one
// prompt token); among equals again, to the turn that came first.
//
// When too few places are free, an owner gives up the places of one of its turns
//   - to an owner that afterwards, with its new turn, has no more places than the giver keeps. This
//     makes the places more equal, so no later move reverses it;
//   - to an owner without a place for which at least FAIR_QUANTUM less has been computed. So if there
//     are more owners than places, each gets a quantum at a time, and a turn that needs all places gets
//     them.
// One owner alone never gives a place up.
//
// The clock is the smallest `used` of the owners with turns. It only grows, and it bounds every `used`:
//   - a new or returning owner starts at most one quantum before the clock. So it gets a place at once,
//     unless other newcomers hold all places, but an absence saves up no more than a quantum;
//   - an owner that comes back soon keeps its `used`, so leaving gains nothing;
//   - an owner is at most FAIR_DEBT ahead of the clock. So what it computed while it was alone does not
//     keep it waiting for long when others come.
//
// The table cannot be full of owners with turns, because it has room for as many owners as there may be
// turns. Turns without an owner (0) together count as one owner's.
//
// Engine thread only. Nothing allocates after init.
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

enum { FAIR_QUANTUM = 512, FAIR_DEBT = 4 * FAIR_QUANTUM };

struct fair_owner {
    uint64_t owner;
    int32_t n_held, n_turns, n_waiting; // places; turns that hold them; turns without one
    int64_t used;
    struct fair_turn *queue; // list of its waiting turns
    // Of the step being planned: its prompts, and how many tokens they may still get.
    int32_t n_prompts, prompt_tokens;
    // Likewise: one of its turns needs a mask; what masks of its turns may still take (masks.c).
    bool needs_masks;
    int64_t mask_effort;
};

struct fair_turn { // embedded in struct sched_turn
    struct fair_owner *owner;
    int32_t places;                // set before fair_enqueue; 0 means 1
    uint64_t ticket;               // in the order of arrival
    struct fair_turn *prev, *next; // while it waits
};

struct fair {
    struct fair_owner *owners; // (cap) n of them have been used
    int32_t n, cap;
    int32_t n_held, n_waiting; // of all owners
    int64_t clock;
    uint64_t tickets;
};

int fair_init(struct fair *f, int32_t max_turns, struct err *err); // E_NOMEM
void fair_release(struct fair *f);

// t waits behind its owner's other turns. Cannot fail while f has at most max_turns turns.
void fair_enqueue(struct fair *f, struct fair_turn *t, uint64_t owner);
void fair_take_place(struct fair *f, struct fair_turn *t); // t waited
void fair_give_place(struct fair *f, struct fair_turn *t); // t is paused: it waits in front
// t is over. held: it has a place.
void fair_leave(struct fair *f, struct fair_turn *t, bool held);

// The waiting turn that comes next; NULL: none waits.
struct fair_turn *fair_next(struct fair *f);
// The owner that gives places up for the first waiting turn of `to`; NULL: none.
const struct fair_owner *fair_giver(const struct fair *f, const struct fair_owner *to);
