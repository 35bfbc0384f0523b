// When running turns need blocks, the least recently used idle cache leaves the device. A cache with a
// complete copy leaves at once; another one is copied first, or dropped if host memory has no room.
#include "engine/cache/movers.h"

#include <utlist.h>

// No idle cache has blocks: stops the caches that come back on a hint (caches_resume ends them).
static bool preempt_hints(struct caches *c) {
    struct resume *r;
    bool any = false;
    DL_FOREACH(c->resuming, r) {
        if (r->sequence->turn_ids || r->sequence->ring.n_held == 0) continue;
        any = r->preempted = true;
    }
    return any;
}

enum evicted cache_evict(struct caches *c) {
    struct sequence *oldest = NULL, *next;
    for (struct sequence *s = c->idle; s; s = next) {
        next = s->idle_next;
        if (s->resume) continue;             // its blocks are being filled
        if (!cache_is_on_device(s->state)) { // listed for its queued turn; it holds no blocks
            cache_idle_remove(c, s);
            continue;
        }
        if (!oldest) oldest = s;
        if (!tiers_on(&c->tiers)) break;
        if (s->state != CACHE_CLEAN || s == c->tiers.copying) continue;
        cache_ask_to_park(c, s, RELEASE_PRESSURE);
        return EVICT_DONE;
    }
    if (!oldest) return preempt_hints(c) ? EVICT_WAIT : EVICT_NONE;
    if (!tiers_on(&c->tiers) || oldest->state == CACHE_DEVICE_ONLY) {
        cache_idle_remove(c, oldest);
        cache_drop(c, oldest, RELEASE_PRESSURE);
        return EVICT_DONE;
    }
    c->park_pressed = true;
    cache_ask_to_park(c, oldest, RELEASE_PRESSURE);
    return EVICT_WAIT;
}

// max_idle bounds the idle sequences, because those that share blocks could be more than the owner's
// table holds. A cache that is copied first leaves when the next sequence goes idle.
void cache_go_idle(struct caches *c, struct sequence *s, int32_t n_queued) {
    cache_idle_add(c, s);
    while (c->opt.max_idle > 0 && c->n_idle > c->opt.max_idle + n_queued) {
        if (cache_evict(c) != EVICT_DONE) break;
    }
}
