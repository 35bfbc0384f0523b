// Routes, replies, and what 4.1.6 leaves to us. See http.h.
#include "ws/net/http.h"
#include "base/log.h"
#include "ws/net/health.h"
#include "ws/net/http_request.h"
#include "ws/net/page.h"
#include "ws/version.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <utlist.h>

#define REPLY_SECONDS 120 // for a whole reply, however slowly it is read
#define LINGER_SECONDS 2
#define SWEEP_US 10000

// --- replies ---

static const char *status_text(int status) {
    switch (status) {
    case 200:
        return "OK";
    case 304:
        return "Not Modified";
    case 400:
        return "Bad Request";
    case 401:
        return "Unauthorized";
    case 403:
        return "Forbidden";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 411:
        return "Length Required";
    case 413:
        return "Content Too Large";
    case 426:
        return "Upgrade Required";
    case 431:
        return "Request Header Fields Too Large";
    case 501:
        return "Not Implemented";
    case 503:
        return "Service Unavailable";
    }
    return "Internal Server Error";
}

static void count(struct server *s, int status) {
    metric_add(status < 400   ? s->metrics.http_2xx
               : status < 500 ? s->metrics.http_4xx
                              : s->metrics.http_5xx,
               1);
}

static void drop_reply(struct peer *p) {
    free(p->reply.owned);
    memset(&p->reply, 0, sizeof(p->reply));
}

// The whole reply has been handed to the kernel.
static int reply_sent(struct peer *p) {
    bool closes = p->reply.close, lingers = p->reply.linger;
    drop_reply(p);
    if (!closes) {
        server_fly(p, false);
        return lws_http_transaction_completed(p->wsi) ? -1 : 0;
    }
    if (!lingers) {
        server_fly(p, false);
        return -1;
    }
    // Closing while bytes of a body wait unread would reset the connection, and the client might
    // never see the reply.
    p->lingering = true;
    server_fly(p, true);
    if (!p->server->ssl) shutdown(lws_get_socket_fd(p->wsi), SHUT_WR);
    lws_set_timeout(p->wsi, PENDING_TIMEOUT_USER_OK, LINGER_SECONDS);
    return 0;
}

static int reply_go_on(struct peer *p) {
    struct http_reply *r = &p->reply;
    if (lws_partial_buffered(p->wsi) || r->sent < r->len) {
        server_fly(p, true);
        lws_callback_on_writable(p->wsi);
        return 0;
    }
    return reply_sent(p);
}

// Writes the head, with the body where it is small, and arranges for the rest. extra: further
// header lines.
static int reply(struct peer *p, const struct http_request *q, int status, const char *type,
                 const char *extra, const unsigned char *body, size_t len) {
    struct http_reply *r = &p->reply;
    struct buf *tx = server_tx(p->server);
    bool bare = status == 304;
    count(p->server, status);
    buf_addf(tx, "HTTP/1.1 %d %s\r\nserver: parley/%s\r\n", status, status_text(status),
             PARLEY_VERSION);
    if (!bare) buf_addf(tx, "content-type: %s\r\ncontent-length: %zu\r\n", type, len);
    buf_addz(tx, r->close ? "connection: close\r\n" : "");
    buf_addz(tx, extra);
    buf_addz(tx, page_security_headers);
    buf_addz(tx, "\r\n");
    if (bare || (q && q->method == HTTP_HEAD)) len = 0;
    r->body = body;
    r->len = len;
    r->sent = 0;
    if (tx->len - LWS_PRE + len <= SERVER_CHUNK_BYTES) {
        buf_add(tx, body, len);
        r->sent = len;
    }
    if (tx->error) return -1;
    lws_set_timeout(p->wsi, PENDING_TIMEOUT_HTTP_CONTENT, REPLY_SECONDS);
    if (server_write(p, tx->len - LWS_PRE, LWS_WRITE_HTTP_HEADERS) < 0) return -1;
    return reply_go_on(p);
}

int http_on_writable(struct peer *p) {
    struct http_reply *r = &p->reply;
    if (!p->flying || p->lingering) return 0;
    if (r->sent < r->len) {
        struct buf *tx = server_tx(p->server);
        size_t n = r->len - r->sent < SERVER_CHUNK_BYTES ? r->len - r->sent : SERVER_CHUNK_BYTES;
        if (buf_add(tx, r->body + r->sent, n) < 0) return -1;
        r->sent += n;
        if (server_write(p, n, LWS_WRITE_HTTP) < 0) return -1;
    }
    return reply_go_on(p);
}

int http_on_body_end(struct peer *p) {
    return p->lingering ? -1 : 0;
}

