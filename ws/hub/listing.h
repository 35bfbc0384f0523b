// The files of a repository: the hub's answer to GET /api/models/ORG/NAME/revision/REVISION?blobs=true, or a snapshot's
// files. A hostile answer costs bounded memory, and no path or hash of an accepted one can leave a folder.
#pragma once
#include "base/err.h"
#include <stddef.h>
#include <stdint.h>

#define HUB_ETAG_BYTES 65
#define HUB_COMMIT_DIGITS 40
#define HUB_ANSWER_BYTES ((size_t)32 << 20) // of a listing
#define HUB_MAX_FILES 100000
#define HUB_MAX_FILE_BYTES ((int64_t)1 << 45)

struct hub_file {
    char *path; // safe (name.h)
    int64_t size;
    // SHA-256 of a large file (64 digits), or git's SHA-1 of a small one (40): also the name of its blob in the cache.
    char etag[HUB_ETAG_BYTES];
};
struct hub_listing {
    char commit[HUB_COMMIT_DIGITS + 1];
    struct hub_file *files; // (n) by path
    size_t n;
};

// *out is empty after an error. E_FORMAT: not such an answer; E_LIMIT; E_DENIED: a path that leaves the folder.
int hub_listing_parse(struct hub_listing *out, const char *json, size_t len, struct err *err);
// Adds a file. E_NOMEM, E_LIMIT.
int hub_listing_add(struct hub_listing *l, const char *path, int64_t size, const char *etag,
                    struct err *err);
void hub_listing_sort(struct hub_listing *l);
// The file of that path in a sorted list; NULL: none.
const struct hub_file *hub_listing_find(const struct hub_listing *l, const char *path);
void hub_listing_release(struct hub_listing *l);
