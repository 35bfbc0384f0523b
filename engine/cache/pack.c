// Takes a parked cache out of the engine, for another one (travel.c).
#include "engine/cache/movers.h"

#include <string.h>

void cache_pack(struct caches *c, struct sequence *s) {
    const struct kv_image *m = &s->image;
    int32_t blocks = m->n_held;
    struct packed_cache *p = packed_cache_new(s, &c->opt.maker);
    if (!p) {
        cache_drop(c, s, RELEASE_ASKED);
        return;
    }
    for (int32_t i = 0; i < m->n_slots; i++) {
        if (m->copies[i].host < 0) continue;
        char *to = (char *)packed_cache_block(p, m->copies[i].logical);
        memcpy(to, tiers_host(&c->tiers, m->copies[i].host), c->store.block_bytes);
    }
    cache_empty(c, s);
    emit_exported(c->emit, s->id, p, blocks);
    cache_forget_if_empty(c, s);
}
