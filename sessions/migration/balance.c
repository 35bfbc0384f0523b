// Hands idle sessions of a hot instance to another one of its model, with their caches, ahead of their next turns.
// See balance.h.
//
// An instance is hot when all its places are taken while half of another instance's are free (crowded), or when its
// cache is nearly full while another instance's is not (full). Then its longest idle session moves there as at a drain
// (moving.c), one session at a time.
//
// A session moves only to an instance whose share of sessions stays smaller than the hot instance's. So each move makes
// the shares more equal, no session moves back, and without new sessions the moves end.
#include "sessions/migration/balance.h"
#include "base/log.h"
#include "sessions/migration/moving.h"
#include <utlist.h>

#define LOOK_US 250000  // between looks
#define REST_US 2000000 // a session that was used since then is likely to be used again at once
#define FULL_PART 10    // a cache with fewer than a tenth of its blocks free is full
#define ROOM_PART 3     // one with more than a third free has room

static bool has_fewer(const struct instance *o, const struct instance *than) {
    return (o->n_sessions + 1) * than->max_sequences < than->n_sessions * o->max_sequences;
}

// The instance with the smallest share of its places taken; NULL: there is no other.
static struct instance *coolest(const struct sessions *ss, const struct instance *but) {
    struct instance *o, *best = NULL;
    DL_FOREACH(ss->placement.instances, o) {
        if (o == but || o->model != but->model || !instance_takes_turns(o)) continue;
        if (!best || o->n_turns * best->max_sequences < best->n_turns * o->max_sequences) best = o;
    }
    return best;
}

// NULL: none can go now.
static struct session *longest_idle(struct instance *i, bool parked_too, int64_t now_us) {
    struct session *s, *best = NULL;
    DL_FOREACH2(i->sessions, s, home_next) {
        bool is_parked = s->cache == PLACE_HOST;
        if (s->cache == PLACE_TRAVELS) return NULL;
        if (s->cache != PLACE_DEVICE && !(is_parked && parked_too)) continue;
        if (s->engine_turn || s->running >= 0 || s->rec.closed_ms || s->life != LIFE_LIVE) continue;
        if (is_parked) return s;
        if (now_us - s->idle.since_us < REST_US) continue;
        if (!best || s->idle.since_us < best->idle.since_us) best = s;
    }
    return best;
}

// A cache travels through the host memory of both.
static bool can_travel(const struct session *s, const struct engine_load *a,
                       const struct engine_load *b) {
    int64_t need = s->rec.memory_len / s->instance->info->block_tokens + 2;
    return a->host_blocks_total >= need && b->host_blocks_total >= need;
}

static void hand_over_from(struct sessions *ss, struct instance *i) {
    const struct instance *o = coolest(ss, i);
    struct engine_load a, b;
    if (!o || !has_fewer(o, i)) return;
    engine_load(i->engine, &a);
    engine_load(o->engine, &b);
    bool crowded = i->n_turns >= i->max_sequences && 2 * o->n_turns <= o->max_sequences;
    bool full =
        a.blocks_free < a.blocks_total / FULL_PART && b.blocks_free > b.blocks_total / ROOM_PART;
    if (!crowded && !full) return;
    struct session *s = longest_idle(i, crowded, service_now(ss));
    if (!s || !can_travel(s, &a, &b)) return;
    log_info("session.handed_over", "session=%s from=%s why=%s", s->rec.id, i->name,
             crowded ? "turns" : "cache");
    moving_send_away(s);
    service_touch(s);
}

void balance_go_on(struct sessions *ss) {
    struct instance *i;
    if (service_now(ss) - ss->balanced_us < LOOK_US) return;
    ss->balanced_us = service_now(ss);
    DL_FOREACH(ss->placement.instances, i) {
        if (instance_takes_turns(i)) hand_over_from(ss, i);
    }
}
