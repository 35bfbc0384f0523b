// Messages that wait to be sent on one connection, in order; the first may be half-way out. With
// keys it coalesces: a later message under the same key takes the place of the earlier one.
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct outbox_item;
struct outbox { // all zero: empty
    struct outbox_item *items;
    size_t bytes, count;
};

#define OUTBOX_MAX_ITEMS 4096

// Copies. E_NOMEM, or E_LIMIT at OUTBOX_MAX_ITEMS messages.
int outbox_add(struct outbox *o, const char *key, const char *bytes, size_t len);
bool outbox_empty(const struct outbox *o);
// The next at most max bytes of the first message (there must be one); first, last: do they begin,
// end it.
const char *outbox_next(const struct outbox *o, size_t max, size_t *len, bool *first, bool *last);
void outbox_sent(struct outbox *o, size_t len); // of what outbox_next gave
bool outbox_move(struct outbox *to,
                 struct outbox *from); // the first message; false when there is none
void outbox_release(struct outbox *o);
