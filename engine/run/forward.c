// One step through the model. Each function below is one part of a decoder layer; the switches are
// model_config's.
//
// Tensor parallel: the first rank adds its part of a sub-layer's output to the residual stream, the
// others replace the stream with theirs, and the sum over the ranks is the new stream. With one rank
// this is x += part.
#include "engine/run/forward.h"
#include "engine/run/virtual_rows.h"

#include <stdlib.h>
#include <string.h>

// --- workspace -----------------------------------------------------------------------------------

struct carve { // divides the arena into buffers; with a NULL base it only sums their sizes
    char *base;
    size_t used;
};

static void *carve_take(struct carve *c, size_t rows, size_t cols, size_t element) {
    size_t at = c->used;
    c->used += (rows * cols * element + 63) & ~(size_t)63;
    return c->base && rows * cols > 0 ? c->base + at : NULL;
}

static void carve_all(struct forward *f, struct carve *c) {
    const struct model *m = f->model;
    const struct model_config *mc = &m->config;
    size_t n = (size_t)f->max_rows, e = dtype_size(m->backend->act_dtype), wide = sizeof(float);
    size_t width = (size_t)mc->width, head = (size_t)mc->head_dim, ffn = (size_t)m->ffn_width;
    f->x = carve_take(c, n, width, e);
    f->rows = carve_take(c, n, width, e);
    f->normed = carve_take(c, n, width, e);
    f->embedded =
        carve_take(c, m->embed_in.data || m->embed_out.data ? n : 0, (size_t)mc->embed_width, e);
    f->qkv = carve_take(c, n, (size_t)(m->n_heads + 2 * m->n_kv_heads) * head, e);
    f->attended = carve_take(c, n, (size_t)m->n_heads * head, e);
    f->up = carve_take(c, n, ffn * (mc->gated ? 2 : 1), e);
    f->activated = carve_take(c, n, ffn, e);
    f->cos_sin = carve_take(c, n, mc->positions == POSITION_ROTARY ? (size_t)mc->rot_dim : 0, wide);
    f->part = carve_take(c, (size_t)f->max_logits, (size_t)m->vocab_rows, wide);
    bool whole = m->vocab_rows == mc->vocab_size;
    f->logits =
        whole ? f->part : carve_take(c, (size_t)f->max_logits, (size_t)mc->vocab_size, wide);
}

size_t forward_bytes(const struct model *m, int32_t max_rows, int32_t max_logits) {
    struct forward f = {.model = m, .max_rows = max_rows, .max_logits = max_logits};
    struct carve c = {0};
    carve_all(&f, &c);
    if (!m->backend->ops->logits_read) return c.used;
    return c.used + (size_t)max_logits * (size_t)m->config.vocab_size * sizeof(float);
}

// The host's buffer of logits, if the device has its own memory.
static int host_init(struct forward *f, struct err *err) {
    const struct backend_ops *ops = f->backend->ops;
    if (!ops->logits_read) return 0;
    size_t bytes = (size_t)f->max_logits * (size_t)f->model->config.vocab_size * sizeof(float);
    if (ops->host_alloc) return ops->host_alloc(f->backend, bytes, (void **)&f->host, err);
    f->host = malloc(bytes);
    if (f->host) return 0;
    return err_set(err, E_NOMEM, "no memory for the logits of %d sequences", f->max_logits);
}

// A sequence's map has at most as many entries as the pool has blocks; all maps together have at most
// four million (a device allocates more when a step needs them).
static int reserve_steps(struct forward *f, const struct forward_options *o, struct err *err) {
    const struct model *m = f->model;
    if (!f->backend->ops->step_reserve) return 0;
    const int64_t most = INT64_C(1) << 22;
    int64_t map = (int64_t)(f->kv->n_blocks + 2) * f->max_logits;
    struct step_limits l = {
        .max_rows = f->max_rows,
        .max_seqs = f->max_logits,
        .max_map = map < most ? map : most,
        .n_heads = m->n_heads,
        .n_kv_heads = m->n_kv_heads,
        .head_dim = m->config.head_dim,
        .vocab = m->config.vocab_size,
        .progress = o->progress,
        .progress_ctx = o->progress_ctx,
    };
    return f->backend->ops->step_reserve(f->backend, &l, err);
}

