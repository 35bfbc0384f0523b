// linear with 8-bit weights: against double precision on the very integers and scales; and that its
// sums are exact: the same bits whatever the batch, the threads and the instruction set.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/int8_rows.h"
#include "kernels/int8.h"
#include "tests/ops/ops_fixture.h"

struct matrix {
    int32_t rows, cols;
    int8_t *q;     // (rows, cols)
    float *scales; // (rows)
    struct tensor_view views[3];
    int n_views;
};

static struct matrix make_matrix(int32_t rows, int32_t cols, int n_views) {
    struct matrix m = {.rows = rows, .cols = cols, .n_views = n_views};
    m.q = malloc((size_t)rows * (size_t)cols);
    m.scales = malloc((size_t)rows * sizeof *m.scales);
    assert_true(m.q && m.scales);
    for (int64_t i = 0; i < (int64_t)rows * cols; i++) {
        int q = (int)(op_random() * 40);
        m.q[i] = (int8_t)(i % 13 == 0   ? 127
                          : i % 17 == 0 ? -127
                          : q > 127     ? 127
                          : q < -127    ? -127
                                        : q);
    }
    for (int32_t r = 0; r < rows; r++)
        m.scales[r] = r % 5 == 4 ? 0 : 0.0005f * (1 + fabsf(op_random()));
    for (int i = 0, from = 0; i < n_views; i++) {
        int32_t n = i == n_views - 1 ? rows - from : rows / n_views;
        m.views[i] = (struct tensor_view){
            m.q + (int64_t)from * cols, DTYPE_I8, n, cols, cols, 1, m.scales + from, 0};
        from += n;
    }
    return m;
}

static void free_matrix(struct matrix *m) {
    free(m->q);
    free(m->scales);
}

static struct weight make_weight(struct backend *be, const struct matrix *m) {
    struct weight w;
    struct err err = {0};
    if (be->ops->weight_init(be, &w, m->views, m->n_views, &err) < 0)
        fail_msg("weight_init: %s", err.text);
    assert_int_equal(w.dtype, DTYPE_I8);
    return w;
}

// What the integers of X lose (2^-24 of the row's largest value for each weight), what F32 rounds
// at the end.
static void check_against_double(const struct matrix *m, const float *y, const float *y0,
                                 const float *x, int32_t n, const float *bias) {
    for (int32_t r = 0; r < n; r++) {
        double largest = 0;
        for (int32_t k = 0; k < m->cols; k++)
            largest = fmax(largest, fabs((double)x[(int64_t)r * m->cols + k]));
        for (int32_t o = 0; o < m->rows; o++) {
            double sum = 0, weights = 0;
            for (int32_t k = 0; k < m->cols; k++) {
                double q = m->q[(int64_t)o * m->cols + k] * (double)m->scales[o];
                sum += x[(int64_t)r * m->cols + k] * q;
                weights += fabs(q);
            }
            double want = sum + (bias ? bias[o] : 0) + (y0 ? y0[(int64_t)r * m->rows + o] : 0);
            double slack = ldexp(largest * weights, -24) +
                           1.2e-7 * (fabs(sum) + (bias ? fabs(bias[o]) : 0) + fabs(want));
            op_near(y[(int64_t)r * m->rows + o], want, slack, "y", (int64_t)r * m->rows + o);
        }
    }
}

static void shape(struct backend *be, int32_t rows, int32_t cols, int32_t n, int n_views) {
    struct matrix m = make_matrix(rows, cols, n_views);
    struct weight w = make_weight(be, &m);
    float *x = op_floats((int64_t)n * cols), *bias = op_floats(rows);
    float *y = op_floats((int64_t)n * rows), *y0 = malloc(sizeof *y0 * (size_t)n * (size_t)rows);
    memcpy(y0, y, sizeof *y * (size_t)n * (size_t)rows);
    assert_int_equal(be->ops->linear(be, LINEAR_ADD, y, x, n, &w, bias), 0);
    check_against_double(&m, y, y0, x, n, bias);
    assert_int_equal(be->ops->linear(be, LINEAR_STORE, y, x, n, &w, NULL), 0);
    check_against_double(&m, y, NULL, x, n, NULL);
    free(x), free(y), free(y0), free(bias);
    be->ops->weight_release(be, &w);
    free_matrix(&m);
}

