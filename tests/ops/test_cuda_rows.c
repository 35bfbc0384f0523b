// CUDA's small ops, which work row by row, against their CPU twins.
#include "kernels/fp8.h"
#include "tests/ops/twin.h"

static void norms(const struct twin *w) {
    static const int32_t widths[] = {1, 7, 64, 100, 768, 4096, 5001};
    for (int i = 0; i < 7; i++)
        for (int kind = 0; kind < 2; kind++)
            for (int form = 0; form < 3; form++) { // plain, with bias, in place
                int32_t n = 5, d = widths[i];
                op_seed((uint64_t)(d * 7 + kind * 3 + form));
                float *x = twin_floats(w, n * d), *y = malloc((size_t)(n * d) * sizeof *y);
                float *weight = op_floats(d), *bias = op_floats(d);
                for (int32_t j = 0; j < n * d; j++) x[j] = twin_round(w->t, x[j] * 3 + 1);
                void *gx = twin_up(w, x, n * d), *gy = form == 2 ? gx : twin_up(w, NULL, n * d);
                float *gw = twin_up_bytes(w, weight, (size_t)d * 4);
                float *gb = twin_up_bytes(w, bias, (size_t)d * 4);
                bool b = form == 1;
                const struct norm_args a = {(enum norm_kind)kind, weight, b ? bias : NULL, 1e-5f,
                                            0};
                const struct norm_args ga = {(enum norm_kind)kind, gw, b ? gb : NULL, 1e-5f, 0};
                w->cpu->ops->norm(w->cpu, y, x, n, d, &a);
                assert_int_equal(w->gpu->ops->norm(w->gpu, gy, gx, n, d, &ga), 0);
                twin_compare(w, gy, w->t, y, n * d, 1.01, 2e-5, "norm");
                if (gy != gx) twin_free(w, gy);
                twin_free(w, gx), twin_free(w, gw), twin_free(w, gb);
                free(x), free(y), free(weight), free(bias);
            }
}

static void activations(const struct twin *w) {
    for (int act = 0; act < ACT_COUNT; act++)
        for (int gated = 0; gated < 2; gated++) {
            int32_t n = 3, d = 333, in = n * d * (1 + gated);
            op_seed((uint64_t)act);
            float *x = twin_floats(w, in), *y = malloc((size_t)(n * d) * sizeof *y);
            for (int32_t i = 0; i < in; i++) x[i] = twin_round(w->t, x[i] * 4);
            void *gx = twin_up(w, x, in), *gy = twin_up(w, NULL, n * d);
            w->cpu->ops->activate(w->cpu, (enum activation)act, gated, y, x, n, d);
            assert_int_equal(
                w->gpu->ops->activate(w->gpu, (enum activation)act, gated, gy, gx, n, d), 0);
            twin_compare(w, gy, w->t, y, n * d, 1.1, 1e-5, "activate");
            twin_free(w, gx), twin_free(w, gy);
            free(x), free(y);
        }
}

static void adds(const struct twin *w) {
    enum { N = 1000 };
    float *x = twin_floats(w, N), *y = twin_floats(w, N);
    void *gx = twin_up(w, x, N), *gy = twin_up(w, y, N);
    w->cpu->ops->add(w->cpu, y, x, N);
    assert_int_equal(w->gpu->ops->add(w->gpu, gy, gx, N), 0);
    twin_compare(w, gy, w->t, y, N, 1.01, 0, "add");
    twin_free(w, gx), twin_free(w, gy);
    free(x), free(y);
}

