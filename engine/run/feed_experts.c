// A layer of experts: the router chooses some for each row, and their weighted sum joins the stream, with the
// feed-forward that all rows share, if the layer has one. See layer.h.
#include "engine/run/layer.h"

struct experts_args feed_experts_args(const struct model *m, int32_t layer) {
    const struct feed_config *feed = &model_row(m, layer)->feed;
    const struct experts_weights *w = &m->layers[layer].experts;
    return (struct experts_args){
        .n_experts = feed->experts.n_experts,
        .n_chosen = feed->experts.n_chosen,
        .up = w->up,
        .down = w->down,
        .up_bias = w->up_bias,
        .down_bias = w->down_bias,
        .activate = {feed->activation, feed->gated},
        .limit = feed->experts.limit,
    };
}

struct route_args feed_route_args(const struct model *m, int32_t layer) {
    const struct experts_config *x = &model_row(m, layer)->feed.experts;
    return (struct route_args){
        .kind = x->router,
        .n_experts = x->n_experts,
        .n_chosen = x->n_chosen,
        .normalised = x->normalised,
        .factor = x->factor != 0 ? x->factor : 1,
        .choice_bias = m->layers[layer].experts.choice_bias,
        .expert_scale = m->layers[layer].experts.expert_scale,
        .n_groups = x->n_groups,
        .n_chosen_groups = x->n_chosen_groups,
        .group_best = x->group_best,
    };
}

// x += the shared feed-forward of `in`, times sigmoid(switch(in)) where the layer has one.
static int add_shared(struct forward *f, void *x, const void *in, int32_t n, int32_t layer) {
    const struct model *m = f->model;
    const struct feed_config *feed = &model_row(m, layer)->feed;
    const struct experts_weights *w = &m->layers[layer].experts;
    const struct backend_ops *ops = f->backend->ops;
    const bool gated = w->shared_switch.data;
    if (!w->shared_up.data) return 0;
    TRY(linear(f, LINEAR_STORE, f->up, in, n, &w->shared_up, NULL));
    TRY(ops->activate(f->backend, feed->activation, feed->gated, f->activated, f->up, n,
                      model_shape(m, layer)->shared_width));
    if (!gated) return linear(f, LINEAR_ADD, x, f->activated, n, &w->shared_down, NULL);
    TRY(linear(f, LINEAR_STORE, f->shared, f->activated, n, &w->shared_down, NULL));
    TRY(linear(f, LINEAR_STORE_F32, f->router_logits, in, n, &w->shared_switch, NULL));
    return ops->add_gated(f->backend, x, f->shared, f->router_logits, n, m->config.width);
}

// The rows' experts, by the router's logits for `in`, which is normed afterwards.
static int choose(struct forward *f, struct input *in, int32_t n, int32_t layer) {
    const struct experts_weights *w = &f->model->layers[layer].experts;
    const struct backend_ops *ops = f->backend->ops;
    const struct route_args route = feed_route_args(f->model, layer);
    if (in->norm && ops->norm_route) {
        const struct norm_args norm = norm_args_of(f, in->norm);
        const int rc = ops->norm_route(f->backend, f->route_ids, f->route_weights, f->normed, in->x,
                                       n, &norm, &w->router, w->router_bias, &route);
        if (rc == 0) *in = (struct input){.x = f->normed};
        if (rc != OP_DECLINED) return rc;
    }
    TRY(norm_input(f, in, n));
    TRY(linear(f, LINEAR_STORE_F32, f->router_logits, in->x, n, &w->router, w->router_bias));
    return ops->route(f->backend, f->route_ids, f->route_weights, f->router_logits, n, &route);
}

// y =|+= the chosen experts of x, which is normed already. OP_DECLINED: the device does not take the shared one along.
static int run_chosen(struct forward *f, enum linear_mode mode, void *y, const void *x, int32_t n,
                      int32_t layer, bool shared) {
    struct experts_args experts = feed_experts_args(f->model, layer);
    experts.shared = shared;
    return f->backend->ops->experts(f->backend, mode, y, x, n, f->route_ids, f->route_weights,
                                    &experts, f->work);
}

int feed_experts(struct forward *f, enum linear_mode mode, void *x, struct input in, int32_t n,
                 int32_t layer) {
    TRY(choose(f, &in, n, layer));
    if (f->model->layers[layer].experts.shared_joins) {
        const int rc = run_chosen(f, mode, x, in.x, n, layer, true);
        if (rc != OP_DECLINED) return rc;
    }
    TRY(run_chosen(f, mode, x, in.x, n, layer, false));
    return add_shared(f, x, in.x, n, layer);
}

int feed_beside(struct forward *f, const struct stream *s, int32_t layer) {
    const struct experts_weights *w = &f->model->layers[layer].experts;
    const struct norm_weights router_norm = {.weight = w->router_norm};
    const int32_t n = s->n, width = f->model->config.width;
    struct input in = {s->x, &f->model->layers[layer].ffn_norm};
    TRY(feed_forward(f, LINEAR_STORE, f->added, in, n, layer));
    TRY(all_reduce(f, f->added, n));
    TRY(norm(f, &w->dense_out_norm, f->added, f->added, n, width));
    struct input routed = {s->x, &router_norm};
    TRY(choose(f, &routed, n, layer));
    in = (struct input){s->x, &w->norm}; // over the router's input, which is used
    TRY(norm_input(f, &in, n));
    TRY(run_chosen(f, LINEAR_STORE, f->shared, in.x, n, layer, false));
    TRY(all_reduce(f, f->shared, n));
    TRY(norm(f, &w->out_norm, f->shared, f->shared, n, width));
    return f->backend->ops->add(f->backend, f->added, f->shared, (int64_t)n * width);
}
