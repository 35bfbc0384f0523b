// Fetching: a text, or one file into the cache, over several connections at a time.
//
// A file is written in order: pieces that arrive early wait in memory. So FILE.incomplete is always the beginning of
// the file, at whatever moment the process is killed, and Parley and Python's tools both go on from its end. The hash
// grows with the file: no byte is read twice, except what was there before a resume.
#pragma once
#include "base/buf.h"
#include "ws/hub/transfer.h"

#define FETCH_CONNECTIONS 4
#define FETCH_PIECE_BYTES ((int64_t)8 << 20) // of one request; each connection has so much memory

struct fetch_watch {
    void (*progress)(void *ctx, int64_t more); // bytes that were written
    void (*waiting)(void *ctx, const char *why,
                    int64_t seconds); // before a try that is a second or more away
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
// Writes the blob: resumes, checks size and hash, then renames. Bytes of a resume count as progress too. E_CORRUPT: the
// bytes have another hash, and are removed; E_FORMAT: the host contradicts the hub's list; E_FULL and others of
// writing; as refusal.h.
int fetch_blob(struct hub_net *n, const struct fetch_file *f, const struct fetch_watch *w,
               struct err *err);
