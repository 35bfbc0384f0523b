// A queue of messages. See outbox.h.
#include "ws/parley/outbox.h"
#include "base/err.h"
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

struct outbox_item {
    struct outbox_item *prev, *next;
    char *key; // points into bytes' allocation; NULL: none
    size_t len, sent;
    char bytes[];
};

static void drop(struct outbox *o, struct outbox_item *i) {
    DL_DELETE(o->items, i);
    o->bytes -= i->len;
    o->count--;
    free(i);
}

static struct outbox_item *find(const struct outbox *o, const char *key) {
    struct outbox_item *i;
    DL_FOREACH(o->items, i)
    if (i->key && strcmp(i->key, key) == 0 && i->sent == 0) return i;
    return NULL;
}

int outbox_add(struct outbox *o, const char *key, const char *bytes, size_t len) {
    struct outbox_item *old = key ? find(o, key) : NULL;
    size_t key_size = key ? strlen(key) + 1 : 0;
    if (!old && o->count >= OUTBOX_MAX_ITEMS) return E_LIMIT;
    struct outbox_item *i = malloc(sizeof(*i) + len + key_size);
    if (!i) return E_NOMEM;
    i->len = len;
    i->sent = 0;
    i->key = key ? i->bytes + len : NULL;
    memcpy(i->bytes, bytes, len);
    if (key) memcpy(i->key, key, key_size);
    if (old)
        DL_REPLACE_ELEM(o->items, old, i);
    else
        DL_APPEND(o->items, i);
    o->bytes += len - (old ? old->len : 0);
    o->count += !old;
    free(old);
    return 0;
}

bool outbox_empty(const struct outbox *o) {
    return !o->items;
}

const char *outbox_next(const struct outbox *o, size_t max, size_t *len, bool *first, bool *last) {
    const struct outbox_item *i = o->items;
    size_t left = i->len - i->sent;
    *len = left < max ? left : max;
    *first = i->sent == 0;
    *last = *len == left;
    return i->bytes + i->sent;
}

void outbox_sent(struct outbox *o, size_t len) {
    struct outbox_item *i = o->items;
    i->sent += len;
    if (i->sent == i->len) drop(o, i);
}

bool outbox_move(struct outbox *to, struct outbox *from) {
    struct outbox_item *i = from->items;
    if (!i) return false;
    DL_DELETE(from->items, i);
    from->bytes -= i->len;
    from->count--;
    i->key = NULL; // on its way: no longer to be replaced
    DL_APPEND(to->items, i);
    to->bytes += i->len;
    to->count++;
    return true;
}

void outbox_release(struct outbox *o) {
    while (o->items) drop(o, o->items);
}
