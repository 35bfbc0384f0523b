// Several steps under way at once (flight.c). Engine thread only.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct backend;
struct engine_core;
struct live_turn;

enum flight_state {
    FLIGHT_OFF,   // whole steps, because there is other work
    FLIGHT_READY, // the last round was a whole step and left no other work
    FLIGHT_ON,    // each round begins a step and ends the oldest
    FLIGHT_ENDS,  // no step begins
};
struct flight {
    enum flight_state state;
    int32_t first, n;  // the steps under way, in order: first, first + 1, .. of n_steps
    int32_t left;      // steps until the next whole one
    int32_t n_running; // turns at the start
};

int32_t core_flight_rows(const struct backend *be); // from which a flight is faster

// Whether the next round is a flight's: it goes on, or one begins where the last round was a whole step.
bool core_flies_on(struct engine_core *core);
bool core_takes_off(struct engine_core *core);
// Such a round: begins the next groups' steps, and ends the oldest one.
void core_fly(struct engine_core *core);
// Ends all steps under way, so that turns and caches may change. Without a device their turns end with an error.
void core_land(struct engine_core *core);
// The turn's rows of steps under way do not count: it ends, or its last token is computed again.
void core_leave_flight(struct engine_core *core, const struct live_turn *t);
// Whether a step that follows in->step is under way: the draws of in->step come by forward_draws_before, and its
// logits are lost.
bool core_is_followed(const struct engine_core *core);
