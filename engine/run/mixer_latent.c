// Latent attention (DeepSeek-V2): all heads share one vector of a position, its latents, which is the only thing that
// is cached. See layer.h.
//
// A head's key is K_h c beside the rotated part that all heads share, its value V_h c, of the latents c. Instead of
// these, the query is brought into the latents' space (q K_h), the softmax runs over the cached vectors themselves, and
// what it gives is brought back by V_h (the op latent_attention). This form ("absorbed") reads (rope + rank) values of a
// position for all heads together.
#include "engine/run/layer.h"

struct latent_args mixer_latent_args(const struct model *m, int32_t layer) {
    const struct attention_config *a = &model_row(m, layer)->attention;
    const struct latent_weights *w = &m->layers[layer].latent;
    return (struct latent_args){
        .n_heads = model_shape(m, layer)->n_heads,
        .nope_dim = a->nope_dim,
        .rope_dim = a->rope_dim,
        .rank = a->kv_rank,
        .v_dim = a->v_head_dim,
        .k = w->k,
        .v = w->v,
        .norm = w->kv_norm,
        .eps = a->latent_eps,
        .style = m->config.ropes[a->rope - 1].style,
        .scale = model_config_attention_scale(&m->config, m->first_layer + layer),
    };
}

// The queries of all heads, of x (n, q_rank) with rows x_row elements apart.
static int raise_queries(struct forward *f, const void *x, int64_t x_row, int32_t n,
                         int32_t layer) {
    const struct latent_weights *w = &f->model->layers[layer].latent;
    const struct attention_config *a = &model_row(f->model, layer)->attention;
    const struct backend_ops *ops = f->backend->ops;
    const struct norm_args norm = {NORM_RMS, w->q_norm, NULL, a->latent_eps, x_row};
    if (n == 1 && ops->norm_linear) {
        const int rc = ops->norm_linear(f->backend, &norm, LINEAR_STORE, f->activated, x, n, &w->q,
                                        NULL, NULL);
        if (rc != OP_DECLINED) return rc;
    }
    TRY(ops->norm(f->backend, f->latent_q, x, n, a->q_rank, &norm));
    return linear(f, LINEAR_STORE, f->activated, f->latent_q, n, &w->q, NULL);
}

// The rows' queries and latents, into buffers that *to then names.
static int project(struct forward *f, struct input in, int32_t n, int32_t layer,
                   struct latent_args *to) {
    const struct latent_weights *w = &f->model->layers[layer].latent;
    const size_t element = dtype_size(f->backend->act_dtype);
    const int32_t latents = to->rank + to->rope_dim;
    to->q = f->latent_in, to->q_row = to->latents_row = w->q_in.rows;
    to->latents = (char *)f->latent_in + (size_t)(w->q_in.rows - latents) * element;
    if (w->kv_in.data) {
        TRY(norm_input(f, &in, n));
        TRY(linear(f, LINEAR_STORE, f->latent_kv, in.x, n, &w->kv_in, w->kv_bias));
        to->latents = f->latent_kv, to->latents_row = latents;
    }
    TRY(input_linear(f, LINEAR_STORE, f->latent_in, in, n, &w->q_in, w->q_bias));
    if (!w->q.data) return 0;
    TRY(raise_queries(f, f->latent_in, to->q_row, n, layer));
    to->q = f->activated, to->q_row = w->q.rows;
    return 0;
}

int mixer_attend_latent(struct forward *f, const struct batch *b, int32_t layer, struct input in) {
    const struct attention_config *a = &model_row(f->model, layer)->attention;
    const struct cache_layer where = cache_layer_of(f->kv, layer);
    struct latent_args args = mixer_latent_args(f->model, layer);
    args.layer = where.index;
    args.cos_sin = f->cos_sin[a->rope - 1];
    TRY(project(f, in, b->n_rows, layer, &args));
    if (b->load) TRY(f->backend->ops->kv_layer_wait(f->backend, layer)); // as mixer_attend
    return f->backend->ops->latent_attention(f->backend, f->attended, where.kv, b, &args, f->work);
}
