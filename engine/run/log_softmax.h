// The model's own log-probabilities: log-softmax of one position's logits. Two numbers of the whole
// row are stored; each token's value follows from them. The sum runs over ids in one fixed order, so
// the bits depend on the row alone.
#pragma once
#include "base/err.h"
#include <stdint.h>

struct log_softmax {
    float max;      // finite
    double log_sum; // log of the sum of e^(logit - max)
};

// E_INTERNAL: a logit is NaN or +inf, or all are -inf: the model or a kernel is broken.
int log_softmax_init(struct log_softmax *s, const float *logits, int32_t n_vocab, struct err *err);

// The natural logarithm of the probability of the token with this logit, one of those of init.
static inline float log_softmax_value(const struct log_softmax *s, float logit) {
    return (float)((double)logit - (double)s->max - s->log_sum);
}

// The greatest of x (n), -inf if n is 0; NaNs are ignored.
float row_max(const float *x, int32_t n);
// The least of x (n) that is not -inf; +inf if there is none.
float row_min(const float *x, int32_t n);
