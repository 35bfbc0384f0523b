// Tunnels carry bytes between a client's channel and a local socket pair, for a library that takes a plain socket and
// nothing else: libwebsockets and gRPC. The library uses the other end of the pair as a client's socket. While one side
// is full, nothing is read from the other: a tunnel holds at most two records. Net thread only.
//
// A WebSocket has one under TLS only. A connection of gRPC has one also without TLS, which meters the client's frames
// (frame_meter.h) and tells the client of the end (goaway.h).
#pragma once
#include "ws/net/channel.h"
#include "ws/net/net.h"

enum tunnel_protocol { TUNNEL_WEBSOCKET, TUNNEL_HTTP2 };

// Takes the channel (closed on failure too). *plain gets the other end. *holder is set to the tunnel, and to NULL when it
// ends; holder may be NULL. E_NOMEM, E_IO.
int tunnel_open(struct net *n, struct channel *channel, enum tunnel_protocol protocol,
                struct tunnel **holder, int *plain);
void tunnel_let_go(struct tunnel *t);    // its holder goes; NULL is fine
void tunnel_took_call(struct tunnel *t); // the server has taken a call of its client; NULL is fine
// Of HTTP/2: sends a GOAWAY as soon as it can (goaway.h). NULL is fine.
void tunnel_part(struct tunnel *t);
// The GOAWAY was sent: no further calls come. NULL: false.
bool tunnel_has_parted(const struct tunnel *t);
void tunnel_stop_all(struct net *n); // closes all of them; their memory goes as the loop turns
