// CUDA's route and experts against their CPU twins: few rows and many, shapes that the fast kernels do not
// cover, experts without rows, one that takes all. With `deterministic` a row has the bits that it has
// alone.
#include "kernels/cpu/weight.h"
#include "kernels/fp8.h"
#include "tests/ops/group_rows.h"
#include "tests/ops/twin.h"

static void routes(const struct twin *w) {
    static const int32_t sizes[][2] = {{1, 1}, {4, 2}, {60, 4}, {128, 8}, {512, 10}, {1024, 1}};
    enum { ROWS = 9 };
    op_seed(1);
    for (int i = 0; i < 6 * 3 * 4; i++) {
        const int32_t n = sizes[i / 12][0], k = sizes[i / 12][1], all = ROWS * n, out = ROWS * k;
        const int variant = i % 4;
        struct route_args a = {(enum router_kind)(i / 4 % 3),
                               n,
                               k,
                               variant % 2 == 1,
                               variant ? 2.5f : 1,
                               NULL,
                               NULL,
                               0,
                               0,
                               0};
        float *logits = op_floats(all), *bias = op_floats(n), *scale = op_floats(n);
        float *weights = op_floats(out), *got;
        int32_t *ids = malloc((size_t)out * 4), *got_ids = malloc((size_t)out * 4);
        for (int32_t j = 0; j < n; j++) logits[j] = (float)(j % 3); // equals in the first row
        for (int32_t j = 0; j < n; j++) logits[n + j] = j % 2 ? 0.0f : -0.0f; // and in the second
        logits[all - 1] = NAN;                                                // of the last row
        struct route_args g = a;
        void *logits_at = twin_up_bytes(w, logits, (size_t)all * 4);
        void *bias_at = twin_up_bytes(w, bias, (size_t)n * 4);
        void *scale_at = twin_up_bytes(w, scale, (size_t)n * 4);
        void *ids_at = twin_alloc(w, (size_t)out * 4), *weights_at = twin_alloc(w, (size_t)out * 4);
        if (variant > 1 && a.kind != ROUTER_TOPK_SOFTMAX)
            a.choice_bias = bias, g.choice_bias = bias_at;
        if (variant == 3) a.expert_scale = scale, g.expert_scale = scale_at;
        if (variant > 0 && n == 128) {
            a.n_groups = g.n_groups = 8, a.n_chosen_groups = g.n_chosen_groups = 3;
            a.group_best = g.group_best = 1 + variant % 2;
        }
        assert_int_equal(w->cpu->ops->route(w->cpu, ids, weights, logits, ROWS, &a), 0);
        assert_int_equal(w->gpu->ops->route(w->gpu, ids_at, weights_at, logits_at, ROWS, &g), 0);
        w->gpu->ops->mem_read(w->gpu, got_ids, ids_at, (size_t)out * 4);
        got = twin_down(w, weights_at, out, DTYPE_F32);
        for (int32_t j = 0; j < out; j++) {
            assert_int_equal(got_ids[j], ids[j]);
            if (j / k == ROWS - 1)
                assert_true(isnan(got[j]));
            else
                op_near(got[j], weights[j], 1e-5 * fabs((double)weights[j]) + 1e-30, "weight", j);
        }
        twin_free(w, logits_at), twin_free(w, bias_at), twin_free(w, scale_at);
        twin_free(w, ids_at), twin_free(w, weights_at);
        free(logits), free(bias), free(scale), free(weights), free(got), free(ids), free(got_ids);
    }
}

