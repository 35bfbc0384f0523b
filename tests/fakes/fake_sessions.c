// sessions.h without model and database, for tests of the wire alone. Sessions live in memory; a turn's content says
// what it answers:
//     "count N"          N tokens "w0 ", "w1 ", ... one each FAKE_TOKEN_US (environment; 1000)
//     "flood N BYTES"    N tokens of BYTES bytes at once
//     "silence"          runs, and says nothing
//     "lose the device"  every running turn ends with "error", and the engine reports a lost device
//     anything else      echoes it as one token
#include "base/clock.h"
#include "base/json.h"
#include "base/random_id.h"
#include "sessions/replay/debug.h"
#include "tests/fakes/fake_engine.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CLIENTS 4096

struct fake_event {
    enum session_event_kind kind;
    int64_t turn;
    char *text; // DELTA, STARTED's content
    const char *finish;
    bool deleted;
    uint64_t client; // OPENED, UPDATED, CLOSED: whose request they answer
    char request_id[SESSION_REQUEST_ID_MAX + 1];
};
struct attached {
    uint64_t client;
    int64_t cursor;
};
struct session {
    struct session *next;
    struct sessions *service;
    char id[SESSION_ID_MAX + 1], owner[80], title[256], *system, *sampling, *model;
    bool closed;
    struct fake_event *events; // (n_events): seq is the index + 1
    size_t n_events, cap_events;
    struct attached *clients;
    size_t n_clients;
    int64_t key, n_turns, running, left, next_us, emitted, cancel_after_ms;
};
struct sessions {
    struct placement placement;
    int64_t last_key;
    struct session *first;
    struct sessions_callbacks cb;
    int n_running, n_drawn;
    bool draining;
    int64_t token_us;
};

// --- sessions ---

void session_turn_drafts(const struct session *s, int64_t turn, int64_t *n_drafted,
                         int64_t *n_accepted) {
    *n_drafted = *n_accepted = 0;
}
bool session_turn_prompt(const struct session *s, int64_t turn, int64_t *n_tokens,
                         int64_t *n_cached) {
    *n_tokens = 1;
    *n_cached = 0;
    return true;
}
const char *session_state_name(enum session_state s) {
    static const char *names[] = {"open", "active", "idle", "parked", "cold", "closed"};
    return names[s];
}
const char *session_id(const struct session *s) {
    return s->id;
}
const int32_t *session_log(const struct session *s, size_t *n) {
    *n = 0;
    return NULL;
}
int session_answer_of(const struct session *s, int64_t turn, int32_t branch,
                      struct turn_answer *out) {
    return E_NOTFOUND;
}

