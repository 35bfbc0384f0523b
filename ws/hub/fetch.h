// Fetching: a text, or one file into the cache, over several connections at a time.
//
// A file is written in order: pieces that arrive early wait in memory. So FILE.incomplete is always a prefix of the file,
// also after kill -9, and both Parley and Python's tools can resume it. The hash is updated with each write; only a
// resume reads the file.
#pragma once
#include "base/buf.h"
#include "ws/hub/transfer.h"

#define FETCH_CONNECTIONS 4
#define FETCH_PIECE_BYTES ((int64_t)8 << 20) // of one request, and of each connection's memory

struct fetch_watch {
    void (*progress)(void *ctx, int64_t more); // bytes written; negative: bytes removed
    void (*waiting)(void *ctx, const char *why, int64_t seconds); // before a retry, if 1 s or more
    void *ctx;
};

// The body of an answer of at most max bytes, with retries. Initialises *out.
int fetch_text(struct hub_net *n, const char *url, const char *repo, const char *what, size_t max,
               struct buf *out, const struct fetch_watch *w, struct err *err);

struct fetch_file {
    const char *url, *repo;      // the hub's own address
    const struct hub_file *file; // size and hash
    const char *path;            // of the blob; path.incomplete is its beginning
};
// Writes the blob: resumes, checks size and hash, then renames. Resumed bytes count as progress. E_CORRUPT: the hash is
// wrong, and the file was removed; E_FORMAT: the host contradicts the hub's list; E_FULL, E_IO: writing failed; codes of
// refusal.h.
int fetch_blob(struct hub_net *n, const struct fetch_file *f, const struct fetch_watch *w,
               struct err *err);
