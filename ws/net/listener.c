// Binding, and accepting in rounds. See listener.h.
#include "ws/net/listener.h"
#include "base/log.h"
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BACKLOG 1024
#define ACCEPTS_PER_ROUND 64 // so that a storm of new connections cannot starve accepted ones
#define PAUSE_MS 100         // out of descriptors: the kernel would report the queue for ever
#define LOG_EVERY_MS 60000   // such pauses are ten a second until a connection ends

struct listener {
    int fd, port, n_handles;
    const char *host; // borrowed
    uv_poll_t poll;
    uv_timer_t resume;
    uint64_t logged_ms; // of the loop's clock, from 1 on; 0: no pause yet
    listener_accept_fn on_accept;
    void *ctx;
};

static void on_readable(uv_poll_t *handle, int status, int events);

static void on_resume(uv_timer_t *handle) {
    struct listener *l = handle->data;
    uv_poll_start(&l->poll, UV_READABLE, on_readable);
}

static void pause_listening(struct listener *l, int why) {
    uint64_t now_ms = uv_now(l->resume.loop) + 1;
    if (!l->logged_ms || now_ms - l->logged_ms >= LOG_EVERY_MS) {
        log_warn("listener.pause", "error=\"%s\" pause_ms=%d", strerror(why), PAUSE_MS);
        l->logged_ms = now_ms;
    }
    uv_poll_stop(&l->poll);
    uv_timer_start(&l->resume, on_resume, PAUSE_MS, 0);
}

static void on_readable(uv_poll_t *handle, int status, int events) {
    struct listener *l = handle->data;
    for (int i = 0; i < ACCEPTS_PER_ROUND; i++) {
        struct sockaddr_storage addr;
        socklen_t len = sizeof(addr);
        int fd = accept4(l->fd, (struct sockaddr *)&addr, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            l->on_accept(l->ctx, fd, (struct sockaddr *)&addr);
            continue;
        }
        int why = errno;
        if (why == EMFILE || why == ENFILE || why == ENOMEM || why == ENOBUFS)
            pause_listening(l, why);
        if (why != EINTR && why != ECONNABORTED) return;
    }
}

// errno says why.
static int refused(const char *host, int port, struct err *err) {
    if (errno == EADDRINUSE)
        return err_set(
            err, E_BUSY,
            "port %d of %s is in use by another program: stop it, or choose another with --port",
            port, host);
    if (errno == EACCES)
        return err_set(err, E_DENIED,
                       "port %d of %s is not for ordinary users: choose one above 1023 with --port",
                       port, host);
    return err_errno(err, "cannot listen on %s, port %d", host, port);
}

static int bind_one(int *out, const struct addrinfo *ai, const char *host, int port,
                    struct err *err) {
    int one = 1, zero = 0;
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return err_errno(err, "no socket for %s", host);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (ai->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) == 0) {
        *out = fd;
        return 0;
    }
    int rc = refused(host, port, err);
    close(fd);
    return rc;
}

static int bind_host(int *out, const char *host, int port, struct err *err) {
    // "localhost" may resolve to ::1 first; browsers and scripts mean 127.0.0.1.
    struct addrinfo hints = {.ai_family = strcmp(host, "localhost") == 0 ? AF_INET : AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    char service[16];
    snprintf(service, sizeof(service), "%d", port);
    int rc = getaddrinfo(host, service, &hints, &list);
    if (rc != 0) return err_set(err, E_NOTFOUND, "host %s: %s", host, gai_strerror(rc));
    rc = bind_one(out, list, host, port, err);
    freeaddrinfo(list);
    return rc;
}

static int bound_port(int fd) {
    struct sockaddr_storage addr;
    socklen_t len = sizeof(addr);
    if (getsockname(fd, (struct sockaddr *)&addr, &len) != 0) return 0;
    if (addr.ss_family == AF_INET) return ntohs(((struct sockaddr_in *)&addr)->sin_port);
    return ntohs(((struct sockaddr_in6 *)&addr)->sin6_port);
}

static void on_closed(uv_handle_t *handle) {
    struct listener *l = handle->data;
    if (--l->n_handles == 0) free(l);
}

int listener_check(const char *host, int port, struct err *err) {
    int fd;
    TRY(bind_host(&fd, host, port, err));
    int rc = listen(fd, 1) == 0 ? 0 : refused(host, port, err);
    close(fd);
    return rc;
}

int listener_open(struct listener **out, uv_loop_t *loop, const char *host, int port,
                  listener_accept_fn on_accept, void *ctx, struct err *err) {
    int rc;
    struct listener *l = calloc(1, sizeof(*l));
    if (!l) return err_set(err, E_NOMEM, "no memory for the listening socket");
    TRY_GOTO(fail_bind, bind_host(&l->fd, host, port, err));
    l->port = bound_port(l->fd);
    l->host = host;
    l->on_accept = on_accept;
    l->ctx = ctx;
    l->n_handles = 2;
    l->poll.data = l->resume.data = l;
    uv_timer_init(loop, &l->resume);
    rc = uv_poll_init(loop, &l->poll, l->fd);
    if (rc != 0)
        TRY_GOTO(fail_poll,
                 err_set(err, E_IO, "cannot watch the listening socket: %s", uv_strerror(rc)));
    *out = l;
    return 0;

fail_poll:
    close(l->fd);
    l->n_handles = 1;
    uv_close((uv_handle_t *)&l->resume, on_closed);
    return rc;
fail_bind:
    free(l);
    return rc;
}

int listener_start(struct listener *l, struct err *err) {
    if (listen(l->fd, BACKLOG) != 0) return refused(l->host, l->port, err);
    uv_poll_start(&l->poll, UV_READABLE, on_readable);
    return 0;
}

int listener_port(const struct listener *l) {
    return l->port;
}

void listener_close(struct listener *l) {
    if (!l) return;
    uv_close((uv_handle_t *)&l->poll, on_closed);
    close(l->fd);
    uv_close((uv_handle_t *)&l->resume, on_closed);
}
