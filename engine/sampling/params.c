// Defaults, ranges and layers of sampling parameters. A turn is checked once, before it is queued,
// so that the sampler takes every value as it is.
#include "engine/sampling/params.h"
#include "engine/sampling/rows.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *field(struct sampling_params *p, const struct sampling_row *r) {
    return (char *)p + r->offset;
}

// --- defaults ---

static void set_default(struct sampling_params *p, const struct sampling_row *r) {
    void *at = field(p, r);
    switch (r->type) {
    case SAMPLING_FLOAT:
        *(float *)at = (float)r->fallback;
        break;
    case SAMPLING_INT:
        *(int32_t *)at = (int32_t)r->fallback;
        break;
    case SAMPLING_BOOL:
        *(bool *)at = r->fallback != 0;
        break;
    case SAMPLING_MS:
        *(int64_t *)at = (int64_t)(r->fallback * 1000);
        break;
    case SAMPLING_SEED:
    case SAMPLING_BIASES:
    case SAMPLING_WORDS:
    case SAMPLING_GRAMMAR:
        break;
    }
}

void sampling_params_init(struct sampling_params *p) {
    memset(p, 0, sizeof *p);
    for (int i = 0; i < n_sampling_rows; i++) set_default(p, &sampling_rows[i]);
}

// --- words ---

const char *sampling_word_text(const struct sampling_words *w, int32_t i) {
    return w->texts + (i > 0 ? w->text_ends[i - 1] : 0);
}

const int32_t *sampling_word_ids(const struct sampling_words *w, int32_t i, int32_t *n) {
    int32_t from = i > 0 ? w->list_ends[i - 1] : 0;
    *n = w->list_ends[i] - from;
    return w->ids + from;
}

static int list_is_full(const char *name, const char *kind, int32_t most_units, const char *units,
                        struct err *err) {
    return err_key(err, E_INVAL, name, "%s has more than %d %s, or more than %d %s in all", name,
                   SAMPLING_MAX_WORDS, kind, most_units, units);
}

int sampling_words_add_text(struct sampling_words *w, const char *name, const char *text,
                            size_t len, struct err *err) {
    size_t from = w->n_texts > 0 ? w->text_ends[w->n_texts - 1] : 0;
    if (len == 0 || len >= SAMPLING_WORD_BYTES || memchr(text, 0, len))
        return err_key(err, E_INVAL, name, "each string of %s must have 1 to %d bytes", name,
                       SAMPLING_WORD_BYTES - 1);
    if (w->n_texts == SAMPLING_MAX_WORDS || from + len >= SAMPLING_TEXTS_BYTES)
        return list_is_full(name, "strings", SAMPLING_TEXTS_BYTES, "bytes", err);
    memcpy(w->texts + from, text, len);
    w->texts[from + len] = '\0';
    w->text_ends[w->n_texts++] = (uint16_t)(from + len + 1);
    return 0;
}

int sampling_words_add_ids(struct sampling_words *w, const char *name, const int32_t *ids, size_t n,
                           struct err *err) {
    size_t from = w->n_lists > 0 ? w->list_ends[w->n_lists - 1] : 0;
    if (n == 0 || n > SAMPLING_WORD_TOKENS)
        return err_key(err, E_INVAL, name, "each list of %s must have 1 to %d token ids", name,
                       SAMPLING_WORD_TOKENS);
    if (w->n_lists == SAMPLING_MAX_WORDS || from + n > SAMPLING_LISTS_TOKENS)
        return list_is_full(name, "lists", SAMPLING_LISTS_TOKENS, "token ids", err);
    memcpy(w->ids + from, ids, n * sizeof *ids);
    w->list_ends[w->n_lists++] = (uint16_t)(from + n);
    return 0;
}

// --- ranges ---

// The comparisons are written so that NaN fails them.
static int check_float(const struct sampling_row *r, float v, struct err *err) {
    float min = (float)r->min, max = (float)r->max;
    if (r->above_min) {
        if (v > min && v <= max) return 0;
        return err_key(err, E_INVAL, r->name, "%s is %g: it must be above %g and at most %g",
                       r->name, (double)v, r->min, r->max);
    }
    if (v >= min && v <= max) return 0;
    return err_key(err, E_INVAL, r->name, "%s is %g: it must be from %g to %g", r->name, (double)v,
                   r->min, r->max);
}

static int check_int(const char *name, int64_t v, int64_t min, int64_t max, struct err *err) {
    if (v >= min && v <= max) return 0;
    return err_key(err, E_INVAL, name, "%s is %lld: it must be from %lld to %lld", name,
                   (long long)v, (long long)min, (long long)max);
}

static int check_ms(const struct sampling_row *r, int64_t us, struct err *err) {
    if (us >= r->min * 1000 && us <= r->max * 1000) return 0;
    return err_key(err, E_INVAL, r->name, "%s is %g: it must be from %g to %g", r->name,
                   (double)us / 1000, r->min, r->max);
}

static int check_id(const char *name, int32_t index, int32_t id, int32_t n_vocab, struct err *err) {
    if (id >= 0 && id < n_vocab) return 0;
    return err_key(err, E_INVAL, name, "%s[%d] has token %d: ids are from 0 to %d", name, index, id,
                   n_vocab - 1);
}

