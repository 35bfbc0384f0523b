// Drafts in a step. A turn's drafts have rows after the row of its last token:
//
//   log  ... a b     rows     b   d1  d2  d3     drafts d1, d2, d3; in the array behind the log
//                    drawn    t1  t2  -   -      t1 = d1, and t2 is not d2: d2 and d3 are rejected
//   log  ... a b t1 t2
//
// Each token is drawn from its row's logits as in a step of its own. A draw depends on the logits, the log and
// the position alone, so two separate steps would draw the same t1 and t2, at every temperature.
//
// A draw that needs a new mask of a grammar is left to the next step, before which the mask is made (masks.c): the
// drafts from there on count as rejected.
//
// The step writes keys and values of all rows. A draft's row is committed when the next token is drawn from it
// (kv_ring_commit), because only then may the ring free blocks that the window has passed. At the end of the
// step, the blocks of the rejected drafts are given back (kv_ring_unextend).
#include "engine/run/draft_step.h"
#include "engine/run/engine_core.h"

void core_find_drafts(struct engine_core *core) {
    for (int32_t i = 0; i < core->sched.n_running; i++) {
        struct live_turn *t = (struct live_turn *)core->sched.running[i];
        t->sched.n_drafts = 0;
        if (!t->drafts || t->sched.state != SCHED_DECODE) continue;
        // The step draws one token more than it has drafts.
        int64_t room = t->cap_log - t->n_log - 1;
        if (room > core->opt.prefill_tokens - 1) room = core->opt.prefill_tokens - 1;
        if (room > 0) t->sched.n_drafts = drafts_find(t->drafts, t->spec.ids, t->n_log, room);
    }
}

bool core_is_next(const struct engine_core *core, const struct live_turn *t, int32_t row) {
    const struct batch *b = &core->step->batch.batch;
    int64_t position = b->positions[row];
    if (position != t->n_log - 1 || b->ids[row] != t->spec.ids[position]) return false;
    int64_t none = 0;
    return t->sequence->ring.n_tokens > position || sampler_prepare(&t->slot->sampler, &none);
}

void core_keep_draft(struct live_turn *t, int64_t position) {
    struct kv_ring *r = &t->sequence->ring;
    if (r->n_tokens > position) return; // the row of the log's last token
    kv_ring_commit(r, 1);
    t->n_unchecked--;
    sequence_name(t->sequence, t->spec.ids);
}

void core_compare_draft(struct live_turn *t, int32_t id) {
    if (t->n_accepted < t->n_drafted && t->spec.ids[t->n_log] == id) t->n_accepted++;
}

void core_settle_drafts(struct engine_core *core, struct live_turn *t) {
    if (t->n_drafted == 0) return;
    if (t->n_unchecked > 0) kv_ring_unextend(&t->sequence->ring, t->n_unchecked);
    drafts_checked(t->drafts, t->n_drafted, t->n_accepted);
    metric_add(core->metrics.drafted, t->n_drafted);
    metric_add(core->metrics.accepted, t->n_accepted);
    t->n_drafted = t->n_accepted = t->n_unchecked = 0;
}
