// Shared by the tests of linear: stacked weights in all formats of files, and the comparison with
// double precision.
#pragma once
#include "kernels/cpu/cpu.h"
#include "tests/ops/ops_fixture.h"

struct matrix {
    struct tensor_view views[3];
    int n_views;
    void *data;
    int32_t rows, cols;
};

// How the stack's weights are spread. WIDE puts exponents far apart, with zeros and denormals.
enum spread { NORMAL, WIDE };

static inline struct matrix make_matrix(enum dtype t, int32_t rows, int32_t cols, bool transposed,
                                        int n_views, enum spread spread) {
    struct matrix m = {.n_views = n_views, .rows = rows, .cols = cols};
    // a margin on each side, so that strides differ from those of the shape
    int64_t stride = (transposed ? rows : cols) + 3;
    int64_t n = stride * ((transposed ? cols : rows) + 1);
    m.data = malloc((size_t)n * dtype_size(t));
    assert_non_null(m.data);
    for (int64_t i = 0; i < n; i++) {
        float v = op_random() * 0.02f;
        if (spread == WIDE && i % 7 == 0) v *= 1e-6f;
        if (spread == WIDE && i % 11 == 0) v = 0;
        if (spread == WIDE && i % 501 == 0) v = 3e-39f;
        op_write(t, m.data, i, v);
    }
    int32_t from = 0;
    for (int i = 0; i < n_views; i++) {
        int32_t part = i == n_views - 1 ? rows - from : rows / n_views;
        int64_t row_stride = transposed ? 1 : stride, col_stride = transposed ? stride : 1;
        m.views[i] = (struct tensor_view){.data = (char *)m.data +
                                                  (size_t)(from * row_stride) * dtype_size(t),
                                          .dtype = t,
                                          .rows = part,
                                          .cols = cols,
                                          .row_stride = row_stride,
                                          .col_stride = col_stride};
        from += part;
    }
    return m;
}

static inline double matrix_at(const struct matrix *m, int32_t row, int32_t col) {
    const struct tensor_view *v = m->views;
    while (row >= v->rows) row -= (int32_t)v++->rows;
    return op_read(v->dtype, v->data, row * v->row_stride + col * v->col_stride);
}

static inline void check_against_double(const struct matrix *m, const float *y, const float *y0,
                                        const float *x, int32_t n, const float *bias) {
    for (int32_t r = 0; r < n; r++)
        for (int32_t o = 0; o < m->rows; o++) {
            double sum = 0, size = 0;
            for (int32_t k = 0; k < m->cols; k++) {
                double term = x[(int64_t)r * m->cols + k] * matrix_at(m, o, k);
                sum += term;
                size += fabs(term);
            }
            double want = sum + (bias ? bias[o] : 0) + (y0 ? y0[(int64_t)r * m->rows + o] : 0);
            double slack = 1.2e-7 * (size + 4 * fabs(want) + 1) * (1 + sqrt(m->cols) / 8);
            op_near(y[(int64_t)r * m->rows + o], want, slack, "y", (int64_t)r * m->rows + o);
        }
}

// A weight packed to 12 bits or not, where the set packs at all.
static inline struct weight make_weight(struct backend *be, const struct matrix *m, bool packed) {
    struct weight w;
    struct err err = {0};
    cpu_raw_budget_set(cpu_of(be), packed ? 0 : SIZE_MAX);
    if (be->ops->weight_init(be, &w, m->views, m->n_views, &err) < 0)
        fail_msg("weight_init: %s", err.text);
    return w;
}
