// One turn's log and text, without its schedule and its events.
#include "engine/run/live_turn.h"
#include "base/array.h"

#include <stdlib.h>
#include <string.h>

static int64_t longest_log(const struct engine_turn *spec, int32_t max_tokens) {
    int64_t most = spec->session_len, n_before = spec->n_ids - spec->n_drawn;
    if (spec->score_only) return spec->n_ids;
    if (max_tokens > 0 && n_before + max_tokens < most) most = n_before + max_tokens;
    return most;
}

int64_t live_turn_max_log(const struct engine_turn *spec) {
    return longest_log(spec, spec->sampling.max_tokens);
}

int64_t live_turn_planned(const struct engine_turn *spec) {
    int32_t most = spec->planned_tokens > 0 ? spec->planned_tokens : spec->sampling.max_tokens;
    return longest_log(spec, most) - (spec->n_ids - spec->n_drawn);
}

struct live_turn *live_turn_new(const struct engine_turn *spec, int64_t now_us) {
    struct live_turn *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->spec = *spec;
    sequence_names_init(&t->names, spec->lasting_id, spec->origin_id, spec->lasting_owner);
    t->spec.lasting_id = t->spec.origin_id = t->spec.lasting_owner = NULL;
    t->n_log = t->cap_log = spec->n_ids;
    if (spec->n_expected > 0) {
        size_t bytes = (size_t)spec->n_expected * sizeof *t->expected;
        t->expected = malloc(bytes);
        if (!t->expected) {
            free(t);
            return NULL;
        }
        memcpy(t->expected, spec->expected, bytes);
    }
    t->spec.expected = t->expected;
    t->n_generated = t->n_given = spec->n_drawn; // as if it had been paused
    t->spec.n_ids -= spec->n_drawn;
    t->spec.n_drawn = 0;
    t->spec.prompt = t->prompt = prompt_hold(spec->prompt);
    grammar_text_hold(spec->sampling.grammar);
    context_init(&t->context, &t->spec);
    t->submitted_us = now_us;
    t->deadline_us =
        spec->sampling.deadline_us > 0 && spec->sampling.deadline_us < INT64_MAX - now_us
            ? now_us + spec->sampling.deadline_us
            : INT64_MAX;
    return t;
}

void live_turn_free(struct live_turn *t) {
    if (!t) return;
    free(t->spec.ids);
    prompt_free(t->prompt);
    grammar_free(t->grammar);
    grammar_text_free(t->spec.sampling.grammar);
    free(t->context.embedding);
    free(t->context.scores);
    branches_free(t->branches);
    drafts_free(t->drafts);
    free(t->expected);
    free(t);
}

bool live_turn_has_drawn(const struct live_turn *t) {
    return t->branches ? branches_have_drawn(t->branches) : t->n_generated > 0;
}

// --- times ---------------------------------------------------------------------------------------

void live_turn_drew(struct live_turn *t, int64_t time_us) {
    if (!t->first_us) {
        t->first_us = time_us;
        t->first_paused_us = t->paused_us;
    }
    t->last_us = time_us;
    t->last_paused_us = t->paused_us;
}

void live_turn_paused(struct live_turn *t, int64_t now_us) {
    if (!t->paused_since_us) t->paused_since_us = now_us;
}

void live_turn_goes_on(struct live_turn *t, int64_t now_us) {
    if (t->paused_since_us) t->paused_us += now_us - t->paused_since_us;
    t->paused_since_us = 0;
}

struct turn_times live_turn_times(const struct live_turn *t, int64_t now_us) {
    int64_t paused_us = t->paused_us + (t->paused_since_us ? now_us - t->paused_since_us : 0);
    struct turn_times times = {.paused_us = paused_us};
    if (!t->started_us) {
        times.queue_us = now_us - t->submitted_us;
        return times;
    }
    times.queue_us = t->started_us - t->submitted_us;
    times.prefill_us = t->first_us ? t->first_us - t->started_us - t->first_paused_us
                                   : now_us - t->started_us - paused_us;
    if (t->first_us)
        times.decode_us = t->last_us - t->first_us - (t->last_paused_us - t->first_paused_us);
    return times;
}

// --- text ----------------------------------------------------------------------------------------

static bool has_text(const struct live_turn *t) {
    return t->slot && !t->spec.score_only;
}

void live_turn_take(struct live_turn *t, int32_t id) {
    t->spec.ids[t->n_log++] = id;
    t->n_generated++;
    sampler_accept(&t->slot->sampler, id);
}

// How many tokens a step may draft. Each of a turn's branches would need rows and a ring of its own for
// them, and logits are reported in ascending order once.
static int32_t drafts_tokens(const struct live_turn *t) {
    int32_t most = t->spec.sampling.draft_tokens;
    if (t->branches || t->spec.on_logits) return 0;
    return most == 0 && t->expected ? DRAFTS_OF_EXPECTED : most;
}

int live_turn_begin(struct live_turn *t, struct turn_slot *slot, const struct tokenizer *tokenizer,
                    const int32_t *eos_ids, int32_t n_eos, struct buf *scratch, struct buf *out,
                    struct err *err) {
    int64_t cap = live_turn_max_log(&t->spec), n_before = t->n_log - t->n_generated;
    if (ARRAY_RESIZE(t->spec.ids, (size_t)cap) < 0)
        return err_set(err, E_NOMEM, "no memory for a log of %lld tokens", (long long)cap);
    int32_t *ids = t->spec.ids;
    t->cap_log = cap;
    t->slot = slot;
    if (t->spec.score_only) return 0;

    TRY(sampler_begin(&slot->sampler, &t->spec.sampling, 0, eos_ids, n_eos, ids, n_before, err));
    if (t->grammar) TRY(sampler_constrain(&slot->sampler, t->grammar, t->grammar_room, err));
    if (t->thinking)
        sampler_watch_thinking(&slot->sampler, t->thinking, ids, n_before, t->spec.goes_on);
    TRY(turn_slot_begin_text(slot, &t->spec, &t->form, tokenizer, n_before, err));
    if (drafts_tokens(t) > 0 && !t->drafts)
        TRY(drafts_new(&t->drafts, drafts_tokens(t), cap, ids, n_before, t->expected,
                       t->spec.n_expected, err));
    for (int64_t i = n_before; i < t->n_log; i++) {
        sampler_accept(&slot->sampler, ids[i]);
        buf_reset(out);
        if (t->text_rc == 0) t->text_rc = turn_slot_text(slot, ids[i], scratch, out);
    }
    return 0;
}

int live_turn_text(struct live_turn *t, int32_t id, struct buf *scratch, struct buf *out) {
    if (t->text_rc < 0) return t->text_rc;
    int rc = has_text(t) ? turn_slot_text(t->slot, id, scratch, out) : 0;
    if (rc < 0) t->text_rc = rc;
    return rc;
}

int live_turn_append(struct live_turn *t, int32_t id, struct buf *scratch, struct buf *out) {
    live_turn_take(t, id);
    return live_turn_text(t, id, scratch, out);
}

int live_turn_flush(struct live_turn *t, struct buf *scratch, struct buf *out) {
    if (!has_text(t)) return 0;
    return turn_slot_flush(t->slot, scratch, out);
}
