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

int feed_experts(struct forward *f, enum linear_mode mode, void *x, struct input in, int32_t n,
                 int32_t layer) {
    const struct experts_weights *w = &f->model->layers[layer].experts;
    const struct backend_ops *ops = f->backend->ops;
    const struct experts_args experts = feed_experts_args(f->model, layer);
    const struct route_args route = feed_route_args(f->model, layer);
    TRY(norm_input(f, &in, n));
    TRY(linear(f, LINEAR_STORE_F32, f->router_logits, in.x, n, &w->router, w->router_bias));
    TRY(ops->route(f->backend, f->route_ids, f->route_weights, f->router_logits, n, &route));
    TRY(ops->experts(f->backend, mode, x, in.x, n, f->route_ids, f->route_weights, &experts,
                     f->experts_work));
    return add_shared(f, x, in.x, n, layer);
}