static void fill(const struct session *s, struct session_view *v) {
    *v = (struct session_view){.rec.id = (char *)s->id,
                               .rec.title = (char *)s->title,
                               .rec.model = (char *)"fake",
                               .rec.system = s->system,
                               .state = s->closed         ? SESSION_CLOSED
                                        : s->running >= 0 ? SESSION_ACTIVE
                                                          : SESSION_IDLE,
                               .rec.n_turns = s->n_turns,
                               .rec.session_len = 4096,
                               .rec.memory_len = 1024,
                               .rec.sink_len = 4,
                               .rec.seq = (int64_t)s->n_events,
                               .turn = s->running,
                               .rec.head = s->n_turns - 1,
                               .rec.sampling = s->sampling};
}
static struct attached *client_of(struct session *s, uint64_t client) {
    for (size_t i = 0; i < s->n_clients; i++)
        if (s->clients[i].client == client) return &s->clients[i];
    return NULL;
}
static void attach(struct session *s, uint64_t client, int64_t cursor) {
    struct attached *a = client_of(s, client);
    if (!a) {
        s->clients = realloc(s->clients, (s->n_clients + 1) * sizeof(*a));
        a = &s->clients[s->n_clients++];
    }
    *a = (struct attached){client, cursor};
    if (cursor < (int64_t)s->n_events) s->service->cb.on_ready(s->service->cb.ctx, client, s);
}
static void detach(struct session *s, uint64_t client) {
    struct attached *a = client_of(s, client);
    if (a) *a = s->clients[--s->n_clients];
}
static void add_event(struct session *s, struct fake_event e) {
    if (s->n_events == s->cap_events) {
        s->cap_events = s->cap_events ? 2 * s->cap_events : 8;
        s->events = realloc(s->events, s->cap_events * sizeof(e));
    }
    s->events[s->n_events++] = e;
    for (size_t i = 0; i < s->n_clients; i++)
        if (s->clients[i].cursor == (int64_t)s->n_events - 1)
            s->service->cb.on_ready(s->service->cb.ctx, s->clients[i].client, s);
}
static void changed(struct session *s, bool removed) {
    s->service->cb.on_changed(s->service->cb.ctx, s->key, s->owner, s->id, removed);
}
int sessions_changed(struct sessions *ss, uint64_t client, const char *owner, int64_t key,
                     struct session_view *out) {
    for (struct session *s = ss->first; s; s = s->next) {
        if (s->key != key) continue;
        fill(s, out);
        return 1;
    }
    struct session_answer none = {.kind = ANSWER_CHANGED, .request_id = ""};
    ss->cb.on_answer(ss->cb.ctx, client, &none);
    return 0;
}
void sessions_continue(struct sessions *ss, uint64_t client) {} // all lists are short
static void answer(struct sessions *ss, const struct request *r, struct session_answer a) {
    a.request_id = r->request_id;
    ss->cb.on_answer(ss->cb.ctx, r->client, &a);
}
static void fail(struct sessions *ss, const struct request *r, const char *code, const char *id) {
    answer(ss, r,
           (struct session_answer){
               .kind = ANSWER_ERROR, .code = code, .message = code, .session_id = id});
}
static struct session *find(struct sessions *ss, const struct request *r) {
    for (struct session *s = ss->first; s; s = s->next)
        if (strcmp(s->id, r->session) == 0 && strcmp(s->owner, r->owner) == 0) return s;
    fail(ss, r, "session_not_found", r->session);
    return NULL;
}
static void add_answering(struct session *s, const struct request *r, struct fake_event e) {
    e.client = r->client;
    memcpy(e.request_id, r->request_id, sizeof(e.request_id));
    add_event(s, e);
}

int sessions_add_instance(struct sessions *ss, const struct instance_options *o, struct err *err) {
    struct instance *i;
    return placement_add(&ss->placement, o, &i, err);
}
void sessions_tidy(struct engine *e, const char *db_path) {}
int sessions_drain_instance(struct sessions *ss, const char *name, bool last, struct err *err) {
    return err_set(err, E_UNSUPPORTED, "not here");
}
int sessions_remove_instance(struct sessions *ss, const char *name,
                             const struct served_model **model, struct err *err) {
    return err_set(err, E_UNSUPPORTED, "not here");
}
void sessions_lose_instance(struct sessions *ss, const char *name) {}
struct placement *sessions_placement(struct sessions *ss) {
    return &ss->placement;
}
void sessions_secret(const struct sessions *ss, uint64_t out[2]) {
    out[0] = 1;
    out[1] = 2;
}
void sessions_draw_id(const struct sessions *ss, char out[SESSION_ID_MAX + 1]) {
    random_id(out);
}
const struct engine *session_engine(const struct session *s) {
    return s->service->placement.models->engine;
}

