// Settling: saving, delivering, starting queued turns and leaving memory. See settle.h.
//
// Handlers change sessions and touch them. When the outermost call is about to return, each touched
// session is settled once. So a handler need not know what its change makes possible. Only settling frees sessions, so
// no handler frees a session that its caller still holds.
#include "sessions/requests/settle.h"
#include "base/metrics.h"
#include "sessions/caches/routing.h"
#include "sessions/clients/branch_deltas.h"
#include "sessions/clients/clients.h"
#include "sessions/clients/deliver.h"
#include "sessions/clients/limits.h"
#include "sessions/requests/closing.h"
#include "sessions/requests/history.h"
#include "sessions/saving/save.h"
#include "sessions/saving/tail_writer.h"
#include "sessions/turns/turns.h"
#include "sessions/turns/versions.h"
#include <malloc.h>
#include <utlist.h>

void service_enter(struct sessions *ss) {
    ss->depth++;
}

void service_leave(struct sessions *ss) {
    // Callbacks may call in again; the outermost call settles what they touched too.
    if (ss->depth == 1) {
        service_settle(ss);
        store_flush(ss->store);
    }
    ss->depth--;
}

static void show_state(struct session *s, int state) {
    struct sessions *ss = s->service;
    if (s->shown_state == state) return;
    if (s->shown_state >= 0) metric_add(ss->m_state[s->shown_state], -1);
    if (state >= 0) metric_add(ss->m_state[state], 1);
    if (s->shown_state >= 0) s->marks |= MARK_WATCHERS;
    s->shown_state = state;
}

// --- leaving memory ----------------------------------------------------------

// Every client has all events, and waits for more.
static bool is_told(const struct session *s) {
    const struct attachment *a;
    DL_FOREACH(s->attachments, a) {
        if (!a->waiting || a->cursor < event_log_seq(&s->events)) return false;
    }
    return !s->told;
}

// A session whose only turn was refused stays in memory: on the disk it is temporary, and reading it would keep it so.
static bool can_unload(const struct session *s) {
    bool asked = s->paging || s->preparing || s->awaits_turn;
    return (s->life == LIFE_LIVE || s->life == LIFE_LEAVING) && !asked && !session_is_busy(s) &&
           session_is_saved(s) && is_told(s);
}

static void unlist_lru(struct session *s) {
    struct sessions *ss = s->service;
    if (!s->lru_prev) return;
    DL_DELETE2(ss->lru, s, lru_prev, lru_next);
    s->lru_prev = NULL;
    ss->n_lru--;
}

static void list_lru(struct session *s) {
    struct sessions *ss = s->service;
    if (!can_unload(s)) {
        unlist_lru(s);
        return;
    }
    if (s->lru_prev) return;
    if (s->life == LIFE_LEAVING) // only its cache's end had to be saved: it is still the next to go
        DL_PREPEND2(ss->lru, s, lru_prev, lru_next);
    else
        DL_APPEND2(ss->lru, s, lru_prev, lru_next);
    ss->n_lru++;
    if (!owner_has_room(s->owner, OWNER_RESIDENT_SESSIONS, 0)) ss->crowded = s->owner;
}

void service_used(struct session *s) {
    if (s->life == LIFE_LEAVING) life_set(&s->life, LIFE_LIVE);
    unlist_lru(s); // settling adds it again, at the end
    service_touch(s);
}

// Removes the session from the metrics, and from all lists except its clients' and the list of touched sessions.
static void unlist(struct session *s) {
    show_state(s, -1);
    routing_leave(s);
    routing_wait_end(s);
    evict_stop(&s->service->idle, &s->idle);
    s->save_due_us = s->retry_us = s->lost_us = 0;
    service_timers_changed(s);
    unlist_lru(s);
}

// Removes it from every list and table. Not while it is touched.
void service_destroy(struct session *s) {
    unlist(s);
    limits_leave(s);
    for (struct request *r = s->deferred, *next; r; r = next) {
        next = r->next;
        request_free(r);
    }
    request_free(s->paging);
    request_free(s->preparing);
    s->paging = s->preparing = NULL;
    while (s->attachments) clients_detach(s->attachments);
    clients_forget_author(s);
    service_remove(s->service, s);
    session_free(s);
}

// Of a session that clients follow, an entry stays (UNLOADED): its name and their cursors. The next
// request loads it.
static void leave_memory(struct session *s) {
    if (!s->attachments) {
        service_destroy(s);
        return;
    }
    unlist(s);
    clients_forget_author(s);
    service_remove_key(s->service, s);
    session_strip(s);
    life_set(&s->life, LIFE_UNLOADED);
}

// Unloads a session that rests. One with a cache gives up the cache first.
static void unload(struct session *s) {
    struct sessions *ss = s->service;
    if (s->cache == PLACE_NONE && !s->touched_prev)
        leave_memory(s);
    else if (s->cache != PLACE_NONE && s->life != LIFE_LEAVING) {
        life_set(&s->life, LIFE_LEAVING);
        s->evicting = "pressure";
        evict_stop(&ss->idle, &s->idle);
        routing_release(s);
    }
}

