// Which tensors a random model has, and their values. See synth_tensors.h.
//
// Scales: matrices have the deviation 1 / sqrt(inputs). For those that write into the residual stream it
// is divided by sqrt(2 layers), so that the stream stays near one at any depth. A tied embedding has
// 1 / sqrt(width), because it is the head too; otherwise logits would grow with the width.
#include "engine/model/synth_tensors.h"
#include "base/cgroup.h"
#include "engine/model/synth_values.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static int add_tensor(struct synth_tensors *p, int32_t layer, const char *stem, const char *suffix,
                      int64_t rows, int64_t cols, float mean, float deviation, struct err *err) {
    char name[TENSOR_NAME_MAX];
    if (p->n == p->cap) {
        size_t cap = p->cap ? 2 * p->cap : 256;
        struct tensor *t = realloc(p->tensors, cap * sizeof *t);
        if (t) p->tensors = t;
        float *m = realloc(p->means, cap * sizeof *m);
        if (m) p->means = m;
        float *d = realloc(p->deviations, cap * sizeof *d);
        if (d) p->deviations = d;
        if (!t || !m || !d) return err_set(err, E_NOMEM, "no memory for %zu tensors", cap);
        p->cap = cap;
    }
    struct tensor *t = &p->tensors[p->n];
    *t = (struct tensor){.dtype = p->dtype, .n_dims = cols ? 2 : 1, .shape = {rows, cols}};
    t->bytes = (size_t)(rows * (cols ? cols : 1)) * dtype_size(p->dtype);
    t->name = strdup(family_tensor_name(name, p->names, layer, stem, suffix));
    if (!t->name) return err_set(err, E_NOMEM, "no memory for a tensor's name");
    p->means[p->n] = mean;
    p->deviations[p->n] = deviation;
    p->total += (int64_t)t->bytes;
    p->n++;
    return 0;
}

// In the layers of some families a matrix is stored the other way round.
static int add_matrix(struct synth_tensors *p, int32_t layer, const char *stem, int64_t rows,
                      int64_t cols, bool bias, float damping, struct err *err) {
    float deviation = damping / sqrtf((float)cols);
    bool turned = layer >= 0 && p->names->conv1d;
    TRY(add_tensor(p, layer, stem, "weight", turned ? cols : rows, turned ? rows : cols, 0,
                   deviation, err));
    return bias ? add_tensor(p, layer, stem, "bias", rows, 0, 0, 0.1f * damping, err) : 0;
}

// A norm's weights are near one, stored as they are or as what is added to one.
static int add_norm_weight(struct synth_tensors *p, int32_t layer, const char *stem, int64_t n,
                           struct err *err) {
    const float mean = p->config->norm_plus_one ? 0 : 1;
    return add_tensor(p, layer, stem, "weight", n, 0, mean, 0.05f, err);
}

static int add_norm(struct synth_tensors *p, int32_t layer, const char *stem, struct err *err) {
    TRY(add_norm_weight(p, layer, stem, p->config->width, err));
    if (!p->config->norm_bias) return 0;
    return add_tensor(p, layer, stem, "bias", p->config->width, 0, 0, 0.05f, err);
}

static int add_latent(struct synth_tensors *p, int32_t layer, const struct attention_config *a,
                      struct err *err) {
    const struct family_tensors *t = p->names;
    const int64_t width = p->config->width, own = a->nope_dim + a->rope_dim;
    const char *q = a->q_rank ? t->q_b : t->q;
    if (a->q_rank) {
        TRY(add_matrix(p, layer, t->q_a, a->q_rank, width, a->qkv_bias, 1, err));
        TRY(add_norm_weight(p, layer, t->q_a_norm, a->q_rank, err));
    }
    TRY(add_matrix(p, layer, q, a->n_heads * own, a->q_rank ? a->q_rank : width, false, 1, err));
    TRY(add_matrix(p, layer, t->kv_a, a->kv_rank + a->rope_dim, width, a->qkv_bias, 1, err));
    TRY(add_norm_weight(p, layer, t->kv_a_norm, a->kv_rank, err));
    return add_matrix(p, layer, t->kv_b, (int64_t)a->n_heads * (a->nope_dim + a->v_head_dim),
                      a->kv_rank, false, 1, err);
}

