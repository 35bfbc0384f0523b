// Judging upgrades. See websocket.h.
#include "ws/net/peer.h"
#include "ws/net/websocket.h"
#include <openssl/crypto.h>
#include <string.h>

#define KEY_LEN 24 // of 16 bytes in base64

static const struct websocket_protocol *find_protocol(const struct net *n, const char *path) {
    for (size_t i = 0; i < n->n_websocket_protocols; i++)
        if (strcmp(path, n->websockets[i]->path) == 0) return n->websockets[i];
    return NULL;
}

static struct http_refusal judge_headers(const struct websocket_protocol *protocol,
                                         const struct http_head *h) {
    const char *key = h->header[HEADER_WS_KEY];
    if (!protocol) return REFUSE(404, "not_found", "WebSockets are at /ws and /v1/responses");
    if (h->method != HTTP_GET) return REFUSE(405, "unsupported", "a WebSocket begins with GET");
    if (!http_has_token(h->header[HEADER_CONNECTION], "upgrade"))
        return REFUSE(400, "bad_message", "Connection does not say Upgrade");
    if (strcmp(h->header[HEADER_WS_VERSION], "13") != 0)
        return REFUSE(426, "unsupported", "Sec-WebSocket-Version must be 13");
    if (strlen(key) != KEY_LEN ||
        strspn(key, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=") != KEY_LEN)
        return REFUSE(400, "bad_message", "Sec-WebSocket-Key is not 16 bytes in base64");
    if (h->framing != HTTP_NO_BODY) return REFUSE(400, "bad_message", "an upgrade has no body");
    return REFUSE(0, NULL, NULL);
}

static struct http_refusal judge_token(struct peer *p, const struct http_head *h,
                                       const char *token) {
    size_t len = strlen(token);
    const char *bearer = auth_bearer(h->header[HEADER_AUTHORIZATION], &len);
    if (!bearer && *token) bearer = token;
    if (auth_needs_token(p->net->auth) && !bearer)
        return p->protocol->guarded
                   ? REFUSE(401, "unauthorized", "this address needs a bearer token")
                   : REFUSE(0, NULL, NULL); // the token comes in hello
    struct http_refusal r = peer_authorise(p, bearer ? bearer : "", bearer ? len : 0);
    return r.status ? r : peer_take_request(p, 1);
}

struct http_refusal upgrade_judge(struct peer *p, const struct http_head *h) {
    const struct net *n = p->net;
    char token[AUTH_TOKEN_MAX + 1] = "";
    const char *origin = h->header[HEADER_ORIGIN];
    int rc = 0;
    struct http_refusal r = judge_headers(p->protocol = find_protocol(n, h->path), h);
    if (r.status) return r;
    const char *name = p->protocol->name;
    if (name && !auth_subprotocols(h->header[HEADER_WS_PROTOCOL], name, token, &rc))
        return REFUSE(400, "unsupported", "the sub-protocol must be parley.v1");
    if (rc < 0) return REFUSE(401, "unauthorized", "the bearer sub-protocol is not base64url");
    if (*origin && !auth_origin_allowed(origin, h->header[HEADER_HOST], n->ssl != NULL,
                                        n->config->allowed_origins))
        return REFUSE(403, "forbidden",
                      "pages of this Origin may not connect: see allowed_origins");
    if (n->life == NET_CLOSING) return REFUSE(503, "shutting_down", "the server is shutting down");
    r = judge_token(p, h, token);
    OPENSSL_cleanse(token, sizeof(token));
    if (!r.status && p->protocol->ask) p->asked = p->protocol->ask(h);
    return r;
}
