// See virtual_rows.h.
#include "engine/run/virtual_rows.h"

#include <string.h>

// Converts n values to the device's activations, at element `at` of the staged rows.
static void stage(const struct forward *f, int64_t at, const float *x, int64_t n) {
    enum dtype t = f->backend->act_dtype;
    if (t == DTYPE_F32) {
        memcpy((float *)f->staged + at, x, (size_t)n * sizeof *x);
        return;
    }
    uint16_t *to = (uint16_t *)f->staged + at;
    for (int64_t i = 0; i < n; i++)
        to[i] = t == DTYPE_F16 ? f16_from_f32(x[i]) : bf16_from_f32(x[i]);
}

int virtual_rows_embed(struct forward *f, void *y, const struct batch *b) {
    const int64_t width = f->model->config.embed_width;
    const size_t row = (size_t)width * dtype_size(f->backend->act_dtype);
    for (int32_t i = 0; i < b->n_virtual;) {
        int32_t first = b->virtuals[i].row, n = 0;
        while (n < FORWARD_STAGED_ROWS && i < b->n_virtual && b->virtuals[i].row == first + n)
            stage(f, n++ * width, b->virtuals[i++].embedding, width);
        TRY(f->backend->ops->mem_write(f->backend, (char *)y + (size_t)first * row, f->staged,
                                       (size_t)n * row));
    }
    return 0;
}

// --- prefixes ------------------------------------------------------------------------------------

// Floats of a prefix's row: keys and values of all layers and heads.
static int32_t prefix_width(const struct model *m) {
    const struct model_config *c = &m->config;
    const struct attention_config *a = &c->kinds[0].attention;
    return c->n_layers * 2 * a->n_kv_heads * a->head_dim;
}

// The rows of q, k and v are staged with q unset: kv_write reads k and v alone.
static int write_prefix(struct forward *f, const struct batch *b, int32_t layer) {
    const struct model *m = f->model;
    const struct attention_config *a = &model_row(m, layer)->attention;
    const struct rank_shape *r = model_shape(m, layer);
    const int64_t d = a->head_dim, q = r->n_heads * d, kv = r->n_kv_heads * d;
    const int64_t all = a->n_kv_heads * d; // of all ranks
    const int64_t skip = split_kv_heads(&m->split, a->n_kv_heads).first * d;
    const size_t row = (size_t)(q + 2 * kv) * dtype_size(f->backend->act_dtype);
    for (int32_t first = 0; first < b->n_rows; first += FORWARD_STAGED_ROWS) {
        int32_t n = b->n_rows - first;
        if (n > FORWARD_STAGED_ROWS) n = FORWARD_STAGED_ROWS;
        for (int32_t i = 0; i < n; i++) {
            const float *keys =
                b->virtuals[first + i].embedding + (m->first_layer + layer) * 2 * all + skip;
            stage(f, i * (q + 2 * kv) + q, keys, kv);
            stage(f, i * (q + 2 * kv) + q + kv, keys + all, kv);
        }
        TRY(f->backend->ops->mem_write(f->backend, (char *)f->qkv + (size_t)first * row, f->staged,
                                       (size_t)n * row));
    }
    const struct cache_layer at = cache_layer_of(f->kv, layer);
    return f->backend->ops->kv_write(f->backend, at.kv, at.index, f->qkv, b, r->n_heads);
}

static int write_prefixes(struct forward *f, const struct batch *b) {
    const struct backend_ops *ops = f->backend->ops;
    const struct batch *run = b;
    TRY(ops->step_begin(f->backend, b, &run));
    for (int32_t i = 0; i < f->model->n_layers; i++) {
        if (b->load) TRY(ops->kv_layer_wait(f->backend, i));
        TRY(write_prefix(f, run, i));
    }
    return ops->step_launch(f->backend);
}

int forward_prefix(struct forward *f, const struct batch *b) {
    TRY(lead_step(f->lead, PLAN_PREFIX, b, false, 1, prefix_width(f->model)));
    return lead_among_ranks(f->lead, write_prefixes(f, b));
}
