// Wrong tokens by address. After LOCKOUT_FREE of them an address is locked out for a second, and
// each further wrong token doubles that, up to a minute; ten minutes without one forget it. Locked
// out, a token is looked up all the same: one of LOCKOUT_LONG characters passes if it is right,
// because guessing it is hopeless, so that its owner behind the same address is not shut out. A
// shorter one is refused unseen until the time is up. Net thread only.
#pragma once
#include "ws/net/ip_table.h"

#define LOCKOUT_FREE 10
#define LOCKOUT_LONG 32
#define LOCKOUT_ADDRESSES 4096 // more: the one that was added first is forgotten

struct lockout_entry;
struct lockout { // zeroed: empty
    struct lockout_entry *entries;
};

int64_t lockout_wait_us(struct lockout *l, const struct ip_key *addr, int64_t now_us); // 0: none
void lockout_wrong(struct lockout *l, const struct ip_key *addr, int64_t now_us);
void lockout_release(struct lockout *l);
