// CUDA's linear against the CPU's: every dtype of weights, odd shapes, stacked and transposed views,
// narrow and wide batches, results that are added to y, logits in F32. With `deterministic`, the bits must
// not depend on the batch.
#include "kernels/fp8.h"
#include "tests/ops/twin.h"
#include <stdio.h>

struct case_ {
    int32_t rows, cols, n, n_views;
    bool transposed, bias;
    enum dtype stored;
    int32_t block_k;
};

static void check_case(const struct twin *w, const struct case_ *c, enum linear_mode mode) {
    op_seed((uint64_t)(c->rows * 1000 + c->cols * 10 + c->n));
    int64_t stride = (c->transposed ? c->rows : c->cols) + 3;
    int64_t n = stride * ((c->transposed ? c->cols : c->rows) + 1);
    void *data = malloc((size_t)n * dtype_size(c->stored));
    const int32_t blocks = fp8_blocks(c->cols, c->block_k);
    float *scales = malloc((size_t)(c->rows * blocks) * sizeof *scales);
    for (int64_t i = 0; i < c->rows * blocks; i++) scales[i] = 0.0004f * (1 + (float)(i % 7));
    bool int8 = c->stored == DTYPE_I8, fp8 = c->stored == DTYPE_F8_E4M3, in_8bit = int8 || fp8;
    for (int64_t i = 0; i < n && int8; i++) ((int8_t *)data)[i] = (int8_t)(i * 37 % 255 - 127);
    for (int64_t i = 0; i < n && fp8; i++) // every code, and many of the usual size
        ((uint8_t *)data)[i] =
            i % 9 == 0 ? (uint8_t)(i % 127 | (i & 1) << 7) : e4m3_from_f32(op_random() * 60);
    for (int64_t i = 0; i < n && !in_8bit;
         i++) // exact in the GPU's dtype, so that both have one weight
        op_write(c->stored, data, i, twin_round(w->t, twin_round(c->stored, op_random() * 0.05f)));
    struct tensor_view views[3];
    int32_t from = 0;
    for (int i = 0; i < c->n_views; i++) {
        int32_t part = i == c->n_views - 1 ? c->rows - from : c->rows / c->n_views;
        int64_t row_stride = c->transposed ? 1 : stride;
        views[i] =
            (struct tensor_view){(char *)data + (size_t)(from * row_stride) * dtype_size(c->stored),
                                 c->stored,
                                 part,
                                 c->cols,
                                 row_stride,
                                 c->transposed ? stride : 1,
                                 in_8bit ? scales + from * blocks : NULL,
                                 c->block_k};
        from += part;
    }
    struct weight cw, gw;
    struct err err = {0};
    assert_int_equal(w->cpu->ops->weight_init(w->cpu, &cw, views, c->n_views, &err), 0);
    if (w->gpu->ops->weight_init(w->gpu, &gw, views, c->n_views, &err) < 0)
        fail_msg("%s", err.text);
    int64_t n_y = (int64_t)c->n * c->rows;
    float *x = twin_floats(w, (int64_t)c->n * c->cols), *bias = op_floats(c->rows);
    float *y = twin_floats(w, n_y);
    enum dtype out = mode == LINEAR_STORE_F32 ? DTYPE_F32 : w->t;
    void *gx = twin_up(w, x, (int64_t)c->n * c->cols);
    void *gy = mode == LINEAR_ADD ? twin_up(w, y, n_y) : twin_alloc(w, (size_t)n_y * 4);
    float *gb = twin_up_bytes(w, bias, (size_t)c->rows * 4);
    w->cpu->ops->linear(w->cpu, mode, y, x, c->n, &cw, c->bias ? bias : NULL);
    assert_int_equal(w->gpu->ops->linear(w->gpu, mode, gy, gx, c->n, &gw, c->bias ? gb : NULL), 0);
    char what[160];
    snprintf(what, sizeof what, "linear %d: (%d, %d) n %d %s/%s%s", mode, c->rows, c->cols, c->n,
             dtype_name(w->t), dtype_name(c->stored), c->bias ? " bias" : "");
    // A wide product adds its bias to y in a second pass, which rounds once more.
    double units = c->bias ? 3.1 : 1.1, slack = 2e-6 * sqrt(c->cols) + units * twin_unit(out) * 0.2;
    // cuBLASLt's kernels round a product before they add it to y.
    if (c->bias) slack += 3 * twin_unit(w->t); // and the bias, in a pass of its own
    if (mode == LINEAR_ADD || c->bias) slack += 0.2 * sqrt(c->cols) * twin_unit(w->t);
    if (in_8bit)
        slack += 0.6 * sqrt(c->cols) * twin_unit(w->t); // a wide product rounds the weights too
    twin_compare(w, gy, out, y, n_y, units, slack, what);
    w->cpu->ops->weight_release(w->cpu, &cw);
    w->gpu->ops->weight_release(w->gpu, &gw);
    twin_free(w, gx), twin_free(w, gy), twin_free(w, gb);
    free(data), free(scales), free(x), free(y), free(bias);
}

