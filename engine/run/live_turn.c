// One turn's log and text, without its schedule and its events.
#include "engine/run/live_turn.h"

#include <stdio.h>
#include <stdlib.h>

int64_t live_turn_max_log(const struct engine_turn *spec) {
    int64_t most = spec->session_len;
    if (spec->score_only) return spec->n_ids;
    if (spec->sampling.max_tokens > 0 && spec->n_ids + spec->sampling.max_tokens < most) {
        most = spec->n_ids + spec->sampling.max_tokens;
    }
    return most;
}

struct live_turn *live_turn_new(const struct engine_turn *spec, int64_t now_us) {
    struct live_turn *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->spec = *spec;
    sequence_names_init(&t->names, spec->lasting_id, spec->origin_id, spec->lasting_owner);
    t->spec.lasting_id = t->spec.origin_id = t->spec.lasting_owner = NULL;
    t->n_log = t->cap_log = spec->n_ids;
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
    free(t);
}

// The detokenizer's tokenizer is NULL if the model has none.
static bool has_text(const struct live_turn *t) {
    return t->slot && !t->spec.score_only && t->slot->detokenizer.tokenizer;
}

void live_turn_take(struct live_turn *t, int32_t id) {
    t->spec.ids[t->n_log++] = id;
    t->n_generated++;
    sampler_accept(&t->slot->sampler, id);
}

static int next_text(struct live_turn *t, int32_t id, struct buf *scratch, struct buf *out) {
    if (!has_text(t)) return 0;
    // A padded head is wider than the vocabulary: its last tokens have no bytes.
    size_t len;
    if (!tokenizer_bytes(t->slot->detokenizer.tokenizer, id, &len)) return 0;
    buf_reset(scratch);
    TRY(detokenizer_feed(&t->slot->detokenizer, id, scratch));
    return stop_matcher_feed(&t->slot->stop, buf_z(scratch), scratch->len, out);
}

static int begin_text(struct live_turn *t, struct turn_slot *slot,
                      const struct tokenizer *tokenizer, int64_t n_before, struct err *err) {
    const struct sampling_params *p = &t->spec.sampling;
    const char *stop[SAMPLING_MAX_STOP];
    for (int32_t i = 0; i < p->n_stop; i++) stop[i] = p->stop[i];
    if (stop_matcher_init(&slot->stop, stop, p->n_stop) < 0)
        return err_set(err, E_INVAL, "stop: a stop string is empty or too long");
    if (!t->spec.goes_on)
        detokenizer_start(&slot->detokenizer, tokenizer);
    else if (detokenizer_start_after(&slot->detokenizer, tokenizer, t->spec.ids, (size_t)n_before) <
             0)
        return err_set(err, E_NOMEM, "no memory for the text before the turn");
    return 0;
}

int live_turn_begin(struct live_turn *t, struct turn_slot *slot, const struct tokenizer *tokenizer,
                    const int32_t *eos_ids, int32_t n_eos, struct buf *scratch, struct buf *out,
                    struct err *err) {
    int64_t cap = live_turn_max_log(&t->spec), n_before = t->n_log - t->n_generated;
    int32_t *ids = realloc(t->spec.ids, (size_t)cap * sizeof *ids);
    if (!ids) return err_set(err, E_NOMEM, "no memory for a log of %lld tokens", (long long)cap);
    t->spec.ids = ids;
    t->cap_log = cap;
    t->slot = slot;
    if (t->spec.score_only) return 0;

    TRY(sampler_begin(&slot->sampler, &t->spec.sampling, 0, eos_ids, n_eos, ids, n_before, err));
    if (tokenizer) TRY(begin_text(t, slot, tokenizer, n_before, err));
    for (int64_t i = n_before; i < t->n_log; i++) {
        sampler_accept(&slot->sampler, ids[i]);
        buf_reset(out);
        if (t->text_rc == 0) t->text_rc = next_text(t, ids[i], scratch, out);
    }
    return 0;
}

int live_turn_text(struct live_turn *t, int32_t id, struct buf *scratch, struct buf *out) {
    if (t->text_rc < 0) return t->text_rc;
    int rc = next_text(t, id, scratch, out);
    if (rc < 0) t->text_rc = rc;
    return rc;
}

int live_turn_append(struct live_turn *t, int32_t id, struct buf *scratch, struct buf *out) {
    live_turn_take(t, id);
    return live_turn_text(t, id, scratch, out);
}

int live_turn_flush(struct live_turn *t, struct buf *scratch, struct buf *out) {
    if (!has_text(t)) return 0;
    buf_reset(scratch);
    TRY(detokenizer_flush(&t->slot->detokenizer, scratch));
    // The rest is at most an unfinished character. If it completes a stop string, no token did, so
    // the result is ignored.
    TRY(stop_matcher_feed(&t->slot->stop, buf_z(scratch), scratch->len, out));
    return stop_matcher_flush(&t->slot->stop, out);
}
