// See conversations.h. The steps of a request; most requests need only some:
//
//     FINDING    looks up the session with its note
//     WORKING    a worker reads the note, and makes the reply or the changed note. If it needs a turn's items
//                (a chunk, conversation.h), the turn is looked up, and the worker goes on
//     STORING    the session service opens, changes or deletes the session. If the note has changed meanwhile,
//                the request begins again
//     STORED     the reply is sent
#include "ws/openai/conversations.h"
#include "ws/openai/conversation_work.h"
#include "ws/service.h"
#include <stdlib.h>
#include <string.h>

#define LANE_CONVERSATIONS ((uint64_t)5 << 60)
#define AGAIN_MAX 16

enum step { FINDING, WORKING, WORKED, STORING, STORED };
struct conversations {
    struct follower follower; // first: its callbacks cast
    struct service *service;
    struct http *http; // NULL: its client is gone
    char *owner;
    enum step step;
    int n_again;
    struct responses_lookup *lookup;
    struct service_job job;
    struct conversation_work k;
};

// --- replies ---------------------------------------------------------------

static void destroy(struct conversations *c) {
    service_drop_follower(c->service, &c->follower);
    responses_lookup_drop(c->lookup);
    conversation_work_release(&c->k);
    free(c->owner);
    free(c);
}

static void on_client_gone(void *ctx) {
    struct conversations *c = ctx;
    c->http = NULL;
    if (c->step != WORKING) destroy(c);
}

static const struct http_waiter waiter = {.client_gone = on_client_gone};

static void end_refused(struct conversations *c) {
    openai_reply_failure(c->http, &c->k.failure);
    destroy(c);
}

static void reply(struct conversations *c) {
    if (c->k.out.error) openai_no_memory(&c->k.failure);
    if (c->k.failure.status) {
        end_refused(c);
        return;
    }
    http_reply_json(c->http, 200, &c->k.out);
    destroy(c);
}

// --- the worker's part -----------------------------------------------------

static void work_run(struct follower *f) {
    struct conversations *c = (struct conversations *)f;
    conversation_work_step(&c->k, c->service);
}

static void work_done(struct follower *f) {
    struct conversations *c = (struct conversations *)f;
    c->step = WORKED;
    if (!c->http)
        destroy(c);
    else
        service_push(c->service, &c->follower);
}

static void begin_work(struct conversations *c) {
    c->job = (struct service_job){.run = work_run, .done = work_done};
    c->step = WORKING;
    if (service_work(c->service, &c->follower, c->owner, LANE_CONVERSATIONS, &c->job) == 0) return;
    c->step = FINDING;
    openai_fail(&c->k.failure, 503, "overloaded", NULL, "too many requests are being read");
    service_push(c->service, &c->follower);
}

// --- what it needs ---------------------------------------------------------

static void take_failure(struct conversations *c, const struct completion_failure *f) {
    if (f->status == 404) conversation_refuse_missing(&c->k);
    if (c->k.failure.status) return;
    c->k.failure = *f;
    if (f->status == 409) strcpy(c->k.failure.code, "conversation_locked");
}

static void on_found(void *ctx, struct responses_session *s, const struct completion_failure *f) {
    struct conversations *c = ctx;
    c->lookup = NULL;
    c->k.found = *s;
    if (!f->status) {
        begin_work(c);
        return;
    }
    take_failure(c, f);
    end_refused(c);
}

static void find(struct conversations *c) {
    c->step = FINDING;
    c->lookup = responses_lookup_session(c->service, c->owner, c->k.session, on_found, c);
    if (c->lookup) return;
    openai_no_memory(&c->k.failure);
    service_push(c->service, &c->follower);
}

// A turn that was deleted has no items.
static void on_turn(void *ctx, struct responses_record *r, const struct completion_failure *f) {
    struct conversations *c = ctx;
    c->lookup = NULL;
    c->k.has_record = !f->status;
    c->k.record = *r;
    if (!f->status || f->status == 404) {
        begin_work(c);
        return;
    }
    take_failure(c, f);
    end_refused(c);
}

static void look_chunk(struct conversations *c) {
    c->k.chunk = c->k.next_chunk;
    c->step = FINDING;
    responses_record_release(&c->k.record);
    c->k.has_record = false;
    if (c->k.chunk == c->k.found.n_turns) { // after the last turn
        begin_work(c);
        return;
    }
    c->lookup = responses_lookup_start(c->service, c->owner, c->k.session, c->k.chunk, on_turn, c);
    if (c->lookup) return;
    openai_no_memory(&c->k.failure);
    end_refused(c);
}

// --- the store -------------------------------------------------------------

static void store(struct conversations *c) {
    static const enum request_kind kinds[] = {[CREATE] = REQUEST_OPEN,
                                              [UPDATE] = REQUEST_UPDATE,
                                              [DELETE] = REQUEST_CLOSE,
                                              [ITEMS_CREATE] = REQUEST_UPDATE,
                                              [ITEM_DELETE] = REQUEST_UPDATE};
    struct request r = service_request(&c->follower, kinds[c->k.asked], c->owner, c->k.session);
    r.note = c->k.new_note;
    if (r.kind == REQUEST_OPEN) r.open.model = c->k.body->model;
    if (r.kind == REQUEST_UPDATE) r.update.old_note = c->k.found.note;
    if (r.kind == REQUEST_CLOSE) r.close.delete_it = true;
    c->step = STORING;
    service_submit(c->service, &r);
}

static void begin_again(struct conversations *c) {
    conversation_work_reset(&c->k);
    find(c);
}

// --- as a follower ---------------------------------------------------------