// norm, the router's linear and route by one launch: the normed rows have norm's bits, and what is chosen follows from them.
static void norm_route(const struct twin *w, int32_t n, int32_t width, const struct route_args *a,
                       enum norm_kind kind, bool with_bias) {
    const int32_t all = n * width, e = a->n_experts, k = a->n_chosen, out = n * k;
    float *x = twin_floats(w, all), *by = op_floats(width), *bias = op_floats(e), *logits, *normed;
    float *weights = op_floats(out), *got;
    int32_t *ids = malloc((size_t)out * 4), *got_ids = malloc((size_t)out * 4);
    uint16_t *router = malloc((size_t)(e * width) * 2);
    for (int32_t i = 0; i < e * width; i++) op_write(w->t, router, i, op_random() * 0.1f);
    if (n > 2) x[all - 1] = NAN; // of the last row
    const struct tensor_view v = {router, w->t, e, width, width, 1, NULL, 0};
    struct weight cpu, gpu;
    assert_int_equal(w->cpu->ops->weight_init(w->cpu, &cpu, &v, 1, NULL), 0);
    assert_int_equal(w->gpu->ops->weight_init(w->gpu, &gpu, &v, 1, NULL), 0);
    void *x_at = twin_up(w, x, all), *by_at = twin_up_bytes(w, by, (size_t)width * 4);
    void *bias_at = twin_up_bytes(w, bias, (size_t)e * 4);
    void *want_at = twin_up(w, NULL, all), *normed_at = twin_up(w, NULL, all);
    void *ids_at = twin_alloc(w, (size_t)out * 4), *weights_at = twin_alloc(w, (size_t)out * 4);
    const struct norm_args norm = {kind, by_at, kind == NORM_LAYER ? by_at : NULL, 1e-5f, 0};
    assert_int_equal(w->gpu->ops->norm(w->gpu, want_at, x_at, n, width, &norm), 0);
    assert_int_equal(w->gpu->ops->norm_route(w->gpu, ids_at, weights_at, normed_at, x_at, n, &norm,
                                             &gpu, with_bias ? bias_at : NULL, a),
                     0);
    w->gpu->ops->mem_read(w->gpu, got_ids, ids_at, (size_t)out * 4);
    got = twin_down(w, weights_at, out, DTYPE_F32);
    normed = twin_down(w, want_at, all, w->t);
    float *same = twin_down(w, normed_at, all, w->t);
    assert_memory_equal(same, normed, (size_t)all * 4);
    logits = op_floats(n * e);
    assert_int_equal(w->cpu->ops->linear(w->cpu, LINEAR_STORE_F32, logits, normed, n, &cpu,
                                         with_bias ? bias : NULL),
                     0);
    assert_int_equal(w->cpu->ops->route(w->cpu, ids, weights, logits, n, a), 0);
    for (int32_t j = 0; j < out; j++) {
        assert_int_equal(got_ids[j], ids[j]);
        if (n > 2 && j / k == n - 1)
            assert_true(isnan(got[j]));
        else
            op_near(got[j], weights[j], 2e-5 * (1 + fabs((double)weights[j])), "weight", j);
    }
    w->cpu->ops->weight_release(w->cpu, &cpu), w->gpu->ops->weight_release(w->gpu, &gpu);
    twin_free(w, x_at), twin_free(w, by_at), twin_free(w, bias_at), twin_free(w, want_at);
    twin_free(w, normed_at), twin_free(w, ids_at), twin_free(w, weights_at);
    free(x), free(by), free(bias), free(logits), free(normed), free(same), free(weights), free(got);
    free(ids), free(got_ids), free(router);
}

static void norm_routes(const struct twin *w) {
    static const struct route_args qwen3 = {
        ROUTER_SOFTMAX_TOPK, 128, 8, true, 1, NULL, NULL, 0, 0, 0};
    static const struct route_args gpt_oss = {
        ROUTER_TOPK_SOFTMAX, 32, 4, false, 1, NULL, NULL, 0, 0, 0};
    static const struct route_args grouped = {ROUTER_SIGMOID, 60,   6, true, 2.5f,
                                              NULL,           NULL, 6, 3,    2};
    static const int32_t rows[] = {1, 2, 8, 16};
    if (w->t == DTYPE_F32 || strstr(w->gpu->description, "deterministic")) return;
    op_seed(7);
    for (int i = 0; i < 4; i++) {
        norm_route(w, rows[i], 2048, &qwen3, NORM_RMS, false);
        norm_route(w, rows[i], 2880, &gpt_oss, NORM_RMS, true);
        norm_route(w, rows[i], 200, &grouped, NORM_LAYER, i % 2);
        norm_route(w, rows[i], 4096, &gpt_oss, NORM_LAYER, false);
    }
}

enum { CHOSEN_MOST = 16 }; // of the kernels for one row

struct shape {
    int32_t n_experts, n_chosen, hidden, width;
    enum activation act;
    bool gated, bias;
    float limit;
};

struct layer { // on both backends
    struct weight *cpu, *gpu;
    float *bias, *gpu_bias;
};