int sessions_open(struct sessions **out, const struct sessions_options *o,
                  const struct sessions_callbacks *cb, struct err *err) {
    struct sessions *ss = calloc(1, sizeof(*ss));
    const char *us = getenv("FAKE_TOKEN_US");
    ss->cb = *cb;
    if (placement_init(&ss->placement) < 0) return err_set(err, E_NOMEM, "no memory");
    ss->token_us = us ? atoll(us) : 1000;
    *out = ss;
    return 0;
}
static void free_session(struct session *s) {
    for (size_t i = 0; i < s->n_events; i++) free(s->events[i].text);
    free(s->events);
    free(s->clients);
    free(s->system);
    free(s->sampling);
    free(s);
}
void sessions_close(struct sessions *ss) {
    while (ss->first) {
        struct session *s = ss->first;
        ss->first = s->next;
        free_session(s);
    }
    placement_release(&ss->placement);
    free(ss);
}
static void end_turn(struct session *s, const char *finish) {
    add_event(s, (struct fake_event){.kind = EVENT_DONE, .turn = s->running, .finish = finish});
    s->running = -1;
    s->service->n_running--;
    changed(s, false);
}
int64_t sessions_poll(struct sessions *ss) {
    int64_t now = clock_mono_us(&clock_system), next = -1;
    for (struct session *s = ss->first; s; s = s->next) {
        while (s->running >= 0 && now >= s->next_us) {
            char word[32];
            snprintf(word, sizeof(word), "w%lld ", (long long)s->emitted++);
            add_event(s, (struct fake_event){
                             .kind = EVENT_DELTA, .turn = s->running, .text = strdup(word)});
            s->next_us += ss->token_us;
            if (--s->left <= 0) end_turn(s, "eos");
        }
        if (s->running >= 0 && s->next_us < INT64_MAX && (next < 0 || s->next_us - now < next))
            next = s->next_us - now;
    }
    return next;
}
void sessions_drain(struct sessions *ss) {
    ss->draining = true;
}
int sessions_n_running(const struct sessions *ss) {
    return ss->n_running;
}
bool sessions_touched(const struct sessions *ss) {
    return false;
}
bool sessions_settled(const struct sessions *ss) {
    return ss->n_running == 0;
}
bool sessions_tail_ok(const struct sessions *ss, const char **reason) {
    *reason = getenv("FAKE_TAIL_DOWN") ? "no room" : NULL;
    return !*reason;
}
void sessions_limits_changed(struct sessions *ss, struct owner *o) {}
void sessions_cancel_owner(struct sessions *ss, const struct owner *o) {}
void sessions_count_owner(struct sessions *ss, struct owner *o) {}
bool sessions_store_ok(const struct sessions *ss, const char **reason) {
    *reason = getenv("FAKE_STORE_DOWN") ? "disk full" : NULL;
    return !*reason;
}

