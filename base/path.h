// Paths of files in a folder.
#pragma once
#include <limits.h>
#include <stdbool.h>

struct err;
// *out = DIR/NAME. E_LIMIT: that is longer than a path may be. err may be NULL.
int path_join(char out[PATH_MAX], const char *dir, const char *name, struct err *err);
// Whether the folder has a file of this name that access(2) allows in this mode: F_OK, R_OK.
bool path_holds(const char *dir, const char *name, int mode);
