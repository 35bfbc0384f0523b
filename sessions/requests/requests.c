// The door of all requests: finding the session of each, and waiting for the store. See requests.h.
//
// A session that is not in memory is read first. Requests wait, in order, while their session is being read, opened or
// deleted, or while its older turns are being read.
#include "sessions/requests/requests.h"
#include "base/err.h"
#include "base/log.h"
#include "sessions/clients/answers.h"
#include "sessions/clients/clients.h"
#include "sessions/clients/limits.h"
#include "sessions/replay/debug_handlers.h"
#include "sessions/replay/debug_replay.h"
#include "sessions/requests/closing.h"
#include "sessions/requests/erase.h"
#include "sessions/requests/fork.h"
#include "sessions/requests/handlers.h"
#include "sessions/requests/history.h"
#include "sessions/requests/listing.h"
#include "sessions/requests/match.h"
#include "sessions/requests/opening.h"
#include "sessions/requests/outline.h"
#include "sessions/requests/settle.h"
#include "sessions/requests/transfer.h"
#include "sessions/saving/save.h"
#include "sessions/turns/edit.h"
#include "sessions/turns/preparing.h"
#include "sessions/turns/regenerate.h"
#include "sessions/turns/rewind.h"
#include "sessions/turns/turns.h"
#include <utlist.h>

static const char damaged[] = "the record of this session is damaged";

// --- finding the session -----------------------------------------------------

static int defer(struct session *s, const struct request *r) {
    struct request *copy = request_copy(r);
    if (!copy || clients_defer(s->service, r->client) < 0) {
        request_free(copy);
        return E_NOMEM;
    }
    *s->deferred_end = copy;
    s->deferred_end = &copy->next;
    return 0;
}

// A request that only gives something up is never refused.
static bool lets_go(const struct request *r) {
    return r->kind == REQUEST_CLOSE || r->kind == REQUEST_DETACH || r->kind == REQUEST_CANCEL;
}

// unloaded: the session's entry in memory, or NULL: it has none.
static int load(struct sessions *ss, struct session *unloaded, const struct request *r) {
    if (!lets_go(r) && limits_refuse_resident(ss, r)) return 0;
    struct session *s = unloaded ? unloaded : session_new(ss, r->owner, r->session, LIFE_LOADING);
    struct store_job *job = s ? service_job(STORE_LOAD, r, r->session) : NULL;
    if (!job || (!unloaded && service_add_loading(ss, s) < 0)) {
        store_job_free(job);
        if (!unloaded) session_free(s);
        return E_NOMEM;
    }
    if (unloaded) life_set(&s->life, LIFE_LOADING);
    int rc = defer(s, r);
    job->client = CLIENT_GONE; // others may wait for it too
    store_send(ss->store, job);
    return rc;
}

static int (*const handlers[])(struct session *s, const struct request *r) = {
    [REQUEST_ATTACH] = handle_attach, [REQUEST_DETACH] = handle_detach,
    [REQUEST_GET] = handle_get,       [REQUEST_UPDATE] = handle_update,
    [REQUEST_CLOSE] = closing_start,  [REQUEST_START] = turns_start,
    [REQUEST_CANCEL] = handle_cancel, [REQUEST_EVENTS] = debug_events,
    [REQUEST_TURN] = debug_turn,      [REQUEST_REPLAY] = debug_replay,
    [REQUEST_REWIND] = rewind_start,  [REQUEST_REGENERATE] = regenerate_start,
    [REQUEST_FORK] = fork_start,      [REQUEST_EDIT] = edit_start,
    [REQUEST_ERASE] = erase_start,    [REQUEST_OUTLINE] = outline_page,
    [REQUEST_WRITE] = write_start,
};

static const struct err absent = {.code = E_NOTFOUND};
static void run_orphans(struct session *orphaned, const struct err *err);

// --- a turn in a session of its own ---

static bool opens(const struct request *r) {
    return r->kind == REQUEST_OPEN || (r->kind == REQUEST_START && r->start.in == START_IN_NEW);
}