static char *sampling_text(const struct turn_sampling *t) {
    struct buf b;
    if (!t) return NULL;
    buf_init(&b, 1 << 16);
    sampling_json_write(&b, t, t->set);
    char *text = buf_take(&b, NULL);
    buf_release(&b);
    return text;
}
static struct session *open_session(struct sessions *ss, const struct request *r,
                                    const struct request_open *open) {
    if (ss->draining) {
        fail(ss, r, "shutting_down", NULL);
        return NULL;
    }
    struct session *s = calloc(1, sizeof(*s));
    s->service = ss;
    s->running = -1;
    s->key = ++ss->last_key;
    if (r->session)
        snprintf(s->id, sizeof(s->id), "%s", r->session);
    else
        snprintf(s->id, sizeof(s->id), "drawn%d", ++ss->n_drawn);
    snprintf(s->owner, sizeof(s->owner), "%s", r->owner);
    snprintf(s->title, sizeof(s->title), "%s", r->title ? r->title : "");
    s->system = open->system ? strdup(open->system) : NULL;
    s->sampling = sampling_text(r->kind == REQUEST_OPEN ? r->sampling : NULL);
    s->cancel_after_ms = r->cancel_after_ms;
    s->next = ss->first;
    ss->first = s;
    attach(s, r->client, 0);
    add_answering(s, r, (struct fake_event){.kind = EVENT_OPENED});
    changed(s, false);
    return s;
}
static void attach_client(struct session *s, const struct request *r) {
    bool reset = r->after > (int64_t)s->n_events;
    struct session_answer a = {.kind = ANSWER_ATTACHED, .session_id = s->id, .reset = reset};
    fill(s, &a.session);
    answer(s->service, r, a);
    attach(s, r->client, r->after < 0 || reset ? (int64_t)s->n_events : r->after);
}
static void get(struct session *s, const struct request *r) {
    size_t n = 0;
    struct turn_view *turns = calloc(s->n_events + 1, sizeof(*turns));
    for (size_t i = 0; i < s->n_events; i++) {
        if (s->events[i].kind == EVENT_STARTED)
            turns[n++] = (struct turn_view){
                .turn = s->events[i].turn, .state = TURN_DONE, .finish_reason = "eos"};
        if (s->events[i].kind == EVENT_DELTA && n &&
            strlen(s->events[i].text) > (size_t)turns[n - 1].text_len) {
            turns[n - 1].text = s->events[i].text;
            turns[n - 1].text_len = strlen(s->events[i].text);
        }
    }
    struct session_answer a = {.kind = ANSWER_STATE,
                               .session_id = s->id,
                               .before = r->before,
                               .turns = turns,
                               .n_turns = n,
                               .seq = (int64_t)s->n_events};
    fill(s, &a.session);
    answer(s->service, r, a);
    free(turns);
    if (r->attach) attach(s, r->client, (int64_t)s->n_events);
}
static void list(struct sessions *ss, const struct request *r) {
    size_t limit = r->limit ? (size_t)r->limit : 50, n = 0;
    struct session_view *v = calloc(limit + 1, sizeof(*v));
    for (struct session *s = ss->first; s && n < limit; s = s->next)
        if (strcmp(s->owner, r->owner) == 0) fill(s, &v[n++]);
    answer(ss, r,
           (struct session_answer){
               .kind = ANSWER_LIST, .sessions = v, .n_sessions = n, .first = true, .last = true});
    free(v);
}
static void update(struct session *s, const struct request *r) {
    if (r->title) snprintf(s->title, sizeof(s->title), "%s", r->title);
    add_answering(s, r, (struct fake_event){.kind = EVENT_UPDATED});
    changed(s, false);
    struct session_answer a = {.kind = ANSWER_UPDATED, .session_id = s->id};
    fill(s, &a.session);
    if (!client_of(s, r->client)) answer(s->service, r, a);
}
static void close_session(struct session *s, const struct request *r) {
    struct sessions *ss = s->service;
    s->closed = true;
    if (s->running >= 0) end_turn(s, "cancelled");
    add_answering(s, r, (struct fake_event){.kind = EVENT_CLOSED, .deleted = r->close.delete_it});
    struct session_answer a = {
        .kind = ANSWER_CLOSED, .session_id = s->id, .deleted = r->close.delete_it};
    fill(s, &a.session);
    if (!client_of(s, r->client)) answer(ss, r, a);
    changed(s, r->close.delete_it);
    if (!r->close.delete_it) return;
    for (size_t i = 0; i < s->n_clients; i++) ss->cb.on_gone(ss->cb.ctx, s->clients[i].client, s);
    struct session **p = &ss->first;
    while (*p != s) p = &(*p)->next;
    *p = s->next;
    free_session(s);
}
static void start(struct session *s, const struct request *r) {
    struct sessions *ss = s->service;
    long n = 0, bytes = 0;
    if (ss->draining || s->running >= 0) {
        fail(ss, r, ss->draining ? "shutting_down" : "session_busy", s->id);
        return;
    }
    if (r->attach && !client_of(s, r->client)) attach(s, r->client, (int64_t)s->n_events);
    int64_t turn = s->n_turns++;
    ss->n_running++;
    s->running = turn;
    answer(ss, r,
           (struct session_answer){.kind = ANSWER_ACCEPTED, .session_id = s->id, .turn = turn});
    const char *text = r->input.text ? r->input.text : "ids";
    add_event(s, (struct fake_event){.kind = EVENT_STARTED, .turn = turn, .text = strdup(text)});
    changed(s, false);
    if (sscanf(text, "count %ld", &n) == 1) {
        s->left = n;
        s->emitted = 0;
        s->next_us = clock_mono_us(&clock_system) + ss->token_us;
        return;
    }
    if (strcmp(text, "silence") == 0) {
        s->left = 1;
        s->next_us = INT64_MAX;
        return;
    }
    if (strcmp(text, "lose the device") == 0) {
        fake_engine_lose_device();
        for (struct session *other = ss->first; other; other = other->next)
            if (other->running >= 0) end_turn(other, "error");
        return;
    }
    if (sscanf(text, "flood %ld %ld", &n, &bytes) == 2) {
        for (long i = 0; i < n; i++) {
            char *t = malloc((size_t)bytes + 1);
            memset(t, 'a' + (int)(i % 26), (size_t)bytes);
            t[bytes] = '\0';
            add_event(s, (struct fake_event){.kind = EVENT_DELTA, .turn = turn, .text = t});
        }
    } else {
        add_event(s, (struct fake_event){.kind = EVENT_DELTA, .turn = turn, .text = strdup(text)});
    }
    end_turn(s, "eos");
}
static void cancel(struct session *s, const struct request *r) {
    answer(s->service, r, (struct session_answer){.kind = ANSWER_CANCELLING, .session_id = s->id});
    if (s->running >= 0 && !r->cancel.replay) end_turn(s, "cancelled");
}
// There is no tree here and no record: a request that needs one is refused.
static void submit_to_session(struct session *s, const struct request *r) {
    struct sessions *ss = s->service;
    switch (r->kind) {
    case REQUEST_ATTACH:
        attach_client(s, r);
        break;
    case REQUEST_DETACH:
        detach(s, r->client);
        answer(ss, r, (struct session_answer){.kind = ANSWER_DETACHED, .session_id = s->id});
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
        start(s, r);
        break;
    case REQUEST_CANCEL:
        cancel(s, r);
        break;
    case REQUEST_EVENTS:
        answer(ss, r,
               (struct session_answer){
                   .kind = ANSWER_EVENTS, .session_id = s->id, .before = r->before});
        break;
    case REQUEST_TURN:
    case REQUEST_REPLAY:
        fail(ss, r, "invalid", s->id);
        break;
    default:
        fail(ss, r, "unsupported", s->id);
    }
}
void sessions_submit(struct sessions *ss, const struct request *r) {
    struct session *s;
    if (r->kind == REQUEST_OPEN)
        open_session(ss, r, &r->open);
    else if (r->kind == REQUEST_START && r->start.in == START_IN_NEW)
        (s = open_session(ss, r, &r->start.open)) ? start(s, r) : (void)0;
    else if (r->kind == REQUEST_LIST)
        list(ss, r);
    else if (r->kind == REQUEST_IMPORT)
        fail(ss, r, "unsupported", NULL);
    else if (r->kind == REQUEST_SHARED)
        fail(ss, r, "session_not_found", NULL);
    else if (r->kind != REQUEST_TYPING && (s = find(ss, r)))
        submit_to_session(s, r);
}
void sessions_client_gone(struct sessions *ss, uint64_t client) {
    for (struct session *s = ss->first; s; s = s->next) {
        bool was = client_of(s, client) != NULL;
        detach(s, client);
        if (was && s->n_clients == 0 && s->cancel_after_ms > 0 && s->running >= 0)
            end_turn(s, "cancelled");
    }
}

