// CUDA's linear with weights of few bits against the CPU's, which is tested against double precision
// (test_linear_groups.c): formats that stay in few bits and formats that are widened, one row, few and many, parts, bias
// and addition. With `deterministic` a row has the bits that it has alone. A norm, an activation or a gate that linear
// computes gives the bits of the ops it replaces.
#include "kernels/cuda/groups.h"
#include "tests/ops/group_rows.h"
#include "tests/ops/twin.h"

static const struct group_format formats[] = {
    {4, 128, GROUP_SCALE_F16, GROUP_ZERO_SAME, 8, NULL},
    {4, 32, GROUP_SCALE_F16, GROUP_ZERO_SAME, 8, NULL},
    {4, 32, GROUP_SCALE_F16, GROUP_MIN_F16, 0, NULL},
    {4, 64, GROUP_SCALE_BF16, GROUP_ZERO_U8, 1, NULL},
    {4, 256, GROUP_SCALE_F32, GROUP_ZERO_SAME, 8, NULL},
    {4, 16, GROUP_SCALE_F32, GROUP_ZERO_SAME, 16, group_book_e2m1},
    {4, 32, GROUP_SCALE_NESTED, GROUP_MIN_NESTED, 0, NULL},
    {4, 32, GROUP_SCALE_NESTED, GROUP_ZERO_SAME, 128, group_book_iq4},
    {8, 32, GROUP_SCALE_F16, GROUP_ZERO_SAME, 128, NULL},   // Q8_0
    {6, 16, GROUP_SCALE_NESTED, GROUP_ZERO_SAME, 32, NULL}, // Q6_K
    {5, 32, GROUP_SCALE_NESTED, GROUP_MIN_NESTED, 0, NULL}, // Q5_K
    {8, 64, GROUP_SCALE_F16, GROUP_ZERO_U8, 1, NULL},       // GPTQ
    {8, 256, GROUP_SCALE_F32, GROUP_ZERO_SAME, 128, NULL},  //
    {2, 16, GROUP_SCALE_NESTED, GROUP_MIN_NESTED, 0, NULL}, // Q2_K, widened
};
enum { N_FORMATS = sizeof formats / sizeof *formats, KEPT = N_FORMATS - 1 };

// The GPU has scales and offsets in F16, rounded at 2^-11: how much that may change a result, of the largest. Groups cancel each
// other, and offsets most of what codes make.
static double scale_unit(const struct twin *w, const struct group_format *f) {
    const bool same = f->zero_kind == GROUP_ZERO_SAME;
    const bool exact = (f->scale == GROUP_SCALE_F16 || f->scale == GROUP_SCALE_BF16) &&
                       (same || f->zero_kind == GROUP_MIN_F16);
    return exact || w->t == DTYPE_F32 ? 0 : same ? 0x1p-10 : 0x1p-9;
}

// unit: scale_unit.
static void check_rows(const struct twin *w, double unit, struct weight *cpu, struct weight *gpu,
                       enum linear_mode mode, int32_t n, bool with_bias) {
    const int32_t rows = cpu->rows, cols = cpu->cols;
    const enum dtype out = mode == LINEAR_STORE_F32 ? DTYPE_F32 : w->t;
    float *x = twin_floats(w, (int64_t)n * cols), *y = twin_floats(w, (int64_t)n * rows);
    float *bias = op_floats(rows);
    void *gx = twin_up(w, x, (int64_t)n * cols);
    void *gbias = twin_up_bytes(w, bias, (size_t)rows * 4);
    void *gy = out == w->t ? twin_up(w, y, (int64_t)n * rows)
                           : twin_up_bytes(w, y, (size_t)n * (size_t)rows * 4);
    w->cpu->ops->linear(w->cpu, mode, y, x, n, cpu, with_bias ? bias : NULL);
    assert_int_equal(w->gpu->ops->linear(w->gpu, mode, gy, gx, n, gpu, with_bias ? gbias : NULL),
                     0);
    // F32's sums; many rows' weights are rounded to T, as those that are widened.
    const bool rounded = gpu->dtype != DTYPE_U8 || (n > 128 && !cuda_groups_tall(rows, cols));
    float largest = 0;
    for (int64_t i = 0; i < (int64_t)n * rows; i++) largest = fmaxf(largest, fabsf(y[i]));
    const double slack = ((rounded ? 2 * twin_unit(w->t) : 0) + 6e-5 + unit) * largest;
    twin_compare(w, gy, out, y, (int64_t)n * rows, 1.1, slack, "groups");
    if (mode != LINEAR_ADD && strstr(w->gpu->description, "determ")) {
        float *all = twin_down(w, gy, (int64_t)n * rows, out), *one;
        for (int32_t r = 0; r<n; r += n> 20 ? 11 : 1) {
            void *gone = twin_alloc(w, (size_t)rows * 4);
            const char *from = (const char *)gx + (size_t)r * (size_t)cols * dtype_size(w->t);
            w->gpu->ops->linear(w->gpu, mode, gone, from, 1, gpu, with_bias ? gbias : NULL);
            one = twin_down(w, gone, rows, out);
            op_same_bits(one, all + (int64_t)r * rows, rows, "a row alone");
            twin_free(w, gone);
            free(one);
        }
        free(all);
    }
    twin_free(w, gx), twin_free(w, gy), twin_free(w, gbias);
    free(x), free(y), free(bias);
}

