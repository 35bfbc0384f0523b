// Products of e4m3 weights and e4m3 activations (`fp8_activations`): the rounding of x bit for bit, and
// linear of the rounded x against double precision; rows that are not finite; products that still use
// 16-bit activations.
#include "kernels/cuda/backend_cuda.h"
#include "kernels/fp8.h"
#include "tests/ops/twin.h"

enum { MAX_ROWS = 520, MAX_COLS = 4096 };

static uint8_t random_code(void) {
    return e4m3_from_f32(op_random() * 100);
}

// x[0 .. cols) as the kernel rounds it; returns the scale.
static float quantized(const float *x, int32_t n, uint8_t *q) {
    float most = 0.0f;
    for (int32_t i = 0; i < n; i++) most = fmaxf(most, fabsf(x[i]));
    float scale = most / 448.0f;
    if (!(scale >= 1.17549435e-38f)) scale = 0.0f;
    const float by = scale > 0.0f ? 1.0f / scale : 0.0f;
    for (int32_t i = 0; i < n; i++) q[i] = isnan(x[i] * by) ? 0x7f : e4m3_from_f32(x[i] * by);
    return scale;
}

// Rows of x with the shapes of real ones, and some that are hard to round.
static float *rows_of_x(const struct twin *w, int32_t n, int32_t cols) {
    float *x = twin_floats(w, (int64_t)n * cols);
    for (int32_t r = 0; r < n; r++) {
        float *row = x + (int64_t)r * cols;
        if (r % 7 == 1) row[cols / 3] = twin_round(w->t, 300.0f); // an outlier
        for (int32_t i = 0; i < cols; i++) {
            if (r % 7 == 2) row[i] = 0.0f;
            if (r % 7 == 3) row[i] = twin_round(w->t, row[i] * 1e-4f);
            if (r % 7 == 4 && i >= cols / 2) row[i] = 0.0f; // zero blocks
        }
    }
    return x;
}

static void rounding(const struct twin *w) {
    static const int32_t widths[] = {16, 208, 4096, 14336, 32768};
    for (int i = 0; i < 5; i++) {
        const int32_t cols = widths[i], n = 9;
        op_seed((uint64_t)cols);
        float *x = rows_of_x(w, n, cols);
        x[0] = INFINITY, x[(int64_t)(n - 1) * cols + 5] = NAN;
        void *gx = twin_up(w, x, (int64_t)n * cols);
        uint8_t *gq = twin_alloc(w, (size_t)(n * cols)), *q = malloc((size_t)(n * cols));
        float *gs = twin_alloc(w, (size_t)n * 4);
        uint8_t *want = malloc((size_t)cols);
        struct cuda_backend *cuda = cuda_of(w->gpu);
        assert_int_equal(cuda_quantize(gq, gs, gx, w->t, n, cols, cuda->stream), 0);
        assert_int_equal(w->gpu->ops->mem_read(w->gpu, q, gq, (size_t)(n * cols)), 0);
        float *s = twin_down(w, gs, n, DTYPE_F32);
        for (int32_t r = 0; r < n; r++) {
            float scale = quantized(x + (int64_t)r * cols, cols, want);
            if (scale != s[r]) fail_msg("row %d: scale %g", r, s[r]);
            for (int32_t c = 0; c < cols; c++) {
                uint8_t got = q[(int64_t)r * cols + c];
                if (got != want[c] && (got & 0x7f) + (want[c] & 0x7f) != 0 &&
                    !((got & 0x7f) == 0x7f && (want[c] & 0x7f) == 0x7f))
                    fail_msg("row %d of %d, column %d: %02x, not %02x", r, cols, c, got, want[c]);
            }
        }
        twin_free(w, gx), twin_free(w, gq), twin_free(w, gs);
        free(x), free(q), free(s), free(want);
    }
}

struct product {
    int32_t rows, cols, block_k;
    uint8_t *w;      // (rows, cols)
    float *w_scales; // (rows, blocks)
    float *bias;     // (rows)
    struct weight gw;
};

