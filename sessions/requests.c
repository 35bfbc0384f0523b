// What clients ask for, but for turns. See service.h.
//
// Every request about one session comes through requests_submit(): a session that is not in memory
// is read first, and requests for it wait in the order in which they came.
#include "base/err.h"
#include "base/json_raw.h"
#include "base/random_id.h"
#include "sessions/service.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_DEFAULT 50
#define LIST_MAX 200

static void open_session(struct sessions *ss, const struct request *r);

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
    requests_fail(ss, r->client, r->request_id, r->id, code, 0, message);
}

void requests_fail_err(struct sessions *ss, const struct request *r, const struct err *err) {
    const char *code = requests_code(err->code);
    int64_t retry_ms = strcmp(code, "overloaded") == 0 ? RETRY_AFTER_MS : 0;
    requests_fail(ss, r->client, r->request_id, r->id, code, retry_ms, err->text);
}

static void fail_not_found(struct sessions *ss, const struct request *r) {
    fail(ss, r, "session_not_found", "there is no such session");
}

static void fail_memory(struct sessions *ss, const struct request *r) {
    requests_fail(ss, r->client, r->request_id, r->id, "overloaded", RETRY_AFTER_MS,
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
        fail_memory(s->service, r);
        return;
    }
    *s->deferred_end = copy;
    s->deferred_end = &copy->next;
}

static void load(struct sessions *ss, const struct request *r) {
    struct session *s = session_new(ss, r->id);
    struct store_job *job = s ? store_job_new(STORE_LOAD, 0) : NULL;
    if (job) job->id = strdup(r->id);
    if (!job || !job->id) {
        store_job_free(job);
        session_free(s);
        fail_memory(ss, r);
        return;
    }
    if (service_add_loading(ss, s) < 0) {
        store_job_free(job);
        session_free(s);
        fail_memory(ss, r);
        return;
    }
    defer(s, r);
    store_send(ss->store, job);
}