static void check_format(const struct twin *w, const struct group_format *f, int32_t rows,
                         int32_t cols, int n_parts) {
    static const int32_t counts[] = {1, 2, 8, 9, 17, 33, 150, 100};
    const struct group_rows s = {*f, cols, 0};
    const struct group_source source = {*f, group_rows_fill, &s};
    const double unit = scale_unit(w, f);
    struct tensor_view v[2] = {{.data = &source, .dtype = DTYPE_U8, .rows = rows, .cols = cols},
                               {.data = &source, .dtype = DTYPE_U8, .rows = rows, .cols = cols}};
    struct weight cpu, gpu;
    struct err err = {0};
    if (n_parts == 2) v[0].rows = 32, v[1].rows = rows - 32;
    if (w->cpu->ops->weight_init(w->cpu, &cpu, v, n_parts, &err) < 0) fail_msg("%s", err.text);
    if (w->gpu->ops->weight_init(w->gpu, &gpu, v, n_parts, &err) < 0) fail_msg("%s", err.text);
    const bool kept = w->t != DTYPE_F32 && f != &formats[KEPT] && cols % 8 == 0;
    assert_int_equal(gpu.dtype, kept ? DTYPE_U8 : w->t);
    if (kept) assert_true(gpu.bytes < (size_t)(rows + 16) * (size_t)(cols + 256) * 3 / 2);
    for (int i = 0; i < 8; i++) {
        check_rows(w, unit, &cpu, &gpu, LINEAR_STORE, counts[i], i % 2);
        if (i % 2 == 0) check_rows(w, unit, &cpu, &gpu, LINEAR_ADD, counts[i], true);
    }
    check_rows(w, unit, &cpu, &gpu, LINEAR_STORE_F32, 3, false);
    w->cpu->ops->weight_release(w->cpu, &cpu);
    w->gpu->ops->weight_release(w->gpu, &gpu);
}

static void kinds(const struct twin *w) {
    op_seed(17);
    for (int i = 0; i < N_FORMATS; i++) {
        check_format(w, &formats[i], 83, 328, 1); // neither whole tiles nor whole chunks
        check_format(w, &formats[i], 83, 328, 2);
    }
}

static void sizes(const struct twin *w) {
    op_seed(18);
    check_format(w, &formats[0], 16, 128, 1);
    check_format(w, &formats[1], 7, 8, 1);
    check_format(w, &formats[2], 48, 5000, 2); // each warp has more chunks than it asks for ahead
    check_format(w, &formats[0], 512, 4608, 1);
    check_format(w, &formats[3], 4999, 1096,
                 1); // more items than blocks that stay, the last one cut
    check_format(w, &formats[5], 147, 2880, 1);
    check_format(w, &formats[1], 130, 14336, 1);
    check_format(w, &formats[6], 33, 100, 1); // columns that are no whole words: widened
    for (int i = 8; i < KEPT; i++) {
        check_format(w, &formats[i], 16, 64, 1);
        check_format(w, &formats[i], 48, 5000, 2);
        check_format(w, &formats[i], 515, 4608, 1);
        check_format(w, &formats[i], 4999, 1096, 1);
        check_format(w, &formats[i], 130, 14336, 1);
    }
    check_format(w, &formats[9], 16500, 1096, 1); // a head's shape, which is never widened
}

