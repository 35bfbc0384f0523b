// feed_forward and norm_linear against the ops that they replace. The bits must be the same for any number
// of rows and threads, layout, activation, norm and bias. Also: the shapes that they decline.
#include "tests/ops/linear_world.h"

static struct backend *open_with(enum dtype compute, const char *isa, int threads) {
    struct backend *be;
    struct err err = {0};
    int rc = backend_cpu_open_for(&be, compute, threads, isa, &err);
    if (rc == E_UNSUPPORTED) return NULL;
    if (rc < 0) fail_msg("%s: %s", isa, err.text);
    return be;
}

struct shape {
    int32_t width, ffn;
    bool packed, bias;
    enum spread spread;
};

struct layer {
    struct matrix up_matrix, down_matrix;
    struct weight up, down;
    float *up_bias, *down_bias, *norm_weight, *norm_bias;
    struct norm_args norms[2];
};

static struct layer make_layer(struct backend *be, const struct shape *s) {
    struct layer l;
    op_seed((uint64_t)(s->width * 1000 + s->ffn));
    l.up_matrix = make_matrix(DTYPE_BF16, 2 * s->ffn, s->width, false, 2, s->spread);
    l.down_matrix = make_matrix(DTYPE_BF16, s->width, s->ffn, false, 1, s->spread);
    l.up = make_weight(be, &l.up_matrix, s->packed);
    l.down = make_weight(be, &l.down_matrix, s->packed);
    l.up_bias = s->bias ? op_floats(2 * s->ffn) : NULL;
    l.down_bias = s->bias ? op_floats(s->width) : NULL;
    l.norm_weight = op_floats(s->width);
    l.norm_bias = op_floats(s->width);
    l.norms[0] = (struct norm_args){NORM_RMS, l.norm_weight, NULL, 1e-5f, 0};
    l.norms[1] = (struct norm_args){NORM_LAYER, l.norm_weight, l.norm_bias, 1e-5f, 0};
    return l;
}

static void free_layer(struct backend *be, struct layer *l) {
    be->ops->weight_release(be, &l->up);
    be->ops->weight_release(be, &l->down);
    free(l->up_matrix.data), free(l->down_matrix.data), free(l->up_bias), free(l->down_bias);
    free(l->norm_weight), free(l->norm_bias);
}

static int fused(struct backend *be, const struct layer *l, enum linear_mode mode, float *y,
                 const float *x, int32_t n, const struct norm_args *norm, enum activation act,
                 bool gated) {
    const struct feed_forward_args args = {norm,       &l->up,       &l->down,
                                           l->up_bias, l->down_bias, {act, gated}};
    return be->ops->feed_forward(be, mode, y, x, n, &args);
}

static float *normed_rows(struct backend *be, const float *x, int32_t n, int32_t width,
                          const struct norm_args *norm) {
    float *y = op_floats((int64_t)n * width);
    memcpy(y, x, (size_t)n * (size_t)width * sizeof *y);
    if (norm) be->ops->norm(be, y, x, n, width, norm);
    return y;
}

static void composed(struct backend *be, const struct layer *l, enum linear_mode mode, float *y,
                     const float *x, int32_t n, const struct norm_args *norm, enum activation act) {
    const int32_t ffn = l->down.cols;
    float *normed = normed_rows(be, x, n, l->up.cols, norm);
    float *up = op_floats((int64_t)n * 2 * ffn), *activated = op_floats((int64_t)n * ffn);
    be->ops->linear(be, LINEAR_STORE, up, normed, n, &l->up, l->up_bias);
    be->ops->activate(be, act, true, activated, up, n, ffn);
    be->ops->linear(be, mode, y, activated, n, &l->down, l->down_bias);
    free(up), free(activated), free(normed);
}

static void check(struct backend *be, const struct layer *l, int32_t n, enum activation act) {
    const int64_t size = (int64_t)n * l->down.rows;
    float *x = op_floats((int64_t)n * l->up.cols), *y = op_floats(size), *want = op_floats(size);
    memcpy(want, y, (size_t)size * sizeof *y);
    const struct norm_args *const norms[] = {NULL, &l->norms[0], &l->norms[1]};
    for (int i = 0; i < 6; i++) {
        enum linear_mode mode = i < 3 ? LINEAR_STORE : LINEAR_ADD;
        assert_int_equal(fused(be, l, mode, y, x, n, norms[i % 3], act, true), 0);
        composed(be, l, mode, want, x, n, norms[i % 3], act);
        op_same_bits(y, want, size, "feed_forward");
    }
    // The result is added to the same stream that is normed, as in a decoder's layer.
    memcpy(want, x, (size_t)size * sizeof *x);
    composed(be, l, LINEAR_ADD, want, x, n, norms[1], act);
    assert_int_equal(fused(be, l, LINEAR_ADD, x, x, n, norms[1], act, true), 0);
    op_same_bits(x, want, size, "feed_forward in place");
    free(x), free(y), free(want);
}

