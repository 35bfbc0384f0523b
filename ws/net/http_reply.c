// Heads of replies. See http_reply.h.
#include "ws/net/http_reply.h"
#include "base/json_form.h"
#include "ws/version.h"
#include <string.h>

#define SECURITY_HEADERS                                                                           \
    "x-content-type-options: nosniff\r\n"                                                          \
    "referrer-policy: no-referrer\r\n"                                                             \
    "cross-origin-opener-policy: same-origin\r\n"                                                  \
    "cross-origin-resource-policy: same-origin\r\n"

// A browser that came over TLS once uses TLS for a year.
#define TLS_HEADER "strict-transport-security: max-age=31536000\r\n"

static const struct {
    int status;
    const char *text;
} statuses[] = {
    {200, "OK"},
    {204, "No Content"},
    {304, "Not Modified"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {411, "Length Required"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {426, "Upgrade Required"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {505, "HTTP Version Not Supported"},
    {529, "Overloaded"}, // Anthropic's
};

static const char *status_text(int status) {
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
        if (statuses[i].status == status) return statuses[i].text;
    return "Error";
}

void http_reply_write_head(struct buf *out, const struct http_reply_head *r) {
    buf_addf(out, "HTTP/1.1 %d %s\r\nserver: parley/%s\r\n", r->status, status_text(r->status),
             PARLEY_VERSION);
    if (r->type) buf_addf(out, "content-type: %s\r\n", r->type);
    if (r->type && !r->chunked) buf_addf(out, "content-length: %zu\r\n", r->len);
    buf_addz(out, r->chunked ? "transfer-encoding: chunked\r\n" : "");
    buf_addz(out, r->close ? "connection: close\r\n" : "");
    buf_addz(out, r->extra ? r->extra : "");
    if (!r->extra || !strstr(r->extra, "content-security-policy: "))
        buf_addf(out, CONTENT_POLICY, "", "");
    buf_addz(out, r->tls ? SECURITY_HEADERS TLS_HEADER "\r\n" : SECURITY_HEADERS "\r\n");
}

void http_reply_write_error(struct buf *out, const char *code, const char *message) {
    json_form_to(out, "{error:{code:%s,message:%s}}", code, message);
    buf_addc(out, '\n');
}