static void product_init(const struct twin *w, struct product *p, int32_t rows, int32_t cols,
                         int32_t block_k) {
    const int32_t blocks = fp8_blocks(cols, block_k);
    op_seed((uint64_t)(rows + cols + block_k));
    *p = (struct product){.rows = rows, .cols = cols, .block_k = block_k};
    p->w = malloc((size_t)(rows * cols));
    p->w_scales = malloc((size_t)(rows * blocks) * sizeof(float));
    p->bias = op_floats(rows);
    for (int32_t i = 0; i < rows * cols; i++) p->w[i] = random_code();
    for (int32_t i = 0; i < rows * blocks; i++) p->w_scales[i] = 0.0004f * (float)(1 + i % 5);
    struct tensor_view v = {p->w, DTYPE_F8_E4M3, rows, cols, cols, 1, p->w_scales, block_k};
    assert_int_equal(w->gpu->ops->weight_init(w->gpu, &p->gw, &v, 1, NULL), 0);
    struct step_limits l = {.max_rows = MAX_ROWS, .max_seqs = 8, .max_map = 64, .n_heads = 4};
    l.n_kv_heads = 4, l.head_dim = 64, l.vocab = 256;
    struct err err = {0};
    if (w->gpu->ops->step_reserve(w->gpu, &l, &err) < 0) fail_msg("%s", err.text);
}

static void product_release(const struct twin *w, struct product *p) {
    w->gpu->ops->weight_release(w->gpu, &p->gw);
    free(p->w), free(p->w_scales), free(p->bias);
}

// y[0 .. rows) of a row of x, with the rounded x or with x itself. off: the error that the tensor cores may
// make. They add 32 products at a time to a sum of some 13 bits and truncate, so an outlier in x takes
// bits from the other products.
static void expected(const struct product *p, const float *x, bool round, double *y, double *off) {
    uint8_t q[MAX_COLS];
    const int32_t len = p->block_k ? p->block_k : p->cols, blocks = fp8_blocks(p->cols, p->block_k);
    const float scale = quantized(x, p->cols, q);
    for (int32_t r = 0; r < p->rows; r++) y[r] = off[r] = 0;
    for (int32_t b = 0; b < blocks; b++) {
        const int32_t from = b * len, n = p->cols - from < len ? p->cols - from : len;
        for (int32_t r = 0; r < p->rows; r++) {
            const uint8_t *w = p->w + (int64_t)r * p->cols + from;
            double sum = 0, most = 0;
            for (int32_t c = 0; c < n; c++) {
                double one =
                    (double)e4m3_to_f32(w[c]) *
                    (round ? (double)e4m3_to_f32(q[from + c]) * scale : (double)x[from + c]);
                sum += one;
                most = fmax(most, fmax(fabs(one), fabs(sum)));
            }
            most = fmax(most * p->w_scales[r * blocks + b], fabs(y[r]));
            y[r] += sum * p->w_scales[r * blocks + b];
            off[r] += n / 32 * 1.22e-4 * fmax(most, fabs(y[r]));
        }
    }
}

// One linear of n rows. Every output must be near that of the rounded x. All together they must differ from
// the outputs of x itself as much as those of the rounded x do; else the product did not use 8 bits.
// ACTIVATE: gated, by linear_activate.
enum form { STORE, ADD, BIASED, ADD_BIASED, ACTIVATE, FORMS };

static double silu(double v) {
    return v / (1 + exp(-v));
}