static void check_norm_linear(struct backend *be, const struct layer *l, int32_t n) {
    const int64_t size = (int64_t)n * l->up.rows;
    float *x = op_floats((int64_t)n * l->up.cols), *y = op_floats(size), *want = op_floats(size);
    for (int i = 0; i < 2; i++) {
        const struct norm_args *norm = &l->norms[i];
        float *normed = normed_rows(be, x, n, l->up.cols, norm);
        be->ops->linear(be, LINEAR_STORE, want, normed, n, &l->up, l->up_bias);
        assert_int_equal(
            be->ops->norm_linear(be, norm, LINEAR_STORE, y, x, n, &l->up, l->up_bias, NULL), 0);
        op_same_bits(y, want, size, "norm_linear");
        free(normed);
    }
    free(x), free(y), free(want);
}

// Few panels and many, K that ends within a tile, a last item smaller than the others, raw tiles.
static const struct shape shapes[] = {
    {384, 1024, true, false, NORMAL}, {384, 1024, false, true, NORMAL},
    {33, 32, true, true, NORMAL},     {70, 96, false, false, NORMAL},
    {64, 416, true, true, WIDE},      {130, 2080, true, false, NORMAL},
};

static void test_same_bits_as_its_ops(void **state) {
    bool any = false;
    for (int threads = 1; threads <= 3; threads++) {
        struct backend *be = open_with(DTYPE_BF16, "avx512", threads);
        if (!be) break;
        any = true;
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            struct layer l = make_layer(be, &shapes[i]);
            for (int32_t n = 1; n <= 8; n++) {
                check(be, &l, n, ACT_SILU);
                check_norm_linear(be, &l, n);
            }
            for (int act = 0; i == 2 && act < ACT_COUNT; act++)
                check(be, &l, 3, (enum activation)act);
            free_layer(be, &l);
        }
        be->ops->close(be);
    }
    if (any) return;
    print_message("no AVX512-BF16 here: not run\n");
    skip();
}

static void declines(struct backend *be, const struct shape *s, int32_t n, bool gated) {
    struct layer l = make_layer(be, s);
    float *x = op_floats((int64_t)n * s->width), *y = op_floats((int64_t)n * s->width),
          *before = malloc((size_t)n * (size_t)s->width * sizeof *y);
    memcpy(before, y, (size_t)n * (size_t)s->width * sizeof *y);
    assert_int_equal(fused(be, &l, LINEAR_ADD, y, x, n, &l.norms[0], ACT_SILU, gated), OP_DECLINED);
    if (n > 8 || !cpu_of(be)->fuses)
        assert_int_equal(
            be->ops->norm_linear(be, &l.norms[0], LINEAR_STORE, y, x, n, &l.up, NULL, NULL),
            OP_DECLINED);
    op_same_bits(y, before, (int64_t)n * s->width, "declined");
    free(x), free(y), free(before);
    free_layer(be, &l);
}

static void test_what_it_leaves_to_the_ops(void **state) {
    static const struct shape plain = {64, 96, true, false, NORMAL},
                              odd = {64, 48, true, false, NORMAL};
    static const char *const sets[] = {"portable", "avx2", "avx512", "amx"};
    for (int i = 0; i < 4; i++) {
        struct backend *be = open_with(DTYPE_F32, sets[i], 2);
        if (be) declines(be, &plain, 2, true);
        if (be) be->ops->close(be);
        be = open_with(DTYPE_BF16, sets[i], 2);
        if (be) declines(be, &plain, 9, true);
        if (be) declines(be, &plain, 2, false); // matrices that do not fit each other
        if (be) declines(be, &odd, 2, true);    // two workers would share a tile
        if (be && strcmp(sets[i], "amx") == 0) declines(be, &plain, 2, true);
        if (be) be->ops->close(be);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits_as_its_ops),
        cmocka_unit_test(test_what_it_leaves_to_the_ops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
