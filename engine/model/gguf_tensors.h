// The tensors of a GGUF file under the names of Hugging Face. Reading decodes blocks of few bits into F32, and takes
// back what the converter changed (gguf_arch.h), so no other code depends on the format.
#pragma once
#include "engine/gguf/gguf.h"
#include "engine/model/safetensors.h"
#include "kernels/groups.h"

struct gguf_tensors;

int gguf_tensors_open(struct gguf_tensors **out, const char *path, struct err *err);
void gguf_tensors_close(struct gguf_tensors *c); // NULL is allowed
size_t gguf_tensors_count(const struct gguf_tensors *c);
// data is NULL; F32, F16 and BF16 keep their dtype, all others are F32
const struct tensor *gguf_tensors_at(const struct gguf_tensors *c, size_t i);
// Like safetensors_read; several threads read whole rows. E_FORMAT: a value that is infinite or no number in blocks.
int gguf_tensors_read(const struct gguf_tensors *c, const struct tensor *t, size_t offset,
                      void *out, size_t n, struct err *err);
// As codes and scales (see checkpoint_groups, checkpoint_groups_row).
bool gguf_tensors_groups(const struct gguf_tensors *c, const struct tensor *t,
                         struct group_format *out);
int gguf_tensors_groups_row(const struct gguf_tensors *c, const struct tensor *t, int64_t row,
                            int64_t first, int64_t n, struct group_row *out, struct err *err);
const struct gguf *gguf_tensors_file(const struct gguf_tensors *c);
