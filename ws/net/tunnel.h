// TLS ends here: a tunnel carries bytes between a client's TLS socket and a local socket pair whose
// other end the rest of the server uses as if the client were there in plain text. So HTTP, the mask
// gate and libwebsockets have one kind of socket to care for. A full side stops the other one: a
// tunnel holds two records, never more. Net thread only.
#pragma once
#include "ws/net/net.h"

enum tunnel_protocol { TUNNEL_HTTP1, TUNNEL_HTTP2 }; // what ALPN chooses

// Takes fd (closed on failure too). *plain gets the other end. E_NOMEM, E_IO.
int tunnel_open(struct net *n, int fd, enum tunnel_protocol protocol, int *plain);
void tunnel_stop_all(struct net *n); // closes all of them; their memory goes as the loop turns
