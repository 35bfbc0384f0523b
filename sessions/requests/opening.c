// New sessions: what may be asked of one, and how it comes into being. See opening.h.
#include "sessions/requests/opening.h"
#include "base/err.h"
#include "sessions/clients/answers.h"
#include "sessions/clients/clients.h"
#include "sessions/clients/limits.h"
#include "sessions/saving/save.h"
#include "sessions/state/sampling_layers.h"
#include "sessions/turns/preparing.h"
#include "sessions/turns/prompts.h"
#include <string.h>

static int check_lengths(const struct served_model *m, const struct request *o,
                         struct session_record *r, struct err *err) {
    const struct engine_info *info = m->info;
    int64_t memory_len = o->open.memory_len ? o->open.memory_len : m->memory_len;
    int64_t session_len = o->open.session_len ? o->open.session_len : m->session_len;
    if (memory_len < 1 || memory_len > info->max_memory_len)
        return err_key(err, E_INVAL, "memory_len", "memory_len must be from 1 to %d",
                       info->max_memory_len);
    // The default number of sinks keeps a table's virtual tokens in sight, and gives way to a
    // memory_len that is smaller.
    int64_t sinks = m->sink_len;
    if (sinks < r->prompt_rows) sinks = r->prompt_rows;
    int64_t sink_len = o->open.sink_len >= 0 ? o->open.sink_len
                       : sinks < memory_len  ? sinks
                                             : memory_len - 1;
    if (sink_len >= memory_len)
        return err_key(err, E_INVAL, "sink_len", "sink_len must be less than memory_len (%lld)",
                       (long long)memory_len);
    if (session_len < 2 || session_len > info->max_session_len)
        return err_key(err, E_INVAL, "session_len",
                       "session_len must be from 2 to %lld, the most that this model takes",
                       (long long)info->max_session_len);
    if (r->prompt_rows >= session_len - 1)
        return err_key(err, E_INVAL, "session_len",
                       "session_len %lld has no room behind %lld virtual tokens",
                       (long long)session_len, (long long)r->prompt_rows);
    r->memory_len = (int32_t)memory_len;
    r->sink_len = (int32_t)sink_len;
    r->session_len = session_len;
    return 0;
}

static int check_open(const struct request *o, struct err *err) {
    if (o->cancel_after_ms > SESSION_CANCEL_AFTER_MAX_MS)
        return err_key(err, E_INVAL, "cancel_after_ms", "cancel_after_ms must be from 1 to %d",
                       SESSION_CANCEL_AFTER_MAX_MS);
    if (o->title && strlen(o->title) > SESSION_TITLE_BYTES)
        return err_key(err, E_INVAL, "title", "title has more than %d bytes", SESSION_TITLE_BYTES);
    if (o->open.system && strlen(o->open.system) > SESSION_SYSTEM_BYTES)
        return err_key(err, E_INVAL, "system", "system has more than %d bytes",
                       SESSION_SYSTEM_BYTES);
    if (o->note && strlen(o->note) > SESSION_NOTE_BYTES)
        return err_set(err, E_INVAL, "a session's note may have %d bytes", SESSION_NOTE_BYTES);
    return 0;
}

static int fill_record(struct session *s, const struct request *r, struct err *err) {
    struct sessions *ss = s->service;
    struct session_record *rec = &s->rec;
    struct served_model *model;
    bool failed = false;
    const char *title = r->title ? r->title : "";
    if (r->open.served)
        TRY(placement_find_held(&ss->placement, r->open.served, &model, err));
    else
        TRY(placement_find_model(&ss->placement, r->open.model, &model, err));
    TRY(check_open(r, err));
    TRY(prompts_open(s, model, r, err));
    TRY(check_lengths(model, r, rec, err));
    rec->sampling = layers_normal(model, r->sampling, err);
    if (!rec->sampling) return err->code;
    rec->model = record_strdup(model->name, &failed);
    rec->fingerprint = record_strdup(model->info->fingerprint, &failed);
    rec->title = record_strdup(title, &failed);
    rec->auto_title = title[0] == '\0';
    rec->cancel_after_ms = r->cancel_after_ms > 0 ? r->cancel_after_ms : 0;
    rec->system =
        record_strdup(r->open.system && r->open.system[0] ? r->open.system : NULL, &failed);
    rec->note = record_strdup(r->temporary ? RECORD_TEMPORARY : r->note, &failed);
    rec->created_ms = rec->updated_ms = service_now_ms(ss);
    rec->stored_bytes = session_bytes(rec);
    return failed ? err_set(err, E_NOMEM, "the server is out of memory") : 0;
}

// Puts it into the tables. Until its first commit, requests for it wait.
static int enter(struct session *s) {
    struct sessions *ss = s->service;
    if (service_add(ss, s, ss->next_key) < 0) {
        session_free(s);
        return E_NOMEM;
    }
    ss->next_key++;
    owner_use(s->owner, OWNER_SESSIONS, 1);
    owner_use(s->owner, OWNER_STORED_BYTES, s->rec.stored_bytes);
    return 0;
}

// Attaches the client and saves the session, unless its first turn comes now and is saved with it. E_NOMEM: it is gone.
static int begin(struct session *s, const struct request *r, int64_t head) {
    struct sessions *ss = s->service;
    int64_t seq = event_log_add(&s->events, EVENT_OPENED, head, NULL, service_now_ms(ss));
    if (seq < 0 || (!r->for_turn && !save_pending(s, PENDING_OPEN, r, seq)) ||
        clients_attach(s, r->client, 0) < 0) { // its client could not see the opening
        clients_drop(s);
        return E_NOMEM;
    }
    s->version = 1;
    s->awaits_turn = r->for_turn;
    s->marks |= MARK_TITLE;
    save_now(s);
    return 0;
}

int opening_admit(struct session *s, const struct request *r, int64_t head) {
    TRY(enter(s));
    return begin(s, r, head);
}

int opening_prepared(struct session *s, const struct request *r) {
    struct err err = {0};
    int rc = preparing_grammar(s, r, &err);
    if (rc > 0) return 0;
    if (rc == 0) return begin(s, r, TURN_NONE);
    clients_drop(s);
    return refuse_err(s->service, r, &err);
}

int opening_start(struct sessions *ss, const struct request *r) {
    char drawn[SESSION_ID_MAX + 1];
    struct err err = {0};
    if (ss->draining && !r->accepted)
        return refuse(ss, r, "shutting_down", "the server is shutting down");
    if (limits_refuse_session(ss, r) || limits_refuse_resident(ss, r)) return 0;
    if (!r->session) sessions_draw_id(ss, drawn);
    struct session *s = session_new(ss, r->owner, r->session ? r->session : drawn, LIFE_OPENING);
    if (!s) return E_NOMEM;
    if (fill_record(s, r, &err) < 0) {
        session_free(s);
        return refuse_err(ss, r, &err);
    }
    if ((s->prompt || s->rec.note) && limits_refuse_bytes(ss, r, s->rec.stored_bytes)) {
        session_free(s);
        return 0;
    }
    TRY(enter(s));
    return opening_prepared(s, r);
}
