// See ft_folder.h.
#include "engine/model/ft_folder.h"
#include "base/path.h"
#include "engine/gguf/gguf.h"
#include "engine/model/ft_config.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SAID_FOLDERS 8 // in the sentence that asks which

// N of "N-gpu".
static int32_t ranks_of(const char *name) {
    char *end;
    if (*name < '1' || *name > '9') return 0;
    long n = strtol(name, &end, 10);
    return strcmp(end, "-gpu") == 0 && n <= FT_MAX_RANKS ? (int32_t)n : 0;
}

int32_t ft_folder_ranks(const char *ft_dir) {
    char real[PATH_MAX];
    const char *slash = realpath(ft_dir, real) ? strrchr(real, '/') : NULL;
    return slash ? ranks_of(slash + 1) : 0;
}

static void cut_last_part(char *path) {
    char *slash = strrchr(path, '/');
    if (slash > path) *slash = '\0';
}

static bool ends_in_number(const char *path) {
    const char *part = strrchr(path, '/');
    return part && part[1] && part[1 + strspn(part + 1, "0123456789")] == '\0';
}

// NAME of .../models--ORG--NAME/snapshots/COMMIT, where Hugging Face's tools keep a model.
static bool name_in_cache(char *out, size_t cap, const char *path) {
    static const char above[] = "/snapshots", kind[] = "/models--";
    const char *end = strrchr(path, '/');
    if (!end || end - path < (ptrdiff_t)sizeof above - 1) return false;
    end -= sizeof above - 1;
    if (strncmp(end, above, sizeof above - 1) != 0) return false;
    const char *repo = memrchr(path, '/', (size_t)(end - path));
    if (!repo || strncmp(repo, kind, sizeof kind - 1) != 0) return false;
    const char *name = repo + sizeof kind - 1, *dashes = strstr(name, "--");
    if (dashes && dashes < end) name = dashes + 2;
    snprintf(out, cap, "%.*s", (int)(end - name), name);
    return true;
}

void ft_folder_model_name(char *out, size_t cap, const char *dir) {
    char real[PATH_MAX];
    if (path_absolute(real, dir, NULL) < 0) snprintf(real, sizeof real, "%s", dir);
    if (ft_folder_ranks(real) > 0) {
        cut_last_part(real);
        if (ends_in_number(real)) cut_last_part(real);
    }
    if (gguf_is(real)) *strrchr(real, '.') = '\0';
    if (name_in_cache(out, cap, real)) return;
    const char *slash = strrchr(real, '/');
    snprintf(out, cap, "%s", slash && slash[1] ? slash + 1 : real);
}

static int compare_ranks(const void *a, const void *b) {
    const int32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

// The N of every N-gpu with a config.ini in it, rising; at most FT_MAX_RANKS of them.
static int list_folders(const char *dir, int32_t list[FT_MAX_RANKS]) {
    int n = 0;
    DIR *d = opendir(dir);
    if (!d) return 0;
    for (struct dirent *e; n < FT_MAX_RANKS && (e = readdir(d));) {
        char sub[PATH_MAX];
        int32_t ranks = ranks_of(e->d_name);
        if (ranks == 0 || path_join(sub, dir, e->d_name, NULL) < 0) continue;
        if (path_holds(sub, "config.ini", F_OK)) list[n++] = ranks;
    }
    closedir(d);
    qsort(list, (size_t)n, sizeof *list, compare_ranks);
    return n;
}

static int ask_which(const char *dir, const int32_t *list, int n, struct err *err) {
    char names[32 * SAID_FOLDERS] = "";
    for (int i = 0, at = 0; i < n && i < SAID_FOLDERS; i++)
        at += snprintf(names + at, sizeof names - (size_t)at, "%s%d-gpu", i ? ", " : "", list[i]);
    return err_set(err, E_INVAL, "%.200s holds %s%s: say which, as in %.100s/%d-gpu", dir, names,
                   n > SAID_FOLDERS ? ", ..." : "", dir, list[0]);
}

int ft_folder_find(char out[PATH_MAX], const char *dir, bool *found, struct err *err) {
    int32_t list[FT_MAX_RANKS];
    *found = false;
    if (path_holds(dir, "model.safetensors", F_OK) ||
        path_holds(dir, "model.safetensors.index.json", F_OK))
        return 0;
    bool here = path_holds(dir, "config.ini", F_OK);
    int n = here ? 0 : list_folders(dir, list);
    if (!here && n == 0) return 0;
    if (n > 1) return ask_which(dir, list, n, err);
    int len = here ? snprintf(out, PATH_MAX, "%s", dir)
                   : snprintf(out, PATH_MAX, "%s/%d-gpu", dir, list[0]);
    if (len >= PATH_MAX) return err_set(err, E_LIMIT, "the path %.300s... is too long", dir);
    *found = true;
    return 0;
}