static void add_bias(const struct twin *w, struct layer *l, int32_t n, int32_t rows) {
    l->bias = op_floats((int64_t)n * rows);
    l->gpu_bias = twin_up_bytes(w, l->bias, (size_t)n * (size_t)rows * 4);
}

// The same numbers in F32: linear of few bits on a CPU rounds x, this does not.
static void widen(const struct twin *w, struct weight *to, const struct tensor_view *groups) {
    const int64_t rows = groups->rows, cols = groups->cols;
    struct weight few;
    float *wide = malloc((size_t)(rows * cols) * 4);
    assert_int_equal(w->cpu->ops->weight_init(w->cpu, &few, groups, 1, NULL), 0);
    for (int64_t r = 0; r < rows; r++) weight_row(&few, r, wide + r * cols);
    const struct tensor_view v = {wide, DTYPE_F32, rows, cols, cols, 1, NULL, 0};
    assert_int_equal(w->cpu->ops->weight_init(w->cpu, to, &v, 1, NULL), 0);
    w->cpu->ops->weight_release(w->cpu, &few);
    free(wide);
}

// Of few bits.
static struct layer make_groups(const struct twin *w, const struct group_format *f, int32_t n,
                                int32_t rows, int32_t cols, bool bias) {
    struct layer l = {calloc((size_t)n, sizeof *l.cpu), calloc((size_t)n, sizeof *l.gpu), NULL,
                      NULL};
    for (int32_t e = 0; e < n; e++) {
        const struct group_rows s = {*f, cols, 100 * (uint32_t)e};
        const struct group_source source = {*f, group_rows_fill, &s};
        const struct tensor_view v = {
            .data = &source, .dtype = DTYPE_U8, .rows = rows, .cols = cols};
        widen(w, &l.cpu[e], &v);
        assert_int_equal(w->gpu->ops->weight_init(w->gpu, &l.gpu[e], &v, 1, NULL), 0);
    }
    if (bias) add_bias(w, &l, n, rows);
    return l;
}

// Of dtype t; 8 bits have a scale for each row or, with block_k, for each block of a row.
static struct layer make(const struct twin *w, enum dtype t, int32_t block_k, int32_t n,
                         int32_t rows, int32_t cols, bool bias) {
    struct layer l = {calloc((size_t)n, sizeof *l.cpu), calloc((size_t)n, sizeof *l.gpu), NULL,
                      NULL};
    const int64_t each = (int64_t)rows * cols;
    uint8_t *data = malloc((size_t)each * 4);
    const int32_t n_scales = rows * fp8_blocks(cols, block_k);
    float *scales = malloc((size_t)n_scales * 4);
    const bool eight = dtype_size(t) == 1;
    for (int32_t e = 0; e < n; e++) {
        for (int64_t i = 0; i < each; i++) {
            if (eight)
                data[i] = t == DTYPE_I8 ? (uint8_t)(int8_t)(op_random() * 30)
                                        : e4m3_from_f32(op_random() * 20);
            else
                op_write(t, data, i, op_random() * 0.1f);
        }
        for (int32_t r = 0; r < n_scales; r++) scales[r] = 0.002f * (1 + fabsf(op_random()));
        for (int32_t r = 7; block_k && r < n_scales; r += 13) scales[r] = r % 2 ? 0 : -scales[r];
        struct tensor_view v = {data, t, rows, cols, cols, 1, eight ? scales : NULL, block_k};
        assert_int_equal(w->cpu->ops->weight_init(w->cpu, &l.cpu[e], &v, 1, NULL), 0);
        assert_int_equal(w->gpu->ops->weight_init(w->gpu, &l.gpu[e], &v, 1, NULL), 0);
    }
    if (bias) add_bias(w, &l, n, rows);
    free(data), free(scales);
    return l;
}

static void release(const struct twin *w, struct layer *l, int32_t n) {
    for (int32_t e = 0; e < n; e++) {
        w->cpu->ops->weight_release(w->cpu, &l->cpu[e]);
        w->gpu->ops->weight_release(w->gpu, &l->gpu[e]);
    }
    free(l->cpu), free(l->gpu), free(l->bias);
    if (l->gpu_bias) twin_free(w, l->gpu_bias);
}

