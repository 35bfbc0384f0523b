// Settling: what a touched session is due once nobody is in the middle of changing it, and when it
// leaves memory. service.h says why it is done last.
#include "base/metrics.h"
#include "sessions/service.h"
#include <utlist.h>

#define SETTLE_AGAIN_US 100000

static void show_state(struct session *s, int state) {
    struct sessions *ss = s->service;
    if (s->shown_state == state) return;
    if (s->shown_state >= 0) metric_add(ss->m_state[s->shown_state], -1);
    if (state >= 0) metric_add(ss->m_state[state], 1);
    if (s->shown_state >= 0) s->changed = true;
    s->shown_state = state;
}

static bool can_unload(const struct session *s) {
    return s->on_disk && !s->zombie && !s->attachments && !session_has_turn(s) && !s->engine_turn &&
           !s->saving && !s->save_due_us && !s->pending && !s->closing && !s->deferred &&
           !s->paging;
}

static void list_lru(struct session *s) {
    struct sessions *ss = s->service;
    bool can = can_unload(s);
    if (can == s->in_lru) return;
    if (can && s->unload) // only its cache's end had to be saved: it is still the next to go
        DL_PREPEND2(ss->lru, s, lru_prev, lru_next);
    else if (can)
        DL_APPEND2(ss->lru, s, lru_prev, lru_next);
    else
        DL_DELETE2(ss->lru, s, lru_prev, lru_next);
    ss->n_lru += can ? 1 : -1;
    s->in_lru = can;
}

void service_used(struct session *s) {
    struct sessions *ss = s->service;
    s->unload = false;
    if (!s->in_lru) return;
    DL_DELETE2(ss->lru, s, lru_prev, lru_next);
    ss->n_lru--;
    s->in_lru = false;
    service_touch(s); // back in at the end of the list
}

// Out of every list and table. Not while it is in the list of touched sessions.
void service_destroy(struct session *s) {
    struct sessions *ss = s->service;
    show_state(s, -1);
    evict_stop(&ss->idle, &s->idle);
    s->save_due_us = s->retry_us = s->lost_us = 0;
    service_timers_changed(s);
    if (s->in_lru) {
        DL_DELETE2(ss->lru, s, lru_prev, lru_next);
        ss->n_lru--;
    }
    for (struct request *r = s->deferred, *next; r; r = next) {
        next = r->next;
        request_free(r);
    }
    request_free(s->paging);
    s->paging = NULL;
    while (s->attachments) deliver_detach(s->attachments);
    deliver_forget_author(s);
    service_forget_id(s);
    if (!s->loading) HASH_DELETE(by_key, ss->by_key, s);
    session_free(s);
}

void service_drop(struct session *s) {
    while (s->attachments) deliver_detach(s->attachments);
    service_forget_id(s);
    service_touch(s); // freed when settled
}

void service_hide(struct session *s) {
    list_lru(s);
    show_state(s, -1);
}

// Deleted: its clients take the last event, then it goes.
static void settle_zombie(struct session *s) {
    struct sessions *ss = s->service;
    int64_t last = event_log_seq(&s->events);
    struct attachment *a, *next;
    DL_FOREACH_SAFE(s->attachments, a, next) {
        if (a->cursor < last) continue;
        uint64_t client = a->client;
        deliver_detach(a);
        if (ss->cb.on_gone) ss->cb.on_gone(ss->cb.ctx, client, s);
    }
    deliver_ready(s);
    if (!s->attachments && !s->saving && !s->touched) service_destroy(s);
}

// Out of memory: settle it again in a while. Not by touching, or settling would never end.
static void settle_later(struct session *s) {
    if (!s->save_due_us) s->save_due_us = service_now(s->service) + SETTLE_AGAIN_US;
    service_timers_changed(s);
}

static void send_delete(struct session *s) {
    struct store_job *job = store_job_new(STORE_DELETE, s->rec.key);
    if (!job) {
        settle_later(s);
        return;
    }
    s->deleting = true;
    store_send(s->service->store, job);
}

// A close that was asked for, once nothing runs any more.
static void settle_closing(struct session *s) {
    if (session_has_turn(s) || s->engine_turn || s->deleting) return;
    if (s->delete_it) {
        if (!s->saving) send_delete(s);
        return;
    }
    int64_t seq = event_log_add(&s->events, EVENT_CLOSED, -1, NULL, service_now_ms(s->service));
    if (seq < 0) {
        settle_later(s);
        return;
    }
    s->closing = false;
    s->rec.closed_ms = s->rec.updated_ms = service_now_ms(s->service);
    s->version++;
    struct pending *p;
    DL_FOREACH(s->pending, p) {
        if (p->kind == PENDING_CLOSE && p->seq == INT64_MAX) p->seq = seq;
    }
    save_now(s);
}

static void tell_watchers(struct session *s) {
    struct sessions *ss = s->service;
    show_state(s, (int)session_state(s));
    if (!s->changed) return;
    s->changed = false;
    struct session_view view;
    session_view_fill(s, &view);
    if (ss->cb.on_changed && !ss->closing)
        ss->cb.on_changed(ss->cb.ctx, s->rec.owner, &view, false);
}

static void settle(struct session *s) {
    struct sessions *ss = s->service;
    if (s->zombie) {
        settle_zombie(s);
        return;
    }
    if (s->closing) settle_closing(s);
    lost_settle(s);
    run_next(s);
    bool due = s->save_due_us && s->save_due_us <= service_now(ss);
    if (due && !s->saving && !s->deleting) save_begin(s);
    if (!s->on_disk) return; // nobody may know of it yet
    deliver_ready(s);
    history_trim(s);
    tell_watchers(s);
    list_lru(s);
    if (s->in_lru && s->unload && !session_has_cache(s) && !s->touched) service_destroy(s);
}

// Sessions beyond the limit leave memory, the ones used longest ago first; one with a cache gives
// that up before.
static void unload_excess(struct sessions *ss) {
    int64_t excess = ss->n_lru - ss->o.max_resident_sessions;
    struct session *s, *next;
    DL_FOREACH_SAFE2(ss->lru, s, next, lru_next) {
        if (excess-- <= 0) return;
        if (!session_has_cache(s)) {
            if (!s->touched) service_destroy(s);
            continue;
        }
        if (s->unload) continue;
        s->unload = true;
        s->evicting = "pressure";
        evict_stop(&ss->idle, &s->idle);
        engine_sequence_release(ss->engine, (uint64_t)s->rec.key);
    }
}

void service_settle(struct sessions *ss) {
    keep_tokens(ss);
    while (ss->touched) {
        struct session *s = ss->touched;
        ss->touched = s->touched_next;
        if (!ss->touched) ss->touched_end = &ss->touched;
        s->touched = false;
        settle(s);
    }
    unload_excess(ss);
}
