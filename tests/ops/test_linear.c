// linear and weight packing, against double precision, for all dtypes, odd shapes, stacked and transposed
// views. A row's bits must not depend on n, on its place, or on the number of threads (rule 1 of
// kernels/README.md).
#include "tests/ops/linear_world.h"

// The layout of bf16 weights must not change a bit.
static void check_unpacked(struct backend *be, const struct matrix *m, const float *y,
                           const float *x, int32_t n, const float *bias) {
    struct weight w = make_weight(be, m, false);
    assert_int_equal(w.layout, PANEL_BF16);
    float *raw = malloc((size_t)n * (size_t)m->rows * sizeof *raw);
    assert_int_equal(be->ops->linear(be, LINEAR_STORE, raw, x, n, &w, bias), 0);
    op_same_bits(raw, y, (int64_t)n * m->rows, "unpacked");
    assert_int_equal(be->ops->linear(be, LINEAR_STORE, raw, x, 1, &w, bias), 0);
    op_same_bits(raw, y, m->rows, "unpacked row alone");
    be->ops->weight_release(be, &w);
    free(raw);
}

static void check_case(struct backend *be, enum dtype t, int32_t rows, int32_t cols, int32_t n,
                       bool transposed, int n_views, enum spread spread) {
    op_seed((uint64_t)(rows * 1000 + cols * 10 + n));
    struct matrix m = make_matrix(t, rows, cols, transposed, n_views, spread);
    struct weight w = make_weight(be, &m, true);
    assert_int_equal(w.rows, rows);
    assert_int_equal(w.cols, cols);
    float *x = op_floats((int64_t)n * cols), *bias = op_floats(rows),
          *y0 = op_floats((int64_t)n * rows);
    size_t bytes = (size_t)n * (size_t)rows * sizeof(float);
    float *y = malloc(bytes), *added = malloc(bytes), *alone = malloc((size_t)rows * sizeof(float));
    assert_int_equal(be->ops->linear(be, LINEAR_STORE, y, x, n, &w, bias), 0);
    check_against_double(&m, y, NULL, x, n, bias);
    if (t == DTYPE_BF16) check_unpacked(be, &m, y, x, n, bias);
    memcpy(added, y0, bytes);
    assert_int_equal(be->ops->linear(be, LINEAR_ADD, added, x, n, &w, NULL), 0);
    check_against_double(&m, added, y0, x, n, NULL);
    for (int32_t r = 0; r < n; r++) { // each row alone, and from a batch that starts in the middle
        assert_int_equal(
            be->ops->linear(be, LINEAR_STORE, alone, x + (int64_t)r * cols, 1, &w, bias), 0);
        op_same_bits(alone, y + (int64_t)r * rows, rows, "row alone");
    }
    for (int32_t from = 1; from < n; from += n / 3 + 1) {
        be->ops->linear(be, LINEAR_STORE, added, x + (int64_t)from * cols, n - from, &w, bias);
        op_same_bits(added, y + (int64_t)from * rows, (int64_t)(n - from) * rows,
                     "rows from the middle");
    }
    be->ops->weight_release(be, &w);
    free(x), free(bias), free(y0), free(y), free(added), free(alone), free(m.data);
}

static void shapes(struct backend *be) {
    static const int32_t sizes[] = {1, 3, 17, 63, 130};
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < 5; i++)
            for (int j = 0; j < 5; j++) {
                int32_t n = 1 + (i * 5 + j) * 3 % 20; // 1 to 20
                check_case(be, types[t], sizes[i], sizes[j], n, (i + j) % 2, 1, NORMAL);
            }
}

static void row_counts(struct backend *be) {
    for (int32_t n = 1; n <= 34; n++)
        check_case(be, n % 3 ? DTYPE_BF16 : DTYPE_F16, 150, 70, n, false, 1, NORMAL);
    check_case(be, DTYPE_BF16, 70, 66, 530, false, 1, NORMAL); // more than a block of rows
    check_case(be, DTYPE_F32, 40, 600, 40, false, 1, NORMAL);  // more than a block of K
    check_case(be, DTYPE_BF16, 300, 1100, 19, true, 2, NORMAL);
}

static void stacks(struct backend *be) {
    check_case(be, DTYPE_BF16, 96, 64, 5, false, 3, NORMAL);
    check_case(be, DTYPE_BF16, 97, 65, 12, true, 3, NORMAL);
    check_case(be, DTYPE_F32, 50, 33, 3, true, 2, NORMAL);
    check_case(be, DTYPE_BF16, 64, 200, 1, false, 1, WIDE);
    check_case(be, DTYPE_BF16, 64, 200, 9, false, 2, WIDE);
    check_case(be, DTYPE_BF16, 128, 321, 40, true, 1, WIDE);
}

