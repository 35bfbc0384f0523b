// Sessions that changed, by number. See changes.h.
#include "ws/parley/changes.h"
#include "base/array.h"
#include "base/err.h"
#include <stdlib.h>
#include <string.h>

static size_t place_of(const struct changes *c, int64_t key) {
    size_t low = 0, high = c->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (c->list[middle].key < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int insert(struct changes *c, size_t at, int64_t key) {
    if (c->bytes + sizeof(*c->list) > CHANGES_MAX_BYTES) return E_LIMIT;
    TRY(ARRAY_RESERVE(c->list, c->cap, c->n + 1));
    memmove(c->list + at + 1, c->list + at, (c->n - at) * sizeof(*c->list));
    c->list[at] = (struct change){.key = key};
    c->n++;
    c->bytes += sizeof(*c->list);
    return 0;
}

int changes_add(struct changes *c, int64_t key, const char *removed) {
    size_t at = place_of(c, key);
    if (at == c->n || c->list[at].key != key) TRY(insert(c, at, key));
    if (!removed || c->list[at].removed) return 0;
    if (c->bytes + strlen(removed) > CHANGES_MAX_BYTES) return E_LIMIT;
    c->list[at].removed = strdup(removed);
    if (!c->list[at].removed) return E_NOMEM;
    c->bytes += strlen(removed);
    return 0;
}

bool changes_take(struct changes *c, struct change *out) {
    if (c->n == 0) return false;
    size_t at = place_of(c, c->last + 1);
    if (at == c->n) at = 0;
    *out = c->list[at];
    memmove(c->list + at, c->list + at + 1, (--c->n - at) * sizeof(*c->list));
    c->last = out->key;
    c->bytes -= sizeof(*c->list) + (out->removed ? strlen(out->removed) : 0);
    return true;
}

void changes_release(struct changes *c) {
    for (size_t i = 0; i < c->n; i++) free(c->list[i].removed);
    free(c->list);
    *c = (struct changes){0};
}
