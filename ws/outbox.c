// A queue of messages. See outbox.h.
#include "ws/outbox.h"
#include "base/err.h"
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

struct outbox_item { // a piece of a message
    struct outbox_item *prev, *next;
    size_t len, sent;
    bool first, last; // piece of its message
    bool escape;
    char bytes[];
};

static void drop(struct outbox *o, struct outbox_item *i) {
    DL_DELETE(o->items, i);
    o->bytes -= i->len - i->sent;
    o->count--;
    free(i);
}

static struct outbox_item *item_new(struct outbox *o, const char *bytes, size_t len) {
    struct outbox_item *i = malloc(sizeof(*i) + len);
    if (!i) return NULL;
    *i = (struct outbox_item){.len = len, .first = true, .last = true};
    memcpy(i->bytes, bytes, len);
    o->bytes += len;
    o->count++;
    return i;
}

int outbox_add(struct outbox *o, const char *bytes, size_t len) {
    if (o->count >= OUTBOX_MAX_ITEMS) return E_LIMIT;
    struct outbox_item *i = item_new(o, bytes, len);
    if (!i) return E_NOMEM;
    DL_APPEND(o->items, i);
    return 0;
}

static int add_part(struct outbox *o, const char *bytes, size_t len, bool escape) {
    TRY(outbox_add(o, bytes, len));
    struct outbox_item *i = o->items->prev; // utlist: the first one's prev is the last one
    i->first = i == o->items;
    i->last = false;
    i->escape = escape;
    return 0;
}

int outbox_add_gaps(struct outbox *o, const char *bytes, size_t len, const struct json_gaps *gaps) {
    if (o->count >= OUTBOX_MAX_ITEMS) return E_LIMIT;
    struct outbox message = {0};
    size_t at = 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < gaps->n; at = gaps->list[i++].at) {
        const struct json_gap *gap = &gaps->list[i];
        rc = add_part(&message, bytes + at, gap->at - at, false);
        if (rc == 0) rc = add_part(&message, gap->text, gap->len, true);
    }
    if (rc == 0) rc = add_part(&message, bytes + at, len - at, false);
    if (rc < 0) {
        outbox_release(&message);
        return rc;
    }
    message.items->prev->last = true;
    outbox_append(o, &message);
    return 0;
}

void outbox_open_last(struct outbox *o) {
    o->open = o->items->prev;
    o->open->last = false;
}

int outbox_extend(struct outbox *o, const char *bytes, size_t len, bool last) {
    struct outbox_item *before = o->open, *i = item_new(o, bytes, len);
    if (!i) return E_NOMEM;
    i->first = false;
    i->last = last;
    DL_APPEND_ELEM(o->items, before, i);
    if (before->sent == before->len) drop(o, before);
    o->open = last ? NULL : i;
    return 0;
}

bool outbox_empty(const struct outbox *o) {
    return !o->items;
}

bool outbox_ready(const struct outbox *o) {
    return o->items && (o->items->sent < o->items->len || o->items->last);
}

const char *outbox_next(const struct outbox *o, size_t max, size_t *len, bool *first, bool *last,
                        bool *escape) {
    const struct outbox_item *i = o->items;
    size_t left = i->len - i->sent;
    *escape = i->escape;
    *len = left < max ? left : max;
    if (i->escape) *len = json_escape_fits(i->bytes + i->sent, left, max);
    *first = i->first && i->sent == 0;
    *last = i->last && *len == left;
    return i->bytes + i->sent;
}

// The open message's last piece stays: the next one comes behind it.
void outbox_sent(struct outbox *o, size_t len) {
    struct outbox_item *i = o->items;
    i->sent += len;
    o->bytes -= len;
    if (i->sent == i->len && i != o->open) drop(o, i);
}

void outbox_append(struct outbox *to, struct outbox *from) {
    DL_CONCAT(to->items, from->items);
    to->bytes += from->bytes;
    to->count += from->count;
    *from = (struct outbox){0};
}

void outbox_release(struct outbox *o) {
    o->open = NULL;
    while (o->items) drop(o, o->items);
}
