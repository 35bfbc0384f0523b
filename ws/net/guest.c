// Connections that another library serves. See guest.h.
#include "ws/net/guest.h"
#include "base/array.h"
#include "ws/net/listener.h"
#include "ws/net/peer.h"
#include "ws/net/tunnel.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

struct guest {
    struct peer_guest as_peer; // first: its functions cast
    struct guest_port *port;
    struct peer *peer;
    struct tunnel *tunnel; // NULL: it has ended
    int fd;                // the library's
    int watch;             // the same socket, ours
    uv_poll_t poll;
};

struct guest_port {
    struct net *net;
    struct listener *listener;
    guest_serve_fn serve;
    void *ctx;
    struct guest **by_fd; // (n_fds) by the library's descriptor; NULL: none
    size_t n_fds, cap_fds;
};

static void on_closed(uv_handle_t *handle) {
    free(handle->data);
}

// The socket has ended, or ends now.
static void forget(struct guest *c) {
    tunnel_let_go(c->tunnel);
    c->port->by_fd[c->fd] = NULL;
    c->peer->guest = NULL;
    peer_free(c->peer);
    uv_close((uv_handle_t *)&c->poll, on_closed);
    close(c->watch);
}

static void end(struct peer_guest *g) {
    struct guest *c = (struct guest *)g;
    shutdown(c->watch, SHUT_RDWR);
    forget(c);
}

static void lost_token(struct peer_guest *g) {
    struct guest *c = (struct guest *)g;
    if (c->port->net->config->on_token_removed == SERVE_TOKEN_CANCEL) end(g);
}

static void on_disconnect(uv_poll_t *handle, int status, int events) {
    forget(handle->data);
}

static int keep(struct guest_port *g, struct guest *c) {
    size_t n = (size_t)c->fd + 1;
    if (ARRAY_RESERVE(g->by_fd, g->cap_fds, n) < 0) return E_NOMEM;
    while (g->n_fds < n) g->by_fd[g->n_fds++] = NULL;
    if (g->by_fd[c->fd])
        forget(g->by_fd[c->fd]); // the number is used again: the older socket has ended
    g->by_fd[c->fd] = c;
    return 0;
}

static void on_accept(void *ctx, int fd, const struct sockaddr *addr) {
    struct guest_port *g = ctx;
    struct peer *p;
    struct channel channel;
    int plain = -1, watch = -1;
    if (net_admit(g->net, &p, fd, addr) < 0) {
        close(fd);
        return;
    }
    struct guest *c = calloc(1, sizeof *c);
    if (!c) {
        close(fd);
        goto fail;
    }
    *c = (struct guest){.as_peer = {end, lost_token}, .port = g, .peer = p};
    if (channel_open(&channel, fd, g->net->ssl, true) < 0) goto fail;
    if (tunnel_open(g->net, &channel, TUNNEL_HTTP2, &c->tunnel, &plain) < 0) goto fail;
    watch = fcntl(plain, F_DUPFD_CLOEXEC, 0);
    c->fd = plain;
    c->watch = watch;
    c->poll.data = c;
    if (watch < 0 || keep(g, c) < 0) goto fail;
    if (uv_poll_init(&g->net->loop, &c->poll, watch) != 0) {
        g->by_fd[plain] = NULL;
        goto fail;
    }
    uv_poll_start(&c->poll, UV_DISCONNECT, on_disconnect);
    p->guest = &c->as_peer;
    g->serve(g->ctx, plain);
    return;

fail:
    if (c) tunnel_let_go(c->tunnel);
    if (watch >= 0) close(watch);
    if (plain >= 0) close(plain); // which ends the tunnel
    free(c);
    peer_free(p);
}

static struct guest *find(const struct guest_port *g, int fd) {
    return fd >= 0 && (size_t)fd < g->n_fds ? g->by_fd[fd] : NULL;
}

struct peer *guest_port_peer(const struct guest_port *g, int fd) {
    struct guest *c = find(g, fd);
    return c ? c->peer : NULL;
}

// --- closing ---

void guest_port_took_call(struct guest_port *g, int fd) {
    struct guest *c = find(g, fd);
    if (c) tunnel_took_call(c->tunnel);
}

void guest_port_part(struct guest_port *g) {
    for (size_t i = 0; i < g->n_fds; i++)
        if (g->by_fd[i]) tunnel_part(g->by_fd[i]->tunnel);
}

bool guest_port_has_parted(const struct guest_port *g, int fd) {
    const struct guest *c = find(g, fd);
    return c && tunnel_has_parted(c->tunnel);
}

size_t guest_port_connections(const struct guest_port *g) {
    size_t n = 0;
    for (size_t i = 0; i < g->n_fds; i++) n += g->by_fd[i] != NULL;
    return n;
}

void guest_port_cut(struct guest_port *g) {
    for (size_t i = 0; i < g->n_fds; i++)
        if (g->by_fd[i]) end(&g->by_fd[i]->as_peer);
}

int guest_port_open(struct guest_port **out, struct net *n, int port, guest_serve_fn serve,
                    void *ctx, struct err *err) {
    struct guest_port *g = calloc(1, sizeof *g);
    if (!g) return err_set(err, E_NOMEM, "no memory for a port");
    *g = (struct guest_port){.net = n, .serve = serve, .ctx = ctx};
    int rc = listener_open(&g->listener, &n->loop, n->config->host, port, on_accept, g, err);
    if (rc == E_BUSY)
        err_set(err, E_BUSY,
                "port %d of %s is in use by another program: stop it, or choose another with "
                "--grpc-port",
                port, n->config->host);
    if (rc == 0)
        *out = g;
    else
        free(g);
    return rc;
}

int guest_port_start(struct guest_port *g, struct err *err) {
    return listener_start(g->listener, err);
}

int guest_port_number(const struct guest_port *g) {
    return listener_port(g->listener);
}

void guest_port_stop_listening(struct guest_port *g) {
    listener_close(g->listener);
    g->listener = NULL;
}

void guest_port_close(struct guest_port *g) {
    if (!g) return;
    guest_port_stop_listening(g);
    guest_port_cut(g);
    free(g->by_fd);
    free(g);
}
