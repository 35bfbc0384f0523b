// activate, gated and plain, against double precision over the whole range. A value's bits must not
// depend on its neighbours.
#include "tests/ops/ops_fixture.h"

static double reference(enum activation act, double x) {
    switch (act) {
    case ACT_SILU:
        return x / (1 + exp(-x));
    case ACT_GELU:
        return 0.5 * x * (1 + erf(x / sqrt(2)));
    case ACT_GELU_TANH: // 0.5 x (1 + tanh u), without the cancellation
        return x / (1 + exp(-2 * sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    case ACT_QUICK_GELU:
        return x / (1 + exp(-1.702 * x));
    case ACT_RELU2:
        return x > 0 ? x * x : 0;
    case ACT_RELU6:
        return x > 6 ? 6 : x > 0 ? x : 0;
    case ACT_LEAKY_RELU:
        return x > 0 ? x : 0.01 * x;
    case ACT_SIGMOID:
        return 1 / (1 + exp(-x));
    case ACT_TANH:
        return tanh(x);
    case ACT_MISH:
        return x * tanh(log1p(exp(x)));
    case ACT_LINEAR:
        return x;
    default:
        return x > 0 ? x : 0;
    }
}

static void range(struct backend *be) {
    enum { N = 4001 };
    float *x = malloc(2 * N * sizeof *x), *y = malloc(2 * N * sizeof *y);
    for (int act = 0; act < ACT_COUNT; act++) {
        for (int i = 0; i < N; i++) {
            x[i] = (float)(i - N / 2) * 0.05f;       // -100 to 100
            x[N + i] = (float)(i - N / 2) * 0.0025f; // -5 to 5
        }
        x[0] = -1e30f, x[1] = 1e30f, x[2] = -88.5f, x[3] = 88.5f;
        be->ops->activate(be, (enum activation)act, false, y, x, 2, N);
        for (int i = 0; i < 2 * N; i++) {
            double want = reference((enum activation)act, x[i]);
            if (isinf((float)want) && y[i] == (float)want) continue;
            // Below zero gelu's 1 + erf cancels, as in every F32 implementation, and the exponent
            // of the tanh form is as exact as its own size lets it be. e^x overflows F32 at 88.7
            // and is 0 below 2^-126, hence the last term.
            double size = fabs(want);
            if (act == ACT_GELU && x[i] < 0) size += fabs(x[i]);
            // The same holds for quick_gelu, whose constant 1.702 is also rounded.
            if (act == ACT_QUICK_GELU && x[i] < 0) size *= 1 + fabs(x[i]);
            if (act == ACT_GELU_TANH && x[i] < 0) size *= 1 + (double)x[i] * x[i];
            op_near(y[i], want, 3e-7 * size + 1.1e-36, "activate", i);
        }
    }
    free(x), free(y);
}

static void gated(struct backend *be) {
    static const int32_t widths[] = {1, 3, 17, 63, 130, 1024, 8200};
    for (int act = 0; act < ACT_COUNT; act++)
        for (int i = 0; i < 7; i++) {
            int32_t n = 7, width = widths[i];
            op_seed((uint64_t)width);
            float *x = op_floats(2 * n * width), *y = malloc((size_t)(n * width) * sizeof *y);
            float *alone = malloc((size_t)width * sizeof *alone);
            be->ops->activate(be, (enum activation)act, true, y, x, n, width);
            for (int32_t r = 0; r < n; r++) {
                for (int32_t c = 0; c < width; c++) {
                    double gate = x[r * 2 * width + width + c];
                    double want = reference((enum activation)act, x[r * 2 * width + c]) * gate;
                    op_near(y[r * width + c], want, 6e-7 * (fabs(want) + fabs(gate)), "gated",
                            r * width + c);
                }
                be->ops->activate(be, (enum activation)act, true, alone, x + r * 2 * width, 1,
                                  width);
                op_same_bits(alone, y + r * width, width, "row alone");
            }
            free(x), free(y), free(alone);
        }
}

static void nan_stays(struct backend *be) {
    for (int act = 0; act < ACT_COUNT; act++) {
        float x[2] = {NAN, 1}, y[2];
        be->ops->activate(be, (enum activation)act, false, y, x, 1, 2);
        assert_true(isnan(y[0]));
        assert_false(isnan(y[1]));
    }
}

static void test_range(void **state) {
    op_each_backend(range);
}
static void test_gated(void **state) {
    op_each_backend(gated);
}
static void test_nan(void **state) {
    op_each_backend(nan_stays);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_range), cmocka_unit_test(test_gated),
                                       cmocka_unit_test(test_nan)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
