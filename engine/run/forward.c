// One step through the model. Each function below is one part of a decoder layer; the switches are
// model_config's.
//
// Tensor parallel: the first rank adds its part of a sub-layer's output to the residual stream, the
// others replace the stream with theirs, and the sum over the ranks is the new stream. With one rank
// this is x += part.
#include "engine/run/layer.h"
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

// The widest rows of all layers, which share the buffers.
struct forward_widths {
    int32_t q, qkv, feed, up;
    int32_t experts, chosen;
    int32_t apart;     // the stream's width, if some layer's experts need another buffer of it
    size_t work_bytes; // of ops that need any
    int32_t latent_q, latent_in,
        latent_kv;   // of latent attention: q_rank, and the rows of its first matrices
    bool adds_apart; // some sub-layer's output is normed or scaled before it joins the stream
};

static void widen(int32_t *to, int32_t width) {
    if (*to < width) *to = width;
}

static void widen_experts(struct forward_widths *w, const struct model *m, int32_t layer,
                          int32_t max_rows) {
    const struct feed_config *feed = &model_row(m, layer)->feed;
    if (!feed->experts.n_experts) return;
    const struct experts_args a = feed_experts_args(m, layer);
    const int32_t shared = model_shape(m, layer)->shared_width;
    widen(&w->experts, a.n_experts);
    widen(&w->chosen, a.n_chosen);
    widen(&w->feed, shared);
    widen(&w->up, shared * (feed->gated ? 2 : 1));
    if (feed->experts.shared_gate || feed->experts.beside) widen(&w->apart, m->config.width);
    size_t bytes = m->backend->ops->experts_bytes(m->backend, max_rows, &a);
    if (w->work_bytes < bytes) w->work_bytes = bytes;
}

// Latent attention's rows of q and of latents, side by side or apart; q of q_rank becomes all heads' in `activated`.
static void widen_latent(struct forward_widths *w, const struct model *m, int32_t layer,
                         int32_t max_rows) {
    const struct latent_weights *l = &m->layers[layer].latent;
    const struct latent_args a = mixer_latent_args(m, layer);
    const size_t bytes = m->backend->ops->latent_bytes(m->backend, max_rows, &a);
    if (w->work_bytes < bytes) w->work_bytes = bytes;
    widen(&w->qkv, layer_attended_width(m, layer)); // wanted rows are gathered there
    widen(&w->feed, a.n_heads * (a.nope_dim + a.rope_dim));
    widen(&w->latent_q, model_row(m, layer)->attention.q_rank);
    widen(&w->latent_in, l->q_in.rows);
    widen(&w->latent_kv, l->kv_in.rows);
}

static struct forward_widths forward_widths(const struct model *m, int32_t max_rows) {
    const struct model_config *mc = &m->config;
    struct forward_widths w = {.feed = mc->per_layer_width, .up = mc->per_layer_width};
    w.adds_apart = mc->per_layer_width > 0;
    for (int32_t i = 0; i < m->n_layers; i++) {
        const struct layer_config *row = model_row(m, i);
        const struct rank_shape *r = model_shape(m, i);
        widen(&w.q, layer_attended_width(m, i));
        if (row->attention.kv_rank)
            widen_latent(&w, m, i, max_rows);
        else
            widen(&w.qkv, (r->n_heads + 2 * r->n_kv_heads) * row->attention.head_dim);
        widen(&w.feed, r->ffn_width);
        widen(&w.up, r->ffn_width * (row->feed.gated ? 2 : 1));
        w.adds_apart = w.adds_apart || layer_adds_apart(row);
        widen_experts(&w, m, i, max_rows);
    }
    return w;
}

