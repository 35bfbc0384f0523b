// The heads of replies, and the bodies of errors: text only, no socket.
#pragma once
#include "base/buf.h"
#include <stdbool.h>
#include <stddef.h>

struct http_reply_head {
    int status;
    const char *type;  // NULL: no body
    const char *extra; // header lines; NULL: none
    size_t len;
    bool chunked, close;
    bool tls; // the connection is encrypted
};
void http_reply_write_head(struct buf *out, const struct http_reply_head *r);
// {"error":{"code":..., "message":...}}
void http_reply_write_error(struct buf *out, const char *code, const char *message);
