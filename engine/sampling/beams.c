// See beams.h.
#include "engine/sampling/beams.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int beam_init(struct beam *b, int32_t max_tokens) {
    b->ids = malloc((size_t)max_tokens * sizeof *b->ids);
    b->logprobs = malloc((size_t)max_tokens * sizeof *b->logprobs);
    return b->ids && b->logprobs ? 0 : E_NOMEM;
}

static void beam_release(struct beam *b) {
    free(b->ids);
    free(b->logprobs);
}

int beam_search_init(struct beam_search *s, const struct beam_options *o, struct err *err) {
    *s = (struct beam_search){.o = *o, .n_running = 1};
    s->n_keep = o->width * (o->n_eos > 1 ? 1 + o->n_eos : 2);
    s->rows = malloc((size_t)o->width * (size_t)s->n_keep * sizeof *s->rows);
    int rc = s->rows ? 0 : E_NOMEM;
    for (int32_t i = 0; rc == 0 && i < o->width; i++) {
        rc = beam_init(&s->running[i], o->max_tokens);
        if (rc == 0) rc = beam_init(&s->spare[i], o->max_tokens);
        if (rc == 0) rc = beam_init(&s->ended[i], o->max_tokens);
    }
    if (rc == 0) return 0;
    beam_search_release(s);
    return err_set(err, rc, "no memory for %d beams of %d tokens", o->width, o->max_tokens);
}

void beam_search_release(struct beam_search *s) {
    for (int32_t i = 0; i < BEAMS_MAX; i++) {
        beam_release(&s->running[i]);
        beam_release(&s->spare[i]);
        beam_release(&s->ended[i]);
    }
    free(s->rows);
    *s = (struct beam_search){0};
}

static double scored(const struct beam_search *s, double sum, int32_t n) {
    return sum / pow((double)n, (double)s->o.length_penalty);
}

// Inserts into a list in descending order of key; equals keep the order in which they came. Returns the
// list's new length.
static int32_t insert(struct beam_candidate *list, int32_t n, int32_t most,
                      const struct beam_candidate *c) {
    int32_t at = 0, end = n;
    while (at < end) {
        int32_t middle = (at + end) / 2;
        if (c->key > list[middle].key)
            end = middle;
        else
            at = middle + 1;
    }
    if (at == most) return n;
    if (n < most) n++;
    memmove(list + at + 1, list + at, (size_t)(n - 1 - at) * sizeof *list);
    list[at] = *c;
    return n;
}

struct beam_candidate *beam_search_row(struct beam_search *s, int32_t beam) {
    return s->rows + (size_t)beam * (size_t)s->n_keep;
}

void beam_search_ranked(struct beam_search *s, int32_t beam, int32_t n) {
    struct beam_candidate *row = beam_search_row(s, beam);
    const struct beam *b = &s->running[beam];
    for (int32_t r = 0; r < n; r++) {
        row[r].beam = beam;
        row[r].key = scored(s, b->sum + row[r].logprob, b->n + 1) + (double)s->o.diversity * r;
    }
    s->n_row[beam] = n;
}

double beam_search_score(const struct beam_search *s, const struct beam *b) {
    return scored(s, b->sum, b->n);
}

static bool is_eos(const struct beam_search *s, int32_t id) {
    for (int32_t i = 0; i < s->o.n_eos; i++)
        if (s->o.eos_ids[i] == id) return true;
    return false;
}

// to = the beam that c continues, with c's token.
static void extend(const struct beam_search *s, struct beam *to, const struct beam_candidate *c) {
    const struct beam *from = &s->running[c->beam];
    memcpy(to->ids, from->ids, (size_t)from->n * sizeof *to->ids);
    memcpy(to->logprobs, from->logprobs, (size_t)from->n * sizeof *to->logprobs);
    to->ids[from->n] = c->id;
    to->logprobs[from->n] = c->own;
    to->n = from->n + 1;
    to->parent = c->beam;
    to->sum = from->sum + c->logprob;
    to->end = BEAM_RUNS;
}

static enum beam_end end_of(const struct beam_search *s, const struct beam_candidate *c) {
    if (is_eos(s, c->id)) return BEAM_EOS;
    if (s->o.stops && s->o.stops(s->o.stops_ctx, c->beam, c->id)) return BEAM_STOP;
    return s->running[c->beam].n + 1 == s->o.max_tokens ? BEAM_LENGTH : BEAM_RUNS;
}

// The pool keeps its best: a full one gives up its last, or takes no more.
static void end_beam(struct beam_search *s, const struct beam_candidate *c, enum beam_end end) {
    const struct beam *from = &s->running[c->beam];
    double score = scored(s, from->sum + c->logprob, from->n + 1);
    int32_t at = s->n_ended;
    while (at > 0 && score > s->ended[at - 1].score) at--;
    if (at == s->o.width) return;
    if (s->n_ended < s->o.width) s->n_ended++;
    struct beam b = s->ended[s->n_ended - 1];
    memmove(&s->ended[at + 1], &s->ended[at], (size_t)(s->n_ended - 1 - at) * sizeof b);
    extend(s, &b, c);
    b.score = score;
    b.end = end;
    s->ended[at] = b;
}

static bool is_over(const struct beam_search *s) {
    if (s->n_running == 0) return true;
    if (s->n_ended < s->o.width) return false;
    if (s->o.early_stopping) return true;
    double best = -INFINITY;
    for (int32_t i = 0; i < s->n_running; i++) {
        double score = scored(s, s->running[i].sum, s->running[i].n);
        if (score > best) best = score;
    }
    return best <= s->ended[s->n_ended - 1].score;
}

// The best n_keep of all rows, in order: each row is put in order first, since diversity may turn it.
static int32_t merge(struct beam_search *s, struct beam_candidate *best) {
    int32_t n = 0;
    for (int32_t b = 0; b < s->n_running; b++)
        for (int32_t r = 0; r < s->n_row[b]; r++)
            n = insert(best, n, s->n_keep, &s->rows[(size_t)b * (size_t)s->n_keep + (size_t)r]);
    return n;
}

void beam_search_step(struct beam_search *s) {
    struct beam_candidate best[BEAMS_MAX * (1 + BEAMS_MAX_EOS)];
    int32_t n = merge(s, best), n_next = 0;
    for (int32_t r = 0; r < n; r++) {
        const struct beam_candidate *c = &best[r];
        enum beam_end end = end_of(s, c);
        if (end != BEAM_RUNS && r < s->o.width)
            end_beam(s, c, end);
        else if (end == BEAM_RUNS && n_next < s->o.width)
            extend(s, &s->spare[n_next++], c);
    }
    struct beam old[BEAMS_MAX];
    memcpy(old, s->running, sizeof old);
    memcpy(s->running, s->spare, sizeof old);
    memcpy(s->spare, old, sizeof old);
    s->n_running = n_next;
    memset(s->n_row, 0, sizeof s->n_row);
    s->over = is_over(s);
}
