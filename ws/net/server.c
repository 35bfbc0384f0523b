// The loop and its handles, libwebsockets as a guest, connections by number, and the end. See
// server.h.
#include "ws/net/server.h"
#include "base/log.h"
#include "ws/net/context.h"
#include "ws/net/health.h"
#include "ws/net/http.h"
#include "ws/net/listener.h"
#include "ws/net/tls.h"
#include "ws/parley/connection.h"
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>
#include <utlist.h>

#define TX_KEEP_BYTES 65536
#define NOTSENT_BYTES                                                                              \
    32768 // unsent bytes in the kernel above which a socket is not writable: a slow reader's      \
          // events wait as a cursor, not as megabytes of socket buffer
#define AWAKE_US 300     // without a token, though the next one is near
#define CLOSE_SECONDS 3  // for close handshakes at the end
#define RESERVED_FDS 256 // database, model, pipes
#define CLOSE_GOING_AWAY 1001

int64_t server_now_us(void) {
    return clock_mono_us(&clock_system);
}

// --- the session service ---

void server_wake(void *server) {
    struct server *s = server;
    if (__atomic_exchange_n(&s->ringing, true, __ATOMIC_SEQ_CST)) return;
    uint64_t one = 1;
    // Cannot be full: one ring at a time.
    ssize_t n = write(s->wake_fd, &one, sizeof one);
    (void)n;
}

// Not uv_async_t: that one waits, yielding, for a sender that is half-way through. A sender whose
// processor this thread took by its priority (run_ahead) would never get on.
static void on_wake(uv_poll_t *handle, int status, int events) {
    struct server *s = handle->data;
    uint64_t rings;
    ssize_t n = read(s->wake_fd, &rings, sizeof rings);
    (void)n;
    __atomic_store_n(&s->ringing, false, __ATOMIC_SEQ_CST); // what comes from here on rings again
    s->sessions_dirty = true;
}
static void on_poll_timer(uv_timer_t *handle) {
    ((struct server *)handle->data)->sessions_dirty = true;
}

void server_touch_sessions(struct server *s) {
    s->sessions_dirty = true;
}

bool server_push_later(struct server *s, struct connection *c) {
    if (!s->polling) return false;
    if (s->n_fresh == s->cap_fresh) {
        size_t cap = s->cap_fresh ? s->cap_fresh * 2 : 64;
        uint64_t *grown = realloc(s->fresh, cap * sizeof(*grown));
        if (!grown) return false;
        s->fresh = grown;
        s->cap_fresh = cap;
    }
    s->fresh[s->n_fresh++] = connection_client(c);
    return true;
}

static void poll_sessions(struct server *s) {
    if (!s->sessions_dirty || !s->sessions) return;
    s->sessions_dirty = false;
    s->polling = true;
    int64_t next_us = sessions_poll(s->sessions);
    s->polling = false;
    for (size_t i = 0; i < s->n_fresh; i++) {
        struct connection *c = server_find(s, s->fresh[i]);
        if (c) connection_push(c);
    }
    if (s->n_fresh > 0) s->awake_until_us = server_now_us() + AWAKE_US;
    s->n_fresh = 0;
    if (s->sessions_dirty) next_us = 0; // a callback made new work
    if (next_us < 0)
        uv_timer_stop(&s->poll_timer);
    else
        uv_timer_start(&s->poll_timer, on_poll_timer, (uint64_t)((next_us + 999) / 1000), 0);
}

static void on_answer(void *ctx, uint64_t client, const struct session_answer *a) {
    struct connection *c = server_find(ctx, client);
    if (c) connection_answer(c, a);
}
static void on_ready(void *ctx, uint64_t client, struct session *session) {
    struct connection *c = server_find(ctx, client);
    if (c) connection_ready(c, session);
}
static void on_progress(void *ctx, uint64_t client, struct session *session, int64_t turn,
                        int64_t done, int64_t total) {
    struct connection *c = server_find(ctx, client);
    if (c) connection_progress(c, session, turn, done, total);
}
static void on_gone(void *ctx, uint64_t client, struct session *session) {
    struct connection *c = server_find(ctx, client);
    if (c) connection_gone(c, session);
}
static void on_changed(void *ctx, const char *owner, const struct session_view *view,
                       bool removed) {
    struct server *s = ctx;
    for (size_t i = 0; i < s->n_slots; i++)
        if (s->slots[i]) connection_changed(s->slots[i], owner, view, removed);
}

