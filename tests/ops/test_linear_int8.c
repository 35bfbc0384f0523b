// linear with 8-bit weights, against double precision on the same integers and scales. Its sums are exact,
// so the bits must not depend on batch, threads and instruction set.
#include "tests/ops/scaled_world.h"

static struct matrix integers(int32_t rows, int32_t cols, int n_views) {
    return make_matrix(DTYPE_I8, rows, cols, n_views, 0, false);
}

static void shape(struct backend *be, int32_t rows, int32_t cols, int32_t n, int n_views) {
    struct matrix m = integers(rows, cols, n_views);
    check_linear(be, &m, n);
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

// The largest possible sums: extreme integers on both sides, and full blocks of K.
static void extremes(struct backend *be) {
    enum { COLS = 4200, ROWS = 18 };
    static const float values[] = {1, -1, 8355711.0f / 8388608, 0.99999994f, 3e38f, -3.4028234e38f};
    struct matrix m = integers(ROWS, COLS, 1);
    float *x = malloc(COLS * sizeof *x), y[ROWS];
    for (int32_t o = 0; o < ROWS; o++) {
        m.scales[o] = 1e-6f;
        for (int32_t k = 0; k < COLS; k++)
            m.q[o * COLS + k] = (uint8_t)(o % 3 == 0   ? 127
                                          : o % 3 == 1 ? -127
                                          : k % 2      ? 127
                                                       : -127);
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

// Values of very different size: a small one has at most the rounding error that the row's largest value
// implies. Also rows of zeros, of denormals, of infinities and NaNs.
static void odd_rows(struct backend *be) {
    enum { COLS = 100, ROWS = 20, N = 6 };
    op_seed(3);
    struct matrix m = integers(ROWS, COLS, 1);
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
    struct matrix m = integers(SAME_ROWS, SAME_COLS, 2);
    check_same_bits(be, &m, same_x, SAME_N, &same_y);
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
    op_seed(6);
    struct matrix m = integers(50, 70, 1);
    check_embed(be, &m);
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
