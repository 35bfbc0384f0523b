// Which folder a FasterTransformer checkpoint is in: the one named, or the one N-gpu in it.
#pragma once
#include "base/err.h"
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// True with the folder that holds config.ini in out. A folder with safetensors never counts. False
// if there is none; E_INVAL, naming them, if there are several N-gpu folders.
int ft_folder_find(char out[PATH_MAX], const char *dir, bool *found, struct err *err);
// N of a folder called N-gpu, 0 for any other.
int32_t ft_folder_ranks(const char *ft_dir);
// The name of a folder's model: the folder's last part, also for "." and paths that end in a slash. NAME
// for NAME/4-gpu, and for NAME/1/4-gpu, as a repository of models has it with the model's version.
void ft_folder_model_name(char *out, size_t cap, const char *dir);