// The turn that a session was opened or forked for: one commit has both. A refused turn leaves no session.
static int start_first(struct session *s, const struct request *r) {
    int rc = turns_start(s, r);
    if (!s->awaits_turn || s->preparing || s->save == SAVE_SENT) return rc;
    clients_drop(s);
    run_orphans(s, NULL);
    return rc;
}

static int start_in(struct sessions *ss, const struct request *r, const char *id) {
    struct request turn = *r;
    struct session *s = service_find(ss, r->owner, id);
    if (!s) return 0; // its opening was refused
    turn.session = id;
    turn.turn = TURN_HEAD;
    return start_first(s, &turn);
}

static int open_new(struct sessions *ss, const struct request *r) {
    struct request open = *r;
    if (r->kind == REQUEST_OPEN) return opening_start(ss, r);
    open.kind = REQUEST_OPEN;
    open.open = r->start.open;
    open.sampling = NULL; // the turn's, as the note
    open.note = NULL;
    open.for_turn = true;
    TRY(opening_start(ss, &open));
    return start_in(ss, r, r->session);
}

static bool forks(const struct session *s, const struct request *r) {
    bool may = r->kind == REQUEST_START && r->start.in == START_OR_FORK;
    return may && (session_is_busy(s) || s->rec.closed_ms || session_is_closing(s));
}

// Even without a turn to copy: a search under the busy session's id finds the fork.
static int start_in_fork(struct session *s, const struct request *r) {
    struct sessions *ss = s->service;
    struct request fork = *r;
    char id[SESSION_ID_MAX + 1];
    sessions_draw_id(ss, id);
    fork.kind = REQUEST_FORK;
    fork.fork.new_session = id;
    fork.title = NULL; // the source's
    fork.for_turn = true;
    TRY(fork_start(s, &fork));
    return start_in(ss, r, id);
}

static int run(struct session *s, const struct request *r) {
    struct sessions *ss = s->service;
    if (opens(r))
        return refuse(ss, r, "session_exists", "there is a session '%s' already", r->session);
    service_used(s);
    int rc = history_need(s, r);
    if (rc == 0) rc = forks(s, r) ? start_in_fork(s, r) : handlers[r->kind](s, r);
    service_touch(s);
    return rc;
}

// Runs the request, or lets it wait for one before it.
static int run_or_defer(struct session *s, const struct request *r) {
    if (s->life == LIFE_UNLOADED) return load(s->service, s, r);
    return session_must_wait(s) ? defer(s, r) : run(s, r);
}

// Handlers only return E_NOMEM: this refuses for them.
static void settle_memory(struct sessions *ss, const struct request *r, int rc) {
    if (rc == E_NOMEM) refuse_memory(ss, r);
}

// Whether the request ends the turn that a worker is preparing: then the request need not wait for the worker.
static bool aborts(const struct session *s, const struct request *r) {
    bool ends = r->kind == REQUEST_CLOSE ||
                (r->kind == REQUEST_CANCEL && !r->cancel.replay && r->turn == TURN_HEAD);
    return ends && s->preparing && (s->life != LIFE_OPENING || s->awaits_turn);
}

static void run_deferred(struct session *s);

static int run_again(struct session *s, const struct request *r) {
    if (s->life != LIFE_OPENING) return run(s, r);
    return s->awaits_turn ? start_first(s, r) : opening_prepared(s, r);
}

// Runs the request whose input was made or is no longer wanted, then those after it.
static void run_prepared(struct session *s, bool aborted) {
    struct preparation *p = s->preparation;
    struct request *r = s->preparing;
    s->preparing = NULL;
    if (aborted) preparing_forget(p);
    struct preparation gone = {.aborted = true};
    s->preparation = aborted ? &gone : p;
    r->client = clients_resume(s->service, r->client);
    settle_memory(s->service, r, run_again(s, r));
    if (s->preparation == &gone || s->preparation == p) s->preparation = NULL;
    request_free(r);
    if (s->life == LIFE_GONE)
        run_orphans(s, NULL);
    else
        run_deferred(s);
    service_touch(s);
}

