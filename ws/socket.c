// See socket.h.
#include "ws/socket.h"
#include "base/log.h"
#include "base/utf8.h"
#include <stdio.h>

#define HELLO_BYTES 4096        // of a message before the client is authorised
#define RX_KEEP_BYTES 4096      // a longer receive buffer is freed after its message
#define FRAGMENT_BYTES 1024     // a shorter fragment counts as a message, unless it is the last
#define CLOSE_GRACE_US 10000000 // for the last frames and the close handshake
#define RATE_LINGER_US 1000000  // time for a flooder to read the close frame
#define PUSH_MAX 4              // writes of one connection before other connections'

// --- receiving ---

// A long message costs in proportion: a worker's time, and a session's for its tokens. A client that goes on in spite
// of as many refusals as its burst is cut off.
static bool within_rate(struct socket *s) {
    double cost = 1 + (double)(s->rx.len / NET_RATE_BYTES);
    struct http_refusal r = REFUSE(0, NULL, NULL);
    if (!rate_take(&s->rate, &s->limit, cost, net_now_us()))
        r = (struct http_refusal){429, "rate_limited",
                                  "too many messages on this connection: see messages_per_second",
                                  rate_promise_ms(&s->rate, &s->limit, cost)};
    else if (s->peer->as.owner)
        r = peer_take_request(s->peer, cost);
    if (!r.status) {
        s->refused_in_a_row = 0;
        return true;
    }
    metric_add(s->service->metrics.rate_limited, 1);
    if (++s->refused_in_a_row > (int64_t)s->limit.burst)
        socket_end(s, CLOSE_RATE, "too many messages");
    else
        s->ops->refuse(s, &r);
    return false;
}

// A ping or a short fragment. It cannot be refused: it is answered already, or a part of a message.
// A flood within a second ends the connection.
void socket_control_frame(void *ws) {
    struct socket *s = ws;
    bool within = rate_take(&s->rate, &s->limit, 1, net_now_us());
    if (within && (!s->peer->as.owner || !peer_take_request(s->peer, 1).status)) return;
    metric_add(s->service->metrics.rate_limited, 1);
    if (++s->control_frames > (int64_t)s->limit.burst)
        socket_end(s, CLOSE_RATE, "too many pings or fragments");
}

static void too_big(struct socket *s) {
    char text[96];
    snprintf(text, sizeof(text), "a message may have %zu bytes%s", s->rx.max,
             s->peer->as.owner ? " (max_message_bytes)" : "");
    s->ops->refuse(s, &REFUSE(413, "too_large", text));
    socket_end(s, CLOSE_TOO_BIG, "message too big");
}

int socket_receive(void *ws, const struct websocket_piece *piece) {
    struct socket *s = ws;
    if (s->close_code) return 0; // dropped, so that the close handshake can end
    if (piece->binary) {
        socket_end(s, CLOSE_BINARY, "binary frames are not used");
        return 0;
    }
    if (piece->first) {
        buf_reset(&s->rx);
        s->rx.max = s->peer->as.owner ? (size_t)s->service->config->max_message_bytes : HELLO_BYTES;
    }
    if (buf_add(&s->rx, piece->bytes, piece->len) == E_LIMIT)
        too_big(s);
    else if (s->rx.error)
        socket_no_memory(s);
    s->frame_bytes += piece->len;
    if (piece->frame_ends && !piece->last && s->frame_bytes < FRAGMENT_BYTES)
        socket_control_frame(s);
    if (piece->frame_ends) s->frame_bytes = 0;
    if (s->close_code || !piece->last) return 0;
    if (!utf8_valid(s->rx.data, s->rx.len)) {
        socket_end(s, CLOSE_UTF8, "a message is not UTF-8");
        return 0;
    }
    metric_add(s->service->metrics.messages_in, 1);
    if (within_rate(s)) s->ops->message(s);
    buf_reset(&s->rx);
    if (s->rx.cap > RX_KEEP_BYTES) buf_release(&s->rx);
    return 0;
}

int socket_work_submit(struct socket *s, struct socket_work *w, void (*run)(struct work *),
                       void (*done)(struct work *)) {
    w->work = (struct work){
        .group = peer_group(s->peer), .lane = s->peer->number, .run = run, .done = done};
    if (!w->text) w->text = buf_take(&s->rx, &w->len);
    w->socket = s;
    if (workers_submit(s->service->net->workers, &w->work) < 0) return E_BUSY;
    s->decoding = w;
    websocket_pause(s->peer, PAUSE_WORK, true);
    return 0;
}

struct socket *socket_work_done(struct socket_work *w) {
    if (!w->socket) return NULL;
    w->socket->decoding = NULL;
    websocket_pause(w->socket->peer, PAUSE_WORK, false);
    return w->socket;
}

// --- sending ---

void socket_want_write(struct socket *s) {
    if (s->close_sent) return;
    if (!s->waiting_us) s->waiting_us = net_served_us(s->service->net);
    websocket_want_write(s->peer);
}

void socket_queue(struct socket *s, const char *text, size_t len) {
    if (s->close_code) return;
    if (outbox_add(&s->outbox, text, len) < 0)
        socket_no_memory(s);
    else
        socket_want_write(s);
}

static int write_chunk(struct socket *s, bool first, bool last) {
    if (last) metric_add(s->service->metrics.frames_out, 1);
    return websocket_write_text(s->peer, s->service->net->tx.len - NET_TX_ROOM, first, last);
}

int socket_send_tx(struct socket *s) {
    return write_chunk(s, true, true);
}

