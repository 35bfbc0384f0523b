// Life of a WebSocket. Order of sending: answers, then session.changed, then events, one frame per
// writable callback; a frame longer than SERVER_CHUNK_BYTES goes out in fragments. See
// connection.h.
#include "ws/parley/connection.h"
#include "base/log.h"
#include "ws/parley/outbox.h"
#include <errno.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <utlist.h>

#define EVENT_TEXT_BYTES                                                                           \
    4096 // of one joined delta: a slow reader gets few long ones, nobody gets huge ones
#define ANSWER_MAX_BYTES (32 << 20) // of one encoded message
#define RX_KEEP_BYTES 4096 // a receive buffer that grew beyond is given back after its message
#define PAUSE_OUTBOX_BYTES                                                                         \
    (256 << 10)                 // unsent answers beyond which nothing more is read from the client
#define CLOSE_GRACE_US 10000000 // for the last frames and the close handshake
#define CHANGED_INTERVAL_US 100000 // session.changed are coalesced this long
#define PUSH_MAX 4                 // writes of one connection before others get their turn
#define MAX_READY 4096             // sessions attached at once, roughly

// Of enum lws_write_protocol, 4.1 to 4.5; the public header leaves its place free and says "handled
// by lws_close_reason".
#define WRITE_CLOSE ((enum lws_write_protocol)4)

#define CLOSE_GOING_AWAY 1001
#define CLOSE_PROTOCOL 1002
#define CLOSE_BINARY 1003
#define CLOSE_POLICY 1008
#define CLOSE_TOO_BIG 1009
#define CLOSE_INTERNAL 1011
#define CLOSE_SLOW 4001
#define CLOSE_RATE 4002

struct connection {
    struct peer *peer;
    struct server *server;
    uint64_t client;
    char *owner;            // NULL until authorised
    struct buf rx;          // of the message that is arriving
    struct outbox outbox;   // answers, and the frame that is half-way out
    struct outbox changed;  // session.changed, one per session
    struct session **ready; // sessions with events for us, served in turn
    size_t n_ready, cap_ready;
    double tokens; // of the rate limit's bucket
    int64_t tokens_us, opened_us, waiting_us, changed_us, closing_us;
    int refused_in_a_row, close_code;
    const char *close_reason;
    bool watching, changed_due, paused, gated, close_sent, skip, fresh;
};

// --- sending ---

static void want_write(struct connection *c) {
    if (c->close_sent) return;
    if (!c->waiting_us) c->waiting_us = server_now_us();
    lws_callback_on_writable(c->peer->wsi);
}

// Something was put in the outbox.
static void queued(struct connection *c) {
    want_write(c);
    // Answers pile up only when requests come faster than they are read: then the requests wait.
    if (c->outbox.bytes > PAUSE_OUTBOX_BYTES && !c->paused && !c->gated) {
        c->paused = true;
        lws_rx_flow_control(c->peer->wsi, 0);
    }
}

// Encoded behind tx's LWS_PRE bytes; queued as a frame of its own. Memory that runs out ends this
// connection only.
static void queue_tx(struct connection *c) {
    struct buf *tx = &c->server->tx;
    if (tx->error || outbox_add(&c->outbox, NULL, tx->data + LWS_PRE, tx->len - LWS_PRE) < 0)
        connection_end(c, CLOSE_INTERNAL, "no memory");
    else
        queued(c);
}
static void send_error(struct connection *c, const char *code, const char *message,
                       const char *request_id, const char *session, int64_t retry_after_ms) {
    if (c->close_code) return;
    metric_add(c->server->metrics.errors_out, 1);
    protocol_write_error(server_tx(c->server), code, message, request_id, session, retry_after_ms);
    queue_tx(c);
}

static void send_hello(struct connection *c, const char *request_id) {
    protocol_write_hello(server_tx(c->server), &c->server->hello, request_id);
    queue_tx(c);
}

