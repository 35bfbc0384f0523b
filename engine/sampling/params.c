// Defaults, ranges and layers of sampling parameters. A turn is checked once, before it is queued,
// so that the sampler takes every value as it is.
#include "engine/sampling/params.h"
#include "engine/sampling/rows.h"
#include <math.h>
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
    case SAMPLING_WORDS:
        memset(p->bad, -1, sizeof p->bad);
        break;
    case SAMPLING_SEED:
    case SAMPLING_STRINGS:
    case SAMPLING_BIASES:
        break;
    }
}

void sampling_params_init(struct sampling_params *p) {
    memset(p, 0, sizeof *p);
    for (int i = 0; i < n_sampling_rows; i++) set_default(p, &sampling_rows[i]);
}

// --- ranges ---

// The comparisons are written so that NaN fails them.
static int check_float(const struct sampling_row *r, float v, struct err *err) {
    float min = (float)r->min, max = (float)r->max;
    if (r->above_min) {
        if (v > min && v <= max) return 0;
        return err_set(err, E_INVAL, "%s is %g: it must be above %g and at most %g", r->name,
                       (double)v, r->min, r->max);
    }
    if (v >= min && v <= max) return 0;
    return err_set(err, E_INVAL, "%s is %g: it must be from %g to %g", r->name, (double)v, r->min,
                   r->max);
}

static int check_int(const char *name, int64_t v, int64_t min, int64_t max, struct err *err) {
    if (v >= min && v <= max) return 0;
    return err_set(err, E_INVAL, "%s is %lld: it must be from %lld to %lld", name, (long long)v,
                   (long long)min, (long long)max);
}

static int check_ms(const struct sampling_row *r, int64_t us, struct err *err) {
    if (us >= r->min * 1000 && us <= r->max * 1000) return 0;
    return err_set(err, E_INVAL, "%s is %g: it must be from %g to %g", r->name, (double)us / 1000,
                   r->min, r->max);
}

static int check_id(const char *name, int32_t index, int32_t id, int32_t n_vocab, struct err *err) {
    if (id >= 0 && id < n_vocab) return 0;
    return err_set(err, E_INVAL, "%s[%d] has token %d: ids are from 0 to %d", name, index, id,
                   n_vocab - 1);
}

static int check_biases(const struct sampling_row *r, const struct sampling_params *p,
                        int32_t n_vocab, struct err *err) {
    TRY(check_int("number of logit biases", p->n_bias, 0, SAMPLING_MAX_BIAS, err));
    for (int32_t i = 0; i < p->n_bias; i++) {
        float b = p->bias[i].bias;
        TRY(check_id(r->name, i, p->bias[i].id, n_vocab, err));
        if (!(b >= r->min && b <= r->max) && b != -INFINITY)
            return err_set(err, E_INVAL,
                           "%s of token %d is %g: it must be from %g to %g, or minus infinity to "
                           "forbid it",
                           r->name, p->bias[i].id, (double)b, r->min, r->max);
    }
    return 0;
}

static int check_strings(const struct sampling_row *r, const struct sampling_params *p,
                         struct err *err) {
    TRY(check_int("number of stop strings", p->n_stop, 0, SAMPLING_MAX_STOP, err));
    for (int32_t i = 0; i < p->n_stop; i++) {
        if (!p->stop[i][0]) return err_set(err, E_INVAL, "%s[%d] is empty", r->name, i);
        if (!memchr(p->stop[i], 0, SAMPLING_STOP_BYTES))
            return err_set(err, E_INVAL, "%s[%d] is longer than %d bytes", r->name, i,
                           SAMPLING_STOP_BYTES - 1);
    }
    return 0;
}

// One sequence: at least one id, then padding to the end.
static int check_word(const struct sampling_row *r, const struct sampling_params *p, int32_t index,
                      int32_t n_vocab, struct err *err) {
    const int32_t *word = p->bad[index];
    int32_t len = 0;
    while (len < SAMPLING_BAD_TOKENS && word[len] != -1) len++;
    if (len == 0) return err_set(err, E_INVAL, "%s[%d] is empty", r->name, index);
    for (int32_t i = 0; i < len; i++) TRY(check_id(r->name, index, word[i], n_vocab, err));
    for (int32_t i = len; i < SAMPLING_BAD_TOKENS; i++)
        if (word[i] != -1)
            return err_set(err, E_INVAL, "%s[%d] has token %d after its end", r->name, index,
                           word[i]);
    return 0;
}

static int check_words(const struct sampling_row *r, const struct sampling_params *p,
                       int32_t n_vocab, struct err *err) {
    TRY(check_int("number of bad words", p->n_bad, 0, SAMPLING_MAX_BAD, err));
    for (int32_t i = 0; i < p->n_bad; i++) TRY(check_word(r, p, i, n_vocab, err));
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
    case SAMPLING_STRINGS:
        return check_strings(r, p, err);
    case SAMPLING_BIASES:
        return check_biases(r, p, n_vocab, err);
    case SAMPLING_WORDS:
        return check_words(r, p, n_vocab, err);
    case SAMPLING_BOOL:
    case SAMPLING_SEED:
        return 0;
    }
    return err_set(err, E_INTERNAL, "%s has no type", r->name);
}

int sampling_params_check(const struct sampling_params *p, int32_t n_vocab, struct err *err) {
    for (int i = 0; i < n_sampling_rows; i++) TRY(check_row(&sampling_rows[i], p, n_vocab, err));
    return 0;
}

// --- layers ---

static void copy_row(struct sampling_params *to, const struct sampling_params *from,
                     const struct sampling_row *r) {
    static const size_t bytes[] = {
        [SAMPLING_FLOAT] = sizeof(float),    [SAMPLING_INT] = sizeof(int32_t),
        [SAMPLING_BOOL] = sizeof(bool),      [SAMPLING_SEED] = sizeof to->seed,
        [SAMPLING_MS] = sizeof(int64_t),     [SAMPLING_STRINGS] = sizeof to->stop,
        [SAMPLING_BIASES] = sizeof to->bias, [SAMPLING_WORDS] = sizeof to->bad,
    };
    memcpy(field(to, r), (const char *)from + r->offset, bytes[r->type]);
    if (r->type == SAMPLING_SEED) to->has_seed = from->has_seed;
    if (r->type == SAMPLING_STRINGS) to->n_stop = from->n_stop;
    if (r->type == SAMPLING_BIASES) to->n_bias = from->n_bias;
    if (r->type == SAMPLING_WORDS) to->n_bad = from->n_bad;
}

void turn_sampling_init(struct turn_sampling *s) {
    sampling_params_init(&s->params);
    s->set = 0;
}

void turn_sampling_overlay(struct turn_sampling *base, const struct turn_sampling *over) {
    for (int i = 0; i < n_sampling_rows; i++)
        if (over->set >> i & 1) copy_row(&base->params, &over->params, &sampling_rows[i]);
    base->set |= over->set;
}