// A table of e4m3, which a tied head may be, with scales by rows or blocks.
static void embeddings_8bit(const struct twin *w) {
    enum { VOCAB = 50, COLS = 300, N = 4 };
    static const int32_t ids[N] = {0, 49, 7, 7}, positions[N] = {0};
    uint8_t data[VOCAB * COLS];
    float scales[VOCAB * 3];
    for (int32_t i = 0; i < VOCAB * COLS; i++) data[i] = (uint8_t)(i % 127 | (i & 1) << 7);
    for (int32_t i = 0; i < VOCAB * 3; i++) scales[i] = ldexpf(1, i % 5 - 2);
    for (int32_t block = 0; block <= FP8_BLOCK; block += FP8_BLOCK) {
        struct tensor_view v = {data, DTYPE_F8_E4M3, VOCAB, COLS, COLS, 1, scales, block};
        struct twin_rows rows;
        struct weight cw, gw;
        assert_int_equal(w->cpu->ops->weight_init(w->cpu, &cw, &v, 1, NULL), 0);
        assert_int_equal(w->gpu->ops->weight_init(w->gpu, &gw, &v, 1, NULL), 0);
        float y[N * COLS];
        void *gy = twin_up(w, NULL, N * COLS);
        const struct batch *b = twin_step(w, &rows, N, ids, positions, NULL, 0);
        w->cpu->ops->embed(w->cpu, y, b, &cw, 1.5f);
        assert_int_equal(w->gpu->ops->embed(w->gpu, gy, b, &gw, 1.5f), 0);
        twin_compare(w, gy, w->t, y, N * COLS, 1.01, 0, "embed e4m3");
        assert_int_equal(w->gpu->ops->step_end(w->gpu), 0);
        w->cpu->ops->weight_release(w->cpu, &cw);
        w->gpu->ops->weight_release(w->gpu, &gw);
        twin_free(w, gy);
    }
}

static void embeddings(const struct twin *w) {
    enum { VOCAB = 50, COLS = 77, N = 6, TABLE = 20 };
    static const int32_t ids[N] = {0, 49, 7, 7, 30, 1}, positions[N] = {0, 17, 3, 4, 9, 1};
    static const int32_t wanted[] = {1, 2, 5};
    struct twin_rows rows;
    uint8_t data[VOCAB * COLS * 4];
    op_seed(3);
    for (int32_t i = 0; i < VOCAB * COLS; i++) op_write(w->t, data, i, op_random());
    struct tensor_view v = {data, w->t, VOCAB, COLS, COLS, 1, NULL, 0};
    struct weight cw, gw;
    assert_int_equal(w->cpu->ops->weight_init(w->cpu, &cw, &v, 1, NULL), 0);
    assert_int_equal(w->gpu->ops->weight_init(w->gpu, &gw, &v, 1, NULL), 0);
    float *y = malloc(N * COLS * sizeof *y), *table = op_floats(TABLE * COLS);
    void *gy = twin_up(w, NULL, N * COLS), *picked = twin_up(w, NULL, 3 * COLS);
    float *gt = twin_up_bytes(w, table, TABLE * COLS * 4);
    const struct batch *b = twin_step(w, &rows, N, ids, positions, wanted, 3);
    w->cpu->ops->embed(w->cpu, y, b, &cw, 1.5f);
    assert_int_equal(w->gpu->ops->embed(w->gpu, gy, b, &gw, 1.5f), 0);
    twin_compare(w, gy, w->t, y, N * COLS, 1.01, 0, "embed");
    for (int32_t i = 0; i < N * COLS; i++) y[i] = twin_round(w->t, y[i]);
    w->cpu->ops->embed_positions(w->cpu, y, b, table, COLS, 2);
    assert_int_equal(w->gpu->ops->embed_positions(w->gpu, gy, b, gt, COLS, 2), 0);
    twin_compare(w, gy, w->t, y, N * COLS, 1.01, 0, "embed_positions");
    float *rows_want = malloc(3 * COLS * sizeof *rows_want);
    for (int32_t i = 0; i < N * COLS; i++) y[i] = twin_round(w->t, y[i]);
    w->cpu->ops->gather_logit_rows(w->cpu, rows_want, y, b, COLS);
    assert_int_equal(w->gpu->ops->gather_logit_rows(w->gpu, picked, gy, b, COLS), 0);
    twin_compare(w, picked, w->t, rows_want, 3 * COLS, 1.01, 0, "gather");
    assert_int_equal(w->gpu->ops->step_end(w->gpu), 0);
    w->cpu->ops->weight_release(w->cpu, &cw);
    w->gpu->ops->weight_release(w->gpu, &gw);
    twin_free(w, gy), twin_free(w, gt), twin_free(w, picked);
    free(y), free(table), free(rows_want);
}

