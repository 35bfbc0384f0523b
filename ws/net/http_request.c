// Reading and judging request heads. See http_request.h.
#include "ws/net/http_request.h"
#include <libwebsockets.h>
#include <string.h>
#include <strings.h>

// *bad: it did not fit, or holds a NUL (a %00 in the path is decoded by now, and would cut it
// short).
static bool copy(struct lws *wsi, enum lws_token_indexes token, char *out, int cap, bool *bad) {
    out[0] = '\0';
    int n = lws_hdr_total_length(wsi, token);
    if (n <= 0) return false;
    if (n >= cap || lws_hdr_copy(wsi, out, cap, token) < 0 || strlen(out) != (size_t)n) {
        out[0] = '\0';
        *bad = true;
    }
    return true;
}

static enum http_method read_method(struct lws *wsi, struct http_request *r) {
    static const struct {
        enum lws_token_indexes token;
        enum http_method method;
    } methods[] = {
        {WSI_TOKEN_GET_URI, HTTP_GET},         {WSI_TOKEN_HEAD_URI, HTTP_HEAD},
        {WSI_TOKEN_OPTIONS_URI, HTTP_OPTIONS}, {WSI_TOKEN_DELETE_URI, HTTP_DELETE},
        {WSI_TOKEN_POST_URI, HTTP_POST},       {WSI_TOKEN_PUT_URI, HTTP_PUT},
        {WSI_TOKEN_PATCH_URI, HTTP_PATCH},
    };
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
        if (copy(wsi, methods[i].token, r->path, sizeof(r->path), &r->bad_header))
            return methods[i].method;
    return HTTP_OTHER;
}

void http_request_read(struct http_request *r, struct lws *wsi) {
    char version[16], connection[64];
    bool ignored = false;
    memset(r, 0, sizeof(*r));
    r->method = read_method(wsi, r);
    r->chunked = lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_TRANSFER_ENCODING) > 0;
    copy(wsi, WSI_TOKEN_HOST, r->host, sizeof(r->host), &r->bad_header);
    r->has_length = copy(wsi, WSI_TOKEN_HTTP_CONTENT_LENGTH, r->content_length,
                         sizeof(r->content_length), &r->bad_header);
    copy(wsi, WSI_TOKEN_ORIGIN, r->origin, sizeof(r->origin), &r->bad_header);
    copy(wsi, WSI_TOKEN_HTTP_AUTHORIZATION, r->authorization, sizeof(r->authorization),
         &r->bad_header);
    // Without these two an answer is only longer.
    copy(wsi, WSI_TOKEN_HTTP_ACCEPT_ENCODING, r->accept_encoding, sizeof(r->accept_encoding),
         &ignored);
    copy(wsi, WSI_TOKEN_HTTP_IF_NONE_MATCH, r->if_none_match, sizeof(r->if_none_match), &ignored);
    copy(wsi, WSI_TOKEN_HTTP, version, sizeof(version), &ignored);
    copy(wsi, WSI_TOKEN_CONNECTION, connection, sizeof(connection), &ignored);
    r->close = strcmp(version, "HTTP/1.1") != 0 || strcasecmp(connection, "close") == 0;
}

#define REFUSE(status, code, message, close, linger)                                               \
    ((struct http_verdict){status, code, message, close, linger})

static bool length_valid(const char *s) {
    size_t n = strspn(s, "0123456789");
    return n > 0 && n <= 18 && s[n] == '\0';
}

static bool has_body(const struct http_request *r) {
    return r->has_length && strspn(r->content_length, "0") != strlen(r->content_length);
}

struct http_verdict http_request_check(const struct http_request *r, const char *allowed_hosts) {
    if (r->chunked)
        return REFUSE(501, "unsupported", "Transfer-Encoding is not supported: send Content-Length",
                      true, true);
    if (r->bad_header)
        return REFUSE(431, "too_large", "a header or the path is too long, or holds a NUL", true,
                      true);
    if (r->has_length && !length_valid(r->content_length))
        return REFUSE(400, "bad_message", "Content-Length is not a number", true, true);
    bool takes_body = r->method == HTTP_POST || r->method == HTTP_PUT || r->method == HTTP_PATCH;
    if (takes_body && !r->has_length)
        return REFUSE(411, "bad_message", "Content-Length is missing", true, true);
    if (!r->host[0]) return REFUSE(400, "bad_message", "Host is missing", true, has_body(r));
    if (!auth_host_allowed(r->host, allowed_hosts))
        return REFUSE(403, "forbidden", "this Host is not one of the server's: see allowed_hosts",
                      true, has_body(r));
    if (r->method != HTTP_GET && r->method != HTTP_HEAD)
        return REFUSE(405, "unsupported", "only GET and HEAD are known here", true,
                      takes_body || has_body(r));
    if (has_body(r)) return REFUSE(413, "too_large", "no request here takes a body", true, true);
    return REFUSE(0, NULL, NULL, false, false);
}

// A token of a comma-separated header, whatever its case.
static bool has_token(const char *header, const char *token) {
    size_t len = strlen(token);
    for (const char *p = header; *p;) {
        p += strspn(p, ", \t");
        size_t n = strcspn(p, ", \t");
        if (n == len && strncasecmp(p, token, n) == 0) return true;
        p += n;
    }
    return false;
}

struct http_verdict http_request_check_upgrade(const struct http_request *r, const char *protocols,
                                               const char *version, const char *connection,
                                               size_t key_len) {
    int rc;
    char token[AUTH_TOKEN_MAX + 1];
    if (strcmp(r->path, "/ws") != 0)
        return REFUSE(404, "not_found", "WebSockets are at /ws", true, false);
    if (r->method != HTTP_GET)
        return REFUSE(405, "unsupported", "a WebSocket begins with GET", true, false);
    if (!has_token(connection, "upgrade"))
        return REFUSE(400, "bad_message", "Connection does not say Upgrade", true, false);
    if (strcmp(version, "13") != 0)
        return REFUSE(426, "unsupported", "Sec-WebSocket-Version must be 13", true, false);
    if (key_len != 24)
        return REFUSE(400, "bad_message", "Sec-WebSocket-Key is not 16 bytes in base64", true,
                      false);
    if (!auth_subprotocols(protocols, token, &rc))
        return REFUSE(400, "unsupported", "the sub-protocol must be parley.v1", true, false);
    if (rc < 0)
        return REFUSE(401, "unauthorized", "the bearer sub-protocol is not base64url", true, false);
    return REFUSE(0, NULL, NULL, false, false);
}
