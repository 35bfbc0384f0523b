// One turn. See turn.h.
#include "sessions/state/turn.h"
#include "base/array.h"
#include "base/err.h"
#include "base/siphash.h"
#include "sessions/matching/told.h"
#include "sessions/state/record_view.h"
#include <stdlib.h>

#define TURN_TEXT_MAX ((size_t)1 << 30) // offsets are 32 bits

void turn_stop(struct turn *t, enum turn_stop why) {
    if (t->stop < why) t->stop = why;
}

bool turn_waits(const struct turn *t) {
    return t->state == TURN_QUEUED || t->state == TURN_PREPARING;
}

struct turn *turn_new(void) {
    struct turn *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    buf_init(&t->text, TURN_TEXT_MAX);
    t->rec.log_first = -1;
    t->rec.parent = t->older = t->newer = t->children.first = t->children.last = TURN_NONE;
    return t;
}

void turn_free_samples(struct turn *t) {
    for (int32_t i = 0; i < t->n_samples; i++) {
        struct sample *x = &t->samples[i];
        free(x->ids);
        free(x->logprobs);
        free(x->text_ends);
        free(x->alternatives);
        buf_release(&x->text);
    }
    free(t->samples);
    t->samples = NULL;
    t->n_samples = 0;
}

void turn_drop_grammar(struct turn *t) {
    engine_grammar_release(t->compiled);
    t->compiled = NULL;
}

void turn_free(struct turn *t) {
    if (!t) return;
    turn_free_samples(t);
    turn_record_release(&t->rec);
    turn_sampling_free(t->sampling);
    turn_drop_grammar(t);
    told_free(t->told);
    free(t->input.ids);
    free(t->expected);
    free(t->scores);
    free(t->ids);
    free(t->logprobs);
    free(t->text_ends);
    free(t->alternatives);
    buf_release(&t->text);
    free(t);
}

static bool ends_fit(const struct token_run *r) {
    uint32_t last = 0;
    for (size_t i = 0; i < r->n; i++) {
        if (r->text_ends[i] < last || r->text_ends[i] > r->text_len) return false;
        last = r->text_ends[i];
    }
    return true;
}

int turn_restore(struct turn *t, struct stored_turn *stored) {
    struct token_run *r = &stored->tokens;
    if ((int64_t)r->n != stored->rec.n_output || !ends_fit(r)) return E_CORRUPT;
    if (r->n && stored->rec.n_alternatives > 0 && !r->alternatives) return E_CORRUPT;
    TRY(buf_add(&t->text, r->text ? r->text : "", r->text_len));
    t->rec = stored->rec;
    stored->rec = (struct turn_record){0};
    t->state = TURN_DONE;
    t->ids = r->ids;
    t->logprobs = r->logprobs;
    t->text_ends = r->text_ends;
    t->alternatives = r->alternatives;
    r->ids = NULL, r->logprobs = NULL, r->text_ends = NULL, r->alternatives = NULL;
    t->n_out = t->cap = t->n_saved = r->n;
    t->storage = TURN_STORED;
    turn_note_input(t);
    return 0;
}

// Equal if and only if kind and words (of raw ids, the ids) are equal. It is only shown: 64 bits suffice.
void turn_note_input(struct turn *t) {
    const struct turn_record *r = &t->rec;
    const uint64_t key[2] = {0x73616964, (uint64_t)r->kind};
    if (turn_input_has_text(r->kind))
        t->said = siphash128(key, r->input_text, r->input_text_len).lo;
    else if (r->kind == INPUT_IDS)
        t->said = siphash128(key, r->input_ids, r->n_input_ids * sizeof *r->input_ids).lo;
}

void turn_slim(struct turn *t) {
    struct turn_record kept = t->rec;
    turn_forget_words(&kept);
    turn_record_release(&t->rec);
    t->rec = kept;
    free(t->expected);
    t->expected = NULL;
    t->n_expected = 0;
    free(t->scores);
    t->scores = NULL;
    free(t->ids);
    free(t->logprobs);
    free(t->text_ends);
    free(t->alternatives);
    t->ids = NULL, t->logprobs = NULL, t->text_ends = NULL, t->alternatives = NULL;
    buf_release(&t->text);
    turn_free_samples(t);
    t->storage = TURN_SLIM;
}

static int grow(struct turn *t) {
    if (t->n_out < t->cap) return 0;
    size_t cap = t->cap ? t->cap * 2 : 32;
    size_t n_alt = (size_t)t->rec.n_alternatives;
    TRY(ARRAY_RESIZE(t->ids, cap));
    TRY(ARRAY_RESIZE(t->logprobs, cap));
    TRY(ARRAY_RESIZE(t->text_ends, cap));
    if (n_alt) TRY(ARRAY_RESIZE(t->alternatives, cap * n_alt));
    t->cap = cap;
    return 0;
}

int turn_add_token(struct turn *t, const struct engine_event *e) {
    size_t n_alt = (size_t)t->rec.n_alternatives;
    TRY(grow(t));
    TRY(turn_add_text(t, e->text, e->text_len));
    t->ids[t->n_out] = e->id;
    t->logprobs[t->n_out] = e->logprob;
    t->text_ends[t->n_out] = (uint32_t)t->text.len;
    for (size_t i = 0; i < n_alt; i++) {
        bool there = (int32_t)i < e->n_alternatives;
        t->alternatives[t->n_out * n_alt + i] =
            there ? e->alternatives[i] : (struct engine_alternative){.id = -1};
    }
    t->n_out++;
    return 0;
}

int turn_add_text(struct turn *t, const char *text, size_t len) {
    return buf_add(&t->text, text, len);
}

size_t turn_text_end(const struct turn *t, int64_t n_tokens) {
    return n_tokens > 0 ? t->text_ends[n_tokens - 1] : 0;
}

void turn_borrow_run(const struct turn *t, size_t from, bool to_end, struct token_run *out) {
    size_t start = turn_text_end(t, (int64_t)from);
    size_t end = to_end ? t->text.len : turn_text_end(t, (int64_t)t->n_out);
    *out =
        (struct token_run){.first = (int64_t)from, .n = t->n_out - from, .text_len = end - start};
    out->text = (char *)buf_z(&t->text) + start; // borrowed: its reader does not write
    if (out->n == 0) return;
    out->ids = t->ids + from;
    out->logprobs = t->logprobs + from;
    out->text_ends = t->text_ends + from;
    if (t->rec.n_alternatives)
        out->alternatives = t->alternatives + from * (size_t)t->rec.n_alternatives;
}

int turn_copy_run(const struct turn *t, size_t from, bool to_end, struct token_run *out) {
    struct token_run run;
    turn_borrow_run(t, from, to_end, &run);
    return token_run_copy(out, &run, (size_t)t->rec.n_alternatives);
}

void turn_view_fill(const struct turn *t, int64_t n_tokens, bool done, struct turn_view *out) {
    record_turn_view(&t->rec, done, out);
    out->state = done ? TURN_DONE : turn_waits(t) ? TURN_QUEUED : TURN_RUNNING;
    out->text = buf_z(&t->text);
    out->text_len = done ? t->text.len : turn_text_end(t, n_tokens);
    out->numbers.output_tokens = n_tokens;
}