// The next batch width to test: dense for narrow batches, sparse for wide ones. Under compute-sanitizer,
// which checks every access, only one width for each kind of kernel.
static int32_t wider(int32_t n, int32_t apart) {
    return test_scale() < 1 ? n * 4 + 1 : n + 1 + n / apart;
}

// A width beyond the kernels for narrow batches, in all its variants.
static struct case_ wide_case(enum dtype stored, int32_t block_k) {
    struct case_ c = {1536, 1024, 300, 3, false, false, stored, block_k};
    if (test_scale() < 1) c.rows = 384, c.cols = 512, c.n = 140;
    return c;
}

static void shapes(const struct twin *w) {
    static const int32_t sizes[] = {1, 3, 17, 64, 130, 520};
    for (int i = 0; i < 36; i++) {
        struct case_ c = {.rows = sizes[i / 6],
                          .cols = sizes[i % 6],
                          .n = 1 + i * 7 % 40,
                          .n_views = 1,
                          .transposed = i % 2,
                          .bias = i % 3 == 0,
                          .stored = (enum dtype)(i % 3)};
        check_case(w, &c, (enum linear_mode)(i % 3));
    }
}

static void widths(const struct twin *w) {
    int32_t stride = test_scale() < 1 ? 7 : 1;
    for (int32_t n = 1; n <= 40; n += stride) {
        struct case_ c = {.rows = 384, .cols = 256, .n = n, .n_views = 1, .stored = w->t};
        for (int mode = 0; mode < 3; mode++) check_case(w, &c, (enum linear_mode)mode);
        c.bias = true;
        check_case(w, &c, LINEAR_ADD);
    }
    struct case_ wide = wide_case(w->t, 0);
    for (int mode = 0; mode < 3; mode++) check_case(w, &wide, (enum linear_mode)mode);
    struct case_ deep = {.rows = 200, .cols = 14336, .n = 1, .n_views = 1, .stored = w->t};
    if (test_scale() < 1) deep.rows = 40;
    for (; deep.n < 70; deep.n *= 3) check_case(w, &deep, LINEAR_ADD);
    // Each multiprocessor takes an equal part of the rows, so parts end anywhere in a group of eight.
    static const int32_t rows[] = {1100, 1607, 2048, 4800, 6399};
    for (int i = 0; i < 5; i += test_scale() < 1 ? 2 : 1)
        for (int32_t n = 1; n <= 8; n = n * 2 + 1) {
            struct case_ c = {.rows = rows[i], .cols = 264, .n = n, .n_views = 1, .stored = w->t};
            c.bias = n == 3;
            check_case(w, &c, i % 2 ? LINEAR_ADD : LINEAR_STORE);
        }
    // K is so large that it is cut into parts: the tiles have fewer rows, and their number is arbitrary.
    for (int i = 0; i < 5; i += test_scale() < 1 ? 2 : 1) {
        struct case_ c = {.rows = rows[i], .cols = 1032, .n = 5 + i * 13, .n_views = 1};
        c.stored = w->t, c.bias = i % 2;
        check_case(w, &c, i % 3 ? LINEAR_ADD : LINEAR_STORE_F32);
    }
    // In two parts of 64 tiles: a block on each multiprocessor.
    struct case_ alone = {.rows = 8192, .cols = 1032, .n = 20, .n_views = 1, .stored = w->t};
    if (test_scale() == 1) check_case(w, &alone, LINEAR_ADD);
}

