// Shared by the tests of linear with 8-bit weights: a matrix of integers or e4m3 codes with its scales, the
// comparison with double precision on the same numbers, and the check that bits do not depend on the
// batch.
#pragma once
#include "kernels/cpu/cpu.h"
#include "kernels/fp8.h"
#include "tests/ops/ops_fixture.h"

struct matrix {
    enum dtype dtype; // DTYPE_I8 or DTYPE_F8_E4M3
    int32_t rows, cols, n_blocks;
    uint8_t *q;    // (rows, cols), or (cols, rows) if turned
    float *scales; // (rows, n_blocks)
    struct tensor_view views[3];
    int n_views;
    bool turned;
};

static inline int64_t matrix_place(const struct matrix *m, int32_t row, int32_t col) {
    return m->turned ? (int64_t)col * m->rows + row : (int64_t)row * m->cols + col;
}

// The ends among them, -128 not.
static inline uint8_t random_i8(int64_t i) {
    int q = (int)(op_random() * 40);
    return (uint8_t)(int8_t)(i % 13 == 0   ? 127
                             : i % 17 == 0 ? -127
                             : q > 127     ? 127
                             : q < -127    ? -127
                                           : q);
}
// All 254 codes among them, many that are denormals.
static inline uint8_t random_e4m3(int64_t i) {
    uint8_t code = (uint8_t)(i * 89 % 127);
    uint8_t q = i % 5 == 0 ? code : e4m3_from_f32(op_random() * (i % 3 == 0 ? 0.01f : 60));
    return i % 7 == 0 ? q ^ 0x80 : q;
}

// block_k: FP8_BLOCK for a scale for each block, else 0.
static inline struct matrix make_matrix(enum dtype t, int32_t rows, int32_t cols, int n_views,
                                        int32_t block_k, bool turned) {
    struct matrix m = {
        .dtype = t, .rows = rows, .cols = cols, .n_views = n_views, .turned = turned};
    m.n_blocks = fp8_blocks(cols, block_k);
    m.q = malloc((size_t)rows * (size_t)cols);
    m.scales = malloc((size_t)(rows * m.n_blocks) * sizeof *m.scales);
    assert_true(m.q && m.scales);
    for (int64_t i = 0; i < (int64_t)rows * cols; i++)
        m.q[i] = t == DTYPE_I8 ? random_i8(i) : random_e4m3(i);
    for (int32_t i = 0; i < rows * m.n_blocks; i++)
        m.scales[i] = i % 5 == 4 ? 0 : 0.0005f * (1 + fabsf(op_random()));
    for (int i = 0, from = 0; i < n_views; i++) {
        int32_t n = i == n_views - 1 ? rows - from : rows / n_views;
        m.views[i] = (struct tensor_view){
            m.q + matrix_place(&m, from, 0), t,      n, cols, turned ? 1 : cols, turned ? rows : 1,
            m.scales + from * m.n_blocks,    block_k};
        from += n;
    }
    return m;
}

static inline void free_matrix(struct matrix *m) {
    free(m->q);
    free(m->scales);
}

static inline struct weight make_weight(struct backend *be, const struct matrix *m) {
    struct weight w;
    struct err err = {0};
    if (be->ops->weight_init(be, &w, m->views, m->n_views, &err) < 0)
        fail_msg("weight_init: %s", err.text);
    assert_int_equal(w.dtype, m->dtype);
    return w;
}

static inline double matrix_at(const struct matrix *m, int32_t row, int32_t col) {
    float scale = m->scales[row * m->n_blocks + (m->n_blocks > 1 ? col / FP8_BLOCK : 0)];
    uint8_t q = m->q[matrix_place(m, row, col)];
    return (double)scale * (m->dtype == DTYPE_I8 ? (double)(int8_t)q : (double)e4m3_to_f32(q));
}

