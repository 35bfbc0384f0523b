// Limits of owners: refuses requests, and lets turns wait for a place. See limits.h, owners.h.
#include "sessions/clients/limits.h"
#include "base/err.h"
#include "sessions/caches/routing.h"
#include "sessions/clients/answers.h"
#include <stddef.h>
#include <utlist.h>

static void refuse_limit(struct sessions *ss, const struct request *r, struct owner *o,
                         enum owner_limit which, const char *code, int64_t retry_ms) {
    struct err err = {0};
    struct asker to = asker_of(r);
    owner_refuse(ss->owners, o, which, &err);
    answer_later(ss, &to, code, retry_ms, err.text);
}

static struct owner *owner_of(struct sessions *ss, const struct request *r) {
    struct owner *o = owners_get(ss->owners, r->owner);
    if (!o) refuse_memory(ss, r);
    return o;
}

static bool bytes_refused(struct sessions *ss, const struct request *r, struct owner *o) {
    if (owner_has_room(o, OWNER_STORED_BYTES, 1)) return false;
    refuse_limit(ss, r, o, OWNER_STORED_BYTES, "limit_reached", 0);
    return true;
}

bool limits_refuse_bytes(struct sessions *ss, const struct request *r, int64_t bytes) {
    struct owner *o = owner_of(ss, r);
    if (o && owner_has_room(o, OWNER_STORED_BYTES, bytes)) return false;
    if (o) refuse_limit(ss, r, o, OWNER_STORED_BYTES, "limit_reached", 0);
    return true;
}

bool limits_refuse_session(struct sessions *ss, const struct request *r) {
    struct owner *o = owner_of(ss, r);
    if (!o || bytes_refused(ss, r, o)) return true;
    if (owner_has_room(o, OWNER_SESSIONS, 1)) return false;
    refuse_limit(ss, r, o, OWNER_SESSIONS, "limit_reached", 0);
    return true;
}

bool limits_refuse_resident(struct sessions *ss, const struct request *r) {
    struct owner *o = owner_of(ss, r);
    int64_t wait_ms = o ? owner_crowd_ms(o, service_now(ss)) : 0;
    if (wait_ms) refuse_limit(ss, r, o, OWNER_RESIDENT_SESSIONS, "overloaded", wait_ms);
    return !o || wait_ms;
}

static bool job_refused(struct sessions *ss, const struct request *r, struct owner *o) {
    struct err err = {0};
    struct asker to = asker_of(r);
    if (owner_has_room(o, OWNER_OUTSTANDING_JOBS, 1)) return false;
    to.owner = o->number;
    owner_refuse(ss->owners, o, OWNER_OUTSTANDING_JOBS, &err);
    answer_error(ss, &to, "overloaded", E_BUSY, err.text);
    return true;
}

bool limits_refuse_job(struct sessions *ss, const struct request *r) {
    struct owner *o = owner_of(ss, r);
    return !o || job_refused(ss, r, o);
}

bool limits_refuse_turn(struct sessions *ss, const struct request *r) {
    struct owner *o = owner_of(ss, r);
    if (!o || job_refused(ss, r, o) || bytes_refused(ss, r, o)) return true;
    int64_t wait_ms = owner_tokens_wait_ms(o, service_now(ss));
    if (wait_ms) refuse_limit(ss, r, o, OWNER_TOKENS, "rate_limited", wait_ms);
    return wait_ms > 0;
}

// --- places of turns ---------------------------------------------------------

// Settles the first session that waits: it starts its turn, or leaves the list.
static void next_waiting(struct owner *o) {
    if (o->waiting) service_touch(o->waiting);
}

void limits_leave(struct session *s) {
    if (!s->place_prev) return;
    DL_DELETE2(s->owner->waiting, s, place_prev, place_next);
    s->place_prev = NULL;
    next_waiting(s->owner);
}

bool limits_place(struct session *s) {
    struct owner *o = s->owner;
    bool first = !o->waiting || o->waiting == s;
    if (first && owner_has_room(o, OWNER_RUNNING_TURNS, 1)) {
        limits_leave(s);
        return true;
    }
    if (s->place_prev) return false;
    owner_met(s->service->owners, o, OWNER_RUNNING_TURNS);
    DL_APPEND2(o->waiting, s, place_prev, place_next);
    return false;
}

void limits_turn_ends(struct session *s, const struct turn *t) {
    s->service->n_active--;
    owner_use(s->owner, OWNER_OUTSTANDING_JOBS, -1);
    if (!turn_runs(t)) return;
    owner_use(s->owner, OWNER_RUNNING_TURNS, -1);
    next_waiting(s->owner);
}

// --- what is stored ----------------------------------------------------------

void limits_add_stored(struct sessions *ss, const char *name, int64_t n_sessions, int64_t bytes) {
    struct owner *o = owners_get(ss->owners, name);
    if (!o) return;
    owner_use(o, OWNER_SESSIONS, n_sessions);
    owner_use(o, OWNER_STORED_BYTES, bytes);
}

// --- the cache ---------------------------------------------------------------

static struct session *session_of(const struct evict_node *node) {
    return (struct session *)((char *)node - offsetof(struct session, idle));
}

// The share is enforced only while less than a quarter of the cache is free. The session whose turn
// ended last keeps its cache.
void limits_share_cache(struct sessions *ss, struct owner *o, const struct instance *i) {
    struct engine_load load;
    double share = o->limits.cache_share;
    int64_t held = 0;
    if (share == 0) return;
    engine_load(i->engine, &load);
    if (load.blocks_free > load.blocks_total / 4) return;
    double most = share * i->info->n_blocks * i->info->block_tokens;
    for (struct evict_node *n = ss->idle.last, *before; n; n = before) {
        struct session *s = session_of(n);
        before = n->prev;
        if (s->owner != o || s->instance != i) continue;
        bool newest = held == 0;
        held += s->cached_tokens;
        if (newest || (double)held <= most) continue;
        owner_met(ss->owners, o, OWNER_CACHE_SHARE);
        routing_park(s, "pressure");
    }
}

void sessions_count_owner(struct sessions *ss, struct owner *o) {
    int64_t held = 0;
    for (struct evict_node *n = ss->idle.first; n; n = n->next)
        if (session_of(n)->owner == o) held += session_of(n)->cached_tokens;
    o->used[OWNER_CACHE_SHARE] = held;
}
