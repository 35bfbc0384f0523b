// Messages on a socket. See wire.h.
#include "engine/process/wire.h"
#include "base/err.h"
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MESSAGE_MAX ((size_t)1 << 40)
enum {
    READ_BYTES = 1 << 16,
    KEEP_BYTES = 1 << 20,
    CUT_BYTES = 4096, // a message without room keeps at least this: a command's struct
    IDLE_MS = 200
};

struct head {
    uint32_t kind;
    uint64_t n; // bytes behind it
};

// --- writing ---

void wire_begin(struct buf *b, enum wire_kind kind) {
    const struct head h = {.kind = kind};
    buf_reset(b);
    buf_add(b, &h, sizeof h);
}

void wire_put(struct buf *b, const void *bytes, size_t n) {
    const uint64_t len = n;
    buf_add(b, &len, sizeof len);
    if (n > 0) buf_add(b, bytes, n);
}

void wire_put_text(struct buf *b, const char *text) {
    wire_put(b, text, text ? strlen(text) + 1 : 0);
}

int wire_end(struct buf *b) {
    if (b->error) return b->error;
    const uint64_t n = b->len - sizeof(struct head);
    memcpy(b->data + offsetof(struct head, n), &n, sizeof n);
    return 0;
}

void wire_sent(struct buf *b) {
    if (b->cap <= KEEP_BYTES) return;
    buf_release(b);
    buf_init(b, SIZE_MAX / 2);
}

int wire_send(int fd, const char *bytes, size_t n, bool (*idle)(void *ctx), void *ctx) {
    while (n > 0) {
        ssize_t sent = send(fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent > 0) {
            bytes += sent;
            n -= (size_t)sent;
        } else if (errno == EAGAIN) {
            struct pollfd p = {.fd = fd, .events = POLLOUT};
            if (poll(&p, 1, IDLE_MS) == 0 && idle && !idle(ctx)) return E_CLOSED;
        } else if (errno != EINTR) {
            return E_CLOSED;
        }
    }
    return 0;
}

// --- reading ---

void wire_reader_init(struct wire_reader *r, int fd) {
    *r = (struct wire_reader){.fd = fd};
    buf_init(&r->in, MESSAGE_MAX);
}

void wire_reader_release(struct wire_reader *r) {
    buf_release(&r->in);
}

static int drop(int fd, size_t n) {
    char bytes[4096];
    while (n > 0) {
        ssize_t got = recv(fd, bytes, n < sizeof bytes ? n : sizeof bytes, 0);
        if (got == 0 || (got < 0 && errno != EINTR)) return E_CLOSED;
        if (got > 0) n -= (size_t)got;
    }
    return 0;
}

// There is no room for the rest of a message: its sender has sent it, or waits to send it.
static int cut(struct wire_reader *r, size_t n_rest, struct wire_message *out) {
    struct head h;
    TRY(drop(r->fd, n_rest));
    memcpy(&h, r->in.data, sizeof h);
    *out = (struct wire_message){
        .kind = h.kind, .at = r->in.data + sizeof h, .end = r->in.data + r->in.len};
    r->at = r->in.len;
    r->in.error = 0;
    return E_NOMEM;
}

// 1: the message is whole; 0: more bytes are needed, for which there is room.
static int whole(struct wire_reader *r, struct wire_message *out) {
    struct head h;
    size_t have = r->in.len - r->at, want = READ_BYTES, n_rest = 0;
    if (have >= sizeof h) {
        memcpy(&h, r->in.data + r->at, sizeof h);
        if (h.kind >= WIRE_N_KINDS || h.n > MESSAGE_MAX / 2) return E_INVAL;
        if (have - sizeof h >= h.n) {
            const char *body = r->in.data + r->at + sizeof h;
            *out = (struct wire_message){.kind = h.kind, .at = body, .end = body + h.n};
            r->at += sizeof h + h.n;
            return 1;
        }
        n_rest = sizeof h + h.n - have;
        if (have >= CUT_BYTES && n_rest > want) want = n_rest;
    }
    buf_remove_front(&r->in, r->at);
    r->at = 0;
    if (r->in.len == 0 && r->in.cap > KEEP_BYTES) { // of a cache
        buf_release(&r->in);
        buf_init(&r->in, MESSAGE_MAX);
    }
    int rc = buf_reserve(&r->in, want);
    return rc == E_NOMEM && want == n_rest ? cut(r, n_rest, out) : rc;
}

int wire_receive(struct wire_reader *r, struct wire_message *out, int timeout_ms) {
    for (;;) {
        int rc = whole(r, out);
        if (rc != 0) return rc;
        struct pollfd p = {.fd = r->fd, .events = POLLIN};
        if (timeout_ms >= 0 && poll(&p, 1, timeout_ms) == 0) return 0;
        ssize_t got = recv(r->fd, r->in.data + r->in.len, r->in.cap - r->in.len - 1, 0);
        if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) return E_CLOSED;
        if (got > 0) r->in.len += (size_t)got;
    }
}

const char *wire_take_bytes(struct wire_message *m, size_t *n) {
    uint64_t len = 0;
    if ((size_t)(m->end - m->at) >= sizeof len) memcpy(&len, m->at, sizeof len);
    if ((size_t)(m->end - m->at) < sizeof len || len > (size_t)(m->end - m->at) - sizeof len) {
        m->bad = true;
        *n = 0;
        return "";
    }
    const char *bytes = m->at + sizeof len;
    m->at = bytes + len;
    *n = (size_t)len;
    return bytes;
}

bool wire_take(struct wire_message *m, void *out, size_t n) {
    size_t len;
    const char *bytes = wire_take_bytes(m, &len);
    if (len != n) m->bad = true;
    if (!m->bad) memcpy(out, bytes, n);
    return !m->bad;
}

const char *wire_take_text(struct wire_message *m) {
    size_t len;
    const char *text = wire_take_bytes(m, &len);
    if (len > 0 && text[len - 1] != '\0') m->bad = true;
    return len == 0 || m->bad ? NULL : text;
}

void *wire_take_copy(struct wire_message *m, size_t each, size_t n) {
    size_t len;
    const char *bytes = wire_take_bytes(m, &len);
    if (n > len || len != each * n) m->bad = true;
    void *copy = m->bad ? NULL : malloc(len > 0 ? len : 1);
    if (copy) memcpy(copy, bytes, len);
    return copy;
}
