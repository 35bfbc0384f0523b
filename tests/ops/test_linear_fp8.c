// linear with e4m3 weights, against double precision on the same numbers and scales, with one scale for
// each output or for each block of 128. The bits must not depend on batch and threads.
#include "tests/ops/scaled_world.h"

static void shape(struct backend *be, int32_t rows, int32_t cols, int32_t n, int n_views) {
    for (int kind = 0; kind < 3; kind++) {
        struct matrix m =
            make_matrix(DTYPE_F8_E4M3, rows, cols, n_views, kind == 1 ? FP8_BLOCK : 0, kind == 2);
        check_linear(be, &m, n);
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

// Within one instruction set, the result is the same for all thread counts, places in a batch and batch
// sizes.
enum { SAME_ROWS = 333, SAME_COLS = 2300, SAME_N = 70 };
static float *same_x, *same_y[2];
static int same_calls;
static void same_bits(struct backend *be) {
    bool new_set = same_calls++ % 3 == 0; // op_each_backend: with one, two and three threads
    for (int kind = 0; kind < 2; kind++) {
        op_seed(5);
        struct matrix m =
            make_matrix(DTYPE_F8_E4M3, SAME_ROWS, SAME_COLS, 2, kind ? FP8_BLOCK : 0, false);
        if (new_set) {
            free(same_y[kind]);
            same_y[kind] = NULL;
        }
        check_same_bits(be, &m, same_x, SAME_N, &same_y[kind]);
        free_matrix(&m);
    }
}
static void test_same_bits(void **state) {
    op_seed(4);
    same_x = op_floats(SAME_N * SAME_COLS);
    op_each_backend(same_bits);
    free(same_x), free(same_y[0]), free(same_y[1]);
}

static void embeds(struct backend *be) {
    for (int kind = 0; kind < 2; kind++) {
        op_seed(6);
        struct matrix m = make_matrix(DTYPE_F8_E4M3, 50, 300, 1, kind ? FP8_BLOCK : 0, false);
        check_embed(be, &m);
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