// Random experts for each row, ascending; `one`: the first row's for all.
static void choose(int32_t *ids, int32_t n, const struct shape *s, bool one) {
    const int32_t k = s->n_chosen, e = s->n_experts;
    for (int32_t i = 0; i < n * k; i++) {
        const int32_t j = i % k, low = j * e / k, high = (j + 1) * e / k;
        ids[i] = one && i >= k ? ids[j] : low + (int32_t)(fabsf(op_random()) * 1000) % (high - low);
    }
}

static void run(const struct twin *w, const struct experts_args *a, enum linear_mode mode, void *y,
                const void *x, int32_t n, const void *ids, const void *weights) {
    const size_t bytes = w->gpu->ops->experts_bytes(w->gpu, n, a);
    void *work = twin_alloc(w, bytes);
    uint8_t *poison = malloc(bytes);
    memset(poison, 0xff, bytes);
    w->gpu->ops->mem_write(w->gpu, work, poison, bytes);
    assert_int_equal(w->gpu->ops->experts(w->gpu, mode, y, x, n, ids, weights, a, work), 0);
    free(poison);
    twin_free(w, work);
}

static struct experts_args args_of(const struct shape *s, const struct layer *up,
                                   const struct layer *down, bool gpu) {
    return (struct experts_args){.n_experts = s->n_experts,
                                 .n_chosen = s->n_chosen,
                                 .up = gpu ? up->gpu : up->cpu,
                                 .down = gpu ? down->gpu : down->cpu,
                                 .up_bias = gpu ? up->gpu_bias : up->bias,
                                 .down_bias = gpu ? down->gpu_bias : down->bias,
                                 .activate = {s->act, s->gated},
                                 .limit = s->limit};
}

// One row, whose last expert is a shared one. Whether the GPU took it along.
static bool check_shared(const struct twin *w, const struct shape *s, const struct layer *up,
                         const struct layer *down, bool few_bits) {
    const int32_t k = s->n_chosen, all = s->hidden;
    const struct experts_args a = args_of(s, up, down, false);
    struct experts_args g = args_of(s, up, down, true);
    g.n_experts--, g.n_chosen--, g.shared = true;
    int32_t ids[CHOSEN_MOST];
    float weights[CHOSEN_MOST], *x = twin_floats(w, all), *want = twin_floats(w, all);
    choose(ids, 1, s, false);
    for (int i = 0; i < k; i++) weights[i] = 0.5f + (float)i / 8;
    ids[k - 1] = s->n_experts - 1, weights[k - 1] = 1;
    for (int i = 0; i < all && few_bits; i++) x[i] *= 0.015625f;
    void *gx = twin_up(w, x, all), *gy = twin_up(w, want, all);
    void *gi = twin_up_bytes(w, ids, (size_t)(k - 1) * 4),
         *gw = twin_up_bytes(w, weights, (size_t)(k - 1) * 4);
    void *gwork = twin_alloc(w, w->gpu->ops->experts_bytes(w->gpu, 1, &g)), *work;
    struct err err = {0};
    const int rc = w->gpu->ops->experts(w->gpu, LINEAR_ADD, gy, gx, 1, gi, gw, &g, gwork);
    assert_int_equal(
        w->cpu->ops->mem_alloc(w->cpu, w->cpu->ops->experts_bytes(w->cpu, 1, &a), &work, &err), 0);
    if (rc == 0) {
        double largest = 0;
        assert_int_equal(
            w->cpu->ops->experts(w->cpu, LINEAR_ADD, want, x, 1, ids, weights, &a, work), 0);
        for (int i = 0; i < all; i++) largest = fmax(largest, fabs((double)want[i]));
        twin_compare(w, gy, w->t, want, all, 1.01, 2 * twin_unit(w->t) * (largest + 1), "shared");
    } else {
        assert_int_equal(rc, OP_DECLINED);
    }
    w->cpu->ops->mem_free(w->cpu, work);
    twin_free(w, gx), twin_free(w, gy), twin_free(w, gi), twin_free(w, gw), twin_free(w, gwork);
    free(x), free(want);
    return rc == 0;
}