// One row of values that differ by 2^40 within a group or between groups, of zeros, of values near the dtype's least; and a
// NaN, which reaches every result. Against double precision: the CPU keeps 16 bits of the largest value of 256 columns.
enum { WILD_COLS = 1536, WILD_ROWS = 48, WILD_KINDS = 3 };

static void wild_x(const struct twin *w, int kind, float *x) {
    const int span = w->t == DTYPE_F16 ? 10 : 20;
    op_seed(23);
    for (int i = 0; i < WILD_COLS; i++) {
        const float v = op_random();
        const int power = (kind == 0 ? i * 7 : i / 256 * 7) % (2 * span) - span;
        const float value =
            kind == 2 ? v * (w->t == DTYPE_F16 ? 0x1p-20f : 0x1p-90f) : ldexpf(v, power);
        x[i] = twin_round(w->t, kind == 1 && i / 256 == 3 ? 0 : value);
    }
}

// A value may be rounded at 2^-23 of the largest of its group, whatever its code; sums are of F32.
static void wild_compare(const struct group_rows *s, double unit, const float *x, const float *y) {
    static uint8_t codes[WILD_COLS];
    static float scales[WILD_COLS];
    uint16_t zeros[WILD_COLS], supers[WILD_COLS / GROUP_TILE_K],
        min_supers[WILD_COLS / GROUP_TILE_K];
    struct group_row row = {codes, scales, supers, zeros, min_supers};
    struct err err;
    for (int r = 0; r < WILD_ROWS; r++) {
        double sum = 0, slack = 0;
        assert_int_equal(group_rows_fill(s, r, &row, &err), 0);
        for (int k = 0; k < WILD_COLS; k++) {
            const int first = k / s->f.group * s->f.group;
            float most = 0;
            for (int i = first; i < first + s->f.group; i++) most = fmaxf(most, fabsf(x[i]));
            const double size = fabs(group_value(&s->f, &row, k, 0)) +
                                fabs(group_value(&s->f, &row, k, (uint8_t)((1 << s->f.bits) - 1)));
            sum += group_row_value(&s->f, &row, k) * (double)x[k];
            slack += size * (0x1p-23 * (double)most + (1e-6 + unit) * fabs((double)x[k]));
        }
        op_near(y[r], sum, slack, "a wild row", r);
    }
}

static void extremes(const struct twin *w) {
    float x[WILD_COLS];
    for (int f = 0; f < KEPT; f++) {
        const struct group_rows s = {formats[f], WILD_COLS, 0};
        const struct group_source source = {formats[f], group_rows_fill, &s};
        const struct tensor_view v = {
            .data = &source, .dtype = DTYPE_U8, .rows = WILD_ROWS, .cols = WILD_COLS};
        struct weight gpu;
        struct err err = {0};
        if (w->gpu->ops->weight_init(w->gpu, &gpu, &v, 1, &err) < 0) fail_msg("%s", err.text);
        for (int kind = 0; kind <= WILD_KINDS; kind++) {
            wild_x(w, kind % WILD_KINDS, x);
            if (kind == WILD_KINDS) x[700] = NAN;
            void *gx = twin_up(w, x, WILD_COLS), *gy = twin_alloc(w, WILD_ROWS * 4);
            assert_int_equal(w->gpu->ops->linear(w->gpu, LINEAR_STORE_F32, gy, gx, 1, &gpu, NULL),
                             0);
            float *y = twin_down(w, gy, WILD_ROWS, DTYPE_F32);
            if (kind < WILD_KINDS) wild_compare(&s, scale_unit(w, &s.f), x, y);
            for (int r = 0; r < WILD_ROWS; r++) assert_int_equal(isnan(y[r]), kind == WILD_KINDS);
            free(y);
            twin_free(w, gx), twin_free(w, gy);
        }
        w->gpu->ops->weight_release(w->gpu, &gpu);
    }
}

