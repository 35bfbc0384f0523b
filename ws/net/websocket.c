// libwebsockets' options, callbacks (passed on to the protocol) and calls. See websocket.h.
#include "ws/net/websocket.h"
#include "base/log.h"
#include "ws/net/peer.h"
#include "ws/net/tunnel.h"
#include <errno.h>
#include <libwebsockets.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

_Static_assert(NET_TX_ROOM >= LWS_PRE, "room for a frame's header");

#define HANDSHAKE_SECONDS 10
#define HELLO_TICK_MS 100
#define RX_BYTES 2048 // per WebSocket, for as long as it lives
#define TX_KEEP_BYTES 65536
#define TX_MAX_BYTES (32 << 20)

// Of enum lws_write_protocol, 4.1 to 4.5; the public header leaves its place free and says "handled
// by lws_close_reason".
#define WRITE_CLOSE ((enum lws_write_protocol)4)

// --- calls ---

struct buf *websocket_tx(struct net *n) {
    if (n->tx.cap > TX_KEEP_BYTES + NET_TX_ROOM) buf_release(&n->tx);
    buf_reset(&n->tx);
    if (buf_reserve(&n->tx, NET_TX_ROOM) == 0) n->tx.len = NET_TX_ROOM;
    return &n->tx;
}

static int write_tx(struct peer *p, size_t len, enum lws_write_protocol how) {
    metric_add(p->net->metrics.bytes_out, (double)len);
    return lws_write(p->wsi, (unsigned char *)p->net->tx.data + NET_TX_ROOM, len, how) < 0 ? -1 : 0;
}

int websocket_write_text(struct peer *p, size_t len, bool first, bool last) {
    return write_tx(p, len,
                    (enum lws_write_protocol)lws_write_ws_flags(LWS_WRITE_TEXT, first, last));
}

int websocket_write_close(struct peer *p, size_t len) {
    p->close_sent = true;
    return write_tx(p, len, WRITE_CLOSE);
}

void websocket_want_write(struct peer *p) {
    p->wants_write = true;
    lws_callback_on_writable(p->wsi);
}

bool websocket_choked(struct peer *p) {
    return lws_send_pipe_choked(p->wsi);
}

void websocket_pause(struct peer *p, enum websocket_pause reason, bool on) {
    unsigned pauses = on ? p->pauses | reason : p->pauses & ~(unsigned)reason;
    if (!pauses != !p->pauses) lws_rx_flow_control(p->wsi, !pauses);
    p->pauses = pauses;
}

void websocket_kill(struct peer *p) {
    lws_set_timeout(p->wsi, PENDING_TIMEOUT_USER_OK, LWS_TO_KILL_ASYNC);
    lws_cancel_service(p->net->context); // wakes libwebsockets, which would not look at its timers
}

// --- the gate ---

static void on_gate_passed(void *owner, bool masked) {
    struct peer *p = owner;
    if (!p->websocket) return;
    if (!masked) p->protocol->unmasked(p->websocket);
    websocket_pause(p, PAUSE_GATE, false);
}

static void close_gate(struct peer *p) {
    p->gate = (struct gate_entry){lws_get_socket_fd(p->wsi), p};
    websocket_pause(p, PAUSE_GATE, true);
    if (gate_watch(p->net->gate, &p->gate) == 0) return;
    log_warn("ws.gate", "error=\"%s\"", strerror(errno));
    websocket_pause(p, PAUSE_GATE, false);
}

// --- without a token ---

// Counts ticks, not time: if this thread did not run for a while, the hello may wait unread in the socket. All
// missed ticks then come as one.
static void on_hello_timer(uv_timer_t *handle) {
    struct net *n = handle->data;
    double timeout_ticks = n->config->hello_timeout * 1e3 / HELLO_TICK_MS;
    bool waiting = false;
    for (struct peer *p = n->unknown; p; p = p->unknown_next) {
        if (!p->websocket) continue;
        waiting = true;
        if (++p->hello_ticks > timeout_ticks) p->protocol->no_hello(p->websocket);
    }
    if (!waiting) uv_timer_stop(handle);
}