void requests_submit(struct sessions *ss, const struct request *r) {
    service_enter(ss);
    struct session *s = r->id && session_id_valid(r->id) ? service_find(ss, r->id) : NULL;
    if (r->id && !session_id_valid(r->id)) {
        if (r->kind == REQUEST_OPEN)
            fail(ss, r, "invalid", "session must be 1 to %d letters, digits, '-' or '_'",
                 SESSION_ID_MAX);
        else
            fail_not_found(ss, r);
    } else if (s && must_wait(s)) {
        defer(s, r);
    } else if (r->kind == REQUEST_OPEN && !s) {
        open_session(ss, r);
    } else if (!s) {
        load(ss, r);
    } else {
        requests_run(s, r);
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
    if (job) job->id = strdup(r->id);
    if (job) job->owner = strdup(r->owner);
    if (!job || !job->id || !job->owner) {
        store_job_free(job);
        fail_memory(ss, r);
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
        struct session *s = service_find(ss, list->id);
        if (err && err->code == E_CORRUPT && list->kind == REQUEST_CLOSE && list->delete_it)
            delete_unread(ss, list);
        else if (err && err->code == E_NOMEM)
            fail_memory(ss, list);
        else if (err && !on_disk)
            fail(ss, list, "store_failed", "%s", err->text);
        else if (s && must_wait(s))
            defer(s, list);
        else if (s)
            requests_run(s, list);
        else if (list->kind == REQUEST_OPEN)
            open_session(ss, list);
        else if (on_disk)
            load(ss, list);
        else
            fail_not_found(ss, list);
        request_free(list);
    }
}

// --- opening -----------------------------------------------------------------

int requests_sampling(struct session *s, const char *sampling, struct turn_sampling *out,
                      struct err *err) {
    struct sessions *ss = s->service;
    *out = (struct turn_sampling){.params = ss->o.sampling};
    TRY(sampling_json_apply(out, s->rec.sampling, ss->info->n_vocab, err));
    return sampling_json_apply(out, sampling, ss->info->n_vocab, err);
}

static char *write_sampling(const struct turn_sampling *t, uint32_t keys, struct err *err) {
    struct buf out;
    buf_init(&out, 65536);
    sampling_json_write(&out, t, keys);
    char *text = buf_take(&out, NULL);
    if (!text) err_set(err, E_NOMEM, "the server is out of memory");
    buf_release(&out);
    return text;
}

// What a client gave, checked, with our keys only.
static char *normal_sampling(struct sessions *ss, const char *sampling, struct err *err) {
    struct turn_sampling t = {.params = ss->o.sampling};
    if (sampling_json_apply(&t, sampling, ss->info->n_vocab, err) < 0) return NULL;
    return write_sampling(&t, t.set, err);
}

char *requests_sampling_again(struct session *s, const char *request, const char *sampling,
                              struct err *err) {
    struct sessions *ss = s->service;
    struct turn_sampling t = {.params = ss->o.sampling};
    size_t len;
    const char *asked = json_raw_value(request ? request : "{}", "sampling", &len);
    char *copy = asked && *asked == '{' ? strndup(asked, len) : strdup("{}");
    int rc = copy ? sampling_json_apply(&t, copy, ss->info->n_vocab, err)
                  : err_set(err, E_NOMEM, "the server is out of memory");
    free(copy);
    t.params.has_seed = false; // another answer is what is wanted
    if (rc == 0) rc = sampling_json_apply(&t, sampling, ss->info->n_vocab, err);
    return rc < 0 ? NULL : write_sampling(&t, t.set, err);
}

static int check_lengths(const struct sessions *ss, const struct session_open *o,
                         struct session_record *r, struct err *err) {
    const struct engine_info *info = ss->info;
    int64_t memory_len = o->memory_len ? o->memory_len : ss->o.default_memory_len;
    int64_t session_len = o->session_len ? o->session_len : ss->o.default_session_len;
    if (memory_len < 1 || memory_len > info->max_memory_len)
        return err_set(err, E_INVAL, "memory_len must be from 1 to %d", info->max_memory_len);
    // The default number of sinks gives way to a memory_len that is smaller.
    int64_t sink_len = o->sink_len >= 0                      ? o->sink_len
                       : ss->o.default_sink_len < memory_len ? ss->o.default_sink_len
                                                             : memory_len - 1;
    if (sink_len >= memory_len)
        return err_set(err, E_INVAL, "sink_len must be less than memory_len (%lld)",
                       (long long)memory_len);
    if (session_len < 2 || session_len > info->max_session_len)
        return err_set(err, E_INVAL, "session_len must be from 2 to %lld",
                       (long long)info->max_session_len);
    r->memory_len = (int32_t)memory_len;
    r->sink_len = (int32_t)sink_len;
    r->session_len = session_len;
    return 0;
}

static int check_open(const struct sessions *ss, const struct session_open *o, struct err *err) {
    if (o->model && strcmp(o->model, ss->info->model_name) != 0)
        return err_set(err, E_INVAL, "model: this server has only '%s'", ss->info->model_name);
    if (o->cancel_after_ms < 0 || o->cancel_after_ms > SESSION_CANCEL_AFTER_MAX_MS)
        return err_set(err, E_INVAL, "cancel_after_ms must be from 1 to %d",
                       SESSION_CANCEL_AFTER_MAX_MS);
    if (o->title && strlen(o->title) > SESSION_TITLE_BYTES)
        return err_set(err, E_INVAL, "title has more than %d bytes", SESSION_TITLE_BYTES);
    if (o->system && strlen(o->system) > SESSION_SYSTEM_BYTES)
        return err_set(err, E_INVAL, "system has more than %d bytes", SESSION_SYSTEM_BYTES);
    return 0;
}

static int fill_record(struct session *s, const struct request *r, struct err *err) {
    struct sessions *ss = s->service;
    struct session_record *rec = &s->rec;
    bool failed = false;
    const char *title = r->open.title ? r->open.title : "";
    TRY(check_open(ss, &r->open, err));
    TRY(check_lengths(ss, &r->open, rec, err));
    rec->sampling = normal_sampling(ss, r->open.sampling, err);
    if (!rec->sampling) return err->code;
    rec->owner = record_strdup(r->owner, &failed);
    rec->model = record_strdup(ss->info->model_name, &failed);
    rec->fingerprint = record_strdup(ss->info->fingerprint, &failed);
    rec->title = record_strdup(title, &failed);
    rec->auto_title = title[0] == '\0';
    rec->cancel_after_ms = r->open.cancel_after_ms;
    rec->system =
        record_strdup(r->open.system && r->open.system[0] ? r->open.system : NULL, &failed);
    rec->created_ms = rec->updated_ms = service_now_ms(ss);
    return failed ? err_set(err, E_NOMEM, "the server is out of memory") : 0;
}

static void open_session(struct sessions *ss, const struct request *r) {
    char drawn[RANDOM_ID_LEN + 1];
    struct err err = {0};
    if (ss->draining) {
        fail(ss, r, "shutting_down", "the server is shutting down");
        return;
    }
    if (!r->id) random_id(drawn);
    struct session *s = session_new(ss, r->id ? r->id : drawn);
    if (!s) {
        fail_memory(ss, r);
        return;
    }
    if (fill_record(s, r, &err) < 0) {
        requests_fail_err(ss, r, &err);
        session_free(s);
        return;
    }
    requests_admit(s, r, TURN_NONE);
}

bool requests_admit(struct session *s, const struct request *r, int64_t head) {
    struct sessions *ss = s->service;
    int64_t seq = event_log_add(&s->events, EVENT_OPENED, head, NULL, service_now_ms(ss));
    if (seq < 0 || !save_pending(s, PENDING_OPEN, r, seq) || service_add(ss, s, ss->next_key) < 0) {
        fail_memory(ss, r);
        session_free(s);
        return false;
    }
    ss->next_key++;
    if (deliver_attach(s, r->client, 0) < 0) { // then nobody would be told of the opening
        fail_memory(ss, r);
        service_drop(s);
        return false;
    }
    s->version = 1;
    s->title_dirty = true;
    save_now(s);
    return true;
}

// --- the others --------------------------------------------------------------

static void attach(struct session *s, const struct request *r) {
    struct sessions *ss = s->service;
    int64_t now = session_tellable(s);
    bool reset = r->after > now || (r->after > 0 && event_log_is_lost(&s->events, r->after));
    int64_t cursor = r->after < 0 || reset ? now : r->after;
    if (deliver_attach(s, r->client, cursor) < 0) {
        fail_memory(ss, r);
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
    struct session_answer a = {
        .kind = ANSWER_DETACHED, .request_id = r->request_id, .session_id = s->rec.id};
    ss->cb.on_answer(ss->cb.ctx, r->client, &a);
}

// The siblings of all turns of a page, one list behind the other; NULL: no memory.
static int64_t *list_siblings(const struct session *s, const struct session_page *page,
                              struct turn_view *views) {
    size_t total = 0, n;
    for (size_t i = 0; i < page->n; i++)
        total += session_siblings(s, s->turns[page->turns[i]], NULL);
    int64_t *list = malloc((total + 1) * sizeof *list), *at = list;
    for (size_t i = 0; list && i < page->n; i++, at += n) {
        n = session_siblings(s, s->turns[page->turns[i]], at);
        views[i].siblings = at;
        views[i].n_siblings = n > 1 ? n : 0;
    }
    return list;
}

static void get(struct session *s, const struct request *r) {
    struct sessions *ss = s->service;
    struct session_page page = {0};
    struct turn_view *views = NULL;
    int64_t *siblings = NULL;
    if (session_page(s, r->last, r->before, &page) == 0) views = calloc(page.n + 1, sizeof *views);
    for (size_t i = 0; views && i < page.n; i++)
        session_turn_view(s, s->turns[page.turns[i]], &views[i]);
    if (views) siblings = list_siblings(s, &page, views);
    if (!siblings || (r->attach && deliver_attach(s, r->client, session_tellable(s)) < 0)) {
        fail_memory(ss, r);
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
    free(siblings);
    free(views);
    free(page.turns);
}

char *requests_first_words(const struct session *s) {
    char title[SESSION_AUTO_TITLE_BYTES];
    memcpy(title, s->first_words, sizeof title);
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
    if (r->sampling && !(sampling = normal_sampling(ss, r->sampling, &err))) {
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
        fail_memory(ss, r);
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
        fail_memory(ss, r);
        return;
    }
    s->closing = true;
    s->delete_it |= r->delete_it;
    run_turn_cancel(s, -1);
    service_touch(s);
}

static void cancel(struct session *s, const struct request *r) {
    struct sessions *ss = s->service;
    run_turn_cancel(s, r->turn);
    struct session_answer a = {.kind = ANSWER_CANCELLING,
                               .request_id = r->request_id,
                               .session_id = s->rec.id,
                               .turn = r->turn};
    ss->cb.on_answer(ss->cb.ctx, r->client, &a);
}

void requests_run(struct session *s, const struct request *r) {
    if (r->kind == REQUEST_OPEN) {
        fail(s->service, r, "session_exists", "there is a session '%s' already", r->id);
        return;
    }
    if (strcmp(s->rec.owner, r->owner) != 0) {
        fail_not_found(s->service, r);
        return;
    }
    int rc = history_need(s, r);
    if (rc == E_NOMEM) fail_memory(s->service, r);
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
    case REQUEST_REPLAY:
        debug_refuse(s, r);
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
    case REQUEST_OPEN:
        break;
    }
    service_used(s);
    service_touch(s);
}

// --- lists -------------------------------------------------------------------

void sessions_list(struct sessions *ss, const struct sessions_request *r, const char *query,
                   int64_t limit, const char *cursor) {
    service_enter(ss);
    bool failed = false;
    struct store_job *job = store_job_new(STORE_LIST, 0);
    struct store_list *l = job ? calloc(1, sizeof *l) : NULL;
    if (l) {
        job->list = l;
        job->client = r->client;
        memcpy(job->request_id, r->request_id, sizeof job->request_id);
        l->owner = record_strdup(r->owner, &failed);
        l->query = record_strdup(query, &failed);
        l->cursor = record_strdup(cursor, &failed);
        l->limit = limit <= 0 ? LIST_DEFAULT : limit > LIST_MAX ? LIST_MAX : limit;
    }
    if (!l || failed) {
        store_job_free(job);
        requests_fail(ss, r->client, r->request_id, NULL, "overloaded", RETRY_AFTER_MS,
                      "the server is out of memory");
    } else {
        store_send(ss->store, job);
    }
    service_leave(ss);
}

// What is in memory is newer than what is on disk.
static void list_view(struct sessions *ss, const struct session_record *row,
                      struct session_view *out) {
    const struct session *s = service_find(ss, row->id);
    if (s && !s->loading && s->on_disk) {
        session_view_fill(s, out);
        return;
    }
    struct session cold = {.rec = *row, .running = -1};
    session_view_fill(&cold, out);
    out->state = row->closed_ms ? SESSION_CLOSED : row->n_tokens ? SESSION_COLD : SESSION_OPEN;
    out->n_turns = row->n_turns;
    out->n_tokens = row->n_tokens;
    out->seq = row->seq;
    out->head = row->head;
}

void requests_list_done(struct sessions *ss, struct store_job *job) {
    struct store_list *l = job->list;
    if (job->rc < 0) {
        const char *code =
            job->rc == E_INVAL || job->rc == E_NOMEM ? requests_code(job->rc) : "store_failed";
        requests_fail(ss, job->client, job->request_id, NULL, code, 0, job->err.text);
        return;
    }
    struct session_view *views = calloc(l->n_rows + 1, sizeof *views);
    if (!views) {
        requests_fail(ss, job->client, job->request_id, NULL, "overloaded", RETRY_AFTER_MS,
                      "the server is out of memory");
        return;
    }
    for (size_t i = 0; i < l->n_rows; i++) list_view(ss, &l->rows[i], &views[i]);
    struct session_answer a = {.kind = ANSWER_LIST,
                               .request_id = job->request_id,
                               .sessions = views,
                               .n_sessions = l->n_rows,
                               .cursor = l->next[0] ? l->next : NULL};
    ss->cb.on_answer(ss->cb.ctx, job->client, &a);
    free(views);
}

// --- the door ----------------------------------------------------------------

struct request requests_of(const struct sessions_request *r, enum request_kind kind,
                           const char *id) {
    struct request q = {.kind = kind,
                        .client = r->client,
                        .owner = r->owner,
                        .id = id,
                        .turn = -1,
                        .after = TURN_HEAD};
    memcpy(q.request_id, r->request_id, sizeof q.request_id);
    return q;
}

void sessions_open_session(struct sessions *ss, const struct sessions_request *r,
                           const struct session_open *o) {
    struct request q = requests_of(r, REQUEST_OPEN, o->id);
    q.open = *o;
    requests_submit(ss, &q);
}

void sessions_attach(struct sessions *ss, const struct sessions_request *r, const char *id,
                     int64_t after) {
    struct request q = requests_of(r, REQUEST_ATTACH, id);
    q.after = after;
    requests_submit(ss, &q);
}

void sessions_detach(struct sessions *ss, const struct sessions_request *r, const char *id) {
    struct request q = requests_of(r, REQUEST_DETACH, id);
    requests_submit(ss, &q);
}

// Of a session in memory only: reading one from disk is more than a hint is worth.
void sessions_typing(struct sessions *ss, const struct sessions_request *r, const char *id) {
    const struct session *s = service_find(ss, id);
    if (!s || s->loading || strcmp(s->rec.owner, r->owner) != 0) return;
    if (s->parked && !session_has_turn(s)) engine_sequence_warm(ss->engine, (uint64_t)s->rec.key);
}

void sessions_get(struct sessions *ss, const struct sessions_request *r, const char *id,
                  bool attach_too, int64_t last, int64_t before) {
    struct request q = requests_of(r, REQUEST_GET, id);
    q.attach = attach_too;
    q.last = last;
    q.before = before;
    requests_submit(ss, &q);
}

void sessions_update(struct sessions *ss, const struct sessions_request *r, const char *id,
                     const char *title, const char *sampling, int64_t cancel_after_ms) {
    struct request q = requests_of(r, REQUEST_UPDATE, id);
    q.cancel_after_ms = cancel_after_ms;
    q.title = title;
    q.sampling = sampling;
    requests_submit(ss, &q);
}

void sessions_close_session(struct sessions *ss, const struct sessions_request *r, const char *id,
                            bool delete_it) {
    struct request q = requests_of(r, REQUEST_CLOSE, id);
    q.delete_it = delete_it;
    requests_submit(ss, &q);
}

void sessions_start_turn(struct sessions *ss, const struct sessions_request *r, const char *id,
                         const struct turn_input *input, const char *sampling, bool queue) {
    sessions_start_turn_after(ss, r, id, TURN_HEAD, input, sampling, queue);
}

void sessions_start_turn_after(struct sessions *ss, const struct sessions_request *r,
                               const char *id, int64_t after, const struct turn_input *input,
                               const char *sampling, bool queue) {
    struct request q = requests_of(r, REQUEST_START, id);
    q.after = after;
    q.input = *input;
    q.sampling = sampling;
    q.queue = queue;
    requests_submit(ss, &q);
}

void sessions_cancel_turn(struct sessions *ss, const struct sessions_request *r, const char *id,
                          int64_t turn) {
    struct request q = requests_of(r, REQUEST_CANCEL, id);
    q.turn = turn;
    requests_submit(ss, &q);
}
