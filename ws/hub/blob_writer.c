// See blob_writer.h.
#include "ws/hub/blob_writer.h"
#include "base/io.h"
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_BYTES ((size_t)1 << 20)

static bool is_sha256(const struct hub_file *f) {
    return strlen(f->etag) == 64;
}

static int no_hash(struct err *err) {
    return err_set(err, E_NOMEM, "OpenSSL has no memory for a hash");
}

// git's hash of a file begins with its kind and length.
static int begin_hash(struct blob_writer *b, struct err *err) {
    char head[48];
    if (!b->hash) b->hash = EVP_MD_CTX_new();
    if (!b->hash ||
        !EVP_DigestInit_ex(b->hash, is_sha256(b->file) ? EVP_sha256() : EVP_sha1(), NULL))
        return no_hash(err);
    int n = snprintf(head, sizeof head, "blob %lld", (long long)b->file->size) + 1;
    if (!is_sha256(b->file) && !EVP_DigestUpdate(b->hash, head, (size_t)n)) return no_hash(err);
    b->written = 0;
    return 0;
}

static int start_again(struct blob_writer *b, struct err *err) {
    if (ftruncate(b->fd, 0) < 0 || lseek(b->fd, 0, SEEK_SET) < 0)
        return err_errno(err, "cannot write %s", b->incomplete);
    return begin_hash(b, err);
}

static int read_beginning(struct blob_writer *b, struct err *err) {
    char *bytes = malloc(READ_BYTES);
    ssize_t n = 0;
    int rc = bytes ? 0 : err_set(err, E_NOMEM, "no memory to read %s", b->incomplete);
    while (rc == 0 && b->written <= b->file->size && (n = read(b->fd, bytes, READ_BYTES)) > 0) {
        if (!EVP_DigestUpdate(b->hash, bytes, (size_t)n)) rc = no_hash(err);
        b->written += n;
    }
    if (rc == 0 && n < 0) rc = err_errno(err, "cannot read %s", b->incomplete);
    free(bytes);
    return rc == 0 && b->written > b->file->size ? start_again(b, err) : rc;
}

int blob_writer_open(struct blob_writer *b, const char *path, const struct hub_file *f,
                     struct err *err) {
    *b = (struct blob_writer){.file = f, .fd = -1};
    if (snprintf(b->path, sizeof b->path, "%s", path) >= PATH_MAX - 16)
        return err_set(err, E_LIMIT, "the path %.300s... is too long", path);
    snprintf(b->incomplete, sizeof b->incomplete, "%.*s.incomplete", PATH_MAX - 16, b->path);
    b->fd = open(b->incomplete, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (b->fd < 0) return err_errno(err, "cannot create %s", b->incomplete);
    TRY(begin_hash(b, err));
    return read_beginning(b, err);
}

int blob_writer_add(struct blob_writer *b, const void *bytes, size_t n, struct err *err) {
    TRY(io_write(b->fd, bytes, n, b->incomplete, err));
    if (!EVP_DigestUpdate(b->hash, bytes, n)) return no_hash(err);
    b->written += (int64_t)n;
    return 0;
}

static int check_hash(struct blob_writer *b, struct err *err) {
    unsigned char digest[EVP_MAX_MD_SIZE];
    char text[2 * EVP_MAX_MD_SIZE + 1] = "";
    unsigned n = 0;
    if (!EVP_DigestFinal_ex(b->hash, digest, &n)) return no_hash(err);
    for (unsigned i = 0; i < n; i++) snprintf(text + 2 * i, 3, "%02x", digest[i]);
    if (b->written == b->file->size && strcmp(text, b->file->etag) == 0) return 0;
    unlink(b->incomplete);
    return err_set(
        err, E_CORRUPT, "%s: what arrived has the %s %.16s..., not %.16s...: it was removed",
        b->file->path, is_sha256(b->file) ? "SHA-256" : "SHA-1 of git", text, b->file->etag);
}

// Puts the folder on the disk, so that the new name survives a power loss. Some file systems cannot sync a folder, so an
// error is ignored: the bytes are on the disk, and at worst the next pull fetches them again.
static void sync_folder(const char *path) {
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = '\0';
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    fsync(fd);
    close(fd);
}

// The name must not be on the disk before the bytes are.
int blob_writer_finish(struct blob_writer *b, struct err *err) {
    TRY(check_hash(b, err));
    if (fdatasync(b->fd) < 0) return err_errno(err, "cannot write %s", b->incomplete);
    if (rename(b->incomplete, b->path) < 0)
        return err_errno(err, "cannot rename %s", b->incomplete);
    sync_folder(b->path);
    return 0;
}

void blob_writer_close(struct blob_writer *b) {
    if (b->fd >= 0) close(b->fd);
    EVP_MD_CTX_free(b->hash);
    b->fd = -1;
    b->hash = NULL;
}
