// Draining an instance, and losing one. An instance that drains takes no new turns. Its running turns end there or go
// on elsewhere (failover.c), and the caches of its sessions move to other instances of the model, a few at a time. When
// an instance is lost, all caches and turns on it are gone. See moving.h.
//
// While a session's cache travels, the session belongs to the source instance until the cache has left, then to the
// target. A turn that arrives meanwhile goes to the session's instance, or to another instance if the session's
// instance drains. If the cache has not arrived there, the log is computed again, and the late cache is freed.
#include "sessions/migration/moving.h"
#include "base/err.h"
#include "base/log.h"
#include "base/metrics.h"
#include "sessions/caches/routing.h"
#include "sessions/caches/spare_caches.h"
#include "sessions/requests/settle.h"
#include "sessions/saving/save.h"
#include <utlist.h>

#define TRAVEL_AT_ONCE 4 // caches of one instance outside of any engine, which bounds their memory
#define TARGETS 8

// The cache is in host memory now, or gone. While a turn goes on, its end will say where the cache is.
static void arrived(struct session *s, bool parked, const char *why) {
    bool known = parked && !s->evicting; // clients know that it is parked
    s->evicting = NULL;
    s->cached_tokens = 0;
    s->cache = parked ? PLACE_HOST : PLACE_NONE;
    s->marks |= MARK_WATCHERS;
    if (s->rec.closed_ms || s->life != LIFE_LIVE || known || s->running >= 0) return;
    int kind = parked ? EVENT_PARKED : EVENT_EVICTED;
    if (event_log_add(&s->events, kind, -1, why, service_now_ms(s->service)) > 0) save_now(s);
}

static bool travels_from(const struct session *s, const struct instance *i) {
    return s->instance == i && s->cache == PLACE_TRAVELS;
}

// A cache that no event has reported yet (a fork's, a hint's)
// is dropped.
void moving_send_away(struct session *s) {
    struct sessions *ss = s->service;
    if (s->cache == PLACE_NONE) {
        routing_move_out(s);
        return;
    }
    evict_stop(&ss->idle, &s->idle);
    s->evicting = s->cache == PLACE_DEVICE ? "moved" : NULL; // parked by that, or parked already
    s->cache = PLACE_TRAVELS;
    engine_sequence_export(s->instance->engine, (uint64_t)s->rec.key);
}

// Places of other instances that no turn has or waits for.
static int64_t places_elsewhere(struct sessions *ss, const struct instance *i) {
    const struct instance *o;
    const struct session *s;
    int64_t n = 0;
    DL_FOREACH(ss->placement.instances, o) {
        if (o->model != i->model || !instance_takes_turns(o)) continue;
        if (o->n_turns < o->max_sequences) n += o->max_sequences - o->n_turns;
    }
    DL_FOREACH2(ss->awaiting, s, awaiting_next) n--;
    return n;
}

// Turns with several answers end where they are: elsewhere they would begin again.
static bool can_yield(const struct turn *t) {
    const struct sampling_params *p = &t->sampling->params;
    return t->stop < STOP_CANCEL && p->n == 1 && p->beam_width == 1;
}

// A running turn is given back when another instance has a free place; until then it runs on here.
static void yield_some(struct sessions *ss, struct instance *i) {
    struct session *s;
    int64_t n = places_elsewhere(ss, i);
    DL_FOREACH2(i->sessions, s, home_next) {
        struct turn *t = s->engine_turn ? session_turn(s, s->running) : NULL;
        if (!t || t->number != s->engine_turn || !can_yield(t)) continue;
        if (n-- <= 0) break;
        if (t->stop == STOP_YIELD) continue;
        turn_stop(t, STOP_YIELD);
        engine_turn_yield(i->engine, (uint64_t)s->rec.key, t->number);
    }
}

// False: nothing is left to do here. Turns that wait for their caches come first.
static bool drain_some(struct instance *i, bool has_other) {
    struct session *s, *next;
    int n_travel = 0;
    bool left = i->n_turns > 0;
    DL_FOREACH2(i->sessions, s, home_next) n_travel += s->cache == PLACE_TRAVELS;
    DL_FOREACH_SAFE2(i->sessions, s, next, home_next) {
        if (!has_other || !s->awaiting_prev || s->cache == PLACE_TRAVELS) continue;
        n_travel += s->cache != PLACE_NONE;
        moving_send_away(s);
    }
    DL_FOREACH_SAFE2(i->sessions, s, next, home_next) {
        bool gives = !s->engine_turn && s->cache != PLACE_TRAVELS;
        left = left || s->engine_turn || s->cache == PLACE_TRAVELS || (gives && has_other);
        if (!gives || !has_other || n_travel >= TRAVEL_AT_ONCE) continue;
        n_travel += s->cache != PLACE_NONE;
        moving_send_away(s);
        service_touch(s);
    }
    return left;
}

// --- lost instances --------------------------------------------------------------------------

// Idle caches there are gone with the device.
static void lose_idle(struct instance *i) {
    struct session *s, *next;
    DL_FOREACH_SAFE2(i->sessions, s, next, home_next) {
        if (s->engine_turn) continue;
        bool cached = s->cache != PLACE_NONE;
        routing_leave(s);
        evict_stop(&s->service->idle, &s->idle);
        s->evicting = NULL;
        if (cached) arrived(s, false, "lost");
        service_touch(s);
    }
}

