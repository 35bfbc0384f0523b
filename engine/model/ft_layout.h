// The files of a FasterTransformer checkpoint and their layout, for loading and for export.
//
// Matrices are stored (inputs, outputs), row-major, without any header. Tensor-parallel ranks divide
// q, k, v and the up projection along the outputs. They divide the projections back into the residual
// stream along the inputs; such a piece is contiguous. q, k and v are one matrix (inputs, 3, width):
// each rank has its own heads of q, of k and of v. Each other array is one file for all ranks.
#pragma once
#include "engine/model/families.h"

#define FT_NAME_MAX 128

enum ft_role {
    FT_EMBED,
    FT_POSITIONS,
    FT_EMBED_NORM,
    FT_FINAL_NORM,
    FT_HEAD,
    FT_ATTN_NORM,
    FT_QKV,
    FT_O,
    FT_FFN_NORM,
    FT_UP,
    FT_DOWN,
};

// One array, of all ranks together.
struct ft_array {
    enum ft_role role;
    int32_t layer; // -1: of the whole model
    bool bias;
    char name[FT_NAME_MAX]; // of the tensor: "model.layers.0.attention.dense.weight"
    int n_dims;
    int64_t shape[2];
    // The array as (lines, width); a rank has the same columns of every line.
    int64_t lines, width;
    bool split; // a file for each rank; else one file
    // GPT-NeoX's parallel layers: the bias of `dense_4h_to_h` plus that of attention, in a file of another name.
    bool sum;
};

// Tensor names for the loader.
extern const struct family_tensors ft_tensors;

// Calls fn for every array of the model; for the head only if has_head (it is not tied).
typedef int ft_array_fn(void *ctx, const struct ft_array *a, struct err *err);
int ft_layout_walk(const struct model_config *c, bool has_head, ft_array_fn *fn, void *ctx,
                   struct err *err);
// "model.layers.0.attention.dense.weight.3.bin". Returns out.
#define FT_FILE_MAX (FT_NAME_MAX + 24)
char *ft_layout_file(char out[FT_FILE_MAX], const struct ft_array *a, int32_t rank);