static void shapes(struct backend *be) {
    op_seed(1);
    shape(be, 1, 1, 1, 1);
    shape(be, 5, 3, 2, 1);
    shape(be, 16, 64, 1, 1);
    shape(be, 17, 65, 3, 1);
    shape(be, 33, 127, 9, 2);
    shape(be, 100, 190, 4, 3);
    shape(be, 300, 400, 1, 3);
    shape(be, 48, 2048, 2, 1);
    shape(be, 40, 2049, 33, 1); // more than a block of K
    shape(be, 24, 6001, 5, 1);
    shape(be, 7, 130, 600, 1); // more than a pass of rows
}
static void test_shapes(void **state) {
    op_each_backend(shapes);
}

// The largest sums that there can be: the integers' ends on both sides, blocks of K full.
static void extremes(struct backend *be) {
    enum { COLS = 4200, ROWS = 18 };
    static const float values[] = {1, -1, 8355711.0f / 8388608, 0.99999994f, 3e38f, -3.4028234e38f};
    struct matrix m = make_matrix(ROWS, COLS, 1);
    float *x = malloc(COLS * sizeof *x), y[ROWS];
    for (int32_t o = 0; o < ROWS; o++) {
        m.scales[o] = 1e-6f;
        for (int32_t k = 0; k < COLS; k++)
            m.q[o * COLS + k] = o % 3 == 0 ? 127 : o % 3 == 1 ? -127 : k % 2 ? 127 : -127;
    }
    struct weight w = make_weight(be, &m);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        for (int alternate = 0; alternate < 2; alternate++) {
            for (int32_t k = 0; k < COLS; k++) x[k] = alternate && k % 2 ? -values[i] : values[i];
            assert_int_equal(be->ops->linear(be, LINEAR_STORE, y, x, 1, &w, NULL), 0);
            if (i < 4) check_against_double(&m, y, NULL, x, 1, NULL);
            for (int o = 0; o < ROWS; o++) assert_false(isnan(y[o]));
        }
    be->ops->weight_release(be, &w);
    free(x);
    free_matrix(&m);
}
static void test_extremes(void **state) {
    op_each_backend(extremes);
}

// Values far apart: what is small beside the row's largest is rounded to that one's grid, no worse.
// And rows of zeros, of denormals, of what is no number.
static void odd_rows(struct backend *be) {
    enum { COLS = 100, ROWS = 20, N = 6 };
    op_seed(3);
    struct matrix m = make_matrix(ROWS, COLS, 1);
    struct weight w = make_weight(be, &m);
    float *x = op_floats(N * COLS), y[N * ROWS];
    for (int k = 0; k < COLS; k++) {
        x[k] *= k == 7 ? 1e6f : 1e-3f;
        x[COLS + k] = 0;
        x[2 * COLS + k] *= 1e-36f;
        x[3 * COLS + k] *= 1e37f;
    }
    x[4 * COLS + 99] = INFINITY;
    x[5 * COLS + 3] = NAN;
    assert_int_equal(be->ops->linear(be, LINEAR_STORE, y, x, N, &w, NULL), 0);
    check_against_double(&m, y, NULL, x, 2, NULL);
    check_against_double(&m, y + 3 * ROWS, NULL, x + 3 * COLS, 1, NULL);
    for (int o = 0; o < ROWS; o++) {
        assert_true(y[ROWS + o] == 0);
        assert_true(fabsf(y[2 * ROWS + o]) < 1e-35f && !isnan(y[2 * ROWS + o]));
        assert_true(isnan(y[4 * ROWS + o]) && isnan(y[5 * ROWS + o]));
    }
    be->ops->weight_release(be, &w);
    free(x);
    free_matrix(&m);
}
static void test_odd_rows(void **state) {
    op_each_backend(odd_rows);
}

