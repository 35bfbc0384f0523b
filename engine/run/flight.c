// Several steps under way at once, while sessions just decode: a step that follows another on the same device, so that
// the device need not wait for the host, or steps of several groups of sessions, so that all pipeline stages work.
//
// One stage. The next step of all sessions is launched while the device computes the present one:
//
//   device     A B C ..
//   host       launch A, launch B; A's tokens, launch C; B's tokens, launch D; ..
//
// The next step's input is what the present one draws, which its embedding reads where the device has left it
// (BATCH_DRAWN in kernels/batch.h). The host learns a step later that a turn is over (a stop token, a stop
// string, an error); that turn's row of the step under way then does not count (core_leave_flight): the cache
// keeps no key of it, and the owner is not charged. A turn whose length ends it has no such row. Only draws that need
// nothing of the token before can run ahead: no penalties, grammars, bans, alternatives.
//
// Several stages. A step of a session needs the token of its step before, so one step at a time leaves all stages but
// one idle. Therefore the decoding sessions are divided into as many groups as there are stages, whose steps take turns:
//
//   stage 0            A0 B0 A1 B1 A2 ..     the leader sends A1 when it has A0's tokens
//   stage 1 (leader)      A0 B0 A1 B1 ..     each rank computes the steps in the order in which they were sent
//
// With w the time of a stage for its weights and r for a row, a round of all n sessions takes P (w + r n / P)
// instead of P (w + r n). So it pays where r n counts beside w. Below FLIGHT_ROWS_* rows for each group, the fixed
// cost of P steps instead of one is larger.
//
// The leader computes its own part last (it is in the last stage). So its device has one step at a time, and a step
// under way is a batch that was built and sent.
//
// Until a step has ended (rules 1 to 3):
//
// 1. Its turns do not pause, fork or change their rings. So all commands, deadlines, admission and copies of
//    caches wait until all steps under way have ended (core_land). A turn may end with the step before.
// 2. Its blocks stay held: only its own commit gives blocks back, or the end of its turn. Of groups, blocks that
//    another step takes, copies or evicts are in no step under way, and it does not matter that the leader copies them
//    before its part of the step and other ranks after theirs. With one stage, all ranks' devices do everything in the
//    order of the calls, so a block whose turn has ended may be taken, and is written after the step that read it.
// 3. No plan needs an answer of other ranks, which may be waiting for the leader (lead_step_ahead).
//
// A flight begins after a round with a whole step that left nothing else to do, and all of whose turns just decode.
// It ends when anything else is to be done, and every FLIGHT_STEPS steps, so that caches are parked and written.
// The groups are made anew each time. No draw depends on them. A turn that arrives waits for one step more than
// without a flight.
#include "engine/run/flight.h"
#include "engine/run/emit_later.h"
#include "engine/run/engine_core.h"
#include "engine/run/step.h"

enum {
    FLIGHT_ROWS_HOST = 2, // of each group at least
    FLIGHT_ROWS_GPU = 8,
    FLIGHT_STEPS = 64, // of each group
    // With one stage, while turns wait for a place: 64 rows compute FAIR_QUANTUM (fair.h) in so many steps, and then
    // another owner's turn may be due.
    FLIGHT_STEPS_WAITED = 8,
};

int32_t core_flight_rows(const struct backend *be) {
    return be->ops->mem_info ? FLIGHT_ROWS_GPU : FLIGHT_ROWS_HOST;
}

// Its steps follow each other.
static bool has_one_stage(const struct engine_core *core) {
    return core->n_groups == 1;
}

static int32_t least_turns(const struct engine_core *core) {
    return has_one_stage(core) ? 1 : core->n_groups * core->flight_rows;
}

static bool can_fly(const struct engine_core *core) {
    // Two rows of a turn are not committed, and a ring has room for a chunk of them.
    const bool follows =
        core->forward.backend->ops->draws_read_before && core->opt.prefill_tokens > 1;
    return !has_one_stage(core) || follows;
}

// Also the token after the next one is drawn by the device, which then does not need to know the next one.
static bool draws_ahead(const struct live_turn *t) {
    return !t->drawn_by_host && sampler_plan(&t->slot->sampler, t->n_log + 1, 1).kind != DRAW_NONE;
}

// The turn's steps have one row each, whose logits give its next token and nothing else.
static bool just_decodes(const struct live_turn *t) {
    const struct sequence *s = t->sequence;
    return t->sched.state == SCHED_DECODE && !t->branches && !t->drafts && !t->spec.on_logits &&
           !t->spec.score_only && !context_waits(&t->context, t->spec.n_ids) && !s->resume &&
           s->state != CACHE_STEPPING;
}

static bool caches_rest_in_place(const struct caches *c) {
    return !c->resuming && !c->tiers.copying && !c->park_pressed && c->n_in[CACHE_PARKING] == 0;
}

bool core_takes_off(struct engine_core *core) {
    struct flight *f = &core->flight;
    const struct scheduler *s = &core->sched;
    if (!can_fly(core) || f->state != FLIGHT_READY || s->n_running < least_turns(core) ||
        !caches_rest_in_place(&core->caches))
        return false;
    for (int32_t i = 0; i < s->n_running; i++) {
        const struct live_turn *t = (const struct live_turn *)s->running[i];
        if (s->running[i]->priority != s->running[0]->priority || !just_decodes(t) ||
            (has_one_stage(core) && !draws_ahead(t)))
            return false;
    }
    bool waited = has_one_stage(core) && sched_n_waiting(s) > 0;
    sched_group(&core->sched, core->n_groups);
    *f = (struct flight){.state = FLIGHT_ON,
                         .left = waited ? FLIGHT_STEPS_WAITED : FLIGHT_STEPS * core->n_groups,
                         .n_running = s->n_running};
    return true;
}

