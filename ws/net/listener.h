// The listening socket. It is our own, because libwebsockets 4.1.6 binds every interface where 127.0.0.1 is
// asked for, and has no limits at accept. It lives on the server's loop and hands accepted sockets on. Net
// thread only.
#pragma once
#include "base/err.h"
#include <sys/socket.h>
#include <uv.h>

struct listener;

// fd is the callee's from now on.
typedef void (*listener_accept_fn)(void *ctx, int fd, const struct sockaddr *addr);

// Binds the address, so that a port in use is an error before a model is loaded. No client can
// connect yet.
int listener_open(struct listener **out, uv_loop_t *loop, const char *host, int port,
                  listener_accept_fn on_accept, void *ctx, struct err *err);
// Whether the address could be listened on now; nothing stays open.
int listener_check(const char *host, int port, struct err *err);
int listener_start(struct listener *l, struct err *err);
int listener_port(const struct listener *l); // the bound port; for port 0 the kernel's choice
// Stops listening at once; the memory goes when the loop has closed the handles.
void listener_close(struct listener *l);
