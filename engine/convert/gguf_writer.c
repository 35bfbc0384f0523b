// See gguf_writer.h. Format: ggml's docs/gguf.md.
#include "engine/convert/gguf_writer.h"
#include "base/buf.h"
#include "base/io.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define VERSION 3
#define ALIGNMENT 32 // the default, which the metadata need not name
#define METADATA_MAX_BYTES ((size_t)1 << 30)
#define ENDING ".gguf"

struct gguf_writer {
    char path[PATH_MAX], partial[PATH_MAX];
    struct buf metadata;
    uint64_t n_keys;
    int fd; // -1: the partial file does not exist
    uint64_t at;
};

int gguf_writer_new(struct gguf_writer **out, const char *path, struct err *err) {
    const size_t len = strlen(path), ending = sizeof ENDING - 1;
    *out = NULL;
    if (len <= ending || strcmp(path + len - ending, ENDING) != 0)
        return err_set(err, E_INVAL, "%.300s does not end in " ENDING, path);
    struct gguf_writer *w = calloc(1, sizeof *w);
    *out = w;
    if (!w) return err_set(err, E_NOMEM, "no memory to write %.300s", path);
    w->fd = -1;
    buf_init(&w->metadata, METADATA_MAX_BYTES);
    snprintf(w->path, sizeof w->path, "%s", path);
    if ((size_t)snprintf(w->partial, sizeof w->partial, "%.*s.partial" ENDING, (int)(len - ending),
                         path) < sizeof w->partial)
        return access(path, F_OK) < 0
                   ? 0
                   : err_set(err, E_EXISTS, "%s exists already and is not overwritten", path);
    return err_set(err, E_LIMIT, "the path %.200s... is too long", path);
}

void gguf_writer_free(struct gguf_writer *w) {
    if (!w) return;
    if (w->fd >= 0) {
        close(w->fd);
        unlink(w->partial);
    }
    buf_release(&w->metadata);
    free(w);
}

const char *gguf_writer_partial(const struct gguf_writer *w) {
    return w->partial;
}

// --- metadata ---

static void put_uint(struct buf *b, uint64_t v, int n) {
    char bytes[8];
    for (int i = 0; i < n; i++) bytes[i] = (char)(v >> (8 * i));
    buf_add(b, bytes, (size_t)n);
}

static void put_text(struct buf *b, const char *s, size_t len) {
    put_uint(b, len, 8);
    buf_add(b, s, len);
}

static void put_key(struct gguf_writer *w, const char *key, enum gguf_value type) {
    put_text(&w->metadata, key, strlen(key));
    put_uint(&w->metadata, type, 4);
    w->n_keys++;
}

static uint32_t bits_of(float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t v) {
    put_key(w, key, GGUF_U32);
    put_uint(&w->metadata, v, 4);
}

void gguf_put_f32(struct gguf_writer *w, const char *key, float v) {
    put_key(w, key, GGUF_F32);
    put_uint(&w->metadata, bits_of(v), 4);
}

void gguf_put_bool(struct gguf_writer *w, const char *key, bool v) {
    put_key(w, key, GGUF_BOOL);
    put_uint(&w->metadata, v, 1);
}

void gguf_put_string(struct gguf_writer *w, const char *key, const char *v) {
    put_key(w, key, GGUF_STRING);
    put_text(&w->metadata, v, strlen(v));
}

void gguf_put_array(struct gguf_writer *w, const char *key, enum gguf_value type, uint64_t n) {
    enum { ARRAY = 9 };
    put_text(&w->metadata, key, strlen(key));
    put_uint(&w->metadata, ARRAY, 4);
    put_uint(&w->metadata, type, 4);
    put_uint(&w->metadata, n, 8);
    w->n_keys++;
}

void gguf_add_string(struct gguf_writer *w, const char *v, size_t len) {
    put_text(&w->metadata, v, len);
}

void gguf_add_f32(struct gguf_writer *w, float v) {
    put_uint(&w->metadata, bits_of(v), 4);
}

void gguf_add_i32(struct gguf_writer *w, int32_t v) {
    put_uint(&w->metadata, (uint32_t)v, 4);
}

void gguf_add_bool(struct gguf_writer *w, bool v) {
    put_uint(&w->metadata, v, 1);
}

// --- the file ---

static int write_all(struct gguf_writer *w, const void *bytes, size_t n, struct err *err) {
    TRY(io_write(w->fd, bytes, n, w->partial, err));
    w->at += n;
    return 0;
}