static void wait_hello(struct peer *p) {
    uv_timer_t *timer = &p->net->hello;
    p->hello_ticks = 0;
    if (!uv_is_active((uv_handle_t *)timer))
        uv_timer_start(timer, on_hello_timer, HELLO_TICK_MS, HELLO_TICK_MS);
}

// --- silence ---

// The pings are ours, not libwebsockets'. Its pings have no payload, so pongs have none, and version 4.1.6 makes no
// callback for an empty pong: every client that sends nothing else would look dead. Its clock also goes on while this
// thread stands still, when a pong may wait unread.

static void heard(struct peer *p) {
    p->heard_us = net_served_us(p->net);
}

static int write_ping(struct peer *p) {
    struct buf *tx = websocket_tx(p->net);
    uint64_t number = ++p->net->last_ping;
    if (buf_add(tx, &number, sizeof number) < 0) return 0; // no memory: the next interval's
    p->pongs_due++;
    return write_tx(p, sizeof number, LWS_WRITE_PING);
}

// A pong that we asked for costs its client nothing; others count as any control frame.
static void pong(struct peer *p) {
    heard(p);
    if (p->pongs_due > 0)
        p->pongs_due--;
    else
        p->protocol->control_frame(p->websocket);
}

static void ping(struct peer *p, int64_t now_us) {
    if (p->close_sent) return;
    p->pinged_us = now_us;
    p->wants_ping = true;
    tcp_moves(p->tcp_fd, &p->tcp); // from here on
    lws_callback_on_writable(p->wsi);
}

// A ping after each interval of silence, and the end an interval after a ping that has changed nothing. Pongs make
// callbacks, but not all that arrives does, so the socket is asked as well. Where we read nothing from a client, its
// silence is ours.
void websocket_tick(struct peer *p, int64_t now_us) {
    int64_t interval_us = (int64_t)(p->net->config->ping_interval * 1e6);
    if (p->pauses & ~(unsigned)PAUSE_GATE) p->heard_us = now_us;
    bool late = p->pinged_us > p->heard_us && now_us - p->pinged_us > interval_us;
    if (late && tcp_moves(p->tcp_fd, &p->tcp)) {
        p->heard_us = now_us;
        late = false;
    }
    if (!late) {
        if (p->pinged_us <= p->heard_us && now_us - p->heard_us >= interval_us) ping(p, now_us);
        p->protocol->tick(p->websocket, now_us);
        return;
    }
    log_info("ws.silent", "peer=%llu seconds=%lld", (unsigned long long)p->number,
             (long long)(now_us - p->heard_us) / 1000000);
    websocket_kill(p);
}

// --- callbacks ---

static int established(struct peer *p, struct lws *wsi) {
    p->wsi = wsi;
    heard(p);
    p->websocket = p->protocol->open(p->net->user, p);
    if (!p->websocket) return -1;
    if (!p->as.owner) wait_hello(p);
    p->net->n_websockets++;
    close_gate(p);
    return 0;
}

static void closed(struct peer *p) {
    if (!p || !p->websocket) return;
    p->protocol->close(p->websocket);
    p->websocket = NULL;
    p->net->n_websockets--;
}

static int receive(struct peer *p, struct lws *wsi, const char *bytes, size_t len) {
    heard(p);
    struct websocket_piece piece = {.bytes = bytes,
                                    .len = len,
                                    .first = lws_is_first_fragment(wsi),
                                    .binary = lws_frame_is_binary(wsi),
                                    .frame_ends = lws_remaining_packet_payload(wsi) == 0};
    piece.last = piece.frame_ends && lws_is_final_fragment(wsi);
    return p->protocol->receive(p->websocket, &piece);
}

// libwebsockets answers a ping by itself, and makes this callback when the pong is sent.
static int writable(struct peer *p) {
    if (p->wants_ping) {
        p->wants_ping = false;
        if (p->wants_write) lws_callback_on_writable(p->wsi);
        return p->close_sent ? 0 : write_ping(p);
    }
    if (!p->wants_write) {
        heard(p);
        p->protocol->control_frame(p->websocket);
        return 0;
    }
    p->wants_write = false;
    return p->protocol->writable(p->websocket);
}