static int add_qkv(struct synth_tensors *p, int32_t layer, const struct attention_config *a,
                   struct err *err) {
    const int32_t width = p->config->width;
    const struct family_tensors *t = p->names;
    const int64_t d = a->head_dim, q = a->n_heads * d, kv = a->n_kv_heads * d;
    const bool heads = a->qk_norm == QK_NORM_HEADS;
    if (a->kv_rank) return add_latent(p, layer, a, err);
    if (t->qkv) {
        TRY(add_matrix(p, layer, t->qkv, q + 2 * kv, width, a->qkv_bias, 1, err));
    } else {
        TRY(add_matrix(p, layer, t->q, q, width, a->qkv_bias, 1, err));
        if (!a->kv_from) TRY(add_matrix(p, layer, t->k, kv, width, a->qkv_bias, 1, err));
        if (!a->kv_from && !a->v_is_k)
            TRY(add_matrix(p, layer, t->v, kv, width, a->qkv_bias, 1, err));
    }
    if (a->sinks) TRY(add_tensor(p, layer, t->sinks, "", a->n_heads, 0, 0, 1, err));
    if (a->qk_norm) TRY(add_norm_weight(p, layer, t->q_norm, heads ? d : q, err));
    if (a->qk_norm && !a->kv_from) TRY(add_norm_weight(p, layer, t->k_norm, heads ? d : kv, err));
    return 0;
}

// One tensor for a matrix of all experts, and one for their biases.
static int add_stacked(struct synth_tensors *p, int32_t layer, const char *stem, int64_t rows,
                       int64_t cols, float damping, struct err *err) {
    const struct experts_config *x = &model_layer(p->config, layer)->feed.experts;
    const bool turned = p->names->experts_turned || p->names->experts_halves;
    char name[TENSOR_NAME_MAX];
    TRY(add_tensor(p, layer, stem, p->names->experts_bare ? "" : "weight", x->n_experts,
                   rows * cols, 0, damping / sqrtf((float)cols), err));
    struct tensor *t = &p->tensors[p->n - 1];
    t->n_dims = 3;
    t->shape[1] = turned ? cols : rows;
    t->shape[2] = turned ? rows : cols;
    snprintf(name, sizeof name, "%s_bias", stem);
    if (!x->bias) return 0;
    return add_tensor(p, layer, name, "", x->n_experts, rows, 0, 0.1f * damping, err);
}

// The norms around the dense feed-forward and the experts, and before the router.
static int add_beside(struct synth_tensors *p, int32_t layer, const struct experts_config *x,
                      struct err *err) {
    const struct family_tensors *t = p->names;
    TRY(add_norm(p, layer, t->dense_out_norm, err));
    TRY(add_norm(p, layer, t->experts_norm, err));
    TRY(add_norm(p, layer, t->experts_out_norm, err));
    TRY(add_tensor(p, layer, t->router_norm, "", p->config->width, 0, 1, 0.1f, err));
    if (!x->expert_scale) return 0;
    return add_tensor(p, layer, t->expert_scale, "", x->n_experts, 0, 1, 0.1f, err);
}

// One tensor for each matrix of an expert, or one for all, as the family has it.
static int add_experts(struct synth_tensors *p, int32_t layer, const struct feed_config *f,
                       float damping, struct err *err) {
    const struct experts_config *x = &f->experts;
    const struct family_tensors *t = p->names;
    const int32_t width = p->config->width;
    char stem[TENSOR_NAME_MAX];
    TRY(add_matrix(p, layer, t->router, x->n_experts, width, x->router_bias, 1, err));
    if (x->choice_bias)
        TRY(add_tensor(p, layer, t->choice_bias, "", x->n_experts, 0, 0, 0.1f, err));
    const bool stacked = t->experts_up && (!t->experts || !t->experts_bare || t->experts_turned ||
                                           t->experts_halves);
    if (stacked) {
        TRY(add_stacked(p, layer, t->experts_up, (f->gated ? 2 : 1) * (int64_t)x->width, width, 1,
                        err));
        TRY(add_stacked(p, layer, t->experts_down, width, x->width, damping, err));
    }
    for (int32_t e = 0; !stacked && e < x->n_experts; e++) {
        snprintf(stem, sizeof stem, "%s.%d.%s", t->experts, e, t->expert_gate);
        if (f->gated) TRY(add_matrix(p, layer, stem, x->width, width, false, 1, err));
        snprintf(stem, sizeof stem, "%s.%d.%s", t->experts, e, t->expert_up);
        TRY(add_matrix(p, layer, stem, x->width, width, false, 1, err));
        snprintf(stem, sizeof stem, "%s.%d.%s", t->experts, e, t->expert_down);
        TRY(add_matrix(p, layer, stem, width, x->width, false, damping, err));
    }
    if (x->beside) TRY(add_beside(p, layer, x, err));
    if (!x->shared_width) return 0;
    if (f->gated) TRY(add_matrix(p, layer, t->shared_gate, x->shared_width, width, false, 1, err));
    TRY(add_matrix(p, layer, t->shared_up, x->shared_width, width, false, 1, err));
    TRY(add_matrix(p, layer, t->shared_down, width, x->shared_width, false, damping, err));
    return x->shared_gate ? add_matrix(p, layer, t->shared_switch, 1, width, false, 1, err) : 0;
}

