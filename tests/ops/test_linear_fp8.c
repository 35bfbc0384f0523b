// linear with e4m3 weights: against double precision on the very numbers and scales, one scale for
// each output and one for each block of 128; and the same bits whatever the batch and the threads.
#include "kernels/cpu/cpu.h"
#include "kernels/fp8.h"
#include "tests/ops/ops_fixture.h"

struct matrix {
    int32_t rows, cols, n_blocks;
    uint8_t *q;    // (rows, cols), or (cols, rows) if turned
    float *scales; // (rows, n_blocks)
    struct tensor_view views[3];
    int n_views;
    bool turned;
};

static int64_t at(const struct matrix *m, int32_t row, int32_t col) {
    return m->turned ? (int64_t)col * m->rows + row : (int64_t)row * m->cols + col;
}

// All 254 codes among them, many that are denormals.
static struct matrix make_matrix(int32_t rows, int32_t cols, int n_views, int32_t block_k,
                                 bool turned) {
    struct matrix m = {.rows = rows, .cols = cols, .n_views = n_views, .turned = turned};
    m.n_blocks = fp8_blocks(cols, block_k);
    m.q = malloc((size_t)rows * (size_t)cols);
    m.scales = malloc((size_t)(rows * m.n_blocks) * sizeof *m.scales);
    assert_true(m.q && m.scales);
    for (int64_t i = 0; i < (int64_t)rows * cols; i++) {
        uint8_t code = (uint8_t)(i * 89 % 127);
        uint8_t q = i % 5 == 0 ? code : e4m3_from_f32(op_random() * (i % 3 == 0 ? 0.01f : 60));
        m.q[i] = i % 7 == 0 ? q ^ 0x80 : q;
    }
    for (int32_t i = 0; i < rows * m.n_blocks; i++)
        m.scales[i] = i % 5 == 4 ? 0 : 0.0005f * (1 + fabsf(op_random()));
    for (int i = 0, from = 0; i < n_views; i++) {
        int32_t n = i == n_views - 1 ? rows - from : rows / n_views;
        m.views[i] = (struct tensor_view){m.q + at(&m, from, 0),
                                          DTYPE_F8_E4M3,
                                          n,
                                          cols,
                                          turned ? 1 : cols,
                                          turned ? rows : 1,
                                          m.scales + from * m.n_blocks,
                                          block_k};
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
    assert_int_equal(w.dtype, DTYPE_F8_E4M3);
    return w;
}

static double value(const struct matrix *m, int32_t row, int32_t col) {
    float scale = m->scales[row * m->n_blocks + (m->n_blocks > 1 ? col / FP8_BLOCK : 0)];
    return (double)scale * (double)e4m3_to_f32(m->q[at(m, row, col)]);
}

// F32's rounding of a sum of so many terms, by their sizes.
static void check_against_double(const struct matrix *m, const float *y, const float *y0,
                                 const float *x, int32_t n, const float *bias) {
    for (int32_t r = 0; r < n; r++)
        for (int32_t o = 0; o < m->rows; o++) {
            double sum = 0, sizes = 0;
            for (int32_t k = 0; k < m->cols; k++) {
                double term = (double)x[(int64_t)r * m->cols + k] * value(m, o, k);
                sum += term;
                sizes += fabs(term);
            }
            double want = sum + (bias ? bias[o] : 0) + (y0 ? y0[(int64_t)r * m->rows + o] : 0);
            double slack = sizes * 1.2e-7 * (2 + sqrt(m->cols)) +
                           2.4e-7 * (fabs(sum) + (bias ? fabs(bias[o]) : 0) + fabs(want));
            op_near(y[(int64_t)r * m->rows + o], want, slack, "y", (int64_t)r * m->rows + o);
        }
}

static void shape(struct backend *be, int32_t rows, int32_t cols, int32_t n, int n_views) {
    for (int kind = 0; kind < 3; kind++) {
        struct matrix m = make_matrix(rows, cols, n_views, kind == 1 ? FP8_BLOCK : 0, kind == 2);
        struct weight w = make_weight(be, &m);
        float *x = op_floats((int64_t)n * cols), *bias = op_floats(rows);
        float *y = op_floats((int64_t)n * rows), *y0 = malloc(sizeof *y0 * (size_t)(n * rows));
        memcpy(y0, y, sizeof *y * (size_t)(n * rows));
        assert_int_equal(be->ops->linear(be, LINEAR_ADD, y, x, n, &w, bias), 0);
        check_against_double(&m, y, y0, x, n, bias);
        assert_int_equal(be->ops->linear(be, LINEAR_STORE, y, x, n, &w, NULL), 0);
        check_against_double(&m, y, NULL, x, n, NULL);
        free(x), free(y), free(y0), free(bias);
        be->ops->weight_release(be, &w);
        free_matrix(&m);
    }
}

static void shapes(struct backend *be) {
    op_seed(1);
    shape(be, 1, 1, 1, 1);
    shape(be, 5, 3, 2, 1);
    shape(be, 16, 64, 1, 1);
    shape(be, 17, 65, 3, 1);
    shape(be, 33, 127, 9, 2);
    shape(be, 20, 128, 18, 1);
    shape(be, 21, 129, 5, 1);
    shape(be, 100, 190, 4, 3);
    shape(be, 300, 400, 1, 3);
    shape(be, 48, 2048, 2, 1);
    shape(be, 40, 2049, 33, 1);
    shape(be, 7, 130, 600, 1); // more than a pass of rows
}
static void test_shapes(void **state) {
    op_each_backend(shapes);
}

// Every code by itself: one column, x = 1, scales that are powers of two. Exact.
static void codes(struct backend *be) {
    uint8_t q[256];
    float scales[256], y[256], x[20];
    for (int i = 0; i < 256; i++) {
        q[i] = (uint8_t)((i & 0x7f) == 0x7f ? 0 : i);
        scales[i] = ldexpf(1, i % 30 - 15);
    }
    for (int i = 0; i < 20; i++) x[i] = 1;
    struct tensor_view v = {q, DTYPE_F8_E4M3, 256, 1, 1, 1, scales, 0};
    for (int32_t block = 0; block <= FP8_BLOCK; block += FP8_BLOCK) {
        struct weight w;
        v.block_k = block;
        assert_int_equal(be->ops->weight_init(be, &w, &v, 1, NULL), 0);
        assert_int_equal(be->ops->linear(be, LINEAR_STORE, y, x, 1, &w, NULL), 0);
        for (int i = 0; i < 256; i++) assert_true(y[i] == scales[i] * e4m3_to_f32(q[i]));
        float many[20 * 256];
        assert_int_equal(be->ops->linear(be, LINEAR_STORE, many, x, 20, &w, NULL), 0);
        for (int i = 0; i < 20; i++) op_same_bits(many + i * 256, y, 256, "y");
        be->ops->weight_release(be, &w);
    }
}
static void test_codes(void **state) {
    op_each_backend(codes);
}

// One result for all thread counts, places in a batch and sizes of it; of one instruction set.
enum { SAME_ROWS = 333, SAME_COLS = 2300, SAME_N = 70 };
static float *same_x, *same_y[2];
static int same_vector; // threads seen with this set
static void same_bits(struct backend *be) {
    static const int32_t batches[] = {SAME_N, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 33};
    bool first = same_vector++ % 3 == 0; // op_each_backend: with one, two and three threads
    for (int kind = 0; kind < 2; kind++) {
        op_seed(5);
        struct matrix m = make_matrix(SAME_ROWS, SAME_COLS, 2, kind ? FP8_BLOCK : 0, false);
        struct weight w = make_weight(be, &m);
        float *y = malloc(sizeof *y * SAME_N * SAME_ROWS);
        for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
            for (int32_t r = 0, n; r < SAME_N; r += n) {
                n = SAME_N - r < batches[i] ? SAME_N - r : batches[i];
                be->ops->linear(be, LINEAR_STORE, y + r * SAME_ROWS, same_x + r * SAME_COLS, n, &w,
                                NULL);
            }
            if (first && i == 0) memcpy(same_y[kind], y, sizeof *y * SAME_N * SAME_ROWS);
            op_same_bits(y, same_y[kind], SAME_N * SAME_ROWS, "y");
        }
        free(y);
        be->ops->weight_release(be, &w);
        free_matrix(&m);
    }
}
static void test_same_bits(void **state) {
    op_seed(4);
    same_x = op_floats(SAME_N * SAME_COLS);
    for (int i = 0; i < 2; i++) same_y[i] = malloc(sizeof **same_y * SAME_N * SAME_ROWS);
    op_each_backend(same_bits);
    free(same_x), free(same_y[0]), free(same_y[1]);
}