static void stacks(const struct twin *w) {
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    for (int t = 0; t < 3; t++) {
        struct case_ c = {.rows = 97, .cols = 65, .n = 12, .n_views = 3, .stored = types[t]};
        check_case(w, &c, LINEAR_STORE);
        c.transposed = true;
        check_case(w, &c, LINEAR_STORE);
        if (t > 0 && test_scale() < 1) continue;
        c.rows = 3000, c.cols = 2100, c.n = 2; // more than a staging buffer as F32
        check_case(w, &c, LINEAR_STORE);
        c.transposed = false;
        check_case(w, &c, LINEAR_STORE);
    }
}

// A row must have the same bits alone and in batches of any width, through every kernel that a width may
// choose, for a matrix that is cut into parts of K and one that is not, and for 8-bit weights. block_k: of
// e4m3 weights.
static void same_bits_of(const struct twin *w, int32_t rows, int32_t cols, enum dtype stored,
                         int32_t block_k) {
    enum { N = 300 };
    op_seed(9);
    int64_t n_data = (int64_t)rows * cols, n_scales = (int64_t)rows * (cols / 64 + 1);
    float *data = op_floats(n_data), *x = twin_floats(w, N * cols);
    float *scales = malloc((size_t)n_scales * sizeof *scales);
    uint8_t *q = malloc((size_t)n_data);
    for (int64_t i = 0; i < n_scales; i++) scales[i] = 0.002f * (1 + (float)(i % 7));
    for (int64_t i = 0; i < n_data; i++)
        q[i] = stored == DTYPE_I8 ? (uint8_t)(i * 37 % 255 - 127) : e4m3_from_f32(60 * data[i]);
    struct tensor_view v = {data, DTYPE_F32, rows, cols, cols, 1, NULL, 0};
    if (stored != DTYPE_F32)
        v = (struct tensor_view){q, stored, rows, cols, cols, 1, scales, block_k};
    struct weight gw;
    assert_int_equal(w->gpu->ops->weight_init(w->gpu, &gw, &v, 1, NULL), 0);
    void *gx = twin_up(w, x, N * cols), *gy = twin_up(w, NULL, N * rows);
    // Without `deterministic`, only two identical calls must agree.
    int32_t from = strstr(w->gpu->description, "deterministic") ? 1 : N;
    assert_int_equal(w->gpu->ops->linear(w->gpu, LINEAR_STORE, gy, gx, N, &gw, NULL), 0);
    float *want = twin_down(w, gy, N * rows, w->t);
    for (int32_t n = from; n <= N; n = wider(n, 3)) {
        assert_int_equal(w->gpu->ops->linear(w->gpu, LINEAR_STORE, gy, gx, n, &gw, NULL), 0);
        float *got = twin_down(w, gy, (int64_t)n * rows, w->t);
        op_same_bits(got, want, (int64_t)n * rows, "linear");
        free(got);
    }
    w->gpu->ops->weight_release(w->gpu, &gw);
    twin_free(w, gx), twin_free(w, gy);
    free(data), free(x), free(want), free(scales), free(q);
}

static void same_bits(const struct twin *w) {
    same_bits_of(w, 300, 520, DTYPE_F32, 0);
    same_bits_of(w, 300, 520, DTYPE_I8, 0);
    same_bits_of(w, 300, 520, DTYPE_F8_E4M3, 0);
    same_bits_of(w, 300, 520, DTYPE_F8_E4M3, FP8_BLOCK);
    same_bits_of(w, 300, 521, DTYPE_F32, 0); // no multiple of any tile
    same_bits_of(w, test_scale() < 1 ? 9000 : 25000, 136, DTYPE_F32, 0);
    same_bits_of(w, 4808, 1032, DTYPE_F32, 0); // tiles of another size for few rows than for many
}

static void refused(const struct twin *w) {
    struct weight gw;
    struct err err = {0};
    float data[8] = {0};
    struct tensor_view v[2] = {{data, DTYPE_I32, 1, 4, 4, 1, NULL, 0},
                               {data, DTYPE_F32, 1, 2, 2, 1, NULL, 0}};
    assert_int_equal(w->gpu->ops->weight_init(w->gpu, &gw, v, 1, &err), E_UNSUPPORTED);
    v[0].dtype = DTYPE_F32;
    assert_int_equal(w->gpu->ops->weight_init(w->gpu, &gw, v, 2, &err), E_INVAL);
    assert_int_equal(w->gpu->ops->weight_init(w->gpu, &gw, v, 0, &err), E_INVAL);
    w->gpu->ops->weight_release(w->gpu, &gw);
    void *p;
    assert_int_equal(w->gpu->ops->mem_alloc(w->gpu, (size_t)1 << 46, &p, &err), E_NOMEM);
    assert_non_null(strstr(err.text, "MiB"));
}

