// Tunnels. See tunnel.h.
//
//     client ==TLS==> outer -- in[] --> inner ==pair==> HTTP, libwebsockets, gRPC
//            <==TLS== outer <-- out[] -- inner <==pair==
#include "ws/net/tunnel.h"
#include "ws/net/frame_meter.h"
#include "ws/net/goaway.h"
#include "ws/net/tls.h"
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#define RECORD_BYTES 16384
#define PAIR_BYTES 32768 // of the pair's buffers: a slow reader's events wait as a cursor
#define HANDSHAKE_MS 10000
#define ROUNDS 4 // records in each direction before others get their turn

struct lane {             // bytes on their way in one direction
    unsigned char *bytes; // (RECORD_BYTES + GOAWAY_ROOM), while some wait; NULL otherwise
    size_t len, sent;
    bool ended;  // no more will come
    bool closed; // the end was passed on
};

struct tunnel {
    struct net *net;
    struct tunnel *prev, *next; // net->tunnels
    struct tunnel **holder;     // tunnel_open
    SSL *ssl;                   // NULL: plain
    int outer_fd, inner_fd, n_handles;
    uv_poll_t outer, inner;
    uv_timer_t timer; // the handshake's, then the meter's
    struct lane in, out;
    struct frame_meter meter;
    struct goaway goaway;
    size_t passed; // bytes of `in` that the meter lets through
    bool metered;
    bool established, closing;
    bool read_wants_write, write_wants_read; // TLS needs the other direction first
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
    uv_close((uv_handle_t *)&t->outer, on_closed);
    uv_close((uv_handle_t *)&t->inner, on_closed);
    uv_close((uv_handle_t *)&t->timer, on_closed);
    SSL_free(t->ssl);
    close(t->outer_fd);
    close(t->inner_fd);
}

// --- bytes ---

enum pump { PUMP_MOVED, PUMP_WAITS, PUMP_BROKEN };

// What OpenSSL's last call on t wants. *crossed: the other direction than the call's own.
static enum pump ssl_wants(struct tunnel *t, int rc, int crossing, bool *crossed, bool *ended) {
    int error = SSL_get_error(t->ssl, rc);
    ERR_clear_error();
    *crossed = error == crossing;
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return PUMP_WAITS;
    if (error != SSL_ERROR_ZERO_RETURN || !ended) return PUMP_BROKEN;
    *ended = true;
    return PUMP_WAITS;
}

static enum pump failed(void) {
    return errno == EAGAIN || errno == EINTR ? PUMP_WAITS : PUMP_BROKEN;
}

static enum pump read_plain(int fd, struct lane *l, unsigned char *into) {
    ssize_t n = recv(fd, into, RECORD_BYTES, 0);
    if (n < 0) return failed();
    l->len = (size_t)n;
    l->ended = n == 0;
    return n > 0 ? PUMP_MOVED : PUMP_WAITS;
}

static enum pump write_plain(int fd, struct lane *l, size_t upto) {
    ssize_t n = send(fd, l->bytes + l->sent, upto - l->sent, MSG_NOSIGNAL);
    if (n < 0) return failed();
    l->sent += (size_t)n;
    if (l->sent == l->len) l->len = l->sent = 0;
    return PUMP_MOVED;
}

static bool has_bytes(struct lane *l) {
    return l->bytes || (l->bytes = malloc(RECORD_BYTES + GOAWAY_ROOM));
}

static enum pump read_client(struct tunnel *t, unsigned char *into) {
    struct lane *l = &t->in;
    if (!t->ssl) return read_plain(t->outer_fd, l, into);
    int n = SSL_read(t->ssl, into, RECORD_BYTES);
    t->read_wants_write = false;
    if (n <= 0) return ssl_wants(t, n, SSL_ERROR_WANT_WRITE, &t->read_wants_write, &l->ended);
    l->len = (size_t)n;
    return PUMP_MOVED;
}

static enum pump read_outer(struct tunnel *t) {
    struct lane *l = &t->in;
    if (l->len > 0 || l->ended) return PUMP_WAITS;
    if (!has_bytes(l)) return PUMP_BROKEN;
    t->passed = 0;
    if (!t->metered) return read_client(t, l->bytes);
    enum pump p = read_client(t, l->bytes + GOAWAY_ROOM);
    if (p == PUMP_MOVED) l->len = goaway_keep(&t->goaway, l->bytes, l->bytes + GOAWAY_ROOM, l->len);
    return p;
}

static enum pump write_outer(struct tunnel *t) {
    struct lane *l = &t->out;
    if (l->len == 0) return PUMP_WAITS;
    if (!t->ssl) return write_plain(t->outer_fd, l, l->len);
    int n = SSL_write(t->ssl, l->bytes + l->sent, (int)(l->len - l->sent));
    t->write_wants_read = false;
    if (n <= 0) return ssl_wants(t, n, SSL_ERROR_WANT_READ, &t->write_wants_read, NULL);
    l->sent += (size_t)n;
    if (l->sent == l->len) l->len = l->sent = 0;
    return PUMP_MOVED;
}

