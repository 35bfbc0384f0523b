// experts against double precision: all formats of weights, also one beside another, gated or not, biases, limits; rows that meet at one
// expert, experts without rows, 512 experts. A row's bits must not depend on the other rows, their number
// or the number of threads.
#include "kernels/cpu/cpu.h"
#include "tests/ops/ops_fixture.h"

struct kind {
    enum dtype dtype;
    int32_t block_k;
    bool plain; // bf16 that is not packed
    bool mixed; // expert e has kind e % N_ONE
};
static const struct kind kinds[] = {
    {DTYPE_F32, 0, false, false},
    {DTYPE_BF16, 0, false, false},
    {DTYPE_BF16, 0, true, false},
    {DTYPE_F16, 0, false, false},
    {DTYPE_I8, 0, false, false},
    {DTYPE_F8_E4M3, 0, false, false},
    {DTYPE_F8_E4M3, FP8_BLOCK, false, false},
    {.mixed = true},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds, N_ONE = N_KINDS - 1 };

struct matrices { // one for each expert
    int32_t n, rows, cols;
    void **data;
    float **scales;
    struct weight *w;
    struct kind kind;
};

static struct kind kind_of(const struct matrices *m, int32_t e) {
    return m->kind.mixed ? kinds[e % N_ONE] : m->kind;
}

static double value_at(const struct matrices *m, int32_t e, int32_t row, int32_t col) {
    const int64_t i = (int64_t)row * m->cols + col;
    const struct kind kind = kind_of(m, e);
    if (!m->scales[e]) return op_read(kind.dtype, m->data[e], i);
    const double scale = m->scales[e][row * fp8_blocks(m->cols, kind.block_k) +
                                      (kind.block_k ? col / FP8_BLOCK : 0)];
    const uint8_t q = ((const uint8_t *)m->data[e])[i];
    return scale * (kind.dtype == DTYPE_I8 ? (double)(int8_t)q : (double)e4m3_to_f32(q));
}

static void fill(struct matrices *m, int32_t e) {
    const enum dtype t = kind_of(m, e).dtype;
    const int32_t n_scales = m->rows * fp8_blocks(m->cols, kind_of(m, e).block_k);
    const int64_t n = (int64_t)m->rows * m->cols;
    const bool scaled = t == DTYPE_I8 || t == DTYPE_F8_E4M3;
    m->data[e] = malloc((size_t)n * dtype_size(t));
    for (int64_t i = 0; i < n; i++) {
        if (!scaled)
            op_write(t, m->data[e], i, op_random() * 0.1f);
        else if (t == DTYPE_I8)
            ((int8_t *)m->data[e])[i] = (int8_t)(op_random() * 30);
        else
            ((uint8_t *)m->data[e])[i] = e4m3_from_f32(op_random() * 20);
    }
    if (!scaled) return;
    m->scales[e] = op_floats(n_scales);
    for (int32_t i = 0; i < n_scales; i++) m->scales[e][i] = 0.002f * (1 + fabsf(m->scales[e][i]));
}

static struct matrices make(struct backend *be, struct kind kind, int32_t n, int32_t rows,
                            int32_t cols) {
    struct matrices m = {n, rows, cols, NULL, NULL, NULL, kind};
    m.data = calloc((size_t)n, sizeof *m.data);
    m.scales = calloc((size_t)n, sizeof *m.scales);
    m.w = calloc((size_t)n, sizeof *m.w);
    for (int32_t e = 0; e < n; e++) {
        const struct kind k = kind_of(&m, e);
        cpu_raw_budget_set(cpu_of(be), k.plain ? SIZE_MAX : 0);
        fill(&m, e);
        struct tensor_view v = {m.data[e], k.dtype, rows, cols, cols, 1, m.scales[e], k.block_k};
        struct err err = {0};
        if (be->ops->weight_init(be, &m.w[e], &v, 1, &err) < 0) fail_msg("%s", err.text);
    }
    return m;
}

