// See prompted.h.
#include "ws/openai/prompted.h"
#include <stdlib.h>
#include <string.h>

#define CANCEL_AFTER_MS 1

// --- the end ---

void prompted_free(struct prompted *p) {
    p->ops->release(p);
    turn_batch_release(&p->batch);
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

static void no_memory(struct turn_batch *b) {
    openai_no_memory(&((struct prompted *)b)->failure);
}

static void on_answer(struct follower *f, const struct session_answer *a) {
    struct prompted *p = (struct prompted *)f;
    if (a->kind != ANSWER_ERROR) return;
    completion_failure_take(&p->failure, a);
    turn_batch_push_later(&p->batch);
}

static void on_store_failed(struct follower *f, const char *message) {
    struct prompted *p = (struct prompted *)f;
    if (p->working || p->failure.status) return;
    completion_failure_set(&p->failure, "store_failed", message);
    turn_batch_push_later(&p->batch);
}

static void on_gone(struct follower *f, struct session *s) {
    struct prompted *p = (struct prompted *)f;
    struct batch_turn *t = turn_batch_find(&p->batch, session_id(s));
    if (!t || t->ended) return;
    t->session = NULL;
    openai_fail(&p->failure, 500, "session_closed", NULL, "the prompt's session was deleted");
    turn_batch_push_later(&p->batch);
}

static bool has_room(const struct turn_batch *b) {
    const struct prompted *p = (const struct prompted *)b;
    return !p->failure.status && (!p->streaming || http_stream_has_room(p->http));
}

static void take(struct turn_batch *b, struct batch_turn *t, const struct session_event *ev) {
    struct prompted *p = (struct prompted *)b;
    p->ops->take(p, t, ev);
    p->n_ended += t->ended;
}

static void push(struct follower *f) {
    struct prompted *p = (struct prompted *)f;
    if (p->working) return;
    turn_batch_pull(&p->batch, p->ops->event_bytes(p), has_room, take);
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
                                                 .on_ready = turn_batch_on_ready,
                                                 .on_store_failed = on_store_failed,
                                                 .on_gone = on_gone,
                                                 .push = push,
                                                 .drained = turn_batch_is_drained,
                                                 .end = on_end,
                                                 .sole = true};

// --- the beginning ---

static struct turn_input input_of(const struct openai_prompt *p) {
    if (p->ids) return (struct turn_input){.kind = INPUT_IDS, .ids = p->ids, .n_ids = p->n_ids};
    return (struct turn_input){.kind = INPUT_TEXT, .text = p->text, .text_len = p->len};
}

void prompted_start(struct prompted *p, const struct openai_prompt *prompt, bool temporary,
                    bool scores) {
    const char *id = turn_batch_at(&p->batch, p->batch.n_started++)->id;
    struct request r = service_request(&p->batch.follower, REQUEST_START, p->batch.owner, id);
    r.start.in = START_IN_NEW;
    r.start.open.served = p->request->served;
    r.cancel_after_ms = CANCEL_AFTER_MS;
    r.temporary = temporary;
    r.input = input_of(prompt);
    r.sampling = &p->request->sampling;
    r.start.scores_input = scores;
    service_submit(p->batch.service, &r);
}

// Takes the request. NULL: no memory, the request is freed.
static struct prompted *prompted_new(struct service *s, struct http *h,
                                     const struct prompted_ops *ops, size_t n) {
    struct prompted *p = calloc(1, ops->bytes);
    struct prompts_request *r = http_take_decoded(h);
    if (!p) goto fail;
    p->batch = (struct turn_batch){.follower.ops = &follower_ops,
                                   .service = s,
                                   .n = n,
                                   .turn_bytes = ops->turn_bytes,
                                   .no_memory = no_memory};
    if (turn_batch_init(&p->batch, http_owner(h)) < 0) goto fail;
    p->ops = ops;
    p->http = h;
    p->request = r;
    if (ops->begin(p)) return p;
    prompted_free(p);
    return NULL;
fail:
    prompts_request_free(r);
    free(p);
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