// n rows; `one`: the first row's experts for all. few_bits: of some matrix.
static void check_rows(const struct twin *w, const struct shape *s, const struct layer *up,
                       const struct layer *down, bool few_bits, int32_t n, bool one) {
    const int32_t k = s->n_chosen, all = n * s->hidden;
    const struct experts_args a = args_of(s, up, down, false), g = args_of(s, up, down, true);
    float *x = twin_floats(w, all), *y = twin_floats(w, all), *weights = op_floats(n * k);
    int32_t *ids = malloc((size_t)(n * k) * 4);
    choose(ids, n, s, one);
    for (int i = 0; i < all; i++) y[i] = twin_round(w->t, y[i]);
    // Numbers of few bits are large; results stay within f16.
    for (int i = 0; i < all && (few_bits); i++) x[i] *= 0.015625f;
    void *gx = twin_up(w, x, all), *gy = twin_up(w, y, all), *stored = twin_up(w, NULL, all);
    void *gi = twin_up_bytes(w, ids, (size_t)(n * k) * 4),
         *gw = twin_up_bytes(w, weights, (size_t)(n * k) * 4);
    void *work = malloc(w->cpu->ops->experts_bytes(w->cpu, n, &a) + 64);
    void *aligned = (void *)(((uintptr_t)work + 63) & ~(uintptr_t)63);
    run(w, &g, LINEAR_ADD, gy, gx, n, gi, gw);
    run(w, &g, LINEAR_STORE, stored, gx, n, gi, gw);
    float *want = malloc((size_t)all * 4);
    for (int add = 0; add < 2; add++) {
        memcpy(want, y, (size_t)all * 4);
        assert_int_equal(w->cpu->ops->experts(w->cpu, add ? LINEAR_ADD : LINEAR_STORE, want, x, n,
                                              ids, weights, &a, aligned),
                         0);
        double largest = 0;
        for (int i = 0; i < all; i++) largest = fmax(largest, fabs((double)want[i]));
        // Hidden values are rounded to the GPU's dtype.
        const double slack = (w->t == DTYPE_F32 ? 2e-5 : 2 * twin_unit(w->t)) * (largest + 1);
        twin_compare(w, add ? gy : stored, w->t, want, all, 1.01, slack, add ? "added" : "stored");
    }
    if (w->gpu->description && strstr(w->gpu->description, "deterministic")) {
        const size_t row = (size_t)s->hidden * dtype_size(w->t);
        uint8_t *whole = malloc(row * (size_t)n), *alone = malloc(row);
        w->gpu->ops->mem_read(w->gpu, whole, stored, row * (size_t)n);
        for (int32_t r = 0; r < n; r += n / 3 + 1) {
            run(w, &g, LINEAR_STORE, gy, (char *)gx + (size_t)r * row, 1, (int32_t *)gi + r * k,
                (float *)gw + r * k);
            w->gpu->ops->mem_read(w->gpu, alone, gy, row);
            assert_memory_equal(alone, whole + (size_t)r * row, row);
        }
        free(whole), free(alone);
    }
    twin_free(w, gx), twin_free(w, gy), twin_free(w, stored), twin_free(w, gi), twin_free(w, gw);
    free(x), free(y), free(weights), free(ids), free(work), free(want);
}

static const struct shape shapes[] = {
    {8, 2, 64, 48, ACT_SILU, true, false, 0},
    {5, 3, 130, 33, ACT_SILU, true, true, 0}, // rows that are no whole words
    {4, 4, 96, 40, ACT_QUICK_GELU, true, true, 0.7f},
    {6, 1, 72, 136, ACT_RELU2, false, false, 0},
    {128, 8, 256, 192, ACT_SILU, true, false, 0},
    {32, 4, 2880, 360, ACT_QUICK_GELU, true, true, 7},
    {16, 16, 328, 200, ACT_SILU, true, true,
     0}, // as many as the blocks that stay take; rows and columns of no
         // whole item
    {24, 5, 184, 1192, ACT_RELU2, false, true, 0},
    {20, 17, 64, 64, ACT_SILU, true, false, 0}, // one more
};

