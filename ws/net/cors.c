// Requests of pages from other origins. See cors.h.
#include "ws/net/cors.h"
#include "ws/net/net.h"
#include "ws/net/peer.h"
#include <string.h>

// Whether the request's Origin is not this server's own page.
static bool is_foreign(const struct net *n, const struct http_head *h) {
    const char *origin = h->header[HEADER_ORIGIN];
    return *origin && !auth_origin_allowed(origin, h->header[HEADER_HOST], n->ssl != NULL, "");
}

bool cors_is_listed(const struct net *n, const struct http_head *h) {
    return is_foreign(n, h) && auth_origin_allowed(h->header[HEADER_ORIGIN], h->header[HEADER_HOST],
                                                   n->ssl != NULL, n->config->allowed_origins);
}

bool cors_is_preflight(const struct http_head *h) {
    return h->method == HTTP_OPTIONS && *h->header[HEADER_ORIGIN] && *h->header[HEADER_CORS_METHOD];
}

struct http_refusal cors_judge(const struct net *n, const struct http_head *h) {
    bool reads = h->method == HTTP_GET || h->method == HTTP_HEAD;
    if (reads || !is_foreign(n, h) || cors_is_listed(n, h)) return REFUSE(0, NULL, NULL);
    // A page that knows a token has it from the token's owner.
    if (auth_needs_token(n->auth) && !cors_is_preflight(h)) return REFUSE(0, NULL, NULL);
    return REFUSE(403, "forbidden",
                  "pages of this Origin may not send requests: see allowed_origins");
}

void cors_put_headers(const struct http_head *h, struct buf *out) {
    buf_addf(out,
             "access-control-allow-origin: %s\r\naccess-control-expose-headers: *\r\n"
             "vary: origin\r\n",
             h->header[HEADER_ORIGIN]);
}

void cors_put_permission(const struct http_head *h, struct buf *out) {
    // By name: a wildcard does not include Authorization.
    const char *wanted = h->header[HEADER_CORS_HEADERS];
    buf_addz(out, "access-control-allow-methods: GET, HEAD, POST, PUT, PATCH, DELETE\r\n"
                  "access-control-max-age: 600\r\n");
    if (*wanted) buf_addf(out, "access-control-allow-headers: %s\r\n", wanted);
    // Browsers let a page of the internet into a private network only with the server's consent. allowed_origins gives
    // it.
    if (strcmp(h->header[HEADER_CORS_PRIVATE], "true") == 0)
        buf_addz(out, "access-control-allow-private-network: true\r\n");
}
