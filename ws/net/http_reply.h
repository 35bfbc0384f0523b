// The heads of replies, and the bodies of errors: text only, no socket.
#pragma once
#include "base/buf.h"
#include <stdbool.h>
#include <stddef.h>

// The line of the content policy; %s: further sources of scripts, and of styles. Nothing from other
// hosts, no inline script or style but those, no frame around the page. Addresses of images on
// other hosts would leak chat text. Trusted Types make sure that all HTML passes the page's one
// sanitiser.
#define CONTENT_POLICY                                                                             \
    "content-security-policy: default-src 'none'; script-src 'self'%s; style-src 'self'%s; "       \
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; manifest-src 'self'; "             \
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for "      \
    "'script'\r\n"

struct http_reply_head {
    int status;
    const char *type;  // NULL: no body
    const char *extra; // header lines, also another content policy; NULL: none
    size_t len;
    bool chunked, close;
    bool tls; // the connection is encrypted
};
// With the empty line. Adds the headers of every reply: server, security, connection.
void http_reply_write_head(struct buf *out, const struct http_reply_head *r);
// {"error":{"code":..., "message":...}}
void http_reply_write_error(struct buf *out, const char *code, const char *message);