static int on_websocket(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                        size_t len) {
    struct peer *p = lws_get_opaque_user_data(wsi);
    switch (reason) {
    case LWS_CALLBACK_ESTABLISHED:
        return p ? established(p, wsi) : -1;
    case LWS_CALLBACK_RECEIVE:
        return p && p->websocket ? receive(p, wsi, in, len) : -1;
    case LWS_CALLBACK_RECEIVE_PONG:
        if (p && p->websocket) pong(p);
        return 0;
    case LWS_CALLBACK_SERVER_WRITEABLE:
        return p && p->websocket ? writable(p) : -1;
    case LWS_CALLBACK_WS_PEER_INITIATED_CLOSE:
        return p && p->websocket ? p->protocol->client_closes(p->websocket) : -1;
    case LWS_CALLBACK_CLOSED:
        closed(p);
        return 0;
    default:
        return 0;
    }
}

static struct peer *take_adopted(struct net *n) {
    struct peer *p = n->adopting;
    n->adopting = NULL;
    return p;
}

// Without a sub-protocol, libwebsockets takes the first protocol of its list, which is on_http's.
static bool is_nameless(const struct peer *p) {
    return p && p->protocol && !p->protocol->name;
}

// Sockets that are not WebSockets yet or any more, and WebSockets without a sub-protocol.
static int on_http(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                   size_t len) {
    struct peer *p = lws_get_opaque_user_data(wsi);
    switch (reason) {
    case LWS_CALLBACK_SERVER_NEW_CLIENT_INSTANTIATED:
        p = take_adopted(lws_context_user(lws_get_context(wsi)));
        if (!p) return -1;
        p->wsi = wsi;
        lws_set_opaque_user_data(wsi, p);
        return 0;
    case LWS_CALLBACK_WSI_DESTROY:
        lws_set_opaque_user_data(wsi, NULL);
        closed(p);
        if (p) peer_free(p);
        return 0;
    // Only heads from websocket_adopt arrive here: each asks for a served sub-protocol, or for none.
    case LWS_CALLBACK_FILTER_PROTOCOL_CONNECTION:
        return is_nameless(p) ? 0 : -1;
    case LWS_CALLBACK_ESTABLISHED:
    case LWS_CALLBACK_RECEIVE:
        return is_nameless(p) ? on_websocket(wsi, reason, user, in, len) : -1;
    case LWS_CALLBACK_HTTP:
    case LWS_CALLBACK_RAW_ADOPT:
    case LWS_CALLBACK_RAW_CONNECTED:
    case LWS_CALLBACK_RAW_RX:
        return -1;
    default:
        return is_nameless(p) ? on_websocket(wsi, reason, user, in, len) : 0;
    }
}

// --- life ---

// Logged as debug: most "errors" of libwebsockets are a client's bad frame.
static char first_error[512]; // of libwebsockets, whose callback has no context

static void on_lws_log(int level, const char *line) {
    size_t len = strcspn(line, "\n");
    char text[512], quoted[1024];
    lws_snprintf(text, sizeof(text), "%.*s", (int)len, line);
    if (level == LLL_ERR && !*first_error) memcpy(first_error, text, sizeof text);
    log_debug("lws.message", "text=%s", log_quote(quoted, sizeof(quoted), text));
}

static void fill_info(struct net *n, struct lws_context_creation_info *info, void **loops) {
    info->port = CONTEXT_PORT_NO_LISTEN_SERVER;
    info->protocols = n->lws_protocols;
    info->user = n;
    info->foreign_loops = loops;
    info->pcontext = &n->context;
    // Without LWS_SERVER_OPTION_VALIDATE_UTF8, which checks pongs behind a text as well, although they are bytes.
    info->options = LWS_SERVER_OPTION_LIBUV | LWS_SERVER_OPTION_EXPLICIT_VHOSTS;
    info->timeout_secs = HANDSHAKE_SECONDS;
    info->gid = (gid_t)-1;
    info->uid = (uid_t)-1;
    static const lws_retry_bo_t none; // all zero: websocket_tick pings and hangs up
    info->retry_and_idle_policy = &none;
}