static void rotations(const struct twin *w) {
    static const struct {
        int32_t heads, kv, dim, rot;
    } shapes[] = {{4, 2, 64, 64}, {3, 3, 80, 32}, {2, 1, 6, 4}, {5, 1, 256, 64}};
    enum { N = 5 };
    static const int32_t positions[N] = {0, 1, 77, 4095, 131071}, ids[N] = {0};
    for (int i = 0; i < 8; i++) {
        int32_t heads = shapes[i / 2].heads, kv = shapes[i / 2].kv, dim = shapes[i / 2].dim;
        int32_t rot = shapes[i / 2].rot, width = (heads + 2 * kv) * dim;
        enum rope_style style = i % 2 ? ROPE_HALF : ROPE_INTERLEAVED;
        struct twin_rows rows;
        op_seed((uint64_t)i);
        float freq[128], *x = twin_floats(w, N * width), *qw = op_floats(dim), *kw = op_floats(dim);
        float *angles = malloc((size_t)(N * rot) * sizeof *angles);
        for (int32_t j = 0; j <= rot / 2; j++) freq[j] = powf(10000, -2.0f * (float)j / (float)rot);
        void *gx = twin_up(w, x, N * width);
        float *gf = twin_up_bytes(w, freq, (size_t)(rot / 2 + 1) * 4);
        float *ga = twin_alloc(w, (size_t)(N * rot) * 4);
        float *gq = twin_up_bytes(w, qw, (size_t)dim * 4),
              *gk = twin_up_bytes(w, kw, (size_t)dim * 4);
        const struct batch *b = twin_step(w, &rows, N, ids, positions, NULL, 0);
        w->cpu->ops->rope_angles(w->cpu, angles, b, freq, freq + 1, rot,
                                 1.25f); // some rows by others
        assert_int_equal(w->gpu->ops->rope_angles(w->gpu, ga, b, gf, gf + 1, rot, 1.25f), 0);
        twin_compare(w, ga, DTYPE_F32, angles, N * rot, 0, 1e-6, "rope_angles of short texts");
        w->cpu->ops->rope_angles(w->cpu, angles, b, freq, NULL, rot, 1.25f);
        assert_int_equal(w->gpu->ops->rope_angles(w->gpu, ga, b, gf, NULL, rot, 1.25f), 0);
        twin_compare(w, ga, DTYPE_F32, angles, N * rot, 0, 1e-6, "rope_angles");
        const struct qkv_shape shape = {heads, kv, dim};
        const struct qkv_args a = {.style = style,
                                   .rot_dim = rot,
                                   .cos_sin = angles,
                                   .q_weight = qw,
                                   .k_weight = kw,
                                   .eps = 1e-6f};
        const struct qkv_args on_gpu = {.style = style,
                                        .rot_dim = rot,
                                        .cos_sin = ga,
                                        .q_weight = gq,
                                        .k_weight = gk,
                                        .eps = 1e-6f};
        w->cpu->ops->qk_norm(w->cpu, x, N, &shape, &a);
        assert_int_equal(w->gpu->ops->qk_norm(w->gpu, gx, N, &shape, &on_gpu), 0);
        twin_compare(w, gx, w->t, x, N * width, 1.1, 1e-5, "qk_norm");
        for (int32_t j = 0; j < N * width; j++) x[j] = twin_round(w->t, x[j]);
        twin_free(w, gx);
        gx = twin_up(w, x, N * width);
        w->cpu->ops->rope(w->cpu, x, N, &shape, &a);
        assert_int_equal(w->gpu->ops->rope(w->gpu, gx, N, &shape, &on_gpu), 0);
        twin_compare(w, gx, w->t, x, N * width, 1.1, 1e-5, "rope");
        twin_free(w, gx), twin_free(w, gf), twin_free(w, ga), twin_free(w, gq), twin_free(w, gk);
        free(x), free(qw), free(kw), free(angles);
    }
}

static void test_norm(void **state) {
    twin_each(norms);
}
static void test_activate(void **state) {
    twin_each(activations);
}
static void test_add(void **state) {
    twin_each(adds);
}
static void test_embed(void **state) {
    twin_each(embeddings);
    twin_each(embeddings_8bit);
}
static void test_rope(void **state) {
    twin_each(rotations);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm),  cmocka_unit_test(test_activate), cmocka_unit_test(test_add),
        cmocka_unit_test(test_embed), cmocka_unit_test(test_rope),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
