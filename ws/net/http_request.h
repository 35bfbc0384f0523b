// The head of one HTTP request, read from libwebsockets and judged by ourselves: 4.1.6 hangs on
// chunked bodies, takes the first of two lengths, reads a malformed one as 0, and needs no Host.
#pragma once
#include "ws/net/auth.h"
#include <stdbool.h>
#include <stddef.h>

struct lws;

enum http_method {
    HTTP_GET,
    HTTP_HEAD,
    HTTP_OPTIONS,
    HTTP_DELETE,
    HTTP_POST,
    HTTP_PUT,
    HTTP_PATCH,
    HTTP_OTHER
};

struct http_request { // headers are "" when absent
    enum http_method method;
    bool chunked;    // any Transfer-Encoding
    bool bad_header; // one that we read did not fit, or holds a NUL
    bool close;      // the client wants the connection closed afterwards
    char path[256];  // without the query
    char host[256];
    bool has_length;
    char content_length[32];
    char origin[256];
    char authorization[AUTH_TOKEN_MAX + 64];
    char accept_encoding[256];
    char if_none_match[512];
};

struct http_verdict {
    int status; // 0: go on
    const char *code, *message;
    bool close;  // the rest of the connection cannot be trusted to be requests
    bool linger; // a body may still be on its way
};

void http_request_read(struct http_request *r, struct lws *wsi);
// Framing, method, Host.
struct http_verdict http_request_check(const struct http_request *r, const char *allowed_hosts);
// status that refuses the upgrade of r, or 0. protocols, version, connection, key: the WebSocket
// headers.
struct http_verdict http_request_check_upgrade(const struct http_request *r, const char *protocols,
                                               const char *version, const char *connection,
                                               size_t key_len);
