// Masks of grammars. A new mask may take 50 ms (grammar/machine.h), and all turns of a step wait for its draws. So
// masks are made for at most mask_effort in a round. A turn whose mask is not complete takes no part in the next step,
// or computes its prompt without the last token.
//
//   each owner whose turns need masks    an equal part of the effort
//   its turns                            from the cursor on, one mask after the other
//
// The cursor stays at a turn until its masks are complete. A turn with branches needs those of all its branches. While
// all turns wait for masks, there are no steps, and the rounds go on at once (engine_core.c).
//
// There are two times for it:
//
//   before the step   where the host draws: it draws as soon as the logits are there
//   after its launch  where the device changes a turn's logits and draws (draws_late): the masks are made while the
//                     device computes the step. Where the effort does not suffice, the device has computed the turn's
//                     row for nothing: it is not committed and no token is drawn from it; the turn waits, and a later
//                     step computes it again (step.c, leave_undrawn)
//
// The draws still make the masks of small grammars, whose transitions are all known (machine.explored): on a GPU,
// while the step runs.
#include "engine/run/masks.h"
#include "engine/run/engine_core.h"

// Whether every draw of the turn's next step has its mask.
static bool prepare(const struct live_turn *t, int64_t *effort) {
    if (!t->branches) return sampler_prepare(&t->slot->sampler, effort);
    for (int32_t i = 0; i < t->branches->n; i++)
        if (branch_runs(t->branches, i) && !sampler_prepare(branch_sampler(t, i), effort))
            return false;
    return true;
}

// Whether the turn's mask is needed only after the launch, because the device draws. Not where the row gives more than
// a token: that would be reported twice if the row were computed again.
static bool draws_late(const struct engine_core *core, const struct live_turn *t) {
    const struct context_outputs *c = &t->context;
    bool more = t->spec.on_logits || t->spec.score_only || c->wants_logprob || c->wants_scores ||
                c->wants_embedding;
    return core->forward.backend->ops->draw_adjust && !more && !t->branches && !t->drafts &&
           sampler_is_adjustment(&t->slot->sampler);
}

static bool runs(const struct sched_turn *t) {
    return t->state == SCHED_PREFILL || t->state == SCHED_DECODE;
}

// Marks the turns, of those that draw late or of the others, that need masks. Returns how many owners have some.
static int32_t find_needs(struct engine_core *core, bool late) {
    int32_t n_owners = 0;
    for (int32_t i = 0; i < core->sched.n_running; i++)
        core->sched.running[i]->fair.owner->needs_masks = false;
    for (int32_t i = 0; i < core->sched.n_running; i++) {
        struct sched_turn *t = core->sched.running[i];
        int64_t none = 0;
        if (runs(t) && draws_late(core, (const struct live_turn *)t) != late) continue;
        t->needs_mask = runs(t) && !prepare((const struct live_turn *)t, &none);
        n_owners += t->needs_mask && !t->fair.owner->needs_masks;
        t->fair.owner->needs_masks |= t->needs_mask;
    }
    return n_owners;
}

static void make(struct engine_core *core, bool late) {
    struct scheduler *s = &core->sched;
    int32_t n_owners = find_needs(core, late), first = -1;
    if (n_owners == 0) return;
    int64_t part = core->mask_left / n_owners;
    for (int32_t i = 0; i < s->n_running; i++) s->running[i]->fair.owner->mask_effort = part;
    for (int32_t k = 0; k < s->n_running; k++) {
        int32_t i = (core->mask_cursor + k) % s->n_running;
        struct sched_turn *t = s->running[i];
        int64_t *effort = &t->fair.owner->mask_effort, before = *effort;
        if (!t->needs_mask || draws_late(core, (const struct live_turn *)t) != late) continue;
        t->needs_mask = !prepare((const struct live_turn *)t, effort);
        core->mask_left -= before - *effort;
        if (t->needs_mask && first < 0) first = i;
    }
    if (first >= 0) core->mask_cursor = first;
}

void core_prepare_masks(struct engine_core *core) {
    core->mask_left = core->mask_effort;
    make(core, false);
}

void core_make_masks_late(struct engine_core *core) {
    if (core->forward.backend->ops->draw_adjust) make(core, true);
}
