// Options, protocols and callbacks of libwebsockets. See context.h.
#include "ws/net/context.h"
#include "base/log.h"
#include "ws/net/http.h"
#include "ws/net/tls.h"
#include "ws/parley/connection.h"
#include <stdlib.h>
#include <string.h>

#define HEADER_BYTES 16384 // of a request's head; libwebsockets closes the connection beyond
#define HEADER_SECONDS 10
#define KEEPALIVE_SECONDS 30
#define RX_BYTES 2048 // per WebSocket, for as long as it lives

static int open_connection(struct peer *p, struct lws *wsi) {
    char *owner = p->owner;
    p->wsi = wsi;
    p->owner = NULL;
    if (connection_open(p, owner) == 0) return 0;
    free(owner);
    return -1;
}

static int on_websocket(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                        size_t len) {
    struct peer *p;
    switch (reason) {
    case LWS_CALLBACK_ESTABLISHED:
    case LWS_CALLBACK_RECEIVE:
    case LWS_CALLBACK_SERVER_WRITEABLE:
    case LWS_CALLBACK_WS_PEER_INITIATED_CLOSE:
    case LWS_CALLBACK_CLOSED:
        p = lws_get_opaque_user_data(wsi);
        break;
    default:
        return 0;
    }
    if (!p) return -1;
    if (reason == LWS_CALLBACK_ESTABLISHED) return open_connection(p, wsi);
    if (!p->connection) return -1;
    if (reason == LWS_CALLBACK_RECEIVE) return connection_receive(p->connection, in, len);
    if (reason == LWS_CALLBACK_SERVER_WRITEABLE) return connection_writable(p->connection);
    if (reason == LWS_CALLBACK_WS_PEER_INITIATED_CLOSE)
        return connection_peer_closes(p->connection);
    connection_close(p->connection);
    return 0;
}

static int on_http(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                   size_t len) {
    struct peer *p = NULL;
    switch (reason) {
    case LWS_CALLBACK_OPENSSL_LOAD_EXTRA_SERVER_VERIFY_CERTS:
        ((struct server *)lws_context_user(lws_get_context(wsi)))->ssl = user;
        return 0;
    // A WebSocket without sub-protocol is bound to this protocol, a CONNECT makes a raw socket of
    // it: neither is served.
    case LWS_CALLBACK_FILTER_PROTOCOL_CONNECTION:
    case LWS_CALLBACK_ESTABLISHED:
    case LWS_CALLBACK_RECEIVE:
    case LWS_CALLBACK_RAW_ADOPT:
    case LWS_CALLBACK_RAW_CONNECTED:
    case LWS_CALLBACK_RAW_RX:
        return -1;
    case LWS_CALLBACK_HTTP:
    case LWS_CALLBACK_HTTP_WRITEABLE:
    case LWS_CALLBACK_HTTP_BODY_COMPLETION:
    case LWS_CALLBACK_HTTP_CONFIRM_UPGRADE:
    case LWS_CALLBACK_WSI_DESTROY:
        p = lws_get_opaque_user_data(wsi);
        break;
    default:
        return 0;
    }
    if (!p) return reason == LWS_CALLBACK_WSI_DESTROY ? 0 : -1;
    if (reason == LWS_CALLBACK_WSI_DESTROY) {
        lws_set_opaque_user_data(wsi, NULL);
        p->destroyed = true;
        if (!p->adopting) server_free_peer(p);
        return 0;
    }
    p->wsi = wsi;
    if (reason == LWS_CALLBACK_HTTP) return http_on_request(p);
    if (reason == LWS_CALLBACK_HTTP_WRITEABLE) return http_on_writable(p);
    if (reason == LWS_CALLBACK_HTTP_BODY_COMPLETION) return http_on_body_end(p);
    return http_on_upgrade(p);
}

static const struct lws_protocols protocols[] = {
    {"http", on_http, 0, 0, 0, NULL, SERVER_CHUNK_BYTES},
    {PROTOCOL_NAME, on_websocket, 0, RX_BYTES, 0, NULL, SERVER_CHUNK_BYTES},
    {NULL, NULL, 0, 0, 0, NULL, 0},
};

// Its messages are for people who work on it: most "errors" are a client's bad request.
static void on_lws_log(int level, const char *line) {
    size_t len = strcspn(line, "\n");
    char text[512], quoted[1024];
    lws_snprintf(text, sizeof(text), "%.*s", (int)len, line);
    log_debug("lws.message", "text=%s", log_quote(quoted, sizeof(quoted), text));
}

int context_create(struct server *s, struct err *err) {
    void *loops[] = {&s->loop};
    struct lws_context_creation_info info;
    memset(&info, 0, sizeof(info));
    lws_set_log_level(LLL_ERR | LLL_WARN, on_lws_log);
    info.port = CONTEXT_PORT_NO_LISTEN_SERVER;
    info.protocols = protocols;
    info.user = s;
    info.foreign_loops = loops;
    info.pcontext = &s->context;
    info.options = LWS_SERVER_OPTION_LIBUV | LWS_SERVER_OPTION_VALIDATE_UTF8 |
                   LWS_SERVER_OPTION_EXPLICIT_VHOSTS;
    info.max_http_header_data = HEADER_BYTES;
    info.timeout_secs = HEADER_SECONDS;
    info.keepalive_timeout = KEEPALIVE_SECONDS;
    info.gid = (gid_t)-1;
    info.uid = (uid_t)-1;
    info.server_string = "parley";
    s->retry =
        (lws_retry_bo_t){.secs_since_valid_ping = (uint16_t)s->config->ping_interval,
                         .secs_since_valid_hangup = (uint16_t)(2 * s->config->ping_interval)};
    info.retry_and_idle_policy = &s->retry;
    if (*s->config->tls_cert) {
        TRY(tls_check(s->config->tls_cert, s->config->tls_key, err));
        info.options |= LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT;
        info.ssl_cert_filepath = s->config->tls_cert;
        info.ssl_private_key_filepath = s->config->tls_key;
        info.alpn =
            "http/1.1"; // its HTTP/2 has had a remote hole (CVE-2026-19773) and is on by default
    }
    s->context = lws_create_context(&info);
    if (!s->context)
        return err_set(err, E_UNSUPPORTED,
                       "libwebsockets does not start on libuv: is its package "
                       "libwebsockets-evlib-uv installed?");
    s->vhost = lws_create_vhost(s->context, &info);
    if (!s->vhost) return err_set(err, E_IO, "libwebsockets makes no server");
    return 0;
}

// libwebsockets closes its handles as the loop turns. On a loop that is not its own 4.1.6 frees its
// context only when it is told to a second time; newer versions may have done it by then
// (s->context is NULL).
void context_destroy(struct server *s) {
    for (int round = 0; round < 2 && s->context; round++) {
        lws_context_destroy(s->context);
        for (int i = 0; i < 100 && s->context; i++) uv_run(&s->loop, UV_RUN_NOWAIT);
    }
}
