// The layers of a model_config: rows, features, parameters. See model_config.h.
#include "engine/model/model_config.h"
#include <string.h>

int model_config_set_layer(struct model_config *c, int32_t layer, const struct layer_config *row,
                           struct err *err) {
    int32_t i = 0;
    while (i < c->n_kinds && memcmp(&c->kinds[i], row, sizeof *row) != 0) i++;
    if (i == MODEL_MAX_KINDS)
        return err_set(err, E_UNSUPPORTED, "more than %d kinds of layers, in layer %d",
                       MODEL_MAX_KINDS, layer);
    if (i == c->n_kinds) c->kinds[c->n_kinds++] = *row;
    c->kind_of[layer] = (uint8_t)i;
    return 0;
}

void model_config_settle_layers(struct model_config *c) {
    struct layer_config kinds[MODEL_MAX_KINDS];
    int8_t as[MODEL_MAX_KINDS];
    int32_t n = 0;
    memset(as, -1, sizeof as);
    for (int32_t i = 0; i < c->n_layers; i++) {
        int8_t *to = &as[c->kind_of[i]];
        if (*to < 0) kinds[n] = c->kinds[c->kind_of[i]];
        if (*to < 0) *to = (int8_t)n++;
        c->kind_of[i] = (uint8_t)*to;
    }
    memset(c->kinds, 0, sizeof c->kinds);
    memcpy(c->kinds, kinds, (size_t)n * sizeof *kinds);
    c->n_kinds = n;
}

float model_config_attention_scale(const struct model_config *c, int32_t layer) {
    const struct attention_config *a = &model_layer(c, layer)->attention;
    return a->scale_by_layer ? a->scale / (float)(layer + 1) : a->scale;
}

static uint32_t row_features(const struct layer_config *row) {
    const struct attention_config *a = &row->attention;
    return (a->soft_cap != 0 ? OP_SOFT_CAP : 0u) | (a->sinks ? OP_SINKS : 0u) |
           (a->query_beta != 0 ? OP_QUERY_SCALE : 0u) |
           (a->qk_norm == QK_NORM_WIDTH ? OP_QK_NORM_WIDTH : 0u) |
           (a->qk_norm_after_rope ? OP_QK_NORM_LATE : 0u) | (a->v_norm ? OP_V_NORM : 0u) |
           (a->kv_from ? OP_Q_ONLY : 0u) | (a->kv_rank ? OP_LATENT : 0u) |
           (row->residual_scale != 0 || row->output_scalar ? OP_SCALE : 0u) |
           (a->clip != 0 ? OP_QKV_CLIP : 0u) | (row->feed.xielu ? OP_XIELU : 0u) |
           (row->feed.experts.n_experts ? OP_EXPERTS : 0u);
}

uint32_t model_config_features(const struct model_config *c) {
    uint32_t all = c->logit_scale != 0 || c->logit_soft_cap != 0 ? OP_LOGITS : 0u;
    for (int32_t i = 0; i < c->n_kinds; i++) all |= row_features(&c->kinds[i]);
    return all | (c->per_layer_width ? OP_LAYER_INPUTS | OP_SCALE : 0u);
}

// --- parameters ---

static int64_t n_experts_params(int64_t width, const struct feed_config *f) {
    const struct experts_config *x = &f->experts;
    const int64_t n = x->n_experts, ups = f->gated ? 2 : 1;
    int64_t each = (ups + 1) * x->width * width;
    if (x->bias) each += ups * x->width + width;
    if (x->n_experts == 0) return 0;
    return n * (each + width + x->router_bias + x->choice_bias + x->expert_scale) +
           (x->beside ? 4 * width : 0) + (ups + 1) * x->shared_width * width +
           (x->shared_gate ? width : 0);
}

static int64_t n_attention_params(const struct model_config *c, const struct attention_config *a) {
    const int64_t width = c->width, d = a->head_dim, q = a->n_heads * d;
    const int64_t kv = a->kv_from ? 0 : a->n_kv_heads * d;
    const int64_t nope = a->nope_dim, rope = a->rope_dim, rank = a->kv_rank;
    if (rank == 0) return (q + (a->v_is_k ? 1 : 2) * kv) * width + width * q;
    const int64_t q_in = a->q_rank ? a->q_rank : width;
    return (a->q_rank ? a->q_rank * (width + 1) : 0) + a->n_heads * (nope + rope) * q_in +
           (rank + rope) * width + rank +
           a->n_heads * ((nope + a->v_head_dim) * rank + a->v_head_dim * width);
}

static int64_t n_layer_params(const struct model_config *c, const struct layer_config *row) {
    const struct attention_config *a = &row->attention;
    const int64_t width = c->width, d = a->head_dim, q = a->n_heads * d;
    const int64_t kv = a->kv_from ? 0 : a->n_kv_heads * d;
    const int64_t qkv = q + (a->v_is_k ? 1 : 2) * kv, ups = row->feed.gated ? 2 : 1;
    const int64_t norm = width * (c->norm_bias ? 2 : 1), ffn = row->feed.width;
    int64_t n = n_attention_params(c, a) + (ups + 1) * ffn * width;
    if (row->norms & (NORM_PRE | NORM_POST)) n += norm * (row->shared_norm ? 1 : 2);
    if (row->norms & NORM_OUT) n += 2 * norm;
    if (a->qkv_bias) n += a->kv_rank ? a->q_rank + a->kv_rank + a->rope_dim : qkv;
    if (a->o_bias) n += width;
    if (a->sinks) n += a->n_heads;
    if (row->feed.bias && ffn) n += ups * ffn + width;
    n += n_experts_params(width, &row->feed);
    if (row->feed.xielu) n += 2;
    if (a->qk_norm == QK_NORM_HEADS) n += d + (kv ? d : 0);
    if (a->qk_norm == QK_NORM_WIDTH) n += q + kv;
    if (row->output_scalar) n++;
    return n + (c->per_layer_width ? 2 * width * c->per_layer_width + width : 0);
}

int64_t model_config_n_params(const struct model_config *c) {
    const int64_t width = c->width, norm = width * (c->norm_bias ? 2 : 1);
    int64_t n = (int64_t)c->vocab_size * c->embed_width;
    for (int32_t i = 0; i < c->n_layers; i++) n += n_layer_params(c, model_layer(c, i));
    if (c->embed_width != c->width) n += 2 * width * c->embed_width;
    if (c->positions == POSITION_LEARNED)
        n += ((int64_t)c->max_positions + c->position_offset) * width;
    if (c->per_layer_width) {
        int64_t all = (int64_t)c->n_layers * c->per_layer_width;
        n += (c->per_layer_vocab + width) * all + c->per_layer_width;
    }
    if (c->embed_norm) n += norm;
    if (c->final_norm) n += norm;
    if (!c->tied_head && !c->no_head) n += (int64_t)c->vocab_size * c->embed_width;
    return n + (c->head_bias ? c->vocab_size : 0);
}