static void release(struct backend *be, struct matrices *m) {
    for (int32_t e = 0; e < m->n; e++) {
        be->ops->weight_release(be, &m->w[e]);
        free(m->data[e]), free(m->scales[e]);
    }
    free(m->data), free(m->scales), free(m->w);
}

struct layer {
    struct matrices up, down;
    float *up_bias, *down_bias;
    struct experts_args args;
};

struct shape {
    int32_t n_experts, n_chosen, hidden, width;
    enum activation act;
    bool gated, bias;
    float limit;
};

static struct layer make_layer(struct backend *be, struct kind kind, const struct shape *s) {
    struct layer l;
    const int32_t up = s->gated ? 2 * s->width : s->width;
    l.up = make(be, kind, s->n_experts, up, s->hidden);
    l.down = make(be, kind, s->n_experts, s->hidden, s->width);
    l.up_bias = s->bias ? op_floats((int64_t)s->n_experts * up) : NULL;
    l.down_bias = s->bias ? op_floats((int64_t)s->n_experts * s->hidden) : NULL;
    l.args = (struct experts_args){.n_experts = s->n_experts,
                                   .n_chosen = s->n_chosen,
                                   .up = l.up.w,
                                   .down = l.down.w,
                                   .up_bias = l.up_bias,
                                   .down_bias = l.down_bias,
                                   .activate = {s->act, s->gated},
                                   .limit = s->limit};
    return l;
}

static void release_layer(struct backend *be, struct layer *l) {
    release(be, &l->up), release(be, &l->down);
    free(l->up_bias), free(l->down_bias);
}

static double activated(enum activation act, double x) {
    if (act == ACT_QUICK_GELU) return x / (1 + exp(-1.702 * x));
    if (act == ACT_RELU2) return x > 0 ? x * x : 0;
    return x / (1 + exp(-x));
}

// The expert's hidden values for one row, and how far rounding may have moved them.
static void hidden_values(const struct layer *l, int32_t e, const float *x, double *out,
                          double *slack) {
    const int32_t width = l->down.cols;
    const struct activate_args *act = &l->args.activate;
    for (int32_t i = 0; i < width; i++) {
        double half[2] = {0}, size = 0;
        for (int h = 0; h < (act->gated ? 2 : 1); h++) {
            const int32_t row = i + h * width;
            for (int32_t k = 0; k < l->up.cols; k++) {
                const double term = x[k] * value_at(&l->up, e, row, k);
                half[h] += term;
                size += fabs(term);
            }
            if (l->up_bias) half[h] += l->up_bias[(int64_t)e * l->up.rows + row];
        }
        if (l->args.limit > 0) {
            half[0] = fmin(half[0], l->args.limit);
            half[1] = fmax(-l->args.limit, fmin(half[1], l->args.limit)) + 1;
        }
        out[i] = activated(act->act, half[0]) * (act->gated ? half[1] : 1);
        slack[i] = 1e-6 * (size + 1) * (2 + fabs(half[0]) + fabs(half[1]));
    }
}

static void check_row(const struct layer *l, const float *y, const float *y0, const float *x,
                      const int32_t *ids, const float *weights) {
    const int32_t width = l->down.cols, hidden = l->down.rows;
    double *h = malloc((size_t)width * sizeof *h), *moved = malloc((size_t)width * sizeof *moved);
    double *want = calloc((size_t)hidden, sizeof *want),
           *slack = calloc((size_t)hidden, sizeof *slack);
    for (int32_t j = 0; j < l->args.n_chosen; j++) {
        const int32_t e = ids[j];
        hidden_values(l, e, x, h, moved);
        for (int32_t o = 0; o < hidden; o++) {
            double sum = l->down_bias ? l->down_bias[(int64_t)e * hidden + o] : 0;
            for (int32_t k = 0; k < width; k++) {
                const double w = value_at(&l->down, e, o, k);
                sum += h[k] * w;
                slack[o] += fabs(weights[j] * w) * (moved[k] + 1e-6 * fabs(h[k]));
            }
            want[o] += weights[j] * sum;
            slack[o] += 1e-6 * fabs(want[o]) + 1e-6;
        }
    }
    for (int32_t o = 0; o < hidden; o++)
        op_near(y[o], want[o] + (y0 ? y0[o] : 0), slack[o], "y", o);
    free(h), free(moved), free(want), free(slack);
}

