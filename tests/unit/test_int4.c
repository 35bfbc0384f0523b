// Rows in 4 bits: no plain scale is closer, values on a grid come back, and what has no scale.
#include "kernels/int4.h"
#include "tests/cmocka.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GROUPS = 3, COLS = GROUPS * INT4_GROUP };

static float random_value(void) {
    float v = 0;
    for (int i = 0; i < 4; i++) v += (float)(rand() % 2001 - 1000) / 1000; // NOLINT
    return v;
}

static int quantize(const float *x, enum dtype scale_dtype, uint32_t *codes, float *scales) {
    float work[COLS];
    const struct tensor_view v = {x, DTYPE_F32, 1, COLS, COLS, 1, NULL, 0};
    return int4_quantize_row(&v, 0, scale_dtype, NULL, codes, scales, work);
}

static float value_of(const uint32_t *codes, const float *scales, int k) {
    return scales[k / INT4_GROUP] * (float)((int)(codes[k / 8] >> 4 * (k % 8) & 15) - 8);
}

// Of group g, with each value at the nearest of -8 .. 7 steps.
static double plain_error(const float *x, float scale) {
    double sum = 0;
    for (int k = 0; k < INT4_GROUP; k++) {
        const double q = fmin(fmax(rint((double)x[k] / scale), -8), 7);
        sum += pow(x[k] - q * scale, 2);
    }
    return sum;
}

static void least_error_test(void **state) {
    static const float steps[] = {7, 7.5f, 8};
    float x[COLS], scales[GROUPS];
    uint32_t codes[COLS / 8];
    double mine = 0, plain[3] = {0};
    for (int round = 0; round < 50; round++) {
        for (int k = 0; k < COLS; k++) x[k] = random_value() * (k % 50 == round ? 3 : 1);
        assert_int_equal(quantize(x, DTYPE_F32, codes, scales), 0);
        for (int g = 0; g < GROUPS; g++) {
            const float *at = x + g * INT4_GROUP;
            double most = 0, error = 0;
            for (int k = 0; k < INT4_GROUP; k++) {
                most = fmax(most, fabsf(at[k]));
                error += pow(at[k] - value_of(codes, scales, g * INT4_GROUP + k), 2);
            }
            for (int i = 0; i < 3; i++) {
                const double other = plain_error(at, (float)most / steps[i]);
                assert_true(error <= other * 1.02); // candidates are fitted, not these very ones
                plain[i] += other;
            }
            mine += error;
        }
    }
    for (int i = 0; i < 3; i++)
        if (mine > 0.96 * plain[i]) fail_msg("%g against %g", mine, plain[i]);
}

static void grid_test(void **state) {
    static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    float x[COLS], scales[GROUPS];
    uint32_t codes[COLS / 8];
    for (int t = 0; t < 3; t++) {
        for (int k = 0; k < COLS; k++)
            x[k] = (float)(k % 16 - 8) * 0.01171875f * (float)(1 + k / INT4_GROUP);
        assert_int_equal(quantize(x, types[t], codes, scales), 0);
        for (int k = 0; k < COLS; k++) assert_true(value_of(codes, scales, k) == x[k]);
    }
}

static void ends_test(void **state) {
    float x[COLS] = {0}, scales[GROUPS];
    uint32_t codes[COLS / 8];
    x[1] = 1e-30f;          // the first group: zeros
    x[INT4_GROUP] = 1e30f;  // the second: one value that only F32 and bf16 have
    x[2 * INT4_GROUP] = -4; // the third: one value
    assert_int_equal(quantize(x, DTYPE_BF16, codes, scales), 0);
    for (int k = 0; k < COLS; k++) {
        const float v = value_of(codes, scales, k);
        if (k == INT4_GROUP)
            assert_true(fabsf(v - x[k]) < 0.01f * x[k]);
        else
            assert_true(v == (k == 2 * INT4_GROUP ? -4 : 0));
    }
    assert_int_equal(quantize(x, DTYPE_F16, codes, scales), E_INVAL);
    x[INT4_GROUP] = INFINITY;
    assert_int_equal(quantize(x, DTYPE_F32, codes, scales), E_INVAL);
    x[INT4_GROUP] = NAN;
    assert_int_equal(quantize(x, DTYPE_F32, codes, scales), E_INVAL);
}

