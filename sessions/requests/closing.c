// Closing and deleting. See closing.h, life.h.
//
// A close waits until the session's turns have ended: CLOSING, or DROPPING where it is to be
// deleted. Settling then adds the event, or sends the deletion to the store (DELETING).
#include "sessions/requests/closing.h"
#include "base/err.h"
#include "sessions/caches/spare_caches.h"
#include "sessions/clients/answers.h"
#include "sessions/clients/clients.h"
#include "sessions/clients/deliver.h"
#include "sessions/clients/limits.h"
#include "sessions/replay/debug_replay.h"
#include "sessions/requests/expire.h"
#include "sessions/saving/save.h"
#include "sessions/saving/tail_writer.h"
#include "sessions/turns/turns.h"
#include <utlist.h>

#define AGAIN_US 100000

int closing_start(struct session *s, const struct request *r) {
    struct sessions *ss = s->service;
    enum session_life to =
        r->close.delete_it || s->life == LIFE_DROPPING ? LIFE_DROPPING : LIFE_CLOSING;
    if (s->rec.closed_ms && !r->close.delete_it)
        return refuse(ss, r, "session_closed", "the session is closed already");
    if (ss->store_error[0]) // the close would fail, but its turn would have been cancelled
        return refuse(ss, r, "store_failed", "%s", ss->store_error);
    if (!save_pending(s, PENDING_CLOSE, r, INT64_MAX)) return E_NOMEM;
    if (s->life != to) life_set(&s->life, to);
    turns_cancel(s, TURN_HEAD);
    return 0;
}

// Out of memory: settled again later. Touching it would not let settling end.
static void settle_later(struct session *s) {
    if (!s->save_due_us) s->save_due_us = service_now(s->service) + AGAIN_US;
    service_timers_changed(s);
}

static void send_delete(struct session *s) {
    struct store_job *job = store_job_new(STORE_DELETE, s->rec.key);
    if (!job) {
        settle_later(s);
        return;
    }
    life_set(&s->life, LIFE_DELETING);
    store_send(s->service->store, job);
}

static void add_closed(struct session *s) {
    int64_t seq = event_log_add(&s->events, EVENT_CLOSED, -1, NULL, service_now_ms(s->service));
    struct pending *p;
    if (seq < 0) {
        settle_later(s);
        return;
    }
    life_set(&s->life, LIFE_LIVE);
    s->rec.closed_ms = s->rec.updated_ms = service_now_ms(s->service);
    s->version++;
    DL_FOREACH(s->pending, p) {
        if (p->kind == PENDING_CLOSE && p->seq == INT64_MAX) p->seq = seq;
    }
    save_now(s);
}

void closing_settle(struct session *s) {
    if (session_is_busy(s)) return;
    if (s->life == LIFE_CLOSING) add_closed(s);
    if (s->life == LIFE_DROPPING && s->save != SAVE_SENT) send_delete(s);
}

// --- the store's verdict -----------------------------------------------------

static void not_deleted(struct session *s, const struct err *err) {
    struct pending *p, *next;
    service_store_failed(s->service, err);
    life_set(&s->life, LIFE_LIVE);
    s->expired = NULL;
    if (s->awaits_turn) s->marks |= MARK_NOTE, s->version++; // on disk it is temporary (save.c)
    s->awaits_turn = false; // it stays: trying again and again would keep a broken disk busy
    DL_FOREACH_SAFE(s->pending, p, next) {
        struct asker to = {.client = p->client, .request_id = p->request_id, .session = s->rec.id};
        if (p->kind != PENDING_CLOSE) continue;
        DL_DELETE(s->pending, p);
        answer_fail(s->service, &to, "store_failed", "%s", err->text);
        pending_free(p);
    }
}

void closing_delete_done(struct session *s, const struct store_job *job) {
    struct sessions *ss = s->service;
    struct pending *p, *next;
    service_touch(s);
    if (job->rc < 0) {
        not_deleted(s, &job->err);
        return;
    }
    service_store_works(ss);
    replays_session_gone(ss, s->rec.key);
    event_log_add(&s->events, EVENT_CLOSED, -1, NULL, service_now_ms(ss));
    s->rec.closed_ms = service_now_ms(ss);
    s->saved_seq = s->saved_reserved = event_log_seq(&s->events);
    spare_or_drop(s);
    service_gone(s);
    DL_FOREACH_SAFE(s->pending, p, next) {
        DL_DELETE(s->pending, p);
        p->seq = event_log_seq(&s->events);
        deliver_committed(s, p);
    }
    service_changed(ss, s->rec.key, s->rec.owner, s->rec.id, true);
    expire_done(s->rec.id, s->expired);
    tail_writer_trim(ss, true);
}

// --- of a session that is not in memory --------------------------------------

int closing_delete_unread(struct sessions *ss, const struct request *r) {
    struct store_job *job = service_job(STORE_DELETE, r, r->session);
    if (!job) return E_NOMEM;
    store_send(ss->store, job);
    return 0;
}

void closing_unread_done(struct sessions *ss, const struct store_job *job) {
    char lasting[SESSION_LASTING_BYTES];
    struct session_answer a = {.kind = ANSWER_CLOSED,
                               .request_id = job->request_id,
                               .session_id = job->id,
                               .deleted = true};
    if (job->rc < 0) { // if expire.c asked: its next list has the session again
        struct asker to = {
            .client = job->client, .request_id = job->request_id, .session = job->id};
        answer_fail(ss, &to, job->rc == E_NOTFOUND ? "session_not_found" : "store_failed", "%s",
                    job->err.text);
        return;
    }
    replays_session_gone(ss, job->key);
    limits_add_stored(ss, job->owner, -1, -job->stored_bytes);
    struct session *s = service_find(ss, job->owner, job->id);
    if (s && s->life == LIFE_UNLOADED) clients_lose(s);
    session_lasting_name(job->owner, job->id, lasting);
    struct instance *i;
    DL_FOREACH(ss->placement.instances, i) {
        engine_snapshot_forget(i->engine, 0, lasting);
    }
    if (!job->expired) ss->cb.on_answer(ss->cb.ctx, job->client, &a);
    service_changed(ss, job->key, job->owner, job->id, true);
    expire_done(job->id, job->expired);
    tail_writer_trim(ss, true);
}
