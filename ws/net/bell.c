// The bell. See bell.h.
#include "ws/net/bell.h"
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

void bell_ring(void *bell) {
    struct bell *b = bell;
    if (__atomic_exchange_n(&b->ringing, true, __ATOMIC_SEQ_CST)) return;
    uint64_t one = 1;
    // Cannot be full: there is one ring at a time.
    ssize_t n = write(b->fd, &one, sizeof one);
    (void)n;
}

static void on_readable(uv_poll_t *handle, int status, int events) {
    struct bell *b = handle->data;
    uint64_t rings;
    ssize_t n = read(b->fd, &rings, sizeof rings);
    (void)n;
    __atomic_store_n(&b->ringing, false, __ATOMIC_SEQ_CST); // a later ring rings again
    b->heard(b->ctx);
}

int bell_open(struct bell *b, uv_loop_t *loop, void (*heard)(void *ctx), void *ctx,
              struct err *err) {
    *b = (struct bell){.heard = heard, .ctx = ctx};
    b->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (b->fd < 0) return err_errno(err, "no event descriptor");
    int rc = uv_poll_init(loop, &b->poll, b->fd);
    b->poll.data = b;
    if (rc == 0) rc = uv_poll_start(&b->poll, UV_READABLE, on_readable);
    return rc == 0 ? 0 : err_set(err, E_IO, "no event loop: %s", uv_strerror(rc));
}

void bell_close(struct bell *b) {
    if (b->fd >= 0) close(b->fd);
    b->fd = -1;
}
