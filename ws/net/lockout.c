// The table of addresses that sent wrong tokens. See lockout.h.
#include "ws/net/lockout.h"
#include "base/hash.h"
#include <stdlib.h>

#define FIRST_US 1000000
#define LONGEST_US 60000000
#define FORGET_US 600000000

struct lockout_entry {
    struct ip_key addr;
    int n_wrong;
    int64_t last_us, until_us;
    UT_hash_handle hh;
};

static struct lockout_entry *find(struct lockout *l, const struct ip_key *addr, int64_t now_us) {
    struct lockout_entry *e;
    HASH_FIND(hh, l->entries, addr, sizeof(*addr), e);
    if (!e || now_us - e->last_us < FORGET_US) return e;
    HASH_DEL(l->entries, e);
    free(e);
    return NULL;
}

int64_t lockout_wait_us(struct lockout *l, const struct ip_key *addr, int64_t now_us) {
    const struct lockout_entry *e = find(l, addr, now_us);
    return e && e->until_us > now_us ? e->until_us - now_us : 0;
}

static struct lockout_entry *add(struct lockout *l, const struct ip_key *addr) {
    struct lockout_entry *e = l->entries; // uthash keeps the order of arrival
    if (HASH_COUNT(e) >= LOCKOUT_ADDRESSES)
        HASH_DEL(l->entries, e);
    else
        e = malloc(sizeof(*e));
    if (!e) return NULL;
    *e = (struct lockout_entry){.addr = *addr};
    HASH_ADD(hh, l->entries, addr, sizeof(e->addr), e);
    if (hash_added(&e->hh)) return e;
    free(e);
    return NULL;
}

void lockout_wrong(struct lockout *l, const struct ip_key *addr, int64_t now_us) {
    struct lockout_entry *e = find(l, addr, now_us);
    if (!e) e = add(l, addr);
    if (!e) return;
    e->last_us = now_us;
    int64_t us = FIRST_US;
    for (int i = LOCKOUT_FREE; i < e->n_wrong && us < LONGEST_US; i++) us *= 2;
    if (e->n_wrong++ >= LOCKOUT_FREE) e->until_us = now_us + (us < LONGEST_US ? us : LONGEST_US);
}

void lockout_release(struct lockout *l) {
    struct lockout_entry *e, *next;
    HASH_ITER(hh, l->entries, e, next) {
        HASH_DEL(l->entries, e);
        free(e);
    }
}
