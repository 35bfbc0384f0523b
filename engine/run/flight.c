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
// string, an error); that turn's row of the step under way then does not count (instance_leave_flight): the cache
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
//    caches wait until all steps under way have ended (instance_land). A turn may end with the step before.
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
#include "engine/run/instance.h"
#include "engine/run/step.h"

enum {
    FLIGHT_ROWS_HOST = 2, // of each group at least
    FLIGHT_ROWS_GPU = 8,
    FLIGHT_STEPS = 64, // of each group
    // With one stage, while turns wait for a place: 64 rows compute FAIR_QUANTUM (fair.h) in so many steps, and then
    // another owner's turn may be due.
    FLIGHT_STEPS_WAITED = 8,
};

int32_t instance_flight_rows(const struct backend *be) {
    return be->ops->mem_info ? FLIGHT_ROWS_GPU : FLIGHT_ROWS_HOST;
}

// Its steps follow each other.
static bool has_one_stage(const struct instance *in) {
    return in->n_groups == 1;
}

static int32_t least_turns(const struct instance *in) {
    return has_one_stage(in) ? 1 : in->n_groups * in->flight_rows;
}

static bool can_fly(const struct instance *in) {
    // Two rows of a turn are not committed, and a ring has room for a chunk of them.
    const bool follows = in->forward.backend->ops->draws_read_before && in->opt.prefill_tokens > 1;
    return !has_one_stage(in) || follows;
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

bool instance_takes_off(struct instance *in) {
    struct flight *f = &in->flight;
    const struct scheduler *s = &in->sched;
    if (!can_fly(in) || f->state != FLIGHT_READY || s->n_running < least_turns(in) ||
        !caches_rest_in_place(&in->caches))
        return false;
    for (int32_t i = 0; i < s->n_running; i++) {
        const struct live_turn *t = (const struct live_turn *)s->running[i];
        if (s->running[i]->priority != s->running[0]->priority || !just_decodes(t) ||
            (has_one_stage(in) && !draws_ahead(t)))
            return false;
    }
    bool waited = has_one_stage(in) && sched_n_waiting(s) > 0;
    sched_group(&in->sched, in->n_groups);
    *f = (struct flight){.state = FLIGHT_ON,
                         .left = waited ? FLIGHT_STEPS_WAITED : FLIGHT_STEPS * in->n_groups,
                         .n_running = s->n_running};
    return true;
}

bool instance_flies_on(struct instance *in) {
    const struct flight *f = &in->flight;
    if (f->state != FLIGHT_ON || f->left <= 0 || in->caches.device_lost) return false;
    bool has_room = in->sched.n_running < f->n_running && sched_n_waiting(&in->sched) > 0;
    return !has_room && in->sched.n_running >= least_turns(in) && queue_count(in->commands) == 0 &&
           caches_rest_in_place(&in->caches) &&
           clock_mono_us(in->emit.clock) < in->next_deadline_us;
}

// The device draws all tokens of the step, whatever the tokens before them are.
static bool draws_all(const struct step *s) {
    const struct batch *b = &s->batch.batch;
    for (int32_t i = 0; b->draws && i < b->n_logits; i++)
        if (b->draws[i].kind == DRAW_NONE) return false;
    return b->draws;
}

static struct step *under_way(struct instance *in, int32_t i) {
    return &in->steps[(in->flight.first + i) % in->n_steps];
}

// Builds the next step, and sends it to the other ranks or, with one stage, launches it.
static void begin(struct instance *in) {
    struct flight *f = &in->flight;
    struct step *before = has_one_stage(in) && f->n > 0 ? under_way(in, f->n - 1) : NULL;
    if (before && !draws_all(before)) {
        f->state = FLIGHT_ENDS;
        return;
    }
    in->step = under_way(in, f->n);
    in->step->before = before;
    if (!instance_build_step(in, false)) {
        f->state = FLIGHT_ENDS; // the group has no turn, or all of them wait
        return;
    }
    in->step->rc = has_one_stage(in)
                       ? instance_launch_step(in, false)
                       : forward_send(&in->forward, &in->step->batch.batch, in->step->group);
    if (in->step->rc < 0) f->state = FLIGHT_ENDS;
    if (in->step->rc < 0 && !has_one_stage(in)) {
        instance_complete_step(in, in->step->rc);
        return;
    }
    if (f->n > 0) metric_add(in->metrics.overlapped, 1);
    f->n++;
    f->left--;
}

static void end_oldest(struct instance *in, int rc) {
    struct flight *f = &in->flight;
    instance_emit_pending(in);
    in->step = under_way(in, 0);
    f->first = (f->first + 1) % in->n_steps;
    f->n--;
    instance_complete_step(in, rc);
    // A step that follows begins, as measured, when the one before ends.
    if (instance_is_followed(in)) under_way(in, 0)->began_us = clock_mono_us(in->emit.clock);
}

static int launch_oldest(struct instance *in) {
    in->step = under_way(in, 0);
    return instance_launch_step(in, true);
}

static void begin_all(struct instance *in) {
    while (in->flight.state == FLIGHT_ON && in->flight.n < in->n_steps) begin(in);
}

bool instance_is_followed(const struct instance *in) {
    return has_one_stage(in) && in->flight.n > 0;
}

void instance_leave_flight(struct instance *in, const struct live_turn *t) {
    for (int32_t k = 0; k < in->flight.n; k++) {
        struct step *s = under_way(in, k);
        for (int32_t i = 0; i < s->batch.batch.n_seqs; i++) {
            if (s->turns[i] != t) continue;
            s->turns[i] = NULL;
            // Its row of this step, and that of the step before unless it is committed.
            kv_ring_unextend(&t->sequence->ring, 2);
        }
    }
}

// Where the next step could not be launched, the results of the oldest one are not read either.
static int followed_rc(struct instance *in) {
    int rc = under_way(in, 0)->rc;
    return rc == 0 && in->flight.n > 1 ? under_way(in, 1)->rc : rc;
}

static void fly_with_one_stage(struct instance *in) {
    if (in->flight.n == 0) begin(in);
    instance_emit_pending(in); // a step is under way
    begin_all(in);
    if (in->flight.n > 0) end_oldest(in, followed_rc(in));
}

// A device that computes beside the host begins its part first: the other ranks compute meanwhile. A CPU computes in
// the call, so they get their next step before.
void instance_fly(struct instance *in) {
    if (has_one_stage(in)) {
        fly_with_one_stage(in);
        return;
    }
    bool beside = in->forward.backend->ops->logits_read;
    if (!beside)
        begin_all(in);
    else if (in->flight.n == 0)
        begin(in);
    if (in->flight.n == 0 || in->caches.device_lost) return;
    int rc = launch_oldest(in);
    if (beside && rc == 0) begin_all(in);
    end_oldest(in, rc);
}

void instance_land(struct instance *in) {
    while (in->flight.n > 0) {
        bool lost = in->caches.device_lost;
        if (has_one_stage(in)) {
            end_oldest(in, lost ? E_DEVICE : followed_rc(in));
            continue;
        }
        if (lost && in->forward.lead->n_ahead > 0) lead_begins(in->forward.lead);
        end_oldest(in, lost ? E_DEVICE : launch_oldest(in));
    }
    in->flight.state = in->flight.state == FLIGHT_READY ? FLIGHT_READY : FLIGHT_OFF;
}