static void check_product(const struct twin *w, const struct product *p, int32_t n,
                          enum form form) {
    const struct backend_ops *ops = w->gpu->ops;
    const bool add = form == ADD || form == ADD_BIASED, bias = form >= BIASED;
    const int32_t width = form == ACTIVATE ? p->rows / 2 : p->rows;
    float *x = rows_of_x(w, n, p->cols), *old = twin_floats(w, (int64_t)n * width);
    void *gx = twin_up(w, x, (int64_t)n * p->cols);
    void *gy = twin_up(w, add ? old : NULL, (int64_t)n * width);
    float *gb = twin_up_bytes(w, p->bias, (size_t)p->rows * 4);
    int rc = form == ACTIVATE ? ops->linear_activate(w->gpu, gy, gx, n, &p->gw, gb, ACT_SILU, true)
                              : ops->linear(w->gpu, add ? LINEAR_ADD : LINEAR_STORE, gy, gx, n,
                                            &p->gw, bias ? gb : NULL);
    double *by_8 = malloc((size_t)p->rows * sizeof *by_8), *exact = malloc((size_t)p->rows * 8);
    double *cut = malloc((size_t)p->rows * sizeof *cut), *unused = malloc((size_t)p->rows * 8);
    double along = 0, apart = 0; // (got - exact) . (rounded - exact), and the latter's square
    float *y = twin_down(w, gy, (int64_t)n * width, w->t);
    if (rc == OP_DECLINED) { // wide and gated: the engine calls linear and activate
        assert_true(form == ACTIVATE && n > 256);
        goto out;
    }
    assert_int_equal(rc, 0);
    for (int32_t i = 0; i < n; i += 1 + n / 40) {
        expected(p, x + (int64_t)i * p->cols, true, by_8, cut);
        expected(p, x + (int64_t)i * p->cols, false, exact, unused);
        for (int32_t r = 0; r < width; r++) {
            double want[2], size = 0, slack = 2 * cut[r];
            for (int k = 0; k < 2; k++) {
                const double *v = k ? exact : by_8;
                double a = v[r] + (bias ? p->bias[r] : 0);
                want[k] = a;
                if (form == ACTIVATE) {
                    double up = v[r + width] + p->bias[r + width];
                    want[k] = silu(a) * up;
                    slack = 2 * (cut[r] * (fabs(up) + 1) + cut[r + width] * (fabs(a) + 1));
                }
                size = fmax(size, fabs(want[k]));
                if (add) want[k] += old[(int64_t)i * width + r];
            }
            double got = y[(int64_t)i * width + r];
            // Three roundings to T: of the product, after the addition, after the bias.
            slack += 3.1 * twin_unit(w->t) * (size + 4) + 1e-5;
            op_near(got, want[0], slack, "linear of fp8 by fp8", (int64_t)i * width + r);
            along += (got - want[1]) * (want[0] - want[1]);
            apart += (want[0] - want[1]) * (want[0] - want[1]);
        }
    }
    if (fabs(along / apart - 1) > 0.2)
        fail_msg("(%d, %d) block %d n %d form %d: %.2f of what rounding x makes", p->rows, p->cols,
                 p->block_k, n, form, along / apart);
out:
    twin_free(w, gx), twin_free(w, gy), twin_free(w, gb);
    free(x), free(old), free(y), free(by_8), free(exact), free(cut), free(unused);
}

static void products(const struct twin *w) {
    static const int32_t widths[] = {33, 66, 127, 256, 257, 333, 520};
    static const struct {
        int32_t rows, cols, block_k;
    } shapes[] = {{384, 256, 0},         {272, 1040, 0},         {96, 4096, 0},
                  {384, 256, FP8_BLOCK}, {256, 1024, FP8_BLOCK}, {64, 4096, FP8_BLOCK}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        struct product p;
        if (test_scale() < 1 && s % 3) continue;
        product_init(w, &p, shapes[s].rows, shapes[s].cols, shapes[s].block_k);
        for (int i = 0; i < 7; i += test_scale() < 1 ? 4 : 1)
            for (enum form f = STORE; f < FORMS; f++) check_product(w, &p, widths[i], f);
        product_release(w, &p);
    }
}

