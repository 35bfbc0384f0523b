// All tensors of a model folder, which is one of:
//   Hugging Face's         model.safetensors, or the shards that model.safetensors.index.json lists; each
//                          shard must be in the folder and hold the tensors that the index names
//   FasterTransformer's    ft_checkpoint.h
//   `parley synth --no-weights`: each read makes the values (synth_tensors.h)
//   a GGUF file in place of a folder: gguf_tensors.h
// Matrices of few bits (packed_tensors.h) are shown as one F32 tensor each.
// In the last three, and for such matrices, tensor.data is NULL, and only checkpoint_read returns values.
#pragma once
#include "engine/model/safetensors.h"
#include "kernels/groups.h"

struct checkpoint;

// A folder with only pytorch_model.bin is E_UNSUPPORTED; the sentence says how to convert it.
int checkpoint_open(struct checkpoint **out, const char *model_dir, struct err *err);
void checkpoint_close(struct checkpoint *c); // unmaps
// Finds `name`, or name with the prefix "model." or "transformer." added or removed, or under the names that a
// model which also sees has for its text ("language_model.model.", "model.language_model."). NULL if
// absent.
const struct tensor *checkpoint_find(const struct checkpoint *c, const char *name);
size_t checkpoint_count(const struct checkpoint *c);
const struct tensor *checkpoint_at(const struct checkpoint *c, size_t i);
// The index i for which checkpoint_at(c, i) is t.
size_t checkpoint_index(const struct checkpoint *c, const struct tensor *t);
// Like the functions of safetensors.h, on the file that contains t; check_unchanged, on all files.
// populate needs a tensor with data (not NULL).
void checkpoint_forget(const struct checkpoint *c, const struct tensor *t);
int checkpoint_read(const struct checkpoint *c, const struct tensor *t, size_t offset, void *out,
                    size_t n, struct err *err);
int checkpoint_populate(const struct checkpoint *c, const struct tensor *t, size_t offset, size_t n,
                        struct err *err);
// Whether t's values are stored in few bits, and how: beside checkpoint_read, which returns them in F32, their codes
// and scales can be read row by row.
bool checkpoint_groups(const struct checkpoint *c, const struct tensor *t,
                       struct group_format *out);
// What people call the format of such matrices: "Q4_K_M", "W4A16", "NVFP4". NULL: there are none, or the format has no
// name. Valid until checkpoint_close.
const char *checkpoint_few_bits(const struct checkpoint *c);
// How the scales of e4m3 matrices are called in a folder that mixes formats: "weight_scale". NULL: other folders.
const char *checkpoint_fp8_scale(const struct checkpoint *c);
struct checkpoint_rows;
// For reading the rows [first, first + count), counted over all dimensions but the last: only these are in memory.
int checkpoint_rows_open(struct checkpoint_rows **out, const struct checkpoint *c,
                         const struct tensor *t, int64_t first, int64_t count, struct err *err);
void checkpoint_rows_close(struct checkpoint_rows *rows); // NULL is allowed
// Columns [first, first + n) of row `row` of these. first is a multiple of the
// format's group, of a nested one of GROUP_TILE_K. Any thread. E_FORMAT: a scale that is infinite or no number.
int checkpoint_rows_read(const struct checkpoint_rows *rows, int64_t row, int64_t first, int64_t n,
                         struct group_row *out, struct err *err);
int checkpoint_check_unchanged(const struct checkpoint *c, struct err *err);
// The number of ranks of a FasterTransformer folder; 0 for Hugging Face's.
int32_t checkpoint_ft_ranks(const struct checkpoint *c);
