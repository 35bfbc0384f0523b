// The record of one turn, or a session, read from the store. See responses_run.h.
#include "ws/openai/responses_run.h"
#include "ws/service.h"
#include <stdlib.h>

struct responses_lookup {
    struct follower follower; // first: its callbacks cast
    struct service *service;
    responses_lookup_fn done;          // of a turn
    responses_session_fn session_done; // of a session
    void *ctx;
    struct responses_record record;
    struct responses_session session;
    struct completion_failure failure;
    bool answered;
};

void responses_lookup_drop(struct responses_lookup *l) {
    if (!l) return;
    service_drop_follower(l->service, &l->follower);
    responses_record_release(&l->record);
    responses_session_release(&l->session);
    free(l);
}

static void push(struct follower *f) {
    struct responses_lookup *l = (struct responses_lookup *)f;
    struct responses_record record = l->record;
    struct completion_failure failure = l->failure;
    struct responses_session session = l->session;
    responses_lookup_fn done = l->done;
    responses_session_fn session_done = l->session_done;
    void *ctx = l->ctx;
    if (!l->answered) return;
    l->record = (struct responses_record){0};
    l->session = (struct responses_session){0};
    responses_lookup_drop(l);
    if (done)
        done(ctx, &record, &failure);
    else
        session_done(ctx, &session, &failure);
}

static void push_later(struct responses_lookup *l) {
    l->answered = true;
    follower_push_later(&l->service->followers, &l->follower);
}

static void take_session(struct responses_lookup *l, const struct session_record *r) {
    bool failed = false;
    l->session = (struct responses_session){.note = record_strdup(r->note, &failed),
                                            .model = record_strdup(r->model, &failed),
                                            .n_turns = r->n_turns,
                                            .created_ms = r->created_ms};
    if (failed) completion_no_memory(&l->failure);
}

static void on_answer(struct follower *f, const struct session_answer *a) {
    struct responses_lookup *l = (struct responses_lookup *)f;
    if (l->answered) return;
    if (a->kind == ANSWER_TURN && a->detail) {
        if (responses_record_copy(&l->record, a) < 0) completion_no_memory(&l->failure);
    } else if (a->kind == ANSWER_STATE) {
        take_session(l, &a->session.rec);
    } else if (a->kind == ANSWER_TURN || a->kind == ANSWER_ERROR) {
        // An unknown turn of a known session gets the same failure.
        bool unknown = a->code && strcmp(a->code, "invalid") == 0;
        completion_failure_set(&l->failure, unknown ? "not_found" : a->code, a->message);
        if (a->retry_after_ms) l->failure.retry_after_ms = a->retry_after_ms;
    } else {
        return;
    }
    push_later(l);
}

static void on_end(struct follower *f) {
    struct responses_lookup *l = (struct responses_lookup *)f;
    completion_failure_set(&l->failure, "shutting_down", "the server is shutting down");
    l->answered = true;
    push(f);
}

static const struct follower_ops follower_ops = {
    .on_answer = on_answer, .push = push, .end = on_end};

static struct responses_lookup *lookup_new(struct service *s, void *ctx) {
    struct responses_lookup *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    *l = (struct responses_lookup){.follower.ops = &follower_ops, .service = s, .ctx = ctx};
    if (followers_add(&s->followers, &l->follower) == 0) return l;
    free(l);
    return NULL;
}

static void ask(struct responses_lookup *l, enum request_kind kind, const char *owner,
                const char *session, int64_t turn) {
    struct request r = service_request(&l->follower, kind, owner, session);
    r.turn = turn;
    r.last = 1; // of a session's turns
    service_submit(l->service, &r);
}

struct responses_lookup *responses_lookup_start(struct service *s, const char *owner,
                                                const char *session, int64_t turn,
                                                responses_lookup_fn done, void *ctx) {
    struct responses_lookup *l = lookup_new(s, ctx);
    if (!l) return NULL;
    l->done = done;
    ask(l, REQUEST_TURN, owner, session, turn);
    return l;
}

struct responses_lookup *responses_lookup_session(struct service *s, const char *owner,
                                                  const char *session, responses_session_fn done,
                                                  void *ctx) {
    struct responses_lookup *l = lookup_new(s, ctx);
    if (!l) return NULL;
    l->session_done = done;
    ask(l, REQUEST_GET, owner, session, TURN_HEAD);
    return l;
}
