// Wrong tokens by address. After LOCKOUT_FREE of them an address is locked out for a second, and each
// further wrong token doubles that, up to a minute; after ten minutes without one the address is forgotten.
// A valid token of at least LOCKOUT_LONG characters passes even then, because it cannot be guessed, and
// its owner may share the address with the guesser. A shorter token is refused without a look-up until the
// time is up. Net thread only.
#pragma once
#include "ws/net/ip_table.h"

#define LOCKOUT_FREE 10
#define LOCKOUT_LONG 32
#define LOCKOUT_ADDRESSES 4096 // beyond it, the address that was added first is forgotten

struct lockout_entry;
struct lockout { // zeroed: empty
    struct lockout_entry *entries;
};

int64_t lockout_wait_us(struct lockout *l, const struct ip_key *addr, int64_t now_us); // 0: none
// Counts a wrong token; without memory for a new address it is not counted.
void lockout_wrong(struct lockout *l, const struct ip_key *addr, int64_t now_us);
void lockout_release(struct lockout *l); // a zeroed one is allowed