// On the GPU, of few bits.
static struct weight random_weight(const struct twin *w, const struct group_format *f, int32_t rows,
                                   int32_t cols, uint32_t salt) {
    const struct group_rows s = {*f, cols, salt};
    const struct group_source source = {*f, group_rows_fill, &s};
    const struct tensor_view v = {.data = &source, .dtype = DTYPE_U8, .rows = rows, .cols = cols};
    struct weight gpu;
    struct err err = {0};
    if (w->gpu->ops->weight_init(w->gpu, &gpu, &v, 1, &err) < 0) fail_msg("%s", err.text);
    return gpu;
}

static void check_fused(const struct twin *w, const struct group_format *f, int32_t rows,
                        int32_t cols, enum norm_kind kind, bool gated) {
    const struct backend_ops *ops = w->gpu->ops;
    const int32_t width = rows / (gated ? 2 : 1);
    struct weight gpu = random_weight(w, f, rows, cols, 0);
    float *x = twin_floats(w, cols), *bias = op_floats(rows), *by = op_floats(cols);
    void *gx = twin_up(w, x, cols), *gbias = twin_up_bytes(w, bias, (size_t)rows * 4);
    void *gby = twin_up_bytes(w, by, (size_t)cols * 4);
    void *normed = twin_alloc(w, (size_t)cols * 4), *wide = twin_alloc(w, (size_t)rows * 4);
    void *parts = twin_alloc(w, (size_t)rows * 4), *fused = twin_alloc(w, (size_t)rows * 4);
    const struct norm_args norm = {kind, gby, kind == NORM_LAYER ? gby : NULL, 1e-5f, 0};
    const struct activate_args act = {ACT_SILU, gated};
    const int rc = ops->norm_linear(w->gpu, &norm, LINEAR_STORE, fused, gx, 1, &gpu, gbias,
                                    gated ? &act : NULL);
    const bool declines = gpu.dtype != DTYPE_U8 || strstr(w->gpu->description, "determ");
    if (rc != OP_DECLINED && !declines) {
        assert_int_equal(rc, 0);
        assert_int_equal(ops->norm(w->gpu, normed, gx, 1, cols, &norm), 0);
        assert_int_equal(ops->linear(w->gpu, LINEAR_STORE, wide, normed, 1, &gpu, gbias), 0);
        if (gated)
            assert_int_equal(ops->activate(w->gpu, ACT_SILU, true, parts, wide, 1, width), 0);
        float *a = twin_down(w, fused, width, w->t);
        float *b = twin_down(w, gated ? parts : wide, width, w->t);
        op_same_bits(a, b, width, "a linear with its norm");
        free(a), free(b);
    } else if (!declines && cols <= 4096) {
        fail_msg("declined (%d, %d)", rows, cols);
    }
    twin_free(w, gx), twin_free(w, gbias), twin_free(w, gby), twin_free(w, normed);
    twin_free(w, wide), twin_free(w, parts), twin_free(w, fused);
    free(x), free(bias), free(by);
    ops->weight_release(w->gpu, &gpu);
}

// Several rows with their gate.
static void check_gated(const struct twin *w, const struct group_format *f, int32_t rows,
                        int32_t cols, int32_t n) {
    const struct backend_ops *ops = w->gpu->ops;
    const int64_t results = (int64_t)n * rows / 2;
    struct weight gpu = random_weight(w, f, rows, cols, 0);
    float *x = twin_floats(w, (int64_t)n * cols), *bias = op_floats(rows);
    void *gx = twin_up(w, x, (int64_t)n * cols), *gbias = twin_up_bytes(w, bias, (size_t)rows * 4);
    void *wide = twin_alloc(w, (size_t)results * 8), *parts = twin_alloc(w, (size_t)results * 4);
    void *fused = twin_alloc(w, (size_t)results * 4);
    if (gpu.dtype == DTYPE_U8) {
        assert_int_equal(ops->linear_activate(w->gpu, fused, gx, n, &gpu, gbias, ACT_SILU, true),
                         0);
        assert_int_equal(ops->linear(w->gpu, LINEAR_STORE, wide, gx, n, &gpu, gbias), 0);
        assert_int_equal(ops->activate(w->gpu, ACT_SILU, true, parts, wide, n, rows / 2), 0);
        float *a = twin_down(w, fused, results, w->t), *b = twin_down(w, parts, results, w->t);
        op_same_bits(a, b, results, "a linear with its gate");
        free(a), free(b);
    }
    twin_free(w, gx), twin_free(w, gbias), twin_free(w, wide), twin_free(w, parts);
    twin_free(w, fused);
    free(x), free(bias);
    ops->weight_release(w->gpu, &gpu);
}

