// Room in host memory for one more block.
#include "engine/cache/movers.h"

// Whether o's copy cannot be dropped: it is being moved, or a thread holds its blocks.
static bool is_held(const struct caches *c, const struct sequence *s, const struct sequence *o) {
    return o == s || o == c->tiers.copying || o->resume;
}

// An owner whose copies have more than half of host memory makes room among them alone, so that one
// owner's many idle sessions do not push out the few of all others.
static bool has_most(const struct caches *c, const struct sequence *s) {
    int64_t n = 0;
    for (const struct sequence *o = c->tiers.images; o && s->group; o = o->image_next)
        if (o->image_group == s->group) n += o->image.n_held;
    return 2 * n > c->tiers.host.n_blocks;
}

enum room cache_make_host_room(struct caches *c, const struct sequence *s, bool pressed) {
    bool own = has_most(c, s);
    for (struct sequence *o = c->tiers.images; o; o = o->image_next) {
        if (is_held(c, s, o) || (own && o->image_group != s->group)) continue;
        if (o->used_us > s->used_us && !s->turn) return ROOM_NONE;
        bool writing = snapshots_is_writing(&c->snapshots, o->id);
        if (writing && !pressed) return ROOM_LATER;
        if (writing) continue;
        bool wanted = cache_wants_snapshot(c, o);
        if (wanted && !pressed) {
            int rc = cache_write(c, o);
            if (rc == 0 || rc == E_BUSY) return ROOM_LATER;
        } else if (wanted) {
            cache_count_given_up(c, "pressed");
        }
        if (o->state == CACHE_PARKED)
            cache_drop(c, o, RELEASE_PRESSURE);
        else
            cache_drop_image(c, o);
        return ROOM_MADE;
    }
    return ROOM_NONE;
}
