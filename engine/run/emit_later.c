// Emits the tokens that the device drew while the device computes the next step.
//
// For a few dozen turns, the host needs as much time to make text and push events as the device needs
// for a small model's step. So the host queues the next step first. A token that ends its turn, or may
// complete a stop string, is emitted at once, because the next step depends on it.
#include "engine/run/emit_later.h"
#include "engine/run/instance.h"

void instance_mark_token(struct instance *in, struct live_turn *t, int64_t time_us) {
    const struct engine_metrics *m = &in->metrics;
    if (t->first_us) {
        metric_observe(m->inter_token, (double)(time_us - t->last_us) * 1e-6);
    } else if (t->n_given == 0) {
        metric_observe(m->first_token, (double)(time_us - t->submitted_us) * 1e-6);
    }
    live_turn_drew(t, time_us);
    metric_add(m->generated_tokens, 1);
}

bool instance_ends_turn(const struct instance *in, const struct live_turn *t, int32_t id) {
    if (t->spec.sampling.ignore_eos) return false;
    if (t->spec.sampling.end_id >= 0) return id == t->spec.sampling.end_id;
    for (int32_t i = 0; i < in->n_eos; i++) {
        if (in->eos_ids[i] == id) return true;
    }
    return false;
}

bool instance_emit_later(struct instance *in, struct live_turn *t, const struct sampled *s) {
    const struct sampling_words *stop = &t->spec.sampling.stop;
    if (stop->n_texts + stop->n_lists > 0 || t->text_rc < 0 || instance_ends_turn(in, t, s->id) ||
        t->n_log + 1 >= t->cap_log)
        return false;
    instance_mark_token(in, t, clock_mono_us(in->emit.clock));
    live_turn_take(t, s->id);
    in->pending[in->n_pending++] = (struct pending_token){t, *s};
    return true;
}

// Ends no turn, since a turn may have rows in the step under way. A turn whose text has failed ends
// with its next token.
void instance_emit_pending(struct instance *in) {
    for (int32_t i = 0; i < in->n_pending; i++) {
        struct live_turn *t = in->pending[i].turn;
        const struct sampled *s = &in->pending[i].drawn;
        buf_reset(&in->text);
        (void)live_turn_text(t, s->id, &in->scratch, &in->text);
        emit_token(&in->emit, t, 0, s, buf_z(&in->text), in->text.len);
    }
    in->n_pending = 0;
}