void moving_lost(struct sessions *ss, struct instance *i) {
    i->failed = false;
    if (i->state == INSTANCE_LOST) return;
    if (i->state == INSTANCE_DRAINED && i->n_sessions == 0) return; // it has nothing to lose
    instance_set(i, INSTANCE_LOST);
    i->lost_us = service_now(ss);
    i->lost_ms = service_now_ms(ss);
    metric_add(ss->m_instances_lost, 1);
    log_error("instance.lost", "instance=%s model=%s turns=%lld sessions=%lld", i->name,
              i->model->name, (long long)i->n_turns, (long long)i->n_sessions);
    lose_idle(i);
    spare_drop(ss, i, false);
}

void sessions_lose_instance(struct sessions *ss, const char *name) {
    struct instance *i = placement_find(&ss->placement, name);
    if (!i) return;
    service_enter(ss);
    moving_lost(ss, i);
    service_leave(ss);
}

static void drained(struct instance *i) {
    instance_set(i, INSTANCE_DRAINED);
    log_info("instance.drained", "instance=%s model=%s sessions=%lld", i->name, i->model->name,
             (long long)i->n_sessions);
}

// When the ends of its turns have come, it is drained if it was asked to drain. Otherwise it serves again as
// soon as its engine process runs, without any cache.
static void leave_lost(struct sessions *ss, struct instance *i) {
    if (i->n_turns > 0 || i->n_sessions > 0) return;
    if (i->leaves) {
        drained(i);
    } else if (i->reopens && engine_reopened(i->engine)) {
        instance_set(i, INSTANCE_SERVING);
        service_room_changed(ss);
        log_info("instance.reopened", "instance=%s model=%s", i->name, i->model->name);
    }
}

void moving_go_on(struct sessions *ss) {
    struct instance *i;
    DL_FOREACH(ss->placement.instances, i) {
        if (i->failed) moving_lost(ss, i);
        if (i->state == INSTANCE_LOST) leave_lost(ss, i);
        if (i->state != INSTANCE_DRAINING) continue;
        if (placement_has_other(&ss->placement, i)) yield_some(ss, i);
        if (!drain_some(i, placement_has_other(&ss->placement, i))) drained(i);
    }
}

// Gives the cache to the best instance that takes it. False: none does.
static bool hand_over(struct session *s, struct packed_cache *cache) {
    struct instance *list[TARGETS];
    size_t n = routing_others(s, list, TARGETS);
    for (size_t k = 0; k < n; k++) {
        if (engine_sequence_import(list[k]->engine, (uint64_t)s->rec.key, cache) < 0) continue;
        routing_enter(s, list[k]);
        return true;
    }
    return false;
}

// No other instance takes it.
static bool comes_back(const struct session *s, const struct instance *from,
                       struct packed_cache *cache) {
    return instance_takes_turns(from) &&
           engine_sequence_import(from->engine, (uint64_t)s->rec.key, cache) == 0;
}

void moving_exported(struct sessions *ss, struct instance *from, const struct engine_event *e) {
    struct session *s = service_find_key(ss, (int64_t)e->sequence);
    bool waits = s && travels_from(s, from) && !s->engine_turn && s->life == LIFE_LIVE;
    if (waits && (hand_over(s, e->cache) || comes_back(s, from, e->cache)))
        return; // ENGINE_FORKED says how that went
    engine_packed_free(e->cache);
    if (!s || !travels_from(s, from)) return;
    service_touch(s);
    routing_leave(s);
    moving_arrived(s, false);
}

void moving_arrived(struct session *s, bool parked) {
    arrived(s, parked, "moved");
}

int sessions_drain_instance(struct sessions *ss, const char *name, bool last, struct err *err) {
    struct instance *i = placement_find(&ss->placement, name);
    if (!i) return err_set(err, E_NOTFOUND, "there is no instance '%.64s'", name);
    if (i->leaves) return 0;
    if (!last && !placement_has_other(&ss->placement, i))
        return err_set(err, E_BUSY,
                       "no other instance of '%s' serves: turns would be refused; load one first, "
                       "or say --last",
                       i->model->name);
    i->leaves = true;
    if (i->state == INSTANCE_LOST) return 0; // nothing of it can move
    instance_set(i, INSTANCE_DRAINING);
    spare_drop(ss, i, true);
    log_info("instance.draining", "instance=%s model=%s turns=%lld sessions=%lld", i->name,
             i->model->name, (long long)i->n_turns, (long long)i->n_sessions);
    return 0;
}

int sessions_remove_instance(struct sessions *ss, const char *name,
                             const struct served_model **model, struct err *err) {
    struct instance *i = placement_find(&ss->placement, name);
    struct session *s, *next;
    if (!i) return err_set(err, E_NOTFOUND, "there is no instance '%.64s'", name);
    if (i->state != INSTANCE_DRAINED || i->n_turns > 0)
        return err_set(err, E_BUSY, "instance '%s' is %s", name, instance_state_name(i->state));
    service_enter(ss);
    DL_FOREACH_SAFE2(i->sessions, s, next, home_next) { // of the last instance of a model
        bool cached = s->cache != PLACE_NONE;
        routing_move_out(s);
        if (cached) moving_arrived(s, false);
        service_touch(s);
    }
    int rc = i->n_sessions > 0 ? E_BUSY : placement_remove(&ss->placement, i, model);
    service_leave(ss);
    if (rc == E_BUSY) return err_set(err, rc, "a replay runs on instance '%s'", name);
    return rc < 0 ? err_set(err, rc, "out of memory") : 0;
}
