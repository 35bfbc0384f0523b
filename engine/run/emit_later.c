// Emits the tokens that the device drew while the device computes the next step.
//
// For a few dozen turns, the host needs as much time to make text and push events as the device needs
// for a small model's step. So the host queues the next step first. A token that ends its turn, or may
// complete a stop string, is emitted at once, because the next step depends on it.
#include "engine/run/emit_later.h"
#include "engine/run/engine_core.h"

void core_mark_token(struct engine_core *core, struct live_turn *t, int64_t time_us) {
    const struct engine_metrics *m = &core->metrics;
    if (t->first_us) {
        metric_observe(m->inter_token, (double)(time_us - t->last_us) * 1e-6);
    } else if (t->n_given == 0) {
        metric_observe(m->first_token, (double)(time_us - t->submitted_us) * 1e-6);
    }
    live_turn_drew(t, time_us);
    metric_add(m->generated_tokens, 1);
}

bool core_ends_turn(const struct engine_core *core, const struct live_turn *t, int32_t id) {
    if (t->spec.sampling.ignore_eos) return false;
    if (t->spec.sampling.end_id >= 0) return id == t->spec.sampling.end_id;
    for (int32_t i = 0; i < core->n_eos; i++) {
        if (core->eos_ids[i] == id) return true;
    }
    return false;
}

bool core_emit_later(struct engine_core *core, struct live_turn *t, const struct sampled *s) {
    const struct sampling_words *stop = &t->spec.sampling.stop;
    if (stop->n_texts + stop->n_lists > 0 || t->text_rc < 0 || core_ends_turn(core, t, s->id) ||
        t->n_log + 1 >= t->cap_log)
        return false;
    core_mark_token(core, t, clock_mono_us(core->emit.clock));
    live_turn_take(t, s->id);
    core->pending[core->n_pending++] = (struct pending_token){t, *s};
    return true;
}

// Ends no turn, since a turn may have rows in the step under way. A turn whose text has failed ends
// with its next token.
void core_emit_pending(struct engine_core *core) {
    for (int32_t i = 0; i < core->n_pending; i++) {
        struct live_turn *t = core->pending[i].turn;
        const struct sampled *s = &core->pending[i].drawn;
        buf_reset(&core->text);
        (void)live_turn_text(t, s->id, &core->scratch, &core->text);
        emit_token(&core->emit, t, 0, s, buf_z(&core->text), core->text.len);
    }
    core->n_pending = 0;
}
