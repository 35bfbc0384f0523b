// Caches of temporary sessions that are gone. A stateless client that wants nothing stored sends the whole
// conversation again each time. Its cache stays on the device for as long as an idle session's cache does,
// and its owner's next session shares the blocks (engine_turn.share_group). Only tokens and keys stay, in
// memory: no text, nothing on disk.
#include "sessions/caches/spare_caches.h"
#include "sessions/caches/routing.h"
#include "sessions/state/evict.h"
#include <stdlib.h>
#include <utlist.h>

#define SPARES_MAX                                                                                 \
    256 // the oldest makes room; the engine drops them before that if memory is short

struct spare {
    struct evict_node idle; // first: evict_due gives this back
    uint64_t sequence;
    struct instance *at;
};

static void forget(struct sessions *ss, struct spare *l, bool release) {
    if (release) engine_sequence_release(l->at->engine, l->sequence);
    evict_stop(&ss->spares, &l->idle);
    free(l);
}

static void take(struct session *s) {
    struct sessions *ss = s->service;
    struct spare *l = s->cache == PLACE_DEVICE && !s->engine_turn && s->instance &&
                              s->instance->state == INSTANCE_SERVING
                          ? calloc(1, sizeof *l)
                          : NULL;
    if (!l) {
        routing_release(s);
        return;
    }
    if (ss->spares.n >= SPARES_MAX) forget(ss, (struct spare *)ss->spares.first, true);
    l->sequence = (uint64_t)s->rec.key;
    l->at = s->instance;
    evict_start(&ss->spares, &l->idle, service_now(ss));
}

void spare_or_drop(struct session *s) {
    struct instance *i;
    if (s->life == LIFE_DELETING && session_is_temporary(s))
        take(s);
    else
        routing_release(s);
    DL_FOREACH(s->service->placement.instances, i) {
        engine_snapshot_forget(i->engine, (uint64_t)s->rec.key, s->lasting);
    }
}

void spare_evict(struct sessions *ss) {
    struct evict_node *node;
    while ((node = evict_due(&ss->spares, service_now(ss)))) forget(ss, (struct spare *)node, true);
}

void spare_left(struct sessions *ss, const struct instance *from, const struct engine_event *e) {
    if (e->kind != ENGINE_RELEASED && e->kind != ENGINE_PARKED) return;
    for (struct evict_node *n = ss->spares.first; n; n = n->next) {
        struct spare *l = (struct spare *)n;
        if (l->sequence != e->sequence || l->at != from) continue;
        // Other sequences can only take over blocks on the device, so a parked cache is of no use.
        forget(ss, l, e->kind == ENGINE_PARKED);
        return;
    }
}

void spare_drop(struct sessions *ss, const struct instance *at, bool release) {
    for (struct evict_node *n = ss->spares.first, *next; n; n = next) {
        struct spare *l = (struct spare *)n;
        next = n->next;
        if (!at || l->at == at) forget(ss, l, release);
    }
}
