// Masks of grammars, before a step. A new mask may take 50 ms (grammar/machine.h), and all turns of a step wait for
// its draws. So masks are made before the step, for at most mask_effort. A turn whose mask is not complete takes no
// part in the step, or computes its prompt without the last token.
//
//   each owner whose turns need masks    an equal part of the effort
//   its turns                            from the cursor on, one mask after the other
//
// The cursor stays at a turn until its masks are complete. A turn with branches needs those of all its branches. While
// all turns wait for masks, there are no steps, and the rounds go on at once (instance.c).
//
// The draws still make the masks of small grammars, whose transitions are all known (machine.explored): on a GPU,
// while the step runs.
#include "engine/run/instance.h"

// Whether every draw of the turn's next step has its mask.
static bool prepare(const struct live_turn *t, int64_t *effort) {
    if (!t->branches) return sampler_prepare(&t->slot->sampler, effort);
    for (int32_t i = 0; i < t->branches->n; i++)
        if (branch_runs(t->branches, i) && !sampler_prepare(branch_sampler(t, i), effort))
            return false;
    return true;
}

// Marks the turns that need masks, and returns how many owners have some.
static int32_t find_needs(struct instance *in) {
    int32_t n_owners = 0;
    for (int32_t i = 0; i < in->sched.n_running; i++)
        in->sched.running[i]->fair.owner->needs_masks = false;
    for (int32_t i = 0; i < in->sched.n_running; i++) {
        struct sched_turn *t = in->sched.running[i];
        int64_t none = 0;
        t->needs_mask = t->state >= SCHED_PREFILL && !prepare((const struct live_turn *)t, &none);
        n_owners += t->needs_mask && !t->fair.owner->needs_masks;
        t->fair.owner->needs_masks |= t->needs_mask;
    }
    return n_owners;
}

void instance_prepare_masks(struct instance *in) {
    struct scheduler *s = &in->sched;
    int32_t n_owners = find_needs(in), first = -1;
    if (n_owners == 0) return;
    for (int32_t i = 0; i < s->n_running; i++)
        s->running[i]->fair.owner->mask_effort = in->mask_effort / n_owners;
    for (int32_t k = 0; k < s->n_running; k++) {
        int32_t i = (in->mask_cursor + k) % s->n_running;
        struct sched_turn *t = s->running[i];
        if (!t->needs_mask) continue;
        t->needs_mask = !prepare((const struct live_turn *)t, &t->fair.owner->mask_effort);
        if (t->needs_mask && first < 0) first = i;
    }
    if (first >= 0) in->mask_cursor = first;
}
