// The server: network, session service, routes and protocols put together; its signals, and its end
// in order. Net thread only.
#pragma once
#include "ws/service.h"

struct server;

// Everything that can fail before a model is loaded. The service inside may be woken from here on.
int server_open(struct server **out, const struct serve_config *config, struct metrics *registry,
                struct err *err);
struct service *server_service(struct server *s);
// Opens the port; server_run serves it.
int server_listen(struct server *s, struct sessions *sessions, struct err *err);
const char *server_url(const struct server *s, char *out, size_t cap);
int server_grpc_port(const struct server *s); // 0: none
// Serves until SIGTERM or SIGINT. 0 after a drain, E_CANCELLED after a second signal, E_DEVICE if the
// engine's device failed; all connections were then closed, as in a drain.
int server_run(struct server *s);
// Closes every socket and ends the workers. Close the session service and the engine after it: they must
// get the end of every client, and may still ring the bell.
void server_stop(struct server *s);
void server_close(struct server *s); // frees; nothing rings any more