static void on_stalled(void *ctx, uint64_t client, struct session *session, const char *reason) {
    struct connection *c = server_find(ctx, client);
    if (c) connection_stalled(c, session, reason);
}

void server_callbacks(struct server *s, struct sessions_callbacks *out) {
    *out = (struct sessions_callbacks){s,       on_answer,  on_ready,  on_progress,
                                       on_gone, on_changed, on_stalled};
}

// --- connections by number ---
// The low 20 bits are a slot, the others count: a late answer finds nobody, never somebody else.

#define SLOT_BITS 20

uint64_t server_add(struct server *s, struct connection *c) {
    size_t slot = 0;
    while (slot < s->n_slots && s->slots[slot]) slot++;
    if (slot == s->n_slots) {
        size_t n = s->n_slots ? s->n_slots * 2 : 64;
        struct connection **grown =
            n <= (size_t)1 << SLOT_BITS ? realloc(s->slots, n * sizeof(*grown)) : NULL;
        if (!grown) return 0;
        memset(grown + s->n_slots, 0, (n - s->n_slots) * sizeof(*grown));
        s->slots = grown;
        s->n_slots = n;
    }
    s->slots[slot] = c;
    s->n_connections++;
    return ++s->next_client << SLOT_BITS | slot;
}

struct connection *server_find(struct server *s, uint64_t client) {
    size_t slot = client & (((uint64_t)1 << SLOT_BITS) - 1);
    struct connection *c = slot < s->n_slots ? s->slots[slot] : NULL;
    return c && connection_client(c) == client ? c : NULL;
}

void server_remove(struct server *s, struct connection *c) {
    s->slots[connection_client(c) & (((uint64_t)1 << SLOT_BITS) - 1)] = NULL;
    s->n_connections--;
}

// --- sockets ---

void server_fly(struct peer *p, bool flying) {
    if (flying == p->flying) return;
    p->flying = flying;
    if (flying)
        DL_APPEND2(p->server->in_flight, p, flight_prev, flight_next);
    else
        DL_DELETE2(p->server->in_flight, p, flight_prev, flight_next);
}

void server_kill(struct peer *p) {
    lws_set_timeout(p->wsi, PENDING_TIMEOUT_USER_OK, LWS_TO_KILL_ASYNC);
    lws_cancel_service(p->server->context); // its timers are looked at when it is rung only
}

struct buf *server_tx(struct server *s) {
    if (s->tx.cap > TX_KEEP_BYTES + LWS_PRE) buf_release(&s->tx);
    buf_reset(&s->tx);
    if (buf_reserve(&s->tx, LWS_PRE) == 0) s->tx.len = LWS_PRE;
    return &s->tx;
}

int server_write(struct peer *p, size_t len, enum lws_write_protocol how) {
    metric_add(p->server->metrics.bytes_out, (double)len);
    return lws_write(p->wsi, (unsigned char *)p->server->tx.data + LWS_PRE, len, how);
}

static void uncount(struct peer *p) {
    if (!p->counted) return;
    p->counted = false;
    p->server->n_peers--;
    ip_table_remove(&p->server->ips, p->ip);
}

void server_free_peer(struct peer *p) {
    if (p->connection) connection_close(p->connection);
    http_forget(p);
    uncount(p);
    DL_DELETE(p->server->peers, p);
    free(p);
}

