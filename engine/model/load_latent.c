// Loads latent attention (DeepSeek-V2): the projections, and what each head makes of the latents. See loader.h.
//
// kv_b is stored (heads * (nope + v), rank): for each head the rows that make its key, then those that make its value.
// The latter are a matrix as they are, the former are used the other way round (engine/run/mixer_latent.c).
#include "engine/model/loader.h"
#include <stdlib.h>

static const struct attention_config *attention_of(const struct loader *l, int32_t layer) {
    return &model_layer(&l->m->config, layer)->attention;
}

static struct part slice(const char *stem, int32_t n_rows, int32_t n_cols, struct range rows,
                         struct range cols) {
    return (struct part){
        .stem = stem, .n_rows = n_rows, .n_cols = n_cols, .rows = rows, .cols = cols};
}

static struct range head_rows(struct range heads, int32_t each) {
    return (struct range){heads.first * each, heads.count * each};
}

// Whether kv_b is stored in 8 bits with scales (a tensor of few bits is shown as F32 already).
static bool is_scaled(const struct loader *l, int32_t layer) {
    char name[TENSOR_NAME_MAX];
    const struct tensor *t =
        checkpoint_find(l->cp, family_tensor_name(name, l->names, layer, l->names->kv_b, "weight"));
    return t && part_is_8bit(t);
}

static int pack_floats(struct loader *l, struct weight *w, const float *values, int32_t rows,
                       int32_t cols, int32_t row_stride, int32_t col_stride, struct err *err) {
    const struct tensor_view view = {.data = values,
                                     .dtype = DTYPE_F32,
                                     .rows = rows,
                                     .cols = cols,
                                     .row_stride = row_stride,
                                     .col_stride = col_stride};
    struct backend *be = l->m->backend;
    struct weight packed = {0};
    TRY(be->ops->weight_init(be, &packed, &view, 1, err));
    *w = packed;
    l->m->weight_bytes += w->bytes;
    return 0;
}

// A head of a kv_b in 8 bits, as F32. The rows that make its key are used as columns, and the scales belong to stored
// rows, or to blocks that begin and end anywhere within a head: no format of 8 bits in memory has such scales. F32
// holds the products exactly as other programs compute them.
static int load_scaled_head(struct loader *l, struct latent_weights *w, int32_t layer, int32_t head,
                            int32_t at, struct err *err) {
    const struct attention_config *a = attention_of(l, layer);
    const int32_t each = a->nope_dim + a->v_head_dim, rank = a->kv_rank;
    struct part p = slice(l->names->kv_b, a->n_heads * each, rank,
                          (struct range){head * each, each}, range_whole(rank));
    float *values;
    p.looked_up = true;
    if (!w) return loader_matrix(l, NULL, layer, &p, 1, err); // finds and checks it
    TRY(loader_floats(l, &values, layer, &p, "weight", err));
    if (!values) return 0;
    const float *v = values + (int64_t)a->nope_dim * rank;
    int rc = pack_floats(l, &w->k[at], values, rank, a->nope_dim, 1, rank, err);
    if (rc == 0) rc = pack_floats(l, &w->v[at], v, a->v_head_dim, rank, rank, 1, err);
    free(values);
    return rc;
}

static int load_float_head(struct loader *l, struct latent_weights *w, int32_t layer, int32_t head,
                           int32_t at, struct err *err) {
    const struct attention_config *a = attention_of(l, layer);
    const int32_t each = a->nope_dim + a->v_head_dim, all = a->n_heads * each, rank = a->kv_rank;
    const int32_t row = head * each;
    struct part k =
        slice(l->names->kv_b, rank, all, range_whole(rank), (struct range){row, a->nope_dim});
    struct part v = slice(l->names->kv_b, all, rank,
                          (struct range){row + a->nope_dim, a->v_head_dim}, range_whole(rank));
    k.transposed = true;
    k.looked_up = v.looked_up = true; // floats, also in a model of 8 bits
    TRY(loader_matrix(l, w ? &w->k[at] : NULL, layer, &k, 1, err));
    return loader_matrix(l, w ? &w->v[at] : NULL, layer, &v, 1, err);
}

