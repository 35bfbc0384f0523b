// The entry of one accepted connection: its owner, and its place among the limits. Net thread only.
//
// Connections that have not shown a token yet may take a quarter of max_connections. When these places, or
// all places, are taken, a new connection replaces the oldest of them. So owners keep their places, and a
// flood of silent connections keeps out no client that shows its token at once.
#pragma once
#include "ws/net/http_head.h"
#include "ws/net/net.h"

// Counts the connection against the limits. E_LIMIT: too many in total; E_BUSY: too many from addr;
// E_NOMEM.
int peer_new(struct peer **out, struct net *n, const struct sockaddr *addr);
// One without a token, n->unknown, is to be closed before another is taken.
bool peers_are_crowded(const struct net *n);
void peer_evict(struct peer *p); // closes it; it no longer counts
void peer_free(struct peer *p);  // its socket is closed, or has a new owner

// Gives the connection to the owner of the token; without a token file every token is right. Status 0, or
// the refusal; its strings live until the next call.
struct http_refusal peer_authorise(struct peer *p, const char *token, size_t len);
// A request of its owner, who is known. Status 0, or 429.
struct http_refusal peer_take_request(struct peer *p, double cost);
// As peer_take_request, of any owner.
struct http_refusal peer_take_owner_request(struct net *n, struct owner *o, double cost);
// Tokens were read again. true: its token was removed.
bool peer_lost_token(struct peer *p);