int session_next_event(struct session *s, uint64_t client, size_t max_text,
                       struct session_event *out) {
    static char text[1 << 20];
    static int32_t ids[1 << 16];
    struct attached *a = client_of(s, client);
    if (!a || a->cursor >= (int64_t)s->n_events) return 0;
    const struct fake_event *e = &s->events[a->cursor++];
    *out = (struct session_event){.kind = e->kind,
                                  .seq = a->cursor,
                                  .first_seq = a->cursor,
                                  .delta_turn = e->turn,
                                  .request_id = e->client == client ? e->request_id : "",
                                  .deleted = e->deleted};
    fill(s, &out->session);
    out->turn = (struct turn_view){.turn = e->turn,
                                   .state = TURN_DONE,
                                   .finish_reason = e->finish,
                                   .input = {.kind = INPUT_CONTENT,
                                             .text = e->text,
                                             .text_len = e->text ? strlen(e->text) : 0},
                                   .seed = 7};
    if (e->kind != EVENT_DELTA) return 1;
    size_t len = strlen(e->text), n = 0;
    memcpy(text, e->text, len);
    ids[n++] = 1;
    while (a->cursor < (int64_t)s->n_events && s->events[a->cursor].kind == EVENT_DELTA &&
           len + strlen(s->events[a->cursor].text) <= max_text) {
        size_t more = strlen(s->events[a->cursor].text);
        memcpy(text + len, s->events[a->cursor].text, more);
        len += more;
        ids[n++] = 1;
        a->cursor++;
    }
    out->seq = a->cursor;
    out->text = text;
    out->text_len = len;
    out->ids = ids;
    out->n_ids = n;
    return 1;
}
