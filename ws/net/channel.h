// A client's socket, in plain text or under TLS: what is read and sent here is plain text. OpenSSL itself
// reads from the socket and writes to it, so no byte is copied between a socket and these calls' buffers. Net thread only.
#pragma once
#include <stdbool.h>
#include <sys/types.h>

struct ssl_ctx_st;
struct ssl_st;

// A record of TLS. A read of so many bytes takes a whole record, so OpenSSL holds no bytes that the readiness of the
// socket does not show.
#define CHANNEL_READ_BYTES 16384

struct channel {
    int fd;
    struct ssl_st *ssl;                      // NULL: plain text
    bool read_wants_write, write_wants_read; // TLS needs the other direction first
    bool broken;                             // TLS has failed: nothing can be sent any more
};

enum channel_wait { CHANNEL_WAITS = -1, CHANNEL_BROKEN = -2 };

// Takes fd, which is closed on failure too. tls: NULL for plain text. http2: what ALPN chooses. E_NOMEM.
int channel_open(struct channel *c, int fd, struct ssl_ctx_st *tls, bool http2);
// Whether bytes can pass: TLS has shaken hands. Reads and sends shake hands first, where that is still to do.
bool channel_is_ready(const struct channel *c);
// Bytes read, 0 at the client's end, or a channel_wait. into: (CHANNEL_READ_BYTES)
ssize_t channel_read(struct channel *c, void *into);
// Bytes sent, perhaps fewer than len, or a channel_wait. After CHANNEL_WAITS the next call must send the same bytes, and
// may send more behind them. more: further bytes follow at once.
ssize_t channel_send(struct channel *c, const void *bytes, size_t len, bool more);
// The events of the loop that allow what these events stand for (UV_READABLE, UV_WRITABLE).
int channel_events(const struct channel *c, int events);
void channel_shut(struct channel *c);  // nothing more will be sent
void channel_close(struct channel *c); // a close_notify, where TLS still allows one, and the end