// Random experts for each row, ascending; `one`: the first row's for all.
static void choose(int32_t *ids, float *weights, int32_t n, const struct layer *l, bool one) {
    const int32_t k = l->args.n_chosen, e = l->args.n_experts;
    for (int32_t r = 0; r < n; r++)
        for (int32_t j = 0; j < k; j++) {
            // one of each k-th part of the experts
            int32_t low = j * e / k, high = (j + 1) * e / k;
            ids[r * k + j] =
                one && r ? ids[j] : low + (int32_t)(fabsf(op_random()) * 1000) % (high - low);
            weights[r * k + j] = op_random();
        }
}

static void run(struct backend *be, const struct layer *l, enum linear_mode mode, float *y,
                const float *x, int32_t n, const int32_t *ids, const float *weights) {
    // Exactly as many bytes as asked for, poisoned: AddressSanitizer sees what goes past them.
    const size_t bytes = be->ops->experts_bytes(be, n, &l->args);
    void *work = NULL;
    assert_int_equal(posix_memalign(&work, 64, bytes), 0);
    memset(work, 0xff, bytes);
    assert_int_equal(be->ops->experts(be, mode, y, x, n, ids, weights, &l->args, work), 0);
    free(work);
}

// checked: rows compared with double precision, the others by bits with themselves alone.
static void check(struct backend *be, struct kind kind, const struct shape *s, int32_t n, bool one,
                  int32_t checked) {
    op_seed((uint64_t)(s->hidden * 100 + s->width + n));
    struct layer l = make_layer(be, kind, s);
    const int32_t h = s->hidden, k = s->n_chosen;
    float *x = op_floats((int64_t)n * h), *y = op_floats((int64_t)n * h),
          *y0 = op_floats((int64_t)n * h);
    float *added = malloc((size_t)n * (size_t)h * sizeof *y),
          *alone = malloc((size_t)h * sizeof *y);
    float *weights = op_floats((int64_t)n * k);
    int32_t *ids = malloc((size_t)(n * k) * sizeof *ids);
    choose(ids, weights, n, &l, one);
    run(be, &l, LINEAR_STORE, y, x, n, ids, weights);
    memcpy(added, y0, (size_t)n * (size_t)h * sizeof *y);
    run(be, &l, LINEAR_ADD, added, x, n, ids, weights);
    const int32_t step = n / checked > 0 ? n / checked : 1;
    for (int32_t r = 0; r < n; r += step) {
        const int64_t at = (int64_t)r * h;
        check_row(&l, y + at, NULL, x + at, ids + r * k, weights + r * k);
        check_row(&l, added + at, y0 + at, x + at, ids + r * k, weights + r * k);
        run(be, &l, LINEAR_STORE, alone, x + at, 1, ids + r * k, weights + r * k);
        op_same_bits(alone, y + at, h, "row alone");
    }
    for (int32_t from = 1; from < n; from += n / 3 + 1) {
        run(be, &l, LINEAR_STORE, added, x + (int64_t)from * h, n - from, ids + from * k,
            weights + from * k);
        op_same_bits(added, y + (int64_t)from * h, (int64_t)(n - from) * h, "rows from the middle");
    }
    release_layer(be, &l);
    free(x), free(y), free(y0), free(added), free(alone), free(weights), free(ids);
}

