// See ft_files.h.
#include "engine/model/ft_files.h"
#include "base/path.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

int ft_files_path(const struct ft_files *f, char out[PATH_MAX], const struct ft_array *a,
                  int32_t rank, struct err *err) {
    char name[FT_FILE_MAX];
    return path_join(out, f->dir, ft_layout_file(name, a, rank), err);
}

int64_t ft_files_piece(const struct ft_files *f, const struct ft_array *a) {
    return a->split ? a->width / f->n_ranks : a->width;
}

int ft_files_add(struct ft_files *f, const char *path, int64_t *size, struct err *err) {
    struct stat s;
    if (stat(path, &s) < 0 && errno == ENOENT)
        return err_set(err, E_NOTFOUND, "%s is missing", path);
    if (stat(path, &s) < 0) return err_errno(err, "cannot examine %s", path);
    if (!S_ISREG(s.st_mode)) return err_set(err, E_FORMAT, "%s is not a regular file", path);
    if (f->n == f->cap) {
        size_t cap = f->cap ? 2 * f->cap : 256;
        struct ft_file *grown = realloc(f->list, cap * sizeof *grown);
        if (!grown) return err_set(err, E_NOMEM, "%s: no memory for %zu files", f->dir, cap);
        f->list = grown;
        f->cap = cap;
    }
    f->list[f->n++] =
        (struct ft_file){.dev = s.st_dev, .ino = s.st_ino, .size = s.st_size, .mtime = s.st_mtim};
    *size = s.st_size;
    return 0;
}

static int compare(const struct ft_file *was, const struct stat *s, const char *path,
                   struct err *err) {
    if (s->st_dev == was->dev && s->st_ino == was->ino && s->st_size == was->size &&
        s->st_mtim.tv_sec == was->mtime.tv_sec && s->st_mtim.tv_nsec == was->mtime.tv_nsec)
        return 0;
    return err_set(err, E_CORRUPT, "%s: the file changed while it was being read", path);
}

int ft_files_check(const struct ft_files *f, size_t file, const char *path, struct err *err) {
    struct stat s;
    if (stat(path, &s) < 0) return err_errno(err, "cannot examine %s", path);
    return compare(&f->list[file], &s, path, err);
}

int ft_files_open(const struct ft_files *f, size_t file, const char *path, struct err *err) {
    struct stat s;
    // O_NONBLOCK: opening a pipe in the file's place must not wait.
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return err_errno(err, "cannot open %s", path);
    int rc = fstat(fd, &s) < 0 ? err_errno(err, "cannot examine %s", path)
                               : compare(&f->list[file], &s, path, err);
    if (rc == 0) return fd;
    close(fd);
    return rc;
}

void ft_files_release(struct ft_files *f) {
    free(f->list);
    free(f->dir);
    *f = (struct ft_files){0};
}
