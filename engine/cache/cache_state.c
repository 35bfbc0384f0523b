// The table of legal changes, and the one function that makes them.
#include "engine/cache/cache_state.h"

#include "engine/cache/caches.h"
#include <assert.h>

#define TO(state) (1u << CACHE_##state)

static const uint16_t legal[CACHE_N_STATES] = {
    [CACHE_EMPTY] = TO(DEVICE) | TO(PARKED) | TO(OPENING),
    [CACHE_DEVICE] = TO(EMPTY) | TO(COPYING) | TO(CLEAN) | TO(DEVICE_ONLY) | TO(PARKING) |
                     TO(OPENING) | TO(WAITING),
    [CACHE_COPYING] = TO(EMPTY) | TO(DEVICE) | TO(CLEAN) | TO(DEVICE_ONLY) | TO(PARKING),
    [CACHE_CLEAN] = TO(EMPTY) | TO(DEVICE) | TO(PARKED),
    [CACHE_DEVICE_ONLY] = TO(EMPTY) | TO(DEVICE) | TO(PARKING),
    [CACHE_PARKING] = TO(EMPTY) | TO(DEVICE) | TO(PARKED),
    [CACHE_PARKED] = TO(EMPTY) | TO(DEVICE) | TO(OPENING) | TO(WAITING),
    [CACHE_OPENING] = TO(EMPTY) | TO(DEVICE) | TO(PARKED) | TO(WAITING),
    [CACHE_WAITING] = TO(EMPTY) | TO(DEVICE) | TO(PARKED) | TO(READING) | TO(LOADING),
    [CACHE_READING] = TO(EMPTY) | TO(DEVICE) | TO(LOADING),
    [CACHE_LOADING] = TO(EMPTY) | TO(DEVICE) | TO(CLEAN) | TO(PARKED) | TO(STEPPING),
    [CACHE_STEPPING] = TO(EMPTY) | TO(DEVICE) | TO(PARKED),
};

// Also while it is being copied back: until that is done it may go back to PARKED at once.
static bool is_parked(const struct sequence *s) {
    return s->state == CACHE_PARKED || (cache_is_resuming(s->state) && s->back_to == CACHE_PARKED);
}

void cache_set(struct caches *c, struct sequence *s, enum cache_state to) {
    enum cache_state from = s->state;
    if (from == to) return;
    assert(legal[from] & (1u << to));
    bool was_parked = is_parked(s);
    if (cache_is_resuming(to) && !cache_is_resuming(from)) s->back_to = from;
    if (to == CACHE_READING) s->back_to = CACHE_EMPTY; // the copy is overwritten
    s->state = to;
    c->n_in[from]--;
    c->n_in[to]++;
    c->tiers.n_parked += is_parked(s) - was_parked;
    bool parks = to == CACHE_PARKED && cache_is_on_device(from);
    if (parks && !c->tiers.transit) metric_add(c->metrics->parked[s->why], 1);
}
