// Where sessions live: the instance that has a session's cache or its turn. See placement.h, routing.h.
#include "sessions/caches/routing.h"
#include "base/err.h"
#include <stdlib.h>
#include <utlist.h>

#define CANDIDATES 64
#define RESTART_RETRY_US 1000000 // while no instance takes turns

void routing_enter(struct session *s, struct instance *i) {
    if (s->instance == i) return;
    routing_leave(s);
    s->instance = i;
    i->n_sessions++;
    DL_APPEND2(i->sessions, s, home_prev, home_next);
}

void routing_leave(struct session *s) {
    if (!s->instance) return;
    s->instance->n_sessions--;
    DL_DELETE2(s->instance->sessions, s, home_prev, home_next);
    s->instance = NULL;
}

void routing_release(struct session *s) {
    if (s->instance) engine_sequence_release(s->instance->engine, (uint64_t)s->rec.key);
}

void routing_park(struct session *s, const char *reason) {
    struct sessions *ss = s->service;
    evict_stop(&ss->idle, &s->idle);
    s->evicting = reason;
    if (s->instance) engine_sequence_park(s->instance->engine, (uint64_t)s->rec.key);
}

void routing_cancel(struct session *s, uint64_t turn) {
    if (s->instance) engine_turn_cancel(s->instance->engine, (uint64_t)s->rec.key, turn);
}

static size_t candidates(const struct session *s, const struct engine_turn *t,
                         struct instance **out, uint64_t *prefix) {
    const struct placement_turn wanted = {.model = service_model(s),
                                          .lasting = s->lasting,
                                          .origins = (const char *const *)s->origins,
                                          .n_origins = s->n_origins,
                                          .owner = s->owner->number,
                                          .ids = t->ids,
                                          .n_ids = (size_t)t->n_ids};
    *prefix = 0;
    if (!wanted.model) return 0;
    return placement_choose(&s->service->placement, &wanted, out, CANDIDATES, prefix);
}

// As many turns wait as it has places.
static bool is_hot(const struct instance *i) {
    return i->n_turns >= 2 * (int64_t)i->max_sequences;
}

// Whether a session's next turn runs at its home. If the home's queue is long, an instance with a free
// place gets the session: computing the log again takes less time than waiting.
static bool is_home(const struct session *s, const struct instance *best) {
    const struct instance *home = s->instance;
    if (!home || !instance_takes_turns(home)) return false;
    return !best || !is_hot(home) || best->n_turns >= best->max_sequences;
}

void routing_move_out(struct session *s) {
    routing_release(s);
    routing_leave(s);
    evict_stop(&s->service->idle, &s->idle);
    s->cache = PLACE_NONE;
    s->cached_tokens = 0;
    s->evicting = NULL;
}

bool routing_awaits(const struct session *s) {
    const struct served_model *m = service_model(s);
    const struct instance *i;
    bool comes = false;
    DL_FOREACH(s->service->placement.instances, i) {
        if (i->model == m && instance_takes_turns(i)) return false;
        comes = comes || (i->model == m && i->reopens);
    }
    return comes;
}

void routing_wait(struct session *s) {
    if (s->awaiting_prev) return;
    s->awaiting_us = service_now(s->service);
    DL_APPEND2(s->service->awaiting, s, awaiting_prev, awaiting_next);
}

void routing_wait_end(struct session *s) {
    if (!s->awaiting_prev) return;
    DL_DELETE2(s->service->awaiting, s, awaiting_prev, awaiting_next);
    s->awaiting_prev = NULL;
}

// The nearest of those it was forked from that has a snapshot there.
static const char *origin_of(const struct session *s, const struct instance *i) {
    for (size_t k = 0; k < s->n_origins; k++)
        if (engine_has_snapshot(i->engine, s->origins[k])) return s->origins[k];
    return s->n_origins ? s->origins[0] : NULL;
}

static int submit_to(struct session *s, struct instance *i, struct engine_turn *t,
                     struct err *err) {
    t->origin_id = origin_of(s, i);
    // A session without a commit has no snapshot: this one is of a session on the disk that has the id already, and for
    // which the commit will be refused. The engine would drop it for the other log.
    if (s->life == LIFE_OPENING && engine_has_snapshot(i->engine, s->lasting)) t->lasting_id = NULL;
    int rc = engine_turn_submit(i->engine, t, err);
    if (rc == E_DEVICE) i->failed = true; // moving.c handles it
    TRY(rc);
    if (s->instance && s->instance != i) routing_move_out(s);
    if (s->cache == PLACE_TRAVELS) { // the turn finds it here, or it comes too late
        s->cache = PLACE_NONE;
        s->evicting = NULL;
    }
    routing_enter(s, i);
    i->n_turns++;
    return 0;
}

static bool tries_elsewhere(int rc) {
    return rc == E_BUSY || rc == E_DEVICE || rc == E_CLOSED;
}

int routing_submit(struct session *s, struct engine_turn *t, struct err *err) {
    struct instance *list[CANDIDATES];
    struct err why = {0}; // callers look at the code
    uint64_t prefix;
    size_t n = candidates(s, t, list, &prefix);
    int rc = E_DEVICE;
    if (is_home(s, n ? list[0] : NULL)) {
        rc = submit_to(s, s->instance, t, &why);
    }
    for (size_t i = 0; i < n && tries_elsewhere(rc); i++) {
        rc = submit_to(s, list[i], t, &why);
        if (rc == 0) placement_note(&s->service->placement, prefix, list[i]);
    }
    // Another instance, or this one when it is opened again, can take the turn.
    if (rc == E_DEVICE || rc == E_CLOSED)
        return err_set(err, E_BUSY, "no instance of the model takes turns now");
    return rc < 0 ? err_set(err, rc, "%s", why.text) : 0;
}

size_t routing_others(struct session *s, struct instance **out, size_t cap) {
    const struct engine_turn log = {.ids = s->log, .n_ids = (int64_t)s->n_log};
    struct instance *list[CANDIDATES];
    uint64_t prefix;
    size_t n = candidates(s, &log, list, &prefix), n_out = 0;
    for (size_t i = 0; i < n && n_out < cap; i++)
        if (list[i] != s->instance) out[n_out++] = list[i];
    return n_out;
}

void routing_prepare(struct session *s, struct engine_turn *t) {
    struct instance *list[CANDIDATES], *at = s->instance;
    uint64_t prefix;
    if (!at && candidates(s, t, list, &prefix) > 0) at = list[0];
    if (!at) {
        free(t->ids);
        return;
    }
    t->origin_id = origin_of(s, at);
    bool has_file = engine_has_snapshot(at->engine, s->lasting) ||
                    (t->origin_id && engine_has_snapshot(at->engine, t->origin_id));
    engine_sequence_prepare(at->engine, t);
    if (has_file) routing_enter(s, at);
}

struct instance *routing_for_replay(struct session *s) {
    struct instance *list[CANDIDATES];
    const struct engine_turn none = {0};
    uint64_t prefix;
    return candidates(s, &none, list, &prefix) > 0 ? list[0] : NULL;
}

int64_t routing_retry_us(const struct sessions *ss, uint64_t owner, enum engine_priority priority) {
    const struct instance *i = placement_least_loaded(&ss->placement);
    return i ? engine_retry_us(i->engine, owner, priority) : RESTART_RETRY_US;
}