static int check_biases(const struct sampling_row *r, const struct sampling_params *p,
                        int32_t n_vocab, struct err *err) {
    if (p->n_bias < 0 || p->n_bias > SAMPLING_MAX_BIAS)
        return err_key(err, E_INVAL, r->name, "%s has %d entries: at most %d are possible", r->name,
                       p->n_bias, SAMPLING_MAX_BIAS);
    for (int32_t i = 0; i < p->n_bias; i++) {
        float b = p->bias[i].bias;
        TRY(check_id(r->name, i, p->bias[i].id, n_vocab, err));
        if (!(b >= r->min && b <= r->max) && b != -INFINITY)
            return err_key(err, E_INVAL, r->name,
                           "%s of token %d is %g: it must be from %g to %g, or minus infinity to "
                           "forbid it",
                           r->name, p->bias[i].id, (double)b, r->min, r->max);
    }
    return 0;
}

// The entries of one kind: their number and their ends, each above the one before it.
static int check_ends(const struct sampling_row *r, const char *kind, const uint16_t *ends,
                      int32_t n, int32_t most_each, int32_t most, struct err *err) {
    if (n < 0 || n > SAMPLING_MAX_WORDS)
        return err_key(err, E_INVAL, r->name, "%s has %d %s: at most %d are possible", r->name, n,
                       kind, SAMPLING_MAX_WORDS);
    for (int32_t i = 0, from = 0; i < n; from = ends[i++]) {
        if (ends[i] > from && ends[i] - from <= most_each && ends[i] <= most) continue;
        return err_key(err, E_INVAL, r->name, "%s: entry %d of its %s is empty or too long",
                       r->name, i, kind);
    }
    return 0;
}

static int check_words(const struct sampling_row *r, const struct sampling_words *w,
                       int32_t n_vocab, struct err *err) {
    TRY(check_ends(r, "texts", w->text_ends, w->n_texts, SAMPLING_WORD_BYTES, SAMPLING_TEXTS_BYTES,
                   err));
    TRY(check_ends(r, "lists", w->list_ends, w->n_lists, SAMPLING_WORD_TOKENS,
                   SAMPLING_LISTS_TOKENS, err));
    for (int32_t i = 0; i < w->n_texts; i++) {
        const char *text = sampling_word_text(w, i);
        size_t len = (size_t)(w->texts + w->text_ends[i] - text);
        if (len < 2 || strnlen(text, len) != len - 1)
            return err_key(err, E_INVAL, r->name,
                           "%s: entry %d of its texts is empty or not terminated", r->name, i);
    }
    for (int32_t i = 0; i < w->n_lists; i++) {
        int32_t n;
        const int32_t *ids = sampling_word_ids(w, i, &n);
        for (int32_t j = 0; j < n; j++) TRY(check_id(r->name, i, ids[j], n_vocab, err));
    }
    return 0;
}

static int check_row(const struct sampling_row *r, const struct sampling_params *p, int32_t n_vocab,
                     struct err *err) {
    const void *at = (const char *)p + r->offset;
    switch (r->type) {
    case SAMPLING_FLOAT:
        return check_float(r, *(const float *)at, err);
    case SAMPLING_INT:
        return check_int(r->name, *(const int32_t *)at, (int64_t)r->min, (int64_t)r->max, err);
    case SAMPLING_MS:
        return check_ms(r, *(const int64_t *)at, err);
    case SAMPLING_BIASES:
        return check_biases(r, p, n_vocab, err);
    case SAMPLING_WORDS:
        return check_words(r, at, n_vocab, err);
    case SAMPLING_BOOL:
    case SAMPLING_SEED:
    case SAMPLING_GRAMMAR: // grammars_get checks it
        return 0;
    }
    return err_set(err, E_INTERNAL, "%s has no type", r->name);
}

int sampling_params_check(const struct sampling_params *p, int32_t n_vocab, struct err *err) {
    for (int i = 0; i < n_sampling_rows; i++) TRY(check_row(&sampling_rows[i], p, n_vocab, err));
    if (p->grammar && p->ignore_eos)
        return err_key(err, E_INVAL, "ignore_eos",
                       "ignore_eos: an answer under %s ends where it is complete",
                       grammar_kind_name(grammar_text_kind(p->grammar)));
    return 0;
}

// --- layers ---

static void copy_row(struct sampling_params *to, const struct sampling_params *from,
                     const struct sampling_row *r) {
    if (r->type == SAMPLING_GRAMMAR) {
        const struct grammar_text *old = to->grammar;
        to->grammar = grammar_text_hold(from->grammar);
        grammar_text_free(old);
        return;
    }
    static const size_t bytes[] = {
        [SAMPLING_FLOAT] = sizeof(float),   [SAMPLING_INT] = sizeof(int32_t),
        [SAMPLING_BOOL] = sizeof(bool),     [SAMPLING_SEED] = sizeof to->seed,
        [SAMPLING_MS] = sizeof(int64_t),    [SAMPLING_BIASES] = sizeof to->bias,
        [SAMPLING_WORDS] = sizeof to->stop,
    };
    memcpy(field(to, r), (const char *)from + r->offset, bytes[r->type]);
    if (r->type == SAMPLING_SEED) to->has_seed = from->has_seed;
    if (r->type == SAMPLING_BIASES) to->n_bias = from->n_bias;
}

void turn_sampling_init(struct turn_sampling *s) {
    sampling_params_init(&s->params);
    s->set = 0;
}

void turn_sampling_release(struct turn_sampling *s) {
    grammar_text_free(s->params.grammar);
    s->params.grammar = NULL;
}

void turn_sampling_free(struct turn_sampling *s) {
    if (s) turn_sampling_release(s);
    free(s);
}

void turn_sampling_overlay(struct turn_sampling *base, const struct turn_sampling *over) {
    for (int i = 0; i < n_sampling_rows; i++)
        if (over->set >> i & 1) copy_row(&base->params, &over->params, &sampling_rows[i]);
    base->set |= over->set;
}
