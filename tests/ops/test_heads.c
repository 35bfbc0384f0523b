// A matrix for each head against double precision, with rows and heads apart from each other, and the same bits for a
// row alone; copies of parts of rows.
#include "tests/ops/ops_fixture.h"

enum { HEADS = 5, ROWS = 70, GAP = 3 };

static void *take_work(struct backend *be, size_t bytes) {
    struct err err = {0};
    void *work = NULL;
    assert_int_equal(be->ops->mem_alloc(be, bytes ? bytes : 1, &work, &err), 0);
    return work;
}

static void check_shape(struct backend *be, enum dtype t, int32_t rows, int32_t cols, bool turned) {
    struct weight w[HEADS] = {0};
    float *values[HEADS];
    struct err err = {0};
    const int64_t x_row = HEADS * (cols + GAP), y_row = HEADS * rows + GAP;
    for (int h = 0; h < HEADS; h++) {
        void *stored = malloc((size_t)(rows * cols) * sizeof(float));
        values[h] = op_floats((int64_t)rows * cols);
        for (int64_t i = 0; i < (int64_t)rows * cols; i++) {
            op_write(t, stored, i, values[h][i]);
            values[h][i] = (float)op_read(t, stored, i);
        }
        const struct tensor_view view = {.data = stored,
                                         .dtype = t,
                                         .rows = rows,
                                         .cols = cols,
                                         .row_stride = turned ? 1 : cols,
                                         .col_stride = turned ? rows : 1};
        assert_int_equal(be->ops->weight_init(be, &w[h], &view, 1, &err), 0);
        free(stored);
    }
    const struct heads_args a = {.w = w,
                                 .n_heads = HEADS,
                                 .x_row = x_row,
                                 .x_head = cols + GAP,
                                 .y_row = y_row,
                                 .y_head = rows};
    float *x = op_floats(ROWS * x_row), *y = op_floats(ROWS * y_row), *alone = op_floats(y_row);
    float *before = op_floats(0);
    free(before);
    before = malloc((size_t)(ROWS * y_row) * sizeof *before);
    memcpy(before, y, (size_t)(ROWS * y_row) * sizeof *y);
    void *work = take_work(be, be->ops->linear_heads_bytes(be, ROWS, &a));
    assert_int_equal(be->ops->linear_heads(be, y, x, ROWS, &a, work), 0);
    for (int64_t r = 0; r < ROWS; r++) {
        for (int64_t h = 0; h < HEADS; h++)
            for (int64_t o = 0; o < rows; o++) {
                double sum = 0, size = 0;
                for (int64_t k = 0; k < cols; k++) {
                    const float v = values[h][turned ? k * rows + o : o * cols + k];
                    const double p = (double)v * x[r * x_row + h * (cols + GAP) + k];
                    sum += p;
                    size += fabs(p);
                }
                op_near(y[r * y_row + h * rows + o], sum, 1e-6 * size + 1e-6, "heads", r);
            }
        op_same_bits(y + r * y_row + HEADS * rows, before + r * y_row + HEADS * rows, GAP, "gap");
        memcpy(alone, before + r * y_row, (size_t)y_row * sizeof *alone);
        assert_int_equal(be->ops->linear_heads(be, alone, x + r * x_row, 1, &a, work), 0);
        op_same_bits(alone, y + r * y_row, y_row, "a row alone");
    }
    be->ops->mem_free(be, work);
    for (int h = 0; h < HEADS; h++) be->ops->weight_release(be, &w[h]), free(values[h]);
    free(x), free(y), free(alone), free(before);
}

static void check_copies(struct backend *be) {
    const struct parts_args a = {
        .n_parts = HEADS, .width = 4, .x_row = 61, .x_part = 7, .y_row = 40, .y_part = 6};
    float *x = op_floats(ROWS * a.x_row), *y = op_floats(ROWS * a.y_row);
    float *want = malloc((size_t)(ROWS * a.y_row) * sizeof *want);
    memcpy(want, y, (size_t)(ROWS * a.y_row) * sizeof *y);
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t p = 0; p < HEADS; p++)
            memcpy(want + r * a.y_row + p * a.y_part, x + r * a.x_row + p * a.x_part,
                   4 * sizeof *x);
    assert_int_equal(be->ops->copy_parts(be, y, x, ROWS, &a), 0);
    op_same_bits(y, want, ROWS * a.y_row, "copies");
    free(x), free(y), free(want);
}

static void check_all(struct backend *be) {
    op_seed(3);
    for (int turned = 0; turned < 2; turned++) {
        check_shape(be, DTYPE_F32, 32, 16, turned);
        check_shape(be, DTYPE_BF16, 40, 33, turned);
        check_shape(be, DTYPE_F16, 7, 128, turned);
    }
    check_copies(be);
}

static void test_heads(void **state) {
    op_each_backend(check_all);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_heads)};
    return cmocka_run_group_tests_name("heads", tests, NULL, NULL);
}
