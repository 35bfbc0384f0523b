// Masks of grammars, in slices. Engine thread only.
#pragma once

struct engine_core;

enum { MASK_EFFORT = 120000 }; // some 2 ms (grammar/machine.h)

// Make masks that the next draws of turns need, and mark the turns that wait. The first one is called before the plan,
// for turns whose masks must be complete before the step; the second one while the device computes, and where there is
// no step, for the others.
void core_prepare_masks(struct engine_core *core);
void core_make_masks_late(struct engine_core *core);
