// Rotary position embedding (Su et al. 2021). The angles of a step are computed once and used by
// all layers.
#include "kernels/cpu/cpu.h"
#include <math.h>

struct angles_job {
    float *cos_sin;
    const struct batch *b;
    const float *inv_freq, *short_inv_freq; // short_inv_freq may be NULL
    int32_t half;
    float scale;
};

static bool is_short(const struct batch *b, int32_t row) {
    int32_t seq = 0;
    while (seq < b->n_seqs && row >= b->seqs[seq].first_row + b->seqs[seq].n_rows) seq++;
    return seq < b->n_seqs && b->seqs[seq].short_rope;
}

static void angles_chunk(void *ctx, int32_t row, int32_t n_rows) {
    const struct angles_job *j = ctx;
    for (int32_t r = row; r < row + n_rows; r++) {
        float *out = j->cos_sin + (int64_t)r * 2 * j->half;
        float position = (float)j->b->positions[r];
        const float *inv_freq =
            j->short_inv_freq && is_short(j->b, r) ? j->short_inv_freq : j->inv_freq;
        for (int32_t i = 0; i < j->half; i++) {
            float angle = position * inv_freq[i];
            out[i] = cosf(angle) * j->scale;
            out[j->half + i] = sinf(angle) * j->scale;
        }
    }
}

int cpu_rope_angles(struct backend *be, float *cos_sin, const struct batch *b,
                    const float *inv_freq, const float *short_inv_freq, int32_t rot_dim,
                    float scale) {
    struct angles_job j = {cos_sin, b, inv_freq, short_inv_freq, rot_dim / 2, scale};
    cpu_for_rows(cpu_of(be), b->n_rows, rot_dim * 16, angles_chunk, &j);
    return 0;
}

// q *= 1 + beta ln(1 + floor(position / length)), in F32 as in transformers.
static void scale_query(const struct qkv_args *a, int32_t row, float *q, int32_t n) {
    float whole = floorf((float)a->positions[row] / a->query_length);
    float by = 1 + a->query_beta * logf(1 + whole);
    for (int32_t i = 0; i < n; i++) q[i] *= by;
}

void cpu_rope_row(const struct cpu_kernels *kernels, const struct qkv_shape *s,
                  const struct qkv_args *a, int32_t row, float *q) {
    // q heads and k heads lie side by side and turn alike.
    if (a->rot_dim > 0)
        kernels->rope_rows(a->style, q, 1, 0, s->n_heads + s->n_kv_heads, s->head_dim, a->rot_dim,
                           a->cos_sin + (int64_t)row * a->rot_dim);
    if (a->query_beta != 0) scale_query(a, row, q, s->n_heads * s->head_dim);
}

struct rope_job {
    struct cpu_backend *cpu;
    float *qkv;
    int64_t stride;
    const struct qkv_shape *shape;
    const struct qkv_args *args;
};

static void rope_chunk(void *ctx, int32_t row, int32_t n_rows) {
    const struct rope_job *j = ctx;
    for (int32_t r = row; r < row + n_rows; r++)
        cpu_rope_row(j->cpu->kernels, j->shape, j->args, r, j->qkv + r * j->stride);
}

int cpu_rope(struct backend *be, void *qkv, int32_t n, const struct qkv_shape *s,
             const struct qkv_args *args) {
    struct rope_job j = {.cpu = cpu_of(be),
                         .qkv = qkv,
                         .stride = (int64_t)(s->n_heads + 2 * s->n_kv_heads) * s->head_dim,
                         .shape = s,
                         .args = args};
    cpu_for_rows(j.cpu, n, (int64_t)(s->n_heads + s->n_kv_heads) * args->rot_dim, rope_chunk, &j);
    return 0;
}
