// TLS ends here: a tunnel carries bytes between a client's TLS socket and a local socket pair. The rest of
// the server uses the other end of the pair as a client's plain socket, so HTTP, the mask gate and
// libwebsockets know one kind of socket. While one side is full, nothing is read from the other: a tunnel
// holds at most two records. Net thread only.
#pragma once
#include "ws/net/net.h"

enum tunnel_protocol { TUNNEL_HTTP1, TUNNEL_HTTP2 }; // what ALPN chooses

// Takes fd (closed on failure too). *plain gets the other end. E_NOMEM, E_IO.
int tunnel_open(struct net *n, int fd, enum tunnel_protocol protocol, int *plain);
void tunnel_stop_all(struct net *n); // closes all of them; their memory goes as the loop turns
