// Finds the folder of a FasterTransformer checkpoint: the named one, or the only N-gpu folder in it.
#pragma once
#include "base/err.h"
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// *found: whether there is such a folder; out: the folder that holds config.ini. A folder with
// safetensors never counts. E_INVAL, naming them, if there are several N-gpu folders.
int ft_folder_find(char out[PATH_MAX], const char *dir, bool *found, struct err *err);
// N of a folder called N-gpu, 0 for any other.
int32_t ft_folder_ranks(const char *ft_dir);
// The name of a folder's model: the last component of its path, also for "." and paths that end in a
// slash. NAME for NAME.gguf, for NAME/4-gpu, for NAME/VERSION/4-gpu of a model repository, and for
// models--ORG--NAME/snapshots/COMMIT of Hugging Face's cache.
void ft_folder_model_name(char *out, size_t cap, const char *dir);
