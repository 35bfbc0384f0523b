// See turn_slot.h.
#include "engine/run/turn_slot.h"
#include "engine/run/thinking.h"

bool turn_stop_is_early(const struct engine_turn *spec, int64_t n) {
    const struct sampling_params *p = &spec->sampling;
    return p->stop_in != STOP_IN_OLD_RECORD && n <= p->min_tokens;
}

int turn_stop_begin(struct stop_filter *f, const struct engine_turn *spec,
                    const struct answer_form *form, int64_t n_before, struct err *err) {
    const struct sampling_words *w = &spec->sampling.stop;
    const char *stop[SAMPLING_MAX_WORDS];
    struct thinking now = {0};
    struct stop_place place = {.in = (enum stop_in)spec->sampling.stop_in,
                               .syntax = form->syntax,
                               .goes_on = spec->goes_on};
    for (int32_t i = 0; i < w->n_texts; i++) stop[i] = sampling_word_text(w, i);
    if (w->n_texts > 0 && place.in >= STOP_IN_ANSWER && form->thinking)
        thinking_begin(&now, form->thinking, spec->ids, n_before, spec->goes_on);
    place.thinks = now.state == THINKING_OPEN;
    if (stop_filter_begin(f, stop, w->n_texts, &place) < 0)
        return err_set(err, E_INVAL, "stop: a stop string is empty or too long");
    return 0;
}

int turn_slot_begin_text(struct turn_slot *slot, const struct engine_turn *spec,
                         const struct answer_form *form, const struct tokenizer *tokenizer,
                         int64_t n_before, struct err *err) {
    if (!tokenizer) return 0;
    slot->spec = spec;
    slot->n_tokens = 0;
    TRY(turn_stop_begin(&slot->stop, spec, form, n_before, err));
    if (!spec->goes_on)
        detokenizer_start(&slot->detokenizer, tokenizer);
    else if (detokenizer_start_after(&slot->detokenizer, tokenizer, spec->ids, (size_t)n_before) <
             0)
        return err_set(err, E_NOMEM, "no memory for the text before the turn");
    return 0;
}

int turn_slot_text(struct turn_slot *slot, int32_t id, struct buf *scratch, struct buf *out) {
    if (!slot->detokenizer.tokenizer) return 0;
    bool early = turn_stop_is_early(slot->spec, ++slot->n_tokens);
    // A padded head is wider than the vocabulary: its last tokens have no bytes.
    size_t len;
    if (!tokenizer_bytes(slot->detokenizer.tokenizer, id, &len)) return 0;
    buf_reset(scratch);
    TRY(detokenizer_feed(&slot->detokenizer, id, scratch));
    return stop_filter_feed(&slot->stop, buf_z(scratch), scratch->len, early, out);
}

int turn_slot_flush(struct turn_slot *slot, struct buf *scratch, struct buf *out) {
    if (!slot->detokenizer.tokenizer) return 0;
    buf_reset(scratch);
    TRY(detokenizer_flush(&slot->detokenizer, scratch));
    // The rest is at most an unfinished character. If it completes a stop string, no token did, so
    // the result is ignored.
    TRY(stop_filter_feed(&slot->stop, buf_z(scratch), scratch->len, false, out));
    return stop_filter_flush(&slot->stop, out);
}

void turn_slot_release_text(struct turn_slot *slot) {
    detokenizer_release(&slot->detokenizer);
    stop_filter_release(&slot->stop);
}
