// A decoder layer's two halves, as forward.c composes them: the mixer (mixer.c) and the feed-forward
// (feed.c), and the ops that all of them use. Engine thread only.
#pragma once
#include "engine/run/forward.h"

// The input of a sub-layer: x, or norm(x) if `norm` is not NULL.
struct input {
    const void *x;
    const struct norm_weights *norm;
};

struct stream { // the present residual stream
    void *x;    // (n, width)
    int32_t n;
    const void *attended; // (n, layer_attended_width)
    void *wanted; // (n_logits, width) where the wanted rows go; NULL: all are wanted, and they stay
    const void *layer_inputs; // (n, n_layers * per_layer_width) or NULL
};

// Whether a sub-layer's output is normed or scaled before it joins the stream.
static inline bool layer_adds_apart(const struct layer_config *row) {
    return (row->norms & NORM_OUT) || row->residual_scale != 0;
}

// What a layer's attention gives to o, of this rank.
static inline int32_t layer_attended_width(const struct model *m, int32_t layer) {
    const struct attention_config *a = &model_row(m, layer)->attention;
    return model_shape(m, layer)->n_heads * (a->kv_rank ? a->v_head_dim : a->head_dim);
}

// --- ops

static inline struct norm_args norm_args_of(const struct forward *f, const struct norm_weights *w) {
    const struct model_config *mc = &f->model->config;
    return (struct norm_args){
        .kind = mc->norm, .weight = w->weight, .bias = w->bias, .eps = mc->norm_eps};
}

static inline int norm(struct forward *f, const struct norm_weights *w, void *y, const void *x,
                       int32_t n, int32_t width) {
    const struct norm_args a = norm_args_of(f, w);
    return f->backend->ops->norm(f->backend, y, x, n, width, &a);
}

static inline int linear(struct forward *f, enum linear_mode mode, void *y, const void *x,
                         int32_t n, const struct weight *w, const float *bias) {
    return f->backend->ops->linear(f->backend, mode, y, x, n, w, bias);
}

// The sum over the ranks that compute the same layers. x (n, width).
static inline int all_reduce(struct forward *f, void *x, int32_t n) {
    return f->comm->ops->all_reduce(f->comm, f->backend, x, (int64_t)n * f->model->config.width);
}

// Norms the rows by a separate op, if no fusion did.
static inline int norm_input(struct forward *f, struct input *in, int32_t n) {
    if (!in->norm) return 0;
    TRY(norm(f, in->norm, f->normed, in->x, n, f->model->config.width));
    *in = (struct input){.x = f->normed};
    return 0;
}

static inline int input_linear(struct forward *f, enum linear_mode mode, void *y, struct input in,
                               int32_t n, const struct weight *w, const float *bias) {
    const struct backend_ops *ops = f->backend->ops;
    if (in.norm && ops->norm_linear) {
        struct norm_args a = norm_args_of(f, in.norm);
        int rc = ops->norm_linear(f->backend, &a, mode, y, in.x, n, w, bias, NULL);
        if (rc != OP_DECLINED) return rc;
    }
    TRY(norm_input(f, &in, n));
    return linear(f, mode, y, in.x, n, w, bias);
}

// --- the halves. layer: of this rank, from 0

// in (n_rows, width) -> f->attended; writes the cache.
int mixer_attend(struct forward *f, const struct batch *b, int32_t layer, struct input in);
// The same by latents (mixer_latent.c).
int mixer_attend_latent(struct forward *f, const struct batch *b, int32_t layer, struct input in);
// What the op needs of such a layer, but for the rows and their angles.
struct latent_args mixer_latent_args(const struct model *m, int32_t layer);
// f->activated = act(up(in)): the feed-forward without its last linear.
int feed_up(struct forward *f, struct input in, int32_t n, int32_t layer);
// x =|+= down(f->activated)
int feed_down(struct forward *f, enum linear_mode mode, void *x, int32_t n, int32_t layer);
// x =|+= down(act(up(in))), by one op if the device has it; the experts of a layer that has them alone.
int feed_forward(struct forward *f, enum linear_mode mode, void *x, struct input in, int32_t n,
                 int32_t layer);
// The same for a layer of experts (feed_experts.c).
int feed_experts(struct forward *f, enum linear_mode mode, void *x, struct input in, int32_t n,
                 int32_t layer);
// f->added = norm(dense(norm(x))) + norm(experts(norm(x))) of the stream, of all ranks together, for a layer
// that has both side by side.
int feed_beside(struct forward *f, const struct stream *s, int32_t layer);
// What the ops need of a layer's experts; n_experts 0: it has none.
struct experts_args feed_experts_args(const struct model *m, int32_t layer);
struct route_args feed_route_args(const struct model *m, int32_t layer);
// The embeddings of the rows for each layer, from the stream's first state x, into f->layer_inputs.
int feed_layer_inputs(struct forward *f, const struct batch *b, const void *x);
// x += norm(out(act(gate(x)) * the layer's own embedding)), at the end of a layer.
int feed_layer_input(struct forward *f, int32_t layer, struct stream *s);
