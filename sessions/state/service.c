// Tables, lists and clocks of the service: what every other file of it may call. See service.h.
#include "sessions/state/service.h"
#include "base/err.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/random_id.h"
#include <stdio.h>
#include <string.h>
#include <utlist.h>

#define ROOM_RETRY_US 1000000 // also for room that no event tells of: among the workers
#define PROBE_US 2000000      // how often a database that refused is asked again
#define STEADY_US 10000000    // without a failure: then the log says that it works

int64_t service_now(const struct sessions *ss) {
    return clock_mono_us(ss->clock);
}

int64_t service_now_ms(const struct sessions *ss) {
    return clock_wall_us(ss->clock) / 1000;
}

// Keys contain the owner, so looking for another owner's session takes as long as looking for a session that does not
// exist.
struct session *service_find(struct sessions *ss, const char *owner, const char *id) {
    struct hash128 name = session_name(ss->name_key, owner, id);
    struct session *s;
    HASH_FIND(by_name, ss->by_name, &name, sizeof name, s);
    return s;
}

struct session *service_find_key(struct sessions *ss, int64_t key) {
    struct session *s;
    HASH_FIND(by_key, ss->by_key, &key, sizeof key, s);
    return s;
}

struct served_model *service_model(const struct session *s) {
    const struct placement *p = &s->service->placement;
    struct found_model *found = &((struct session *)(uintptr_t)s)->found_model; // only remembers
    if (found->models_version == p->models_version) return found->model;
    found->model = placement_model_of(p, s->rec.model, s->rec.fingerprint);
    found->models_version = found->model ? p->models_version : 0;
    return found->model;
}

const struct engine *session_engine(const struct session *s) {
    const struct served_model *m = service_model(s);
    return m ? m->engine : NULL;
}

int service_add(struct sessions *ss, struct session *s, int64_t key) {
    s->owner = owners_get(ss->owners, s->rec.owner);
    if (!s->owner) return E_NOMEM;
    s->rec.key = key;
    HASH_ADD(by_key, ss->by_key, rec.key, sizeof s->rec.key, s);
    if (!hash_added(&s->by_key)) return E_NOMEM;
    if (service_add_loading(ss, s) < 0) {
        HASH_DELETE(by_key, ss->by_key, s);
        return E_NOMEM;
    }
    owner_use(s->owner, OWNER_RESIDENT_SESSIONS, 1);
    return 0;
}

int service_add_loading(struct sessions *ss, struct session *s) {
    s->name = session_name(ss->name_key, s->rec.owner, s->rec.id);
    HASH_ADD(by_name, ss->by_name, name, sizeof s->name, s);
    return hash_added(&s->by_name) ? 0 : E_NOMEM;
}

void service_loaded(struct sessions *ss, struct session *s) {
    HASH_DELETE(by_name, ss->by_name, s);
}

void service_remove_key(struct sessions *ss, struct session *s) {
    if (s->life == LIFE_LOADING || s->life == LIFE_UNLOADED) return;
    HASH_DELETE(by_key, ss->by_key, s);
    owner_use(s->owner, OWNER_RESIDENT_SESSIONS, -1);
    owner_session_left(s->owner, service_now(ss));
}

void service_remove(struct sessions *ss, struct session *s) {
    if (s->life != LIFE_GONE) HASH_DELETE(by_name, ss->by_name, s);
    service_remove_key(ss, s);
}

void service_gone(struct session *s) {
    life_set(&s->life, LIFE_GONE);
    owner_use(s->owner, OWNER_SESSIONS, -1);
    owner_use(s->owner, OWNER_STORED_BYTES, -s->rec.stored_bytes);
    HASH_DELETE(by_name, s->service->by_name, s);
    service_touch(s);
}

struct store_job *service_job(enum store_job_kind kind, const struct request *r, const char *id) {
    bool failed = false;
    struct store_job *job = store_job_new(kind, 0);
    if (!job) return NULL;
    job->client = r->client;
    memcpy(job->request_id, r->request_id, sizeof job->request_id);
    job->id = record_strdup(id, &failed);
    job->owner = record_strdup(r->owner, &failed);
    if (!failed) return job;
    store_job_free(job);
    return NULL;
}

static void touch(struct session *s, enum session_touch what) {
    struct sessions *ss = s->service;
    if (ss->closing) return; // nothing is settled while the service closes
    if (s->touch < what) s->touch = what;
    if (!s->touched_prev) DL_APPEND2(ss->touched, s, touched_prev, touched_next);
}

void service_touch(struct session *s) {
    touch(s, TOUCH_STATE);
}

