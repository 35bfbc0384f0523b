// Messages that wait to be sent on one connection, in order; the first may be partly sent. One of them may
// be open: its rest comes later, and the messages after it wait.
#pragma once
#include "base/json.h"

struct outbox_item;
struct outbox { // all zero: empty
    struct outbox_item *items;
    struct outbox_item *open; // the last piece of the open message; NULL: none is open
    size_t bytes, count;      // bytes: not sent yet
};

#define OUTBOX_MAX_ITEMS 4096

// Each copies. E_NOMEM, or E_LIMIT at OUTBOX_MAX_ITEMS.
int outbox_add(struct outbox *o, const char *bytes, size_t len);
// A message with gaps, whose texts are escaped as they go out.
int outbox_add_gaps(struct outbox *o, const char *bytes, size_t len, const struct json_gaps *gaps);
void outbox_open_last(struct outbox *o); // the last message; none may be open
int outbox_extend(struct outbox *o, const char *bytes, size_t len, bool last); // the open one
bool outbox_empty(const struct outbox *o);
bool outbox_ready(const struct outbox *o); // outbox_next has something
// The next bytes of the first message, at most max; *first, *last: they begin, end it. *escape: they are
// sent through json_escape, whose output has at most max bytes.
const char *outbox_next(const struct outbox *o, size_t max, size_t *len, bool *first, bool *last,
                        bool *escape);
void outbox_sent(struct outbox *o, size_t len); // of what outbox_next gave
// Moves all messages of `from`, which has no open one, to the end of `to`.
void outbox_append(struct outbox *to, struct outbox *from);
void outbox_release(struct outbox *o);
