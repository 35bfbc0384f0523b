// Shared by the op tests: backends of every instruction set of this machine, reproducible values,
// and the comparison with a double-precision reference.
#pragma once
#include "kernels/backend.h"
#include "tests/cmocka.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const op_isas[] = {"portable", "avx2", "avx512", "amx"};
enum { OP_N_ISAS = 4 };

// Runs body(be) on every set that the processor has, with one, two and three threads.
static inline void op_each_backend(void (*body)(struct backend *be)) {
    for (int i = 0; i < OP_N_ISAS; i++)
        for (int threads = 1; threads <= 3; threads++) {
            struct backend *be;
            struct err err = {0};
            int rc = backend_cpu_open(&be, threads, op_isas[i], &err);
            if (rc == E_UNSUPPORTED && i > 0) continue;
            if (rc < 0) fail_msg("%s: %s", op_isas[i], err.text);
            body(be);
            be->ops->close(be);
        }
}

static uint64_t op_state = 1;
static inline void op_seed(uint64_t seed) {
    op_state = seed * 0x9e3779b97f4a7c15u + 1;
}

// Roughly normal, variance 1.
static inline float op_random(void) {
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        op_state = op_state * 6364136223846793005u + 1442695040888963407u;
        sum += (double)(op_state >> 40) / (1 << 24);
    }
    return (float)((sum - 2) * 1.7320508);
}

static inline float *op_floats(int64_t n) {
    float *p = malloc((size_t)(n ? n : 1) * sizeof *p);
    assert_non_null(p);
    for (int64_t i = 0; i < n; i++) p[i] = op_random();
    return p;
}

static inline double op_read(enum dtype t, const void *p, int64_t i) {
    if (t == DTYPE_F16) return f16_to_f32(((const uint16_t *)p)[i]);
    if (t == DTYPE_BF16) return bf16_to_f32(((const uint16_t *)p)[i]);
    return ((const float *)p)[i];
}

static inline void op_write(enum dtype t, void *p, int64_t i, float v) {
    if (t == DTYPE_F16)
        ((uint16_t *)p)[i] = f16_from_f32(v);
    else if (t == DTYPE_BF16)
        ((uint16_t *)p)[i] = bf16_from_f32(v);
    else
        ((float *)p)[i] = v;
}

// |got - want| <= tolerance, which is F32 rounding scaled by the size of the sum's terms.
static inline void op_near(double got, double want, double tolerance, const char *what, int64_t i) {
    if (!(fabs(got - want) <= tolerance))
        fail_msg("%s[%lld]: got %.9g, want %.9g, off by %.3g, allowed %.3g", what, (long long)i,
                 got, want, fabs(got - want), tolerance);
}

static inline void op_same_bits(const float *a, const float *b, int64_t n, const char *what) {
    for (int64_t i = 0; i < n; i++)
        if (memcmp(a + i, b + i, sizeof *a) != 0)
            fail_msg("%s[%lld]: %.9g and %.9g differ in their bits", what, (long long)i, a[i],
                     b[i]);
}
