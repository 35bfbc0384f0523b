// Which folder a FasterTransformer checkpoint is in: the one named, or the one N-gpu in it.
#pragma once
#include "base/err.h"
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

// True with the folder that holds config.ini in out. A folder with safetensors is none, whatever
// else is in it. False when there is nothing of the kind; E_INVAL, naming them, when several N-gpu
// leave the choice open.
int ft_folder_find(char out[PATH_MAX], const char *dir, bool *found, struct err *err);
// N of a folder called N-gpu, 0 for any other.
int32_t ft_folder_ranks(const char *ft_dir);
