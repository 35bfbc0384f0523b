// Requests longer than max_message_bytes: inferences that carry tables, and conversations that a client sends whole.
// Of each kind, all together and those of an owner may take a bounded number of bytes. A request is counted before
// its body is read (if its length is unknown, as it comes) until its reply has been sent. Net thread only.
#pragma once
#include "ws/net/http_head.h"
#include "ws/net/net.h"

// All requests of a kind have room for so many shares. Where tokens tell owners apart, an owner has one share.
#define LONG_BODIES 4

struct long_body { // zeroed: counts nothing
    struct net *net;
    struct owner *owner;
    enum long_kind kind;
    size_t bytes;
};

// Counts a request of `bytes` instead of what `b` counted before; up to max_message_bytes it counts as nothing.
// longest: how long such a request may be. Refused: `b` is unchanged.
struct http_refusal long_body_count(struct long_body *b, struct net *n, struct owner *o,
                                    enum long_kind kind, size_t bytes, size_t longest);
// The bytes that an owner's requests of a kind may take together: the longest one's; of conversations at least 32 MiB.
size_t long_body_share(enum long_kind kind, size_t longest);
void long_body_release(struct long_body *b);

// How long a packed body may be unpacked: tables of numbers become a few times shorter, so that a longer one is an
// attack. Never less than max_message_bytes.
size_t long_body_unpacked(const struct net *n, size_t packed, size_t longest);
// What a body of this length costs in requests beyond the first (NET_RATE_BYTES). Bytes after max_message_bytes cost
// less: they are copied and not parsed.
double long_body_cost(const struct net *n, size_t len);
// The time that a client may take for `more` bytes, when `len` bytes of its body have come.
int64_t long_body_patience_us(const struct net *n, size_t len, size_t more);