static void write_error(struct buf *out, const char *code, const char *message) {
    struct json_writer w;
    json_writer_init(&w, out);
    json_open(&w, NULL, '{');
    json_open(&w, "error", '{');
    json_put_string(&w, "code", code);
    json_put_string(&w, "message", message);
    json_close(&w, '}');
    json_close(&w, '}');
    buf_addc(out, '\n');
}

static int reply_error(struct peer *p, const struct http_request *q, int status, const char *code,
                       const char *message) {
    struct buf body;
    buf_init(&body, 4096);
    write_error(&body, code, message);
    const char *extra = status == 405   ? "allow: GET, HEAD\r\ncache-control: no-store\r\n"
                        : status == 401 ? "www-authenticate: Bearer\r\ncache-control: no-store\r\n"
                        : status == 426 ? "sec-websocket-version: 13\r\nupgrade: websocket\r\n"
                                        : "cache-control: no-store\r\n";
    p->reply.owned = (unsigned char *)buf_take(&body, NULL);
    if (!p->reply.owned) return -1;
    return reply(p, q, status, "application/json", extra, p->reply.owned,
                 strlen((char *)p->reply.owned));
}

static int reply_buf(struct peer *p, const struct http_request *q, int status, const char *type,
                     struct buf *body) {
    size_t len = 0;
    p->reply.owned = (unsigned char *)buf_take(body, &len);
    if (!p->reply.owned) return reply_error(p, q, 500, "internal", "no memory for the answer");
    return reply(p, q, status, type, "cache-control: no-store\r\n", p->reply.owned, len);
}

// --- routes ---

static int reply_page(struct peer *p, const struct http_request *q, const struct page_asset *a) {
    char etag[72], extra[256];
    bool gzip = page_accepts_gzip(q->accept_encoding);
    page_etag(a, gzip, etag);
    // no-cache: kept, but asked for again each time; a new build shows at the next reload.
    lws_snprintf(extra, sizeof(extra),
                 "etag: %s\r\ncache-control: no-cache\r\nvary: accept-encoding\r\n%s", etag,
                 gzip ? "content-encoding: gzip\r\n" : "");
    if (q->if_none_match[0] && page_etag_matches(q->if_none_match, etag))
        return reply(p, q, 304, a->content_type, extra, NULL, 0);
    if (gzip) return reply(p, q, 200, a->content_type, extra, a->gz, a->gz_len);
    if (page_inflate(a, &p->reply.owned) < 0)
        return reply_error(p, q, 500, "internal", "no memory for the page");
    return reply(p, q, 200, a->content_type, extra, p->reply.owned, a->raw_len);
}

typedef int (*health_fn)(struct server *s, struct buf *out); // returns the status

static const struct {
    const char *path, *type;
    health_fn fn;
    bool guarded; // where tokens are in use, one is needed
} routes[] = {
    {"/healthz", "application/json", health_live, false},
    {"/readyz", "application/json", health_ready, false},
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8", health_metrics, true},
    {"/config", "application/json", health_config, true},
};

static bool authorised(const struct server *s, const struct http_request *q) {
    size_t len = 0;
    const char *token = auth_bearer(q->authorization, &len);
    return !auth_needs_token(s->auth) || (token && auth_owner(s->auth, token, len));
}

static int route(struct peer *p, const struct http_request *q) {
    struct buf body;
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
        if (strcmp(routes[i].path, q->path) != 0) continue;
        if (routes[i].guarded && !authorised(p->server, q))
            return reply_error(p, q, 401, "unauthorized", "this address needs a bearer token");
        buf_init(&body, 1 << 20);
        int status = routes[i].fn(p->server, &body);
        int rc = reply_buf(p, q, status, routes[i].type, &body);
        buf_release(&body);
        return rc;
    }
    if (strcmp(q->path, "/ws") == 0)
        return reply_error(p, q, 426, "unsupported",
                           "this address speaks WebSocket only, sub-protocol parley.v1");
    const struct page_asset *asset = page_find(q->path);
    if (asset) return reply_page(p, q, asset);
    return reply_error(p, q, 404, "not_found", "there is nothing at this address");
}

int http_on_request(struct peer *p) {
    struct http_request q;
    http_request_read(&q, p->wsi);
    struct http_verdict v = http_request_check(&q, p->server->config->allowed_hosts);
    drop_reply(p);
    p->reply.close = q.close || v.close;
    p->reply.linger = v.linger;
    if (v.status) {
        log_debug("http.refused", "status=%d", v.status);
        return reply_error(p, &q, v.status, v.code, v.message);
    }
    return route(p, &q);
}

// --- upgrade ---

