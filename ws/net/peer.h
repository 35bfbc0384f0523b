// One accepted connection's entry: who it is from, and that it counts. Net thread only.
#pragma once
#include "ws/net/net.h"

// Counts the connection against the limits. E_LIMIT: too many in total; E_BUSY: too many from addr;
// E_NOMEM.
int peer_new(struct peer **out, struct net *n, const struct sockaddr *addr);
void peer_free(struct peer *p); // its socket is closed, or has a new owner