// Said in plain text where that can be read, and as far as the socket takes it at once.
static void turn_away(struct server *s, int fd, struct metric *counter, const char *limit) {
    char text[256];
    int n = lws_snprintf(
        text, sizeof(text),
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 5\r\n"
        "connection: close\r\n\r\n{\"error\":{\"code\":\"overloaded\",\"message\":\"%s\"}}\n",
        limit);
    metric_add(counter, 1);
    if (!s->ssl) (void)!send(fd, text, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
    close(fd);
}

static void on_accept(void *ctx, int fd, const struct sockaddr *addr) {
    struct server *s = ctx;
    int one = 1, notsent = NOTSENT_BYTES;
    metric_add(s->metrics.accepted, 1);
    if (s->n_peers >= s->config->max_connections) {
        turn_away(s, fd, s->metrics.refused_total, "too many connections");
        return;
    }
    struct peer *p = calloc(1, sizeof(*p));
    int rc = p ? ip_table_add(&s->ips, addr, s->config->max_connections_per_ip, &p->ip) : E_NOMEM;
    if (rc < 0) {
        free(p);
        turn_away(s, fd, s->metrics.refused_ip, "too many connections from this address");
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &notsent, sizeof(notsent));
    p->server = s;
    p->counted = true;
    s->n_peers++;
    DL_APPEND(s->peers, p);
    lws_adopt_desc_t adopt = {.vh = s->vhost,
                              .type = LWS_ADOPT_SOCKET | LWS_ADOPT_HTTP | LWS_ADOPT_ALLOW_SSL,
                              .fd.sockfd = fd,
                              .opaque = p};
    // Where it fails it closes fd and may or may not tell WSI_DESTROY, at once or later: p stays
    // listed until then.
    p->adopting = true;
    struct lws *wsi = lws_adopt_descriptor_vhost_via_info(&adopt);
    p->adopting = false;
    if (wsi) {
        p->wsi = wsi;
        return;
    }
    uncount(p);
    if (p->destroyed) server_free_peer(p);
}

// --- timers and signals ---

static void each_connection(struct server *s, void (*fn)(struct connection *c, int64_t now_us)) {
    int64_t now = server_now_us();
    for (size_t i = 0; i < s->n_slots; i++)
        if (s->slots[i]) fn(s->slots[i], now);
}

static void on_watch_timer(uv_timer_t *handle) {
    each_connection(handle->data, connection_flush_changed);
}

void server_start_watch_timer(struct server *s, int64_t ms) {
    uv_timer_start(&s->watch_timer, on_watch_timer, (uint64_t)ms, 0);
}

static void end_drained(struct connection *c, int64_t now_us) {
    if (connection_drained(c)) connection_end(c, CLOSE_GOING_AWAY, "shutting down");
}
static void end_any(struct connection *c, int64_t now_us) {
    connection_end(c, CLOSE_GOING_AWAY, "shutting down");
}

// The end in order: turns finish, their last words are sent, connections close, the loop stops.
static void drain(struct server *s) {
    int64_t now = server_now_us();
    if (s->state == SERVER_DRAINING) {
        int running = sessions_n_running(s->sessions);
        // A turn that has ended is told of when its record is committed, a little later.
        if (!sessions_settled(s->sessions) && now < s->drain_until_us) return;
        log_info("server.closing", "turns_cut=%d connections=%zu", running, s->n_connections);
        s->state = SERVER_CLOSING;
        s->close_until_us = now + CLOSE_SECONDS * 1000000;
        listener_close(s->listener);
        s->listener = NULL;
    }
    if (s->state != SERVER_CLOSING) return;
    each_connection(s, now > s->close_until_us - 1000000 ? end_any : end_drained);
    if (s->n_connections == 0 || now > s->close_until_us) uv_stop(&s->loop);
}

static void on_drain_timer(uv_timer_t *handle) {
    drain(handle->data);
}

static void begin_drain(struct server *s) {
    if (s->state == SERVER_DRAINING || s->state == SERVER_CLOSING) return;
    s->state = SERVER_DRAINING;
    s->drain_until_us = server_now_us() + (int64_t)(s->config->drain_timeout * 1e6);
    sessions_drain(s->sessions);
    server_touch_sessions(s);
    uv_timer_start(&s->drain_timer, on_drain_timer, 50, 50);
}

static void on_terminate(uv_signal_t *handle, int number) {
    struct server *s = handle->data;
    if (s->n_signals++ > 0) {
        s->forced = true;
        uv_stop(&s->loop);
        return;
    }
    log_info("server.draining", "signal=%d turns=%d drain_timeout_s=%g", number,
             sessions_n_running(s->sessions), s->config->drain_timeout);
    begin_drain(s);
}

// A failed GPU is only had back by another process: the sessions are on disk, a supervisor
// restarts.
static void watch_device(struct server *s) {
    struct engine_load load;
    engine_load(s->engine, &load);
    if (!load.device_lost || s->device_lost) return;
    s->device_lost = true;
    log_error("server.device_lost", "turns=%d", sessions_n_running(s->sessions));
    begin_drain(s);
}

static void on_tick(uv_timer_t *handle) {
    each_connection(handle->data, connection_tick);
    watch_device(handle->data);
}

static void on_reload(uv_signal_t *handle, int number) {
    struct server *s = handle->data;
    struct err err = {0};
    char quoted[1200];
    if (auth_reload(s->auth, &err) < 0 ||
        (s->ssl && tls_load(s->ssl, s->config->tls_cert, s->config->tls_key, &err) < 0))
        log_error("server.reload", "error=%s", log_quote(quoted, sizeof(quoted), err.text));
    else
        log_info("server.reload", "tokens=%d tls=%d", auth_needs_token(s->auth), s->ssl != NULL);
}

static void on_awake(uv_idle_t *handle) {}

// A step of many sessions draws their tokens one after another. Sleeping between two of them costs
// two changes of thread each, and worse: the core that was slept on goes to sleep as well, and a
// virtual one takes up to some milliseconds to come back. So while the next token is near the loop
// looks round without waiting. Not for long: the engine may have been held up.
static void stay_awake(struct server *s) {
    bool active = uv_is_active((uv_handle_t *)&s->awake);
    bool stay = s->awake_until_us && s->engine && engine_token_is_near(s->engine) &&
                server_now_us() < s->awake_until_us;
    if (!stay) s->awake_until_us = 0;
    if (stay && !active) uv_idle_start(&s->awake, on_awake);
    if (!stay && active) uv_idle_stop(&s->awake);
}

static void on_prepare(uv_prepare_t *handle) {
    struct server *s = handle->data;
    poll_sessions(s);
    stay_awake(s);
    http_sweep(s);
}

static void on_gate(uv_poll_t *handle, int status, int events) {
    struct server *s = handle->data;
    struct epoll_event ready[64];
    int n = epoll_wait(s->gate_fd, ready, 64, 0);
    for (int i = 0; i < n; i++) {
        struct connection *c = server_find(s, ready[i].data.u64);
        if (c) connection_gate_readable(c);
    }
}

// --- life ---

// libwebsockets makes tables as long as the descriptor limit, which may be a billion in a
// container.
static void limit_fds(int64_t max_connections) {
    struct rlimit r;
    rlim_t want = (rlim_t)max_connections + RESERVED_FDS;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0) return;
    if (want < 1024) want = 1024;
    if (r.rlim_max != RLIM_INFINITY && want > r.rlim_max) {
        log_warn("server.fd_limit", "wanted=%llu allowed=%llu", (unsigned long long)want,
                 (unsigned long long)r.rlim_max);
        want = r.rlim_max;
    }
    r.rlim_cur = want;
    setrlimit(RLIMIT_NOFILE, &r);
}

