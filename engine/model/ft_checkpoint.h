// The arrays of a FasterTransformer folder as tensors. Reading merges the parts of several ranks, so
// that no other code depends on the number of ranks.
//
// Every file of the model must exist and have exactly the size that follows from config.ini. Exception:
// the embedding and the head may have rows past the vocabulary (Megatron's padding), which are
// skipped. There are thousands of files, so none stays open: each read opens its file and checks that
// it is still the file that was examined first.
#pragma once
#include "engine/model/ft_config.h"
#include "engine/model/safetensors.h"

struct ft_checkpoint;

// ft_dir: from ft_folder_find.
int ft_checkpoint_open(struct ft_checkpoint **out, const char *ft_dir, struct err *err);
void ft_checkpoint_close(struct ft_checkpoint *c);
int32_t ft_checkpoint_ranks(const struct ft_checkpoint *c); // the number of ranks of the files
size_t ft_checkpoint_count(const struct ft_checkpoint *c);
const struct tensor *ft_checkpoint_at(const struct ft_checkpoint *c, size_t i); // data is NULL
// Like safetensors_read and safetensors_check_unchanged.
int ft_checkpoint_read(const struct ft_checkpoint *c, const struct tensor *t, size_t offset,
                       void *out, size_t n, struct err *err);
int ft_checkpoint_check_unchanged(const struct ft_checkpoint *c, struct err *err);

// Whether the head is the embedding: the head has no file, or its file is a copy of the embedding,
// possibly transposed (as FasterTransformer's BLOOM converter writes it). Reads both completely.
int ft_checkpoint_head_is_embed(const struct ft_checkpoint *c, bool *out, struct err *err);

// Reads the folder's switches, tied_head included.
int ft_model_config_load(struct model_config *out, const char *ft_dir, struct err *err);
