// The loop, the port and who may connect. See net.h.
#include "ws/net/net.h"
#include "base/cgroup.h"
#include "base/log.h"
#include "base/workers.h"
#include "ws/net/http.h"
#include "ws/net/listener.h"
#include "ws/net/peer.h"
#include "ws/net/tls.h"
#include "ws/net/tunnel.h"
#include "ws/net/websocket.h"
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

// Unsent bytes in the kernel above which a socket is not writable: a slow reader's events wait as a
// cursor, not as megabytes of socket buffer.
#define NOTSENT_BYTES 32768
#define RESERVED_FDS 256 // database, model, pipes
#define FEWEST_FDS 32    // with less the server could not even open its files
#define WORKERS_MAX 4
#define JOBS_MAX 4096
#define TICK_MS 1000
#define REQUESTS_PER_MESSAGE 10 // units of request_limit

// --- connections ---

// Refuses a connection without TLS in plain text, as far as the socket takes it at once.
static void turn_away(struct net *n, int fd, const char *limit) {
    char text[256];
    int len = snprintf(
        text, sizeof(text),
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 5\r\n"
        "connection: close\r\n\r\n{\"error\":{\"code\":\"overloaded\",\"message\":\"%s\"}}\n",
        limit);
    if (len >= (int)sizeof(text)) len = (int)sizeof(text) - 1;
    if (!n->ssl) (void)!send(fd, text, (size_t)len, MSG_DONTWAIT | MSG_NOSIGNAL);
    close(fd);
}

static void close_unknown(struct net *n) {
    struct peer *p = n->unknown;
    metric_add(n->metrics.refused_unknown, 1);
    if (p->guest) {
        p->guest->end(p->guest);
        return;
    }
    if (p->http) {
        http_close(p->http);
        return;
    }
    peer_evict(p); // libwebsockets ends it soon: its place is free at once
    if (p->wsi) websocket_kill(p);
}

int net_admit(struct net *n, struct peer **out, int fd, const struct sockaddr *addr) {
    int one = 1, notsent = NOTSENT_BYTES;
    metric_add(n->metrics.accepted, 1);
    if (peers_are_crowded(n)) close_unknown(n);
    int rc = peer_new(out, n, addr);
    if (rc < 0) metric_add(rc == E_LIMIT ? n->metrics.refused_total : n->metrics.refused_ip, 1);
    if (rc < 0) return rc;
    (*out)->tcp_fd = fd;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &notsent, sizeof(notsent));
    return 0;
}

static void on_accept(void *ctx, int fd, const struct sockaddr *addr) {
    struct net *n = ctx;
    struct peer *p;
    int rc = net_admit(n, &p, fd, addr);
    if (rc < 0) {
        turn_away(n, fd,
                  rc == E_LIMIT
                      ? "too many connections: see max_connections"
                      : "too many connections from this address: see max_connections_per_ip");
        return;
    }
    http_open(p, fd);
}

static void on_tick(uv_timer_t *handle) {
    struct net *n = handle->data;
    int64_t now = net_now_us(), passed = now - n->ticked_us;
    struct peer *p, *next;
    DL_FOREACH_SAFE(n->peers, p, next) {
        if (p->http)
            http_tick(p->http, n->served_us);
        else if (p->websocket)
            websocket_tick(p, n->served_us);
    }
    n->ticked_us = now;
    n->served_us += passed < TICK_MS * 2000 ? passed : TICK_MS * 1000;
}

// --- metrics ---

