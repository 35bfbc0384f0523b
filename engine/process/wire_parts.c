// Options, commands and events as parts of messages. See wire.h.
#include "base/err.h"
#include "engine/cache/packed_cache.h"
#include "engine/engine_metrics.h"
#include "engine/process/wire.h"
#include "engine/run/live_turn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- options: the struct, then its strings in this order ---

static const size_t option_texts[] = {
    offsetof(struct engine_options, model_dir),     offsetof(struct engine_options, tokenizer),
    offsetof(struct engine_options, chat_template), offsetof(struct engine_options, device),
    offsetof(struct engine_options, isa),           offsetof(struct engine_options, compute_dtype),
    offsetof(struct engine_options, snapshot_dir),  offsetof(struct engine_options, prompt_tasks),
    offsetof(struct engine_options, instance),
};
enum { N_OPTION_TEXTS = sizeof option_texts / sizeof *option_texts };

static const char **text_at(struct engine_options *o, int i) {
    return (const char **)((char *)o + option_texts[i]);
}

void wire_put_options(struct buf *b, const struct engine_options *o) {
    struct engine_options copy = *o;
    wire_put(b, o, sizeof *o);
    for (int i = 0; i < N_OPTION_TEXTS; i++) wire_put_text(b, *text_at(&copy, i));
}

bool wire_take_options(struct wire_message *m, struct engine_options *o) {
    if (!wire_take(m, o, sizeof *o)) return false;
    for (int i = 0; i < N_OPTION_TEXTS; i++) *text_at(o, i) = wire_take_text(m);
    o->wake = NULL;
    o->wanted = NULL;
    o->progress = o->measuring = NULL;
    o->wake_ctx = o->wanted_ctx = o->progress_ctx = o->measuring_ctx = NULL;
    o->metrics = NULL;
    o->process = NULL;
    return !m->bad;
}

// --- a cache on its way between engines ---

static void put_cache(struct buf *b, const struct packed_cache *p) {
    wire_put(b, p, sizeof *p);
    wire_put(b, p->ids, (size_t)p->n_ids * sizeof *p->ids);
    wire_put(b, p->numbers, (size_t)p->n_blocks * sizeof *p->numbers);
    wire_put(b, p->bytes, (size_t)p->n_blocks * (size_t)p->maker.block_bytes);
}

static struct packed_cache *take_cache(struct wire_message *m) {
    struct packed_cache head, *p = malloc(sizeof *p);
    if (!p || !wire_take(m, &head, sizeof head)) {
        free(p);
        return NULL;
    }
    *p = head;
    p->ids = wire_take_copy(m, sizeof *p->ids, (size_t)head.n_ids);
    p->numbers = wire_take_copy(m, sizeof *p->numbers, (size_t)head.n_blocks);
    p->bytes = wire_take_copy(m, (size_t)head.maker.block_bytes, (size_t)head.n_blocks);
    if (p->ids && p->numbers && p->bytes) return p;
    packed_cache_free(p);
    return NULL;
}

// --- commands ---

static void put_prompt(struct buf *b, const struct prompt *p) {
    wire_put(b, p, sizeof *p);
    wire_put(b, p->data, prompt_bytes(p));
}

static int take_prompt(struct wire_message *m, const struct prompt **out) {
    struct prompt head, *p = NULL;
    struct err err;
    size_t n;
    *out = NULL;
    if (!wire_take(m, &head, sizeof head)) return E_INVAL;
    const char *bytes = wire_take_bytes(m, &n);
    float *data = n == prompt_bytes(&head) ? malloc(n) : NULL; // aligned
    if (!data) return E_NOMEM;
    memcpy(data, bytes, n);
    int rc = prompt_new(&p, head.kind, head.n_rows, head.width, data, &err);
    free(data);
    *out = p;
    return rc;
}

static void put_grammar(struct buf *b, const struct grammar_text *g) {
    const enum grammar_kind kind = grammar_text_kind(g);
    size_t len;
    const char *text = grammar_text_string(g, &len);
    wire_put(b, &kind, sizeof kind);
    wire_put(b, text, len);
}

static int take_grammar(struct wire_message *m, const struct grammar_text **out) {
    enum grammar_kind kind;
    struct err err;
    size_t len;
    *out = NULL;
    if (!wire_take(m, &kind, sizeof kind)) return E_INVAL;
    const char *text = wire_take_bytes(m, &len);
    return grammar_text_new(out, kind, text, len, &err);
}

// live_turn_new has counted the tokens drawn elsewhere out of the log: they are counted in again.
static void put_turn(struct buf *b, const struct live_turn *t) {
    struct wire_turn w = {.spec = t->spec,
                          .reserve = t->sched.reserve,
                          .places = t->sched.places,
                          .priority = t->sched.priority,
                          .submitted_us = t->submitted_us,
                          .deadline_us = t->deadline_us,
                          .names = t->names};
    w.spec.n_ids = t->n_log;
    w.spec.n_drawn = t->n_given;
    wire_put(b, &w, sizeof w);
    wire_put(b, t->spec.ids, (size_t)t->n_log * sizeof *t->spec.ids);
    wire_put(b, t->expected, (size_t)t->spec.n_expected * sizeof *t->expected);
    if (t->spec.prompt) put_prompt(b, t->spec.prompt);
    if (t->spec.sampling.grammar) put_grammar(b, t->spec.sampling.grammar);
}

