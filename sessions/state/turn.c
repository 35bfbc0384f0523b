// One turn. See turn.h.
#include "sessions/state/turn.h"
#include "base/array.h"
#include "base/err.h"
#include "base/siphash.h"
#include "sessions/matching/told.h"
#include "sessions/state/record_view.h"
#include <assert.h>
#include <stdlib.h>

#define TURN_TEXT_MAX ((size_t)1 << 30) // offsets are 32 bits

void drawn_tokens_init(struct drawn_tokens *d) {
    *d = (struct drawn_tokens){0};
    buf_init(&d->text, TURN_TEXT_MAX);
}

void drawn_tokens_release(struct drawn_tokens *d) {
    free(d->ids);
    free(d->logprobs);
    free(d->text_ends);
    free(d->alternatives);
    buf_release(&d->text);
    d->ids = NULL, d->logprobs = NULL, d->text_ends = NULL, d->alternatives = NULL;
}

static int grow(struct drawn_tokens *d, size_t n_alt) {
    if (d->n < d->cap) return 0;
    size_t cap = d->cap ? d->cap * 2 : 32;
    TRY(ARRAY_RESIZE(d->ids, cap));
    TRY(ARRAY_RESIZE(d->logprobs, cap));
    TRY(ARRAY_RESIZE(d->text_ends, cap));
    if (n_alt) TRY(ARRAY_RESIZE(d->alternatives, cap * n_alt));
    d->cap = cap;
    return 0;
}

int drawn_tokens_add(struct drawn_tokens *d, const struct engine_event *e, const char *text,
                     size_t len, int32_t n_alternatives) {
    size_t n_alt = (size_t)n_alternatives;
    TRY(grow(d, n_alt));
    TRY(buf_add(&d->text, text, len));
    d->ids[d->n] = e->id;
    d->logprobs[d->n] = e->logprob;
    d->text_ends[d->n] = (uint32_t)d->text.len;
    for (size_t i = 0; i < n_alt; i++)
        d->alternatives[d->n * n_alt + i] = (int32_t)i < e->n_alternatives
                                                ? e->alternatives[i]
                                                : (struct engine_alternative){.id = -1};
    d->n++;
    return 0;
}

#define TO(state) (1u << TURN_##state)

static const unsigned next_states[N_TURN_STATES] = {
    [TURN_QUEUED] = TO(PREPARING) | TO(SUBMITTED) | TO(DONE),
    [TURN_PREPARING] = TO(QUEUED) | TO(DONE),
    [TURN_SUBMITTED] = TO(RUNNING) | TO(DONE),
    [TURN_RUNNING] = TO(SUBMITTED) | TO(DONE),
};

bool turn_leads_to(enum turn_state from, enum turn_state to) {
    return next_states[from] >> to & 1;
}

void turn_set(struct turn *t, enum turn_state to) {
    if (t->state == to) return;
    assert(turn_leads_to(t->state, to));
    t->state = to;
}

void turn_stop(struct turn *t, enum turn_stop why) {
    if (t->stop < why) t->stop = why;
}

bool turn_waits(const struct turn *t) {
    return t->state == TURN_QUEUED || t->state == TURN_PREPARING;
}

bool turn_runs(const struct turn *t) {
    return t->state == TURN_SUBMITTED || t->state == TURN_RUNNING;
}

struct turn *turn_new(void) {
    struct turn *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    drawn_tokens_init(&t->out);
    t->rec.log_first = -1;
    t->rec.parent = t->older = t->newer = t->children.first = t->children.last = TURN_NONE;
    return t;
}

void turn_free_samples(struct turn *t) {
    for (int32_t i = 0; i < t->n_samples; i++) drawn_tokens_release(&t->samples[i].out);
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
    drawn_tokens_release(&t->out);
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
    TRY(buf_add(&t->out.text, r->text ? r->text : "", r->text_len));
    t->rec = stored->rec;
    stored->rec = (struct turn_record){0};
    turn_set(t, TURN_DONE);
    t->out.ids = r->ids;
    t->out.logprobs = r->logprobs;
    t->out.text_ends = r->text_ends;
    t->out.alternatives = r->alternatives;
    r->ids = NULL, r->logprobs = NULL, r->text_ends = NULL, r->alternatives = NULL;
    t->out.n = t->out.cap = t->n_saved = r->n;
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
    drawn_tokens_release(&t->out);
    turn_free_samples(t);
    t->storage = TURN_SLIM;
}

int turn_add_token(struct turn *t, const struct engine_event *e) {
    return drawn_tokens_add(&t->out, e, e->text, e->text_len, t->rec.n_alternatives);
}

int turn_add_text(struct turn *t, const char *text, size_t len) {
    return buf_add(&t->out.text, text, len);
}

size_t turn_text_end(const struct turn *t, int64_t n_tokens) {
    return n_tokens > 0 ? t->out.text_ends[n_tokens - 1] : 0;
}

void turn_borrow_run(const struct turn *t, size_t from, bool to_end, struct token_run *out) {
    size_t start = turn_text_end(t, (int64_t)from);
    size_t end = to_end ? t->out.text.len : turn_text_end(t, (int64_t)t->out.n);
    *out =
        (struct token_run){.first = (int64_t)from, .n = t->out.n - from, .text_len = end - start};
    out->text = (char *)buf_z(&t->out.text) + start; // borrowed: its reader does not write
    if (out->n == 0) return;
    out->ids = t->out.ids + from;
    out->logprobs = t->out.logprobs + from;
    out->text_ends = t->out.text_ends + from;
    if (t->rec.n_alternatives)
        out->alternatives = t->out.alternatives + from * (size_t)t->rec.n_alternatives;
}

int turn_copy_run(const struct turn *t, size_t from, bool to_end, struct token_run *out) {
    struct token_run run;
    turn_borrow_run(t, from, to_end, &run);
    return token_run_copy(out, &run, (size_t)t->rec.n_alternatives);
}

void turn_view_fill(const struct turn *t, int64_t n_tokens, bool done, struct turn_view *out) {
    record_turn_view(&t->rec, done, out);
    out->state = done ? TURN_DONE : turn_waits(t) ? TURN_QUEUED : TURN_RUNNING;
    out->text = buf_z(&t->out.text);
    out->text_len = done ? t->out.text.len : turn_text_end(t, n_tokens);
    out->numbers.output_tokens = n_tokens;
}