static uint64_t aligned(uint64_t at) {
    return (at + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static int pad(struct gguf_writer *w, struct err *err) {
    static const char zeros[ALIGNMENT];
    return write_all(w, zeros, (size_t)(aligned(w->at) - w->at), err);
}

static void put_tensors(struct buf *b, struct gguf_out_tensor *tensors, size_t n,
                        uint64_t *data_bytes) {
    uint64_t offset = 0;
    for (size_t i = 0; i < n; i++) {
        struct gguf_out_tensor *t = &tensors[i];
        t->bytes = (uint64_t)t->type->bytes;
        put_text(b, t->name, strlen(t->name));
        put_uint(b, (uint64_t)t->n_dims, 4);
        for (int d = t->n_dims - 1; d >= 0; d--) {
            const bool last = d == t->n_dims - 1;
            put_uint(b, (uint64_t)t->shape[d], 8);
            t->bytes *= (uint64_t)(last ? t->shape[d] / t->type->values : t->shape[d]);
        }
        put_uint(b, t->type->id, 4);
        put_uint(b, offset, 8);
        offset = aligned(offset + t->bytes);
    }
    *data_bytes = offset;
}

static int check_space(const struct gguf_writer *w, uint64_t bytes, struct err *err) {
    char dir[PATH_MAX];
    struct statvfs s;
    snprintf(dir, sizeof dir, "%s", w->path);
    char *slash = strrchr(dir, '/');
    if (slash) slash[slash == dir] = '\0';
    const char *in = slash ? dir : ".";
    if (statvfs(in, &s) < 0) return err_errno(err, "cannot examine %s", in);
    const uint64_t room = (uint64_t)s.f_bavail * s.f_frsize;
    if (room >= bytes) return 0;
    return err_set(err, E_FULL, "%s has room for %llu MiB; the file takes %llu", in,
                   (unsigned long long)(room >> 20), (unsigned long long)(bytes >> 20) + 1);
}

static int create(struct gguf_writer *w, struct err *err) {
    w->fd = open(w->partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (w->fd >= 0) return 0;
    if (errno != EEXIST) return err_errno(err, "cannot create %s", w->partial);
    return err_set(err, E_EXISTS, "%s exists, what a killed run left: remove it", w->partial);
}

int gguf_writer_begin(struct gguf_writer *w, struct gguf_out_tensor *tensors, size_t n,
                      struct err *err) {
    struct buf head, list;
    uint64_t data_bytes = 0;
    int rc = 0;
    buf_init(&head, 64);
    buf_init(&list, METADATA_MAX_BYTES);
    buf_add(&head, "GGUF", 4);
    put_uint(&head, VERSION, 4);
    put_uint(&head, n, 8);
    put_uint(&head, w->n_keys, 8);
    put_tensors(&list, tensors, n, &data_bytes);
    if (head.error < 0 || list.error < 0 || w->metadata.error < 0)
        rc = err_set(err, E_NOMEM, "no memory for the metadata of %zu tensors", n);
    const uint64_t begin = aligned(head.len + w->metadata.len + list.len);
    if (rc == 0) rc = check_space(w, begin + data_bytes, err);
    if (rc == 0) rc = create(w, err);
    if (rc == 0) rc = write_all(w, head.data, head.len, err);
    if (rc == 0) rc = write_all(w, w->metadata.data, w->metadata.len, err);
    if (rc == 0) rc = write_all(w, list.data, list.len, err);
    if (rc == 0) rc = pad(w, err);
    if (rc == 0 && ftruncate(w->fd, (off_t)(begin + data_bytes)) < 0)
        rc = err_errno(err, "cannot write %s", w->partial);
    buf_release(&head);
    buf_release(&list);
    return rc;
}

int gguf_writer_put_at(struct gguf_writer *w, const struct gguf_out_tensor *tensors, size_t i,
                       const void *bytes, struct err *err) {
    uint64_t at = w->at; // of the first tensor
    for (size_t k = 0; k < i; k++) at = aligned(at + tensors[k].bytes);
    const ssize_t put = pwrite(w->fd, bytes, (size_t)tensors[i].bytes, (off_t)at);
    return put == (ssize_t)tensors[i].bytes ? 0 : err_errno(err, "cannot write %s", w->partial);
}

int gguf_writer_write(struct gguf_writer *w, const void *bytes, size_t n, struct err *err) {
    return write_all(w, bytes, n, err);
}

int gguf_writer_end_tensor(struct gguf_writer *w, struct err *err) {
    return pad(w, err);
}

int gguf_writer_finish(struct gguf_writer *w, struct err *err) {
    const int fd = w->fd;
    w->fd = -1;
    // A full disk may be reported only here.
    int rc = close(fd) < 0 ? err_errno(err, "cannot write %s", w->partial) : 0;
    if (rc == 0 && rename(w->partial, w->path) < 0) rc = err_errno(err, "cannot name %s", w->path);
    if (rc < 0) unlink(w->partial);
    return rc;
}
