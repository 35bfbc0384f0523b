// A blob that is written from its beginning to its end: BLOB.incomplete and the hash of what it holds.
#pragma once
#include "ws/hub/listing.h"
#include <limits.h>

struct blob_writer {
    const struct hub_file *file;
    char path[PATH_MAX], incomplete[PATH_MAX];
    int fd;
    int64_t written; // bytes in the file, all of them in the hash
    void *hash;      // EVP_MD_CTX
};

// Opens or makes PATH.incomplete and reads what it holds; one that is too long begins again. blob_writer_close() also
// after an error.
int blob_writer_open(struct blob_writer *b, const char *path, const struct hub_file *f,
                     struct err *err);
int blob_writer_add(struct blob_writer *b, const void *bytes, size_t n, struct err *err);
// Puts the file on the disk under its own name. E_CORRUPT: another size or hash; then the bytes are removed.
int blob_writer_finish(struct blob_writer *b, struct err *err);
void blob_writer_close(struct blob_writer *b); // keeps PATH.incomplete
