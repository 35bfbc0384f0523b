// Entries of connections. See peer.h.
#include "ws/net/peer.h"
#include <stdlib.h>
#include <utlist.h>

#define UNKNOWN_SHARE 4 // of max_connections: one in so many

// --- places ------------------------------------------------------------------

bool peers_are_crowded(const struct net *n) {
    bool full = n->n_peers >= n->config->max_connections;
    bool crowded = n->n_unknown > n->config->max_connections / UNKNOWN_SHARE;
    return (full || crowded) && n->unknown;
}

int peer_new(struct peer **out, struct net *n, const struct sockaddr *addr) {
    if (n->n_peers >= n->config->max_connections) return E_LIMIT;
    struct peer *p = calloc(1, sizeof(*p));
    if (!p) return E_NOMEM;
    // Behind a reverse proxy all clients have its address; their owners have limits of their own.
    int64_t most = ip_is_loopback(addr) ? INT64_MAX : n->config->max_connections_per_ip;
    int rc = ip_table_add(&n->ips, addr, most, &p->ip);
    if (rc < 0) {
        free(p);
        return rc == E_LIMIT ? E_BUSY : rc;
    }
    p->net = n;
    p->number = ++n->last_peer;
    n->n_peers++;
    DL_APPEND(n->peers, p);
    DL_APPEND2(n->unknown, p, unknown_prev, unknown_next);
    n->n_unknown++;
    if (!auth_needs_token(n->auth)) peer_authorise(p, "", 0);
    *out = p;
    return 0;
}

static void known(struct peer *p) {
    struct net *n = p->net;
    if (!p->unknown_prev) return;
    DL_DELETE2(n->unknown, p, unknown_prev, unknown_next);
    p->unknown_prev = NULL;
    n->n_unknown--;
}

void peer_evict(struct peer *p) {
    known(p);
    p->evicted = true;
    p->net->n_peers--;
}

void peer_free(struct peer *p) {
    struct net *n = p->net;
    if (!p->evicted) n->n_peers--;
    known(p);
    if (p->as.owner) owner_use(p->as.owner, OWNER_CONNECTIONS, -1);
    ip_table_remove(&n->ips, p->ip);
    DL_DELETE(n->peers, p);
    free(p->asked);
    free(p);
}

// --- owners ------------------------------------------------------------------

static struct http_refusal refuse_limit(struct net *n, struct owner *o, enum owner_limit which,
                                        const char *code, int64_t retry_after_ms) {
    owner_refuse(&n->owners, o, which, &n->refusal);
    return (struct http_refusal){429, code, n->refusal.text, retry_after_ms};
}

struct http_refusal peer_authorise(struct peer *p, const char *token, size_t len) {
    struct net *n = p->net;
    int64_t now = net_now_us();
    const struct ip_key *addr = ip_entry_key(p->ip);
    const struct auth_token *t = auth_find(n->auth, token, len);
    int64_t locked_us = lockout_wait_us(&n->lockout, addr, now);
    if (locked_us && auth_needs_token(n->auth) && (!t || len < LOCKOUT_LONG)) {
        metric_add(n->metrics.locked_out, 1);
        return (struct http_refusal){429, "rate_limited", "too many wrong tokens from this address",
                                     locked_us / 1000 + 1};
    }
    if (!t) {
        lockout_wrong(&n->lockout, addr, now);
        return REFUSE(401, "unauthorized", "invalid token");
    }
    if (t->owner != p->as.owner) {
        if (!owner_has_room(t->owner, OWNER_CONNECTIONS, 1))
            return refuse_limit(n, t->owner, OWNER_CONNECTIONS, "limit_reached", 0);
        if (p->as.owner) owner_use(p->as.owner, OWNER_CONNECTIONS, -1);
        owner_use(t->owner, OWNER_CONNECTIONS, 1);
    }
    known(p);
    p->as = *t;
    return REFUSE(0, NULL, NULL);
}

struct http_refusal peer_take_owner_request(struct net *n, struct owner *o, double cost) {
    int64_t wait_ms = owner_take_requests(o, cost, net_now_us());
    if (wait_ms) return refuse_limit(n, o, OWNER_REQUESTS, "rate_limited", wait_ms);
    return REFUSE(0, NULL, NULL);
}

struct http_refusal peer_take_request(struct peer *p, double cost) {
    return peer_take_owner_request(p->net, p->as.owner, cost);
}

bool peer_lost_token(struct peer *p) {
    const struct auth_token *t = p->as.owner ? auth_again(p->net->auth, &p->as) : NULL;
    if (t) p->as.admin = t->admin;
    return p->as.owner && !t;
}
