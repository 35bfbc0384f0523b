// xIELU (Huang and Schlag 2024), the activation of Apertus. About 20 ns a value below zero, by the C library's
// expm1: the difference e^x - 1 keeps its digits near zero.
#include "kernels/cpu/cpu.h"
#include <math.h>

struct xielu_job {
    float *y;
    const float *x;
    int32_t width;
    float alpha_p, alpha_n;
};

static const float beta = 0.5f, eps = -1e-6f;

static float softplus(float x) {
    return x > 20 ? x : log1pf(expf(x));
}

static void xielu_chunk(void *ctx, int32_t row, int32_t n_rows) {
    const struct xielu_job *j = ctx;
    const int64_t at = (int64_t)row * j->width, end = at + (int64_t)n_rows * j->width;
    for (int64_t i = at; i < end; i++) {
        const float x = j->x[i];
        j->y[i] = x > 0 ? j->alpha_p * x * x + beta * x
                        : (expm1f(fminf(x, eps)) - x) * j->alpha_n + beta * x;
    }
}

int cpu_xielu(struct backend *be, void *y, const void *x, int32_t n, int32_t width,
              const float *alpha) {
    struct xielu_job j = {y, x, width, softplus(alpha[0]), beta + softplus(alpha[1])};
    cpu_for_rows(cpu_of(be), n, (int64_t)width * 16, xielu_chunk, &j);
    return 0;
}
