// See turn_slot.h.
#include "engine/run/turn_slot.h"

int turn_slot_begin_text(struct turn_slot *slot, const struct engine_turn *spec,
                         const struct tokenizer *tokenizer, int64_t n_before, struct err *err) {
    const struct sampling_words *w = &spec->sampling.stop;
    const char *stop[SAMPLING_MAX_WORDS];
    if (!tokenizer) return 0;
    for (int32_t i = 0; i < w->n_texts; i++) stop[i] = sampling_word_text(w, i);
    if (stop_matcher_init(&slot->stop, stop, w->n_texts) < 0)
        return err_set(err, E_INVAL, "stop: a stop string is empty or too long");
    if (!spec->goes_on)
        detokenizer_start(&slot->detokenizer, tokenizer);
    else if (detokenizer_start_after(&slot->detokenizer, tokenizer, spec->ids, (size_t)n_before) <
             0)
        return err_set(err, E_NOMEM, "no memory for the text before the turn");
    return 0;
}

int turn_slot_text(struct turn_slot *slot, int32_t id, struct buf *scratch, struct buf *out) {
    if (!slot->detokenizer.tokenizer) return 0;
    // A padded head is wider than the vocabulary: its last tokens have no bytes.
    size_t len;
    if (!tokenizer_bytes(slot->detokenizer.tokenizer, id, &len)) return 0;
    buf_reset(scratch);
    TRY(detokenizer_feed(&slot->detokenizer, id, scratch));
    return stop_matcher_feed(&slot->stop, buf_z(scratch), scratch->len, out);
}

int turn_slot_flush(struct turn_slot *slot, struct buf *scratch, struct buf *out) {
    if (!slot->detokenizer.tokenizer) return 0;
    buf_reset(scratch);
    TRY(detokenizer_flush(&slot->detokenizer, scratch));
    // The rest is at most an unfinished character. If it completes a stop string, no token did, so
    // the result is ignored.
    TRY(stop_matcher_feed(&slot->stop, buf_z(scratch), scratch->len, out));
    return stop_matcher_flush(&slot->stop, out);
}
