// Tunnels. See tunnel.h.
//
//     client ==TLS==> outer -- in[] --> inner ==pair==> libwebsockets, gRPC
//            <==TLS== outer <-- out[] -- inner <==pair==
#include "ws/net/tunnel.h"
#include "ws/net/frame_meter.h"
#include "ws/net/goaway.h"
#include <stdlib.h>
#include <sys/socket.h>
#include <utlist.h>

#define PAIR_BYTES 32768 // of the pair's buffers: a slow reader's events wait as a cursor
#define HANDSHAKE_MS 10000
#define ROUNDS 4 // records in each direction before others get their turn

struct lane {             // bytes on their way in one direction
    unsigned char *bytes; // (CHANNEL_READ_BYTES + GOAWAY_ROOM), while some wait; NULL otherwise
    size_t len, sent;
    bool ended;  // no more will come
    bool closed; // the end was passed on
};

struct tunnel {
    struct net *net;
    struct tunnel *prev, *next; // net->tunnels
    struct tunnel **holder;     // tunnel_open
    struct channel outer, inner;
    int n_handles;
    uv_poll_t outer_poll, inner_poll;
    uv_timer_t timer; // the handshake's, then the meter's
    struct lane in, out;
    struct frame_meter meter;
    struct goaway goaway;
    size_t passed; // bytes of `in` that the meter lets through
    bool metered;
    bool closing;
};

// --- the end ---

static void on_closed(uv_handle_t *handle) {
    struct tunnel *t = handle->data;
    if (--t->n_handles > 0) return;
    free(t->in.bytes);
    free(t->out.bytes);
    free(t);
}

static void end(struct tunnel *t) {
    if (t->closing) return;
    t->closing = true;
    DL_DELETE(t->net->tunnels, t);
    if (t->holder) *t->holder = NULL;
    uv_close((uv_handle_t *)&t->outer_poll, on_closed);
    uv_close((uv_handle_t *)&t->inner_poll, on_closed);
    uv_close((uv_handle_t *)&t->timer, on_closed);
    channel_close(&t->outer);
    channel_close(&t->inner);
}

// --- bytes ---

enum pump { PUMP_MOVED, PUMP_WAITS, PUMP_BROKEN };

static enum pump waits_or_broken(ssize_t wait) {
    return wait == CHANNEL_WAITS ? PUMP_WAITS : PUMP_BROKEN;
}

static bool has_bytes(struct lane *l) {
    return l->bytes || (l->bytes = malloc(CHANNEL_READ_BYTES + GOAWAY_ROOM));
}

// Reads from one side into l, at `into` of its bytes.
static enum pump fill(struct channel *from, struct lane *l, unsigned char *into) {
    ssize_t n = channel_read(from, into);
    if (n < 0) return waits_or_broken(n);
    l->len = (size_t)n;
    l->ended = n == 0;
    return n > 0 ? PUMP_MOVED : PUMP_WAITS;
}

// Writes what l has up to `upto` to the other side.
static enum pump drain(struct channel *to, struct lane *l, size_t upto) {
    ssize_t n = channel_send(to, l->bytes + l->sent, upto - l->sent, false);
    if (n < 0) return waits_or_broken(n);
    l->sent += (size_t)n;
    if (l->sent == l->len) l->len = l->sent = 0;
    return PUMP_MOVED;
}

static enum pump read_outer(struct tunnel *t) {
    struct lane *l = &t->in;
    if (l->len > 0 || l->ended) return PUMP_WAITS;
    if (!has_bytes(l)) return PUMP_BROKEN;
    t->passed = 0;
    if (!t->metered) return fill(&t->outer, l, l->bytes);
    enum pump p = fill(&t->outer, l, l->bytes + GOAWAY_ROOM);
    if (p == PUMP_MOVED) l->len = goaway_keep(&t->goaway, l->bytes, l->bytes + GOAWAY_ROOM, l->len);
    return p;
}

static enum pump write_outer(struct tunnel *t) {
    return t->out.len > 0 ? drain(&t->outer, &t->out, t->out.len) : PUMP_WAITS;
}

static enum pump read_inner(struct tunnel *t) {
    struct lane *l = &t->out;
    if (l->len > 0 || l->ended) return PUMP_WAITS;
    if (!has_bytes(l)) return PUMP_BROKEN;
    if (t->metered && (l->len = goaway_take(&t->goaway, l->bytes)) > 0) return PUMP_MOVED;
    enum pump p = fill(&t->inner, l, l->bytes);
    if (t->metered && p == PUMP_MOVED) goaway_follow(&t->goaway, l->bytes, l->len);
    return p;
}

static enum pump write_inner(struct tunnel *t) {
    struct lane *l = &t->in;
    if (l->len == 0) return PUMP_WAITS;
    if (t->metered)
        t->passed +=
            frame_meter_pass(&t->meter, l->bytes + t->passed, l->len - t->passed, net_now_us());
    else
        t->passed = l->len;
    if (t->meter.broken) return PUMP_BROKEN;
    return t->passed > l->sent ? drain(&t->inner, l, t->passed) : PUMP_WAITS;
}

static void release_idle(struct lane *l) {
    if (l->len > 0) return;
    free(l->bytes);
    l->bytes = NULL;
}