// One result for all sets, thread counts, places in a batch and sizes of it.
enum { SAME_ROWS = 333, SAME_COLS = 2300, SAME_N = 70 };
static float *same_x, *same_y;
static void same_bits(struct backend *be) {
    op_seed(5);
    struct matrix m = make_matrix(SAME_ROWS, SAME_COLS, 2);
    struct weight w = make_weight(be, &m);
    float *y = malloc(sizeof *y * SAME_N * SAME_ROWS);
    static const int32_t batches[] = {SAME_N, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 33};
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        for (int32_t r = 0, n; r < SAME_N; r += n) {
            n = SAME_N - r < batches[i] ? SAME_N - r : batches[i];
            be->ops->linear(be, LINEAR_STORE, y + r * SAME_ROWS, same_x + r * SAME_COLS, n, &w,
                            NULL);
        }
        if (!same_y) {
            same_y = malloc(sizeof *y * SAME_N * SAME_ROWS);
            memcpy(same_y, y, sizeof *y * SAME_N * SAME_ROWS);
        }
        op_same_bits(y, same_y, SAME_N * SAME_ROWS, "y");
    }
    free(y);
    be->ops->weight_release(be, &w);
    free_matrix(&m);
}

// Also without the instructions that the processor may have beyond a set's own.
static void test_same_bits(void **state) {
    op_seed(4);
    same_x = op_floats(SAME_N * SAME_COLS);
    same_x[5 * SAME_COLS + 9] = 300;
    op_each_backend(same_bits);
#if defined(__x86_64__)
    static const struct {
        const char *isa;
        const struct cpu_kernels *kernels;
    } plain[] = {{"avx2", &cpu_kernels_avx2}, {"avx512", &cpu_kernels_avx512}};
    for (int i = 0; i < 2; i++) {
        struct backend *be;
        if (backend_cpu_open(&be, 2, plain[i].isa, NULL) < 0) continue;
        cpu_of(be)->table.int8_item = plain[i].kernels->int8_item;
        cpu_of(be)->table.int8_split = plain[i].kernels->int8_split;
        same_bits(be);
        shapes(be);
        extremes(be);
        odd_rows(be);
        be->ops->close(be);
    }
#endif
    free(same_x);
    free(same_y);
}

static void embeds(struct backend *be) {
    enum { VOCAB = 50, WIDTH = 70 };
    op_seed(6);
    struct matrix m = make_matrix(VOCAB, WIDTH, 1);
    struct weight w = make_weight(be, &m);
    const int32_t ids[] = {0, 49, 17, 17};
    struct batch b = {.n_rows = 4, .ids = ids};
    float y[4 * WIDTH];
    assert_int_equal(be->ops->embed(be, y, &b, &w, 1), 0);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < WIDTH; k++)
            assert_true(y[i * WIDTH + k] == m.scales[ids[i]] * (float)m.q[ids[i] * WIDTH + k]);
    be->ops->weight_release(be, &w);
    free_matrix(&m);
}
static void test_embeds(void **state) {
    op_each_backend(embeds);
}

static void refused(struct backend *be) {
    int8_t q[8] = {0};
    float scales[2] = {1, 1}, data[4] = {0};
    struct weight w;
    struct err err = {0};
    struct tensor_view v[2] = {{q, DTYPE_I8, 2, 4, 4, 1, NULL, 0},
                               {data, DTYPE_F32, 1, 4, 4, 1, NULL, 0}};
    assert_int_equal(be->ops->weight_init(be, &w, v, 1, &err), E_INVAL);
    assert_non_null(strstr(err.text, "scales"));
    v[0].scales = scales;
    assert_int_equal(be->ops->weight_init(be, &w, v, 2, &err), E_UNSUPPORTED);
    assert_null(w.data);
    assert_int_equal(be->ops->weight_init(be, &w, v, 1, &err), 0);
    be->ops->weight_release(be, &w);
}
static void test_refused(void **state) {
    op_each_backend(refused);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),   cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_odd_rows), cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_embeds),   cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