static int take_turn(struct wire_message *m, struct wire_turn *out) {
    struct engine_turn *s = &out->spec;
    int rc = 0;
    if (!wire_take(m, out, sizeof *out)) return E_INVAL;
    bool has_prompt = s->prompt, has_grammar = s->sampling.grammar;
    s->lasting_id = s->origin_id = s->lasting_owner = NULL;
    s->prompt = NULL;
    s->sampling.grammar = NULL;
    s->ids = wire_take_copy(m, sizeof *s->ids, (size_t)s->n_ids);
    int32_t *expected = wire_take_copy(m, sizeof *expected, (size_t)s->n_expected);
    s->expected = expected;
    if (!s->ids || !expected) rc = m->bad ? E_INVAL : E_NOMEM;
    if (rc == 0 && has_prompt) rc = take_prompt(m, &s->prompt);
    if (rc == 0 && has_grammar) rc = take_grammar(m, &s->sampling.grammar);
    if (rc == 0) return 0;
    free(s->ids);
    free(expected);
    prompt_free((struct prompt *)(size_t)s->prompt);
    return rc;
}

void wire_put_command(struct buf *b, const struct command *c) {
    wire_put(b, c, sizeof *c);
    if (c->turn) put_turn(b, c->turn);
    if (c->cache) put_cache(b, c->cache);
}

int wire_take_command(struct wire_message *m, struct wire_command *out) {
    struct command *c = &out->command;
    int rc = 0;
    if (!wire_take(m, c, sizeof *c)) return E_INVAL;
    if (c->turn) rc = take_turn(m, &out->turn);
    if (c->cache && !(c->cache = take_cache(m))) rc = m->bad ? E_INVAL : E_NOMEM;
    if (rc < 0) c->turn = NULL;
    return rc;
}

bool wire_refusal(const struct command *c, const struct err *why, int64_t now_us,
                  struct engine_event *out) {
    *out = (struct engine_event){.kind = ENGINE_DONE,
                                 .sequence = c->sequence,
                                 .turn = c->turn_id,
                                 .time_us = now_us,
                                 .finish = FINISH_ERROR,
                                 .error_code = why ? why->code : E_NOMEM};
    int n = snprintf(out->text, sizeof out->text, "%s",
                     why ? why->text : "no memory for a command to the engine process");
    out->text_len = n < (int)sizeof out->text ? (uint32_t)n : (uint32_t)sizeof out->text - 1;
    if (c->kind == COMMAND_PREPARE) out->kind = ENGINE_RELEASED;
    if (c->kind == COMMAND_IMPORT) out->kind = ENGINE_FORKED;
    return c->kind == COMMAND_SUBMIT || out->kind != ENGINE_DONE;
}

// --- events ---

static void put_branches(struct buf *b, const struct engine_branches *r) {
    wire_put(b, &r->n, sizeof r->n);
    for (int32_t i = 0; i < r->n; i++) {
        const struct engine_branch *x = &r->of[i];
        size_t n = (size_t)x->n;
        wire_put(b, x, sizeof *x);
        wire_put(b, x->ids, n * sizeof *x->ids);
        wire_put(b, x->logprobs, n * sizeof *x->logprobs);
        wire_put(b, x->text, x->text_len);
        wire_put(b, x->text_ends, x->text_ends ? n * sizeof *x->text_ends : 0);
    }
}

// One branch: its tokens are those of a sample, its text and ends stand behind those before it.
static int take_branch(struct wire_message *m, struct branches *b, int32_t i, size_t *n_ends) {
    struct engine_branch *x = &b->result.of[i];
    struct branch_sample *s = &b->samples[i];
    size_t text_len, ends_len;
    if (!wire_take(m, x, sizeof *x)) return E_INVAL;
    s->ids = wire_take_copy(m, sizeof *s->ids, (size_t)x->n);
    s->logprobs = wire_take_copy(m, sizeof *s->logprobs, (size_t)x->n);
    const char *text = wire_take_bytes(m, &text_len);
    const char *ends = wire_take_bytes(m, &ends_len);
    if (m->bad || text_len != x->text_len || (ends_len && ends_len != (size_t)x->n * 4))
        return E_INVAL;
    uint32_t *all = realloc(b->text_ends, (*n_ends + (size_t)x->n + 1) * sizeof *all);
    if (!all || !s->ids || !s->logprobs) return E_NOMEM;
    b->text_ends = all;
    memcpy(all + *n_ends, ends, ends_len);
    *n_ends += (size_t)x->n;
    x->ids = s->ids;
    x->logprobs = s->logprobs;
    if (ends_len == 0 && x->n > 0) memset(all + *n_ends - x->n, 0, (size_t)x->n * sizeof *all);
    return buf_add(&b->texts, text, text_len);
}