int forward_init(struct forward *f, const struct forward_options *o, struct err *err) {
    const struct model *m = o->model;
    *f = (struct forward){.model = m,
                          .backend = m->backend,
                          .comm = o->comm,
                          .lead = o->lead,
                          .kv = o->kv,
                          .max_rows = o->max_rows,
                          .max_logits = o->max_logits};
    f->bytes = forward_bytes(m, o->max_rows, o->max_logits);
    struct carve c = {0};
    carve_all(f, &c);
    TRY(f->backend->ops->mem_alloc(f->backend, c.used, &f->arena, err));
    c = (struct carve){.base = f->arena};
    carve_all(f, &c);
    f->stage_width = (int64_t)(m->n_heads + 2 * m->n_kv_heads) * m->config.head_dim;
    if (f->stage_width < m->config.embed_width) f->stage_width = m->config.embed_width;
    f->staged = calloc(FORWARD_STAGED_ROWS, (size_t)f->stage_width * sizeof(float));
    f->drawn = calloc((size_t)f->max_logits, sizeof *f->drawn);
    int rc = f->staged && f->drawn ? host_init(f, err)
                                   : err_set(err, E_NOMEM, "no memory for a step's rows");
    if (rc == 0 && m->split.pp_size > 1) rc = parts_init(&f->parts, o->max_rows, err);
    if (rc == 0) rc = reserve_steps(f, o, err);
    if (rc < 0) forward_release(f);
    return rc;
}

void forward_release(struct forward *f) {
    free(f->staged);
    free(f->drawn);
    parts_release(&f->parts);
    if (f->arena) f->backend->ops->mem_free(f->backend, f->arena);
    if (f->backend && f->backend->ops->host_free)
        f->backend->ops->host_free(f->backend, f->host);
    else
        free(f->host);
    *f = (struct forward){0};
}

// --- parts ---------------------------------------------------------------------------------------

static struct norm_args norm_args_of(const struct forward *f, const struct norm_weights *w) {
    const struct model_config *mc = &f->model->config;
    return (struct norm_args){mc->norm, w->weight, w->bias, mc->norm_eps};
}

static int norm(struct forward *f, const struct norm_weights *w, void *y, const void *x, int32_t n,
                int32_t width) {
    const struct norm_args a = norm_args_of(f, w);
    return f->backend->ops->norm(f->backend, y, x, n, width, &a);
}

static int linear(struct forward *f, enum linear_mode mode, void *y, const void *x, int32_t n,
                  const struct weight *w, const float *bias) {
    return f->backend->ops->linear(f->backend, mode, y, x, n, w, bias);
}

// The input of a sub-layer: x, or norm(x) if `norm` is not NULL.
struct input {
    const void *x;
    const struct norm_weights *norm;
};

// Norms the rows by a separate op, if no fusion did.
static int norm_input(struct forward *f, struct input *in, int32_t n) {
    if (!in->norm) return 0;
    TRY(norm(f, in->norm, f->normed, in->x, n, f->model->config.width));
    *in = (struct input){.x = f->normed};
    return 0;
}

