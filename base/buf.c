// Growable byte buffer with a cap and a sticky error. See buf.h.
#include "base/buf.h"
#include "base/err.h"
#include "base/utf8.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BUF_MIN_CAP 64

void buf_init(struct buf *b, size_t max) {
    *b = (struct buf){.max = max};
}

void buf_release(struct buf *b) {
    free(b->data);
    *b = (struct buf){.max = b->max};
}

void buf_reset(struct buf *b) {
    b->len = 0;
    b->error = 0;
    if (b->data) b->data[0] = '\0';
}

int buf_reserve(struct buf *b, size_t more) {
    if (b->error) return b->error;
    if (more > b->max - b->len || more >= SIZE_MAX - b->len) return b->error = E_LIMIT;
    size_t need = b->len + more + 1;
    if (need <= b->cap) return 0;
    // Doubling keeps adds linear; the cap keeps a buffer of max 1 MiB from ever taking 2.
    size_t cap = b->cap < BUF_MIN_CAP / 2 ? BUF_MIN_CAP : b->cap > SIZE_MAX / 2 ? need : b->cap * 2;
    if (b->max < SIZE_MAX && cap > b->max + 1) cap = b->max + 1;
    if (cap < need) cap = need;
    char *data = realloc(b->data, cap);
    if (!data) return b->error = E_NOMEM;
    if (!b->data) data[0] = '\0';
    b->data = data;
    b->cap = cap;
    return 0;
}

int buf_add(struct buf *b, const void *bytes, size_t len) {
    TRY(buf_reserve(b, len));
    if (len) memcpy(b->data + b->len, bytes, len);
    b->len += len;
    b->data[b->len] = '\0';
    return 0;
}

int buf_addz(struct buf *b, const char *zstring) {
    return buf_add(b, zstring, strlen(zstring));
}

int buf_addc(struct buf *b, char c) {
    return buf_add(b, &c, 1);
}

static int add_formatted(struct buf *b, const char *fmt, va_list ap) {
    TRY(buf_reserve(b, 0));
    va_list again;
    va_copy(again, ap);
    size_t room = b->cap - b->len;
    int n = vsnprintf(b->data + b->len, room, fmt, ap);
    int rc = n < 0 ? (b->error = E_LIMIT) : buf_reserve(b, (size_t)n);
    if (rc == 0) {
        if ((size_t)n >= room) vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    } else {
        b->data[b->len] = '\0'; // remove what the first attempt wrote
    }
    va_end(again);
    return rc;
}

int buf_addf(struct buf *b, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int rc = add_formatted(b, fmt, ap);
    va_end(ap);
    return rc;
}

int buf_add_double(struct buf *b, double v) {
    if (isnan(v) || isinf(v)) return buf_addz(b, isnan(v) ? "NaN" : v > 0 ? "+Inf" : "-Inf");
    char text[40];
    int digits = 15;
    do snprintf(text, sizeof text, "%.*g", digits, v);
    while (strtod(text, NULL) != v && ++digits <= 17);
    char *comma = strchr(text, ',');
    if (comma) *comma = '.';
    return buf_addz(b, text);
}

int buf_add_utf8(struct buf *b, const char *s, size_t len) {
    if (utf8_valid(s, len)) return buf_add(b, s, len);
    size_t start = 0, n;
    for (size_t i = 0; i < len; i += n) {
        bool valid;
        n = utf8_next(s + i, len - i, &valid);
        if (valid) continue;
        buf_add(b, s + start, i - start);
        TRY(buf_add(b, "\xef\xbf\xbd", 3));
        start = i + n;
    }
    return buf_add(b, s + start, len - start);
}

void buf_remove_front(struct buf *b, size_t n) {
    if (n >= b->len) {
        b->len = 0;
    } else if (n > 0) {
        memmove(b->data, b->data + n, b->len - n);
        b->len -= n;
    }
    if (b->data) b->data[b->len] = '\0';
}

