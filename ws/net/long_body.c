// See long_body.h.
#include "ws/net/long_body.h"

#define RETRY_MS 1000
#define LONG_CONVERSATIONS_BYTES ((size_t)32 << 20) // an owner's share is no smaller
#define UNPACKED_MOST 16                            // times the packed length
#define LONG_RATE_BYTES (4 << 20)                   // cost one request
#define BYTES_PER_SECOND 4096
#define LONG_BYTES_PER_SECOND (256 << 10) // after max_message_bytes

static size_t message_bytes(const struct net *n) {
    return (size_t)n->config->max_message_bytes;
}

static struct http_refusal refuse(const char *message) {
    return (struct http_refusal){503, "overloaded", message, RETRY_MS};
}

size_t long_body_share(enum long_kind kind, size_t longest) {
    bool small = kind == LONG_CONVERSATIONS && longest < LONG_CONVERSATIONS_BYTES;
    return small ? LONG_CONVERSATIONS_BYTES : longest;
}

struct http_refusal long_body_count(struct long_body *b, struct net *n, struct owner *o,
                                    enum long_kind kind, size_t bytes, size_t longest) {
    size_t counts = bytes > message_bytes(n) ? bytes : 0, share = long_body_share(kind, longest);
    size_t more = counts > b->bytes ? counts - b->bytes : 0;
    bool alone = !auth_needs_token(n->auth);
    if (more && !alone && o->long_bytes[kind] + more > share)
        return refuse("your long requests take all the memory that an owner's may take");
    if (more && n->long_bytes[kind] + more > LONG_BODIES * share)
        return refuse("long requests take all the memory that they may take");
    n->long_bytes[kind] += counts - b->bytes;
    o->long_bytes[kind] += counts - b->bytes;
    *b = (struct long_body){n, o, kind, counts};
    return REFUSE(0, NULL, NULL);
}

void long_body_release(struct long_body *b) {
    if (b->net) b->net->long_bytes[b->kind] -= b->bytes;
    if (b->owner) b->owner->long_bytes[b->kind] -= b->bytes;
    *b = (struct long_body){0};
}

size_t long_body_unpacked(const struct net *n, size_t packed, size_t longest) {
    size_t most = packed < longest / UNPACKED_MOST ? packed * UNPACKED_MOST : longest;
    return most > message_bytes(n) ? most : message_bytes(n);
}

double long_body_cost(const struct net *n, size_t len) {
    size_t rest = len > message_bytes(n) ? len - message_bytes(n) : 0;
    return (double)((len - rest) / NET_RATE_BYTES) + (double)(rest / LONG_RATE_BYTES);
}

int64_t long_body_patience_us(const struct net *n, size_t len, size_t more) {
    int64_t per_second = len > message_bytes(n) ? LONG_BYTES_PER_SECOND : BYTES_PER_SECOND;
    return (int64_t)more * 1000000 / per_second;
}
