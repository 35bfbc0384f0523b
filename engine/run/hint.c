// A hint that a turn will come, of a sequence that has no cache here: a turn of its own that draws
// nothing and tells nobody. Like any other it is brought back from its file, or computed; the real
// turn finds what there is by then.
//
// One at a time, in blocks that nobody holds or has been promised. It reads a file beside others,
// but computes only while no turn runs or waits: the first one that comes ends it. What a step of
// it may take is bounded by time, since that is what the comer would wait for.
#include "engine/run/instance.h"

#include <string.h>

enum { STEP_US = 30000, LEAST_TOKENS = 16 };

// Nothing came of it: the owner's table has an entry for it.
static void forget(struct instance *in, struct sequence *s) {
    if (s->turn || s->ring.n_held > 0 || s->parked || s->resume) return;
    instance_not_warm(in, s);
    emit_released(&in->emit, s->id, RELEASE_ASKED, 0,
                  snapshots_find(&in->snapshots, s->names.id) != NULL);
    instance_forget_if_empty(in, s);
}

void instance_prepare(struct instance *in, struct sequence *s, struct turn *t) {
    bool known = s && (s->turn || s->ring.n_held > 0 || s->parked || s->resume);
    int32_t held = 0;
    for (int32_t i = 0; i < in->sched.n_running; i++)
        held += ((struct turn *)in->sched.running[i])->sequence->ring.n_held;
    bool room = t->sched.reserve <= in->pool.n_free - (in->sched.n_reserved - held) &&
                in->sched.n_running < in->opt.max_running && in->sched.n_queued == 0;
    bool calm = in->sched.n_running == 0 || instance_file_of(in, &t->names);
    if (!s || known || !room || !calm || in->silent || in->stopping) {
        engine_turn_free(t);
        if (s) forget(in, s);
        return;
    }
    t->silent = true;
    t->sequence = s;
    s->turn = t;
    in->silent = t;
    s->names = t->names;
    sched_enqueue(&in->sched, &t->sched);
}

void instance_hint_over(struct instance *in, struct sequence *s) {
    struct turn *t = in->silent;
    if (!t) return;
    bool reading = t->sched.state == SCHED_WAIT;
    if (t->sequence == s || !reading) instance_finish(in, t, FINISH_CANCELLED, NULL, false);
}

bool instance_only_hinted(const struct sequence *s) {
    return !s->turn || s->turn->silent;
}

void instance_hint_done(struct instance *in, struct sequence *s, bool whole) {
    in->silent = NULL;
    if (s->release_asked) {
        instance_give_up(in, s, RELEASE_ASKED);
        return;
    }
    s->used_us = clock_mono_us(in->emit.clock);
    if (whole && tiers_on(&in->tiers) && s->warm_until_us == 0) { // parks again if nobody comes
        s->warm_until_us = s->used_us + ENGINE_WARM_US;
        in->n_warm++;
    }
    forget(in, s);
}

int32_t instance_hint_tokens(const struct instance *in) {
    double n = in->tiers.prefill_rate * STEP_US;
    if (n > in->opt.prefill_tokens) return in->opt.prefill_tokens;
    return n > LEAST_TOKENS ? (int32_t)n : LEAST_TOKENS;
}
