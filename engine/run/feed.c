// A layer's feed-forward, and the embeddings that some models have for each layer. See layer.h.
#include "engine/run/layer.h"
#include <math.h>

int feed_up(struct forward *f, struct input in, int32_t n, int32_t layer) {
    const struct model *m = f->model;
    const struct feed_config *feed = &model_row(m, layer)->feed;
    const struct backend_ops *ops = f->backend->ops;
    const struct layer_weights *w = &m->layers[layer];
    const struct activate_args act = {feed->activation, feed->gated};
    if (in.norm && ops->norm_linear && !feed->xielu) {
        struct norm_args a = norm_args_of(f, in.norm);
        int rc = ops->norm_linear(f->backend, &a, LINEAR_STORE, f->activated, in.x, n, &w->up,
                                  w->up_bias, &act);
        if (rc != OP_DECLINED) return rc;
    }
    TRY(norm_input(f, &in, n));
    if (ops->linear_activate && !feed->xielu) {
        int rc = ops->linear_activate(f->backend, f->activated, in.x, n, &w->up, w->up_bias,
                                      act.act, act.gated);
        if (rc != OP_DECLINED) return rc;
    }
    const int32_t width = model_shape(m, layer)->ffn_width;
    TRY(linear(f, LINEAR_STORE, f->up, in.x, n, &w->up, w->up_bias));
    if (feed->xielu) return ops->xielu(f->backend, f->activated, f->up, n, width, w->xielu);
    return ops->activate(f->backend, act.act, act.gated, f->activated, f->up, n, width);
}

int feed_down(struct forward *f, enum linear_mode mode, void *x, int32_t n, int32_t layer) {
    const struct layer_weights *w = &f->model->layers[layer];
    return linear(f, mode, x, f->activated, n, &w->down, w->down_bias);
}

int feed_forward(struct forward *f, enum linear_mode mode, void *x, struct input in, int32_t n,
                 int32_t layer) {
    const struct feed_config *feed = &model_row(f->model, layer)->feed;
    const struct backend_ops *ops = f->backend->ops;
    const struct layer_weights *w = &f->model->layers[layer];
    if (feed->experts.n_experts && !feed->experts.beside)
        return feed_experts(f, mode, x, in, n, layer);
    if (ops->feed_forward && !feed->xielu) {
        struct norm_args a = in.norm ? norm_args_of(f, in.norm) : (struct norm_args){0};
        const struct feed_forward_args args = {.norm = in.norm ? &a : NULL,
                                               .up = &w->up,
                                               .down = &w->down,
                                               .up_bias = w->up_bias,
                                               .down_bias = w->down_bias,
                                               .activate = {feed->activation, feed->gated}};
        int rc = ops->feed_forward(f->backend, mode, x, in.x, n, &args);
        if (rc != OP_DECLINED) return rc;
    }
    TRY(feed_up(f, in, n, layer));
    return feed_down(f, mode, x, n, layer);
}

// --- embeddings for each layer -------------------------------------------------------------------

// With L layers and width P, a token's row is (L, P): (table[id] sqrt(P) + norm(project(x) / sqrt(width)))
// / sqrt(2), the norm over each layer's P. A norm of x / s with epsilon e is that of x with e s^2.

int feed_layer_inputs(struct forward *f, const struct batch *b, const void *x) {
    const struct model *m = f->model;
    const struct model_config *mc = &m->config;
    const struct backend_ops *ops = f->backend->ops;
    const int32_t n = b->n_rows, p = mc->per_layer_width, all = mc->n_layers * p;
    const struct norm_args a = {mc->norm, m->layer_project_norm.weight, NULL,
                                mc->norm_eps * (float)mc->width, 0};
    if (p == 0) return 0;
    TRY(linear(f, LINEAR_STORE, f->layer_wanted, x, n, &m->layer_project, NULL));
    TRY(ops->norm(f->backend, f->layer_wanted, f->layer_wanted, n * mc->n_layers, p, &a));
    TRY(ops->embed(f->backend, f->layer_inputs, b, &m->layer_embed, mc->per_layer_scale));
    TRY(ops->add(f->backend, f->layer_inputs, f->layer_wanted, (int64_t)n * all));
    return ops->scale(f->backend, f->layer_inputs, (int64_t)n * all, NULL, (float)M_SQRT1_2);
}

int feed_layer_input(struct forward *f, int32_t layer, struct stream *s) {
    const struct model *m = f->model;
    const struct model_config *mc = &m->config;
    const struct backend_ops *ops = f->backend->ops;
    const struct layer_weights *w = &m->layers[layer];
    const int32_t p = mc->per_layer_width, all = mc->n_layers * p;
    const char *own = (const char *)s->layer_inputs + (size_t)(m->first_layer + layer) * (size_t)p *
                                                          dtype_size(f->backend->act_dtype);
    if (p == 0) return 0;
    TRY(linear(f, LINEAR_STORE, f->up, s->x, s->n, &w->layer_gate, NULL));
    TRY(ops->activate(f->backend, model_row(m, layer)->feed.activation, false, f->activated, f->up,
                      s->n, p));
    TRY(ops->multiply_rows(f->backend, f->activated, own, s->n, p, all));
    TRY(linear(f, LINEAR_STORE, f->added, f->activated, s->n, &w->layer_out, NULL));
    TRY(norm(f, &w->layer_out_norm, f->added, f->added, s->n, mc->width));
    return ops->add(f->backend, s->x, f->added, (int64_t)s->n * mc->width);
}
