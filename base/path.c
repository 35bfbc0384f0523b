// See path.h.
#include "base/path.h"
#include "base/err.h"
#include <stdio.h>
#include <unistd.h>

int path_join(char out[PATH_MAX], const char *dir, const char *name, struct err *err) {
    if (snprintf(out, PATH_MAX, "%s/%s", dir, name) < PATH_MAX) return 0;
    return err_set(err, E_LIMIT, "the path %.300s/%.60s is too long", dir, name);
}

bool path_holds(const char *dir, const char *name, int mode) {
    char path[PATH_MAX];
    return path_join(path, dir, name, NULL) == 0 && access(path, mode) == 0;
}
