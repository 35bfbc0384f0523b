// Latent attention (DeepSeek-V2): all heads share one vector of a position, its latents, which is the only thing that
// is cached. See layer.h.
//
// A head's key is K_h c beside the rotated part that all heads share, its value V_h c, of the latents c. Instead of
// these, the query is brought into the latents' space (q K_h), the softmax runs over the cached vectors themselves, and
// what it gives is brought back by V_h. This form ("absorbed") reads (rope + rank) values of a position for all
// heads together.
//
//   a row of f->qkv:  for each head [rotated part of q | q K_h], then the cache's own [rotated part | c]
#include "engine/run/layer.h"

static int norm_latents(struct forward *f, const struct attention_config *a, void *x, int32_t n,
                        int32_t width, const float *weight) {
    const struct norm_args args = {NORM_RMS, weight, NULL, a->latent_eps};
    return f->backend->ops->norm(f->backend, x, x, n, width, &args);
}

static void *at(const struct forward *f, void *x, int64_t elements) {
    return (char *)x + (size_t)elements * dtype_size(f->backend->act_dtype);
}

// q of all heads, (n, heads * (nope + rope)), into f->activated.
static int project_q(struct forward *f, struct input in, int32_t n, int32_t layer) {
    const struct attention_config *a = &model_row(f->model, layer)->attention;
    const struct latent_weights *w = &f->model->layers[layer].latent;
    if (!a->q_rank) return linear(f, LINEAR_STORE, f->activated, in.x, n, &w->q, NULL);
    TRY(linear(f, LINEAR_STORE, f->latent_q, in.x, n, &w->q_a, w->q_bias));
    TRY(norm_latents(f, a, f->latent_q, n, a->q_rank, w->q_norm));
    return linear(f, LINEAR_STORE, f->activated, f->latent_q, n, &w->q, NULL);
}

// Queries in the latents' space, into f->qkv.
static int place_queries(struct forward *f, int32_t n, int32_t layer) {
    const struct attention_config *a = &model_row(f->model, layer)->attention;
    const struct backend_ops *ops = f->backend->ops;
    const int32_t heads = model_shape(f->model, layer)->n_heads, d = a->head_dim;
    const int64_t own = a->nope_dim + a->rope_dim;
    const struct parts_args turning = {.n_parts = heads,
                                       .width = a->rope_dim,
                                       .x_row = heads * own,
                                       .x_part = own,
                                       .y_row = (int64_t)(heads + 1) * d,
                                       .y_part = d};
    const struct heads_args absorbed = {.w = f->model->layers[layer].latent.k,
                                        .n_heads = heads,
                                        .x_row = turning.x_row,
                                        .x_head = own,
                                        .y_row = turning.y_row,
                                        .y_head = d};
    TRY(ops->copy_parts(f->backend, f->qkv, at(f, f->activated, a->nope_dim), n, &turning));
    return ops->linear_heads(f->backend, at(f, f->qkv, a->rope_dim), f->activated, n, &absorbed,
                             f->work);
}

// The cache's vector of each row, into f->qkv.
static int place_latents(struct forward *f, struct input in, int32_t n, int32_t layer) {
    const struct attention_config *a = &model_row(f->model, layer)->attention;
    const struct latent_weights *w = &f->model->layers[layer].latent;
    const struct backend_ops *ops = f->backend->ops;
    const int64_t heads = model_shape(f->model, layer)->n_heads, d = a->head_dim;
    void *row = at(f, f->qkv, heads * d);
    const struct parts_args turning = {
        .n_parts = 1, .width = a->rope_dim, .x_row = d, .y_row = (heads + 1) * d};
    const struct parts_args latents = {
        .n_parts = 1, .width = a->kv_rank, .x_row = d, .y_row = a->kv_rank};
    const struct parts_args placed = {
        .n_parts = 1, .width = a->kv_rank, .x_row = a->kv_rank, .y_row = (heads + 1) * d};
    TRY(linear(f, LINEAR_STORE, f->latent_kv, in.x, n, &w->kv_a, w->kv_bias));
    TRY(ops->copy_parts(f->backend, row, at(f, f->latent_kv, a->kv_rank), n, &turning));
    TRY(ops->copy_parts(f->backend, f->latent, f->latent_kv, n, &latents));
    TRY(norm_latents(f, a, f->latent, n, a->kv_rank, w->kv_norm));
    return ops->copy_parts(f->backend, at(f, row, a->rope_dim), f->latent, n, &placed);
}

int mixer_attend_latent(struct forward *f, const struct batch *b, int32_t layer, struct input in) {
    const struct model *m = f->model;
    const struct backend_ops *ops = f->backend->ops;
    const struct attention_config *a = &model_row(m, layer)->attention;
    const struct rope *rope = &m->config.ropes[a->rope - 1];
    const struct cache_layer where = cache_layer_of(f->kv, layer);
    const int32_t n = b->n_rows, heads = model_shape(m, layer)->n_heads, d = a->head_dim;
    const struct qkv_shape all = {heads + 1, 0, d}; // the cache's vector turns as a head of q does
    const struct qkv_args turn = {
        .style = rope->style, .rot_dim = rope->rot_dim, .cos_sin = f->cos_sin[a->rope - 1]};
    const struct attention_args args = {
        .layer = where.index,
        .n_heads = heads,
        .n_kv_heads = 1,
        .head_dim = d,
        .scale = model_config_attention_scale(&m->config, m->first_layer + layer),
    };
    const struct heads_args back = {.w = m->layers[layer].latent.v,
                                    .n_heads = heads,
                                    .x_row = (int64_t)heads * d,
                                    .x_head = d,
                                    .y_row = (int64_t)heads * a->v_head_dim,
                                    .y_head = a->v_head_dim};
    TRY(norm_input(f, &in, n));
    TRY(project_q(f, in, n, layer));
    TRY(place_queries(f, n, layer));
    TRY(place_latents(f, in, n, layer));
    if (b->load) TRY(ops->kv_layer_wait(f->backend, layer)); // as mixer_attend
    TRY(ops->rope(f->backend, f->qkv, n, &all, &turn));
    TRY(ops->kv_write(f->backend, where.kv, where.index, f->qkv, b, heads));
    TRY(ops->attention(f->backend, f->up, f->qkv, where.kv, b, &args));
    return ops->linear_heads(f->backend, f->attended, at(f, f->up, a->rope_dim), n, &back, f->work);
}