static void push(struct follower *f) {
    struct conversations *c = (struct conversations *)f;
    bool changes = c->k.new_note || c->k.asked == DELETE;
    if (!c->http || c->step == WORKING) return;
    if (c->k.failure.status)
        end_refused(c);
    else if (c->step == FINDING && !c->lookup)
        begin_again(c); // the note had changed
    else if (c->step == WORKED && c->k.next_chunk >= 0)
        look_chunk(c);
    else if (c->step == WORKED && changes)
        store(c);
    else if (c->step == WORKED || c->step == STORED)
        reply(c);
}

static void on_error(struct conversations *c, const struct session_answer *a) {
    struct completion_failure f = {0};
    if (strcmp(a->code, "session_busy") == 0 && c->k.asked != CREATE && c->n_again++ < AGAIN_MAX) {
        c->step = FINDING;
        return;
    }
    completion_failure_take(&f, a);
    if (c->k.asked == CREATE && strcmp(a->code, "invalid") == 0 && c->k.body->model)
        openai_fail(&c->k.failure, 404, "model_not_found", "model", a->message);
    take_failure(c, &f);
}

static void on_answer(struct follower *f, const struct session_answer *a) {
    struct conversations *c = (struct conversations *)f;
    if (c->step != STORING) return;
    if (a->kind == ANSWER_ERROR)
        on_error(c, a);
    else if (a->kind == ANSWER_UPDATED || a->kind == ANSWER_CLOSED)
        c->step = STORED;
    else
        return;
    service_push(c->service, &c->follower);
}

// A session was opened: its first event is the answer.
static void on_ready(struct follower *f, struct session *s) {
    struct conversations *c = (struct conversations *)f;
    if (c->step != STORING || c->k.asked != CREATE) return;
    c->step = STORED;
    service_push(c->service, &c->follower);
}

static void on_end(struct follower *f) {
    struct conversations *c = (struct conversations *)f;
    if (!c->http || c->step == WORKING) return;
    openai_fail(&c->k.failure, 503, "shutting_down", NULL, "the server is shutting down");
    end_refused(c);
}

static const struct follower_ops follower_ops = {
    .on_answer = on_answer, .on_ready = on_ready, .push = push, .end = on_end};

// --- the request -----------------------------------------------------------

// Reads [/ID[/items[/ITEM]]] after /v1/conversations. false: there is no such address.
static bool read_path(struct conversations *c, const struct http *h) {
    static const enum conversation_asked of_item[] = {ITEM_RETRIEVE, ITEM_DELETE};
    const char *path = http_path(h) + strlen("/v1/conversations"), *slash;
    enum http_method m = http_verb(h);
    char id[RESPONSES_ID_MAX];
    c->k.asked = CREATE;
    if (!*path) return true;
    slash = strchr(++path, '/');
    size_t n = slash ? (size_t)(slash - path) : strlen(path);
    if (n >= sizeof id) return false;
    memcpy(id, path, n);
    id[n] = '\0';
    if (!responses_id_parse_conversation(id, c->k.session)) return false;
    c->k.asked = m == HTTP_POST ? UPDATE : m == HTTP_DELETE ? DELETE : RETRIEVE;
    if (!slash) return true;
    c->k.asked = m == HTTP_POST ? ITEMS_CREATE : ITEMS_LIST;
    if (strcmp(slash, "/items") == 0) return m != HTTP_DELETE;
    if (strncmp(slash, "/items/", 7) != 0 || m == HTTP_POST) return false;
    c->k.asked = of_item[m == HTTP_DELETE];
    slash += 7;
    if (!*slash || strchr(slash, '/') || strlen(slash) >= sizeof c->k.item) return false;
    memcpy(c->k.item, slash, strlen(slash) + 1);
    return true;
}

// Why the request cannot be served; status 0: it can.
static struct completion_failure judge(struct conversations *c, const struct http *h, bool known) {
    struct completion_failure f = {0};
    const struct conversation_body *b = c->k.body;
    const char *param = NULL;
    if (!known)
        openai_fail(&f, 404, "conversation_not_found", NULL, "There is no such conversation.");
    else if (c->k.asked == ITEMS_LIST && (param = responses_page_read(&c->k.page, h)))
        openai_fail(&f, 400, "invalid_value", param,
                    "This parameter has a value that is not served.");
    else if (b && b->failure.status)
        f = b->failure;
    else if (b && c->k.asked == ITEMS_CREATE && !b->items)
        openai_bad(&f, "items", "must be an array");
    else if (b && c->k.asked == UPDATE && !b->metadata)
        openai_bad(&f, "metadata", "must be an object");
    return f;
}

static struct conversations *conversations_new(struct service *s, struct http *h) {
    struct conversations *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    *c = (struct conversations){.follower.ops = &follower_ops, .service = s, .http = h};
    c->owner = strdup(http_owner(h));
    conversation_work_reset(&c->k);
    if (c->owner && followers_add(&s->followers, &c->follower) == 0) return c;
    free(c->owner);
    free(c);
    return NULL;
}

void openai_conversations_handle(void *user, struct http *h) {
    struct conversations *c = conversations_new(user, h);
    if (!c) {
        http_reply_error(h, 503, "overloaded", "no memory for the request", 1000);
        return;
    }
    bool known = read_path(c, h);
    if (http_verb(h) == HTTP_POST) c->k.body = http_take_decoded(h);
    struct completion_failure f = judge(c, h, known);
    if (f.status) {
        openai_reply_failure(h, &f);
        destroy(c);
        return;
    }
    http_wait(h, &waiter, c);
    if (c->k.asked == CREATE) {
        sessions_draw_id(c->service->sessions, c->k.session);
        begin_work(c);
    } else {
        find(c);
    }
}