static void formats(struct backend *be) {
    static const struct shape shapes[] = {
        {8, 2, 64, 48, ACT_SILU, true, false, 0},
        {5, 3, 130, 33, ACT_SILU, true, true, 0},
        {4, 4, 96, 40, ACT_QUICK_GELU, true, true, 0.7f},
        {6, 1, 70, 130, ACT_RELU2, false, false, 0},
    };
    for (int i = 0; i < N_KINDS; i++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            check(be, kinds[i], &shapes[s], 1, false, 1);
            check(be, kinds[i], &shapes[s], 7, false, 7);
            check(be, kinds[i], &shapes[s], 45, false, 4);
        }
}

// Experts that many rows share, up to more than a block of rows; most experts have none.
static void crowded(struct backend *be) {
    static const struct shape shape = {16, 2, 64, 48, ACT_SILU, true, false, 0};
    for (int i = 0; i < N_KINDS; i++) {
        check(be, kinds[i], &shape, 20, true, 3);
        check(be, kinds[i], &shape, 530, true, 2);
    }
}

static void many(struct backend *be) {
    static const struct shape wide = {512, 10, 32, 16, ACT_SILU, true, false, 0};
    static const struct shape all = {512, 512, 32, 16, ACT_SILU, true, false, 0};
    check(be, kinds[1], &wide, 3, false, 3);
    check(be, kinds[4], &wide, 450, false, 3); // more pairs than a block
    check(be, kinds[1], &all, 10, false, 2);
}

// A weight that is NaN (as route gives for a broken row) does not reach other rows, and no row is no work.
static void broken(struct backend *be) {
    static const struct shape s = {8, 2, 64, 48, ACT_SILU, true, false, 0};
    op_seed(9);
    struct layer l = make_layer(be, kinds[0], &s);
    float *x = op_floats(3 * 64), y[3 * 64], want[64];
    const int32_t ids[6] = {0, 1, 0, 1, 0, 1};
    const float weights[6] = {0.5f, 0.5f, NAN, NAN, 0.25f, 0.5f};
    run(be, &l, LINEAR_STORE, y, x, 3, ids, weights);
    run(be, &l, LINEAR_STORE, want, x + 2 * 64, 1, ids, weights + 4);
    op_same_bits(y + 2 * 64, want, 64, "the row after");
    for (int i = 0; i < 64; i++) assert_true(isnan(y[64 + i]) && !isnan(y[i]));
    assert_int_equal(be->ops->experts(be, LINEAR_ADD, y, x, 0, ids, weights, &l.args, NULL), 0);
    release_layer(be, &l);
    free(x);
}

// Products of bf16, where the processor has them, beside other formats: by bits with a row alone.
static void test_bf16_products(void **state) {
    static const struct shape s = {6, 2, 96, 64, ACT_SILU, true, false, 0};
    static const char *const sets[] = {"avx512", "amx"};
    for (int i = 0; i < 2; i++) {
        struct backend *be;
        if (backend_cpu_open_for(&be, DTYPE_BF16, 2, sets[i], NULL) < 0) continue;
        struct layer l = make_layer(be, kinds[N_ONE], &s);
        enum { N = 60 };
        float *x = op_floats(N * 96), *y = op_floats(N * 96), *weights = op_floats(N * 2),
              alone[96];
        int32_t ids[N * 2];
        choose(ids, weights, N, &l, false);
        run(be, &l, LINEAR_STORE, y, x, N, ids, weights);
        for (int r = 0; r < N; r++) {
            run(be, &l, LINEAR_STORE, alone, x + r * 96, 1, ids + r * 2, weights + r * 2);
            op_same_bits(alone, y + r * 96, 96, "row alone");
        }
        free(x), free(y), free(weights);
        release_layer(be, &l);
        be->ops->close(be);
    }
}

static void test_formats(void **state) {
    op_each_backend(formats);
}
static void test_crowded(void **state) {
    op_each_backend(crowded);
}
static void test_many(void **state) {
    op_each_backend(many);
}
static void test_broken(void **state) {
    op_each_backend(broken);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats),       cmocka_unit_test(test_crowded),
        cmocka_unit_test(test_many),          cmocka_unit_test(test_broken),
        cmocka_unit_test(test_bf16_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
