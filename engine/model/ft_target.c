// See ft_target.h.
#include "engine/model/ft_target.h"
#include "base/io.h"
#include "base/path.h"
#include "engine/model/ft_config.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK_BYTES ((int64_t)4 << 20)
#define BLOCK_ROWS 64 // of a transposed matrix: each column is read this far at once

struct files { // of one array
    struct ft_target *t;
    const struct ft_array *a;
    int32_t n;
    int fds[FT_MAX_RANKS];
    size_t line, piece; // bytes of a line; of them, in one file
    char *block, *pieces;
    struct err *err;
};

static int create(const char *path, struct err *err) {
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return fd < 0 ? err_errno(err, "cannot create %s", path) : fd;
}

int ft_target_file(const struct ft_target *t, const char *name, const void *bytes, size_t n,
                   struct err *err) {
    char path[PATH_MAX];
    TRY(path_join(path, t->dir, name, err));
    int fd = create(path, err);
    if (fd < 0) return fd;
    int rc = io_write(fd, bytes, n, path, err);
    if (close(fd) < 0 && rc == 0) rc = err_errno(err, "cannot write %s", path);
    return rc;
}

// --- one array ---

static int open_files(struct files *f, int32_t n) {
    for (; f->n < n; f->n++) {
        char name[FT_FILE_MAX], path[PATH_MAX];
        TRY(path_join(path, f->t->dir, ft_layout_file(name, f->a, f->n), f->err));
        TRY(f->fds[f->n] = create(path, f->err));
    }
    return 0;
}

// A full disk may be reported only here.
static int close_files(struct files *f, int rc) {
    for (int32_t i = 0; i < f->n; i++) {
        char name[FT_FILE_MAX];
        if (close(f->fds[i]) < 0 && rc == 0)
            rc = err_errno(f->err, "cannot write %s/%s", f->t->dir, ft_layout_file(name, f->a, i));
    }
    return rc;
}

// Of the merged array's bytes [first, first + n), those of one rank, in order.
static int write_rank(struct files *f, int32_t rank, size_t first, size_t n) {
    char name[FT_FILE_MAX], path[PATH_MAX];
    size_t begin = (size_t)rank * f->piece, kept = 0;
    for (size_t line = first / f->line; line * f->line < first + n; line++) {
        size_t from = line * f->line + begin, to = from + f->piece;
        if (from < first) from = first;
        if (to > first + n) to = first + n;
        if (from >= to) continue;
        memcpy(f->pieces + kept, f->block + (from - first), to - from);
        kept += to - from;
    }
    TRY(path_join(path, f->t->dir, ft_layout_file(name, f->a, rank), f->err));
    return io_write(f->fds[rank], f->pieces, kept, path, f->err);
}

static int write_block(struct files *f, size_t first, size_t n) {
    struct ft_target *t = f->t;
    if (t->stop && *t->stop) return err_set(f->err, E_CANCELLED, "stopped; nothing is left");
    for (int32_t rank = 0; rank < f->n; rank++) TRY(write_rank(f, rank, first, n));
    t->done += (int64_t)n;
    if (t->progress) t->progress(t->progress_ctx, t->done, t->total);
    return 0;
}

static int write_rows(struct files *f, const struct ft_source *s) {
    const struct ft_array *a = f->a;
    int64_t n_rows = a->n_dims == 2 ? a->shape[0] : 1;
    int64_t row = (n_rows ? a->lines * a->width / n_rows : 0) * (int64_t)dtype_size(f->t->dtype);
    int64_t most = BLOCK_BYTES / row;
    if (most > BLOCK_ROWS && !s->rows) most = BLOCK_ROWS;
    if (most < 1) most = 1;
    f->block = malloc((size_t)(most * row));
    f->pieces = malloc((size_t)(most * row));
    if (!f->block || !f->pieces) return err_set(f->err, E_NOMEM, "no memory to write %s", a->name);
    for (int64_t first = 0; first < n_rows; first += most) {
        int64_t n = n_rows - first < most ? n_rows - first : most;
        TRY(ft_source_read(s, a, first, n, f->t->dtype, f->block, f->err));
        TRY(write_block(f, (size_t)(first * row), (size_t)(n * row)));
    }
    return 0;
}

int ft_target_array(struct ft_target *t, const struct ft_source *s, const struct ft_array *a,
                    struct err *err) {
    struct files f = {.t = t, .a = a, .err = err};
    int32_t n = a->split ? t->n_ranks : 1;
    f.line = (size_t)a->width * dtype_size(t->dtype);
    f.piece = f.line / (size_t)n;
    int rc = open_files(&f, n);
    if (rc >= 0) rc = write_rows(&f, s);
    rc = close_files(&f, rc);
    free(f.block);
    free(f.pieces);
    return rc;
}

void ft_target_remove(const char *dir) {
    char path[PATH_MAX];
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            path_join(path, dir, e->d_name, NULL) == 0)
            unlink(path);
    if (d) closedir(d);
    rmdir(dir);
}
