// See io.h.
#include "base/io.h"
#include "base/err.h"
#include <errno.h>
#include <unistd.h>

int io_write(int fd, const void *bytes, size_t n, const char *path, struct err *err) {
    const char *p = bytes;
    while (n > 0) {
        ssize_t put = write(fd, p, n);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return err_errno(err, "cannot write %s", path);
        p += put;
        n -= (size_t)put;
    }
    return 0;
}

int io_read_at(int fd, void *out, size_t n, uint64_t at, const char *path, struct err *err) {
    char *p = out;
    while (n > 0) {
        ssize_t got = pread(fd, p, n, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return err_errno(err, "cannot read %s", path);
        if (got == 0)
            return err_set(err, E_CORRUPT, "%s: the file became shorter while it was being read",
                           path);
        p += got;
        at += (uint64_t)got;
        n -= (size_t)got;
    }
    return 0;
}
