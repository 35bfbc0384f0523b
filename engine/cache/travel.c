// Caches that move from one engine to an equal one, as copies in host memory: nothing is computed again.
//
// An export first parks the cache, in the background and in slices; then its bytes are packed
// (pack.c). An import takes host blocks and is parked from the start, so that its next turn brings it
// to the device. With several ranks, the parts travel through the leader. Without host memory a cache
// cannot travel: it is released, and computed again elsewhere.
#include "engine/cache/movers.h"

#include "base/log.h"
#include <stdlib.h>
#include <string.h>

void cache_export(struct caches *c, struct sequence *s) {
    if (s->resume) resume_end(c, s, RESUME_STOPPED); // back to where it was
    bool can = tiers_on(&c->tiers);
    if (can && s->state == CACHE_PARKED) {
        cache_pack(c, s);
    } else if (can && cache_is_on_device(s->state)) {
        s->leaves_engine = true;
        cache_ask_to_park(c, s, RELEASE_ASKED);
    } else {
        cache_drop(c, s, RELEASE_ASKED);
    }
}

// Host blocks for the image of a ring of this shape; other caches may have to leave for them.
static int take_host_blocks(struct caches *c, struct sequence *s, const struct packed_cache *p) {
    int rc;
    TRY(tiers_image(&c->tiers, s));
    s->used_us = p->used_us;
    s->image_group = p->group; // whose part of host memory it counts as
    while ((rc = kv_image_take(&s->image, &s->ring, p->n_ids)) == E_NOMEM)
        if (cache_make_host_room(c, s, false) != ROOM_MADE) break;
    return rc;
}

// host, from: room for the image's blocks.
static int list_blocks(const struct kv_image *m, const struct packed_cache *p, int32_t *host,
                       const void **from) {
    int32_t n = 0;
    for (int32_t i = 0; i < m->n_slots; i++) {
        if (m->copies[i].host < 0) continue;
        host[n] = m->copies[i].host;
        from[n] = packed_cache_block(p, m->copies[i].number);
        if (!from[n++]) return E_NOTFOUND; // the window had moved on
    }
    return 0;
}

static int copy_blocks(struct caches *c, const struct sequence *s, const struct packed_cache *p) {
    const struct kv_image *m = &s->image;
    int32_t *host = malloc((size_t)m->n_held * sizeof *host);
    const void **from = malloc((size_t)m->n_held * sizeof *from);
    int rc = host && from ? list_blocks(m, p, host, from) : E_NOMEM;
    if (rc == 0) rc = tiers_unpack(&c->tiers, host, m->n_held, from);
    if (rc == E_DEVICE) c->device_lost = true;
    free(from);
    free(host);
    return rc;
}

static int import(struct caches *c, struct sequence *to, const struct packed_cache *p) {
    const struct sequence_shape shape = {.group = p->group,
                                         .prompt = p->prompt,
                                         .ring = {.memory_len = p->memory_len,
                                                  .sink_len = p->sink_len,
                                                  .chunk_tokens = c->opt.chunk_tokens,
                                                  .block_tokens = c->stores.arena.block_tokens,
                                                  .session_len = c->opt.max_session_len,
                                                  .groups = c->stores.groups}};
    struct err err;
    if (!tiers_on(&c->tiers) || c->tiers.transit) return E_UNSUPPORTED;
    int32_t *ids = malloc((size_t)p->n_ids * sizeof *ids);
    if (!ids) return E_NOMEM;
    int rc =
        sequence_ready(to, &c->pool, &shape, &err); // which blocks it needs follows from its ring
    if (rc == 0) rc = take_host_blocks(c, to, p);
    if (rc == 0) rc = copy_blocks(c, to, p);
    sequence_drop(to);
    if (rc < 0) {
        tiers_drop(&c->tiers, to);
        free(ids);
        return rc;
    }
    memcpy(ids, p->ids, (size_t)p->n_ids * sizeof *ids);
    to->image_ids = ids;
    to->n_image = p->n_ids;
    to->image_prompt = p->prompt;
    to->image_version = ++c->last_version;
    to->names = p->names;
    cache_set(c, to, CACHE_PARKED);
    return 0;
}

void cache_import(struct caches *c, struct sequence *to, const struct packed_cache *p) {
    int rc = import(c, to, p);
    if (rc < 0) log_info("engine.import", "code=%s tokens=%lld", err_name(rc), (long long)p->n_ids);
    c->look_for_writes = true;
}
