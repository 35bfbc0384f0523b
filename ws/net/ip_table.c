// Connections by address. See ip_table.h.
#include "ws/net/ip_table.h"
#include "base/err.h"
#include "base/hash.h"
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

struct ip_entry {
    struct ip_key key;
    int64_t count;
    UT_hash_handle hh;
};

static struct ip_key key_of(const struct sockaddr *addr) {
    struct ip_key k = {{0}};
    if (addr->sa_family == AF_INET) {
        k.bytes[0] = 4;
        memcpy(k.bytes + 1, &((const struct sockaddr_in *)(const void *)addr)->sin_addr, 4);
    } else if (addr->sa_family == AF_INET6) {
        const struct in6_addr *a = &((const struct sockaddr_in6 *)(const void *)addr)->sin6_addr;
        bool mapped = IN6_IS_ADDR_V4MAPPED(a);
        k.bytes[0] = mapped ? 4 : 6;
        memcpy(k.bytes + 1, a->s6_addr + (mapped ? 12 : 0), mapped ? 4 : 8);
    }
    return k;
}

bool ip_is_loopback(const struct sockaddr *addr) {
    const struct ip_key k = key_of(addr);
    if (k.bytes[0] == 4) return k.bytes[1] == 127;
    return addr->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)addr)->sin6_addr);
}

int ip_table_add(struct ip_table *t, const struct sockaddr *addr, int64_t max,
                 struct ip_entry **out) {
    struct ip_key key = key_of(addr);
    struct ip_entry *e = NULL;
    HASH_FIND(hh, t->entries, &key, sizeof(key), e);
    if (e && e->count >= max) return E_LIMIT;
    if (!e) {
        e = calloc(1, sizeof(*e));
        if (!e) return E_NOMEM;
        e->key = key;
        HASH_ADD(hh, t->entries, key, sizeof(e->key), e);
        if (!hash_added(&e->hh)) {
            free(e);
            return E_NOMEM;
        }
    }
    e->count++;
    *out = e;
    return 0;
}

const struct ip_key *ip_entry_key(const struct ip_entry *e) {
    return &e->key;
}

void ip_table_remove(struct ip_table *t, struct ip_entry *e) {
    if (!e || --e->count > 0) return;
    HASH_DEL(t->entries, e);
    free(e);
}
