// Tokens and rates of calls. See caller.h.
#include "ws/kserve/grpc/caller.h"
#include "ws/net/guest.h"
#include "ws/net/long_body.h"
#include "ws/net/peer.h"
#include "ws/service.h"
#include <grpc/support/alloc.h>
#include <string.h>

// Maps HTTP's statuses to gRPC's.
static struct rpc_refusal refusal_of(struct http_refusal h) {
    static const struct {
        int http, grpc;
    } rows[] = {{401, GRPC_STATUS_UNAUTHENTICATED},
                {403, GRPC_STATUS_PERMISSION_DENIED},
                {429, GRPC_STATUS_RESOURCE_EXHAUSTED}};
    int status = h.status ? GRPC_STATUS_UNAVAILABLE : GRPC_STATUS_OK;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].http == h.status) status = rows[i].grpc;
    return (struct rpc_refusal){status, h.message, h.retry_after_ms};
}

// The connection of a call; NULL: it has ended.
static struct peer *peer_of(const struct rpc *r) {
    return guest_port_peer(r->port, r->fd);
}

static const char *bearer(const grpc_metadata_array *metadata, char header[AUTH_TOKEN_MAX + 16],
                          size_t *len) {
    for (size_t i = 0; i < metadata->count; i++) {
        const grpc_metadata *m = &metadata->metadata[i];
        size_t n = GRPC_SLICE_LENGTH(m->value);
        if (grpc_slice_str_cmp(m->key, "authorization") != 0) continue;
        if (n >= AUTH_TOKEN_MAX + 16) return NULL;
        memcpy(header, GRPC_SLICE_START_PTR(m->value), n);
        header[n] = '\0';
        return auth_bearer(header, len);
    }
    return NULL;
}

static struct rpc_refusal take_rate(struct rpc *r, struct peer *p, double cost) {
    struct net *n = p->net;
    if (rate_take(&p->rate, &n->request_limit, cost, net_now_us())) return (struct rpc_refusal){0};
    metric_add(n->metrics.http_limited, 1);
    return (struct rpc_refusal){GRPC_STATUS_RESOURCE_EXHAUSTED,
                                "too many requests on this connection: see messages_per_second",
                                rate_promise_ms(&p->rate, &n->request_limit, cost)};
}

struct rpc_refusal caller_admit(struct rpc *r, const grpc_metadata_array *metadata) {
    char header[AUTH_TOKEN_MAX + 16];
    size_t len = 0;
    struct peer *p = peer_of(r);
    if (!p) return (struct rpc_refusal){GRPC_STATUS_CANCELLED, "the connection has ended", 0};
    struct rpc_refusal no = take_rate(r, p, r->method->guarded ? NET_COST_WRITE : NET_COST_READ);
    if (no.status || !r->method->guarded) return no;
    const char *token = bearer(metadata, header, &len);
    if (!token && auth_needs_token(p->net->auth))
        return (struct rpc_refusal){GRPC_STATUS_UNAUTHENTICATED,
                                    "this method needs a bearer token in 'authorization'", 0};
    no = refusal_of(peer_authorise(p, token ? token : "", len));
    if (!no.status) no = refusal_of(peer_take_request(p, 1));
    if (!no.status) r->as = p->as;
    return no;
}

struct rpc_refusal caller_take(struct rpc *r, size_t len) {
    struct peer *p = peer_of(r);
    if (!p) return (struct rpc_refusal){GRPC_STATUS_CANCELLED, "the connection has ended", 0};
    struct rpc_refusal no = take_rate(r, p, NET_COST_WRITE * (1 + long_body_cost(p->net, len)));
    if (!no.status) no = refusal_of(peer_take_owner_request(p->net, r->as.owner, 1));
    return no;
}

bool caller_lost_token(struct rpc *r) {
    return r->as.owner && !auth_again(r->service->net->auth, &r->as);
}
