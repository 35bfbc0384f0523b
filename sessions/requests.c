// What clients ask for: finding its session, and the requests that are short. See service.h.
//
// Every request comes through sessions_submit(): a session that is not in memory is read first, and
// requests for it wait in the order in which they came.
#include "base/err.h"
#include "sessions/service.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- answers -----------------------------------------------------------------

const char *requests_code(int err_code) {
    switch (err_code) {
    case E_INVAL:
    case E_FORMAT:
    case E_LIMIT:
        return "invalid";
    case E_FULL:
        return "session_full";
    case E_BUSY:
    case E_NOMEM:
        return "overloaded";
    case E_UNSUPPORTED:
        return "unsupported";
    case E_EXISTS:
        return "session_exists";
    case E_NOTFOUND:
        return "session_not_found";
    default:
        return "internal";
    }
}

void requests_fail(struct sessions *ss, uint64_t client, const char *request_id,
                   const char *session_id, const char *code, int64_t retry_after_ms,
                   const char *message) {
    struct session_answer a = {.kind = ANSWER_ERROR,
                               .request_id = request_id,
                               .code = code,
                               .message = message,
                               .session_id = session_id,
                               .retry_after_ms = retry_after_ms};
    ss->cb.on_answer(ss->cb.ctx, client, &a);
}

static void fail(struct sessions *ss, const struct request *r, const char *code, const char *fmt,
                 ...) __attribute__((format(printf, 4, 5)));
