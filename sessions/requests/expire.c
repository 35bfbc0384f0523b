// Old sessions are removed: those not used for max_session_age, and of each owner those behind its
// newest max_sessions. Off by default. See expire.h.
//
// Once a minute the store lists them, some at a time, oldest first. One in memory is removed like a
// session that a client closes, but never while it has a client or a turn. One that is only on the disk
// is removed by a job, unless a request reads it meanwhile. The log has each id and the reason.
#include "sessions/requests/expire.h"
#include "base/err.h"
#include "base/log.h"
#include <stdlib.h>
#include <string.h>

#define EVERY_US 60000000
#define BATCH 8         // deleted in one commit, which others wait for
#define PAUSE_US 250000 // between two batches

void expire_init(struct sessions *ss) {
    if (ss->o.max_session_age || ss->o.max_sessions) ss->expire_us = service_now(ss) + PAUSE_US;
}

static int64_t oldest_ms(const struct sessions *ss) {
    return ss->o.max_session_age ? service_now_ms(ss) - ss->o.max_session_age * 1000 : 0;
}

void expire_begin(struct sessions *ss) {
    if (!ss->expire_us || ss->expiring || service_now(ss) < ss->expire_us) return;
    struct store_job *job = store_job_new(STORE_OLD, 0);
    struct store_list *l = job ? job->list = calloc(1, sizeof *l) : NULL;
    ss->expire_us = service_now(ss) + EVERY_US;
    if (l && ss->expire_from[0]) l->cursor = strdup(ss->expire_from);
    if (!l || (ss->expire_from[0] && !l->cursor)) { // no memory: the next time
        store_job_free(job);
        return;
    }
    l->limit = BATCH;
    l->before_ms = oldest_ms(ss);
    l->keep = ss->o.max_sessions;
    ss->expiring = true;
    store_send(ss->store, job);
}

static void remove_one(struct sessions *ss, struct session_record *r) {
    const char *why = r->updated_ms < oldest_ms(ss) ? "age" : "number";
    struct session *s = service_find(ss, r->owner, r->id);
    if (s) {
        // In the list of those that may leave memory: without turn, request or save.
        bool unused = s->life == LIFE_LIVE && s->lru_prev && !s->attachments &&
                      s->rec.updated_ms == r->updated_ms;
        if (!unused) return;
        s->expired = why;
        life_set(&s->life, LIFE_DROPPING);
        service_touch(s);
        return;
    }
    struct store_job *job = store_job_new(STORE_DELETE, r->key);
    if (!job) return;
    job->id = r->id;
    job->owner = r->owner;
    job->expired = why;
    job->stored_bytes = r->stored_bytes;
    r->id = r->owner = NULL;
    store_send(ss->store, job);
}

void expire_take(struct sessions *ss, struct store_job *job) {
    struct store_list *l = job->list;
    ss->expiring = false;
    if (job->rc < 0) log_warn("session.expire", "error=%s", err_name(job->rc));
    for (size_t i = 0; job->rc == 0 && i < l->n_rows; i++) remove_one(ss, &l->rows[i]);
    memcpy(ss->expire_from, l->next, sizeof ss->expire_from);
    if (l->next[0]) ss->expire_us = service_now(ss) + PAUSE_US;
}

void expire_done(const char *id, const char *why) {
    if (why) log_info("session.expired", "session=%s reason=%s", id, why);
}
