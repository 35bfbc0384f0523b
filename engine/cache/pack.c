// Takes a parked cache out of the engine, for another one (travel.c).
#include "engine/cache/movers.h"

#include <stdlib.h>

static int copy_blocks(struct caches *c, const struct kv_image *m, const struct packed_cache *p) {
    int32_t *host = malloc((size_t)p->n_blocks * sizeof *host), n = 0;
    void **whole = malloc((size_t)p->n_blocks * sizeof *whole);
    for (int32_t i = 0; host && whole && i < m->n_slots; i++) {
        if (m->copies[i].host < 0) continue;
        host[n] = m->copies[i].host;
        whole[n++] = packed_cache_block(p, m->copies[i].number);
    }
    int rc = host && whole ? tiers_pack(&c->tiers, host, n, whole) : E_NOMEM;
    free(whole);
    free(host);
    return rc;
}

void cache_pack(struct caches *c, struct sequence *s) {
    const struct kv_image *m = &s->image;
    int32_t blocks = m->n_held;
    struct packed_cache *p = packed_cache_new(s, &c->opt.maker);
    int rc = p ? copy_blocks(c, m, p) : E_NOMEM;
    if (rc == E_DEVICE) c->device_lost = true;
    if (rc < 0) {
        packed_cache_free(p);
        cache_drop(c, s, RELEASE_ASKED);
        return;
    }
    cache_empty(c, s);
    emit_exported(c->emit, s->id, p, blocks);
    cache_forget_if_empty(c, s);
}
