// Entries of connections. See peer.h.
#include "ws/net/peer.h"
#include <stdlib.h>
#include <utlist.h>

int peer_new(struct peer **out, struct net *n, const struct sockaddr *addr) {
    if (n->n_peers >= n->config->max_connections) return E_LIMIT;
    struct peer *p = calloc(1, sizeof(*p));
    if (!p) return E_NOMEM;
    int rc = ip_table_add(&n->ips, addr, n->config->max_connections_per_ip, &p->ip);
    if (rc < 0) {
        free(p);
        return rc == E_LIMIT ? E_BUSY : rc;
    }
    p->net = n;
    p->number = ++n->last_peer;
    n->n_peers++;
    DL_APPEND(n->peers, p);
    *out = p;
    return 0;
}

void peer_free(struct peer *p) {
    struct net *n = p->net;
    n->n_peers--;
    ip_table_remove(&n->ips, p->ip);
    DL_DELETE(n->peers, p);
    free(p->owner);
    free(p);
}
