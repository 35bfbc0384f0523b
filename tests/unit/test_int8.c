// Rows of 8-bit weights: integers, scales, and rows that cannot be quantised.
#include "kernels/int8.h"
#include "tests/cmocka.h"
#include <math.h>
#include <stdlib.h>

enum { MAX_COLS = 1000 };

static int quantize(const float *x, int64_t n, int8_t *q, float *scale) {
    float work[MAX_COLS];
    struct tensor_view v = {x, DTYPE_F32, 1, n, n, 1, NULL, 0};
    return int8_quantize_row(&v, 0, q, 1, work, scale);
}

static void rounds_to_nearest_even_test(void **state) {
    // scale 1: the values are in units of it
    const float x[] = {127, -127, 0.5f, 1.5f, -0.5f, -1.5f, 2.5f, 0.49f, -126.6f, 0};
    const int8_t want[] = {127, -127, 0, 2, 0, -2, 2, 0, -127, 0};
    int8_t q[10];
    float scale;
    assert_int_equal(quantize(x, 10, q, &scale), 0);
    assert_float_equal(scale, 1, 0);
    assert_memory_equal(q, want, sizeof want);
}

// No value is further from its integer than half a scale, and the largest is +-127.
static void error_is_half_a_scale_test(void **state) {
    float x[MAX_COLS];
    int8_t q[MAX_COLS];
    float scale;
    uint32_t seed = 1;
    for (int round = 0; round < 50; round++) {
        float size = powf(10, (float)(round % 25) - 12);
        int n = 1 + round * 19, extremes = 0;
        for (int i = 0; i < n; i++) {
            seed = seed * 1664525u + 1013904223u;
            x[i] = ((float)(seed >> 8) / 8388608.0f - 1) * size;
        }
        assert_int_equal(quantize(x, n, q, &scale), 0);
        for (int i = 0; i < n; i++) {
            assert_true(fabs((double)x[i] - (double)q[i] * (double)scale) <=
                        0.500001 * (double)scale);
            assert_true(q[i] >= -127);
            extremes += abs(q[i]) == 127;
        }
        assert_true(extremes >= 1);
    }
}

static void zero_rows_have_scale_zero_test(void **state) {
    const float zeros[] = {0, -0.0f, 0}, tiny[] = {1e-45f, -1e-45f, 0};
    int8_t q[3], none[3] = {0};
    float scale;
    assert_int_equal(quantize(zeros, 3, q, &scale), 0);
    assert_true(scale == 0);
    assert_memory_equal(q, none, 3);
    assert_int_equal(quantize(tiny, 3, q, &scale), 0); // its scale would be below the smallest
    assert_true(scale == 0);
    assert_memory_equal(q, none, 3);
}

// A scale that is a denormal has few bits: the quotient could pass 127.
static void denormal_scales_stay_in_range_test(void **state) {
    float x[2], scale;
    int8_t q[2];
    for (int i = 64; i < 2000; i++) {
        x[0] = (float)i * 1.401298464e-45f;
        x[1] = -x[0];
        assert_int_equal(quantize(x, 2, q, &scale), 0);
        assert_true(q[0] >= 0 && q[0] <= 127 && q[1] == -q[0]);
    }
}

static void what_is_no_number_is_refused_test(void **state) {
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    for (int i = 0; i < 3; i++)
        for (int at = 0; at < 40; at++) {
            float x[40] = {1, 2, 3}, scale;
            int8_t q[40];
            x[at] = bad[i];
            assert_int_equal(quantize(x, 40, q, &scale), E_INVAL);
        }
    float largest[] = {3.4028234e38f, 1}, scale;
    int8_t q[2];
    assert_int_equal(quantize(largest, 2, q, &scale), 0);
    assert_int_equal(q[0], 127);
}

// Strides of source and result, and 16-bit sources, change nothing.
static void strides_and_dtypes_test(void **state) {
    enum { ROWS = 3, COLS = 37 };
    float x[ROWS][COLS], turned[COLS][ROWS];
    uint16_t bf16[ROWS][COLS], f16[ROWS][COLS];
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++) {
            x[r][c] = (float)((r * 131 + c * 71) % 255 - 127) * 0.0078125f; // exact in 16 bits
            turned[c][r] = x[r][c];
            bf16[r][c] = bf16_from_f32(x[r][c]);
            f16[r][c] = f16_from_f32(x[r][c]);
        }
    const struct tensor_view views[] = {{x, DTYPE_F32, ROWS, COLS, COLS, 1, NULL, 0},
                                        {turned, DTYPE_F32, ROWS, COLS, 1, ROWS, NULL, 0},
                                        {bf16, DTYPE_BF16, ROWS, COLS, COLS, 1, NULL, 0},
                                        {f16, DTYPE_F16, ROWS, COLS, COLS, 1, NULL, 0}};
    float work[COLS];
    for (int r = 0; r < ROWS; r++) {
        int8_t want[COLS];
        float want_scale;
        assert_int_equal(int8_quantize_row(&views[0], r, want, 1, work, &want_scale), 0);
        for (int i = 0; i < 4; i++)
            for (int stride = 1; stride <= 5; stride += 4) {
                int8_t q[COLS * 5];
                float scale;
                assert_int_equal(int8_quantize_row(&views[i], r, q, stride, work, &scale), 0);
                assert_true(scale == want_scale);
                for (int c = 0; c < COLS; c++) assert_int_equal(q[c * stride], want[c]);
            }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_to_nearest_even_test),
        cmocka_unit_test(error_is_half_a_scale_test),
        cmocka_unit_test(zero_rows_have_scale_zero_test),
        cmocka_unit_test(denormal_scales_stay_in_range_test),
        cmocka_unit_test(what_is_no_number_is_refused_test),
        cmocka_unit_test(strides_and_dtypes_test),
    };
    return cmocka_run_group_tests_name("int8", tests, NULL, NULL);
}
