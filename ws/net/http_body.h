// The body of an HTTP/1 request: a length or chunks taken apart, and gzip or deflate unpacked.
// Pure functions over bytes, capped: E_LIMIT where a body is longer than its route takes.
#pragma once
#include "base/buf.h"
#include "ws/net/http_head.h"

struct http_body {
    struct buf data; // what arrived, without chunk framing
    int64_t left;    // bytes to come: of the body, or of the chunk
    bool chunked;
    enum {
        BODY_DATA,
        BODY_CHUNK_SIZE,
        BODY_CHUNK_END, // the CR LF behind a chunk
        BODY_TRAILERS,
        BODY_COMPLETE
    } state;
    char line[256]; // a chunk's size line, or a trailer
    size_t line_len, trailer_bytes;
};

// max: most bytes of data. E_LIMIT when h declares more.
int http_body_begin(struct http_body *b, const struct http_head *h, size_t max);
// Takes from bytes up to the body's end; *used says how many. 1: complete, 0: more must come.
// E_FORMAT (chunks malformed), E_LIMIT, E_NOMEM.
int http_body_feed(struct http_body *b, const char *bytes, size_t len, size_t *used);
void http_body_release(struct http_body *b);

// Unpacks gzip or zlib data into out, which the caller has initialised: its max is the bound.
// E_FORMAT, E_LIMIT, E_NOMEM. Any thread.
int http_body_unzip(const char *data, size_t len, struct buf *out);