// A request that waits from here on holds the model that it has named. Where no model has the name, opening_start says so.
static void find_model(struct sessions *ss, struct request *r) {
    struct request_open *o = r->kind == REQUEST_OPEN ? &r->open : &r->start.open;
    struct served_model *found;
    if (!o->served && placement_find_model(&ss->placement, o->model, &found, NULL) == 0)
        o->served = found;
}

static int submit_to_session(struct sessions *ss, const struct request *asked) {
    struct request named;
    const struct request *r = asked;
    if (opens(asked)) {
        named = *asked;
        find_model(ss, &named);
        r = &named;
    }
    bool valid = r->session && session_id_valid(r->session);
    struct session *s = valid ? service_find(ss, r->owner, r->session) : NULL;
    if (!valid && r->session && opens(r))
        return refuse(ss, r, "invalid", "session must be 1 to %d letters, digits, '-' or '_'",
                      SESSION_ID_MAX);
    if (!s && opens(r)) return open_new(ss, r);
    if (!valid) return refuse_not_found(ss, r);
    if (!s) return load(ss, NULL, r);
    bool ends = session_must_wait(s) && aborts(s, r);
    int rc = run_or_defer(s, r);
    if (ends) run_prepared(s, true);
    return rc;
}

// Those that need no session in memory; NULL: the others.
static int (*const of_service[REQUEST_SHARED + 1])(struct sessions *ss, const struct request *r) = {
    [REQUEST_LIST] = listing_start,
    [REQUEST_MATCH] = match_start,
    [REQUEST_EXPORT] = transfer_export,
    [REQUEST_SHARED] = transfer_shared,
};

void sessions_submit(struct sessions *ss, const struct request *r) {
    service_enter(ss);
    if (ss->touched && ss->depth == 1) service_settle(ss); // clients have read events: room is made
    if (r->kind == REQUEST_TYPING)
        handle_typing(ss, r);
    else if (r->kind == REQUEST_IMPORT)
        transfer_import(ss, r);
    else
        settle_memory(ss, r,
                      (of_service[r->kind] ? of_service[r->kind] : submit_to_session)(ss, r));
    requests_prepared(ss); // without workers, imports
    service_leave(ss);
}

static struct request *take_deferred(struct session *s) {
    struct request *list = s->deferred;
    s->deferred = NULL;
    s->deferred_end = &s->deferred;
    return list;
}

static void run_deferred(struct session *s) {
    struct request *list = take_deferred(s);
    for (struct request *next; list; list = next) {
        next = list->next;
        list->client = clients_resume(s->service, list->client);
        settle_memory(s->service, list, run_or_defer(s, list));
        request_free(list);
    }
}

static int run_orphan(struct sessions *ss, const struct request *r, const struct err *err) {
    struct session *s = service_find(ss, r->owner, r->session);
    bool missing = err && err->code == E_NOTFOUND;
    if (err && err->code == E_CORRUPT && r->kind == REQUEST_CLOSE && r->close.delete_it)
        return closing_delete_unread(ss, r);
    if (err && err->code == E_NOMEM) return E_NOMEM;
    if (err && !missing) return refuse(ss, r, "store_failed", "%s", err->text);
    if (s) return run_or_defer(s, r);
    if (opens(r)) return open_new(ss, r);
    return missing ? refuse_not_found(ss, r) : load(ss, NULL, r);
}

// Runs the requests that waited for a session that is gone. err: why the session was not read, or E_NOTFOUND: the disk has
// no session of that id; NULL: the disk may have one, which the id of a new session hid.
static void run_orphans(struct session *orphaned, const struct err *err) {
    struct sessions *ss = orphaned->service;
    struct request *list = take_deferred(orphaned);
    for (struct request *next; list; list = next) {
        next = list->next;
        list->client = clients_resume(ss, list->client);
        settle_memory(ss, list, run_orphan(ss, list, err));
        request_free(list);
    }
}

