// Defaults and ranges of struct sampling_params: what a client may ask for, checked once, before a
// turn is queued, so that the sampler can take every value as it is.
#include "engine/sampling_params.h"
#include <math.h>
#include <string.h>

void sampling_params_init(struct sampling_params *p) {
    *p = (struct sampling_params){.temperature = 1, .top_p = 1, .repetition_penalty = 1};
    memset(p->bad, -1, sizeof p->bad);
}

// The comparison is written so that NaN fails it.
static int check_float(const char *name, float v, float min, float max, struct err *err) {
    if (v >= min && v <= max) return 0;
    return err_set(err, E_INVAL, "%s is %g: it must be from %g to %g", name, (double)v, (double)min,
                   (double)max);
}

static int check_int(const char *name, int64_t v, int64_t max, struct err *err) {
    if (v >= 0 && v <= max) return 0;
    return err_set(err, E_INVAL, "%s is %lld: it must be from 0 to %lld", name, (long long)v,
                   (long long)max);
}

static int check_id(const char *name, int32_t index, int32_t id, int32_t n_vocab, struct err *err) {
    if (id >= 0 && id < n_vocab) return 0;
    return err_set(err, E_INVAL, "%s[%d] has token %d: ids are from 0 to %d", name, index, id,
                   n_vocab - 1);
}

static int check_bias(const struct sampling_params *p, int32_t n_vocab, struct err *err) {
    TRY(check_int("number of logit biases", p->n_bias, SAMPLING_MAX_BIAS, err));
    for (int32_t i = 0; i < p->n_bias; i++) {
        float b = p->bias[i].bias;
        TRY(check_id("logit_bias", i, p->bias[i].id, n_vocab, err));
        if (!(b >= -100 && b <= 100) && b != -INFINITY)
            return err_set(err, E_INVAL,
                           "logit_bias of token %d is %g: it must be from -100 to 100, or minus "
                           "infinity to forbid it",
                           p->bias[i].id, (double)b);
    }
    return 0;
}

static int check_stop(const struct sampling_params *p, struct err *err) {
    TRY(check_int("number of stop strings", p->n_stop, SAMPLING_MAX_STOP, err));
    for (int32_t i = 0; i < p->n_stop; i++) {
        if (!p->stop[i][0]) return err_set(err, E_INVAL, "stop[%d] is empty", i);
        if (!memchr(p->stop[i], 0, SAMPLING_STOP_BYTES))
            return err_set(err, E_INVAL, "stop[%d] is longer than %d bytes", i,
                           SAMPLING_STOP_BYTES - 1);
    }
    return 0;
}

// One sequence: at least one id, then padding to the end.
static int check_bad_word(const struct sampling_params *p, int32_t index, int32_t n_vocab,
                          struct err *err) {
    const int32_t *word = p->bad[index];
    int32_t len = 0;
    while (len < SAMPLING_BAD_TOKENS && word[len] != -1) len++;
    if (len == 0) return err_set(err, E_INVAL, "bad_words[%d] is empty", index);
    for (int32_t i = 0; i < len; i++) TRY(check_id("bad_words", index, word[i], n_vocab, err));
    for (int32_t i = len; i < SAMPLING_BAD_TOKENS; i++)
        if (word[i] != -1)
            return err_set(err, E_INVAL, "bad_words[%d] has token %d behind its end", index,
                           word[i]);
    return 0;
}

int sampling_params_check(const struct sampling_params *p, int32_t n_vocab, struct err *err) {
    TRY(check_float("temperature", p->temperature, 0, 100, err));
    TRY(check_int("top_k", p->top_k, INT32_MAX, err));
    if (!(p->top_p > 0 && p->top_p <= 1))
        return err_set(err, E_INVAL, "top_p is %g: it must be above 0 and at most 1",
                       (double)p->top_p);
    TRY(check_float("min_p", p->min_p, 0, 1, err));
    TRY(check_float("repetition_penalty", p->repetition_penalty, 0.01f, 100, err));
    TRY(check_float("presence_penalty", p->presence_penalty, -100, 100, err));
    TRY(check_float("frequency_penalty", p->frequency_penalty, -100, 100, err));
    TRY(check_int("max_tokens", p->max_tokens, INT32_MAX, err));
    TRY(check_int("min_tokens", p->min_tokens, INT32_MAX, err));
    TRY(check_int("top_logprobs", p->top_logprobs, SAMPLING_MAX_TOP_LOGPROBS, err));
    TRY(check_int("deadline_us", p->deadline_us, INT64_MAX, err));
    TRY(check_bias(p, n_vocab, err));
    TRY(check_stop(p, err));
    TRY(check_int("number of bad words", p->n_bad, SAMPLING_MAX_BAD, err));
    for (int32_t i = 0; i < p->n_bad; i++) TRY(check_bad_word(p, i, n_vocab, err));
    return 0;
}