static void fused(const struct twin *w) {
    static const int which[] = {0, 1, 2, 3, 5, 8, 9, 10, 12};
    op_seed(19);
    for (int i = 0; i < 9; i++) {
        const struct group_format *f = &formats[which[i]];
        check_fused(w, f, 160, 1024, NORM_RMS, true);
        check_fused(w, f, 4288, 2880, NORM_RMS, i % 2);
        check_fused(w, f, 83, 4096, NORM_LAYER, false);
        check_fused(w, f, 28672, 1032, NORM_LAYER, true); // several items of a block
    }
    check_fused(w, &formats[0], 64, 8192, NORM_RMS, true); // too wide for the norm inside
    static const int32_t counts[] = {2, 9, 33, 70};
    for (int i = 0; i < 4; i++) {
        check_gated(w, &formats[i], 160, 1032, counts[i]);
        check_gated(w, &formats[which[4 - i]], 8576, 2880, counts[i]);
        check_gated(w, &formats[which[8 - i]], 8576, 2880, counts[i]);
    }
}

// The linears of a layer's end and of the next one's start, which wait for each other and are launched together, against
// themselves one after the other: their sums have another order, so that a result may be rounded otherwise.
struct layer {
    struct weight out, up, down, next;
    int32_t width, feed, rows;
    float *weights;                            // of the norms
    void *attended, *x, *activated, *activity; // x: the stream; activity: of `next`
};

// apart: each is read before the next one is asked for, and so launched alone.
static void run_layer(const struct twin *w, struct layer *l, bool apart) {
    const struct backend_ops *ops = w->gpu->ops;
    const struct norm_args norm = {NORM_RMS, l->weights, NULL, 1e-5f, 0};
    const struct activate_args act = {ACT_SILU, true};
    uint16_t some[8];
    assert_int_equal(ops->linear(w->gpu, LINEAR_ADD, l->x, l->attended, 1, &l->out, NULL), 0);
    if (apart) ops->mem_read(w->gpu, some, l->x, sizeof some);
    assert_int_equal(
        ops->norm_linear(w->gpu, &norm, LINEAR_STORE, l->activated, l->x, 1, &l->up, NULL, &act),
        0);
    if (apart) ops->mem_read(w->gpu, some, l->activated, sizeof some);
    assert_int_equal(ops->linear(w->gpu, LINEAR_ADD, l->x, l->activated, 1, &l->down, NULL), 0);
    if (apart) ops->mem_read(w->gpu, some, l->x, sizeof some);
    assert_int_equal(
        ops->norm_linear(w->gpu, &norm, LINEAR_STORE, l->activity, l->x, 1, &l->next, NULL, NULL),
        0);
}

