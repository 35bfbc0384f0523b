// See prompted.h.
#include "ws/openai/prompted.h"
#include <stdlib.h>
#include <string.h>

#define CANCEL_AFTER_MS 1

// --- the end ---

void prompted_free(struct prompted *p) {
    service_drop_follower(p->service, &p->follower);
    if (p->turns) p->ops->release(p);
    free(p->turns);
    free(p->owner);
    prompts_request_free(p->request);
    free(p);
}

void prompted_client_gone(void *ctx) {
    struct prompted *p = ctx;
    p->http = NULL;
    if (!p->working) prompted_free(p);
}

void prompted_refuse(struct prompted *p) {
    (p->streaming ? openai_stream_failure : openai_reply_failure)(p->http, &p->failure);
    prompted_free(p);
}

// --- as a follower ---

void prompted_push_later(struct prompted *p) {
    if (!follower_push_later(&p->service->followers, &p->follower))
        openai_no_memory(&p->failure); // the next event takes it further
}

struct prompted_turn *prompted_turn_at(const struct prompted *p, size_t i) {
    return (struct prompted_turn *)((char *)p->turns + i * p->turn_bytes);
}

static void on_answer(struct follower *f, const struct session_answer *a) {
    struct prompted *p = (struct prompted *)f;
    if (a->kind != ANSWER_ERROR) return;
    completion_failure_take(&p->failure, a);
    prompted_push_later(p);
}

// The session's turn, which is one of the last that were started. NULL: it has ended.
static struct prompted_turn *turn_of(const struct prompted *p, const struct session *s) {
    for (size_t i = p->n_started; i-- > 0;)
        if (strcmp(prompted_turn_at(p, i)->id, session_id(s)) == 0)
            return prompted_turn_at(p, i)->ended ? NULL : prompted_turn_at(p, i);
    return NULL;
}

static void on_ready(struct follower *f, struct session *s) {
    struct prompted *p = (struct prompted *)f;
    struct prompted_turn *t = turn_of(p, s);
    if (!t) return;
    t->session = s;
    prompted_push_later(p);
}

static void on_store_failed(struct follower *f, const char *message) {
    struct prompted *p = (struct prompted *)f;
    if (p->working || p->failure.status) return;
    completion_failure_set(&p->failure, "store_failed", message);
    prompted_push_later(p);
}

static void on_gone(struct follower *f, struct session *s) {
    struct prompted *p = (struct prompted *)f;
    struct prompted_turn *t = turn_of(p, s);
    if (!t) return;
    t->session = NULL;
    openai_fail(&p->failure, 500, "session_closed", NULL, "the prompt's session was deleted");
    prompted_push_later(p);
}

static bool is_drained(const struct follower *f) {
    const struct prompted *p = (const struct prompted *)f;
    for (size_t i = 0; i < p->n_started; i++)
        if (prompted_turn_at(p, i)->session) return false;
    return true;
}

// Takes the turn's events as far as the client's socket has room: the rest stays in the session, after the cursor.
static void take_events(struct prompted *p, struct prompted_turn *t) {
    struct session_event ev;
    while (t->session && !p->failure.status && (!p->streaming || http_stream_has_room(p->http))) {
        if (session_next_event(t->session, p->follower.client, p->ops->event_bytes(p), &ev) == 1)
            p->ops->take(p, t, &ev);
        else
            t->session = NULL; // on_ready comes
        if (!t->ended) continue;
        t->session = NULL;
        p->n_ended++;
    }
}

static void push(struct follower *f) {
    struct prompted *p = (struct prompted *)f;
    if (p->working) return;
    for (size_t i = 0; i < p->n_started; i++) take_events(p, prompted_turn_at(p, i));
    if (p->failure.status)
        prompted_refuse(p);
    else
        p->ops->step(p);
}

void prompted_push(void *p) {
    push(p);
}

static void on_end(struct follower *f) {
    struct prompted *p = (struct prompted *)f;
    if (p->working) return; // the reply is sent when the worker is done
    openai_fail(&p->failure, 503, "shutting_down", NULL, "the server is shutting down");
    prompted_refuse(p);
}

static const struct follower_ops follower_ops = {.on_answer = on_answer,
                                                 .on_ready = on_ready,
                                                 .on_store_failed = on_store_failed,
                                                 .on_gone = on_gone,
                                                 .push = push,
                                                 .drained = is_drained,
                                                 .end = on_end};

// --- the beginning ---

static struct turn_input input_of(const struct openai_prompt *p) {
    if (p->ids) return (struct turn_input){.kind = INPUT_IDS, .ids = p->ids, .n_ids = p->n_ids};
    return (struct turn_input){.kind = INPUT_TEXT, .text = p->text, .text_len = p->len};
}

void prompted_start(struct prompted *p, const struct openai_prompt *prompt, bool temporary,
                    bool scores) {
    const char *id = prompted_turn_at(p, p->n_started++)->id;
    struct request r = service_request(&p->follower, REQUEST_OPEN, p->owner, id);
    r.open.model = p->request->served->name;
    r.cancel_after_ms = CANCEL_AFTER_MS;
    r.temporary = temporary;
    r.for_turn = !temporary;
    service_submit(p->service, &r);
    if (p->failure.status) return;
    r = service_request(&p->follower, REQUEST_START, p->owner, id);
    r.turn = TURN_HEAD;
    r.input = input_of(prompt);
    r.sampling = &p->request->sampling;
    r.start.scores_input = scores;
    r.for_turn = !temporary;
    service_submit(p->service, &r);
}

// Takes the request. NULL: no memory, the request is freed.
static struct prompted *prompted_new(struct service *s, struct http *h,
                                     const struct prompted_ops *ops, size_t n) {
    struct prompted *p = calloc(1, ops->bytes);
    struct prompts_request *r = http_take_decoded(h);
    if (!p || (p->follower.ops = &follower_ops, followers_add(&s->followers, &p->follower)) < 0) {
        prompts_request_free(r);
        free(p);
        return NULL;
    }
    p->ops = ops;
    p->service = s;
    p->http = h;
    p->request = r;
    p->n = n;
    p->turn_bytes = ops->turn_bytes;
    p->turns = calloc(n, p->turn_bytes);
    p->owner = strdup(http_owner(h));
    if (p->turns && p->owner && ops->begin(p)) return p;
    prompted_free(p);
    return NULL;
}

void prompted_handle(struct service *s, struct http *h, const struct prompted_ops *ops, size_t n) {
    const struct prompts_request *r = http_decoded(h);
    if (r->failure.status) {
        openai_reply_failure(h, &r->failure);
        return;
    }
    struct prompted *p = prompted_new(s, h, ops, n);
    if (!p) {
        http_reply_error(h, 503, "overloaded", "no memory for the request", 1000);
        return;
    }
    http_wait(h, &ops->waiter, p);
    ops->step(p);
    service_poll_soon(s);
}