static void carve_all(struct forward *f, struct carve *c) {
    const struct model *m = f->model;
    const struct model_config *mc = &m->config;
    size_t n = (size_t)f->max_rows, e = dtype_size(m->backend->act_dtype), wide = sizeof(float);
    const struct forward_widths w = forward_widths(m, f->max_rows);
    size_t width = (size_t)mc->width, layers = (size_t)mc->n_layers * (size_t)mc->per_layer_width;
    f->x = carve_take(c, n, width, e);
    f->rows = carve_take(c, n, width, e);
    f->normed = carve_take(c, n, width, e);
    f->embedded =
        carve_take(c, m->embed_in.data || m->embed_out.data ? n : 0, (size_t)mc->embed_width, e);
    f->qkv = carve_take(c, n, (size_t)w.qkv, e);
    f->attended = carve_take(c, n, (size_t)w.q, e);
    f->up = carve_take(c, n, (size_t)w.up, e);
    f->activated = carve_take(c, n, (size_t)w.feed, e);
    for (int32_t i = 0; i < mc->n_ropes; i++)
        f->cos_sin[i] = carve_take(c, n, (size_t)mc->ropes[i].rot_dim, wide);
    f->added = carve_take(c, w.adds_apart ? n : 0, width, e);
    f->router_logits = carve_take(c, n, (size_t)w.experts, wide);
    f->route_ids = carve_take(c, n, (size_t)w.chosen, sizeof *f->route_ids);
    f->route_weights = carve_take(c, n, (size_t)w.chosen, wide);
    f->work = carve_take(c, 1, w.work_bytes, 1);
    f->shared = carve_take(c, n, (size_t)w.apart, e);
    f->latent_q = carve_take(c, n, (size_t)w.latent_q, e);
    f->latent_in = carve_take(c, n, (size_t)w.latent_in, e);
    f->latent_kv = carve_take(c, n, (size_t)w.latent_kv, e);
    f->layer_inputs = carve_take(c, n, layers, e);
    f->layer_wanted = carve_take(c, n, layers, e);
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

static int64_t attention_width(const struct model *m, int32_t kind) {
    return (int64_t)m->of_kind[kind].n_heads * m->config.kinds[kind].attention.head_dim;
}

// A sequence's map has at most as many entries as the pool has blocks; all maps together have at most
// four million (a device allocates more when a step needs them).
static int reserve_steps(struct forward *f, const struct forward_options *o, struct err *err) {
    const struct model *m = f->model;
    if (!f->backend->ops->step_reserve) return 0;
    const int64_t most = INT64_C(1) << 22;
    int64_t map = (int64_t)(f->kv->arena.n_blocks + 2) * f->max_logits;
    int32_t widest = 0; // the kind of layers whose attention needs the most room
    for (int32_t i = 1; i < m->config.n_kinds; i++)
        if (attention_width(m, i) > attention_width(m, widest)) widest = i;
    struct step_limits l = {
        .max_rows = f->max_rows,
        .max_seqs = f->max_logits,
        .max_map = map < most ? map : most,
        .n_heads = m->of_kind[widest].n_heads,
        .n_kv_heads = m->of_kind[widest].n_kv_heads,
        .head_dim = m->config.kinds[widest].attention.head_dim,
        .vocab = m->config.vocab_size,
        .progress = o->progress,
        .progress_ctx = o->progress_ctx,
        .n_groups = f->kv->groups->n,
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
    f->stage_width = forward_widths(m, 1).qkv;
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

// --- layers --------------------------------------------------------------------------------------

// The input of a sub-layer after the norm `w`. With normed_residual the stream itself is normed, in
// place.
static int normed_stream(struct forward *f, int32_t layer, const struct stream *s,
                         const struct norm_weights *w, struct input *in) {
    *in = (struct input){s->x, w};
    if (!model_row(f->model, layer)->normed_residual) return 0;
    in->norm = NULL;
    return norm(f, w, s->x, s->x, s->n, f->model->config.width);
}

// After the last layer's attention only the wanted rows are computed: of a prompt's chunk, one or
// none.
static int narrow(struct forward *f, const struct batch *b, int32_t layer, struct stream *s) {
    const struct model *m = f->model;
    const struct model_config *mc = &m->config;
    const struct backend_ops *ops = f->backend->ops;
    if (!s->wanted) return 0;
    const int32_t q_width = layer_attended_width(m, layer);
    TRY(ops->gather_logit_rows(f->backend, s->wanted, s->x, b, mc->width));
    TRY(ops->gather_logit_rows(f->backend, f->qkv, f->attended, b, q_width)); // qkv is free again
    if (s->layer_inputs)
        TRY(ops->gather_logit_rows(f->backend, f->layer_wanted, s->layer_inputs, b,
                                   mc->n_layers * mc->per_layer_width));
    *s = (struct stream){.x = s->wanted,
                         .n = b->n_logits,
                         .attended = f->qkv,
                         .layer_inputs = s->layer_inputs ? f->layer_wanted : NULL};
    return 0;
}

// x = x + attention(n1(x)) + ffn(n2(x)), both from the same x: the feed-forward's input is read, or
// normed to another buffer, before o adds to x.
static int finish_parallel(struct forward *f, int32_t layer, struct stream *s) {
    const struct layer_weights *w = &f->model->layers[layer];
    const bool shared = model_row(f->model, layer)->shared_norm;
    struct input in = {s->x, shared ? &w->attn_norm : &w->ffn_norm};
    bool whole =
        f->backend->ops->feed_forward || model_row(f->model, layer)->feed.experts.n_experts > 0;
    TRY(whole ? norm_input(f, &in, s->n) : feed_up(f, in, s->n, layer));
    TRY(linear(f, stream_mode(f), s->x, s->attended, s->n, &w->o, w->o_bias));
    TRY(whole ? feed_forward(f, LINEAR_ADD, s->x, in, s->n, layer)
              : feed_down(f, LINEAR_ADD, s->x, s->n, layer));
    return all_reduce(f, s->x, s->n);
}

// Adds a sub-layer's output, f->added of this rank or (whole) of all, to the stream: normed by w (NORM_OUT) or
// scaled.
static int join(struct forward *f, const struct layer_config *row, const struct norm_weights *w,
                struct stream *s, bool whole) {
    const struct backend_ops *ops = f->backend->ops;
    const int32_t width = f->model->config.width;
    const int64_t n = (int64_t)s->n * width;
    if (!whole) TRY(all_reduce(f, f->added, s->n));
    if (row->norms & NORM_OUT && row->residual_scale == 0 && ops->norm_add) {
        const struct norm_args a = norm_args_of(f, w);
        return ops->norm_add(f->backend, s->x, f->added, s->n, width, &a);
    }
    if (row->norms & NORM_OUT) TRY(norm(f, w, f->added, f->added, s->n, width));
    if (row->residual_scale != 0)
        TRY(ops->scale(f->backend, f->added, n, NULL, row->residual_scale));
    return ops->add(f->backend, s->x, f->added, n);
}

// The same where outputs do not enter the stream as they are.
static int finish_apart(struct forward *f, int32_t layer, struct stream *s) {
    const struct layer_config *row = model_row(f->model, layer);
    const struct layer_weights *w = &f->model->layers[layer];
    const struct input in = {s->x, row->norms & NORM_PRE ? &w->ffn_norm : NULL};
    TRY(linear(f, LINEAR_STORE, f->added, s->attended, s->n, &w->o, w->o_bias));
    TRY(join(f, row, &w->attn_out_norm, s, false));
    if (row->feed.experts.beside) {
        TRY(feed_beside(f, s, layer));
        return join(f, row, &w->ffn_out_norm, s, true);
    }
    TRY(feed_forward(f, LINEAR_STORE, f->added, in, s->n, layer));
    return join(f, row, &w->ffn_out_norm, s, false);
}

// x = x + attention(..), then x = x + ffn(..), with the norm before or after each.
static int finish_serial(struct forward *f, int32_t layer, struct stream *s) {
    const int32_t width = f->model->config.width;
    const struct layer_weights *w = &f->model->layers[layer];
    bool post = model_row(f->model, layer)->norms == NORM_POST;
    struct input in = {.x = f->normed};
    TRY(linear(f, stream_mode(f), s->x, s->attended, s->n, &w->o, w->o_bias));
    TRY(all_reduce(f, s->x, s->n));
    if (post) {
        // Ranks past the first replace the stream with their part, so the feed-forward reads a
        // copy.
        TRY(norm(f, &w->attn_norm, f->normed, s->x, s->n, width));
        TRY(norm(f, &w->attn_norm, s->x, s->x, s->n, width));
    } else {
        TRY(normed_stream(f, layer, s, &w->ffn_norm, &in));
    }
    TRY(feed_forward(f, stream_mode(f), s->x, in, s->n, layer));
    TRY(all_reduce(f, s->x, s->n));
    return post ? norm(f, &w->ffn_norm, s->x, s->x, s->n, width) : 0;
}

static int layer_run(struct forward *f, const struct batch *b, int32_t layer, bool last,
                     struct stream *s) {
    const struct layer_config *row = model_row(f->model, layer);
    const struct layer_weights *w = &f->model->layers[layer];
    struct input in = {.x = s->x};
    if (row->norms & NORM_PRE) TRY(normed_stream(f, layer, s, &w->attn_norm, &in));
    TRY(mixer_attend(f, b, layer, in));
    s->attended = f->attended;
    if (last) TRY(narrow(f, b, layer, s));
    if (s->n == 0) return 0;
    TRY(row->parallel           ? finish_parallel(f, layer, s)
        : layer_adds_apart(row) ? finish_apart(f, layer, s)
                                : finish_serial(f, layer, s));
    TRY(feed_layer_input(f, layer, s));
    if (!row->output_scalar) return 0;
    return f->backend->ops->scale(f->backend, s->x, (int64_t)s->n * f->model->config.width,
                                  w->output_scalar, 1);
}

// --- a step --------------------------------------------------------------------------------------

// Logits of n wanted rows into f->logits.
static int head(struct forward *f, struct input in, int32_t n) {
    const struct model *m = f->model;
    const struct model_config *mc = &m->config;
    TRY(input_linear(f, LINEAR_STORE_F32, f->part, in, n, &m->head, m->head_bias));
    if (mc->logit_scale != 0 || mc->logit_soft_cap != 0)
        TRY(f->backend->ops->finish_logits(f->backend, f->part, (int64_t)n * m->vocab_rows,
                                           mc->logit_scale != 0 ? mc->logit_scale : 1,
                                           mc->logit_soft_cap));
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
    for (int32_t i = 0; i < mc->n_ropes; i++)
        TRY(ops->rope_angles(f->backend, f->cos_sin[i], b, m->inv_freq[i], m->short_inv_freq[i],
                             mc->ropes[i].rot_dim, mc->ropes[i].scale));
    TRY(embed(f, b, s->x));
    TRY(feed_layer_inputs(f, b, s->x));
    s->layer_inputs = f->layer_inputs;
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
