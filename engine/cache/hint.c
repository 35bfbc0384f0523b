// Hints: a turn is likely to come. A parked cache or a snapshot comes back before the turn, into
// blocks that no cache holds and that are not promised to a running turn. Any turn that needs those
// blocks gets them. Nothing is computed.
#include "engine/cache/movers.h"

#include <stdlib.h>

enum { MOST_WARM = 8 }; // at a time, because the turn of a hint may never come

static void begun(struct caches *c, struct sequence *s) {
    s->warm_until_us = clock_mono_us(c->emit->clock) + ENGINE_WARM_US;
    c->n_warm++;
}

void cache_warm(struct caches *c, struct sequence *s, int64_t n_free) {
    const struct sequence_shape all = {.ring = {.chunk_tokens = c->opt.chunk_tokens,
                                                .block_tokens = c->stores.arena.block_tokens,
                                                .session_len = c->opt.max_session_len,
                                                .groups = c->stores.groups}};
    const struct sequence_shape shape = sequence_image_shape(s, &all);
    struct err err;
    if (s->state != CACHE_PARKED || c->n_warm >= MOST_WARM || s->image.n_held > n_free) return;
    if (sequence_ready(s, &c->pool, &shape, &err) < 0) return;
    if (cache_load_begin(c, s, s->image_ids, s->n_image + 1, 0)) begun(c, s);
}

bool cache_prepare(struct caches *c, struct sequence *s, const struct sequence_shape *shape,
                   int32_t *ids, int64_t n_ids) {
    struct err err;
    if (c->n_warm >= MOST_WARM || sequence_ready(s, &c->pool, shape, &err) < 0 ||
        !cache_read_begin(c, s, n_ids + 1, 0)) {
        free(ids);
        return false;
    }
    s->resume->hint_ids = ids;
    s->resume->n_hint = n_ids;
    begun(c, s);
    return true;
}
