// The data of attention tests: a shape, sequences with all their rows and a ring of blocks each,
// and the ragged batch of their next step. On one backend (test_attention.c) or two
// (test_cuda_attention.c).
#pragma once
#include "tests/ops/ops_fixture.h"

enum { MAX_SEQS = 4 };

struct shape {
    enum dtype kv_dtype;
    int32_t n_heads, n_kv_heads, head_dim, block_tokens, n_layers, layer;
    int32_t memory_len, sink_len, window;
    int32_t slack; // the largest chunk, which the ring must hold beyond the window
    bool alibi;
    bool sink_logits; // attention_args.sinks
    bool latent;      // kv_store.latent; n_kv_heads is 1
    float soft_cap;
};

// A sequence: all its q, k and v rows, and the results of attention for each row.
struct seq {
    int32_t n, done; // rows; those that have been through
    float *qkv;      // (n, row_width)
    float *out;      // (n, n_heads * head_dim)
    int32_t *blocks; // (n_sink_blocks + n_ring_blocks)
    int32_t n_sink_blocks, n_ring_blocks;
};

static inline int64_t row_width(const struct shape *s) {
    return (int64_t)(s->n_heads + (s->latent ? 1 : 2) * s->n_kv_heads) * s->head_dim;
}
static inline int64_t out_width(const struct shape *s) {
    return (int64_t)s->n_heads * s->head_dim;
}

// Makes sequences of lens[i] rows; the caller fills in qkv. Rings are as small as the contract allows, so
// that they wrap; block ids are handed out in descending order. Returns the number of blocks.
static inline int32_t seqs_init(struct seq *seqs, int n_seqs, const struct shape *s,
                                const int32_t *lens) {
    int32_t bt = s->block_tokens, total = 0;
    for (int i = 0; i < n_seqs; i++) {
        struct seq *q = &seqs[i];
        q->n = lens[i];
        q->out = calloc((size_t)(q->n * out_width(s)), sizeof(float));
        q->n_sink_blocks = (s->sink_len + bt - 1) / bt;
        q->n_ring_blocks = (s->memory_len + s->slack + bt - 1) / bt + 1;
        total += q->n_sink_blocks + q->n_ring_blocks;
    }
    int32_t next = total;
    for (int i = 0; i < n_seqs; i++) {
        struct seq *q = &seqs[i];
        int32_t n = q->n_sink_blocks + q->n_ring_blocks;
        q->blocks = malloc((size_t)n * sizeof *q->blocks);
        for (int32_t j = 0; j < n; j++) q->blocks[j] = --next;
    }
    return total;
}

// A head's vector of one position, rounded as a cache of type t stores it. 8-bit types follow the
// definition in kernels/kv_quant.h, without its code.
static inline void stored_head(enum dtype t, const float *x, int32_t n, float *out) {
    bool int8 = t == DTYPE_I8, eight = int8 || t == DTYPE_F8_E4M3;
    float largest = 0, most = int8 ? 127 : 448;
    for (int32_t i = 0; i < n; i++) largest = fmaxf(largest, fabsf(x[i]));
    const float scale = largest / most, inverse = largest > 0 ? most / largest : 0;
    for (int32_t i = 0; i < n; i++) {
        float q = x[i] * inverse;
        out[i] = t == DTYPE_F16    ? f16_to_f32(f16_from_f32(x[i]))
                 : t == DTYPE_BF16 ? bf16_to_f32(bf16_from_f32(x[i]))
                 : !eight          ? x[i]
                 : int8            ? scale * rintf(q)
                                   : scale * e4m3_to_f32(e4m3_from_f32(q));
    }
}

// All rows' keys and values, rounded as the cache stores them: (n, 2 n_kv_heads * head_dim).
static inline float *stored_rows(const struct shape *s, const struct seq *q) {
    int32_t heads = 2 * s->n_kv_heads, hd = s->head_dim;
    float *out = malloc((size_t)(q->n * heads * hd) * sizeof *out);
    for (int32_t r = 0; r < q->n; r++)
        for (int32_t h = 0; h < heads; h++)
            stored_head(s->kv_dtype, q->qkv + r * row_width(s) + (s->n_heads + h) * hd, hd,
                        out + (r * heads + h) * hd);
    return out;
}

