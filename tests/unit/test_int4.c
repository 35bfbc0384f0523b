// Rows in 4 bits: no plain scale is closer, values on a grid come back, and what has no scale.
#include "kernels/int4.h"
#include "tests/cmocka.h"
#include <math.h>
#include <stdlib.h>

enum { GROUPS = 3, COLS = GROUPS * INT4_GROUP };

static float random_value(void) {
    float v = 0;
    for (int i = 0; i < 4; i++) v += (float)(rand() % 2001 - 1000) / 1000; // NOLINT
    return v;
}

static int quantize(const float *x, enum dtype scale_dtype, uint32_t *codes, float *scales) {
    float work[COLS];
    const struct tensor_view v = {x, DTYPE_F32, 1, COLS, COLS, 1, NULL, 0};
    return int4_quantize_row(&v, 0, scale_dtype, codes, scales, work);
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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(least_error_test),
                                       cmocka_unit_test(grid_test), cmocka_unit_test(ends_test)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