static int input_linear(struct forward *f, enum linear_mode mode, void *y, struct input in,
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

static int all_reduce(struct forward *f, void *x, int32_t n) {
    return f->comm->ops->all_reduce(f->comm, f->backend, x, (int64_t)n * f->model->config.width);
}

// How a rank's part of a sub-layer's output enters the stream (see above, "Tensor parallel").
static enum linear_mode stream_mode(const struct forward *f) {
    return f->model->split.tp_rank == 0 ? LINEAR_ADD : LINEAR_STORE;
}

// The rows' embeddings, or what the stage before made of them, into x (n_rows, width).
static int embed(struct forward *f, const struct batch *b, void *x) {
    const struct model *m = f->model;
    const struct model_config *mc = &m->config;
    const struct backend_ops *ops = f->backend->ops;
    if (m->split.pp_rank > 0) {
        return f->comm->ops->recv(f->comm, f->backend, x, (int64_t)b->n_rows * mc->width,
                                  m->split.pp_rank - 1);
    }
    void *y = m->embed_in.data ? f->embedded : x;
    TRY(ops->embed(f->backend, y, b, &m->embed, mc->embed_scale));
    if (b->n_virtual) TRY(virtual_rows_embed(f, y, b));
    if (m->embed_in.data) TRY(linear(f, LINEAR_STORE, x, y, b->n_rows, &m->embed_in, NULL));
    if (m->position_table) {
        TRY(ops->embed_positions(f->backend, x, b, m->position_table, mc->width,
                                 mc->position_offset));
    }
    if (mc->embed_norm) TRY(norm(f, &m->embed_norm, x, x, b->n_rows, mc->width));
    return 0;
}

// Norms and rotates q and k, stores k and v.
static int qkv_finish(struct forward *f, const struct batch *b, int32_t layer,
                      const struct qkv_args *q) {
    const struct model *m = f->model;
    const struct backend_ops *ops = f->backend->ops;
    const struct qkv_shape shape = {m->n_heads, m->n_kv_heads, m->config.head_dim};
    if (ops->qkv_finish) return ops->qkv_finish(f->backend, f->qkv, f->kv, b, layer, m->n_heads, q);
    if (q->q_weight) TRY(ops->qk_norm(f->backend, f->qkv, b->n_rows, &shape, q));
    if (q->rot_dim > 0) TRY(ops->rope(f->backend, f->qkv, b->n_rows, &shape, q));
    return ops->kv_write(f->backend, f->kv, layer, f->qkv, b, m->n_heads);
}

// in (n_rows, width) -> f->attended; writes the cache.
static int attend(struct forward *f, const struct batch *b, int32_t layer, struct input in) {
    const struct model *m = f->model;
    const struct model_config *mc = &m->config;
    const struct backend_ops *ops = f->backend->ops;
    const struct layer_weights *w = &m->layers[layer];
    TRY(input_linear(f, LINEAR_STORE, f->qkv, in, b->n_rows, &w->qkv, w->qkv_bias));
    // Before the write, not only before attention: a turn's first tokens share a block with the
    // last ones that come back.
    if (b->load) TRY(ops->kv_layer_wait(f->backend, layer));
    struct qkv_args q = {
        .style = mc->rope_style,
        .rot_dim = mc->positions == POSITION_ROTARY ? mc->rot_dim : 0,
        .cos_sin = f->cos_sin,
        .q_weight = w->q_norm,
        .k_weight = w->k_norm,
        .eps = mc->norm_eps,
    };
    struct attention_args args = {
        .layer = layer,
        .n_heads = m->n_heads,
        .n_kv_heads = m->n_kv_heads,
        .head_dim = mc->head_dim,
        .scale = model_config_attention_scale(mc, m->first_layer + layer),
        .window = model_config_window(mc, m->first_layer + layer),
        .alibi_slopes = m->alibi_slopes,
    };
    if (ops->qkv_attention) {
        int rc = ops->qkv_attention(f->backend, f->attended, f->qkv, f->kv, b, &args, &q);
        if (rc != OP_DECLINED) return rc;
    }
    TRY(qkv_finish(f, b, layer, &q));
    return ops->attention(f->backend, f->attended, f->qkv, f->kv, b, &args);
}

// f->activated = act(up(in)): the feed-forward without its last linear, `down`.
static int feed(struct forward *f, struct input in, int32_t n, int32_t layer) {
    const struct model *m = f->model;
    const struct model_config *mc = &m->config;
    const struct backend_ops *ops = f->backend->ops;
    const struct layer_weights *w = &m->layers[layer];
    if (in.norm && ops->norm_linear) {
        struct norm_args a = norm_args_of(f, in.norm);
        struct activate_args act = {mc->activation, mc->gated};
        int rc = ops->norm_linear(f->backend, &a, LINEAR_STORE, f->activated, in.x, n, &w->up,
                                  w->up_bias, &act);
        if (rc != OP_DECLINED) return rc;
    }
    TRY(norm_input(f, &in, n));
    if (ops->linear_activate) {
        int rc = ops->linear_activate(f->backend, f->activated, in.x, n, &w->up, w->up_bias,
                                      mc->activation, mc->gated);
        if (rc != OP_DECLINED) return rc;
    }
    TRY(linear(f, LINEAR_STORE, f->up, in.x, n, &w->up, w->up_bias));
    return ops->activate(f->backend, mc->activation, mc->gated, f->activated, f->up, n,
                         m->ffn_width);
}

static int down(struct forward *f, enum linear_mode mode, void *x, int32_t n, int32_t layer) {
    const struct layer_weights *w = &f->model->layers[layer];
    return linear(f, mode, x, f->activated, n, &w->down, w->down_bias);
}

// x =|+= down(act(up(in))), by one op if the device has it.
static int feed_forward(struct forward *f, enum linear_mode mode, void *x, struct input in,
                        int32_t n, int32_t layer) {
    const struct model_config *mc = &f->model->config;
    const struct backend_ops *ops = f->backend->ops;
    const struct layer_weights *w = &f->model->layers[layer];
    if (ops->feed_forward) {
        struct norm_args a = in.norm ? norm_args_of(f, in.norm) : (struct norm_args){0};
        const struct feed_forward_args args = {.norm = in.norm ? &a : NULL,
                                               .up = &w->up,
                                               .down = &w->down,
                                               .up_bias = w->up_bias,
                                               .down_bias = w->down_bias,
                                               .activate = {mc->activation, mc->gated}};
        int rc = ops->feed_forward(f->backend, mode, x, in.x, n, &args);
        if (rc != OP_DECLINED) return rc;
    }
    TRY(feed(f, in, n, layer));
    return down(f, mode, x, n, layer);
}

// --- layers --------------------------------------------------------------------------------------

struct stream { // the present residual stream
    void *x;    // (n, width)
    int32_t n;
    const void *attended; // (n, n_heads * head_dim)
    void *wanted; // (n_logits, width) where the wanted rows go; NULL: all are wanted, and they stay
};

// The input of a sub-layer after the norm `w`. With normed_residual the stream itself is normed, in
// place.
static int normed_stream(struct forward *f, const struct stream *s, const struct norm_weights *w,
                         struct input *in) {
    const struct model_config *mc = &f->model->config;
    *in = (struct input){s->x, w};
    if (!mc->normed_residual) return 0;
    in->norm = NULL;
    return norm(f, w, s->x, s->x, s->n, mc->width);
}

// After the last layer's attention only the wanted rows are computed: of a prompt's chunk, one or
// none.
static int narrow(struct forward *f, const struct batch *b, struct stream *s) {
    const struct model *m = f->model;
    const struct backend_ops *ops = f->backend->ops;
    if (!s->wanted) return 0;
    int32_t q_width = m->n_heads * m->config.head_dim;
    TRY(ops->gather_logit_rows(f->backend, s->wanted, s->x, b, m->config.width));
    TRY(ops->gather_logit_rows(f->backend, f->qkv, f->attended, b, q_width)); // qkv is free again
    *s = (struct stream){.x = s->wanted, .n = b->n_logits, .attended = f->qkv};
    return 0;
}

// x = x + attention(n1(x)) + ffn(n2(x)), both from the same x: the feed-forward's input is read, or
// normed to another buffer, before o adds to x.
static int finish_parallel(struct forward *f, int32_t layer, struct stream *s) {
    const struct model_config *mc = &f->model->config;
    const struct layer_weights *w = &f->model->layers[layer];
    const struct norm_weights *n2 = mc->shared_norm ? &w->attn_norm : &w->ffn_norm;
    struct input in = {s->x, n2};
    bool whole = f->backend->ops->feed_forward;
    TRY(whole ? norm_input(f, &in, s->n) : feed(f, in, s->n, layer));
    TRY(linear(f, stream_mode(f), s->x, s->attended, s->n, &w->o, w->o_bias));
    TRY(whole ? feed_forward(f, LINEAR_ADD, s->x, in, s->n, layer)
              : down(f, LINEAR_ADD, s->x, s->n, layer));
    return all_reduce(f, s->x, s->n);
}

// x = x + attention(..), then x = x + ffn(..), with the norm before or after each.
static int finish_serial(struct forward *f, int32_t layer, struct stream *s) {
    const struct model_config *mc = &f->model->config;
    const struct layer_weights *w = &f->model->layers[layer];
    bool post = mc->norm_placement == NORM_POST;
    struct input in = {.x = f->normed};
    TRY(linear(f, stream_mode(f), s->x, s->attended, s->n, &w->o, w->o_bias));
    TRY(all_reduce(f, s->x, s->n));
    if (post) {
        // Ranks past the first replace the stream with their part, so the feed-forward reads a
        // copy.
        TRY(norm(f, &w->attn_norm, f->normed, s->x, s->n, mc->width));
        TRY(norm(f, &w->attn_norm, s->x, s->x, s->n, mc->width));
    } else {
        TRY(normed_stream(f, s, &w->ffn_norm, &in));
    }
    TRY(feed_forward(f, stream_mode(f), s->x, in, s->n, layer));
    TRY(all_reduce(f, s->x, s->n));
    return post ? norm(f, &w->ffn_norm, s->x, s->x, s->n, mc->width) : 0;
}

static int layer_run(struct forward *f, const struct batch *b, int32_t layer, bool last,
                     struct stream *s) {
    const struct model_config *mc = &f->model->config;
    struct input in = {.x = s->x};
    if (mc->norm_placement == NORM_PRE)
        TRY(normed_stream(f, s, &f->model->layers[layer].attn_norm, &in));
    TRY(attend(f, b, layer, in));
    s->attended = f->attended;
    if (last) TRY(narrow(f, b, s));
    if (s->n == 0) return 0;
    return mc->parallel_residual ? finish_parallel(f, layer, s) : finish_serial(f, layer, s);
}

// --- a step --------------------------------------------------------------------------------------

// Logits of n wanted rows into f->logits.
static int head(struct forward *f, struct input in, int32_t n) {
    const struct model *m = f->model;
    TRY(input_linear(f, LINEAR_STORE_F32, f->part, in, n, &m->head, m->head_bias));
    return f->comm->ops->gather_rows(f->comm, f->backend, f->logits, f->part, n, m->vocab_rows,
                                     m->config.vocab_size);
}

// A step that follows this one begins with the tokens drawn here, on every rank. A device shares them in every step,
// because a recorded step must be the same whether one follows or not.
static int share_draws(struct forward *f, const struct batch *b, int32_t n) {
    const struct split *split = &f->model->split;
    const struct backend_ops *ops = f->backend->ops;
    if (split->tp_size == 1 || split->pp_size > 1) return 0;
    if (!f->comm->linked && !b->is_followed) return 0;
    if (!f->comm->linked && split->tp_rank == 0) TRY(ops->draws_read(f->backend, f->drawn, n));
    return f->comm->ops->share_draws(f->comm, f->backend, f->drawn, n);
}

// The ops after the layers: the final norm, then for the first max_logits wanted rows the head and,
// on a device that draws, the next token. forward_logits runs the head for further rows, from f->out.
static int finish(struct forward *f, const struct batch *b, struct stream *s) {
    const struct model *m = f->model;
    const struct model_config *mc = &m->config;
    const struct backend_ops *ops = f->backend->ops;
    int32_t n = s->n < f->max_logits ? s->n : f->max_logits;
    struct input in = {s->x, mc->final_norm ? &m->final_norm : NULL};
    f->out = s->x;
    if (s->n == 0) return 0;
    if (in.norm && s->n > n) {
        // Not in place: forward_hidden reads the stream.
        TRY(norm(f, in.norm, f->normed, s->x, s->n, mc->width));
        in = (struct input){.x = f->normed};
        f->out = f->normed;
    }
    if (m->embed_out.data) {
        TRY(input_linear(f, LINEAR_STORE, f->embedded, in, s->n, &m->embed_out, NULL));
        in = (struct input){.x = f->embedded};
        f->out = f->embedded;
    }
    TRY(head(f, in, n));
    // Of several ranks the first one has the logits.
    if (ops->draw && m->split.tp_rank == 0)
        TRY(ops->draw(f->backend, f->logits, b, n, mc->vocab_size));
    return share_draws(f, b, n);
}

static bool last_stage(const struct forward *f) {
    return f->model->split.pp_rank == f->model->split.pp_size - 1;
}

// This stage's layers, for all rows of b; then its stream goes to the next stage.
static int compute(struct forward *f, const struct batch *b, struct stream *s) {
    const struct model *m = f->model;
    const struct model_config *mc = &m->config;
    const struct backend_ops *ops = f->backend->ops;
    if (mc->positions == POSITION_ROTARY) {
        TRY(ops->rope_angles(f->backend, f->cos_sin, b, m->inv_freq, mc->rot_dim, mc->rope_scale));
    }
    TRY(embed(f, b, s->x));
    const int32_t n_layers = f->one_layer ? 1 : m->n_layers;
    for (int32_t i = 0; i < n_layers; i++) {
        TRY(layer_run(f, b, i, last_stage(f) && i == n_layers - 1, s));
        TRY(f->comm->ops->sent(f->comm, false)); // the part before is on its way
    }
    if (last_stage(f)) return 0;
    return f->comm->ops->send(f->comm, f->backend, s->x, (int64_t)b->n_rows * mc->width,
                              m->split.pp_rank + 1);
}

static int run_whole(struct forward *f, const struct batch *b) {
    const struct backend_ops *ops = f->backend->ops;
    const struct batch *run = b;
    int rc = ops->step_begin(f->backend, b, &run);
    if (rc < 0 || rc == STEP_REPLAYED) return rc < 0 ? rc : 0;
    struct stream s = {.x = f->x, .n = run->n_rows};
    if (run->n_logits < run->n_rows) s.wanted = f->rows;
    TRY(compute(f, run, &s));
    if (last_stage(f)) TRY(finish(f, run, &s));
    return ops->step_launch(f->backend);
}

// The parts of a step one after the other, each through all layers of this stage; then the head and the
// draws of all of them. A part's rows have the places in the stream that they have in the step.
static int run_parts(struct forward *f, const struct batch *b) {
    const struct backend_ops *ops = f->backend->ops;
    const size_t row = (size_t)f->model->config.width * dtype_size(f->backend->act_dtype);
    const bool all = b->n_logits == b->n_rows;
    const struct batch *run;
    parts_split(&f->parts, b, f->n_parts);
    for (int32_t i = 0; i < f->parts.n; i++) {
        const struct step_part *p = &f->parts.of[i];
        struct stream s = {.x = (char *)f->x + (size_t)p->first_row * row, .n = p->batch.n_rows};
        if (!all) s.wanted = (char *)f->rows + (size_t)p->first_logit * row;
        TRY(ops->step_begin(f->backend, &p->batch, &run));
        TRY(compute(f, run, &s));
        TRY(ops->step_launch(f->backend));
    }
    if (!last_stage(f) || b->n_logits == 0) return 0;
    struct stream s = {.x = all ? f->x : f->rows, .n = b->n_logits};
    TRY(ops->step_begin(f->backend, &f->parts.end, &run));
    TRY(finish(f, run, &s));
    return ops->step_launch(f->backend);
}

int forward_run(struct forward *f, const struct batch *b) {
    const struct split *split = &f->model->split;
    bool whole = f->one_layer || b->n_virtual || b->load;
    if (f->lead) f->n_parts = whole ? 1 : parts_count(f->backend, b->n_rows, split->pp_size);
    TRY(lead_step(f->lead, PLAN_STEP, b, f->one_layer, f->n_parts, f->model->config.embed_width));
    int rc = f->n_parts > 1 ? run_parts(f, b) : run_whole(f, b);
    if (rc == 0) rc = f->comm->ops->sent(f->comm, true); // the next step overwrites the stream
    return lead_among_ranks(f->lead, rc);
}

int forward_run_sent(struct forward *f, const struct batch *b) {
    lead_begins(f->lead);
    return lead_among_ranks(f->lead, run_whole(f, b));
}

int forward_logits(struct forward *f, int32_t first, int32_t n, const float **logits) {
    size_t row = (size_t)f->model->head.cols * dtype_size(f->backend->act_dtype);
    struct input in = {.x = (const char *)f->out + (size_t)first * row};
    if (first > 0) { // finish() has computed the first ones
        TRY(lead_logits(f->lead, first, n));
        TRY(lead_among_ranks(f->lead, head(f, in, n)));
    }
    const struct backend_ops *ops = f->backend->ops;
    *logits = ops->logits_read ? f->host : f->logits;
    if (!ops->logits_read) return 0;
    return ops->logits_read(f->backend, f->host, f->logits, n, f->model->config.vocab_size);
}

int forward_draw_adjust(struct forward *f, const struct batch_adjusted *a) {
    return f->backend->ops->draw_adjust(f->backend, a, f->model->config.vocab_size);
}

int forward_draw_adjusted(struct forward *f) {
    return f->backend->ops->draw_adjusted(f->backend, f->logits, f->model->config.vocab_size);
}

int forward_draws(struct forward *f, int32_t n, struct batch_drawn *out) {
    return f->backend->ops->draws_read(f->backend, out, n);
}

int forward_hidden(struct forward *f, const struct batch *b, int32_t row, float *out) {
    size_t width = (size_t)f->model->config.width, e = dtype_size(f->backend->act_dtype);
    const char *x = b->n_logits == b->n_rows ? f->x : f->rows; // as narrow() chose
    TRY(f->backend->ops->mem_read(f->backend, out, x + (size_t)row * width * e, width * e));
    const uint16_t *half = (const uint16_t *)out;
    if (e == sizeof *out) return 0;
    for (size_t i = width; i-- > 0;) // from the end: a float covers two halves
        out[i] = f->backend->act_dtype == DTYPE_BF16 ? bf16_to_f32(half[i]) : f16_to_f32(half[i]);
    return 0;
}

int forward_done(struct forward *f) {
    return f->backend->ops->step_end(f->backend);
}