static int write_chunk(struct connection *c, size_t len, bool first, bool last) {
    int how = lws_write_ws_flags(LWS_WRITE_TEXT, first, last);
    if (last) metric_add(c->server->metrics.frames_out, 1);
    return server_write(c->peer, len, (enum lws_write_protocol)how);
}

// The next piece of the outbox's first frame.
static int send_queued(struct connection *c) {
    struct buf *tx = server_tx(c->server);
    bool first, last;
    size_t n;
    const char *bytes = outbox_next(&c->outbox, SERVER_CHUNK_BYTES, &n, &first, &last);
    if (buf_add(tx, bytes, n) < 0) return -1;
    outbox_sent(&c->outbox, n);
    return write_chunk(c, n, first, last);
}

static int write_tx(struct connection *c) {
    struct buf *tx = &c->server->tx;
    if (tx->error) {
        connection_end(c, CLOSE_INTERNAL, "no memory");
        return 0;
    }
    size_t len = tx->len - LWS_PRE;
    if (len <= SERVER_CHUNK_BYTES) return write_chunk(c, len, true, true);
    if (outbox_add(&c->outbox, NULL, tx->data + LWS_PRE, len) < 0) {
        connection_end(c, CLOSE_INTERNAL, "no memory");
        return 0;
    }
    return send_queued(c);
}

static void drop_ready(struct connection *c, size_t i) {
    memmove(c->ready + i, c->ready + i + 1, (--c->n_ready - i) * sizeof(*c->ready));
}

// 1: one was sent, 0: there is none, -1: the socket is broken.
static int send_event(struct connection *c) {
    struct session_event ev;
    while (c->n_ready > 0) {
        struct session *s = c->ready[0];
        drop_ready(c, 0);
        if (session_next_event(s, c->client, EVENT_TEXT_BYTES, &ev) != 1) continue;
        c->ready[c->n_ready++] = s; // at the end: sessions take turns
        protocol_write_event(server_tx(c->server), &ev, session_id(s), c->server->engine);
        if (write_tx(c) < 0) return -1;
        if (ev.kind == EVENT_DELTA && ev.drawn_us)
            metric_observe(c->server->metrics.token_to_socket,
                           (double)(server_now_us() - ev.drawn_us) / 1e6);
        return 1;
    }
    return 0;
}

// By hand: where libwebsockets was built with _DEBUG, as Debian's 4.1.6 is, its libuv service
// closes a connection twice when a callback asks for it, and the second time the close frame is
// thrown away. The client's own close frame, or connection_tick, then ends the socket.
static int send_close(struct connection *c) {
    struct buf *tx = server_tx(c->server);
    unsigned char code[2] = {(unsigned char)(c->close_code >> 8), (unsigned char)c->close_code};
    buf_add(tx, code, 2);
    if (buf_addz(tx, c->close_reason) < 0) return -1;
    c->close_sent = true;
    return server_write(c->peer, tx->len - LWS_PRE, WRITE_CLOSE) < 0 ? -1 : 0;
}

int connection_peer_closes(const struct connection *c) {
    return c->close_sent ? -1 : 0;
}

static bool pending(const struct connection *c) {
    return c->close_code || !outbox_empty(&c->outbox) ||
           (c->changed_due && !outbox_empty(&c->changed)) || c->n_ready > 0;
}

// One frame, or a piece of one. 0, or -1 when the socket is broken.
static int send_one(struct connection *c) {
    int rc = 0;
    if (c->close_code && (c->skip || outbox_empty(&c->outbox))) return send_close(c);
    if (!outbox_empty(&c->outbox)) {
        rc = send_queued(c);
    } else if (c->changed_due && !outbox_empty(&c->changed)) {
        c->changed_us = server_now_us();
        rc = outbox_move(&c->outbox, &c->changed) ? send_queued(c) : 0;
        c->changed_due = !outbox_empty(&c->changed);
    } else {
        rc = send_event(c);
    }
    if (c->paused && c->outbox.bytes <= PAUSE_OUTBOX_BYTES / 2) {
        c->paused = false;
        lws_rx_flow_control(c->peer->wsi, 1);
    }
    return rc < 0 ? -1 : 0;
}

