// See path.h.
#include "base/path.h"
#include "base/err.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int path_join(char out[PATH_MAX], const char *dir, const char *name, struct err *err) {
    if (snprintf(out, PATH_MAX, "%s/%s", dir, name) < PATH_MAX) return 0;
    return err_set(err, E_LIMIT, "the path %.300s/%.60s is too long", dir, name);
}

bool path_holds(const char *dir, const char *name, int mode) {
    char path[PATH_MAX];
    return path_join(path, dir, name, NULL) == 0 && access(path, mode) == 0;
}

int path_absolute(char out[PATH_MAX], const char *path, struct err *err) {
    char folder[PATH_MAX], real[PATH_MAX];
    struct stat st;
    if (!realpath(path, out) || stat(out, &st) < 0) return err_errno(err, "%s", path);
    if (S_ISDIR(st.st_mode)) return 0;
    const char *slash = strrchr(path, '/');
    if (!slash)
        strcpy(folder, ".");
    else if (snprintf(folder, sizeof folder, "%.*s", (int)(slash + 1 - path), path) >= PATH_MAX)
        return err_set(err, E_LIMIT, "the path %.300s is too long", path);
    if (!realpath(folder, real)) return err_errno(err, "%s", folder);
    return path_join(out, strcmp(real, "/") == 0 ? "" : real, slash ? slash + 1 : path, err);
}