// Beyond its owner's limit.
static void unload_owner(struct sessions *ss, struct owner *o) {
    int64_t excess = o->used[OWNER_RESIDENT_SESSIONS] - o->limits.resident_sessions;
    struct session *s, *next;
    DL_FOREACH_SAFE2(ss->lru, s, next, lru_next) {
        if (s->owner != o) continue;
        if (excess-- <= 0) break;
        if (s->life != LIFE_LEAVING) owner_met(ss->owners, o, OWNER_RESIDENT_SESSIONS);
        unload(s);
    }
}

// Sessions beyond the limit leave memory, and half of all when memory ran out: the least recently used
// first. A session with a cache gives up the cache first.
static void unload_excess(struct sessions *ss) {
    int64_t excess = ss->n_lru - ss->o.max_resident_sessions, half = (ss->n_lru + 1) / 2;
    bool memory_short = ss->memory_short;
    if (memory_short && excess < half) excess = half;
    ss->memory_short = false;
    struct session *s, *next;
    DL_FOREACH_SAFE2(ss->lru, s, next, lru_next) {
        if (excess-- <= 0) break;
        unload(s);
    }
    if (ss->crowded) unload_owner(ss, ss->crowded);
    ss->crowded = NULL;
    if (memory_short) malloc_trim(0); // SQLite maps its memory: it cannot use what is free here
}

// --- one session -------------------------------------------------------------

// Its clients take the last event, then the session is freed.
static void settle_gone(struct session *s) {
    struct sessions *ss = s->service;
    int64_t last = event_log_seq(&s->events);
    struct attachment *a, *next;
    unlist(s);
    DL_FOREACH_SAFE(s->attachments, a, next) {
        if (a->cursor < last) continue;
        uint64_t client = a->client;
        clients_detach(a);
        if (ss->cb.on_gone) ss->cb.on_gone(ss->cb.ctx, client, s);
    }
    deliver_ready(s);
    if (!s->attachments && s->save != SAVE_SENT && !s->touched_prev) service_destroy(s);
}

// The session's time without a client is over: its turns are cancelled.
static void settle_lost(struct session *s) {
    if (!session_has_turn(s)) clients_forget_author(s);
    if (!clients_lost_is_due(s)) return;
    clients_lost_end(s);
    for (size_t i = 0; i < s->n_turns; i++)
        if (s->turns[i]->state != TURN_DONE) turn_stop(s->turns[i], STOP_ABANDONED);
    turns_cancel(s, TURN_HEAD);
}

// Deletes a session whose only turn was refused (note_unused).
static void settle_unused(struct session *s) {
    bool asked = s->attachments || s->deferred || s->paging || s->preparing || s->pending;
    if (!s->awaits_turn || s->life != LIFE_LIVE || asked || session_is_busy(s)) return;
    life_set(&s->life, LIFE_DROPPING);
}

static void tell_watchers(struct session *s) {
    show_state(s, (int)session_state(s));
    if (!(s->marks & MARK_WATCHERS)) return;
    s->marks &= ~(unsigned)MARK_WATCHERS;
    service_changed(s->service, s->rec.key, s->rec.owner, s->rec.id, false);
}

// New tokens begin and end nothing: they only enter the save and reach clients.
static void settle_tokens(struct session *s) {
    if (save_is_due(s)) save_begin(s);
    if (!session_is_known(s)) return; // not committed: no client may see it
    deliver_ready(s);
    branch_deltas_settle(s);
}

static void settle(struct session *s) {
    enum session_touch touch = s->touch;
    s->touch = TOUCH_NONE;
    if (s->life == LIFE_LOADING) return;
    if (touch == TOUCH_TOKENS && s->life != LIFE_UNLOADED && s->life != LIFE_GONE) {
        settle_tokens(s);
        return;
    }
    if (s->life == LIFE_UNLOADED) {
        if (!s->attachments) service_destroy(s);
        return;
    }
    if (s->life == LIFE_GONE) {
        settle_gone(s);
        return;
    }
    settle_unused(s);
    closing_settle(s);
    settle_lost(s);
    turns_start_next(s);
    versions_settle(s);
    if (save_is_due(s)) save_begin(s);
    if (!session_is_known(s)) return; // not committed: no client may see it
    deliver_ready(s);
    branch_deltas_settle(s);
    history_trim(s);
    tell_watchers(s);
    list_lru(s);
    bool leaves = s->life == LIFE_LEAVING && s->lru_prev && s->cache == PLACE_NONE;
    if (leaves && !s->touched_prev) leave_memory(s);
}

void service_settle(struct sessions *ss) {
    struct session *s;
    tail_writer_tokens(ss);
    while ((s = service_next_touched(ss))) settle(s);
    unload_excess(ss);
}
