// Watches for first frames with an epoll descriptor of its own, because libwebsockets owns the socket's
// place on the loop. Edge-triggered: half of a frame's head wakes the gate once. See gate.h.
#include "ws/net/gate.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define SOCKETS_PER_ROUND 64

struct gate {
    int fd;
    uv_poll_t poll;
    void (*passed)(void *owner, bool masked);
};

static void look(struct gate *g, const struct gate_entry *e) {
    unsigned char head[2];
    ssize_t n = recv(e->fd, head, 2, MSG_PEEK | MSG_DONTWAIT);
    if (n == 1 || (n < 0 && (errno == EAGAIN || errno == EINTR))) return; // more wakes us again
    epoll_ctl(g->fd, EPOLL_CTL_DEL, e->fd, NULL);
    g->passed(e->owner, n < 2 || head[1] & 0x80);
}

// One event at a time: handling one entry may remove another one.
static void on_readable(uv_poll_t *handle, int status, int events) {
    struct gate *g = handle->data;
    struct epoll_event ready;
    for (int i = 0; i < SOCKETS_PER_ROUND && epoll_wait(g->fd, &ready, 1, 0) == 1; i++)
        look(g, ready.data.ptr);
}

int gate_open(struct gate **out, uv_loop_t *loop, void (*passed)(void *owner, bool masked),
              struct err *err) {
    struct gate *g = calloc(1, sizeof(*g));
    if (!g) return err_set(err, E_NOMEM, "no memory for the network");
    g->passed = passed;
    g->fd = epoll_create1(EPOLL_CLOEXEC);
    if (g->fd < 0) {
        free(g);
        return err_errno(err, "no epoll descriptor");
    }
    int rc = uv_poll_init(loop, &g->poll, g->fd);
    if (rc != 0) {
        close(g->fd);
        free(g);
        return err_set(err, E_IO, "no event loop: %s", uv_strerror(rc));
    }
    g->poll.data = g;
    uv_poll_start(&g->poll, UV_READABLE, on_readable);
    *out = g;
    return 0;
}

int gate_watch(struct gate *g, struct gate_entry *e) {
    struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.ptr = e};
    return epoll_ctl(g->fd, EPOLL_CTL_ADD, e->fd, &ev);
}

static void on_closed(uv_handle_t *handle) {
    struct gate *g = handle->data;
    close(g->fd);
    free(g);
}

void gate_close(struct gate *g) {
    if (g) uv_close((uv_handle_t *)&g->poll, on_closed);
}
