// Reads the header of the database file (100 bytes, sqlite.org/fileformat.html, section 1.3) and
// the lock beside it. See look.h.
#include "sessions/store/look.h"
#include "sessions/store/columns.h"
#include "sessions/store/lock.h"
#include "sessions/store/schema.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER_BYTES = 100, USER_VERSION_AT = 60, APPLICATION_ID_AT = 68 };

static int64_t big_endian(const unsigned char *p) {
    return (int64_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3];
}

// A server holds flock() on FILE.lock from its start to its end.
static long server_of(const char *path) {
    char lock[4096];
    long pid = 0;
    if (snprintf(lock, sizeof lock, "%s.lock", path) >= (int)sizeof lock) return 0;
    int fd = open(lock, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return 0;
    if (flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK) pid = store_lock_holder(fd);
    close(fd);
    return pid;
}

static int read_header(struct store_look *out, const char *path, int fd, struct err *err) {
    unsigned char header[HEADER_BYTES];
    ssize_t n = pread(fd, header, sizeof header, 0);
    if (n < 0) return err_errno(err, "%s", path);
    if (n == 0) return 0; // just made, or all of it is still in the log
    if (n < HEADER_BYTES || memcmp(header, "SQLite format 3", 16) != 0)
        return err_set(err, E_FORMAT, "%s: is not an SQLite database", path);
    out->schema = big_endian(header + USER_VERSION_AT);
    if (out->schema && big_endian(header + APPLICATION_ID_AT) != STORE_APPLICATION_ID)
        return err_set(err, E_FORMAT, "%s: this SQLite database belongs to another program", path);
    return 0;
}

static int look_at_folder(const char *path, struct err *err) {
    char folder[4096];
    int rc = 0;
    const char *slash = strrchr(path, '/');
    size_t len = slash == path ? 1 : slash ? (size_t)(slash - path) : 0;
    if (len >= sizeof folder) return err_set(err, E_LIMIT, "the database's path is too long");
    snprintf(folder, sizeof folder, "%.*s", len ? (int)len : 1, len ? path : ".");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return err_errno(err, "%s: the folder of the database", folder);
    if (access(folder, W_OK | X_OK) < 0)
        rc = err_errno(err, "%s: the folder of the database", folder);
    if (rc == 0) rc = store_refuse_network(folder, fd, err);
    close(fd);
    return rc;
}

static int look(struct store_look *out, const char *path, struct err *err) {
    struct stat st;
    TRY(look_at_folder(path, err));
    if (stat(path, &st) < 0) return errno == ENOENT ? 0 : err_errno(err, "%s", path);
    if (!S_ISREG(st.st_mode)) return err_set(err, E_INVAL, "%s: is not a regular file", path);
    out->exists = true;
    out->bytes = st.st_size;
    out->server_pid = server_of(path);
    if (access(path, R_OK | W_OK) < 0) return err_errno(err, "%s", path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return err_errno(err, "%s", path);
    int rc = read_header(out, path, fd, err);
    close(fd);
    return rc;
}

int store_look(struct store_look *out, const char *path, struct err *err) {
    *out = (struct store_look){.ours = store_schema_version()};
    char *target = realpath(path, NULL); // the lock lies beside a link's target
    int rc = look(out, target ? target : path, err);
    free(target);
    return rc;
}