static int list_protocols(struct net *n, struct err *err) {
    struct lws_protocols *list = calloc(n->n_websocket_protocols + 2, sizeof(*list));
    if (!list) return err_set(err, E_NOMEM, "no memory for the server");
    n->lws_protocols = list;
    *list++ = (struct lws_protocols){"http", on_http, 0, RX_BYTES, 0, NULL, NET_CHUNK_BYTES};
    for (size_t i = 0; i < n->n_websocket_protocols; i++)
        if (n->websockets[i]->name)
            *list++ = (struct lws_protocols){
                n->websockets[i]->name, on_websocket, 0, RX_BYTES, 0, NULL, NET_CHUNK_BYTES};
    return 0;
}

// Where memory is short, libwebsockets 4.1.6 crashes, or says that it does not find its parts.
static int check_memory(struct err *err) {
    enum {
        CONTEXT_BYTES = 4 << 20
    }; // more than the context, its libraries and its table of descriptors take
    void *at =
        mmap(NULL, CONTEXT_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at != MAP_FAILED) {
        munmap(at, CONTEXT_BYTES);
        return 0;
    }
    return err_set(err, E_NOMEM,
                   "libwebsockets does not start: the process has less than %d MiB of memory left",
                   CONTEXT_BYTES >> 20);
}

int websocket_open(struct net *n, struct err *err) {
    void *loops[] = {&n->loop};
    struct lws_context_creation_info info;
    TRY(check_memory(err));
    TRY(list_protocols(n, err));
    memset(&info, 0, sizeof(info));
    lws_set_log_level(LLL_ERR | LLL_WARN, on_lws_log);
    fill_info(n, &info, loops);
    buf_init(&n->tx, TX_MAX_BYTES + NET_TX_ROOM);
    TRY(gate_open(&n->gate, &n->loop, on_gate_passed, err));
    n->context = lws_create_context(&info);
    if (!n->context)
        return err_set(err, E_UNSUPPORTED,
                       "libwebsockets does not start on libuv (%s): is its package "
                       "libwebsockets-evlib-uv installed?",
                       *first_error ? first_error : "it does not say why");
    n->vhost = lws_create_vhost(n->context, &info);
    return n->vhost ? 0 : err_set(err, E_IO, "libwebsockets makes no server");
}

// libwebsockets closes its handles while the loop runs. On a foreign loop version 4.1.6 frees its
// context only at the second lws_context_destroy; newer versions free it at the first, and
// n->context is NULL then.
void websocket_stop(struct net *n) {
    for (int round = 0; round < 2 && n->context; round++) {
        lws_context_destroy(n->context);
        for (int i = 0; i < 100 && n->context; i++) uv_run(&n->loop, UV_RUN_NOWAIT);
    }
    gate_close(n->gate);
    n->gate = NULL;
}

void websocket_adopt(struct peer *p, struct channel *channel, const char *key) {
    struct net *n = p->net;
    int fd = channel->fd;
    if (channel->ssl && tunnel_open(n, channel, TUNNEL_WEBSOCKET, NULL, &fd) < 0) {
        peer_free(p);
        return;
    }
    const char *name = p->protocol->name;
    char head[512];
    int len = lws_snprintf(head, sizeof(head),
                           "GET %s HTTP/1.1\r\nHost: parley\r\nUpgrade: websocket\r\n"
                           "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                           "Sec-WebSocket-Key: %s\r\n%s%s%s\r\n",
                           p->protocol->path, key, name ? "Sec-WebSocket-Protocol: " : "",
                           name ? name : "", name ? "\r\n" : "");
    n->adopting = p;
    lws_adopt_socket_vhost_readbuf(n->vhost, fd, head, (size_t)len);
    // On failure it closes fd. If it has taken the peer, WSI_DESTROY frees it.
    if (take_adopted(n)) peer_free(p);
}
