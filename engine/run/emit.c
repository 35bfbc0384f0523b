// See emit.h.
#include "engine/run/emit.h"

#include "base/utf8.h"
#include <string.h>

// Puts as many whole characters of the text as fit into the event. Returns their bytes.
static size_t event_text(struct engine_event *ev, const char *text, size_t len) {
    if (len > ENGINE_EVENT_TEXT) len = utf8_complete_len(text, ENGINE_EVENT_TEXT);
    memcpy(ev->text, text, len);
    ev->text_len = (uint32_t)len;
    return len;
}

// Emits a long text as continuations (id -1) until the rest fits into one event. Returns the offset
// of the rest.
static size_t emit_pieces(struct emitter *e, const struct live_turn *t, int32_t branch,
                          const char *text, size_t len) {
    size_t at = 0;
    while (len - at > ENGINE_EVENT_TEXT) {
        struct engine_event *ev = event_begin(e, ENGINE_TOKEN, t->spec.sequence, t->spec.turn);
        ev->branch = branch;
        at += event_text(ev, text + at, len - at);
        event_push(e);
    }
    return at;
}

void emit_started(struct emitter *e, const struct live_turn *t, enum engine_cache_source source,
                  int64_t n_total, int32_t blocks) {
    struct engine_event *ev = event_begin(e, ENGINE_STARTED, t->spec.sequence, t->spec.turn);
    ev->n_cached = t->n_cached;
    ev->n_shared = t->n_shared;
    ev->n_total = n_total;
    ev->source = source;
    ev->blocks = blocks;
    event_push(e);
}

void emit_progress(struct emitter *e, const struct live_turn *t, int64_t n_done, int64_t n_total) {
    struct engine_event *ev = event_begin(e, ENGINE_PROGRESS, t->spec.sequence, t->spec.turn);
    ev->n_cached = t->n_cached;
    ev->n_shared = t->n_shared;
    ev->n_done = n_done;
    ev->n_total = n_total;
    event_push(e);
}

void emit_text(struct emitter *e, const struct live_turn *t, int32_t branch, const char *text,
               size_t len) {
    size_t at = emit_pieces(e, t, branch, text, len);
    if (at == len) return;
    struct engine_event *ev = event_begin(e, ENGINE_TOKEN, t->spec.sequence, t->spec.turn);
    ev->branch = branch;
    event_text(ev, text + at, len - at);
    event_push(e);
}

void emit_token(struct emitter *e, const struct live_turn *t, int32_t branch,
                const struct sampled *s, const char *text, size_t len) {
    struct engine_event *ev = event_begin(e, ENGINE_TOKEN, t->spec.sequence, t->spec.turn);
    if (t->last_us) ev->time_us = t->last_us; // the time of the draw, which may be a step ago
    ev->id = s->id;
    ev->branch = branch;
    ev->logprob = s->logprob;
    ev->n_alternatives = s->n_alternatives;
    memcpy(ev->alternatives, s->alternatives, (size_t)s->n_alternatives * sizeof *s->alternatives);
    size_t at = event_text(ev, text, len);
    event_push(e);
    emit_text(e, t, branch, text + at, len - at);
}

// The cost of resuming: the wait for copies, and the share of the computing time that went to tokens
// that an earlier turn had computed. (The last drawn token does not count: it was never cached.)
static int64_t resume_time(const struct live_turn *t, int64_t prefill_us) {
    int64_t old = t->spec.n_ids - t->spec.n_input - 1 - t->n_cached;
    if (old > t->n_prefilled) old = t->n_prefilled;
    if (old <= 0) return t->restore_us;
    double computing = (double)(prefill_us - t->restore_us);
    return t->restore_us + (int64_t)(computing * (double)old / (double)t->n_prefilled);
}

void emit_done(struct emitter *e, struct live_turn *t, enum engine_finish finish,
               const struct err *why, const char *text, size_t len, int32_t blocks, bool parked) {
    if (finish == FINISH_ERROR) {
        // DONE carries the error sentence, so the rest of the answer is emitted before it.
        emit_text(e, t, 0, text, len);
        text = why->text;
        len = utf8_complete_len(why->text, strnlen(why->text, ENGINE_EVENT_TEXT));
    }
    size_t at = emit_pieces(e, t, 0, text, len);
    struct engine_event *ev = event_begin(e, ENGINE_DONE, t->spec.sequence, t->spec.turn);
    event_text(ev, text + at, len - at);
    ev->finish = finish;
    ev->error_code = finish == FINISH_ERROR ? why->code : 0;
    ev->n_cached = t->n_cached;
    ev->n_shared = t->n_shared;
    ev->n_prefilled = t->n_prefilled;
    ev->n_generated = t->n_generated;
    ev->n_drafted = t->drafts ? t->drafts->n_drafted : 0;
    ev->n_accepted = t->drafts ? t->drafts->n_accepted : 0;
    ev->blocks = blocks;
    ev->parked = parked;
    struct turn_times times = live_turn_times(t, ev->time_us);
    ev->queue_us = times.queue_us;
    ev->prefill_us = times.prefill_us;
    ev->decode_us = times.decode_us;
    ev->paused_us = times.paused_us;
    ev->resume_us = resume_time(t, ev->prefill_us);
    ev->refused = t->sequence ? t->sequence->refused : NULL;
    ev->has_context_logprob = context_has_logprob(&t->context, t->spec.n_ids);
    ev->context_logprob = ev->has_context_logprob ? t->context.logprob : 0;
    ev->context_embedding = context_take_embedding(&t->context, t->spec.n_ids);
    ev->scores = context_take_scores(&t->context, t->spec.n_ids);
    if (t->branches && t->branches->result.n > 0) {
        ev->branches = &t->branches->result; // passes to the owner
        t->branches = NULL;
    }
    event_push(e);
}
