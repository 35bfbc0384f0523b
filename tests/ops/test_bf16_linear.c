// linear with products of bf16 (compute_dtype bf16), against double precision with rounded x, and on
// AVX512-BF16 bit for bit against the documented behaviour of its instruction. The bits must not depend on
// the number of rows and threads or on the layout. Also: what is refused.
#include "tests/ops/linear_world.h"

static const char *const wide_isas[] = {"avx512", "amx"};

static struct backend *open_bf16(const char *isa, int threads) {
    struct backend *be;
    struct err err = {0};
    int rc = backend_cpu_open_for(&be, DTYPE_BF16, threads, isa, &err);
    if (rc == E_UNSUPPORTED) return NULL;
    if (rc < 0) fail_msg("%s: %s", isa, err.text);
    assert_non_null(strstr(be->description, "products of bf16"));
    return be;
}

static void each_backend(void (*body)(struct backend *be)) {
    bool any = false;
    for (int i = 0; i < 2; i++)
        for (int threads = 1; threads <= 3; threads++) {
            struct backend *be = open_bf16(wide_isas[i], threads);
            if (!be) continue;
            any = true;
            body(be);
            be->ops->close(be);
        }
    if (any) return;
    print_message("no AVX512-BF16 and no AMX here: not run\n");
    skip();
}

// --- the instruction, in C
static float flush(float v) {
    return fabsf(v) < 0x1p-126f ? copysignf(0, v) : v;
}

static float round_bf16(float v) {
    return bf16_to_f32(bf16_from_f32(flush(v)));
}

static float dot_pair(float sum, const float x[2], const float w[2]) {
    sum = flush(fmaf(flush(x[1]), flush(w[1]), flush(sum)));
    return flush(fmaf(flush(x[0]), flush(w[0]), sum));
}

static float *rounded(const float *x, int64_t n) {
    float *r = op_floats(n);
    for (int64_t i = 0; i < n; i++) r[i] = round_bf16(x[i]);
    return r;
}

// y of row x (rounded) and output o.
static float twin(const struct matrix *m, const float *x, int32_t o, float bias) {
    float sum = 0;
    for (int32_t k = 0; k < m->cols; k += 2) {
        bool pair = k + 1 < m->cols;
        float xs[2] = {x[k], pair ? x[k + 1] : 0};
        float ws[2] = {(float)matrix_at(m, o, k), pair ? (float)matrix_at(m, o, k + 1) : 0};
        sum = dot_pair(sum, xs, ws);
    }
    return sum + bias;
}

// --- cases
static void check_rows(struct backend *be, const struct weight *w, const float *y, const float *x,
                       int32_t n, const float *bias) {
    float *part = malloc((size_t)n * (size_t)w->rows * sizeof *part);
    for (int32_t r = 0; r < n; r++) {
        be->ops->linear(be, LINEAR_STORE, part, x + (int64_t)r * w->cols, 1, w, bias);
        op_same_bits(part, y + (int64_t)r * w->rows, w->rows, "row alone");
    }
    for (int32_t from = 1; from < n; from += n / 4 + 1) {
        be->ops->linear(be, LINEAR_STORE, part, x + (int64_t)from * w->cols, n - from, w, bias);
        op_same_bits(part, y + (int64_t)from * w->rows, (int64_t)(n - from) * w->rows,
                     "rows from the middle");
    }
    free(part);
}

static void check_case(struct backend *be, int32_t rows, int32_t cols, int32_t n, int n_views,
                       enum spread spread) {
    op_seed((uint64_t)(rows * 1000 + cols * 10 + n));
    struct matrix m = make_matrix(DTYPE_BF16, rows, cols, n % 2, n_views, spread);
    float *x = op_floats((int64_t)n * cols), *bias = op_floats(rows),
          *y0 = op_floats((int64_t)n * rows);
    size_t bytes = (size_t)n * (size_t)rows * sizeof(float);
    float *xr = rounded(x, (int64_t)n * cols), *y = malloc(bytes), *other = malloc(bytes);
    struct weight w = make_weight(be, &m, true);
    assert_int_equal(be->ops->linear(be, LINEAR_STORE, y, x, n, &w, bias), 0);
    check_against_double(&m, y, NULL, xr, n, bias);
    if (!strstr(be->description, "AMX"))
        for (int32_t r = 0; r < n; r++)
            for (int32_t o = 0; o < rows; o++) {
                float want = twin(&m, xr + (int64_t)r * cols, o, bias[o]);
                op_same_bits(&y[(int64_t)r * rows + o], &want, 1, "vdpbf16ps");
            }
    check_rows(be, &w, y, x, n, bias);
    memcpy(other, y0, bytes);
    assert_int_equal(be->ops->linear(be, LINEAR_ADD, other, x, n, &w, NULL), 0);
    check_against_double(&m, other, y0, xr, n, NULL);
    be->ops->weight_release(be, &w);
    w = make_weight(be, &m, false);
    assert_int_equal(w.layout, PANEL_BF16);
    assert_int_equal(be->ops->linear(be, LINEAR_STORE, other, x, n, &w, bias), 0);
    op_same_bits(other, y, (int64_t)n * rows, "unpacked");
    check_rows(be, &w, y, x, n, bias);
    be->ops->weight_release(be, &w);
    free(x), free(xr), free(bias), free(y0), free(y), free(other), free(m.data);
}

