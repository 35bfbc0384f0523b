// Maps a matrix of the model to rows of a checkpoint's tensors, transposed or not. The loader reads
// this rank's rows; export reads all.
#pragma once
#include "engine/dist/split.h"
#include "engine/model/checkpoint.h"
#include "engine/model/families.h"

// A tensor in the model's shape, and this rank's slice of it.
struct part {
    const char *stem;
    int32_t n_rows, n_cols;  // of the tensor; n_cols 0: a vector of n_rows
    struct range rows, cols; // rows are numbered within the part
    // A tensor that holds several parts (q, k and v): the part's row r is the tensor's row
    // first + r / group * stride + r % group. group 0: all the tensor's rows are the part's.
    int32_t first, group, stride;
    bool transposed; // stored as (n_cols, n_rows); then the slice is within one group
    bool embedding;  // the op embed reads it, and where it is the head too, linear
    bool expert;     // the op experts reads it
    bool looked_up;  // never of 8 bits: an embedding that is not the head, a router
    // The tensor has `stack` matrices of this shape, and this is number `at`; 0: it has one.
    int32_t stack, at;
    bool bare; // the tensor's name is the stem alone
};

struct range range_whole(int32_t n); // [0, n)
// A whole tensor, stored (rows, cols).
struct part part_whole(const char *stem, int32_t n_rows, int32_t n_cols);
// A slice of a layer's matrix that has a tensor of its own.
struct part part_of_layer(const struct family_tensors *names, const char *stem, int32_t n_rows,
                          int32_t n_cols, struct range rows, struct range cols);
// The rank's rows of a layer's q, k and v, whether they are three tensors or one. Returns the number of parts: 3, or
// 1 where the layer has no keys and values of its own.
int parts_qkv(const struct model_config *c, const struct layer_config *row,
              const struct family_tensors *names, const struct split *split, struct part parts[3]);
// The same of gate and up, or of up alone. Returns the number of parts.
int parts_up(const struct model_config *c, const struct layer_config *row,
             const struct family_tensors *names, const struct split *split, struct part parts[2]);
// The number in the tensor of the part's row r.
int32_t part_tensor_row(const struct part *p, int32_t r);
// Whether a matrix is stored in panels (kernels/int8.h): bytes of the shape (panels, columns / 4, 16,
// 4). Panels are never transposed, even if the folder's other matrices are.
bool part_is_panels(const struct tensor *t);
// Whether a matrix is stored in 8 bits, with a tensor of scales beside it.
bool part_is_8bit(const struct tensor *t);
// Finds the part's tensor "STEM.suffix" and checks that it has the part's shape and a dtype for
// weights. With c->int8 a matrix may also be I8, or in panels with c->int8_panels; with c->fp8,
// F8_E4M3.
int part_find(const struct part *p, const struct checkpoint *cp, const struct family_tensors *names,
              int32_t layer, const char *suffix, const struct model_config *c,
              const struct tensor **out, struct err *err);
// Finds the scales of a matrix of dtype `of`. I8: one for each of the tensor's rows. F8_E4M3, as c
// says: one for each block; one for each row, (rows) or (rows, 1); or one for the tensor, () or (1).
int part_find_scales(const struct part *p, const struct checkpoint *cp,
                     const struct family_tensors *names, int32_t layer, enum dtype of,
                     const struct model_config *c, const struct tensor **out, struct err *err);