int socket_send_queued(struct socket *s) {
    struct buf *tx = websocket_tx(s->service->net);
    bool first, last, escape;
    size_t n;
    const char *bytes = outbox_next(&s->outbox, NET_CHUNK_BYTES, &n, &first, &last, &escape);
    if (escape)
        json_escape(tx, bytes, n);
    else
        buf_add(tx, bytes, n);
    if (tx->error) return -1;
    outbox_sent(&s->outbox, n);
    return write_chunk(s, first, last);
}

// By hand: where libwebsockets was built with _DEBUG, as Debian's 4.1.6 is, its libuv service
// closes a connection twice when a callback asks for it, and the second time the close frame is
// thrown away. The client's own close frame, or socket_tick, then ends the socket.
static int send_close(struct socket *s) {
    struct buf *tx = websocket_tx(s->service->net);
    unsigned char code[2] = {(unsigned char)(s->close_code >> 8), (unsigned char)s->close_code};
    buf_add(tx, code, 2);
    if (buf_addz(tx, s->close_reason) < 0) return -1;
    s->close_sent = true;
    int rc = websocket_write_close(s->peer, tx->len - NET_TX_ROOM);
    if (s->close_code == CLOSE_RATE)
        s->end_by_us =
            net_served_us(s->service->net) + RATE_LINGER_US; // its own would come behind its flood
    else
        websocket_pause(s->peer, PAUSE_OUTPUT, false); // for the client's close frame
    return rc;
}

static bool has_more(const struct socket *s) {
    return s->ops->has_more && s->ops->has_more(s);
}

// Nothing goes between two pieces of a message.
static bool pending(const struct socket *s) {
    if (s->close_code && s->skips) return true;
    if (!outbox_empty(&s->outbox)) return outbox_ready(&s->outbox);
    return s->close_code || has_more(s);
}

// One frame, or a piece of one. 0, or -1 when the socket is broken.
static int send_one(struct socket *s) {
    int rc = 0;
    if (s->close_code && (s->skips || outbox_empty(&s->outbox))) return send_close(s);
    if (outbox_ready(&s->outbox))
        rc = socket_send_queued(s);
    else if (outbox_empty(&s->outbox) && has_more(s))
        rc = s->ops->send(s);
    if (s->ops->sent) s->ops->sent(s);
    return rc;
}

int socket_writable(void *ws) {
    struct socket *s = ws;
    if (s->close_sent) return 0;
    s->waiting_us = 0; // the socket took what it had
    if (send_one(s) < 0) return -1;
    if (pending(s)) socket_want_write(s);
    return 0;
}

// Asking for a writable callback costs two epoll_ctl and another round of the loop: as much as the
// write itself. So new messages are written at once, as long as the socket says before each write that it takes more.
void socket_push(struct socket *s) {
    for (int i = 0; i < PUSH_MAX && pending(s) && !s->close_sent; i++) {
        if (s->waiting_us || websocket_choked(s->peer)) break;
        if (send_one(s) < 0) {
            websocket_kill(s->peer);
            return;
        }
    }
    if (pending(s)) socket_want_write(s);
}

// --- the end ---

void socket_end(struct socket *s, int code, const char *reason) {
    if (s->close_code) return;
    s->close_code = code;
    s->close_reason = reason;
    s->end_by_us = net_served_us(s->service->net) + CLOSE_GRACE_US;
    // The rest of an open message will not come.
    s->skips = code == CLOSE_SLOW || code == CLOSE_INTERNAL || s->outbox.open;
    if (s->ops->ended) s->ops->ended(s);
    // Nothing more is read from a flooder. libwebsockets would also write the pongs of a flood of pings before
    // anything of ours.
    if (code == CLOSE_RATE) websocket_pause(s->peer, PAUSE_OUTPUT, true);
    socket_want_write(s);
    log_info("ws.end", "client=%llu code=%d reason=\"%s\"", (unsigned long long)s->follower.client,
             code, reason);
}

void socket_no_memory(struct socket *s) {
    socket_end(s, s->ops->no_memory, s->ops->no_memory_reason);
}

int socket_client_closes(void *ws) {
    return ((struct socket *)ws)->close_sent ? -1 : 0;
}

void socket_unmasked(void *ws) {
    socket_end(ws, CLOSE_PROTOCOL, "frames must be masked");
}

void socket_tick(void *ws, int64_t now_us) {
    struct socket *s = ws;
    int64_t patience_us = (int64_t)(s->service->config->slow_reader_timeout * 1e6);
    s->control_frames = 0;
    if (s->close_code) {
        if (now_us > s->end_by_us) websocket_kill(s->peer);
    } else if (s->waiting_us && now_us - s->waiting_us > patience_us) {
        metric_add(s->service->metrics.slow_readers, 1);
        socket_end(s, CLOSE_SLOW, "reads too slowly");
    }
}

// --- life ---

int socket_init(struct socket *s, struct service *service, struct peer *p,
                const struct follower_ops *follower, const struct socket_ops *ops) {
    *s = (struct socket){.follower.ops = follower, .ops = ops, .service = service, .peer = p};
    buf_init(&s->rx, HELLO_BYTES);
    s->limit = (struct rate_limit){(double)service->config->messages_per_second,
                                   (double)serve_config_burst(service->config)};
    rate_init(&s->rate, &s->limit, net_now_us());
    return followers_add(&service->followers, &s->follower);
}

void socket_release(struct socket *s) {
    if (s->decoding) {
        s->decoding->socket = NULL;
        workers_cancel(s->service->net->workers, s->peer->number);
    }
    outbox_release(&s->outbox);
    buf_release(&s->rx);
    followers_remove(&s->service->followers, &s->follower);
}
