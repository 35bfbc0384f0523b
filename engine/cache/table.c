// The table of sequences, and the list of idle ones. A sequence enters the table with its first turn
// or fork and leaves it when it has neither a turn nor a cache.
#include "engine/cache/caches.h"

#include <utlist.h>

struct sequence *caches_find(const struct caches *c, uint64_t id) {
    struct sequence *s;
    HASH_FIND(hh, c->sequences, &id, sizeof id, s);
    return s;
}

struct sequence *caches_find_or_add(struct caches *c, uint64_t id) {
    struct sequence *s = caches_find(c, id);
    if (s) return s;
    s = sequence_new(id);
    if (!s) return NULL;
    HASH_ADD(hh, c->sequences, id, sizeof s->id, s);
    if (!hash_added(&s->hh)) { // the table could not grow
        sequence_free(s);
        return NULL;
    }
    c->n_in[CACHE_EMPTY]++;
    return s;
}

void cache_idle_add(struct caches *c, struct sequence *s) {
    cache_idle_remove(c, s);
    DL_APPEND2(c->idle, s, idle_prev, idle_next);
    c->n_idle++;
}

void cache_idle_remove(struct caches *c, struct sequence *s) {
    if (!s->idle_prev) return; // not listed: in utlist even the head has a prev, the tail
    DL_DELETE2(c->idle, s, idle_prev, idle_next);
    s->idle_prev = s->idle_next = NULL;
    c->n_idle--;
}
