// Writes a blob in order: the file BLOB.incomplete, and the hash of its bytes.
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

// Opens or creates PATH.incomplete, and hashes its bytes; a file longer than f->size is emptied. Call blob_writer_close()
// also after an error.
int blob_writer_open(struct blob_writer *b, const char *path, const struct hub_file *f,
                     struct err *err);
int blob_writer_add(struct blob_writer *b, const void *bytes, size_t n, struct err *err);
// Puts the file on the disk under its own name. E_CORRUPT: another size or hash; then the bytes are removed.
int blob_writer_finish(struct blob_writer *b, struct err *err);
void blob_writer_close(struct blob_writer *b); // keeps PATH.incomplete