// 8-bit weights with a scale for each output, through every path.
static void integers(const struct twin *w) {
    for (int32_t n = 1; n <= 40; n = wider(n, 4)) {
        struct case_ c = {.rows = 384, .cols = 256, .n = n, .n_views = 3, .stored = DTYPE_I8};
        for (int mode = 0; mode < 3; mode++) check_case(w, &c, (enum linear_mode)mode);
        c.transposed = c.bias = true;
        check_case(w, &c, LINEAR_ADD);
        c.rows = 77, c.cols = 65;
        check_case(w, &c, LINEAR_STORE);
    }
    struct case_ wide = wide_case(DTYPE_I8, 0);
    for (int mode = 0; mode < 3; mode++) check_case(w, &wide, (enum linear_mode)mode);
    struct case_ deep = {.rows = 70, .cols = 14336, .n = 1, .n_views = 1, .stored = DTYPE_I8};
    for (; deep.n < 3; deep.n++) check_case(w, &deep, LINEAR_ADD);
}

// A value of x that is not finite makes y not finite, also in kernels that turn x into integers.
static void not_finite(const struct twin *w) {
    enum { ROWS = 40, COLS = 2048 };
    static const enum dtype types[] = {DTYPE_I8, DTYPE_F8_E4M3};
    for (int i = 0; i < 4; i++) {
        enum dtype t = types[i / 2];
        uint8_t *data = malloc(ROWS * COLS);
        float scales[ROWS], *x = twin_floats(w, COLS);
        memset(data, t == DTYPE_I8 ? 7 : 0x31, ROWS * COLS);
        for (int r = 0; r < ROWS; r++) scales[r] = 0.5f;
        x[COLS - 300] = i % 2 ? NAN : -INFINITY;
        struct tensor_view v = {data, t, ROWS, COLS, COLS, 1, scales, 0};
        struct weight gw;
        assert_int_equal(w->gpu->ops->weight_init(w->gpu, &gw, &v, 1, NULL), 0);
        void *gx = twin_up(w, x, COLS), *gy = twin_alloc(w, ROWS * sizeof(float));
        assert_int_equal(w->gpu->ops->linear(w->gpu, LINEAR_STORE, gy, gx, 1, &gw, NULL), 0);
        float *y = twin_down(w, gy, ROWS, w->t);
        for (int r = 0; r < ROWS; r++) assert_false(isfinite(y[r]));
        w->gpu->ops->weight_release(w->gpu, &gw);
        twin_free(w, gx), twin_free(w, gy);
        free(data), free(x), free(y);
    }
}

// e4m3, with a scale for each output and with blocks of 128.
static void numbers_8bit(const struct twin *w) {
    for (int32_t block = 0; block <= FP8_BLOCK; block += FP8_BLOCK) {
        struct case_ c = {.stored = DTYPE_F8_E4M3, .block_k = block};
        for (int32_t n = 1; n <= 40; n = wider(n, 4)) {
            c = (struct case_){384, 256, n, 3, false, false, DTYPE_F8_E4M3, block};
            for (int mode = 0; mode < 3; mode++) check_case(w, &c, (enum linear_mode)mode);
            c.transposed = c.bias = true;
            check_case(w, &c, LINEAR_ADD);
            c.cols = 200; // a last block that is not whole
            check_case(w, &c, LINEAR_STORE);
            c.rows = 77, c.cols = 65;
            check_case(w, &c, LINEAR_STORE);
        }
        struct case_ wide = wide_case(DTYPE_F8_E4M3, block);
        for (int mode = 0; mode < 3; mode++) check_case(w, &wide, (enum linear_mode)mode);
        struct case_ deep = {64, 14336, 1, 1, false, false, DTYPE_F8_E4M3, block};
        for (; deep.n < 3; deep.n++) check_case(w, &deep, LINEAR_STORE_F32);
        struct case_ usual = {516, 4096, 1, 1, false, false, DTYPE_F8_E4M3, block};
        check_case(w, &usual, LINEAR_ADD); // more than one stage
    }
}

