// All tensors of a Hugging Face folder: model.safetensors, or the shards that
// model.safetensors.index.json lists (plain file names in the same folder, every one present, every
// listed tensor where the index says). Or those of a FasterTransformer folder (ft_checkpoint.h),
// whose tensors are not mapped and must be read.
#pragma once
#include "engine/model/safetensors.h"

struct checkpoint;

// A folder with only pytorch_model.bin is E_UNSUPPORTED; the sentence says how to convert it.
int checkpoint_open(struct checkpoint **out, const char *model_dir, struct err *err);
void checkpoint_close(struct checkpoint *c); // unmaps
// Finds `name`, or name with the prefix "model." or "transformer." added or removed. NULL if
// absent.
const struct tensor *checkpoint_find(const struct checkpoint *c, const char *name);
size_t checkpoint_count(const struct checkpoint *c);
const struct tensor *checkpoint_at(const struct checkpoint *c, size_t i);
// checkpoint_at(c, index) is t
size_t checkpoint_index(const struct checkpoint *c, const struct tensor *t);
void checkpoint_forget(const struct checkpoint *c, const struct tensor *t);
// safetensors_read and _populate (not for FasterTransformer) on the file that contains t, and
// _check_unchanged on all files.
int checkpoint_read(const struct checkpoint *c, const struct tensor *t, size_t offset, void *out,
                    size_t n, struct err *err);
int checkpoint_populate(const struct checkpoint *c, const struct tensor *t, size_t offset, size_t n,
                        struct err *err);
int checkpoint_check_unchanged(const struct checkpoint *c, struct err *err);
// The number of ranks of a FasterTransformer folder; 0 for Hugging Face's.
int32_t checkpoint_ft_ranks(const struct checkpoint *c);