// --- the store's answers -----------------------------------------------------

// The first turn of a fork that could not be saved, while a worker makes the turn's input.
static void refuse_preparing(struct session *s, const struct store_job *job) {
    struct request *r = s->preparing;
    if (!r) return;
    preparing_forget(s->preparation);
    s->preparing = NULL;
    s->preparation = NULL;
    r->client = clients_resume(s->service, r->client);
    refuse(s->service, r, save_refusal(job->rc), "%s", job->err.text);
    request_free(r);
}

void requests_saved(struct sessions *ss, struct store_job *job) {
    struct session *s = service_find_key(ss, job->key);
    if (!s) return;
    bool opening = s->life == LIFE_OPENING, erasing = s->n_erased > 0;
    save_done(s, job);
    if (opening && s->life == LIFE_GONE) {
        refuse_preparing(s, job);
        run_orphans(s, NULL);
    } else if (opening || (erasing && s->n_erased == 0)) {
        run_deferred(s);
    }
}

void requests_deleted(struct sessions *ss, struct store_job *job) {
    struct session *s = service_find_key(ss, job->key);
    if (!s) return;
    closing_delete_done(s, job);
    if (s->life == LIFE_GONE)
        run_orphans(s, &absent);
    else
        run_deferred(s);
}

// An entry with clients stays, if the next attempt to read it may succeed.
static void not_loaded(struct session *s, int rc) {
    if (s->attachments && rc != E_NOTFOUND) {
        session_strip(s);
        if (service_add_loading(s->service, s) == 0) {
            life_set(&s->life, LIFE_UNLOADED);
            return;
        }
    }
    clients_lose(s);
    service_untouch(s);
    session_free(s);
}

void requests_loaded(struct sessions *ss, struct store_job *job) {
    struct session *s = service_find(ss, job->owner, job->id);
    if (!s || s->life != LIFE_LOADING) return;
    service_loaded(ss, s);
    int rc = job->rc;
    if (rc == 0) rc = session_restore(s, job->loaded);
    if (rc == 0) rc = service_add(ss, s, s->rec.key);
    if (rc == 0) {
        life_set(&s->life, LIFE_LIVE);
        run_deferred(s);
        service_touch(s);
        return;
    }
    if (rc != E_NOTFOUND) log_error("session.load", "session=%s error=%s", job->id, err_name(rc));
    if (rc != E_NOTFOUND && (job->rc == 0 || rc == E_NOMEM)) err_set(&job->err, rc, "%s", damaged);
    run_orphans(s, rc == E_NOTFOUND ? &absent : &job->err);
    not_loaded(s, rc);
}

void requests_paged(struct sessions *ss, struct store_job *job) {
    struct session *s = service_find_key(ss, job->key);
    if (!s || !s->paging) return;
    struct request *r = s->paging;
    s->paging = NULL;
    r->client = clients_resume(ss, r->client);
    int rc = job->rc;
    if (rc == 0 && job->loaded->n_turns != job->n_turns) rc = E_CORRUPT;
    if (rc == 0) rc = history_fill(s, job->loaded);
    if (rc < 0) {
        struct asker to = asker_of(r);
        log_error("session.history", "session=%s error=%s", s->rec.id, err_name(rc));
        answer_error(ss, &to, "store_failed", rc, rc == E_CORRUPT ? damaged : job->err.text);
    } else {
        settle_memory(ss, r, run(s, r));
    }
    request_free(r);
    run_deferred(s);
    service_touch(s);
}

void requests_prepared(struct sessions *ss) {
    struct preparation *p;
    while ((p = ss->prepared)) {
        struct session *s = p->import ? NULL : service_find_key(ss, p->key);
        DL_DELETE(ss->prepared, p);
        if (p->import)
            transfer_read(ss, p);
        else if (p->replay)
            replays_prepared(ss, p);
        else if (s && s->preparing && s->preparation == p)
            run_prepared(s, false);
        else if (s && p->turn != TURN_NONE)
            turns_prepared(s, p);
        preparing_free(p);
    }
}
