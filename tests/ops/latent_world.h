// The data of the tests of latent attention: a shape, its heads' matrices, and sequences with the queries and latents of all
// their rows. On one backend (test_latent.c) or two (test_cuda_latent.c).
#pragma once
#include "tests/ops/attention_world.h"

struct latents {
    int32_t heads, nope, rope, rank, v_dim;
    int32_t gap; // elements behind a row of q and latents; -1: these lie apart
    bool turned; // k is stored the other way round, as in a checkpoint
    enum dtype kv_dtype;
    enum rope_style style;
    int32_t memory_len;
};

static inline int32_t latents_dim(const struct latents *s) {
    return s->rope + s->rank;
}
static inline int64_t latents_q_width(const struct latents *s) {
    return (int64_t)s->heads * (s->nope + s->rope);
}
static inline int64_t latents_out_width(const struct latents *s) {
    return (int64_t)s->heads * s->v_dim;
}

// For attention_world.h, whose rows hold q, then the latents.
static inline struct shape latents_shape(const struct latents *s) {
    return (struct shape){.kv_dtype = s->kv_dtype,
                          .n_heads = s->heads,
                          .n_kv_heads = 1,
                          .head_dim = latents_dim(s),
                          .block_tokens = 16,
                          .n_layers = 2,
                          .layer = 1,
                          .memory_len = s->memory_len,
                          .slack = 200,
                          .latent = true};
}

// values (rows, cols) as W (rows, cols).
static inline struct tensor_view latents_view(const float *values, int32_t rows, int32_t cols,
                                              bool turned) {
    return (struct tensor_view){.data = values,
                                .dtype = DTYPE_F32,
                                .rows = rows,
                                .cols = cols,
                                .row_stride = turned ? 1 : cols,
                                .col_stride = turned ? rows : 1};
}

// The heads' matrices from k (heads, rank * nope), v (heads, v_dim * rank).
static inline void latents_weights(struct backend *be, const struct latents *s, const float *k,
                                   const float *v, struct weight *to_k, struct weight *to_v) {
    struct err err = {0};
    for (int32_t h = 0; h < s->heads; h++) {
        const struct tensor_view a =
            latents_view(k + (int64_t)h * s->rank * s->nope, s->rank, s->nope, s->turned);
        const struct tensor_view b =
            latents_view(v + (int64_t)h * s->v_dim * s->rank, s->v_dim, s->rank, false);
        assert_int_equal(be->ops->weight_init(be, &to_k[h], &a, 1, &err), 0);
        assert_int_equal(be->ops->weight_init(be, &to_v[h], &b, 1, &err), 0);
    }
}

static inline void latents_release(struct backend *be, const struct latents *s, struct weight *k,
                                   struct weight *v) {
    for (int32_t h = 0; h < s->heads; h++)
        be->ops->weight_release(be, &k[h]), be->ops->weight_release(be, &v[h]);
}

static inline struct latent_args latents_args(const struct latents *s, const struct weight *k,
                                              const struct weight *v) {
    const int64_t row = s->gap < 0 ? 0 : latents_q_width(s) + latents_dim(s) + s->gap;
    return (struct latent_args){.layer = 1,
                                .n_heads = s->heads,
                                .nope_dim = s->nope,
                                .rope_dim = s->rope,
                                .rank = s->rank,
                                .v_dim = s->v_dim,
                                .k = k,
                                .v = v,
                                .q_row = row ? row : latents_q_width(s),
                                .latents_row = row ? row : latents_dim(s),
                                .eps = 1e-6f,
                                .style = s->style,
                                .scale = 1 / sqrtf((float)(s->nope + s->rope))};
}

// Sequences of attention_world.h hold a row's queries first and its latents last. The rows of a step as latents_args says,
// in one buffer, where latents begin at element *begin.
static inline float *latents_rows(const struct latents *s, const struct latent_args *a,
                                  const struct step *t, int64_t *begin) {
    const struct shape shape = latents_shape(s);
    const bool apart = s->gap < 0;
    const int64_t n = t->batch.n_rows, row = row_width(&shape), width = latents_q_width(s),
                  dim = latents_dim(s);
    *begin = apart ? n * width : width;
    float *rows = op_floats(apart ? n * (width + dim) : n * a->q_row);
    for (int64_t r = 0; r < n; r++) {
        const float *from = t->qkv + r * row;
        memcpy(rows + r * a->q_row, from, (size_t)width * sizeof *rows);
        memcpy(rows + *begin + r * a->latents_row, from + row - dim, (size_t)dim * sizeof *rows);
    }
    return rows;
}

// Results (n, heads * v_dim) as attention_world.h holds them: (n, heads * dim), the rest zeros.
static inline void latents_take(const struct latents *s, struct step *t, struct seq *seqs,
                                const int32_t rows[MAX_SEQS], const float *out) {
    const struct shape shape = latents_shape(s);
    const int64_t n = t->batch.n_rows, width = latents_out_width(s);
    memset(t->out, 0, (size_t)(n * out_width(&shape)) * sizeof *t->out);
    for (int64_t r = 0; r < n; r++)
        memcpy(t->out + r * out_width(&shape), out + r * width, (size_t)width * sizeof *out);
    float *all = t->out;
    step_take(t, &shape, seqs, rows, all);
}