// Every e4m3 number comes out exactly, from each place of a word: x has a single 1 in a row.
static void every_code(const struct twin *w) {
    enum { ROWS = 256, COLS = 256, MOST = 150 };
    static const int32_t widths[] = {1, 3, 8, 20, 70, MOST};
    uint8_t *q = malloc((size_t)ROWS * COLS);
    float *scales = malloc((size_t)ROWS * 2 * sizeof *scales);
    for (int32_t i = 0; i < ROWS * COLS; i++) {
        const uint8_t code = (uint8_t)(i / COLS + i % COLS);
        q[i] = (code & 0x7f) == 0x7f ? 0x80 : code; // no view holds a NaN
    }
    for (int32_t i = 0; i < ROWS * 2; i++) scales[i] = 1.0f;
    for (int32_t block = 0; block <= FP8_BLOCK; block += FP8_BLOCK) {
        struct tensor_view v = {q, DTYPE_F8_E4M3, ROWS, COLS, COLS, 1, scales, block};
        struct weight gw;
        assert_int_equal(w->gpu->ops->weight_init(w->gpu, &gw, &v, 1, NULL), 0);
        for (int i = 0; i < 6; i++) {
            const int32_t n = widths[i];
            for (int32_t first = 0; first < (n == 1 ? COLS : 5); first++) {
                float *x = calloc((size_t)n * COLS, sizeof *x);
                for (int32_t r = 0; r < n; r++) x[r * COLS + (first + 5 * r) % COLS] = 1.0f;
                void *gx = twin_up(w, x, n * COLS), *gy = twin_alloc(w, (size_t)(n * ROWS) * 4);
                assert_int_equal(
                    w->gpu->ops->linear(w->gpu, LINEAR_STORE_F32, gy, gx, n, &gw, NULL), 0);
                float *y = twin_down(w, gy, n * ROWS, DTYPE_F32);
                for (int32_t o = 0; o < n * ROWS; o++) {
                    const int32_t c = (first + 5 * (o / ROWS)) % COLS;
                    const float want = e4m3_to_f32(q[o % ROWS * COLS + c]);
                    if (y[o] != want)
                        fail_msg("n %d block %d row %d column %d: %g, not %g", n, block, o % ROWS,
                                 c, y[o], want);
                }
                twin_free(w, gx), twin_free(w, gy);
                free(x), free(y);
            }
        }
        w->gpu->ops->weight_release(w->gpu, &gw);
    }
    free(q), free(scales);
}

// Gate and activation inside the narrow kernel, against the CPU's linear and activate. The only rounding
// to T between the two is the product's.
static void check_activated(const struct twin *w, enum dtype stored, int32_t block_k, int32_t rows,
                            int32_t cols, int32_t n, bool gated) {
    const int32_t blocks = fp8_blocks(cols, block_k), width = gated ? rows / 2 : rows;
    op_seed((uint64_t)(rows + cols + n));
    void *data = malloc((size_t)(rows * cols) * dtype_size(stored));
    float *scales = malloc((size_t)(rows * blocks) * sizeof *scales);
    bool in_8bit = dtype_size(stored) == 1;
    for (int32_t i = 0; i < rows * blocks; i++) scales[i] = 0.0004f * (1 + (float)(i % 7));
    for (int32_t i = 0; i < rows * cols; i++) {
        float v = op_random();
        if (stored == DTYPE_I8)
            ((int8_t *)data)[i] = (int8_t)(v * 40);
        else if (in_8bit)
            ((uint8_t *)data)[i] = e4m3_from_f32(v * 60);
        else
            op_write(stored, data, i, twin_round(w->t, v * 0.05f));
    }
    struct tensor_view v = {data, stored, rows, cols, cols, 1, in_8bit ? scales : NULL, block_k};
    struct weight cw, gw;
    assert_int_equal(w->cpu->ops->weight_init(w->cpu, &cw, &v, 1, NULL), 0);
    assert_int_equal(w->gpu->ops->weight_init(w->gpu, &gw, &v, 1, NULL), 0);
    float *x = twin_floats(w, n * cols), *bias = op_floats(rows);
    float *h = malloc((size_t)(n * rows) * sizeof *h), *y = malloc((size_t)(n * width) * sizeof *y);
    w->cpu->ops->linear(w->cpu, LINEAR_STORE, h, x, n, &cw, bias);
    w->cpu->ops->activate(w->cpu, ACT_SILU, gated, y, h, n, width);
    void *gx = twin_up(w, x, n * cols), *gy = twin_up(w, NULL, n * width);
    float *gb = twin_up_bytes(w, bias, (size_t)rows * 4);
    int rc = w->gpu->ops->linear_activate(w->gpu, gy, gx, n, &gw, gb, ACT_SILU, gated);
    char what[160];
    snprintf(what, sizeof what, "linear_activate: (%d, %d) n %d %s/%s%s", rows, cols, n,
             dtype_name(w->t), dtype_name(stored), gated ? " gated" : "");
    // Two factors, each rounded once, of sizes up to about ten.
    if (rc != OP_DECLINED) {
        assert_int_equal(rc, 0);
        twin_compare(w, gy, w->t, y, n * width, 4.1, 12 * twin_unit(w->t), what);
    } else if (w->t != DTYPE_F32) {
        fail_msg("%s: declined", what);
    }
    w->cpu->ops->weight_release(w->cpu, &cw);
    w->gpu->ops->weight_release(w->gpu, &gw);
    twin_free(w, gx), twin_free(w, gy), twin_free(w, gb);
    free(data), free(scales), free(x), free(bias), free(h), free(y);
}