static void check_chain(const struct twin *w, const struct group_format *f,
                        const struct group_format *down, int32_t width, int32_t feed,
                        int32_t rows) {
    struct layer l = {.width = width, .feed = feed, .rows = rows};
    float *x = twin_floats(w, width), *attended = twin_floats(w, width), *by = op_floats(width);
    // F16 ends at 65,504, and the stream grows.
    for (int32_t i = 0; i < width; i++) x[i] /= 64, attended[i] /= 64, by[i] /= 16;
    float *want[3], *got[3];
    l.out = random_weight(w, f, width, width, 1), l.up = random_weight(w, f, 2 * feed, width, 2);
    l.down = random_weight(w, down, width, feed, 3), l.next = random_weight(w, f, rows, width, 4);
    l.weights = twin_up_bytes(w, by, (size_t)width * 4);
    l.activated = twin_alloc(w, (size_t)feed * 4), l.activity = twin_alloc(w, (size_t)rows * 4);
    l.attended = twin_up(w, attended, width);
    for (int round = 0; round < 4; round++) {
        l.x = twin_up(w, x, width);
        // Several at once: what one leaves behind is what the next one begins with.
        for (int again = 0; again < (round ? 3 : 1); again++) run_layer(w, &l, round == 0);
        if (round > 1) { // the same bits again
            float *same = twin_down(w, l.activity, rows, w->t);
            op_same_bits(same, got[2], rows, "a chain again");
            free(same);
        } else {
            float **to = round ? got : want;
            to[0] = twin_down(w, l.activated, feed, w->t);
            to[1] = twin_down(w, l.x, width, w->t);
            to[2] = twin_down(w, l.activity, rows, w->t);
        }
        twin_free(w, l.x);
        if (round != 0) continue;
        l.x = twin_up(w, x, width); // the chain's first run alone, against the linears one by one
        run_layer(w, &l, false);
        const int32_t n[3] = {feed, width, rows};
        const void *at[3] = {l.activated, l.x, l.activity};
        for (int i = 0; i < 3; i++) {
            float *one = twin_down(w, at[i], n[i], w->t), largest = 0;
            for (int32_t k = 0; k < n[i]; k++) largest = fmaxf(largest, fabsf(want[i][k]));
            for (int32_t k = 0; k < n[i]; k++)
                op_near(one[k], want[i][k], 4 * twin_unit(w->t) * (double)largest, "a chain", k);
            free(one), free(want[i]);
        }
        twin_free(w, l.x);
    }
    for (int i = 0; i < 3; i++) free(got[i]);
    twin_free(w, l.attended), twin_free(w, l.activated), twin_free(w, l.activity);
    twin_free(w, l.weights);
    w->gpu->ops->weight_release(w->gpu, &l.out), w->gpu->ops->weight_release(w->gpu, &l.up);
    w->gpu->ops->weight_release(w->gpu, &l.down), w->gpu->ops->weight_release(w->gpu, &l.next);
    free(x), free(attended), free(by);
}

static void chains(const struct twin *w) {
    static const int pairs[][2] = {{2, 2},  {6, 9},   {8, 8},
                                   {10, 9}, {11, 11}, {0, 9}}; // the last: one alone
    if (w->t == DTYPE_F32 || strstr(w->gpu->description, "determ")) return;
    op_seed(29);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const struct group_format *f = &formats[pairs[i][0]], *down = &formats[pairs[i][1]];
        check_chain(w, f, down, 1024, 2816, 1544);
        check_chain(w, f, down, 1032, 2816, 1544); // two of four alone wait for each other
        check_chain(w, f, down, 2560, 9728, 300);
        check_chain(w, f, down, 4096, 14336, 6144);
        // Most blocks without a tile, most warps without a piece. A norm is fused with so few columns by a chain alone.
        if (pairs[i][0] != 0) check_chain(w, f, down, 256, 512, 136);
    }
    check_chain(w, &formats[6], &formats[6], 8192, 1024, 1024);
    check_chain(w, &formats[8], &formats[9], 512, 28672, 1024);
    check_chain(w, &formats[6], &formats[9], 512, 28672, 1024); // no room for both: each alone
}

// Rows of an embedding, scaled; columns that end within a chunk.
static void embeddings(const struct twin *w) {
    enum { VOCAB = 83, COLS = 328, N = 5 };
    static const int32_t ids[N] = {0, 82, 7, 7, 40}, positions[N] = {0};
    for (int f = 0; f < N_FORMATS; f++) {
        const struct group_rows s = {formats[f], COLS, 0};
        const struct group_source source = {formats[f], group_rows_fill, &s};
        const struct tensor_view v = {
            .data = &source, .dtype = DTYPE_U8, .rows = VOCAB, .cols = COLS};
        struct twin_rows rows;
        struct weight cpu, gpu;
        float y[N * COLS];
        assert_int_equal(w->cpu->ops->weight_init(w->cpu, &cpu, &v, 1, NULL), 0);
        assert_int_equal(w->gpu->ops->weight_init(w->gpu, &gpu, &v, 1, NULL), 0);
        void *gy = twin_up(w, NULL, N * COLS);
        const struct batch *b = twin_step(w, &rows, N, ids, positions, NULL, 0);
        w->cpu->ops->embed(w->cpu, y, b, &cpu, 1.5f);
        assert_int_equal(w->gpu->ops->embed(w->gpu, gy, b, &gpu, 1.5f), 0);
        // Codes that are widened once are rounded twice.
        float largest = 0;
        for (int i = 0; i < N * COLS; i++) largest = fmaxf(largest, fabsf(y[i]));
        twin_compare(w, gy, w->t, y, N * COLS, gpu.dtype == DTYPE_U8 ? 1.01 : 2.01,
                     2 * scale_unit(w, &formats[f]) * largest, "embed");
        assert_int_equal(w->gpu->ops->step_end(w->gpu), 0);
        w->cpu->ops->weight_release(w->cpu, &cpu);
        w->gpu->ops->weight_release(w->gpu, &gpu);
        twin_free(w, gy);
    }
}