// Processor time, not wall time: on a busy machine, waiting for a core is not this thread's work.
static void on_round(uv_check_t *handle) {
    struct net *n = handle->data;
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    int64_t now = (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
    if (n->round_us) metric_observe(n->metrics.round, (double)(now - n->round_us) / 1e6);
    n->round_us = now;
}

static double n_connections(void *ctx) {
    return (double)((struct net *)ctx)->n_peers;
}

static double n_websockets(void *ctx) {
    return (double)((struct net *)ctx)->n_websockets;
}

static double long_bytes(void *ctx) {
    const struct net *n = ctx;
    return (double)(n->long_bytes[LONG_INFERENCES] + n->long_bytes[LONG_CONVERSATIONS]);
}

static void register_metrics(struct net *n, struct metrics *m) {
    static const double round_bounds[] = {1e-4, 5e-4, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 0.1, 1};
    static const char refused[] = "Sockets refused at accept, by the limit they met";
    static const char http[] = "HTTP answers by class of status";
    struct net_metrics *x = &n->metrics;
    metrics_gauge_fn(m, "parley_connections", "Open sockets", NULL, n_connections, n);
    metrics_gauge_fn(m, "parley_websockets", "Open WebSockets", NULL, n_websockets, n);
    metrics_gauge_fn(m, "parley_long_request_bytes",
                     "Requests longer than max_message_bytes, until they are answered", NULL,
                     long_bytes, n);
    x->round = metrics_histogram(m, "parley_loop_round_seconds",
                                 "Processor time of one round of the network's loop", NULL,
                                 round_bounds, sizeof(round_bounds) / sizeof(round_bounds[0]));
    x->accepted = metrics_counter(m, "parley_accepted_total", "Sockets accepted", NULL);
    x->refused_total =
        metrics_counter(m, "parley_refused_total", refused, "limit=\"max_connections\"");
    x->refused_ip =
        metrics_counter(m, "parley_refused_total", refused, "limit=\"max_connections_per_ip\"");
    x->refused_unknown = metrics_counter(m, "parley_refused_total", refused, "limit=\"no_token\"");
    x->locked_out =
        metrics_counter(m, "parley_locked_out_total",
                        "Tokens refused because of wrong ones from their address", NULL);
    x->bytes_out = metrics_counter(m, "parley_bytes_out_total", "Payload bytes written", NULL);
    x->http_2xx = metrics_counter(m, "parley_http_responses_total", http, "class=\"2xx\"");
    x->http_4xx = metrics_counter(m, "parley_http_responses_total", http, "class=\"4xx\"");
    x->http_5xx = metrics_counter(m, "parley_http_responses_total", http, "class=\"5xx\"");
    x->http_limited = metrics_counter(m, "parley_http_rate_limited_total",
                                      "HTTP requests refused by the rate limit", NULL);
}

// --- life ---

// A tunnel takes two descriptors beside the client's socket (tunnel.h), gRPC a third (guest.h).
int64_t net_descriptors(const struct serve_config *c) {
    int64_t each = c->grpc_port >= 0 ? 4 : *c->tls_cert ? 3 : 1;
    int64_t want = c->max_connections * each + RESERVED_FDS;
    return want < 1024 ? 1024 : want;
}

// libwebsockets makes tables as long as the descriptor limit, which may be a billion in a
// container.
static int limit_fds(const struct serve_config *c, struct err *err) {
    struct rlimit r;
    rlim_t want = (rlim_t)net_descriptors(c);
    if (getrlimit(RLIMIT_NOFILE, &r) != 0) return 0;
    if (r.rlim_max < FEWEST_FDS)
        return err_set(err, E_LIMIT,
                       "at most %llu files may be open, the server needs %d and one for each "
                       "connection: raise the limit with `ulimit -n 1024` or systemd's LimitNOFILE",
                       (unsigned long long)r.rlim_max, FEWEST_FDS);
    if (r.rlim_max != RLIM_INFINITY && want > r.rlim_max) {
        log_warn("server.fd_limit", "wanted=%llu allowed=%llu", (unsigned long long)want,
                 (unsigned long long)r.rlim_max);
        want = r.rlim_max;
    }
    r.rlim_cur = want;
    setrlimit(RLIMIT_NOFILE, &r);
    return 0;
}

static void on_workers(void *ctx) {
    struct net *n = ctx;
    workers_poll(n->workers);
}

static int n_threads(void) {
    int n = cgroup_processors() / 2;
    n = n < 1 ? 1 : n > WORKERS_MAX ? WORKERS_MAX : n;
    return n + 1; // one owner's jobs leave a thread free (workers.h)
}

int net_open(struct net **out, const struct serve_config *config, struct metrics *registry,
             struct err *err) {
    TRY(limit_fds(config, err));
    struct net *n = calloc(1, sizeof(*n));
    if (!n) return err_set(err, E_NOMEM, "no memory for the network");
    int rc = uv_loop_init(&n->loop);
    if (rc != 0) {
        free(n);
        return err_set(err, E_IO, "no event loop: %s", uv_strerror(rc));
    }
    n->config = config;
    n->ticked_us = n->served_us = net_now_us();
    n->workers_bell.fd = -1;
    n->request_limit =
        (struct rate_limit){(double)config->messages_per_second * REQUESTS_PER_MESSAGE,
                            (double)serve_config_burst(config) * REQUESTS_PER_MESSAGE};
    uv_timer_init(&n->loop, &n->tick);
    uv_timer_init(&n->loop, &n->hello);
    uv_check_init(&n->loop, &n->round);
    n->tick.data = n->hello.data = n->round.data = n;
    owners_init(&n->owners, registry);
    TRY_GOTO(fail, bell_open(&n->workers_bell, &n->loop, on_workers, n, err));
    TRY_GOTO(fail,
             workers_open(&n->workers, n_threads(), JOBS_MAX, bell_ring, &n->workers_bell, err));
    TRY_GOTO(fail, auth_open(&n->auth, config->token_file, &n->owners, &config->owner, err));
    if (*config->tls_cert)
        TRY_GOTO(fail, tls_open(&n->ssl, config->tls_cert, config->tls_key, err));
    TRY_GOTO(fail, listener_open(&n->listener, &n->loop, config->host, (int)config->port, on_accept,
                                 n, err));
    register_metrics(n, registry);
    *out = n;
    return 0;

fail:
    net_close(n);
    return rc;
}

int net_listen(struct net *n, const struct http_route *routes, size_t n_routes,
               const struct websocket_protocol *const *websockets, size_t n_websockets, void *user,
               struct err *err) {
    n->routes = routes;
    n->n_routes = n_routes;
    n->websockets = websockets;
    n->n_websocket_protocols = n_websockets;
    n->user = user;
    signal(SIGPIPE, SIG_IGN);
    TRY(websocket_open(n, err));
    TRY(listener_start(n->listener, err));
    uv_timer_start(&n->tick, on_tick, TICK_MS, TICK_MS);
    uv_check_start(&n->round, on_round);
    return 0;
}

const char *net_url(const struct net *n, char *out, size_t cap) {
    const char *host = n->config->host;
    bool v6 = strchr(host, ':') != NULL;
    if (strcmp(host, "0.0.0.0") == 0)
        host = "127.0.0.1"; // a client cannot connect to "any address"
    if (strcmp(host, "::") == 0) host = "::1";
    snprintf(out, cap, "%s://%s%s%s:%d", n->ssl ? "https" : "http", v6 ? "[" : "", host,
             v6 ? "]" : "", listener_port(n->listener));
    return out;
}

static void end_removed(struct net *n) {
    struct peer *p, *next;
    DL_FOREACH_SAFE(n->peers, p, next) {
        if (!peer_lost_token(p)) continue;
        // A connection is a guest's, a WebSocket or HTTP; the call may free the peer.
        if (p->guest)
            p->guest->lost_token(p->guest);
        else if (p->websocket)
            p->protocol->lost_token(p->websocket);
        else if (p->http)
            http_lost_token(p->http);
    }
}

int net_reload(struct net *n, struct err *err) {
    TRY(auth_reload(n->auth, err));
    end_removed(n);
    return n->ssl ? tls_load(n->ssl, n->config->tls_cert, n->config->tls_key, err) : 0;
}

void net_stop_listening(struct net *n) {
    listener_close(n->listener);
    n->listener = NULL;
}

bool net_is_replying(const struct net *n) {
    for (const struct peer *p = n->peers; p; p = p->next)
        if (p->http && http_is_replying(p->http)) return true;
    return false;
}

void net_stop(struct net *n) {
    struct peer *p, *next;
    uv_timer_stop(&n->tick);
    uv_timer_stop(&n->hello);
    net_stop_listening(n);
    n->life = NET_CLOSING;
    DL_FOREACH_SAFE(n->peers, p, next)
    if (p->http) http_close(p->http);
    websocket_stop(n);
    tunnel_stop_all(n);
    workers_close(n->workers); // jobs may use the engine, which is closed next
    n->workers = NULL;
}

static void on_closed(uv_handle_t *handle) {}
static void close_any(uv_handle_t *handle, void *ctx) {
    if (!uv_is_closing(handle)) uv_close(handle, on_closed);
}

void net_close(struct net *n) {
    if (!n) return;
    net_stop_listening(n);
    workers_close(n->workers);
    uv_walk(&n->loop, close_any, NULL);
    uv_run(&n->loop, UV_RUN_DEFAULT);
    int rc = uv_loop_close(&n->loop);
    if (rc != 0) log_warn("server.loop", "error=\"%s\"", uv_strerror(rc));
    bell_close(&n->workers_bell);
    auth_close(n->auth);
    owners_release(&n->owners);
    lockout_release(&n->lockout);
    tls_close(n->ssl);
    buf_release(&n->tx);
    free(n->lws_protocols);
    free(n);
}