// A call for each of `rows`. up_format, down_format: NULL: of dtype t.
static void check_stored(const struct twin *w, enum dtype t, const struct group_format *up_format,
                         const struct group_format *down_format, const struct shape *s,
                         const int32_t *rows, int n_rows, bool one) {
    op_seed((uint64_t)(s->hidden * 100 + s->width + rows[0]));
    const int32_t up_rows = s->gated ? 2 * s->width : s->width;
    struct layer up = up_format
                          ? make_groups(w, up_format, s->n_experts, up_rows, s->hidden, s->bias)
                          : make(w, t, 0, s->n_experts, up_rows, s->hidden, s->bias);
    struct layer down =
        down_format ? make_groups(w, down_format, s->n_experts, s->hidden, s->width, s->bias)
                    : make(w, t, 0, s->n_experts, s->hidden, s->width, s->bias);
    for (int i = 0; i < n_rows; i++)
        check_rows(w, s, &up, &down, up_format || down_format, rows[i], one);
    // Of one row, without biases, a shared expert may come along.
    const bool plain = w->t != DTYPE_F32 && !strstr(w->gpu->description, "deterministic");
    if (!s->bias && s->n_chosen > 1 && s->n_chosen <= CHOSEN_MOST) {
        const bool took = check_shared(w, s, &up, &down, up_format || down_format);
        if (s == &shapes[4] && plain && !up_format && !down_format && t == w->t) assert_true(took);
    }
    release(w, &up, s->n_experts), release(w, &down, s->n_experts);
}

static void check(const struct twin *w, enum dtype t, const struct shape *s, int32_t n, bool one) {
    check_stored(w, t, NULL, NULL, s, &n, 1, one);
}

static void sizes(const struct twin *w) {
    static const int32_t rows[] = {1, 2, 7, 8, 9, 45, 150, 700};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int i = 0; i < 8; i++)
            if (rows[i] < 100 ? s < 6 || i < 5 : rows[i] < 200 ? s < 6 : s == 4)
                check(w, w->t, &shapes[s], rows[i] < 10 ? rows[i] : test_scaled(rows[i]), false);
}

static void crowded(const struct twin *w) {
    check(w, w->t, &shapes[0], 20, true);
    check(w, w->t, &shapes[0], 8, true);
    check(w, w->t, &shapes[4], 6, true);
    check(w, w->t, &shapes[0], 530, true);
    check(w, w->t, &shapes[4], 90, true);
    check(w, w->t, &shapes[2], 300, true); // several tiles, biases and a limit
    check(w, w->t, &shapes[7], 300, true); // rows of no whole tile, no gate
}

static void check_8bit(const struct twin *w, enum dtype t, int32_t block_k, const struct shape *s) {
    static const int32_t rows[] = {1, 8, 9, 67, 133, 300};
    op_seed((uint64_t)(s->hidden * 100 + s->width + block_k));
    struct layer up =
        make(w, t, block_k, s->n_experts, s->gated ? 2 * s->width : s->width, s->hidden, s->bias);
    struct layer down = make(w, t, block_k, s->n_experts, s->hidden, s->width, s->bias);
    for (int i = 0; i < 6; i++) {
        check_rows(w, s, &up, &down, false, test_scaled(rows[i]), false);
        if (rows[i] == 9 || rows[i] == 300)
            check_rows(w, s, &up, &down, false, test_scaled(rows[i]), true);
    }
    release(w, &up, s->n_experts), release(w, &down, s->n_experts);
}

static void eight_bits(const struct twin *w) {
    static const struct shape of[] = {
        {5, 3, 130, 33, ACT_SILU, true, true, 0},  // rows that are no whole words
        {8, 2, 328, 264, ACT_SILU, true, true, 0}, // neither whole tiles nor whole blocks
        {6, 3, 264, 136, ACT_RELU2, false, true, 0},
        {4, 4, 1416, 360, ACT_QUICK_GELU, true, true, 0.7f},
        {160, 6, 256, 128, ACT_SILU, true, false, 0}, // more than the small table has
    };
    for (int s = 0; s < 5; s++) {
        check_8bit(w, DTYPE_I8, 0, &of[s]);
        check_8bit(w, DTYPE_F8_E4M3, 0, &of[s]);
        check_8bit(w, DTYPE_F8_E4M3, FP8_BLOCK, &of[s]);
    }
}

static void many(const struct twin *w) {
    static const struct shape wide = {512, 10, 32, 16, ACT_SILU, true, false, 0};
    static const struct shape most = {1024, 2, 32, 16, ACT_SILU, true, false, 0};
    static const struct shape long_ = {6, 4, 2120, 1064, ACT_SILU, true, true, 0};
    check(w, w->t, &long_, 1, false); // several items for each block that stays
    check(w, w->t, &wide, 1, false);
    check(w, w->t, &wide, 3, false);
    check(w, w->t, &most, 1, false);
    check(w, w->t, &wide, 450, false);
    check(w, w->t, &most, 140, false);
}