// How far a sum may be from the true one. Integers: what those of x lose (2^-24 of the row's
// largest value for each weight) and what F32 rounds at the end; e4m3: F32's rounding of a sum of
// so many terms, by their sizes.
static inline double sum_slack(const struct matrix *m, double sum, double want, double bias,
                               double terms, double weights, double largest_x) {
    if (m->dtype == DTYPE_I8)
        return ldexp(largest_x * weights, -24) + 1.2e-7 * (fabs(sum) + fabs(bias) + fabs(want));
    return terms * 1.2e-7 * (2 + sqrt(m->cols)) + 2.4e-7 * (fabs(sum) + fabs(bias) + fabs(want));
}

static inline void check_against_double(const struct matrix *m, const float *y, const float *y0,
                                        const float *x, int32_t n, const float *bias) {
    for (int32_t r = 0; r < n; r++, x += m->cols, y += m->rows) {
        double largest = 0;
        for (int32_t k = 0; k < m->cols; k++) largest = fmax(largest, fabs((double)x[k]));
        for (int32_t o = 0; o < m->rows; o++) {
            double sum = 0, terms = 0, weights = 0, b = bias ? bias[o] : 0;
            for (int32_t k = 0; k < m->cols; k++) {
                double w = matrix_at(m, o, k);
                sum += x[k] * w;
                terms += fabs(x[k] * w);
                weights += fabs(w);
            }
            double want = sum + b + (y0 ? y0[(int64_t)r * m->rows + o] : 0);
            op_near(y[o], want, sum_slack(m, sum, want, b, terms, weights, largest), "y",
                    (int64_t)r * m->rows + o);
        }
    }
}

// STORE and ADD, with bias and without.
static inline void check_linear(struct backend *be, const struct matrix *m, int32_t n) {
    struct weight w = make_weight(be, m);
    int64_t outputs = (int64_t)n * m->rows;
    float *x = op_floats((int64_t)n * m->cols), *bias = op_floats(m->rows);
    float *y = op_floats(outputs), *y0 = malloc(sizeof *y0 * (size_t)outputs);
    memcpy(y0, y, sizeof *y * (size_t)outputs);
    assert_int_equal(be->ops->linear(be, LINEAR_ADD, y, x, n, &w, bias), 0);
    check_against_double(m, y, y0, x, n, bias);
    assert_int_equal(be->ops->linear(be, LINEAR_STORE, y, x, n, &w, NULL), 0);
    check_against_double(m, y, NULL, x, n, NULL);
    free(x), free(y), free(y0), free(bias);
    be->ops->weight_release(be, &w);
}

// Each row's bits in batches of many sizes are those of *same (n, m->rows); *same is made by the
// first call that finds it NULL.
static inline void check_same_bits(struct backend *be, const struct matrix *m, const float *x,
                                   int32_t n, float **same) {
    static const int32_t batches[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 33};
    struct weight w = make_weight(be, m);
    float *y = malloc(sizeof *y * (size_t)(n * m->rows));
    be->ops->linear(be, LINEAR_STORE, y, x, n, &w, NULL);
    if (!*same) {
        *same = malloc(sizeof *y * (size_t)(n * m->rows));
        memcpy(*same, y, sizeof *y * (size_t)(n * m->rows));
    }
    op_same_bits(y, *same, (int64_t)n * m->rows, "y");
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        for (int32_t r = 0, rows; r < n; r += rows) {
            rows = n - r < batches[i] ? n - r : batches[i];
            be->ops->linear(be, LINEAR_STORE, y + r * m->rows, x + r * m->cols, rows, &w, NULL);
        }
        op_same_bits(y, *same, (int64_t)n * m->rows, "y");
    }
    free(y);
    be->ops->weight_release(be, &w);
}

// Rows looked up are exactly number times scale.
static inline void check_embed(struct backend *be, const struct matrix *m) {
    const int32_t ids[] = {0, m->rows - 1, m->rows / 3, m->rows / 3};
    struct batch b = {.n_rows = 4, .ids = ids};
    struct weight w = make_weight(be, m);
    float *y = malloc(sizeof *y * 4 * (size_t)m->cols);
    assert_int_equal(be->ops->embed(be, y, &b, &w, 1), 0);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < m->cols; k++)
            assert_true(y[i * m->cols + k] == (float)matrix_at(m, ids[i], k));
    free(y);
    be->ops->weight_release(be, &w);
}