// Passes an end on after the last byte. false: both ends have passed, the tunnel is done.
static bool pass_ends(struct tunnel *t) {
    if (t->in.ended && t->in.len == 0 && !t->in.closed) {
        t->in.closed = true;
        channel_shut(&t->inner);
    }
    if (t->out.ended && t->out.len == 0 && !t->out.closed) {
        t->out.closed = true;
        channel_shut(&t->outer);
    }
    return !t->out.closed;
}

static void on_outer(uv_poll_t *handle, int status, int events);
static void on_inner(uv_poll_t *handle, int status, int events);
static void on_time(uv_timer_t *handle);

// The meter holds bytes back.
static bool is_held(const struct tunnel *t) {
    return t->metered && t->passed < t->in.len;
}

static void watch(struct tunnel *t) {
    int outer = 0, inner = 0;
    if (t->in.len == 0 && !t->in.ended) outer |= UV_READABLE;
    if (t->out.len > 0) outer |= UV_WRITABLE;
    if (t->out.len == 0 && !t->out.ended) inner |= UV_READABLE;
    if (t->in.len > 0 && t->passed > t->in.sent) inner |= UV_WRITABLE;
    if (is_held(t)) {
        uv_timer_start(&t->timer, on_time, (uint64_t)frame_meter_wait_ms(&t->meter), 0);
        outer |= UV_DISCONNECT;
    }
    uv_poll_start(&t->outer_poll, channel_events(&t->outer, outer), on_outer);
    uv_poll_start(&t->inner_poll, channel_is_ready(&t->outer) ? inner : 0, on_inner);
}

// Moves bytes both ways. false: a side is broken, or the tunnel is done.
static bool pump_all(struct tunnel *t) {
    enum pump (*const steps[])(struct tunnel *) = {read_outer, write_inner, read_inner,
                                                   write_outer};
    bool moved = true;
    for (int round = 0; moved && round < ROUNDS; round++) {
        moved = false;
        for (int i = 0; i < 4; i++) {
            enum pump p = steps[i](t);
            if (p == PUMP_BROKEN) return false;
            moved |= p == PUMP_MOVED;
        }
    }
    release_idle(&t->in);
    release_idle(&t->out);
    return pass_ends(t);
}

static void run(struct tunnel *t) {
    bool was_ready = channel_is_ready(&t->outer);
    if (!pump_all(t)) {
        end(t);
        return;
    }
    if (!was_ready && channel_is_ready(&t->outer)) uv_timer_stop(&t->timer);
    watch(t);
}

static void on_outer(uv_poll_t *handle, int status, int events) {
    struct tunnel *t = handle->data;
    // A client that has gone waits for nothing: what it flooded the kernel's buffers with is not read.
    if (status < 0 || (events & UV_DISCONNECT && is_held(t)))
        end(t);
    else
        run(t);
}

static void on_inner(uv_poll_t *handle, int status, int events) {
    on_outer(handle, status, 0);
}

static void on_time(uv_timer_t *handle) {
    struct tunnel *t = handle->data;
    if (channel_is_ready(&t->outer))
        run(t);
    else
        end(t); // the handshake is late
}

// --- its holder ---

void tunnel_let_go(struct tunnel *t) {
    if (t) t->holder = NULL;
}

void tunnel_took_call(struct tunnel *t) {
    if (!t) return;
    frame_meter_took(&t->meter);
    if (is_held(t)) uv_timer_start(&t->timer, on_time, 0, 0);
}

void tunnel_part(struct tunnel *t) {
    if (!t || !t->metered || t->goaway.state != GOAWAY_NONE) return;
    t->goaway.state = GOAWAY_WANTED;
    if (channel_is_ready(&t->outer)) run(t);
}

bool tunnel_has_parted(const struct tunnel *t) {
    return t && t->goaway.state == GOAWAY_SENT;
}

// --- the beginning ---

static int open_pair(int pair[2]) {
    int bytes = PAIR_BYTES;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) return E_IO;
    setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    return 0;
}

// Cannot fail: both descriptors are new and ours.
static void init_handles(struct tunnel *t) {
    uv_loop_t *loop = &t->net->loop;
    uv_timer_init(loop, &t->timer);
    t->n_handles = 3;
    t->outer_poll.data = t->inner_poll.data = t->timer.data = t;
    uv_poll_init(loop, &t->outer_poll, t->outer.fd);
    uv_poll_init(loop, &t->inner_poll, t->inner.fd);
}

int tunnel_open(struct net *n, struct channel *channel, enum tunnel_protocol protocol,
                struct tunnel **holder, int *plain) {
    int pair[2];
    struct tunnel *t = calloc(1, sizeof(*t));
    int rc = t ? open_pair(pair) : E_NOMEM;
    if (rc < 0) {
        free(t);
        channel_close(channel);
        return rc;
    }
    *t = (struct tunnel){.net = n,
                         .holder = holder,
                         .outer = *channel,
                         .inner = {.fd = pair[0]},
                         .metered = protocol == TUNNEL_HTTP2};
    DL_APPEND(n->tunnels, t);
    if (holder) *holder = t;
    *plain = pair[1];
    init_handles(t);
    frame_meter_init(&t->meter, net_now_us());
    goaway_init(&t->goaway);
    if (!channel_is_ready(&t->outer)) uv_timer_start(&t->timer, on_time, HANDSHAKE_MS, 0);
    watch(t);
    return 0;
}

void tunnel_stop_all(struct net *n) {
    while (n->tunnels) end(n->tunnels);
}
