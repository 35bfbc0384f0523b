// Whether a request may be served, judged by its head: its route, its token, the length of its body. See http_state.h.
#include "ws/net/http_state.h"
#include <string.h>

// --- the route ---

static bool matches(const char *pattern, const char *path) {
    size_t len = strlen(pattern);
    return pattern[len - 1] == '*' ? strncmp(pattern, path, len - 1) == 0
                                   : strcmp(pattern, path) == 0;
}

void http_find_route(struct http *h) {
    enum http_method m = h->head.method == HTTP_HEAD ? HTTP_GET : h->head.method;
    bool path_known = false;
    h->serves = false;
    for (size_t i = 0; h->head.path[0] && !h->serves && i < h->net->n_routes; i++) {
        const struct http_route *r = &h->net->routes[i];
        if (r->path ? !matches(r->path, h->head.path) : path_known) continue;
        if (r->is_here && !r->is_here(h->head.path)) continue;
        if (r->only_with && !*h->head.header[r->only_with]) continue;
        if (!r->methods && path_known) continue;
        h->route = r; // also for the form of its errors
        if (!r->methods) return;
        path_known = true;
        h->serves = r->methods & HTTP_METHOD(m);
    }
}

// --- the token ---

// Of Authorization, else of x-api-key, in which Anthropic's clients send theirs.
static const char *token_of(const struct http_head *h, size_t *len) {
    const char *token = auth_bearer(h->header[HEADER_AUTHORIZATION], len);
    if (token || !*h->header[HEADER_API_KEY]) return token;
    *len = strlen(h->header[HEADER_API_KEY]);
    return h->header[HEADER_API_KEY];
}

static struct http_refusal authorise(struct http *h) {
    size_t len = 0;
    const char *token = token_of(&h->head, &len);
    if (!token && auth_needs_token(h->net->auth))
        return REFUSE(401, "unauthorized", "this address needs a bearer token");
    struct http_refusal r = peer_authorise(h->peer, token ? token : "", len);
    h->authorised = !r.status;
    if (!r.status) r = peer_take_request(h->peer, 1);
    if (!r.status && h->route->admin && !h->peer->as.admin)
        r = REFUSE(403, "forbidden", "this address needs the token of an administrator");
    return r;
}

// --- the body ---

bool http_takes_long_body(const struct http *h) {
    return h->longest > (size_t)h->net->config->max_message_bytes;
}

struct http_refusal http_count_body(struct http *h, size_t bytes) {
    struct owner *o = h->peer->as.owner;
    if (!o || !http_takes_long_body(h)) return REFUSE(0, NULL, NULL);
    return long_body_count(&h->counted, h->net, o, h->route->long_kind, bytes, h->longest);
}

bool http_has_body(const struct http *h) {
    return h->head.framing == HTTP_CHUNKED || h->head.content_length > 0;
}

static size_t longest_body(const struct http *h, const struct http_route *r) {
    if (r->longest_body) return r->longest_body(h->net->user, h->head.path);
    return r->max_body == HTTP_BODY_AS_MESSAGES ? (size_t)h->net->config->max_message_bytes
                                                : r->max_body;
}

// The setting that a longest body comes from; NULL: it is fixed.
static const char *longest_setting(const struct http *h) {
    if (h->route->longest_body)
        return h->route->long_kind == LONG_INFERENCES ? "max_infer_bytes"
                                                      : "max_conversation_bytes";
    return h->longest == (size_t)h->net->config->max_message_bytes ? "max_message_bytes" : NULL;
}

struct http_refusal http_too_long(struct http *h, const char *body) {
    const char *setting = longest_setting(h);
    err_set(&h->net->refusal, E_LIMIT, "the %s is too long: more than %zu bytes%s%s%s", body,
            h->longest, setting ? " (" : "", setting ? setting : "", setting ? ")" : "");
    return REFUSE(413, "too_large", h->net->refusal.text);
}

struct http_refusal http_judge(struct http *h) {
    const struct http_route *r = h->route;
    if (h->head.lacks_length && !(h->serves && r->body_optional))
        return REFUSE(411, "bad_message", "Content-Length is missing");
    if (!r || !r->methods) return REFUSE(404, "not_found", "there is nothing at this address");
    if (!h->serves) return REFUSE(405, "unsupported", "this method is not served here");
    if (r->guarded) {
        struct http_refusal denied = authorise(h);
        if (denied.status) return denied;
    }
    if (http_has_body(h) && r->max_body == 0)
        return REFUSE(413, "too_large", "no request here takes a body");
    h->longest = longest_body(h, r);
    if (http_body_begin(&h->body, &h->head, h->longest) < 0) return http_too_long(h, "body");
    return http_count_body(h, h->head.framing == HTTP_LENGTH ? (size_t)h->head.content_length : 0);
}
