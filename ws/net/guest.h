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

// --- closing ---

// A library may have no call that asks clients to leave while it still answers them (gRPC: server.c). Then
// we write the protocol's farewell ourselves, between two writes of the library. That is safe only while the
// library has no long write under way on that connection: hold it back until then.

// The library is writing on this connection: the next guest_port_farewell leaves it out.
void guest_port_hold(struct guest_port *g, int fd);
// Writes bytes, a whole frame of at most 64 bytes, once on each connection that is not held and on which the
// library has spoken. Call it again until it returns 0. Returns the number of connections.
size_t guest_port_farewell(struct guest_port *g, const void *bytes, size_t len);
// The farewell is still to be written on this connection. Until then, do not begin a further write.
bool guest_port_awaits_farewell(const struct guest_port *g, int fd);
void guest_port_cut(struct guest_port *g);   // ends its connections
void guest_port_close(struct guest_port *g); // cuts, and frees it; NULL is fine