// (x - q) H (x - q)^T of the columns of one block.
static double error_on(const double *h, const float *x, const uint32_t *codes,
                       const float *scales) {
    double sum = 0;
    for (int i = 0; i < COLS; i++)
        for (int k = 0; k < COLS; k++)
            sum += h[i * COLS + k] * (double)(x[i] - value_of(codes, scales, i)) *
                   (double)(x[k] - value_of(codes, scales, k));
    return sum;
}

// Inputs of few directions: what is rounded up in one column can be rounded down in another.
static void sum_inputs(double *h, float *factors) {
    enum { TOKENS = 600, DIRECTIONS = 60 };
    static float way[DIRECTIONS][COLS];
    for (int i = 0; i < DIRECTIONS; i++)
        for (int k = 0; k < COLS; k++) way[i][k] = random_value();
    for (int t = 0; t < TOKENS; t++) {
        double in[COLS];
        for (int k = 0; k < COLS; k++) in[k] = 0.1 * (double)random_value();
        for (int i = 0; i < DIRECTIONS; i++) {
            const double much = (double)random_value();
            for (int k = 0; k < COLS; k++) in[k] += much * (double)way[i][k];
        }
        for (int i = 0; i < COLS; i++)
            for (int k = 0; k < COLS; k++) h[i * COLS + k] += in[i] * in[k];
    }
    for (int i = 0; i < COLS * COLS; i++) factors[i] = (float)h[i];
}

static void calibrated_test(void **state) {
    static double h[COLS * COLS];
    static float factors[COLS * INT4_BLOCK];
    struct err err = {0};
    double plain = 0, mine = 0;
    sum_inputs(h, factors);
    assert_int_equal(int4_factors(factors, COLS, &err), 0);
    for (int round = 0; round < 20; round++) {
        float x[COLS], scales[GROUPS], work[COLS];
        uint32_t codes[COLS / 8];
        for (int k = 0; k < COLS; k++) x[k] = random_value();
        const struct tensor_view v = {x, DTYPE_F32, 1, COLS, COLS, 1, NULL, 0};
        assert_int_equal(quantize(x, DTYPE_F32, codes, scales), 0);
        plain += error_on(h, x, codes, scales);
        assert_int_equal(
            int4_quantize_row_calibrated(&v, 0, DTYPE_F32, factors, codes, scales, work), 0);
        mine += error_on(h, x, codes, scales);
    }
    if (mine > 0.5 * plain) fail_msg("%g with the inputs known, %g without", mine, plain);
}

// The same with weights alone, which only choose the scales.
static void weighted_test(void **state) {
    double plain = 0, mine = 0;
    float weights[COLS];
    for (int k = 0; k < COLS; k++) weights[k] = k % 8 ? 0.01f : 1;
    for (int round = 0; round < 20; round++) {
        float x[COLS], scales[2][GROUPS], work[COLS];
        uint32_t codes[2][COLS / 8];
        for (int k = 0; k < COLS; k++) x[k] = random_value();
        const struct tensor_view v = {x, DTYPE_F32, 1, COLS, COLS, 1, NULL, 0};
        for (int i = 0; i < 2; i++)
            assert_int_equal(
                int4_quantize_row(&v, 0, DTYPE_F32, i ? weights : NULL, codes[i], scales[i], work),
                0);
        for (int k = 0; k < COLS; k++) {
            const double a = (double)(x[k] - value_of(codes[0], scales[0], k));
            const double b = (double)(x[k] - value_of(codes[1], scales[1], k));
            plain += (double)weights[k] * a * a;
            mine += (double)weights[k] * b * b;
        }
    }
    if (mine > 0.95 * plain) fail_msg("%g with weights, %g without", mine, plain);
}

// Columns that are never used, and inputs that are no numbers.
static void no_inputs_test(void **state) {
    static float factors[INT4_GROUP * INT4_GROUP];
    struct err err = {0};
    assert_int_equal(int4_factors(factors, INT4_GROUP, &err), 0);
    for (int i = 0; i < INT4_GROUP; i++)
        for (int k = 0; k < INT4_GROUP; k++)
            assert_true(factors[i * INT4_GROUP + k] == (float)(i == k));
    factors[5] = NAN;
    assert_int_equal(int4_factors(factors, INT4_GROUP, &err), E_INVAL);
    assert_non_null(strstr(err.text, "infinite or no numbers"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(least_error_test), cmocka_unit_test(grid_test),
        cmocka_unit_test(ends_test),        cmocka_unit_test(calibrated_test),
        cmocka_unit_test(weighted_test),    cmocka_unit_test(no_inputs_test)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