const char *buf_z(const struct buf *b) {
    return b->data ? b->data : "";
}

char *buf_take(struct buf *b, size_t *len) {
    if (buf_reserve(b, 0) < 0) return NULL;
    char *data = b->data;
    if (len) *len = b->len;
    *b = (struct buf){.max = b->max};
    return data;
}

static int too_large(struct err *err, const char *path, size_t max) {
    return err_set(err, E_LIMIT, "%s: larger than the limit of %zu bytes", path, max);
}

// Reads to the end rather than to fstat's size: the file may grow, and /proc's have none. When the
// buffer is full, one byte is read aside, so that a file of exactly fstat's size never makes it
// grow.
static int read_all(struct buf *out, int fd, const char *path, struct err *err) {
    for (;;) {
        char probe;
        size_t room = out->cap ? out->cap - 1 - out->len : 0;
        ssize_t n = read(fd, room ? out->data + out->len : &probe, room ? room : 1);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return err_errno(err, "%s: cannot be read", path);
        if (n == 0) return buf_reserve(out, 0);
        if (room) {
            out->len += (size_t)n;
            out->data[out->len] = '\0';
        } else if (buf_addc(out, probe) == E_LIMIT) {
            return too_large(err, path, out->max);
        } else if (out->error) {
            return err_set(err, E_NOMEM, "%s: no memory for %zu bytes", path, out->len);
        }
    }
}

static int64_t mono_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

// poll first: read says "end" of a named pipe that has no writer yet.
static int read_pipe(struct buf *out, int fd, const char *path, int wait_ms, struct err *err) {
    int64_t end_ms = mono_ms() + wait_ms;
    char piece[4096];
    for (;;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        int64_t left_ms = end_ms - mono_ms();
        int n_ready = left_ms > 0 ? poll(&ready, 1, (int)left_ms) : 0;
        if (n_ready == 0)
            return err_set(err, E_TIMEOUT, "%s: the pipe has not ended after %d ms", path, wait_ms);
        ssize_t n = n_ready < 0 ? -1 : read(fd, piece, sizeof piece);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n < 0) return err_errno(err, "%s: cannot be read", path);
        if (n == 0) return buf_reserve(out, 0);
        if (buf_add(out, piece, (size_t)n) == E_LIMIT) return too_large(err, path, out->max);
        if (out->error) return err_set(err, E_NOMEM, "%s: no memory for %zu bytes", path, out->len);
    }
}

static int read_path(struct buf *out, const char *path, size_t max, int wait_ms, struct err *err) {
    buf_init(out, max);
    // O_NONBLOCK: opening a pipe must not wait for a writer.
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return err_errno(err, "%s", path);
    struct stat st;
    int rc = 0;
    if (fstat(fd, &st) < 0) {
        rc = err_errno(err, "%s", path);
    } else if (S_ISDIR(st.st_mode)) {
        rc = err_set(err, E_INVAL, "%s: is a folder, not a file", path);
    } else if (S_ISFIFO(st.st_mode) && wait_ms > 0) {
        rc = read_pipe(out, fd, path, wait_ms, err);
    } else if (!S_ISREG(st.st_mode)) {
        rc = err_set(err, E_INVAL, "%s: is not a regular file", path);
    } else if ((uint64_t)st.st_size > max) {
        rc = too_large(err, path, max);
    } else if (buf_reserve(out, (size_t)st.st_size) < 0) {
        rc = err_set(err, out->error, "%s: no memory for %lld bytes", path, (long long)st.st_size);
    } else {
        rc = read_all(out, fd, path, err);
    }
    close(fd);
    return rc;
}

int buf_read_file(struct buf *out, const char *path, size_t max, struct err *err) {
    return read_path(out, path, max, 0, err);
}

int buf_read_file_or_pipe(struct buf *out, const char *path, size_t max, int wait_ms,
                          struct err *err) {
    return read_path(out, path, max, wait_ms, err);
}