static int init_handles(struct server *s, struct err *err) {
    int rc = uv_loop_init(&s->loop);
    if (rc != 0) return err_set(err, E_IO, "no event loop: %s", uv_strerror(rc));
    s->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (s->wake_fd < 0) return err_errno(err, "no event descriptor");
    rc = uv_poll_init(&s->loop, &s->wake, s->wake_fd);
    if (rc == 0) rc = uv_poll_start(&s->wake, UV_READABLE, on_wake);
    if (rc != 0) return err_set(err, E_IO, "no event loop: %s", uv_strerror(rc));
    uv_timer_init(&s->loop, &s->poll_timer);
    uv_timer_init(&s->loop, &s->tick);
    uv_timer_init(&s->loop, &s->watch_timer);
    uv_timer_init(&s->loop, &s->drain_timer);
    uv_prepare_init(&s->loop, &s->prepare);
    uv_idle_init(&s->loop, &s->awake);
    uv_signal_init(&s->loop, &s->sigterm);
    uv_signal_init(&s->loop, &s->sigint);
    uv_signal_init(&s->loop, &s->sighup);
    s->gate_fd = epoll_create1(EPOLL_CLOEXEC);
    if (s->gate_fd < 0) return err_errno(err, "no epoll descriptor");
    if ((rc = uv_poll_init(&s->loop, &s->gate, s->gate_fd)) != 0)
        return err_set(err, E_IO, "no event loop: %s", uv_strerror(rc));
    uv_handle_t *all[] = {
        (uv_handle_t *)&s->wake,        (uv_handle_t *)&s->poll_timer,  (uv_handle_t *)&s->tick,
        (uv_handle_t *)&s->watch_timer, (uv_handle_t *)&s->drain_timer, (uv_handle_t *)&s->prepare,
        (uv_handle_t *)&s->sigterm,     (uv_handle_t *)&s->sigint,      (uv_handle_t *)&s->sighup,
        (uv_handle_t *)&s->gate,        (uv_handle_t *)&s->awake};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) all[i]->data = s;
    return 0;
}

