// norm and qk_norm against double precision, at odd widths. A row must have the same bits alone.
#include "tests/ops/ops_fixture.h"

static void check_norm(const float *y, const float *x, int32_t n, int32_t width,
                       enum norm_kind kind, const float *weight, const float *bias, double eps) {
    for (int32_t r = 0; r < n; r++) {
        double mean = 0, square = 0;
        for (int32_t i = 0; i < width; i++) mean += x[r * width + i];
        mean = kind == NORM_LAYER ? mean / width : 0;
        for (int32_t i = 0; i < width; i++) square += pow(x[r * width + i] - mean, 2);
        double scale = 1 / sqrt(square / width + eps);
        for (int32_t i = 0; i < width; i++) {
            double want = (x[r * width + i] - mean) * scale * weight[i] + (bias ? bias[i] : 0);
            op_near(y[r * width + i], want, 5e-7 * (1 + fabs(want) + fabs(mean * scale)), "norm",
                    r * width + i);
        }
    }
}

static void norms(struct backend *be) {
    static const int32_t widths[] = {1, 3, 17, 63, 64, 130, 384, 1000};
    for (int i = 0; i < 8; i++)
        for (int kind = 0; kind < 2; kind++) {
            int32_t width = widths[i], n = i == 7 ? 70 : 5;
            op_seed((uint64_t)width);
            float *x = op_floats(n * width), *w = op_floats(width), *b = op_floats(width);
            float *y = malloc((size_t)(n * width) * sizeof *y),
                  *alone = malloc((size_t)width * sizeof *alone);
            for (int32_t j = 0; j < n * width; j++) x[j] += 3; // a mean that is not zero
            struct norm_args a = {(enum norm_kind)kind, w, NULL, 1e-5f, 0};
            for (int with_bias = 0; with_bias < 2; with_bias++) {
                a.bias = with_bias ? b : NULL;
                be->ops->norm(be, y, x, n, width, &a);
                check_norm(y, x, n, width, a.kind, w, a.bias, a.eps);
                for (int32_t r = 0; r < n; r++) {
                    be->ops->norm(be, alone, x + r * width, 1, width, &a);
                    op_same_bits(alone, y + r * width, width, "row alone");
                }
            }
            be->ops->norm(be, x, x, n, width, &a); // in place
            op_same_bits(x, y, n * width, "in place");
            free(x), free(w), free(b), free(y), free(alone);
        }
}

static void qk_norms(struct backend *be) {
    enum { N = 9, HEADS = 4, KV = 2, DIM = 40, WIDTH = (HEADS + 2 * KV) * DIM };
    op_seed(2);
    float *x = op_floats(N * WIDTH), *y = malloc(N * WIDTH * sizeof *y), *q = op_floats(DIM),
          *k = op_floats(DIM);
    memcpy(y, x, N * WIDTH * sizeof *y);
    const struct qkv_shape shape = {HEADS, KV, DIM};
    const struct qkv_args a = {.q_weight = q, .k_weight = k, .eps = 1e-6f};
    be->ops->qk_norm(be, y, N, &shape, &a);
    for (int32_t r = 0; r < N; r++) {
        for (int32_t h = 0; h < HEADS + KV; h++) {
            int32_t at = r * WIDTH + h * DIM;
            check_norm(y + at, x + at, 1, DIM, NORM_RMS, h < HEADS ? q : k, NULL, 1e-6f);
        }
        int32_t v = r * WIDTH + (HEADS + KV) * DIM;
        op_same_bits(y + v, x + v, KV * DIM, "v untouched");
    }
    free(x), free(y), free(q), free(k);
}

static void test_norms(void **state) {
    op_each_backend(norms);
}
static void test_qk_norms(void **state) {
    op_each_backend(qk_norms);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_norms),
                                       cmocka_unit_test(test_qk_norms)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
