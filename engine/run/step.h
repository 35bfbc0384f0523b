// One step: its data, and the parts that make it (step.c). Engine thread only.
#pragma once
#include "engine/run/batch.h"

struct engine_core;
struct live_turn;

// One step from its plan to its last draw.
struct step {
    struct batch_builder batch;
    // (max_seqs) the turn of each sequence of the batch; NULL once the turn has ended
    struct live_turn **turns;
    int32_t *branches;        // (max_seqs) and its branch
    struct batch_draw *draws; // (max_logits) by wanted row, if the device draws
    bool *adjusts;            // (max_logits) the device changes this row's logits, then draws
    int32_t n_draft_rows;
    // Turns that wait for a mask since the launch: no token is drawn from their rows.
    int32_t n_undrawn;
    bool is_prefix;            // it writes a prefix's keys and values to the cache
    int32_t group;             // of sessions (flight.c)
    const struct step *before; // while it is built: the step that it follows (flight.c), or NULL
    int rc;                    // of the launch of a step that another may follow
    int64_t began_us;
};

bool core_step(struct engine_core *core); // false: every running turn waits for blocks or a mask

// The parts of a step, for in->step. all: false for a step of in->step's group alone.
// False: it has no rows.
bool core_build_step(struct engine_core *core, bool all);
// sent: forward_send was called. Returns once the device computes the step, or has computed it.
int core_launch_step(struct engine_core *core, bool sent);
void core_complete_step(struct engine_core *core, int rc); // rc: of the launch