int connection_writable(struct connection *c) {
    if (c->close_sent) return 0;
    c->waiting_us = 0; // the socket took what it had
    if (send_one(c) < 0) return -1;
    if (pending(c)) want_write(c);
    return 0;
}

// Asking for a writable callback costs two epoll_ctl and a turn-round of the loop: as much as the
// write itself. So what has just become ready is written at once while the socket says, before each
// write, that it takes more.
void connection_push(struct connection *c) {
    c->fresh = false;
    for (int i = 0; i < PUSH_MAX && pending(c) && !c->close_sent; i++) {
        if (c->waiting_us || lws_send_pipe_choked(c->peer->wsi)) break;
        if (send_one(c) < 0) {
            server_kill(c->peer);
            return;
        }
    }
    if (pending(c)) want_write(c);
}

void connection_end(struct connection *c, int code, const char *reason) {
    if (c->close_code) return;
    c->close_code = code;
    c->close_reason = reason;
    c->closing_us = server_now_us();
    c->skip = code == CLOSE_SLOW || code == CLOSE_INTERNAL;
    c->n_ready = 0;
    outbox_release(&c->changed);
    sessions_client_gone(c->server->sessions, c->client);
    server_touch_sessions(c->server);
    want_write(c);
    log_info("ws.end", "client=%llu code=%d reason=\"%s\"", (unsigned long long)c->client, code,
             reason);
}

// --- from the session service ---

// Events of s that may be told go into the outbox, joined, as far as it has room.
static void pull_events(struct connection *c, struct session *s) {
    struct session_event ev;
    while (!c->close_code && c->outbox.bytes < PAUSE_OUTBOX_BYTES &&
           session_next_event(s, c->client, EVENT_TEXT_BYTES, &ev) == 1) {
        protocol_write_event(server_tx(c->server), &ev, session_id(s), c->server->engine);
        queue_tx(c);
    }
}

// An answer about a session does not overtake the events that came before it; but for
// session.attached: what its client has yet to get is what comes behind `after`, and so behind the
// answer. It is encoded first: what it points to may not outlive another call on its session.
void connection_answer(struct connection *c, const struct session_answer *a) {
    struct outbox held = {0};
    struct buf *tx = server_tx(c->server);
    if (c->close_code) return;
    if (a->kind == ANSWER_ERROR) metric_add(c->server->metrics.errors_out, 1);
    protocol_write_answer(tx, a, c->server->engine);
    if (tx->error || outbox_add(&held, NULL, tx->data + LWS_PRE, tx->len - LWS_PRE) < 0) {
        connection_end(c, CLOSE_INTERNAL, "no memory");
        return;
    }
    for (size_t i = c->n_ready; a->session_id && a->kind != ANSWER_ATTACHED && i-- > 0;) {
        if (strcmp(session_id(c->ready[i]), a->session_id) != 0) continue;
        pull_events(c, c->ready[i]);
        // Detached: nobody will tell us when it leaves memory.
        if (a->kind == ANSWER_DETACHED && i < c->n_ready) drop_ready(c, i);
    }
    if (!c->close_code) outbox_move(&c->outbox, &held);
    outbox_release(&held);
    queued(c);
}

void connection_ready(struct connection *c, struct session *s) {
    if (c->close_code) return;
    for (size_t i = 0; i < c->n_ready; i++)
        if (c->ready[i] == s) return;
    if (c->n_ready == c->cap_ready) {
        size_t cap = c->cap_ready ? c->cap_ready * 2 : 2;
        struct session **grown = cap <= MAX_READY ? realloc(c->ready, cap * sizeof(*grown)) : NULL;
        if (!grown) {
            connection_end(c, CLOSE_INTERNAL, "too many sessions at once");
            return;
        }
        c->ready = grown;
        c->cap_ready = cap;
    }
    c->ready[c->n_ready++] = s;
    if (c->fresh) return;
    c->fresh = server_push_later(c->server, c);
    if (!c->fresh) want_write(c);
}