static enum pump read_inner(struct tunnel *t) {
    struct lane *l = &t->out;
    if (l->len > 0 || l->ended) return PUMP_WAITS;
    if (!has_bytes(l)) return PUMP_BROKEN;
    if (t->metered && (l->len = goaway_take(&t->goaway, l->bytes)) > 0) return PUMP_MOVED;
    enum pump p = read_plain(t->inner_fd, l, l->bytes);
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
    return t->passed > l->sent ? write_plain(t->inner_fd, l, t->passed) : PUMP_WAITS;
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
        shutdown(t->inner_fd, SHUT_WR);
    }
    if (t->out.ended && t->out.len == 0 && !t->out.closed) {
        t->out.closed = true;
        if (t->ssl) SSL_shutdown(t->ssl);
        ERR_clear_error();
        shutdown(t->outer_fd, SHUT_WR);
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
    bool reads = t->in.len == 0 && !t->in.ended;
    if ((reads && !t->read_wants_write) || t->write_wants_read) outer |= UV_READABLE;
    if ((t->out.len > 0 && !t->write_wants_read) || t->read_wants_write) outer |= UV_WRITABLE;
    if (t->out.len == 0 && !t->out.ended) inner |= UV_READABLE;
    if (t->in.len > 0 && t->passed > t->in.sent) inner |= UV_WRITABLE;
    if (is_held(t)) {
        uv_timer_start(&t->timer, on_time, (uint64_t)frame_meter_wait_ms(&t->meter), 0);
        outer |= UV_DISCONNECT;
    }
    uv_poll_start(&t->outer, outer, on_outer);
    uv_poll_start(&t->inner, t->established ? inner : 0, on_inner);
}

static enum pump handshake(struct tunnel *t) {
    bool crossed;
    if (t->established) return PUMP_MOVED;
    int rc = SSL_accept(t->ssl);
    if (rc == 1) {
        t->established = true;
        uv_timer_stop(&t->timer);
        return PUMP_MOVED;
    }
    enum pump p = ssl_wants(t, rc, SSL_ERROR_WANT_WRITE, &crossed, NULL);
    if (p == PUMP_WAITS) uv_poll_start(&t->outer, crossed ? UV_WRITABLE : UV_READABLE, on_outer);
    return p;
}

static void run(struct tunnel *t) {
    enum pump shaken = handshake(t);
    if (shaken == PUMP_BROKEN) end(t);
    if (shaken != PUMP_MOVED) return;
    enum pump (*const steps[])(struct tunnel *) = {read_outer, write_inner, read_inner,
                                                   write_outer};
    bool moved = true;
    for (int round = 0; moved && round < ROUNDS; round++) {
        moved = false;
        for (int i = 0; i < 4; i++) {
            enum pump p = steps[i](t);
            if (p == PUMP_BROKEN) {
                end(t);
                return;
            }
            moved |= p == PUMP_MOVED;
        }
    }
    release_idle(&t->in);
    release_idle(&t->out);
    if (!pass_ends(t)) {
        end(t);
        return;
    }
    watch(t);
    // Records that OpenSSL has read already do not make the socket readable.
    if (moved && t->ssl && SSL_pending(t->ssl) > 0)
        uv_poll_start(&t->outer, UV_READABLE | UV_WRITABLE, on_outer);
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
    if (t->established)
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
    if (t->established) run(t);
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
    t->outer.data = t->inner.data = t->timer.data = t;
    uv_poll_init(loop, &t->outer, t->outer_fd);
    uv_poll_init(loop, &t->inner, t->inner_fd);
}

int tunnel_open(struct net *n, int fd, enum tunnel_protocol protocol, struct tunnel **holder,
                int *plain) {
    int pair[2], rc;
    struct tunnel *t = calloc(1, sizeof(*t));
    SSL *ssl = n->ssl ? SSL_new(n->ssl) : NULL;
    rc = t && (ssl || !n->ssl) ? open_pair(pair) : E_NOMEM;
    if (rc < 0) {
        SSL_free(ssl);
        free(t);
        close(fd);
        return rc;
    }
    *t = (struct tunnel){.net = n,
                         .holder = holder,
                         .ssl = ssl,
                         .outer_fd = fd,
                         .inner_fd = pair[0],
                         .metered = protocol == TUNNEL_HTTP2,
                         .established = !ssl};
    DL_APPEND(n->tunnels, t);
    if (holder) *holder = t;
    *plain = pair[1];
    init_handles(t);
    frame_meter_init(&t->meter, net_now_us());
    goaway_init(&t->goaway);
    if (!ssl) {
        watch(t);
        return 0;
    }
    SSL_set_fd(ssl, fd);
    if (protocol == TUNNEL_HTTP2) tls_want_http2(ssl);
    uv_timer_start(&t->timer, on_time, HANDSHAKE_MS, 0);
    uv_poll_start(&t->outer, UV_READABLE, on_outer);
    return 0;
}

void tunnel_stop_all(struct net *n) {
    while (n->tunnels) end(n->tunnels);
}