bool core_flies_on(struct engine_core *core) {
    const struct flight *f = &core->flight;
    if (f->state != FLIGHT_ON || f->left <= 0 || core->caches.device_lost) return false;
    bool has_room = core->sched.n_running < f->n_running && sched_n_waiting(&core->sched) > 0;
    return !has_room && core->sched.n_running >= least_turns(core) &&
           queue_count(core->commands) == 0 && caches_rest_in_place(&core->caches) &&
           clock_mono_us(core->emit.clock) < core->next_deadline_us;
}

// The device draws all tokens of the step, whatever the tokens before them are.
static bool draws_all(const struct step *s) {
    const struct batch *b = &s->batch.batch;
    for (int32_t i = 0; b->draws && i < b->n_logits; i++)
        if (b->draws[i].kind == DRAW_NONE) return false;
    return b->draws;
}

static struct step *under_way(struct engine_core *core, int32_t i) {
    return &core->steps[(core->flight.first + i) % core->n_steps];
}

// Builds the next step, and sends it to the other ranks or, with one stage, launches it.
static void begin(struct engine_core *core) {
    struct flight *f = &core->flight;
    struct step *before = has_one_stage(core) && f->n > 0 ? under_way(core, f->n - 1) : NULL;
    if (before && !draws_all(before)) {
        f->state = FLIGHT_ENDS;
        return;
    }
    core->step = under_way(core, f->n);
    core->step->before = before;
    if (!core_build_step(core, false)) {
        f->state = FLIGHT_ENDS; // the group has no turn, or all of them wait
        return;
    }
    core->step->rc = has_one_stage(core) ? core_launch_step(core, false)
                                         : forward_send(&core->forward, &core->step->batch.batch,
                                                        core->step->group);
    if (core->step->rc < 0) f->state = FLIGHT_ENDS;
    if (core->step->rc < 0 && !has_one_stage(core)) {
        core_complete_step(core, core->step->rc);
        return;
    }
    if (f->n > 0) metric_add(core->metrics.overlapped, 1);
    f->n++;
    f->left--;
}

static void end_oldest(struct engine_core *core, int rc) {
    struct flight *f = &core->flight;
    core_emit_pending(core);
    core->step = under_way(core, 0);
    f->first = (f->first + 1) % core->n_steps;
    f->n--;
    core_complete_step(core, rc);
    // A step that follows begins, as measured, when the one before ends.
    if (core_is_followed(core)) under_way(core, 0)->began_us = clock_mono_us(core->emit.clock);
}

static int launch_oldest(struct engine_core *core) {
    core->step = under_way(core, 0);
    return core_launch_step(core, true);
}

static void begin_all(struct engine_core *core) {
    while (core->flight.state == FLIGHT_ON && core->flight.n < core->n_steps) begin(core);
}

bool core_is_followed(const struct engine_core *core) {
    return has_one_stage(core) && core->flight.n > 0;
}

void core_leave_flight(struct engine_core *core, const struct live_turn *t) {
    for (int32_t k = 0; k < core->flight.n; k++) {
        struct step *s = under_way(core, k);
        for (int32_t i = 0; i < s->batch.batch.n_seqs; i++) {
            if (s->turns[i] != t) continue;
            s->turns[i] = NULL;
            // Its row of this step, and that of the step before unless it is committed.
            kv_ring_unextend(&t->sequence->ring, 2);
        }
    }
}

// Where the next step could not be launched, the results of the oldest one are not read either.
static int followed_rc(struct engine_core *core) {
    int rc = under_way(core, 0)->rc;
    return rc == 0 && core->flight.n > 1 ? under_way(core, 1)->rc : rc;
}

static void fly_with_one_stage(struct engine_core *core) {
    if (core->flight.n == 0) begin(core);
    core_emit_pending(core); // a step is under way
    begin_all(core);
    if (core->flight.n > 0) end_oldest(core, followed_rc(core));
}

// A device that computes beside the host begins its part first: the other ranks compute meanwhile. A CPU computes in
// the call, so they get their next step before.
void core_fly(struct engine_core *core) {
    if (has_one_stage(core)) {
        fly_with_one_stage(core);
        return;
    }
    bool beside = core->forward.backend->ops->logits_read;
    if (!beside)
        begin_all(core);
    else if (core->flight.n == 0)
        begin(core);
    if (core->flight.n == 0 || core->caches.device_lost) return;
    int rc = launch_oldest(core);
    if (beside && rc == 0) begin_all(core);
    end_oldest(core, rc);
}

void core_land(struct engine_core *core) {
    while (core->flight.n > 0) {
        bool lost = core->caches.device_lost;
        if (has_one_stage(core)) {
            end_oldest(core, lost ? E_DEVICE : followed_rc(core));
            continue;
        }
        if (lost && core->forward.lead->n_ahead > 0) lead_begins(core->forward.lead);
        end_oldest(core, lost ? E_DEVICE : launch_oldest(core));
    }
    core->flight.state = core->flight.state == FLIGHT_READY ? FLIGHT_READY : FLIGHT_OFF;
}