void connection_progress(struct connection *c, struct session *s, int64_t turn, int64_t done,
                         int64_t total) {
    if (c->close_code || !outbox_empty(&c->outbox)) return; // only the latest is of interest
    protocol_write_progress(server_tx(c->server), session_id(s), turn, done, total);
    queue_tx(c);
}

void connection_stalled(struct connection *c, struct session *s, const char *reason) {
    if (c->close_code) return;
    protocol_write_stalled(server_tx(c->server), session_id(s), reason);
    queue_tx(c);
}

// What the service still has for us goes out, its pointer goes.
void connection_gone(struct connection *c, struct session *s) {
    pull_events(c, s);
    for (size_t i = c->n_ready; i-- > 0;)
        if (c->ready[i] == s) drop_ready(c, i);
}

void connection_changed(struct connection *c, const char *owner, const struct session_view *view,
                        bool removed) {
    if (!c->watching || c->close_code || strcmp(c->owner, owner) != 0) return;
    struct buf *tx = server_tx(c->server);
    protocol_write_changed(tx, view, removed);
    if (tx->error || outbox_add(&c->changed, view->id, tx->data + LWS_PRE, tx->len - LWS_PRE) < 0) {
        connection_end(c, CLOSE_SLOW, "too many changes are waiting");
        return;
    }
    if (c->changed_due) return;
    if (server_now_us() - c->changed_us >= CHANGED_INTERVAL_US) {
        c->changed_due = true;
        want_write(c);
    } else if (!uv_is_active((uv_handle_t *)&c->server->watch_timer)) {
        server_start_watch_timer(c->server, CHANGED_INTERVAL_US / 1000);
    }
}

bool connection_drained(const struct connection *c) {
    return !c->n_ready && outbox_empty(&c->outbox);
}

void connection_flush_changed(struct connection *c, int64_t now_us) {
    if (c->close_code || c->changed_due || outbox_empty(&c->changed)) return;
    c->changed_due = true;
    want_write(c);
}

// --- messages ---

static void handle_hello(struct connection *c, const struct message *m) {
    if (c->owner) return; // it was not needed, and ours has been said
    const char *owner = m->token ? auth_owner(c->server->auth, m->token, strlen(m->token)) : NULL;
    if (!owner || !(c->owner = strdup(owner))) {
        send_error(c, "unauthorized", m->token ? "nobody has this token" : "a token is needed",
                   m->request.request_id, NULL, 0);
        connection_end(c, CLOSE_POLICY, "unauthorized");
        return;
    }
    send_hello(c, m->request.request_id);
}

static void handle_authorised(struct connection *c, struct message *m) {
    switch (m->type) {
    case MESSAGE_WATCH:
        c->watching = true;
        protocol_write_watching(server_tx(c->server), m->request.request_id);
        queue_tx(c);
        break;
    case MESSAGE_PING:
        protocol_write_pong(server_tx(c->server), m->request.request_id);
        queue_tx(c);
        break;
    case MESSAGE_HELLO:
        break;
    case MESSAGE_REQUEST:
        m->request.client = c->client;
        m->request.owner = c->owner;
        sessions_submit(c->server->sessions, &m->request);
    }
    server_touch_sessions(c->server);
}

static void handle_message(struct connection *c) {
    struct message m;
    struct err err = {0};
    const char *code;
    struct json_limits limits = json_limits_message;
    limits.max_bytes = (size_t)c->server->config->max_message_bytes;
    int rc = message_decode(&m, buf_z(&c->rx), c->rx.len, &limits,
                            engine_info(c->server->engine)->n_vocab, &code, &err);
    if (!c->owner && (rc < 0 || m.type != MESSAGE_HELLO)) {
        send_error(c, "unauthorized", "say hello with a token first", m.request.request_id, NULL,
                   0);
        connection_end(c, CLOSE_POLICY, "unauthorized");
    } else if (rc < 0) {
        send_error(c, code, err.text, m.request.request_id, NULL, 0);
    } else if (m.type == MESSAGE_HELLO) {
        handle_hello(c, &m);
    } else {
        handle_authorised(c, &m);
    }
    message_release(&m);
}