int server_open(struct server **out, const struct serve_config *config, struct metrics *registry,
                struct err *err) {
    struct server *s = calloc(1, sizeof(*s));
    if (!s) return err_set(err, E_NOMEM, "no memory for the server");
    s->config = config;
    s->registry = registry;
    s->start_us = server_now_us();
    buf_init(&s->tx, (32 << 20) + LWS_PRE);
    limit_fds(config->max_connections);
    s->gate_fd = s->wake_fd = -1;
    int rc;
    TRY_GOTO(fail_loop, init_handles(s, err));
    TRY_GOTO(fail, auth_open(&s->auth, config->token_file, err));
    TRY_GOTO(fail, listener_open(&s->listener, &s->loop, config->host, (int)config->port, on_accept,
                                 s, err));
    health_register(s);
    *out = s;
    return 0;

fail:
    server_close(s);
    return rc;
fail_loop:
    free(s);
    return rc;
}

int server_listen(struct server *s, struct engine *engine, struct sessions *sessions,
                  const struct protocol_hello *hello, struct err *err) {
    s->engine = engine;
    s->sessions = sessions;
    s->hello = *hello;
    signal(SIGPIPE, SIG_IGN);
    TRY(context_create(s, err));
    TRY(listener_start(s->listener, err));
    uv_poll_start(&s->gate, UV_READABLE, on_gate);
    uv_timer_start(&s->tick, on_tick, 1000, 1000);
    uv_prepare_start(&s->prepare, on_prepare);
    uv_signal_start(&s->sigterm, on_terminate, SIGTERM);
    uv_signal_start(&s->sigint, on_terminate, SIGINT);
    uv_signal_start(&s->sighup, on_reload, SIGHUP);
    server_touch_sessions(s);
    return 0;
}

const char *server_url(const struct server *s, char *out, size_t cap) {
    const char *host = s->config->host;
    bool v6 = strchr(host, ':') != NULL;
    if (strcmp(host, "0.0.0.0") == 0) host = "127.0.0.1"; // "any address" is none to go to
    if (strcmp(host, "::") == 0) host = "::1";
    lws_snprintf(out, cap, "%s://%s%s%s:%d", s->ssl ? "https" : "http", v6 ? "[" : "", host,
                 v6 ? "]" : "", listener_port(s->listener));
    return out;
}

int server_run(struct server *s) {
    uv_run(&s->loop, UV_RUN_DEFAULT);
    if (s->device_lost) return E_DEVICE;
    return s->forced ? E_CANCELLED : 0;
}

void server_stop(struct server *s) {
    uv_timer_stop(&s->tick);
    uv_timer_stop(&s->drain_timer);
    uv_prepare_stop(&s->prepare);
    uv_idle_stop(&s->awake);
    listener_close(s->listener);
    s->listener = NULL;
    s->state = SERVER_CLOSING;
    context_destroy(s);
    while (s->peers) server_free_peer(s->peers);
    s->sessions = NULL;
}

static void on_closed(uv_handle_t *handle) {}
static void close_any(uv_handle_t *handle, void *ctx) {
    if (!uv_is_closing(handle)) uv_close(handle, on_closed);
}

void server_close(struct server *s) {
    if (!s) return;
    listener_close(s->listener);
    uv_walk(&s->loop, close_any, NULL);
    uv_run(&s->loop, UV_RUN_DEFAULT);
    int rc = uv_loop_close(&s->loop);
    if (rc != 0) log_warn("server.loop", "error=\"%s\"", uv_strerror(rc));
    close(s->gate_fd);
    close(s->wake_fd);
    s->wake_fd = -1;
    auth_close(s->auth);
    buf_release(&s->tx);
    free(s->slots);
    free(s->fresh);
    free(s);
}