void service_touch_tokens(struct session *s) {
    touch(s, TOUCH_TOKENS);
}

void service_untouch(struct session *s) {
    struct sessions *ss = s->service;
    if (!s->touched_prev) return;
    DL_DELETE2(ss->touched, s, touched_prev, touched_next);
    s->touched_prev = NULL;
}

struct session *service_next_touched(struct sessions *ss) {
    struct session *s = ss->touched;
    if (s) service_untouch(s);
    return s;
}

void service_timers_changed(struct session *s) {
    struct sessions *ss = s->service;
    bool wanted = s->save_due_us || s->retry_us || s->lost_us;
    if (wanted && !s->timed_prev) DL_APPEND2(ss->timed, s, timed_prev, timed_next);
    if (wanted || !s->timed_prev) return;
    DL_DELETE2(ss->timed, s, timed_prev, timed_next);
    s->timed_prev = NULL;
}

void service_wait_for_room(struct session *s) {
    s->retry_us = service_now(s->service) + ROOM_RETRY_US;
    s->wants_room = true;
    service_timers_changed(s);
}

void service_room_changed(struct sessions *ss) {
    ss->room_changed = true;
}

void service_wake_for_room(struct sessions *ss) {
    struct session *s;
    if (!ss->room_changed) return;
    ss->room_changed = false;
    DL_FOREACH2(ss->timed, s, timed_next) {
        if (s->retry_us && s->wants_room) s->retry_us = service_now(ss);
    }
}

void service_changed(struct sessions *ss, int64_t key, const char *owner, const char *id,
                     bool gone) {
    if (ss->cb.on_changed && !ss->closing) ss->cb.on_changed(ss->cb.ctx, key, owner, id, gone);
}

void service_probe_later(struct sessions *ss) {
    if (!ss->probe_us) ss->probe_us = service_now(ss) + PROBE_US;
}

void service_store_failed(struct sessions *ss, const struct err *err) {
    if (!ss->store_suspect) {
        log_error("store.failed", "error=%s reason=\"%s\"", err_name(err->code), err->text);
        ss->store_first_us = service_now(ss);
        ss->n_store_failures = ss->n_sessions_refused = 0;
    }
    ss->store_suspect = true;
    ss->n_store_failures++;
    ss->store_failed_us = service_now(ss);
    snprintf(ss->store_error, sizeof ss->store_error, "%s", err->text);
    ss->store_full = err->code == E_FULL;
    ss->probe_us = service_now(ss) + PROBE_US;
}

// The pauses between attempts of a refused save grow; now it is tried at once, for its clients.
static void retry_refused(struct sessions *ss) {
    struct session *s;
    DL_FOREACH2(ss->timed, s, timed_next) {
        if (s->save != SAVE_REFUSED || !s->save_due_us) continue;
        s->save_due_us = INT64_MIN;
        service_touch(s);
    }
}

void service_store_works(struct sessions *ss) {
    if (!ss->store_suspect) return;
    bool fails = ss->store_error[0];
    if (!fails && service_now(ss) >= ss->store_failed_us + STEADY_US) {
        ss->store_suspect = false;
        log_info("store.works", "failures=%lld sessions=%lld failed_for_ms=%lld",
                 (long long)ss->n_store_failures, (long long)ss->n_sessions_refused,
                 (long long)(ss->store_failed_us - ss->store_first_us) / 1000);
        return;
    }
    service_probe_later(ss);
    if (!fails || (ss->store_full && !store_has_room(ss->store))) return;
    ss->store_error[0] = '\0';
    retry_refused(ss);
}

bool sessions_settled(const struct sessions *ss) {
    return ss->n_active == 0 && store_n_writing(ss->store) == 0 && !ss->outstanding &&
           !ss->prepared;
}

bool sessions_touched(const struct sessions *ss) {
    return ss->touched;
}

void service_count_finish(struct sessions *ss, const char *reason) {
    for (int i = 0; i < N_TURN_FINISHES; i++)
        if (strcmp(reason, turn_finish_names[i]) == 0) metric_add(ss->m_finished[i], 1);
}

void service_add_bytes(struct session *s, int64_t n) {
    s->rec.stored_bytes += n;
    owner_use(s->owner, OWNER_STORED_BYTES, n);
}

void sessions_draw_id(const struct sessions *ss, char out[SESSION_ID_MAX + 1]) {
    char drawn[RANDOM_ID_LEN + 1];
    random_id(drawn);
    snprintf(out, SESSION_ID_MAX + 1, "%s%s%s", ss->server_name, *ss->server_name ? "-" : "",
             drawn);
}