// A long message costs the loop time in proportion (a megabyte to be parsed, rendered and tokenised
// some 30 ms, in which nobody else is served), so it counts for several.
static double cost(const struct connection *c, double burst) {
    double n = 1 + (double)(c->rx.len / PROTOCOL_RATE_BYTES);
    return n < burst ? n : burst;
}

// Token bucket. A client that goes on in spite of as many refusals as its burst is cut off.
static bool rate_ok(struct connection *c) {
    const struct serve_config *cfg = c->server->config;
    int64_t now = server_now_us();
    double burst = (double)cfg->message_burst, per_second = (double)cfg->messages_per_second;
    c->tokens += (double)(now - c->tokens_us) * per_second / 1e6;
    c->tokens_us = now;
    if (c->tokens > burst) c->tokens = burst;
    double wanted = cost(c, burst);
    if (c->tokens >= wanted) {
        c->tokens -= wanted;
        c->refused_in_a_row = 0;
        return true;
    }
    metric_add(c->server->metrics.rate_limited, 1);
    if (++c->refused_in_a_row > cfg->message_burst) {
        connection_end(c, CLOSE_RATE, "too many messages");
        return false;
    }
    char request_id[SESSION_REQUEST_ID_MAX + 1];
    message_glance(buf_z(&c->rx), c->rx.len, request_id);
    send_error(c, "rate_limited", "too many messages", request_id, NULL,
               (int64_t)((wanted - c->tokens) * 1000 / per_second) + 1);
    return false;
}

static void too_big(struct connection *c) {
    char text[96];
    lws_snprintf(text, sizeof(text), "a message may have %lld bytes",
                 (long long)c->server->config->max_message_bytes);
    send_error(c, "too_large", text, "", NULL, 0);
    connection_end(c, CLOSE_TOO_BIG, "message too big");
}

int connection_receive(struct connection *c, const char *bytes, size_t len) {
    struct lws *wsi = c->peer->wsi;
    if (c->close_code) return 0; // what still comes is dropped, so that the close handshake can end
    if (lws_frame_is_binary(wsi)) {
        connection_end(c, CLOSE_BINARY, "binary frames are not used");
        return 0;
    }
    if (lws_is_first_fragment(wsi)) buf_reset(&c->rx);
    if (buf_add(&c->rx, bytes, len) == E_LIMIT) {
        too_big(c);
        return 0;
    }
    if (c->rx.error) {
        connection_end(c, CLOSE_INTERNAL, "no memory");
        return 0;
    }
    if (!lws_is_final_fragment(wsi) || lws_remaining_packet_payload(wsi) > 0) return 0;
    metric_add(c->server->metrics.messages_in, 1);
    if (rate_ok(c)) handle_message(c);
    buf_reset(&c->rx);
    if (c->rx.cap > RX_KEEP_BYTES) buf_release(&c->rx);
    return 0;
}

// --- the gate ---
// libwebsockets takes unmasked frames (RFC 6455, 5.1 says: fail the connection) and tells nobody
// the mask bit. Nor can every frame be looked at before it is read: between a look at the socket
// and its recv() more may arrive. But who masks no frame does not mask the first, and that one can
// wait: reading is off until its first two bytes have been seen.

// The socket is readable when it has both bytes, or its end.
static void gate_low_water(struct connection *c, int bytes) {
    setsockopt(lws_get_socket_fd(c->peer->wsi), SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes));
}

static void gate_arm(struct connection *c, int op) {
    struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT, .data.u64 = c->client};
    if (epoll_ctl(c->server->gate_fd, op, lws_get_socket_fd(c->peer->wsi), &ev) == 0) return;
    log_warn("ws.gate", "error=\"%s\"", strerror(errno));
    c->gated = false;
    gate_low_water(c, 1);
    lws_rx_flow_control(c->peer->wsi, 1);
}