static int add_feed(struct synth_tensors *p, int32_t layer, const struct feed_config *f,
                    float damping, struct err *err) {
    const int32_t width = p->config->width;
    const struct family_tensors *t = p->names;
    const char *stem = t->gate_up ? t->gate_up : t->up;
    if (f->experts.n_experts) TRY(add_experts(p, layer, f, damping, err));
    if (!f->width) return 0;
    if (f->gated && !t->gate_up)
        TRY(add_matrix(p, layer, t->gate, f->width, width, f->bias, 1, err));
    TRY(add_matrix(p, layer, stem, (f->gated && t->gate_up ? 2 : 1) * (int64_t)f->width, width,
                   f->bias, 1, err));
    if (f->xielu) {
        char name[TENSOR_NAME_MAX];
        snprintf(name, sizeof name, "%s.alpha_p", t->xielu);
        TRY(add_tensor(p, layer, name, "", 1, 0, 0.5f, 0.1f, err));
        snprintf(name, sizeof name, "%s.alpha_n", t->xielu);
        TRY(add_tensor(p, layer, name, "", 1, 0, 0.5f, 0.1f, err));
    }
    return add_matrix(p, layer, t->down, width, f->width, f->bias, damping, err);
}

static int add_layer(struct synth_tensors *p, int32_t layer, struct err *err) {
    const struct model_config *c = p->config;
    const struct layer_config *row = model_layer(c, layer);
    const struct attention_config *a = &row->attention;
    const struct family_tensors *t = p->names;
    const bool whole = row->norms & (NORM_PRE | NORM_POST);
    float damping = 1 / sqrtf(2 * (float)c->n_layers);
    if (whole) TRY(add_norm(p, layer, t->attn_norm, err));
    TRY(add_qkv(p, layer, a, err));
    const int64_t attended = (int64_t)a->n_heads * (a->kv_rank ? a->v_head_dim : a->head_dim);
    TRY(add_matrix(p, layer, t->o, c->width, attended, a->o_bias, damping, err));
    if (row->norms & NORM_OUT) TRY(add_norm(p, layer, t->attn_out_norm, err));
    if (whole && !row->shared_norm) TRY(add_norm(p, layer, t->ffn_norm, err));
    TRY(add_feed(p, layer, &row->feed, damping, err));
    if (row->norms & NORM_OUT) TRY(add_norm(p, layer, t->ffn_out_norm, err));
    if (row->output_scalar) TRY(add_tensor(p, layer, t->output_scalar, "", 1, 0, 1, 0, err));
    if (!c->per_layer_width) return 0;
    TRY(add_matrix(p, layer, t->layer_gate, c->per_layer_width, c->width, false, 1, err));
    TRY(add_matrix(p, layer, t->layer_out, c->width, c->per_layer_width, false, damping, err));
    return add_norm(p, layer, t->layer_out_norm, err);
}

// Of all layers' embeddings.
static int add_layer_embeddings(struct synth_tensors *p, struct err *err) {
    const struct model_config *c = p->config;
    const struct family_tensors *t = p->names;
    const int64_t all = (int64_t)c->n_layers * c->per_layer_width;
    if (!c->per_layer_width) return 0;
    TRY(add_tensor(p, -1, t->layer_embed, "weight", c->per_layer_vocab, all, 0,
                   1 / sqrtf((float)c->per_layer_width), err));
    TRY(add_matrix(p, -1, t->layer_project, all, c->width, false, 1, err));
    return add_norm_weight(p, -1, t->layer_project_norm, c->per_layer_width, err);
}

