// Writes .safetensors as a stream: the header, then the tensors' bytes in the order of their
// declaration. Blanks pad the header, so that data begins at a multiple of 64 in the file. See
// safetensors.h.
#include "base/buf.h"
#include "base/io.h"
#include "base/json.h"
#include "engine/model/safetensors.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER_MAX_BYTES ((size_t)32 << 20)
#define DATA_ALIGNMENT 64 // of mapped panels (kernels/int8.h)
#define PREFIX_BYTES 8    // of the header's length

struct safetensors_writer {
    char *path, *partial; // partial is path itself where that is a device or a pipe
    int fd;
    size_t left; // bytes still to come
};

static const char *const dtype_names[DTYPE_COUNT] = {
    [DTYPE_F32] = "F32", [DTYPE_F16] = "F16",   [DTYPE_BF16] = "BF16",
    [DTYPE_I8] = "I8",   [DTYPE_I32] = "I32",   [DTYPE_I64] = "I64",
    [DTYPE_U8] = "U8",   [DTYPE_BOOL] = "BOOL", [DTYPE_F8_E4M3] = "F8_E4M3",
};

static int tensor_size(const struct tensor *t, size_t *bytes, struct err *err) {
    uint64_t n = dtype_size(t->dtype);
    if (t->n_dims < 0 || t->n_dims > TENSOR_MAX_DIMS)
        return err_set(err, E_INVAL, "tensor '%s' has %d dimensions", t->name, t->n_dims);
    for (int d = 0; d < t->n_dims; d++)
        if (t->shape[d] < 0 || __builtin_mul_overflow(n, (uint64_t)t->shape[d], &n))
            return err_set(err, E_INVAL, "tensor '%s' has a shape without a size", t->name);
    *bytes = n;
    return 0;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_names(const struct tensor *tensors, size_t n, struct err *err) {
    int rc = 0;
    const char **names = calloc(n + 1, sizeof *names);
    if (!names) return err_set(err, E_NOMEM, "no memory for %zu tensor names", n);
    for (size_t i = 0; i < n; i++) names[i] = tensors[i].name;
    qsort(names, n, sizeof *names, compare_names);
    for (size_t i = 0; i < n && rc == 0; i++) {
        if (strcmp(names[i], "__metadata__") == 0)
            rc = err_set(err, E_INVAL, "a tensor cannot be called '%s'", names[i]);
        else if (i > 0 && strcmp(names[i - 1], names[i]) == 0)
            rc = err_set(err, E_INVAL, "two tensors are called '%s'", names[i]);
    }
    free(names);
    return rc;
}

static int build_header(struct buf *b, const struct tensor *tensors, size_t n, size_t *total,
                        struct err *err) {
    struct json_writer w;
    *total = 0;
    json_writer_init(&w, b);
    json_open(&w, NULL, '{');
    json_open(&w, "__metadata__", '{');
    json_put_string(&w, "format", "pt"); // without it transformers refuses the file
    json_close(&w, '}');
    for (size_t i = 0; i < n; i++) {
        const struct tensor *t = &tensors[i];
        size_t bytes = 0;
        TRY(tensor_size(t, &bytes, err));
        json_open(&w, t->name, '{');
        json_put_string(&w, "dtype", dtype_names[t->dtype]);
        json_open(&w, "shape", '[');
        for (int d = 0; d < t->n_dims; d++) json_put_int(&w, NULL, t->shape[d]);
        json_close(&w, ']');
        json_open(&w, "data_offsets", '[');
        json_put_int(&w, NULL, (int64_t)*total);
        if (__builtin_add_overflow(*total, bytes, total) || *total > INT64_MAX)
            return err_set(err, E_INVAL, "tensor '%s' makes the file too large", t->name);
        json_put_int(&w, NULL, (int64_t)*total);
        json_close(&w, ']');
        json_close(&w, '}');
    }
    json_close(&w, '}');
    while ((PREFIX_BYTES + b->len) % DATA_ALIGNMENT != 0 && !b->error) buf_addc(b, ' ');
    return b->error < 0 ? err_set(err, b->error, "no room for a header of %zu tensors", n) : 0;
}

// A file appears under its name when it is complete. A device or a pipe is written to: a rename
// would put a file in its place.
static int open_partial(struct safetensors_writer *w, const char *path, struct err *err) {
    struct stat st;
    w->path = strdup(path);
    if (w->path && stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) {
        w->partial = w->path;
    } else if (!w->path || asprintf(&w->partial, "%s.partial", path) < 0) {
        w->partial = NULL;
        return err_set(err, E_NOMEM, "no memory to write %s", path);
    }
    w->fd = open(w->partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return w->fd < 0 ? err_errno(err, "cannot create %s", w->partial) : 0;
}

int safetensors_create(struct safetensors_writer **out, const char *path,
                       const struct tensor *tensors, size_t n, struct err *err) {
    int rc;
    struct buf header;
    struct safetensors_writer *w = calloc(1, sizeof *w);
    if (!w) return err_set(err, E_NOMEM, "no memory to write %s", path);
    w->fd = -1;
    buf_init(&header, HEADER_MAX_BYTES);
    TRY_GOTO(fail, check_names(tensors, n, err));
    TRY_GOTO(fail, build_header(&header, tensors, n, &w->left, err));
    TRY_GOTO(fail, open_partial(w, path, err));
    unsigned char le[PREFIX_BYTES];
    for (int i = 0; i < PREFIX_BYTES; i++) le[i] = (unsigned char)((uint64_t)header.len >> (8 * i));
    TRY_GOTO(fail, io_write(w->fd, le, sizeof le, w->partial, err));
    TRY_GOTO(fail, io_write(w->fd, header.data, header.len, w->partial, err));
    buf_release(&header);
    *out = w;
    return 0;
fail:
    buf_release(&header);
    safetensors_abort(w);
    return rc;
}

int safetensors_write(struct safetensors_writer *w, const void *bytes, size_t n, struct err *err) {
    if (n > w->left)
        return err_set(err, E_INVAL, "%s: %zu bytes more than the tensors declared", w->path,
                       n - w->left);
    TRY(io_write(w->fd, bytes, n, w->partial, err));
    w->left -= n;
    return 0;
}

static bool renames(const struct safetensors_writer *w) {
    return w->partial != w->path;
}

int safetensors_finish(struct safetensors_writer *w, struct err *err) {
    int rc = 0;
    if (w->left > 0)
        rc = err_set(err, E_INVAL, "%s: %zu bytes of the declared tensors are missing", w->path,
                     w->left);
    int fd = w->fd;
    w->fd = -1;
    // A full disk may be reported only here.
    if (close(fd) < 0 && rc == 0) rc = err_errno(err, "cannot write %s", w->partial);
    if (rc == 0 && renames(w) && rename(w->partial, w->path) < 0)
        rc = err_errno(err, "cannot name %s", w->path);
    if (rc < 0 && renames(w)) unlink(w->partial);
    safetensors_abort(w);
    return rc;
}

void safetensors_abort(struct safetensors_writer *w) {
    if (!w) return;
    if (w->fd >= 0) {
        close(w->fd);
        if (renames(w)) unlink(w->partial);
    }
    if (renames(w)) free(w->partial);
    free(w->path);
    free(w);
}
