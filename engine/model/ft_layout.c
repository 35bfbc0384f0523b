// See ft_layout.h.
#include "engine/model/ft_layout.h"
#include <stdio.h>
#include <string.h>

const struct family_tensors ft_tensors = {
    .embed = "model.wte",
    .positions = "model.wpe",
    .embed_norm = "model.pre_decoder_layernorm",
    .final_norm = "model.final_layernorm",
    .head = "model.lm_head",
    .layers = "model.layers",
    .attn_norm = "input_layernorm",
    .qkv = "attention.query_key_value",
    .conv1d = true,
    .o = "attention.dense",
    .ffn_norm = "post_attention_layernorm",
    .up = "mlp.dense_h_to_4h",
    .down = "mlp.dense_4h_to_h",
};

struct walk {
    ft_array_fn *fn;
    void *ctx;
    struct err *err;
};

// How an array is shared among ranks. SUMMED: not; see struct ft_array.
enum share { WHOLE, BY_OUTPUTS, BY_INPUTS, SUMMED };

static int emit(const struct walk *w, enum ft_role role, int32_t layer, const char *stem, bool bias,
                int64_t rows, int64_t cols, enum share share, int64_t groups) {
    struct ft_array a = {.role = role,
                         .layer = layer,
                         .bias = bias,
                         .n_dims = cols ? 2 : 1,
                         .shape = {rows, cols},
                         .split = share == BY_OUTPUTS || share == BY_INPUTS};
    int64_t values = rows * (cols ? cols : 1);
    char name[TENSOR_NAME_MAX];
    a.lines = share == BY_OUTPUTS ? (cols ? rows : 1) * groups : 1;
    a.width = values / a.lines;
    a.sum = share == SUMMED;
    family_tensor_name(name, &ft_tensors, layer, stem, bias ? "bias" : "weight");
    snprintf(a.name, sizeof a.name, "%.127s", name);
    return w->fn(w->ctx, &a, w->err);
}

static int emit_norm(const struct walk *w, enum ft_role role, int32_t layer, const char *stem,
                     int32_t width) {
    TRY(emit(w, role, layer, stem, false, width, 0, WHOLE, 1));
    return emit(w, role, layer, stem, true, width, 0, WHOLE, 1);
}

static int emit_layer(const struct walk *w, const struct model_config *c, int32_t i) {
    const struct family_tensors *t = &ft_tensors;
    int64_t heads = (int64_t)c->kinds[0].attention.n_heads * c->kinds[0].attention.head_dim;
    const bool sums = c->kinds[0].parallel && !c->kinds[0].shared_norm;
    TRY(emit_norm(w, FT_ATTN_NORM, i, t->attn_norm, c->width));
    TRY(emit(w, FT_QKV, i, t->qkv, false, c->width, 3 * heads, BY_OUTPUTS, 3));
    if (c->kinds[0].attention.qkv_bias)
        TRY(emit(w, FT_QKV, i, t->qkv, true, 3 * heads, 0, BY_OUTPUTS, 3));
    TRY(emit(w, FT_O, i, t->o, false, heads, c->width, BY_INPUTS, 1));
    if (c->kinds[0].attention.o_bias) TRY(emit(w, FT_O, i, t->o, true, c->width, 0, WHOLE, 1));
    if (!c->kinds[0].shared_norm) TRY(emit_norm(w, FT_FFN_NORM, i, t->ffn_norm, c->width));
    TRY(emit(w, FT_UP, i, t->up, false, c->width, c->kinds[0].feed.width, BY_OUTPUTS, 1));
    TRY(emit(w, FT_UP, i, t->up, true, c->kinds[0].feed.width, 0, BY_OUTPUTS, 1));
    TRY(emit(w, FT_DOWN, i, t->down, false, c->kinds[0].feed.width, c->width, BY_INPUTS, 1));
    return emit(w, FT_DOWN, i, t->down, true, c->width, 0, sums ? SUMMED : WHOLE, 1);
}

int ft_layout_walk(const struct model_config *c, bool has_head, ft_array_fn *fn, void *ctx,
                   struct err *err) {
    const struct walk walk = {fn, ctx, err}, *w = &walk;
    const struct family_tensors *t = &ft_tensors;
    TRY(emit(w, FT_EMBED, -1, t->embed, false, c->vocab_size, c->width, WHOLE, 1));
    if (c->positions == POSITION_LEARNED)
        TRY(emit(w, FT_POSITIONS, -1, t->positions, false, c->max_positions, c->width, WHOLE, 1));
    if (c->embed_norm) TRY(emit_norm(w, FT_EMBED_NORM, -1, t->embed_norm, c->width));
    for (int32_t i = 0; i < c->n_layers; i++) TRY(emit_layer(w, c, i));
    if (c->final_norm) TRY(emit_norm(w, FT_FINAL_NORM, -1, t->final_norm, c->width));
    if (has_head) TRY(emit(w, FT_HEAD, -1, t->head, false, c->vocab_size, c->width, WHOLE, 1));
    if (!c->head_bias) return 0;
    return emit(w, FT_HEAD, -1, t->head, true, c->vocab_size, 0, WHOLE, 1);
}

// Only the two tables have names without ".weight".
char *ft_layout_file(char out[FT_FILE_MAX], const struct ft_array *a, int32_t rank) {
    int len = (int)strlen(a->name);
    if (a->role == FT_EMBED || a->role == FT_POSITIONS) len -= (int)strlen(".weight");
    if (a->sum)
        snprintf(out, FT_FILE_MAX, "%s.%d.mlp.attention.bias.sum.bin", ft_tensors.layers, a->layer);
    else if (a->split)
        snprintf(out, FT_FILE_MAX, "%.*s.%d.bin", len, a->name, rank);
    else
        snprintf(out, FT_FILE_MAX, "%.*s.bin", len, a->name);
    return out;
}