static void test_shapes(void **state) {
    op_each_backend(shapes);
}
static void test_row_counts(void **state) {
    op_each_backend(row_counts);
}
static void test_stacks(void **state) {
    op_each_backend(stacks);
}

// The same bits with any number of threads.
static void test_threads(void **state) {
    for (int i = 0; i < OP_N_ISAS; i++) {
        enum { ROWS = 333, COLS = 290, N = 37 };
        op_seed(5);
        struct matrix m = make_matrix(DTYPE_BF16, ROWS, COLS, false, 1, NORMAL);
        float *x = op_floats(N * COLS), *y[2] = {malloc(N * ROWS * 4), malloc(N * ROWS * 4)};
        bool have = true;
        for (int threads = 1; threads <= 4 && have; threads++) {
            struct backend *be;
            have = backend_cpu_open(&be, threads, op_isas[i], NULL) == 0;
            if (!have) break;
            struct weight w;
            assert_int_equal(be->ops->weight_init(be, &w, m.views, 1, NULL), 0);
            for (int32_t n = N; n >= 1; n -= 12) { // all of y first, then parts of it anew
                be->ops->linear(be, LINEAR_STORE, y[threads > 1], x, n, &w, NULL);
                if (threads > 1) op_same_bits(y[0], y[1], N * ROWS, "threads");
            }
            be->ops->weight_release(be, &w);
            be->ops->close(be);
        }
        free(m.data), free(x), free(y[0]), free(y[1]);
    }
}

static void refused(struct backend *be) {
    struct weight w;
    struct err err = {0};
    float data[8] = {0};
    struct tensor_view v[2] = {{data, DTYPE_I32, 1, 4, 4, 1, NULL, 0},
                               {data, DTYPE_F32, 1, 2, 2, 1, NULL, 0}};
    assert_int_equal(be->ops->weight_init(be, &w, v, 1, &err), E_UNSUPPORTED);
    v[0].dtype = DTYPE_F32;
    assert_int_equal(be->ops->weight_init(be, &w, v, 2, &err), E_INVAL);
    assert_int_equal(be->ops->weight_init(be, &w, v, 0, &err), E_INVAL);
    assert_null(w.data);
    be->ops->weight_release(be, &w); // nothing to release: no harm
}

// Which bf16 weights stay unpacked: small ones, while together they fit the cache.
static void budget(struct backend *be) {
    struct cpu_backend *cpu = cpu_of(be);
    if (cpu->kernels->bf16_layout != PANEL_BF12) return;
    enum { ROWS = 64, COLS = 64, BYTES = ROWS * COLS * 2 };
    struct matrix m = make_matrix(DTYPE_BF16, ROWS, COLS, false, 1, NORMAL);
    struct weight w[18];
    cpu_raw_budget_set(cpu, 16 * BYTES);
    for (int i = 0; i < 18; i++) {
        assert_int_equal(be->ops->weight_init(be, &w[i], m.views, 1, NULL), 0);
        assert_int_equal(w[i].layout, i < 16 ? PANEL_BF16 : PANEL_BF12);
    }
    be->ops->weight_release(be, &w[17]); // packed: returns nothing to the budget
    be->ops->weight_release(be, &w[3]);
    for (int i = 3; i < 18; i += 14) {
        assert_int_equal(be->ops->weight_init(be, &w[i], m.views, 1, NULL), 0);
        assert_int_equal(w[i].layout, i == 3 ? PANEL_BF16 : PANEL_BF12);
    }
    for (int i = 0; i < 18; i++) be->ops->weight_release(be, &w[i]);
    cpu_raw_budget_set(cpu, 7 * BYTES); // each is more than an eighth
    assert_int_equal(be->ops->weight_init(be, &w[0], m.views, 1, NULL), 0);
    assert_int_equal(w[0].layout, PANEL_BF12);
    be->ops->weight_release(be, &w[0]);
    free(m.data);
}

static void test_budget(void **state) {
    op_each_backend(budget);
}

static void test_refused(void **state) {
    op_each_backend(refused);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),  cmocka_unit_test(test_row_counts),
        cmocka_unit_test(test_stacks),  cmocka_unit_test(test_threads),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
