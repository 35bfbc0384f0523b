// Checks every tensor that a decoder of KServe accepts: it can be read to its last element.
#pragma once
#include "tests/fuzz/fuzz.h"
#include "ws/kserve/tensor.h"

static inline void check_tensor(const struct tensor *t) {
    size_t n = 1;
    for (int i = 0; i < t->n_dims; i++) n *= (size_t)t->shape[i];
    FUZZ_CHECK(n == t->n);
    volatile double sum = 0;
    for (size_t i = 0; i < t->n; i++) {
        if (t->type != TENSOR_BYTES)
            sum = sum + tensor_number(t, i);
        else if (t->texts[i].len)
            sum = sum + t->texts[i].bytes[t->texts[i].len - 1];
    }
}