static int gate_peek(struct connection *c, unsigned char head[2]) {
    if (!c->server->ssl)
        return (int)recv(lws_get_socket_fd(c->peer->wsi), head, 2, MSG_PEEK | MSG_DONTWAIT);
    SSL *ssl = (SSL *)lws_get_ssl(c->peer->wsi);
    int n = SSL_peek(ssl, head, 2);
    if (n <= 0 && SSL_get_error(ssl, n) == SSL_ERROR_WANT_READ) {
        errno = EAGAIN;
        return -1;
    }
    return n > 0 ? n : 0;
}

void connection_gate_readable(struct connection *c) {
    unsigned char head[2] = {0, 0};
    if (!c->gated) return;
    int n = gate_peek(c, head);
    if (n < 0 && errno == EAGAIN) {
        gate_arm(c, EPOLL_CTL_MOD);
        return;
    }
    c->gated = false;
    gate_low_water(c, 1);
    epoll_ctl(c->server->gate_fd, EPOLL_CTL_DEL, lws_get_socket_fd(c->peer->wsi), NULL);
    if (n == 2 && !(head[1] & 0x80)) connection_end(c, CLOSE_PROTOCOL, "frames must be masked");
    lws_rx_flow_control(c->peer->wsi, 1);
    // What TLS has decrypted to be looked at no longer makes the socket readable.
    struct lws_pollfd fd = {
        .fd = lws_get_socket_fd(c->peer->wsi), .events = LWS_POLLIN, .revents = LWS_POLLIN};
    if (c->server->ssl && n > 0) lws_service_fd(c->server->context, &fd);
}

// --- life ---

void connection_tick(struct connection *c, int64_t now_us) {
    const struct serve_config *cfg = c->server->config;
    if (c->close_code) {
        if (now_us - c->closing_us > CLOSE_GRACE_US) server_kill(c->peer);
        return;
    }
    if (!c->owner && now_us - c->opened_us > (int64_t)(cfg->hello_timeout * 1e6)) {
        send_error(c, "unauthorized", "no token came in time", "", NULL, 0);
        connection_end(c, CLOSE_POLICY, "no hello in time");
    } else if (c->waiting_us &&
               now_us - c->waiting_us > (int64_t)(cfg->slow_reader_timeout * 1e6)) {
        metric_add(c->server->metrics.slow_readers, 1);
        connection_end(c, CLOSE_SLOW, "reads too slowly: attach again");
    }
}

uint64_t connection_client(const struct connection *c) {
    return c->client;
}

int connection_open(struct peer *p, char *owner) {
    struct connection *c = calloc(1, sizeof(*c));
    if (!c) return E_NOMEM;
    c->peer = p;
    c->server = p->server;
    c->client = server_add(p->server, c);
    if (!c->client) {
        free(c);
        return E_NOMEM;
    }
    c->owner = owner;
    p->connection = c;
    buf_init(&c->rx, (size_t)p->server->config->max_message_bytes);
    c->opened_us = c->tokens_us = server_now_us();
    c->tokens = (double)p->server->config->message_burst;
    c->gated = true;
    lws_rx_flow_control(p->wsi, 0);
    gate_low_water(c, 2);
    gate_arm(c, EPOLL_CTL_ADD);
    if (c->owner) send_hello(c, "");
    if (p->server->state == SERVER_CLOSING) connection_end(c, CLOSE_GOING_AWAY, "shutting down");
    return 0;
}

void connection_close(struct connection *c) {
    if (!c->close_code) {
        c->close_code = CLOSE_GOING_AWAY;
        sessions_client_gone(c->server->sessions, c->client);
        server_touch_sessions(c->server);
    }
    server_remove(c->server, c);
    c->peer->connection = NULL;
    buf_release(&c->rx);
    outbox_release(&c->outbox);
    outbox_release(&c->changed);
    free(c->ready);
    free(c->owner);
    free(c);
}
