// Sockets with and without TLS. See channel.h.
#include "ws/net/channel.h"
#include "base/err.h"
#include "ws/net/tls.h"
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

int channel_open(struct channel *c, int fd, struct ssl_ctx_st *tls, bool http2) {
    *c = (struct channel){.fd = fd, .ssl = tls ? SSL_new(tls) : NULL};
    if (!tls) return 0;
    if (!c->ssl || SSL_set_fd(c->ssl, fd) != 1) {
        channel_close(c);
        return E_NOMEM;
    }
    SSL_set_accept_state(c->ssl);
    if (http2) tls_want_http2(c->ssl);
    return 0;
}

bool channel_is_ready(const struct channel *c) {
    return !c->ssl || SSL_is_init_finished(c->ssl);
}

static ssize_t plain_failed(void) {
    return errno == EAGAIN || errno == EINTR ? CHANNEL_WAITS : CHANNEL_BROKEN;
}

// What OpenSSL's last call wants. *crossed: the other direction than the call's own, which `crossing` names.
static ssize_t tls_failed(struct channel *c, int rc, int crossing, bool *crossed) {
    int error = SSL_get_error(c->ssl, rc);
    *crossed = error == crossing;
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return CHANNEL_WAITS;
    if (error == SSL_ERROR_ZERO_RETURN) return 0;
    c->broken = true;
    return CHANNEL_BROKEN;
}

ssize_t channel_read(struct channel *c, void *into) {
    if (!c->ssl) {
        ssize_t n = recv(c->fd, into, CHANNEL_READ_BYTES, MSG_DONTWAIT);
        return n < 0 ? plain_failed() : n;
    }
    ERR_clear_error(); // SSL_get_error takes what others left in the queue for this call's
    int n = SSL_read(c->ssl, into, CHANNEL_READ_BYTES);
    c->read_wants_write = false;
    return n > 0 ? n : tls_failed(c, n, SSL_ERROR_WANT_WRITE, &c->read_wants_write);
}

ssize_t channel_send(struct channel *c, const void *bytes, size_t len, bool more) {
    if (!c->ssl) {
        int flags = (more ? MSG_MORE : 0) | MSG_NOSIGNAL | MSG_DONTWAIT;
        ssize_t n = send(c->fd, bytes, len, flags);
        return n < 0 ? plain_failed() : n;
    }
    size_t sent = 0;
    ERR_clear_error();
    int rc = SSL_write_ex(c->ssl, bytes, len, &sent);
    c->write_wants_read = false;
    if (rc == 1) return (ssize_t)sent;
    ssize_t failed = tls_failed(c, rc, SSL_ERROR_WANT_READ, &c->write_wants_read);
    return failed == 0 ? CHANNEL_BROKEN : failed;
}

int channel_events(const struct channel *c, int events) {
    int crossed = events & ~(UV_READABLE | UV_WRITABLE);
    if (events & UV_READABLE) crossed |= c->read_wants_write ? UV_WRITABLE : UV_READABLE;
    if (events & UV_WRITABLE) crossed |= c->write_wants_read ? UV_READABLE : UV_WRITABLE;
    return crossed;
}

static void notify_close(struct channel *c) {
    bool sent = c->ssl && SSL_get_shutdown(c->ssl) & SSL_SENT_SHUTDOWN;
    if (!c->ssl || sent || c->broken || !channel_is_ready(c)) return;
    SSL_shutdown(c->ssl);
    ERR_clear_error();
}

void channel_shut(struct channel *c) {
    notify_close(c);
    shutdown(c->fd, SHUT_WR);
}

void channel_close(struct channel *c) {
    notify_close(c);
    SSL_free(c->ssl);
    close(c->fd);
    *c = (struct channel){.fd = -1};
}
