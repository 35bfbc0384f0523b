// linear with weights of few bits of all formats, for test_linear_groups.c and test_linear_groups8.c, which say how x
// is rounded: to integers of at most X_LARGEST times a unit, for X_COLUMNS columns each. X_UNITS: a power of two above.
#pragma once
#include "tests/ops/group_rows.h"
#include "tests/ops/ops_fixture.h"

enum { COLS = 328, ROWS = 83 }; // neither whole tiles nor whole panels

static const struct group_format formats[] = {
    {4, 32, GROUP_SCALE_F16, GROUP_ZERO_SAME, 8, NULL},
    {4, 32, GROUP_SCALE_F16, GROUP_MIN_F16, 0, NULL},
    {4, 64, GROUP_SCALE_BF16, GROUP_ZERO_U8, 1, NULL},
    {4, 256, GROUP_SCALE_F32, GROUP_ZERO_SAME, 8, NULL},
    {4, 16, GROUP_SCALE_F32, GROUP_ZERO_SAME, 16, group_book_e2m1},
    {4, 32, GROUP_SCALE_F32, GROUP_ZERO_SAME, 128, group_book_iq4},
    {4, 32, GROUP_SCALE_NESTED, GROUP_MIN_NESTED, 0, NULL},
    {4, 128, GROUP_SCALE_NESTED, GROUP_ZERO_SAME, 128, group_book_iq4},
    {8, 32, GROUP_SCALE_F16, GROUP_ZERO_SAME, 128, NULL},
    {8, 16, GROUP_SCALE_NESTED, GROUP_ZERO_SAME, 32, NULL},
    {6, 16, GROUP_SCALE_NESTED, GROUP_ZERO_SAME, 32, NULL},
    {5, 32, GROUP_SCALE_F16, GROUP_MIN_F16, 0, NULL},
    {3, 16, GROUP_SCALE_NESTED, GROUP_ZERO_SAME, 4, NULL},
    {2, 16, GROUP_SCALE_NESTED, GROUP_MIN_NESTED, 0, NULL},
};

enum { MOST = 40, N_FORMATS = sizeof formats / sizeof *formats };

// Results of the first set without and the first with fused multiply-adds.
static float results[2][N_FORMATS][2][MOST * ROWS];
static bool have_results[2];

// linear rounds an x to a multiple of 1 / X_LARGEST of the largest of its X_COLUMNS columns. Even rows are random; odd
// ones have numbers that it takes without rounding.
static void make_x(float *x) {
    op_seed(35); // the same for all sets
    for (int i = 0; i < MOST * COLS; i++) {
        const int k = i % COLS;
        x[i] = op_random();
        if (i / COLS % 2)
            x[i] =
                k % X_COLUMNS ? rintf(x[i] * X_LARGEST / 4) / X_UNITS : (float)X_LARGEST / X_UNITS;
    }
}

static double rounding_of(const float *x, int k) {
    const int first = k / X_COLUMNS * X_COLUMNS;
    float most = 0;
    for (int i = first; i < first + X_COLUMNS && i < COLS; i++) most = fmaxf(most, fabsf(x[i]));
    return most / (2.0 * X_LARGEST) * 1.0001;
}

static void check_format(struct backend *be, int format, int n_parts, bool fuses) {
    float *result = results[fuses][format][n_parts - 1];
    static float x[MOST * COLS], all[MOST * ROWS], one[MOST * ROWS], wide[COLS];
    const struct group_format *f = &formats[format];
    static uint8_t codes[512];
    float scales[64] = {0};
    uint16_t zeros[64] = {0}, supers[2], min_supers[2];
    struct group_row row = {codes, scales, supers, zeros, min_supers};
    const struct group_rows rows = {*f, COLS, 0};
    const struct group_source source = {*f, group_rows_fill, &rows};
    struct tensor_view v[2] = {{.data = &source, .dtype = DTYPE_U8, .rows = ROWS, .cols = COLS},
                               {.data = &source, .dtype = DTYPE_U8, .rows = ROWS, .cols = COLS}};
    struct weight w;
    struct err err = {0};
    if (n_parts == 2) v[0].rows = 32, v[1].rows = ROWS - 32;
    if (be->ops->weight_init(be, &w, v, n_parts, &err) < 0) fail_msg("%s", err.text);
    assert_true(w.bytes * 8 < (size_t)(96 * 512) * (size_t)(f->bits + 4));
    make_x(x);
    double rounding[MOST][COLS];
    for (int r = 0; r < MOST; r++)
        for (int k = 0; k < COLS; k++)
            rounding[r][k] = r % 2 ? 0 : rounding_of(x + (ptrdiff_t)r * COLS, k);
    be->ops->linear(be, LINEAR_STORE, all, x, MOST, &w, NULL);
    for (int o = 0; o < ROWS; o++) {
        group_rows_fill(&rows, n_parts == 2 && o >= 32 ? o - 32 : o, &row, NULL);
        weight_row(&w, o, wide);
        double value[COLS];
        for (int k = 0; k < COLS; k++) {
            double want = value[k] = group_row_value(f, &row, k);
            op_near(wide[k], want, 1.2e-7 * (fabs(want) + 0.5), "weight", o * COLS + k);
        }
        for (int r = 0; r < MOST; r++) {
            double sum = 0, size = 0, off = 0;
            for (int k = 0; k < COLS; k++) {
                double term = x[r * COLS + k] * value[k];
                sum += term;
                size += fabs(term) + 0.01;
                off += rounding[r][k] * fabs(value[k]);
            }
            op_near(all[r * ROWS + o], sum, 6e-7 * (size + 1) + off, "y", r * ROWS + o);
        }
    }
    if (!have_results[fuses]) memcpy(result, all, sizeof all);
    assert_memory_equal(all, result, sizeof all);
    static const int32_t counts[] = {1, 2, 3, 4, 5, 8, 16, 17, 33};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        be->ops->linear(be, LINEAR_STORE, one, x, counts[c], &w, NULL);
        assert_memory_equal(one, all, (size_t)(counts[c] * ROWS) * sizeof *one);
    }
    // Two bad values in three rows; the row between them is as before.
    x[3] = NAN;
    x[2 * COLS + COLS - 1] = -INFINITY;
    be->ops->linear(be, LINEAR_STORE, one, x, 3, &w, NULL);
    for (int o = 0; o < ROWS; o++) assert_true(!isfinite(one[o]) && !isfinite(one[2 * ROWS + o]));
    assert_memory_equal(one + ROWS, all + ROWS, ROWS * sizeof *one);
    be->ops->weight_release(be, &w);
}
