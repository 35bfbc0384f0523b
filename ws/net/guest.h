// A port whose connections another library serves (gRPC). We accept them, so that the limits on
// connections, TLS and the addresses' lockouts are the same on every port; the library gets a connected
// socket in plain text. We keep a second descriptor of each socket, which shows when the library or the
// client has closed it, and through which we can end it. Net thread only.
#pragma once
#include "ws/net/net.h"

struct guest_port;

// Takes fd, a socket in plain text; calls shutdown() before it closes it.
typedef void (*guest_serve_fn)(void *ctx, int fd);

// Binds config->host's port. Errors are listener_open's.
int guest_port_open(struct guest_port **out, struct net *n, int port, guest_serve_fn serve,
                    void *ctx, struct err *err);
int guest_port_start(struct guest_port *g, struct err *err);
int guest_port_number(const struct guest_port *g);
// The library's user has taken a call of this connection: its client may begin another one (frame_meter.h).
void guest_port_took_call(struct guest_port *g, int fd);
// The peer of a descriptor that serve() got; NULL: its connection has ended.
struct peer *guest_port_peer(const struct guest_port *g, int fd);
void guest_port_stop_listening(struct guest_port *g);

// Sends each client a GOAWAY (goaway.h): it makes no further call on this connection.
void guest_port_part(struct guest_port *g);
// Whether the client of a descriptor was told: it makes all calls that have not come by now on another connection.
bool guest_port_has_parted(const struct guest_port *g, int fd);
size_t guest_port_connections(const struct guest_port *g); // that are open
void guest_port_cut(struct guest_port *g);                 // ends its connections
void guest_port_close(struct guest_port *g);               // cuts, and frees it; NULL is fine