// A row that is not finite changes no other row's outputs.
static void not_finite(const struct twin *w) {
    enum { N = 300, ROWS = 64, COLS = 512 };
    for (int i = 0; i < 8; i++) {
        struct product p;
        const int32_t n = i & 1 ? N : 100;
        product_init(w, &p, ROWS, COLS, i & 2 ? FP8_BLOCK : 0);
        float *x = rows_of_x(w, n, COLS);
        x[77 * COLS + 300] = i & 4 ? NAN : INFINITY;
        void *gx = twin_up(w, x, n * COLS), *gy = twin_up(w, NULL, n * ROWS);
        assert_int_equal(w->gpu->ops->linear(w->gpu, LINEAR_STORE, gy, gx, n, &p.gw, NULL), 0);
        float *y = twin_down(w, gy, n * ROWS, w->t);
        for (int32_t r = 0; r < n; r++)
            for (int32_t c = 0; c < ROWS; c++)
                if (isfinite(y[r * ROWS + c]) == (r == 77)) fail_msg("row %d of %d", r, n);
        twin_free(w, gx), twin_free(w, gy);
        free(x), free(y);
        product_release(w, &p);
    }
}

// Narrow batches, logits, and shapes that 8-bit products do not support have the bits of a backend without
// the setting.
static void others(const struct twin *w) {
    struct backend_cuda_options o = {.compute = w->t};
    struct twin plain = *w;
    struct err err = {0};
    if (backend_cuda_open(&plain.gpu, &o, &err) < 0) fail_msg("%s", err.text);
    static const struct {
        int32_t rows, cols, n;
        bool f32;
    } cases[] = {{128, 256, 1, false},
                 {128, 256, 20, false},
                 {128, 256, 32, false},
                 {128, 256, 100, true},
                 {130, 256, 100, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float *y[2];
        const int32_t n = cases[i].n, rows = cases[i].rows, cols = cases[i].cols;
        const bool f32 = cases[i].f32;
        for (int k = 0; k < 2; k++) {
            const struct twin *v = k ? &plain : w;
            struct product p;
            product_init(v, &p, rows, cols, 0);
            float *x = rows_of_x(v, n, cols);
            void *gx = twin_up(v, x, n * cols), *gy = twin_alloc(v, (size_t)(n * rows) * 4);
            assert_int_equal(v->gpu->ops->linear(v->gpu, f32 ? LINEAR_STORE_F32 : LINEAR_STORE, gy,
                                                 gx, n, &p.gw, NULL),
                             0);
            y[k] = twin_down(v, gy, n * rows, f32 ? DTYPE_F32 : v->t);
            twin_free(v, gx), twin_free(v, gy);
            free(x);
            product_release(v, &p);
        }
        op_same_bits(y[0], y[1], (int64_t)n * rows, "without fp8 activations");
        free(y[0]), free(y[1]);
    }
    plain.gpu->ops->close(plain.gpu);
}

static void each(void (*body)(const struct twin *w)) {
    static const enum dtype types[] = {DTYPE_BF16, DTYPE_F16};
    if (backend_cuda_count() == 0) {
        print_message("no GPU here: not run\n");
        skip();
    }
    const char *only = getenv("PARLEY_TEST_COMPUTE");
    for (int i = 0; i < 2; i++) {
        if (only && strcmp(only, dtype_name(types[i]))) continue;
        struct backend_cuda_options o = {.compute = types[i], .fp8_activations = true};
        struct twin w = {.t = types[i]};
        struct err err = {0};
        int rc = backend_cuda_open(&w.gpu, &o, &err);
        if (rc == E_UNSUPPORTED) {
            print_message("%s: not run\n", err.text);
            skip();
        }
        if (rc < 0) fail_msg("%s", err.text);
        body(&w);
        w.gpu->ops->close(w.gpu);
    }
}

static void test_rounding(void **state) {
    each(rounding);
}
static void test_products(void **state) {
    each(products);
}
static void test_not_finite(void **state) {
    each(not_finite);
}
static void test_others(void **state) {
    each(others);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_others),
    };
    cmocka_set_test_filter(getenv("PARLEY_TEST_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