// Between the embedding and the first layer, and between the last one and the head.
static int add_ends(struct synth_tensors *p, float embed, struct err *err) {
    const struct model_config *c = p->config;
    const struct family_tensors *t = p->names;
    int64_t rows = (int64_t)c->max_positions + c->position_offset;
    if (c->positions == POSITION_LEARNED)
        TRY(add_tensor(p, -1, t->positions, "weight", rows, c->width, 0, embed, err));
    if (c->embed_norm) TRY(add_norm(p, -1, t->embed_norm, err));
    if (c->final_norm) TRY(add_norm(p, -1, t->final_norm, err));
    if (c->embed_width == c->width) return 0;
    TRY(add_matrix(p, -1, t->embed_in, c->width, c->embed_width, false, 1, err));
    return add_matrix(p, -1, t->embed_out, c->embed_width, c->width, false, 1, err);
}

static int list_all(struct synth_tensors *p, struct err *err) {
    const struct model_config *c = p->config;
    float embed = c->tied_head ? 1 / sqrtf((float)c->embed_width) : 1;
    TRY(add_tensor(p, -1, p->names->embed, "weight", c->vocab_size, c->embed_width, 0, embed, err));
    for (int32_t i = 0; i < c->n_layers; i++) TRY(add_layer(p, i, err));
    TRY(add_layer_embeddings(p, err));
    TRY(add_ends(p, embed, err));
    if (!c->tied_head)
        TRY(add_matrix(p, -1, p->names->head, c->vocab_size, c->embed_width, false, 1, err));
    if (!c->head_bias) return 0;
    return add_tensor(p, -1, p->names->head, "bias", c->vocab_size, 0, 0, 0.1f, err);
}

int synth_tensors_list(struct synth_tensors *p, const struct model_config *c, enum dtype dtype,
                       uint64_t seed, struct err *err) {
    *p = (struct synth_tensors){
        .config = c, .names = family_find(c->family)->tensors, .dtype = dtype, .seed = seed};
    return list_all(p, err);
}

void synth_tensors_free(struct synth_tensors *p) {
    for (size_t i = 0; i < p->n; i++) free((char *)p->tensors[i].name);
    free(p->tensors);
    free(p->means);
    free(p->deviations);
    *p = (struct synth_tensors){0};
}

static void read_part(const struct synth_values *v, size_t size, size_t offset, char *out,
                      size_t n) {
    enum { BLOCK = 4096 }; // values
    const size_t whole = 4 * size;
    union {
        float f32[BLOCK];
        uint16_t half[BLOCK];
    } block;
    for (size_t skip = offset % whole, at = offset - skip; n > 0; skip = 0) {
        size_t take = BLOCK * size - skip < n ? BLOCK * size - skip : n;
        synth_values_fill(v, &block, at / size, (skip + take + whole - 1) / whole * 4);
        memcpy(out, (const char *)&block + skip, take);
        out += take;
        at += skip + take;
        n -= take;
    }
}

struct reading { // a thread's part of a read
    pthread_t thread;
    const struct synth_values *v;
    size_t size, offset, n;
    char *out;
};

static void *read_own_part(void *ctx) {
    struct reading *r = ctx;
    read_part(r->v, r->size, r->offset, r->out, r->n);
    return NULL;
}

void synth_tensors_read(const struct synth_tensors *p, const struct tensor *t, size_t offset,
                        void *out, size_t n) {
    enum { MOST_THREADS = 16, LEAST_BYTES = 1 << 17 }; // for a thread: an expert takes all
    const size_t i = (size_t)(t - p->tensors), size = dtype_size(t->dtype);
    const size_t most = (size_t)cgroup_processors(), wanted = n / LEAST_BYTES;
    struct reading parts[MOST_THREADS];
    struct synth_values v;
    synth_values_init(&v, p->seed, t->name, t->dtype, p->means[i], p->deviations[i]);
    size_t n_threads = wanted < most ? wanted : most, n_begun = 0, at = 0;
    if (n_threads > MOST_THREADS) n_threads = MOST_THREADS;
    while (n_begun + 1 <
           n_threads) { // the last part, and what finds no thread, is read by this one
        struct reading *r = &parts[n_begun];
        *r = (struct reading){.v = &v,
                              .size = size,
                              .offset = offset + at,
                              .n = n / n_threads,
                              .out = (char *)out + at};
        if (pthread_create(&r->thread, NULL, read_own_part, r) != 0) break;
        at += r->n;
        n_begun++;
    }
    read_part(&v, size, offset + at, (char *)out + at, n - at);
    for (size_t k = 0; k < n_begun; k++) pthread_join(parts[k].thread, NULL);
}