// Scales that F16 does not hold: all of them tiny, or one too large. The matrix is widened.
struct scaled_rows {
    struct group_rows rows;
    float all, one; // factors: of all scales, of one of them
};

static int fill_scaled(const void *ctx, int64_t row, struct group_row *out, struct err *err) {
    const struct scaled_rows *s = ctx;
    float *scales = out->scales;
    group_rows_fill(&s->rows, row, out, err);
    for (int64_t g = 0; g < group_count(&s->rows.f, s->rows.cols); g++) scales[g] *= s->all;
    if (row == 70) scales[3] = s->one;
    return 0;
}

static void scales_that_do_not_fit(const struct twin *w) {
    static const float by[][3] = // all, one, whether they fit
        {{1, 255, 1}, {1, 257, 0}, {1, -257, 0}, {0x1p-14, 0, 0}, {0x1p-14, 1e-3f, 1}};
    for (size_t i = 0; i < sizeof by / sizeof *by; i++) {
        const struct scaled_rows s = {
            {{4, 32, GROUP_SCALE_F32, GROUP_ZERO_SAME, 8, NULL}, 328, 0}, by[i][0], by[i][1]};
        const struct group_source source = {s.rows.f, fill_scaled, &s};
        const struct tensor_view v = {
            .data = &source, .dtype = DTYPE_U8, .rows = 83, .cols = s.rows.cols};
        struct weight cpu, gpu;
        if (w->t == DTYPE_F32 || (w->t == DTYPE_F16 && by[i][0] < 1))
            continue; // f16 has no such numbers
        assert_int_equal(w->cpu->ops->weight_init(w->cpu, &cpu, &v, 1, NULL), 0);
        assert_int_equal(w->gpu->ops->weight_init(w->gpu, &gpu, &v, 1, NULL), 0);
        assert_int_equal(gpu.dtype, by[i][2] != 0 ? DTYPE_U8 : w->t);
        check_rows(w, scale_unit(w, &s.rows.f), &cpu, &gpu, LINEAR_STORE_F32, 3, false);
        w->cpu->ops->weight_release(w->cpu, &cpu);
        w->gpu->ops->weight_release(w->gpu, &gpu);
    }
}

static void refusals(const struct twin *w) {
    const struct group_rows s = {formats[0], 256, 0};
    struct group_source source = {formats[0], group_rows_refuse, &s};
    const struct tensor_view v = {.data = &source, .dtype = DTYPE_U8, .rows = 83, .cols = 256};
    struct weight gpu;
    struct err err = {0};
    assert_int_equal(w->gpu->ops->weight_init(w->gpu, &gpu, &v, 1, &err), E_FORMAT);
    assert_string_equal(err.text, "row 40 holds a scale of nan");
    source.format.group = 24;
    assert_int_equal(w->gpu->ops->weight_init(w->gpu, &gpu, &v, 1, &err), E_INVAL);
}

static void test_kinds(void **state) {
    twin_each(kinds);
}
static void test_sizes(void **state) {
    twin_each(sizes);
}
static void test_fused(void **state) {
    twin_each(fused);
}
static void test_extremes(void **state) {
    twin_each(extremes);
}
static void test_chains(void **state) {
    twin_each(chains);
}
static void test_embeddings(void **state) {
    twin_each(embeddings);
}
static void test_scales_that_do_not_fit(void **state) {
    twin_each(scales_that_do_not_fit);
}
static void test_refusals(void **state) {
    twin_each(refusals);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kinds),
                                       cmocka_unit_test(test_sizes),
                                       cmocka_unit_test(test_fused),
                                       cmocka_unit_test(test_extremes),
                                       cmocka_unit_test(test_chains),
                                       cmocka_unit_test(test_embeddings),
                                       cmocka_unit_test(test_scales_that_do_not_fit),
                                       cmocka_unit_test(test_refusals)};
    cmocka_set_test_filter(getenv("PARLEY_TEST_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
