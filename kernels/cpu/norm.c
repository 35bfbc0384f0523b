// y = norm(x) row by row: RMS (Zhang and Sennrich 2019) or layer norm (Ba et al. 2016), and the RMS
// norm of each query and key head. Reads and writes each row once from cache; the sums are F32, two
// passes for layer norm (mean first, then squared distances from it: no cancellation).
#include "kernels/cpu/cpu.h"

struct norm_job {
    struct cpu_backend *cpu;
    enum norm_kind kind;
    float *y;
    const float *x;
    int32_t width;
    const float *weight, *bias;
    float eps;
};

static void norm_chunk(void *ctx, int32_t row, int32_t n_rows) {
    const struct norm_job *j = ctx;
    int64_t at = (int64_t)row * j->width;
    j->cpu->kernels->norm_rows(j->kind, j->y + at, j->x + at, n_rows, j->width, j->width, j->weight,
                               j->bias, j->eps);
}

int cpu_norm(struct backend *be, enum norm_kind kind, void *y, const void *x, int32_t n,
             int32_t width, const float *weight, const float *bias, float eps) {
    struct norm_job j = {cpu_of(be), kind, y, x, width, weight, bias, eps};
    cpu_for_rows(j.cpu, n, width, norm_chunk, &j);
    return 0;
}

struct qk_norm_job {
    struct cpu_backend *cpu;
    float *qkv;
    int32_t n_heads, n_kv_heads, head_dim;
    const float *q_weight, *k_weight;
    float eps;
};

static void qk_norm_chunk(void *ctx, int32_t row, int32_t n_rows) {
    const struct qk_norm_job *j = ctx;
    int64_t stride = (int64_t)(j->n_heads + 2 * j->n_kv_heads) * j->head_dim;
    for (int32_t r = row; r < row + n_rows; r++) {
        float *q = j->qkv + r * stride, *k = q + (int64_t)j->n_heads * j->head_dim;
        j->cpu->kernels->norm_rows(NORM_RMS, q, q, j->n_heads, j->head_dim, j->head_dim,
                                   j->q_weight, NULL, j->eps);
        j->cpu->kernels->norm_rows(NORM_RMS, k, k, j->n_kv_heads, j->head_dim, j->head_dim,
                                   j->k_weight, NULL, j->eps);
    }
}

int cpu_qk_norm(struct backend *be, void *qkv, int32_t n, int32_t n_heads, int32_t n_kv_heads,
                int32_t head_dim, const float *q_weight, const float *k_weight, float eps) {
    struct qk_norm_job j = {cpu_of(be), qkv,      n_heads,  n_kv_heads,
                            head_dim,   q_weight, k_weight, eps};
    cpu_for_rows(j.cpu, n, (int64_t)(n_heads + n_kv_heads) * head_dim, qk_norm_chunk, &j);
    return 0;
}
