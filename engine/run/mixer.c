// A layer's attention: q, k and v, the cache, the softmax. See layer.h.
#include "engine/run/layer.h"

// Norms and rotates q and k, stores k and v. A layer that reads another layer's cache has q alone.
static int finish_qkv(struct forward *f, const struct batch *b, int32_t layer,
                      struct cache_layer at, const struct qkv_args *q) {
    const struct model *m = f->model;
    const struct backend_ops *ops = f->backend->ops;
    const struct attention_config *a = &model_row(m, layer)->attention;
    const struct rank_shape *r = model_shape(m, layer);
    const struct qkv_shape shape = {r->n_heads, a->kv_from ? 0 : r->n_kv_heads, a->head_dim};
    if (ops->qkv_finish && !a->kv_from)
        return ops->qkv_finish(f->backend, f->qkv, at.kv, b, at.index, r->n_heads, q);
    bool norms = q->q_weight || q->v_weight || q->clip > 0;
    if (norms && !q->norm_late) TRY(ops->qk_norm(f->backend, f->qkv, b->n_rows, &shape, q));
    if (q->rot_dim > 0 || q->query_beta != 0)
        TRY(ops->rope(f->backend, f->qkv, b->n_rows, &shape, q));
    if (norms && q->norm_late) TRY(ops->qk_norm(f->backend, f->qkv, b->n_rows, &shape, q));
    return a->kv_from ? 0 : ops->kv_write(f->backend, at.kv, at.index, f->qkv, b, r->n_heads);
}

static struct qkv_args qkv_args_of(const struct forward *f, const struct batch *b, int32_t layer) {
    const struct model_config *mc = &f->model->config;
    const struct attention_config *a = &model_row(f->model, layer)->attention;
    const struct layer_weights *w = &f->model->layers[layer];
    const struct rope *rope = a->rope ? &mc->ropes[a->rope - 1] : NULL;
    return (struct qkv_args){
        .style = rope ? rope->style : ROPE_HALF,
        .rot_dim = rope ? rope->rot_dim : 0,
        .cos_sin = rope ? f->cos_sin[a->rope - 1] : NULL,
        .q_weight = w->q_norm,
        .k_weight = w->k_norm,
        .v_weight = w->v_norm,
        .eps = mc->norm_eps,
        .all_heads = a->qk_norm == QK_NORM_WIDTH,
        .norm_late = a->qk_norm_after_rope,
        .clip = a->clip,
        .query_beta = a->query_beta,
        .query_length = a->query_length,
        .positions = b->positions,
    };
}

int mixer_attend(struct forward *f, const struct batch *b, int32_t layer, struct input in) {
    const struct model *m = f->model;
    const struct backend_ops *ops = f->backend->ops;
    const struct layer_weights *w = &m->layers[layer];
    const struct attention_config *a = &model_row(m, layer)->attention;
    const struct rank_shape *r = model_shape(m, layer);
    const struct cache_layer at = cache_layer_of(f->kv, layer);
    if (a->kv_rank) return mixer_attend_latent(f, b, layer, in);
    TRY(input_linear(f, LINEAR_STORE, f->qkv, in, b->n_rows, &w->qkv, w->qkv_bias));
    // Before the write, not only before attention: a turn's first tokens share a block with the
    // last ones that come back.
    if (b->load) TRY(ops->kv_layer_wait(f->backend, layer));
    const struct qkv_args q = qkv_args_of(f, b, layer);
    const struct attention_args args = {
        .layer = at.index,
        .n_heads = r->n_heads,
        .n_kv_heads = r->n_kv_heads,
        .head_dim = a->head_dim,
        .scale = model_config_attention_scale(&m->config, m->first_layer + layer),
        .soft_cap = a->soft_cap,
        .q_only = a->kv_from > 0,
        .window = a->window,
        .alibi_slopes = m->alibi_slopes,
        .sinks = w->sinks,
    };
    if (ops->qkv_attention && !a->kv_from) {
        int rc = ops->qkv_attention(f->backend, f->attended, f->qkv, at.kv, b, &args, &q);
        if (rc != OP_DECLINED) return rc;
    }
    TRY(finish_qkv(f, b, layer, at, &q));
    return ops->attention(f->backend, f->attended, f->qkv, at.kv, b, &args);
}
