// Steps of several groups of sessions under way at once, so that all pipeline stages work while sessions decode.
//
// A step of a session needs the token of its step before, so one step at a time leaves all stages but one idle.
// Therefore the decoding sessions are divided into as many groups as there are stages, whose steps take turns:
//
//   stage 0            A0 B0 A1 B1 A2 ..     the leader sends A1 when it has A0's tokens
//   stage 1 (leader)      A0 B0 A1 B1 ..     each rank computes the steps in the order in which they were sent
//
// With w the time of a stage for its weights and r for a row, a round of all n sessions takes P (w + r n / P)
// instead of P (w + r n). So it pays where r n counts beside w. Below FLIGHT_ROWS_* rows for each group, the fixed
// cost of P steps instead of one is larger.
//
// The leader computes its own part last (it is in the last stage). So its device has one step at a time, and a step
// under way is a batch that was built and sent. Until it has ended (rules 1 to 3):
//
// 1. Its turns do not end, pause, fork or change their rings. So all commands, deadlines, admission and copies of
//    caches wait until all steps under way have ended (instance_land). Other turns may end: those of the step that
//    ends are under way in no other.
// 2. Its blocks stay held: only its own commit gives blocks back. So blocks that another step takes, copies or
//    evicts are in no step under way, and it does not matter that the leader copies them before its part of the
//    step and other ranks after theirs.
// 3. No plan needs an answer of other ranks, which may be waiting for the leader (lead_step_ahead).
//
// A flight begins after a round with a whole step that left nothing else to do, and all of whose turns just decode.
// It ends when anything else is to be done, and every FLIGHT_STEPS steps, so that caches are parked and written.
// The groups are made anew each time. No draw depends on them.
#include "engine/run/instance.h"

enum {
    FLIGHT_ROWS_HOST = 2, // of each group at least
    FLIGHT_ROWS_GPU = 8,
    FLIGHT_STEPS = 64, // of each group
};

int32_t instance_flight_rows(const struct backend *be) {
    return be->ops->mem_info ? FLIGHT_ROWS_GPU : FLIGHT_ROWS_HOST;
}

static int32_t least_turns(const struct instance *in) {
    return in->n_steps * in->flight_rows;
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
    if (in->n_steps == 1 || f->state != FLIGHT_READY || s->n_running < least_turns(in) ||
        !caches_rest_in_place(&in->caches))
        return false;
    for (int32_t i = 0; i < s->n_running; i++)
        if (s->running[i]->priority != s->running[0]->priority ||
            !just_decodes((const struct live_turn *)s->running[i]))
            return false;
    sched_group(&in->sched, in->n_steps);
    *f = (struct flight){
        .state = FLIGHT_ON, .left = FLIGHT_STEPS * in->n_steps, .n_running = s->n_running};
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

// Builds and sends the next group's step.
static void begin(struct instance *in) {
    struct flight *f = &in->flight;
    const int32_t group = (f->first + f->n) % in->n_steps;
    in->step = &in->steps[group];
    if (!instance_build_step(in, false)) {
        f->state = FLIGHT_ENDS; // the group has no turn, or all of them wait
        return;
    }
    int rc = forward_send(&in->forward, &in->step->batch.batch, group);
    if (rc < 0) {
        f->state = FLIGHT_ENDS;
        instance_complete_step(in, rc);
        return;
    }
    if (f->n > 0) metric_add(in->metrics.overlapped, 1);
    f->n++;
    f->left--;
}

static void end_oldest(struct instance *in, int rc) {
    struct flight *f = &in->flight;
    instance_emit_pending(in);
    in->step = &in->steps[f->first];
    f->first = (f->first + 1) % in->n_steps;
    f->n--;
    instance_complete_step(in, rc);
}

static int launch_oldest(struct instance *in) {
    in->step = &in->steps[in->flight.first];
    return instance_launch_step(in, true);
}

static void begin_all(struct instance *in) {
    while (in->flight.state == FLIGHT_ON && in->flight.n < in->n_steps) begin(in);
}

// A device that computes beside the host begins its part first: the other ranks compute meanwhile. A CPU computes in
// the call, so they get their next step before.
void instance_fly(struct instance *in) {
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
        if (lost && in->forward.lead->n_ahead > 0) lead_begins(in->forward.lead);
        end_oldest(in, lost ? E_DEVICE : launch_oldest(in));
    }
    in->flight.state = in->flight.state == FLIGHT_READY ? FLIGHT_READY : FLIGHT_OFF;
}