static void activated(const struct twin *w) {
    const struct {
        enum dtype stored;
        int32_t block_k;
    } kinds[] = {{w->t, 0}, {DTYPE_I8, 0}, {DTYPE_F8_E4M3, 0}, {DTYPE_F8_E4M3, FP8_BLOCK}};
    for (int k = 0; k < 4; k++)
        for (int gated = 0; gated < 2; gated++)
            for (int32_t n = 1; n <= 32; n = test_scale() < 1 ? n * 4 + 1 : n + 1 + n * 2 / 3) {
                check_activated(w, kinds[k].stored, kinds[k].block_k, 392, 256, n, gated);
                check_activated(w, kinds[k].stored, kinds[k].block_k, 200, 520, n, gated);
            }
    // So many rows that tiles are divided evenly, and their last rows fall anywhere.
    const int32_t many = test_scale() < 1 ? 17200 : 19216;
    for (int gated = 0; gated < 2; gated++) check_activated(w, w->t, 0, many, 136, 5, gated);
}

// norm_linear has the bits of its parts: the norm, rounded, then linear of it.
static void check_normed(const struct twin *w, enum dtype stored, int32_t rows, int32_t cols,
                         int32_t n, int form) {
    const struct backend_ops *ops = w->gpu->ops;
    const bool layer = form & 1, act = form & 2, gated = form & 4;
    const bool in_8bit = dtype_size(stored) == 1;
    const int32_t width = act && gated ? rows / 2 : rows;
    op_seed((uint64_t)(rows + cols * 3 + n));
    void *data = malloc((size_t)(rows * cols) * dtype_size(stored));
    float *scales = op_floats(rows);
    for (int32_t i = 0; i < rows * cols; i++) {
        if (stored == DTYPE_I8)
            ((int8_t *)data)[i] = (int8_t)(op_random() * 100);
        else if (in_8bit)
            ((uint8_t *)data)[i] = e4m3_from_f32(op_random() * 60);
        else
            op_write(stored, data, i, op_random());
    }
    struct tensor_view v = {data, stored, rows, cols, cols, 1, in_8bit ? scales : NULL, 0};
    struct weight gw;
    assert_int_equal(ops->weight_init(w->gpu, &gw, &v, 1, NULL), 0);
    float *x = twin_floats(w, n * cols), *bias = op_floats(rows);
    float *nw = op_floats(cols), *nb = op_floats(cols);
    for (int32_t i = 0; i < n * cols; i++) x[i] = twin_round(w->t, 3 * x[i] + 1);
    void *gx = twin_up(w, x, n * cols), *normed = twin_up(w, NULL, n * cols);
    void *parts = twin_up(w, NULL, n * width), *whole = twin_up(w, NULL, n * width);
    float *gb = twin_up_bytes(w, bias, (size_t)rows * 4);
    float *gnw = twin_up_bytes(w, nw, (size_t)cols * 4),
          *gnb = twin_up_bytes(w, nb, (size_t)cols * 4);
    const struct norm_args a = {layer ? NORM_LAYER : NORM_RMS, gnw, layer ? gnb : NULL, 1e-5f, 0};
    const struct activate_args by = {gated ? ACT_SILU : ACT_GELU, gated};
    int rc = ops->norm_linear(w->gpu, &a, LINEAR_STORE, whole, gx, n, &gw, gb, act ? &by : NULL);
    if (rc != OP_DECLINED) {
        assert_int_equal(rc, 0);
        ops->norm(w->gpu, normed, gx, n, cols, &a);
        if (act)
            ops->linear_activate(w->gpu, parts, normed, n, &gw, gb, by.act, by.gated);
        else
            ops->linear(w->gpu, LINEAR_STORE, parts, normed, n, &gw, gb);
        float *p = twin_down(w, parts, n * width, w->t), *q = twin_down(w, whole, n * width, w->t);
        op_same_bits(p, q, n * width, "norm_linear");
        free(p), free(q);
    } else if (n == 1 && (rows > 9000 || (rows > 3000 && stored == w->t)) && w->t != DTYPE_F32 &&
               !strstr(w->gpu->description, "deterministic")) {
        fail_msg("norm_linear declined (%d, %d) form %d", rows, cols, form);
    }
    ops->weight_release(w->gpu, &gw);
    twin_free(w, gx), twin_free(w, normed), twin_free(w, parts), twin_free(w, whole);
    twin_free(w, gb), twin_free(w, gnw), twin_free(w, gnb);
    free(data), free(scales), free(x), free(bias), free(nw), free(nb);
}

