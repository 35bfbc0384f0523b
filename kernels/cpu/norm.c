// y = norm(x) row by row: RMS (Zhang and Sennrich 2019) or layer norm (Ba et al. 2016), and the RMS
// norm of each query and key head. Reads and writes each row once from cache; the sums are F32, two
// passes for layer norm (mean first, then squared distances from it: no cancellation).
#include "kernels/cpu/cpu.h"

struct norm_job {
    struct cpu_backend *cpu;
    float *y;
    const float *x;
    int32_t width;
    const struct norm_args *args;
};

static void norm_chunk(void *ctx, int32_t row, int32_t n_rows) {
    const struct norm_job *j = ctx;
    const struct norm_args *a = j->args;
    const int64_t x_row = a->x_row ? a->x_row : j->width;
    for (int64_t r = row; r < row + n_rows; r++)
        j->cpu->kernels->norm_rows(a->kind, j->y + r * j->width, j->x + r * x_row, 1, j->width,
                                   j->width, a->weight, a->bias, a->eps);
}

int cpu_norm(struct backend *be, void *y, const void *x, int32_t n, int32_t width,
             const struct norm_args *args) {
    struct norm_job j = {cpu_of(be), y, x, width, args};
    cpu_for_rows(j.cpu, n, width, norm_chunk, &j);
    return 0;
}

struct qk_norm_job {
    struct cpu_backend *cpu;
    float *qkv;
    struct qkv_shape shape;
    const struct qkv_args *args;
};

// n heads together as one row, or each for itself.
static void norm_heads(const struct cpu_kernels *kernels, const struct qkv_args *a, float *x,
                       int32_t n, int32_t head_dim, const float *weight) {
    int32_t width = a->all_heads ? n * head_dim : head_dim;
    if (weight && n > 0)
        kernels->norm_rows(NORM_RMS, x, x, a->all_heads ? 1 : n, width, width, weight, NULL,
                           a->eps);
}

void cpu_qk_norm_row(const struct cpu_kernels *kernels, const struct qkv_shape *s,
                     const struct qkv_args *a, float *q) {
    float *k = q + (int64_t)s->n_heads * s->head_dim, *v = k + (int64_t)s->n_kv_heads * s->head_dim;
    norm_heads(kernels, a, q, s->n_heads, s->head_dim, a->q_weight);
    norm_heads(kernels, a, k, s->n_kv_heads, s->head_dim, a->k_weight);
    if (a->v_weight)
        kernels->norm_rows(NORM_RMS, v, v, s->n_kv_heads, s->head_dim, s->head_dim, a->v_weight,
                           NULL, a->eps);
    const int64_t n = (int64_t)(s->n_heads + 2 * s->n_kv_heads) * s->head_dim;
    for (int64_t i = 0; a->clip > 0 && i < n; i++)
        q[i] = q[i] > a->clip ? a->clip : q[i] < -a->clip ? -a->clip : q[i];
}

static void qk_norm_chunk(void *ctx, int32_t row, int32_t n_rows) {
    const struct qk_norm_job *j = ctx;
    const struct qkv_shape *s = &j->shape;
    int64_t stride = (int64_t)(s->n_heads + 2 * s->n_kv_heads) * s->head_dim;
    for (int32_t r = row; r < row + n_rows; r++)
        cpu_qk_norm_row(j->cpu->kernels, s, j->args, j->qkv + r * stride);
}

int cpu_qk_norm(struct backend *be, void *qkv, int32_t n, const struct qkv_shape *shape,
                const struct qkv_args *args) {
    struct qk_norm_job j = {cpu_of(be), qkv, *shape, args};
    cpu_for_rows(j.cpu, n, (int64_t)(shape->n_heads + shape->n_kv_heads) * shape->head_dim,
                 qk_norm_chunk, &j);
    return 0;
}