// The reply is small and the socket young, so one write takes it; -1 then closes behind it.
static int refuse(struct peer *p, const struct http_request *q, int status, const char *code,
                  const char *message) {
    log_info("ws.refused", "status=%d code=%s", status, code);
    p->reply.close = true;
    p->reply.linger = false;
    reply_error(p, q, status, code, message);
    drop_reply(p);
    server_fly(p, false);
    return -1;
}

static void header(struct lws *wsi, enum lws_token_indexes token, char *out, int cap) {
    if (lws_hdr_total_length(wsi, token) >= cap || lws_hdr_copy(wsi, out, cap, token) < 0)
        out[0] = '\0';
}

static int take_token(struct peer *p, const struct http_request *q, const char *protocols) {
    char token[AUTH_TOKEN_MAX + 1];
    int ignored;
    size_t len = 0;
    const char *bearer = auth_bearer(q->authorization, &len);
    auth_subprotocols(protocols, token, &ignored);
    if (!bearer && token[0]) {
        bearer = token;
        len = strlen(token);
    }
    if (!auth_needs_token(p->server->auth) || bearer) {
        const char *owner = auth_owner(p->server->auth, bearer ? bearer : "", len);
        if (!owner) return E_DENIED;
        free(p->owner);
        p->owner = strdup(owner);
        if (!p->owner) return E_NOMEM;
    }
    lws_explicit_bzero(token, sizeof(token));
    return 0;
}

int http_on_upgrade(struct peer *p) {
    struct server *s = p->server;
    struct http_request q;
    char upgrade[32] = "", protocols[AUTH_TOKEN_MAX * 2] = "", version[8] = "",
         connection[128] = "";
    // CVE-2025-11677: 4.1.6 comes here with freed memory after an unknown Upgrade on a kept-alive
    // connection. Its argument is not looked at, the header is read anew, and everything but
    // websocket ends the connection.
    header(p->wsi, WSI_TOKEN_UPGRADE, upgrade, sizeof(upgrade));
    if (strcasecmp(upgrade, "websocket") != 0) return -1;
    http_request_read(&q, p->wsi);
    header(p->wsi, WSI_TOKEN_PROTOCOL, protocols, sizeof(protocols));
    header(p->wsi, WSI_TOKEN_VERSION, version, sizeof(version));
    header(p->wsi, WSI_TOKEN_CONNECTION, connection, sizeof(connection));

    struct http_verdict v = http_request_check(&q, s->config->allowed_hosts);
    if (!v.status)
        v = http_request_check_upgrade(&q, protocols, version, connection,
                                       (size_t)lws_hdr_total_length(p->wsi, WSI_TOKEN_KEY));
    if (v.status) return refuse(p, &q, v.status, v.code, v.message);
    if (q.origin[0] &&
        !auth_origin_allowed(q.origin, q.host, s->ssl != NULL, s->config->allowed_origins))
        return refuse(p, &q, 403, "forbidden",
                      "pages of this Origin may not connect: see allowed_origins");
    if (s->state == SERVER_CLOSING)
        return refuse(p, &q, 503, "shutting_down", "the server is shutting down");
    int rc = take_token(p, &q, protocols);
    lws_explicit_bzero(protocols, sizeof(protocols));
    lws_explicit_bzero(q.authorization, sizeof(q.authorization));
    if (rc == E_NOMEM) return refuse(p, &q, 503, "overloaded", "no memory for another connection");
    if (rc < 0) return refuse(p, &q, 401, "unauthorized", "nobody has this token");
    return 0;
}

// --- in flight ---

static void kill_peer(struct peer *p) {
    server_fly(p, false);
    server_kill(p);
}

static void drain_lingering(struct peer *p) {
    char dropped[4096];
    int fd = lws_get_socket_fd(p->wsi);
    for (int i = 0; i < 16; i++) {
        ssize_t n = recv(fd, dropped, sizeof(dropped), MSG_DONTWAIT);
        if (n > 0) continue;
        if (n == 0 || (errno != EAGAIN && errno != EINTR)) kill_peer(p);
        return;
    }
}

void http_sweep(struct server *s) {
    struct peer *p, *next;
    if (!s->in_flight) return;
    int64_t now = server_now_us();
    bool due = now - s->sweep_us >= SWEEP_US;
    if (due) s->sweep_us = now;
    for (p = s->in_flight; p; p = next) {
        char byte;
        next = p->flight_next;
        if (p->lingering) {
            drain_lingering(p);
            continue;
        }
        if (!due) continue;
        ssize_t n = recv(lws_get_socket_fd(p->wsi), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (n >= 0 || (errno != EAGAIN && errno != EINTR)) kill_peer(p);
    }
}

void http_forget(struct peer *p) {
    server_fly(p, false);
    drop_reply(p);
    free(p->owner);
    p->owner = NULL;
}