static void normed(const struct twin *w) {
    static const int32_t widths[] = {264, 3584, 4096};
    for (int i = 0; i < 3; i++)
        for (int form = 0; form < 8; form++)
            for (int32_t n = 1; n <= 2; n++) {
                check_normed(w, w->t, 104, widths[i], n, form);
                if (widths[i] % 16 == 0) check_normed(w, DTYPE_I8, 72, widths[i], n, form);
            }
    // 8 bits, by blocks that stay: many items each, or two and some three.
    for (int i = 0; i < 2 && w->t != DTYPE_F32; i++) {
        const enum dtype stored = i ? DTYPE_F8_E4M3 : DTYPE_I8;
        check_normed(w, stored, 16384, 3072, 1, 6);
        check_normed(w, stored, 16384, 2048, 1, 6);
        check_normed(w, stored, 9216, 3072, 1, 1);
        check_normed(w, stored, 12288, 1600, 1, 3);
    }
    check_normed(w, w->t, 6144, 4096, 1, 0); // one for each of the cuts
    check_normed(w, w->t, 3072, 2048, 1, 0);
    check_normed(w, w->t, 4800, 1600, 1, 1);
    check_normed(w, w->t, 12288, 4096, 1, 3);
    check_normed(w, w->t, 6400, 1600, 1, 3);
    check_normed(w, w->t, 16384, 2048, 1,
                 6); // blocks that stay: several items each, or two and some three
    check_normed(w, w->t, 9216, 4096, 1, 7);
    check_normed(w, w->t, 8464, 2056, 1, 1);
}

static void test_normed(void **state) {
    twin_each(normed);
}
static void test_shapes(void **state) {
    twin_each(shapes);
}
static void test_widths(void **state) {
    twin_each(widths);
}
static void test_stacks(void **state) {
    twin_each(stacks);
}
static void test_integers(void **state) {
    twin_each(integers);
}
static void test_not_finite(void **state) {
    twin_each(not_finite);
}
static void test_numbers_8bit(void **state) {
    twin_each(numbers_8bit);
}
static void test_every_code(void **state) {
    twin_each(every_code);
}
static void test_activated(void **state) {
    twin_each(activated);
}
static void test_same_bits(void **state) {
    twin_each(same_bits);
}
static void test_refused(void **state) {
    twin_each(refused);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),       cmocka_unit_test(test_widths),
        cmocka_unit_test(test_stacks),       cmocka_unit_test(test_integers),
        cmocka_unit_test(test_numbers_8bit), cmocka_unit_test(test_activated),
        cmocka_unit_test(test_same_bits),    cmocka_unit_test(test_refused),
        cmocka_unit_test(test_not_finite),   cmocka_unit_test(test_normed),
        cmocka_unit_test(test_every_code),
    };
    cmocka_set_test_filter(getenv("PARLEY_TEST_ONLY")); // under a sanitizer one test takes long
    return cmocka_run_group_tests(tests, NULL, NULL);
}