static void fail(struct sessions *ss, const struct request *r, const char *code, const char *fmt,
                 ...) {
    char message[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    requests_fail(ss, r->client, r->request_id, r->session, code, 0, message);
}

int64_t requests_retry_ms(struct sessions *ss, int err_code) {
    if (err_code == E_BUSY) return (engine_retry_us(ss->engine) + 999) / 1000;
    return err_code == E_NOMEM ? RETRY_AFTER_MS : 0;
}

void requests_fail_err(struct sessions *ss, const struct request *r, const struct err *err) {
    const char *code = requests_code(err->code);
    requests_fail(ss, r->client, r->request_id, r->session, code, requests_retry_ms(ss, err->code),
                  err->text);
}

static void fail_not_found(struct sessions *ss, const struct request *r) {
    fail(ss, r, "session_not_found", "there is no such session");
}

void requests_fail_memory(struct sessions *ss, const struct request *r) {
    requests_fail(ss, r->client, r->request_id, r->session, "overloaded", RETRY_AFTER_MS,
                  "the server is out of memory");
}

// --- finding the session -----------------------------------------------------

static bool must_wait(const struct session *s) {
    return s->loading || !s->on_disk || s->deleting || s->paging;
}

static void defer(struct session *s, const struct request *r) {
    struct request *copy = request_copy(r);
    if (!copy || deliver_defer(s->service, r->client) < 0) {
        request_free(copy);
        requests_fail_memory(s->service, r);
        return;
    }
    *s->deferred_end = copy;
    s->deferred_end = &copy->next;
}

static void load(struct sessions *ss, const struct request *r) {
    struct session *s = session_new(ss, r->session);
    struct store_job *job = s ? store_job_new(STORE_LOAD, 0) : NULL;
    if (job) job->id = strdup(r->session);
    if (!job || !job->id) {
        store_job_free(job);
        session_free(s);
        requests_fail_memory(ss, r);
        return;
    }
    if (service_add_loading(ss, s) < 0) {
        store_job_free(job);
        session_free(s);
        requests_fail_memory(ss, r);
        return;
    }
    defer(s, r);
    store_send(ss->store, job);
}

static void submit_to_session(struct sessions *ss, const struct request *r) {
    struct session *s =
        r->session && session_id_valid(r->session) ? service_find(ss, r->session) : NULL;
    if (!s && r->session && !session_id_valid(r->session)) {
        if (r->kind == REQUEST_OPEN)
            fail(ss, r, "invalid", "session must be 1 to %d letters, digits, '-' or '_'",
                 SESSION_ID_MAX);
        else
            fail_not_found(ss, r);
    } else if (s && must_wait(s)) {
        defer(s, r);
    } else if (r->kind == REQUEST_OPEN && !s) {
        opening_start(ss, r);
    } else if (!s) {
        load(ss, r);
    } else {
        requests_run(s, r);
    }
}

// Of a session in memory only: reading one from disk is more than a hint is worth.
static void typing(struct sessions *ss, const struct request *r) {
    struct session *s = service_find(ss, r->session);
    if (!s || s->loading || strcmp(s->rec.owner, r->owner) != 0 || session_has_turn(s)) return;
    if (s->parked) engine_sequence_warm(ss->engine, (uint64_t)s->rec.key);
    if (session_state(s) == SESSION_COLD) run_prepare(s);
}

void sessions_submit(struct sessions *ss, const struct request *r) {
    service_enter(ss);
    switch (r->kind) {
    case REQUEST_TYPING:
        typing(ss, r);
        break;
    case REQUEST_LIST:
        listing_start(ss, r);
        break;
    case REQUEST_EXPORT:
        transfer_export(ss, r);
        break;
    case REQUEST_IMPORT:
        transfer_import(ss, r);
        break;
    default:
        submit_to_session(ss, r);
    }
    service_leave(ss);
}

static struct request *take_deferred(struct session *s) {
    struct request *list = s->deferred;
    s->deferred = NULL;
    s->deferred_end = &s->deferred;
    return list;
}

void requests_run_deferred(struct session *s) {
    struct request *list = take_deferred(s);
    for (struct request *next; list; list = next) {
        next = list->next;
        list->client = deliver_resume(s->service, list->client);
        if (must_wait(s)) // for what one of those before it began
            defer(s, list);
        else
            requests_run(s, list);
        request_free(list);
    }
}

// The record cannot be read, but it can be removed: whoever owns it asked for that.
static void delete_unread(struct sessions *ss, const struct request *r) {
    struct store_job *job = store_job_new(STORE_DELETE, 0);
    if (job) job->id = strdup(r->session);
    if (job) job->owner = strdup(r->owner);
    if (!job || !job->id || !job->owner) {
        store_job_free(job);
        requests_fail_memory(ss, r);
        return;
    }
    job->client = r->client;
    memcpy(job->request_id, r->request_id, sizeof job->request_id);
    store_send(ss->store, job);
}

void requests_delete_done(struct sessions *ss, struct store_job *job) {
    struct session_view gone = {.id = job->id};
    struct session_answer a = {.kind = ANSWER_CLOSED,
                               .request_id = job->request_id,
                               .session_id = job->id,
                               .deleted = true};
    if (job->rc < 0) {
        const char *code = job->rc == E_NOTFOUND ? "session_not_found" : "store_failed";
        requests_fail(ss, job->client, job->request_id, job->id, code, 0, job->err.text);
        return;
    }
    replays_session_gone(ss, job->id);
    engine_snapshot_forget(ss->engine, 0, job->id);
    ss->cb.on_answer(ss->cb.ctx, job->client, &a);
    if (ss->cb.on_changed) ss->cb.on_changed(ss->cb.ctx, job->owner, &gone, true);
}

void requests_run_orphans(struct session *orphaned, const struct err *err) {
    struct sessions *ss = orphaned->service;
    struct request *list = take_deferred(orphaned);
    bool on_disk = err && err->code == E_EXISTS;
    for (struct request *next; list; list = next) {
        next = list->next;
        list->client = deliver_resume(ss, list->client);
        struct session *s = service_find(ss, list->session);
        if (err && err->code == E_CORRUPT && list->kind == REQUEST_CLOSE && list->delete_it)
            delete_unread(ss, list);
        else if (err && err->code == E_NOMEM)
            requests_fail_memory(ss, list);
        else if (err && !on_disk)
            fail(ss, list, "store_failed", "%s", err->text);
        else if (s && must_wait(s))
            defer(s, list);
        else if (s)
            requests_run(s, list);
        else if (list->kind == REQUEST_OPEN)
            opening_start(ss, list);
        else if (on_disk)
            load(ss, list);
        else
            fail_not_found(ss, list);
        request_free(list);
    }
}

// --- the others --------------------------------------------------------------

static void attach(struct session *s, const struct request *r) {
    struct sessions *ss = s->service;
    int64_t now = session_tellable(s);
    bool reset = r->after > now || (r->after > 0 && event_log_is_lost(&s->events, r->after));
    int64_t cursor = r->after < 0 || reset ? now : r->after;
    if (deliver_attach(s, r->client, cursor) < 0) {
        requests_fail_memory(ss, r);
        return;
    }
    struct session_answer a = {.kind = ANSWER_ATTACHED,
                               .request_id = r->request_id,
                               .session_id = s->rec.id,
                               .reset = reset};
    session_view_fill(s, &a.session);
    a.seq = a.session.seq;
    ss->cb.on_answer(ss->cb.ctx, r->client, &a);
}

static void detach(struct session *s, const struct request *r) {
    struct sessions *ss = s->service;
    deliver_answer_told(s, r->client, INT64_MAX);
    struct attachment *at = session_attachment(s, r->client);
    if (at) deliver_detach(at);
    if (s->author == r->client) deliver_forget_author(s);
    struct session_answer a = {
        .kind = ANSWER_DETACHED, .request_id = r->request_id, .session_id = s->rec.id};
    ss->cb.on_answer(ss->cb.ctx, r->client, &a);
}

// The siblings of all turns of a page, and which of them say the same: one list behind the other.
struct page_siblings {
    int64_t *list;
    int32_t *inputs;
};

static int list_siblings(const struct session *s, const struct session_page *page,
                         struct turn_view *views, struct page_siblings *out) {
    size_t total = 0, n, at = 0;
    for (size_t i = 0; i < page->n; i++)
        total += session_siblings(s, s->turns[page->turns[i]], NULL);
    out->list = malloc((total + 1) * sizeof *out->list);
    out->inputs = malloc((total + 1) * sizeof *out->inputs);
    if (!out->list || !out->inputs) return E_NOMEM;
    for (size_t i = 0; i < page->n; i++, at += n) {
        n = session_siblings(s, s->turns[page->turns[i]], out->list + at);
        TRY(session_sibling_inputs(s, out->list + at, n, out->inputs + at));
        views[i].siblings = out->list + at;
        views[i].inputs = out->inputs + at;
        views[i].n_siblings = n > 1 ? n : 0;
    }
    return 0;
}

static void get(struct session *s, const struct request *r) {
    struct sessions *ss = s->service;
    struct session_page page = {0};
    struct turn_view *views = NULL;
    struct page_siblings siblings = {0};
    int rc = E_NOMEM;
    if (session_page(s, r->last, r->before, &page) == 0) views = calloc(page.n + 1, sizeof *views);
    for (size_t i = 0; views && i < page.n; i++)
        session_turn_view(s, s->turns[page.turns[i]], &views[i]);
    if (views) rc = list_siblings(s, &page, views, &siblings);
    if (rc < 0 || (r->attach && deliver_attach(s, r->client, session_tellable(s)) < 0)) {
        requests_fail_memory(ss, r);
        goto free;
    }
    struct session_answer a = {.kind = ANSWER_STATE,
                               .request_id = r->request_id,
                               .session_id = s->rec.id,
                               .more = page.more,
                               .before = r->before,
                               .turns = views,
                               .n_turns = page.n};
    session_view_fill(s, &a.session);
    a.seq = a.session.seq;
    ss->cb.on_answer(ss->cb.ctx, r->client, &a);
free:
    free(siblings.list);
    free(siblings.inputs);
    free(views);
    free(page.turns);
}

char *requests_first_words(const struct session *s) {
    char title[SESSION_AUTO_TITLE_BYTES];
    memcpy(title, s->first_words, sizeof title);
    int64_t since = title[0] ? s->first_words_turn : -1;
    for (int64_t i = s->roots.last; i > since; i = s->turns[i]->older) {
        const struct turn_record *t = &s->turns[i]->rec;
        if (!t->input_text) continue;
        session_title_from(t->input_text, t->input_text_len, title, sizeof title);
        return strdup(title);
    }
    for (size_t i = 0; i < s->n_turns && !title[0]; i++) {
        const struct turn_record *t = &s->turns[i]->rec;
        if (t->input_text)
            session_title_from(t->input_text, t->input_text_len, title, sizeof title);
    }
    return strdup(title);
}

// Swaps the new settings in; the old ones go into the pending request, for taking back.
static void update(struct session *s, const struct request *r) {
    struct sessions *ss = s->service;
    struct err err = {0};
    char *title = NULL, *sampling = NULL;
    if (r->cancel_after_ms > SESSION_CANCEL_AFTER_MAX_MS) {
        fail(ss, r, "invalid", "cancel_after_ms must be from 1 to %d", SESSION_CANCEL_AFTER_MAX_MS);
        return;
    }
    if (r->title && strlen(r->title) > SESSION_TITLE_BYTES) {
        fail(ss, r, "invalid", "title has more than %d bytes", SESSION_TITLE_BYTES);
        return;
    }
    if (r->sampling && !(sampling = layers_normal(ss, r->sampling, &err))) {
        requests_fail_err(ss, r, &err);
        return;
    }
    if (r->title) title = r->title[0] ? strdup(r->title) : requests_first_words(s);
    bool ready = (!r->title || title) && event_log_reserve(&s->events, 1) == 0;
    struct pending *p =
        ready ? save_pending(s, PENDING_UPDATE, r, event_log_seq(&s->events) + 1) : NULL;
    if (!p) {
        free(title);
        free(sampling);
        requests_fail_memory(ss, r);
        return;
    }
    event_log_add(&s->events, EVENT_UPDATED, -1, NULL, service_now_ms(ss));
    if (title) {
        p->title = s->rec.title;
        s->rec.title = title;
        s->rec.auto_title = r->title[0] == '\0';
        s->title_dirty = true;
    }
    if (sampling) {
        p->sampling = s->rec.sampling;
        s->rec.sampling = sampling;
        layers_changed(s);
    }
    if (r->cancel_after_ms >= 0) s->rec.cancel_after_ms = r->cancel_after_ms;
    s->rec.updated_ms = service_now_ms(ss);
    s->version++;
    save_now(s);
}

static void close_session(struct session *s, const struct request *r) {
    struct sessions *ss = s->service;
    if (s->rec.closed_ms && !r->delete_it) {
        fail(ss, r, "session_closed", "the session is closed already");
        return;
    }
    if (ss->store_error[0]) { // before its turn is ended for nothing
        fail(ss, r, "store_failed", "%s", ss->store_error);
        return;
    }
    if (!save_pending(s, PENDING_CLOSE, r, INT64_MAX)) {
        requests_fail_memory(ss, r);
        return;
    }
    s->closing = true;
    s->delete_it |= r->delete_it;
    run_turn_cancel(s, -1);
    service_touch(s);
}

static void cancel(struct session *s, const struct request *r) {
    struct sessions *ss = s->service;
    if (r->replay)
        replays_cancel(ss, r->client, s->rec.id);
    else
        run_turn_cancel(s, r->turn);
    struct session_answer a = {.kind = ANSWER_CANCELLING,
                               .request_id = r->request_id,
                               .session_id = s->rec.id,
                               .turn = r->turn};
    ss->cb.on_answer(ss->cb.ctx, r->client, &a);
}

void requests_run(struct session *s, const struct request *r) {
    if (r->kind == REQUEST_OPEN) {
        fail(s->service, r, "session_exists", "there is a session '%s' already", r->session);
        return;
    }
    if (strcmp(s->rec.owner, r->owner) != 0) {
        fail_not_found(s->service, r);
        return;
    }
    int rc = history_need(s, r);
    if (rc == E_NOMEM) requests_fail_memory(s->service, r);
    if (rc != 0) return;
    switch (r->kind) {
    case REQUEST_ATTACH:
        attach(s, r);
        break;
    case REQUEST_DETACH:
        detach(s, r);
        break;
    case REQUEST_GET:
        get(s, r);
        break;
    case REQUEST_UPDATE:
        update(s, r);
        break;
    case REQUEST_CLOSE:
        close_session(s, r);
        break;
    case REQUEST_START:
        run_turn_start(s, r);
        break;
    case REQUEST_CANCEL:
        cancel(s, r);
        break;
    case REQUEST_EVENTS:
        debug_events(s, r);
        break;
    case REQUEST_TURN:
        debug_turn(s, r);
        break;
    case REQUEST_REPLAY:
        debug_replay(s, r);
        break;
    case REQUEST_REWIND:
        branch_rewind(s, r);
        break;
    case REQUEST_REGENERATE:
        branch_regenerate(s, r);
        break;
    case REQUEST_FORK:
        branch_fork(s, r);
        break;
    default:
        break;
    }
    service_used(s);
    service_touch(s);
}