static inline void seqs_release(struct seq *seqs) {
    for (int i = 0; i < MAX_SEQS; i++) free(seqs[i].qkv), free(seqs[i].out), free(seqs[i].blocks);
}

// A store for these blocks, before kv_store_init.
static inline struct kv_store store_of(const struct shape *s, int32_t n_blocks) {
    return (struct kv_store){.dtype = s->kv_dtype,
                             .n_layers = s->n_layers,
                             .n_kv_heads = s->n_kv_heads,
                             .head_dim = s->head_dim,
                             .block_tokens = s->block_tokens,
                             .n_blocks = n_blocks,
                             .latent = s->latent};
}

static inline void slopes_init(float slopes[64]) {
    for (int i = 0; i < 64; i++) slopes[i] = powf(2, -0.5f * (float)(i + 1));
}

static inline struct attention_args args_of(const struct shape *s, const float *slopes) {
    return (struct attention_args){.layer = s->layer,
                                   .n_heads = s->n_heads,
                                   .n_kv_heads = s->n_kv_heads,
                                   .head_dim = s->head_dim,
                                   .scale = 1 / sqrtf((float)s->head_dim),
                                   .soft_cap = s->soft_cap,
                                   .window = s->window,
                                   .alibi_slopes = s->alibi ? slopes : NULL};
}

// Builds the batch of a step in which sequence i advances by rows[i].
struct step {
    struct batch batch;
    struct batch_seq seqs[MAX_SEQS];
    struct kv_map maps[MAX_SEQS];
    float *qkv, *out; // (n_rows, row_width), (n_rows, out_width): the latter to be filled
    int32_t *positions;
};

static inline void step_init(struct step *t, const struct shape *s, const struct seq *seqs,
                             const int32_t rows[MAX_SEQS]) {
    int32_t n_rows = 0, n_seqs = 0, at = 0;
    for (int i = 0; i < MAX_SEQS; i++) n_rows += rows[i];
    t->qkv = malloc((size_t)(n_rows * row_width(s)) * sizeof *t->qkv);
    t->out = malloc((size_t)(n_rows * out_width(s)) * sizeof *t->out);
    t->positions = malloc((size_t)n_rows * sizeof *t->positions);
    for (int i = 0; i < MAX_SEQS; i++) {
        const struct seq *q = &seqs[i];
        if (rows[i] == 0) continue;
        struct kv_map *map = &t->maps[n_seqs];
        *map = (struct kv_map){q->blocks, q->n_sink_blocks, q->n_ring_blocks, s->block_tokens};
        t->seqs[n_seqs++] = (struct batch_seq){.first_row = at,
                                               .n_rows = rows[i],
                                               .memory_len = s->memory_len,
                                               .sink_len = s->sink_len,
                                               .maps = map};
        memcpy(t->qkv + at * row_width(s), q->qkv + q->done * row_width(s),
               (size_t)(rows[i] * row_width(s)) * sizeof(float));
        for (int32_t r = 0; r < rows[i]; r++) t->positions[at + r] = q->done + r;
        at += rows[i];
    }
    t->batch = (struct batch){
        .n_rows = n_rows, .n_seqs = n_seqs, .positions = t->positions, .seqs = t->seqs};
}

// Ends the step: copies the results of attention to the sequences.
static inline void step_take(struct step *t, const struct shape *s, struct seq *seqs,
                             const int32_t rows[MAX_SEQS], const float *out) {
    for (int i = 0; i < MAX_SEQS; i++) {
        struct seq *q = &seqs[i];
        if (rows[i] == 0) continue;
        memcpy(q->out + q->done * out_width(s), out,
               (size_t)(rows[i] * out_width(s)) * sizeof *out);
        out += rows[i] * out_width(s);
        q->done += rows[i];
    }
    free(t->qkv), free(t->out), free(t->positions);
}