static void row_counts(struct backend *be) {
    for (int32_t n = 1; n <= 64; n++) check_case(be, 75, 70, n, 1, NORMAL);
}

static void shapes(struct backend *be) {
    static const int32_t sizes[] = {1, 2, 31, 33, 257};
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 5; j++)
            check_case(be, sizes[i], sizes[j], 1 + (i * 5 + j) * 3 % 20, 1, NORMAL);
    check_case(be, 40, 70, 530, 1, NORMAL); // more than a block of rows
    check_case(be, 40, 600, 40, 1, NORMAL); // more than a block of K
    check_case(be, 300, 1100, 19, 2, NORMAL);
    check_case(be, 300, 1100, 3, 3, NORMAL);
    check_case(be, 64, 200, 1, 1, WIDE); // raw tiles, zeros, denormals
    check_case(be, 64, 200, 9, 2, WIDE);
    check_case(be, 128, 321, 40, 1, WIDE);
}

// Ties, denormals, the largest values, infinities and NaNs of x.
static void odd_values(struct backend *be) {
    enum { ROWS = 20, COLS = 40, N = 18 };
    op_seed(9);
    struct matrix m = make_matrix(DTYPE_BF16, ROWS, COLS, false, 1, NORMAL);
    struct weight w = make_weight(be, &m, true);
    float *x = op_floats(N * COLS), y[N * ROWS];
    for (int i = 0; i < COLS; i++) { // halfway between two bf16 values: rounded to the even one
        x[i] = 1 + (float)(2 * (i % 20) + 1) * 0x1p-8f;
        x[COLS + i] = i % 2 ? 2e-39f : 0;
        x[2 * COLS + i] = (i % 2 ? 1 : -1) * 1e37f;
    }
    x[3 * COLS + 7] = INFINITY;
    x[4 * COLS + 8] = NAN;
    float *xr = rounded(x, N * COLS);
    assert_int_equal(be->ops->linear(be, LINEAR_STORE, y, x, N, &w, NULL), 0);
    check_against_double(&m, y, NULL, xr, 3, NULL);
    for (int o = 0; o < ROWS; o++) {
        assert_true(y[ROWS + o] == 0);
        double inf = matrix_at(&m, o, 7) * INFINITY;
        assert_true(isnan(inf) ? isnan(y[3 * ROWS + o]) : y[3 * ROWS + o] == (float)inf);
        assert_true(isnan(y[4 * ROWS + o]));
    }
    check_against_double(&m, y + 5 * ROWS, NULL, xr + 5 * COLS, N - 5, NULL);
    be->ops->weight_release(be, &w);
    free(x), free(xr), free(m.data);
}

static void test_row_counts(void **state) {
    each_backend(row_counts);
}
static void test_shapes(void **state) {
    each_backend(shapes);
}
static void test_odd_values(void **state) {
    each_backend(odd_values);
}

// Only the rounding of x differs: the result equals F32 products of x rounded beforehand, within F32
// rounding.
static void beside_f32(struct backend *be) {
    enum { ROWS = 70, COLS = 300, N = 20 };
    op_seed(12);
    struct backend *f32;
    assert_int_equal(backend_cpu_open(&f32, 1, "portable", NULL), 0);
    struct matrix m = make_matrix(DTYPE_BF16, ROWS, COLS, false, 1, NORMAL);
    struct weight w = make_weight(be, &m, true), w32 = make_weight(f32, &m, true);
    float *x = op_floats(N * COLS), *xr = rounded(x, N * COLS), y[N * ROWS], z[N * ROWS];
    be->ops->linear(be, LINEAR_STORE, y, x, N, &w, NULL);
    f32->ops->linear(f32, LINEAR_STORE, z, xr, N, &w32, NULL);
    for (int i = 0; i < N * ROWS; i++) op_near(y[i], z[i], 2e-6, "rounded", i);
    f32->ops->linear(f32, LINEAR_STORE, z, x, N, &w32, NULL);
    double off = 0, size = 0;
    for (int i = 0; i < N * ROWS; i++) {
        off += (double)(y[i] - z[i]) * (double)(y[i] - z[i]);
        size += (double)z[i] * (double)z[i];
    }
    // Each x is off by up to 2^-9 of itself, at random: about 2^-9 / sqrt(3) of the result.
    assert_true(sqrt(off / size) > 2e-4 && sqrt(off / size) < 2e-3);
    be->ops->weight_release(be, &w);
    f32->ops->weight_release(f32, &w32);
    f32->ops->close(f32);
    free(x), free(xr), free(m.data);
}
static void test_beside_f32(void **state) {
    each_backend(beside_f32);
}