static void embeds(struct backend *be) {
    enum { VOCAB = 50, WIDTH = 300 };
    for (int kind = 0; kind < 2; kind++) {
        op_seed(6);
        struct matrix m = make_matrix(VOCAB, WIDTH, 1, kind ? FP8_BLOCK : 0, false);
        struct weight w = make_weight(be, &m);
        const int32_t ids[] = {0, 49, 17, 17};
        struct batch b = {.n_rows = 4, .ids = ids};
        float y[4 * WIDTH];
        assert_int_equal(be->ops->embed(be, y, &b, &w, 1), 0);
        for (int i = 0; i < 4; i++)
            for (int k = 0; k < WIDTH; k++)
                assert_true(y[i * WIDTH + k] == (float)value(&m, ids[i], k));
        be->ops->weight_release(be, &w);
        free_matrix(&m);
    }
}
static void test_embeds(void **state) {
    op_each_backend(embeds);
}

static void refused(struct backend *be) {
    uint8_t q[8] = {0};
    float scales[2] = {1, 1};
    struct weight w;
    struct err err = {0};
    struct tensor_view v[2] = {{q, DTYPE_F8_E4M3, 2, 4, 4, 1, NULL, 0},
                               {q, DTYPE_F8_E4M3, 2, 4, 4, 1, scales, FP8_BLOCK}};
    assert_int_equal(be->ops->weight_init(be, &w, v, 1, &err), E_INVAL);
    assert_non_null(strstr(err.text, "scales"));
    v[0].scales = scales;
    assert_int_equal(be->ops->weight_init(be, &w, v, 2, &err), E_UNSUPPORTED);
    assert_null(w.data);
    v[0].block_k = 64;
    assert_int_equal(be->ops->weight_init(be, &w, v, 1, &err), E_UNSUPPORTED);
    assert_null(w.data);
    assert_int_equal(be->ops->weight_init(be, &w, v + 1, 1, &err), 0);
    be->ops->weight_release(be, &w);
}
static void test_refused(void **state) {
    op_each_backend(refused);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),    cmocka_unit_test(test_codes),
        cmocka_unit_test(test_same_bits), cmocka_unit_test(test_embeds),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