static int load_heads(struct loader *l, struct latent_weights *w, int32_t layer, struct err *err) {
    const struct range mine = split_heads(&l->m->split, attention_of(l, layer)->n_heads);
    const bool scaled = is_scaled(l, layer);
    if (w && l->packing) {
        w->k = calloc((size_t)mine.count, sizeof *w->k);
        w->v = calloc((size_t)mine.count, sizeof *w->v);
        if (!w->k || !w->v) return err_set(err, E_NOMEM, "no memory for %d heads", mine.count);
    }
    for (int32_t h = 0; h < mine.count; h++)
        TRY(scaled ? load_scaled_head(l, w, layer, mine.first + h, h, err)
                   : load_float_head(l, w, layer, mine.first + h, h, err));
    return 0;
}

// What the layer's input becomes first, in one matrix or in two. See struct latent_weights.
static int load_in(struct loader *l, struct latent_weights *w, int32_t layer,
                   const struct part parts[2], bool q_has_bias, bool biases, struct err *err) {
    const bool one = (!biases || q_has_bias) && loader_stacks(l, layer, parts, 2);
    TRY(loader_matrix(l, w ? &w->q_in : NULL, layer, parts, one ? 2 : 1, err));
    if (!one) TRY(loader_matrix(l, w ? &w->kv_in : NULL, layer, parts + 1, 1, err));
    if (!biases) return 0;
    if (q_has_bias)
        TRY(loader_vector(l, w ? &w->q_bias : NULL, layer, parts, one ? 2 : 1, "bias", err));
    return one ? 0 : loader_vector(l, w ? &w->kv_bias : NULL, layer, parts + 1, 1, "bias", err);
}

int loader_latent(struct loader *l, struct latent_weights *w, int32_t layer, struct err *err) {
    const struct attention_config *a = attention_of(l, layer);
    const struct family_tensors *t = l->names;
    const int32_t width = l->m->config.width, own = a->nope_dim + a->rope_dim;
    const int32_t all = a->n_heads * own, q_rank = a->q_rank;
    const struct range rows = head_rows(split_heads(&l->m->split, a->n_heads), own);
    const struct part in[2] = {q_rank ? part_whole(t->q_a, q_rank, width)
                                      : slice(t->q, all, width, rows, range_whole(width)),
                               part_whole(t->kv_a, a->kv_rank + a->rope_dim, width)};
    const struct part q = slice(t->q_b, all, q_rank, rows, range_whole(q_rank));
    const struct part q_norm = part_whole(t->q_a_norm, q_rank, 0);
    const struct part kv_norm = part_whole(t->kv_a_norm, a->kv_rank, 0);
    TRY(load_in(l, w, layer, in, q_rank > 0, a->qkv_bias, err));
    if (q_rank) {
        TRY(loader_vector(l, w ? &w->q_norm : NULL, layer, &q_norm, 1, "weight", err));
        TRY(loader_matrix(l, w ? &w->q : NULL, layer, &q, 1, err));
    }
    TRY(loader_vector(l, w ? &w->kv_norm : NULL, layer, &kv_norm, 1, "weight", err));
    return load_heads(l, w, layer, err);
}

int loader_latent_out(struct loader *l, struct weight *o, int32_t layer, struct err *err) {
    const struct attention_config *a = attention_of(l, layer);
    const int32_t width = l->m->config.width;
    const struct range mine = split_heads(&l->m->split, a->n_heads);
    const struct part p = slice(l->names->o, width, a->n_heads * a->v_head_dim, range_whole(width),
                                head_rows(mine, a->v_head_dim));
    return loader_matrix(l, o, layer, &p, 1, err);
}