// Experts that stay in few bits beside those of the twin, which computes with the same numbers in F32.
static void few_bits(const struct twin *w) {
    static const struct group_format formats[] = {
        {4, 32, GROUP_SCALE_F32, GROUP_ZERO_SAME, 16, group_book_e2m1}, // MXFP4
        {4, 128, GROUP_SCALE_F16, GROUP_ZERO_SAME, 8, NULL},
        {4, 32, GROUP_SCALE_NESTED, GROUP_MIN_NESTED, 0, NULL}, // Q4_K
        {4, 16, GROUP_SCALE_F32, GROUP_ZERO_SAME, 16, group_book_e2m1},
        {4, 64, GROUP_SCALE_BF16, GROUP_ZERO_U8, 1, NULL},
        {4, 32, GROUP_SCALE_NESTED, GROUP_ZERO_SAME, 128, group_book_iq4},
        {4, 256, GROUP_SCALE_F32, GROUP_ZERO_SAME, 8, NULL},
        {8, 32, GROUP_SCALE_F16, GROUP_ZERO_SAME, 128, NULL},   // Q8_0
        {6, 16, GROUP_SCALE_NESTED, GROUP_ZERO_SAME, 32, NULL}, // Q6_K
        {5, 32, GROUP_SCALE_NESTED, GROUP_MIN_NESTED, 0, NULL}, // Q5_K
    };
    static const struct shape of[] = {
        {8, 2, 328, 264, ACT_SILU, true, true, 0}, // neither whole tiles nor whole chunks
        {6, 3, 264, 136, ACT_RELU2, false, true, 0},
        {32, 4, 2880, 360, ACT_QUICK_GELU, true, true, 7},
        {160, 6, 256, 128, ACT_SILU, true, false, 0}, // more than the small table has
    };
    // Whole tiles of 16 gates, which the tiles of sm_90 take: up to 16, 32 and 64 pairs of an expert and more.
    static const struct shape sixteens = {8, 2, 328, 272, ACT_QUICK_GELU, true, true, 7};
    static const int32_t tiles[] = {25, 60, 130, 300}, one_tile[] = {40, 131};
    static const int32_t rows[] = {1, 3, 9, 33, 130, 300}, some[] = {1, 9, 130},
                         others[] = {3, 33, 300}, mixed[] = {1, 67, 133}, forty = 40, most = 300;
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
        for (size_t s = 0; s < sizeof of / sizeof *of; s++) {
            const bool whole = (f < 3 && s < 2) || (f > 6 && s == 0);
            if (f >= 3 && s != f % 2 && !whole) continue;
            check_stored(w, 0, &formats[f], &formats[f], &of[s],
                         whole    ? rows
                         : f == 1 ? others
                                  : some,
                         whole ? 6 : 3, false);
        }
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        if (f > 3 && f < 7) continue;
        check_stored(w, 0, &formats[f], &formats[f], &sixteens, tiles, 4, false);
        check_stored(w, 0, &formats[f], &formats[f], &sixteens, one_tile, 2, true);
    }
    check_stored(w, 0, &formats[0], &formats[0], &of[0], &forty, 1,
                 true); // one expert has all rows
    check_stored(w, 0, &formats[2], &formats[2], &of[0], &most, 1, true);
    check_stored(w, 0, &formats[2], &formats[8], &of[0], rows, 6, false); // Q4_K_M's
    check_stored(w, w->t, &formats[2], NULL, &of[0], mixed, 3, false);    // one of both alone
    check_stored(w, w->t, NULL, &formats[1], &of[0], mixed, 3, false);
}

static void test_routes(void **state) {
    twin_each(routes);
}
static void test_norm_routes(void **state) {
    twin_each(norm_routes);
}
static void test_sizes(void **state) {
    twin_each(sizes);
}
static void test_crowded(void **state) {
    twin_each(crowded);
}
static void test_eight_bits(void **state) {
    twin_each(eight_bits);
}
static void test_many(void **state) {
    twin_each(many);
}
static void test_few_bits(void **state) {
    twin_each(few_bits);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_routes),     cmocka_unit_test(test_norm_routes),
        cmocka_unit_test(test_sizes),      cmocka_unit_test(test_crowded),
        cmocka_unit_test(test_eight_bits), cmocka_unit_test(test_many),
        cmocka_unit_test(test_few_bits),
    };
    cmocka_set_test_filter(getenv("PARLEY_TEST_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
