// Log-softmax in two passes: the maximum, then the sum of exponentials.
//
// Order of the sum: ids are cut into runs of SUM_RUN. Within a run there are 16 lanes; lane i takes ids
// i, i + 16, ... The lanes of a run are added pairwise, and the runs one by one to a double. Floats
// inside a run let the compiler vectorise the pass; doubles between runs make a vocabulary of 150,000 as
// exact as one of 1,000.
#include "engine/run/log_softmax.h"
#include "engine/run/lanes.h"

enum { SUM_RUN = 1024 };

float row_max(const float *x, int32_t n) {
    struct chunk best;
    for (int k = 0; k < 4; k++) best.v[k] = f32x4_splat(-INFINITY);
    for (int32_t i = 0; i < n; i += CHUNK) {
        struct chunk c = chunk_load(x + i, n - i);
        for (int k = 0; k < 4; k++) best.v[k] = f32x4_max(c.v[k], best.v[k]);
    }
    f32x4 m = f32x4_max(f32x4_max(best.v[0], best.v[1]), f32x4_max(best.v[2], best.v[3]));
    return fmaxf(fmaxf(m[0], m[1]), fmaxf(m[2], m[3]));
}

float row_min(const float *x, int32_t n) {
    struct chunk best;
    for (int k = 0; k < 4; k++) best.v[k] = f32x4_splat(INFINITY);
    for (int32_t i = 0; i < n; i += CHUNK) {
        struct chunk c = chunk_load(x + i, n - i);
        for (int k = 0; k < 4; k++)
            best.v[k] =
                f32x4_select((c.v[k] < best.v[k]) & (c.v[k] > -INFINITY), c.v[k], best.v[k]);
    }
    f32x4 m = f32x4_min(f32x4_min(best.v[0], best.v[1]), f32x4_min(best.v[2], best.v[3]));
    return fminf(fminf(m[0], m[1]), fminf(m[2], m[3]));
}

static float sum_exp_run(const float *x, int32_t n, float max) {
    struct chunk sum = {0};
    for (int32_t i = 0; i < n; i += CHUNK) {
        struct chunk c = chunk_load(x + i, n - i);
        for (int k = 0; k < 4; k++) sum.v[k] += exp_nonpositive(c.v[k] - max);
    }
    f32x4 s = (sum.v[0] + sum.v[1]) + (sum.v[2] + sum.v[3]);
    return (s[0] + s[1]) + (s[2] + s[3]);
}

static int broken(const float *logits, int32_t n_vocab, struct err *err) {
    for (int32_t i = 0; i < n_vocab; i++)
        if (!(logits[i] < INFINITY))
            return err_set(err, E_INTERNAL, "the model gave %s as the logit of token %d",
                           isnan(logits[i]) ? "NaN" : "infinity", i);
    return err_set(err, E_INTERNAL, "the model gave minus infinity as the logit of every token");
}

int log_softmax_init(struct log_softmax *s, const float *logits, int32_t n_vocab, struct err *err) {
    s->max = row_max(logits, n_vocab);
    if (!isfinite(s->max)) return broken(logits, n_vocab, err);
    double sum = 0;
    for (int32_t i = 0; i < n_vocab; i += SUM_RUN) {
        int32_t left = n_vocab - i;
        sum += (double)sum_exp_run(logits + i, left < SUM_RUN ? left : SUM_RUN, s->max);
    }
    if (isnan(sum)) return broken(logits, n_vocab, err); // row_max ignores NaNs, the sum does not
    s->log_sum = log(sum);
    return 0;
}