static int take_branches(struct wire_message *m, const struct engine_branches **out) {
    int32_t n = 0;
    size_t n_ends = 0, at = 0;
    *out = NULL;
    if (!wire_take(m, &n, sizeof n) || n < 0 || n > BEAMS_MAX) return E_INVAL;
    struct branches *b = calloc(1, sizeof *b);
    if (!b) return E_NOMEM;
    buf_init(&b->texts, SIZE_MAX / 2);
    b->samples = calloc((size_t)n + 1, sizeof *b->samples);
    int rc = b->samples ? 0 : E_NOMEM;
    b->n = b->result.n = n;
    for (int32_t i = 0; rc == 0 && i < n; i++) rc = take_branch(m, b, i, &n_ends);
    if (rc < 0) {
        branches_free(b);
        return rc;
    }
    n_ends = 0;
    for (int32_t i = 0; i < n; i++) {
        struct engine_branch *x = &b->result.of[i];
        x->text = buf_z(&b->texts) + at;
        x->text_ends = b->text_ends + n_ends;
        at += x->text_len;
        n_ends += (size_t)x->n;
    }
    *out = &b->result;
    return 0;
}

static void put_scores(struct buf *b, const struct engine_scores *s) {
    size_t n = (size_t)s->n, n_alternatives = n * (size_t)s->n_alternatives;
    wire_put(b, s, sizeof *s);
    wire_put(b, s->ids, n * sizeof *s->ids);
    wire_put(b, s->logprobs, n * sizeof *s->logprobs);
    wire_put(b, s->alternatives, n_alternatives * sizeof *s->alternatives);
}

static struct engine_scores *take_scores(struct wire_message *m) {
    struct engine_scores head, *s = NULL;
    if (!wire_take(m, &head, sizeof head)) return NULL;
    size_t n = (size_t)head.n, n_alternatives = n * (size_t)head.n_alternatives;
    int32_t *ids = wire_take_copy(m, sizeof *ids, n);
    if (ids) s = engine_scores_new(ids, head.n, head.n_alternatives);
    free(ids);
    if (!s) return NULL;
    wire_take(m, s->logprobs, n * sizeof *s->logprobs);
    wire_take(m, s->alternatives, n_alternatives * sizeof *s->alternatives);
    return s;
}

void wire_event_release(struct engine_event *ev) {
    free(ev->context_embedding);
    free(ev->scores);
    ev->scores = NULL;
    branches_free((struct branches *)ev->branches);
    if (ev->kind == ENGINE_EXPORTED) packed_cache_free(ev->cache);
    ev->context_embedding = NULL;
    ev->branches = NULL;
    ev->cache = NULL;
}

void wire_put_events(struct buf *b, struct engine_event *events, size_t n, int32_t width) {
    wire_put(b, &n, sizeof n);
    for (size_t i = 0; i < n; i++) {
        struct engine_event *ev = &events[i];
        if (ev->kind != ENGINE_DONE) ev->refused = NULL;
        if (ev->kind != ENGINE_EXPORTED) ev->cache = NULL;
        wire_put(b, ev, sizeof *ev);
        if (ev->context_embedding)
            wire_put(b, ev->context_embedding, (size_t)width * sizeof(double));
        if (ev->scores) put_scores(b, ev->scores);
        if (ev->branches) put_branches(b, ev->branches);
        if (ev->refused) wire_put_text(b, ev->refused);
        if (ev->cache) put_cache(b, ev->cache);
        wire_event_release(ev);
    }
}

size_t wire_n_events(struct wire_message *m) {
    size_t n = 0;
    return wire_take(m, &n, sizeof n) ? n : 0;
}

// A reason as a constant of this process.
static const char *reason(const char *text) {
    static const char *const known[N_REFUSED] = REFUSED_REASONS;
    for (int i = 0; text && i < N_REFUSED; i++)
        if (strcmp(known[i], text) == 0) return known[i];
    return known[N_REFUSED - 1];
}

int wire_take_event(struct wire_message *m, int32_t width, struct engine_event *ev) {
    if (!wire_take(m, ev, sizeof *ev)) return E_INVAL;
    bool embedding = ev->context_embedding, branches = ev->branches, cache = ev->cache,
         scores = ev->scores;
    int rc = 0;
    ev->context_embedding = NULL;
    ev->scores = NULL;
    ev->branches = NULL;
    ev->cache = NULL;
    if (embedding) {
        ev->context_embedding = wire_take_copy(m, sizeof(double), (size_t)width);
        if (!ev->context_embedding) rc = E_NOMEM;
    }
    if (rc == 0 && scores && !(ev->scores = take_scores(m))) rc = E_NOMEM;
    if (rc == 0 && branches) rc = take_branches(m, &ev->branches);
    if (rc == 0 && ev->refused) ev->refused = reason(wire_take_text(m));
    if (rc == 0 && cache && !(ev->cache = take_cache(m))) rc = E_NOMEM;
    if (rc == 0 && m->bad) rc = E_INVAL;
    if (rc < 0) wire_event_release(ev);
    return rc;
}
