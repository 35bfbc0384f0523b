// Which tensors a GGUF file of a model has, and from which tensors of the folder their values come.
#pragma once
#include "engine/convert/gguf_writer.h"
#include "engine/convert/to_gguf.h"
#include "engine/gguf/gguf_arch.h"
#include "engine/model/checkpoint.h"
#include "engine/model/model_config.h"

struct gguf_source { // of the tensor with the same index
    // (n_from) one, or the matrices of all experts in order; NULL: of no tensor (gguf_plan_add_row)
    const struct tensor **from;
    int32_t n_from;
    enum gguf_change change;
    int64_t head_rows; // GGUF_PAIRED_ROWS
    bool is_matrix;    // also of 16 bits
    // A tensor of all experts, of which the file has this matrix: an expert's rows in the folder and in the file, the
    // first of the latter, and how many rows further each next one is. stack_rows 0: all of the tensor.
    int64_t stack_rows, matrix_rows, first_row, row_step;
    bool turned; // the folder has each expert's matrix as (columns, rows)
    // A row of the file is each col_step-th value of the folder's from first_col on. col_step 0: all of it.
    int64_t first_col, col_step;
};

struct gguf_plan {
    struct gguf_out_tensor *tensors; // (n)
    struct gguf_source *sources;     // (n)
    size_t n, room;
    int64_t n_matrices, bytes_before;
};

// Every tensor that the model uses has a place in the file: E_UNSUPPORTED names one that has none. *plan is zeroed
// before, and released with gguf_plan_release also after a failure.
int gguf_plan_make(struct gguf_plan *plan, const struct gguf_arch *arch,
                   const struct model_config *c, struct checkpoint *cp, enum gguf_weights weights,
                   struct err *err);
// A row of F32 (n) that is not of the folder.
int gguf_plan_add_row(struct gguf_plan *plan, const char *name, int64_t n, struct err *err);
void gguf_plan_release(struct gguf_plan *plan);
