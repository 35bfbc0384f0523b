// Paths of files in a folder.
#pragma once
#include <limits.h>
#include <stdbool.h>

struct err;
// *out = DIR/NAME. E_LIMIT: that is longer than a path may be. err may be NULL.
int path_join(char out[PATH_MAX], const char *dir, const char *name, struct err *err);
// The absolute path, with the links of folders resolved. The link of a file keeps its own name, which may say what the
// file is where its target's does not: in the cache of Hugging Face, model.gguf links to a hash. As err_errno, E_LIMIT.
int path_absolute(char out[PATH_MAX], const char *path, struct err *err);
// Whether the folder has a file of this name that access(2) allows in this mode: F_OK, R_OK.
bool path_holds(const char *dir, const char *name, int mode);
