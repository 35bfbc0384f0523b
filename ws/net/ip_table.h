// How many connections each address has open: libwebsockets' own limits (PEER_LIMITS) are not in
// Debian's build. Net thread only.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct ip_key {
    uint8_t bytes[9]; // family, then 4 bytes of IPv4 or 8 of IPv6
};
struct ip_entry;
struct ip_table {
    struct ip_entry *entries; // by address; an entry lives while its count is not 0
};

// Counts one more connection from addr (IPv4 whole, IPv6 by its /64: a household is one address).
// *out is given back with ip_table_remove. E_LIMIT when addr has max already, E_NOMEM.
int ip_table_add(struct ip_table *t, const struct sockaddr *addr, int64_t max,
                 struct ip_entry **out);
// 127.0.0.0/8, ::1: the peer is a program of this machine, perhaps a reverse proxy.
bool ip_is_loopback(const struct sockaddr *addr);
const struct ip_key *ip_entry_key(const struct ip_entry *e);
void ip_table_remove(struct ip_table *t, struct ip_entry *e); // e may be NULL