// The same bits with any number of threads.
static void test_threads(void **state) {
    enum { ROWS = 333, COLS = 290, N = 37 };
    for (int i = 0; i < 2; i++) {
        op_seed(5);
        struct matrix m = make_matrix(DTYPE_BF16, ROWS, COLS, false, 1, NORMAL);
        float *x = op_floats(N * COLS), *y[2] = {malloc(N * ROWS * 4), malloc(N * ROWS * 4)};
        for (int threads = 1; threads <= 4; threads++) {
            struct backend *be = open_bf16(wide_isas[i], threads);
            if (!be) break;
            struct weight w = make_weight(be, &m, true);
            for (int32_t n = N; n >= 1; n -= 12) {
                be->ops->linear(be, LINEAR_STORE, y[threads > 1], x, n, &w, NULL);
                if (threads > 1) op_same_bits(y[0], y[1], N * ROWS, "threads");
            }
            be->ops->weight_release(be, &w);
            be->ops->close(be);
        }
        free(m.data), free(x), free(y[0]), free(y[1]);
    }
}

// --- what is refused; weights whose x stays as it is
static void test_refused_sets(void **state) {
    struct backend *be;
    struct err err = {0};
    static const char *const sets[] = {"portable", "avx2"};
    for (int i = 0; i < 2; i++) {
        if (backend_cpu_open(&be, 1, sets[i], NULL) < 0) continue;
        be->ops->close(be);
        assert_int_equal(backend_cpu_open_for(&be, DTYPE_BF16, 1, sets[i], &err), E_UNSUPPORTED);
        assert_null(be);
        assert_non_null(strstr(err.text, "AVX512-BF16"));
    }
    assert_int_equal(backend_cpu_open_for(&be, DTYPE_F16, 1, "auto", &err), E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "f32 or bf16"));
    assert_int_equal(backend_cpu_open_for(&be, DTYPE_F32, 1, "auto", &err), 0);
    assert_null(strstr(be->description, "bf16"));
    be->ops->close(be);
}

static void other_weights(struct backend *be) {
    enum { ROWS = 33, COLS = 50, N = 5 };
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16};
    struct weight w;
    struct err err = {0};
    float scales[ROWS], y[N * ROWS], z[N * ROWS], *x = op_floats(N * COLS);
    for (int i = 0; i < 2; i++) {
        struct matrix m = make_matrix(types[i], ROWS, COLS, false, 1, NORMAL);
        assert_int_equal(be->ops->weight_init(be, &w, m.views, 1, &err), 0);
        be->ops->linear(be, LINEAR_STORE, y, x, N, &w, NULL);
        for (int r = 0; r < N * ROWS; r++) {
            double sum = 0, size = 0;
            for (int k = 0; k < COLS; k++) {
                const double p = (double)x[r / ROWS * COLS + k] * matrix_at(&m, r % ROWS, k);
                sum += p;
                size += fabs(p);
            }
            assert_true(fabs(y[r] - sum) <= 1e-6 * size); // rounded to bf16 it would be off by 1e-3
        }
        be->ops->weight_release(be, &w);
        free(m.data);
    }
    // 8 bits: the bits that every set gives.
    int8_t q[ROWS * COLS];
    for (int i = 0; i < ROWS * COLS; i++) q[i] = (int8_t)(i * 37 % 255 - 127);
    for (int i = 0; i < ROWS; i++) scales[i] = 0.01f * (float)(i + 1);
    struct tensor_view v = {.data = q,
                            .dtype = DTYPE_I8,
                            .rows = ROWS,
                            .cols = COLS,
                            .row_stride = COLS,
                            .col_stride = 1,
                            .scales = scales};
    struct backend *plain;
    struct weight w8;
    assert_int_equal(backend_cpu_open(&plain, 1, "portable", &err), 0);
    assert_int_equal(be->ops->weight_init(be, &w, &v, 1, &err), 0);
    assert_int_equal(plain->ops->weight_init(plain, &w8, &v, 1, &err), 0);
    be->ops->linear(be, LINEAR_STORE, y, x, N, &w, NULL);
    plain->ops->linear(plain, LINEAR_STORE, z, x, N, &w8, NULL);
    op_same_bits(y, z, N * ROWS, "8 bits");
    plain->ops->weight_release(plain, &w8);
    plain->ops->close(plain);
    be->ops->weight_release(be, &w);
    free(x);
}
static void test_other_weights(void **state) {
    each_backend(other_weights);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_row_counts),    cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_odd_values),    cmocka_unit_test(test_beside_f32),
        cmocka_unit_test(test_threads),       cmocka_unit_test(test_refused_sets),
        cmocka_unit_test(test_other_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
