// HTTP/1.1 on the same port: the page, health, metrics, configuration; and the gate that a
// WebSocket upgrade passes. Net thread only. Return values go back to libwebsockets: 0, or -1 to
// close the connection.
#pragma once
#include "ws/net/server.h"

int http_on_request(struct peer *p);
int http_on_writable(struct peer *p);
int http_on_body_end(struct peer *p); // libwebsockets has read and dropped a refused request's body
// Decides on an upgrade: 0 lets it happen; p->owner is set when a token came along.
int http_on_upgrade(struct peer *p);
// Once per turn-round of the loop. While an answer is under way 4.1.6 reads nothing, so a client's
// FIN, or one byte too many, would make the loop spin (fixed by 4.3.3): such a connection is ended
// here.
void http_sweep(struct server *s);
void http_forget(struct peer *p); // the socket is gone
