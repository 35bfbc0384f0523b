// libwebsockets, as a guest on the server's loop: its options, and its callbacks on their way to
// peers and connections. Net thread only.
#pragma once
#include "ws/net/server.h"

// Fills in s->context, s->vhost and, with TLS, s->ssl. What was made on failure is
// context_destroy's.
int context_create(struct server *s, struct err *err);
void context_destroy(struct server *s); // with every socket; the loop turns meanwhile
