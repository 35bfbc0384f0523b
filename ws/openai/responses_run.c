// See responses_run.h. The states of a run:
//
//     LOOKING     reads the turns that the input's references name, then those that the response continues,
//                 newest first
//     CHECKING    a worker makes the conversation (responses_request_check)
//     CHECKED     the worker is done
//     RUNNING     the completion's events become the response's
//     ENDED       the owner has the end
#include "ws/openai/responses_run.h"
#include "base/array.h"
#include "ws/openai/conversation.h"
#include "ws/service.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LANE_RESPONSES ((uint64_t)6 << 60)
#define PAST_MAX 4096 // turns of a conversation that is made again

struct responses_run {
    struct follower follower; // first: its callbacks cast. It only wakes the run.
    struct service *service;
    char *owner;
    const struct responses_sink *sink;
    void *ctx;
    enum { LOOKING, CHECKING, CHECKED, RUNNING, ENDED } state;
    bool abandoned;                    // by its owner, while a worker has it
    struct responses_request *request; // NULL: it follows a turn
    struct responses_record followed;  // whose echo is the output's
    struct responses_lookup *lookup;
    struct responses_record *past; // (n_past) newest first
    size_t n_past, cap_past;
    struct responses_session conversation; // of the request; no note: none
    int64_t looking_at;                    // turn of it
    struct service_job job;
    struct completion *completion;
    struct responses_output output;
    struct completion_failure failure;
};

const struct responses_output *responses_run_output(const struct responses_run *run) {
    return &run->output;
}

int64_t responses_run_number(struct responses_run *run) {
    return run->output.sequence++;
}

static void drop_past(struct responses_run *run) {
    for (size_t i = 0; i < run->n_past; i++) responses_record_release(&run->past[i]);
    free(run->past);
    run->past = NULL;
    run->n_past = run->cap_past = 0;
}

static void destroy(struct responses_run *run) {
    followers_remove(&run->service->followers, &run->follower);
    responses_lookup_drop(run->lookup);
    completion_release(run->completion);
    drop_past(run);
    responses_session_release(&run->conversation);
    responses_output_release(&run->output);
    responses_record_release(&run->followed);
    responses_request_free(run->request);
    free(run->owner);
    free(run);
}

void responses_run_free(struct responses_run *run) {
    if (!run) return;
    run->abandoned = true;
    if (run->state == CHECKING) return; // the worker has it: freed afterwards
    destroy(run);
}

// --- the end ---------------------------------------------------------------

static void refuse(struct responses_run *run) {
    struct completion_failure *f = &run->failure;
    if (strcmp(f->code, "session_busy") == 0) strcpy(f->code, "response_in_progress");
    if (strcmp(f->code, "session_closed") == 0) strcpy(f->code, "conversation_closed");
    if (f->status == 409 && run->request && run->request->conversation[0]) {
        *f = (struct completion_failure){.retry_after_ms = f->retry_after_ms};
        openai_fail(f, 409, "conversation_locked", "conversation",
                    "Another response is under way in this conversation.");
    }
    run->state = ENDED;
    run->sink->refused(run->ctx, f);
}

static void refuse_no_memory(struct responses_run *run) {
    openai_no_memory(&run->failure);
    refuse(run);
}

static void refuse_previous(struct responses_run *run, const struct completion_failure *f) {
    const struct responses_id *previous = &run->request->previous;
    char id[RESPONSES_ID_MAX];
    responses_id_response(id, previous->session, previous->turn);
    if (f->status == 404) {
        responses_no_previous(&run->failure, id);
    } else {
        run->failure = *f;
        strcpy(run->failure.param, "previous_response_id");
    }
    refuse(run);
}

static void refuse_conversation(struct responses_run *run, const struct completion_failure *f) {
    char id[RESPONSES_ID_MAX];
    responses_id_conversation(id, run->request->conversation);
    if (f->status == 404) {
        responses_no_conversation(&run->failure, id);
    } else {
        run->failure = *f;
        strcpy(run->failure.param, "conversation");
    }
    refuse(run);
}

// --- running ---------------------------------------------------------------

static void take_event(struct responses_run *run, const struct completion_event *e) {
    if (e->kind == COMPLETION_FAILED && !*run->output.id)
        run->failure = *e->failure;
    else
        responses_output_take(&run->output, e);
}

void responses_run_pump(struct responses_run *run) {
    struct completion_event e;
    int64_t drawn_us = 0;
    bool any = false;
    if (run->state != RUNNING) return;
    while (run->output.status == RESPONSES_IN_PROGRESS && !run->failure.status &&
           run->sink->room(run->ctx) && completion_next(run->completion, &e) == 1) {
        take_event(run, &e);
        if (!drawn_us) drawn_us = e.drawn_us;
        any = true;
    }
    if (any && run->sink->sent && !run->sink->sent(run->ctx, drawn_us)) return;
    if (run->failure.status) {
        refuse(run);
    } else if (run->output.failed) {
        refuse_no_memory(run);
    } else if (run->output.status != RESPONSES_IN_PROGRESS) {
        run->state = ENDED;
        run->sink->ended(run->ctx);
    }
}

static void on_completion_ready(void *user, struct completion *c) {
    responses_run_pump(user);
}

static void start_completion(struct responses_run *run) {
    struct responses_request *q = run->request;
    struct completion_request *c = q->completion;
    c->note = responses_request_note(q);
    c->forget = q->forget;
    c->outlives = q->background;
    c->alone = !q->store && !c->session; // it must leave nothing in a session that is stored
    c->temporary = !q->store;
    c->stays = q->conversation[0];
    c->steady = true;
    run->completion = completion_start(run->service, run->owner, c, on_completion_ready, run);
    if (run->completion) {
        q->completion = NULL;
        run->state = RUNNING;
        return;
    }
    refuse_no_memory(run);
}

// --- checking --------------------------------------------------------------

// The messages of all items of the conversation.
static int conversation_messages(struct responses_run *run, cJSON *messages) {
    struct completion_failure failure = {0};
    cJSON *c = conversation_read(run->conversation.note), *items = cJSON_CreateArray();
    size_t left = run->n_past;
    int rc = c && items ? 0 : E_NOMEM;
    for (int64_t turn = 0; rc == 0 && turn <= run->conversation.n_turns; turn++) {
        struct responses_record *r = NULL;
        if (left > 0 && run->past[left - 1].turn == turn) r = &run->past[--left];
        if (r) rc = responses_record_read(r, run->service);
        if (r && !responses_record_in_conversation(r)) r = NULL;
        if (rc == 0) rc = conversation_chunk(c, run->request->conversation, turn, r, items);
    }
    if (rc == 0) rc = responses_items_read(messages, items, "conversation", &failure);
    cJSON_Delete(items);
    cJSON_Delete(c);
    return rc;
}

static int past_messages(struct responses_run *run, cJSON *messages) {
    int rc = 0;
    if (run->conversation.note) return conversation_messages(run, messages);
    for (size_t i = run->n_past; rc == 0 && i-- > 0;)
        rc = responses_record_messages(&run->past[i], messages);
    return rc;
}

static void check(struct follower *f) {
    struct responses_run *run = (struct responses_run *)f;
    struct responses_request *q = run->request;
    bool again = (run->n_past || run->conversation.note) && !q->completion->previous_session;
    cJSON *history = again ? cJSON_CreateArray() : NULL;
    int rc = again && !history ? E_NOMEM : history ? past_messages(run, history) : 0;
    if (q->references && responses_request_resolve(q, run->service) < 0) {
        cJSON_Delete(history);
        return;
    }
    if (rc == 0) {
        responses_request_check(q, history);
        return;
    }
    cJSON_Delete(history);
    if (rc == E_NOMEM)
        openai_no_memory(&q->failure);
    else
        openai_bad(&q->failure, q->conversation[0] ? "conversation" : "previous_response_id",
                   "leads to an input that is too long to be on record: it cannot go on with other "
                   "instructions or tools");
}

static void checked(struct follower *f) {
    struct responses_run *run = (struct responses_run *)f;
    run->state = CHECKED;
    drop_past(run);
    if (run->abandoned)
        destroy(run);
    else
        service_push(run->service, &run->follower);
}

static void begin_check(struct responses_run *run) {
    run->job = (struct service_job){.run = check, .done = checked};
    run->state = CHECKING;
    if (service_work(run->service, &run->follower, run->owner, LANE_RESPONSES, &run->job) == 0)
        return;
    run->state = LOOKING;
    completion_failure_set(&run->failure, "overloaded", "too many requests are being read");
    run->failure.retry_after_ms = 1000;
    refuse(run);
}

// --- what it continues -----------------------------------------------------

static void look(struct responses_run *run, const struct responses_id *id);

static void take_past(struct responses_run *run, struct responses_record *r) {
    struct responses_id id;
    const char *previous = responses_record_previous(r);
    if (responses_record_in_conversation(r)) {
        responses_record_release(r);
        openai_fail(&run->failure, 400, "invalid_value", "previous_response_id",
                    "The previous response was given in a conversation: with other "
                    "instructions or tools, name that conversation instead.");
        refuse(run);
        return;
    }
    // A warm-up's cache is in its session.
    if (run->n_past == 0 && run->request->extends && responses_record_is_warm_up(r))
        run->request->completion->session = strdup(r->session);
    run->past[run->n_past++] = *r;
    if (previous && responses_id_parse(previous, &id) && run->n_past < PAST_MAX)
        look(run, &id);
    else
        begin_check(run);
}

static bool continue_behind(struct responses_run *run, const struct responses_record *r) {
    struct completion_request *c = run->request->completion;
    c->previous_session = strdup(r->session);
    c->previous_turn = r->turn;
    c->previous_last_id = r->last_id;
    return c->previous_session != NULL;
}

// Its cache can be continued if the beginning of the model's input is the same.
static bool goes_on(struct responses_run *run, const struct responses_record *r) {
    struct responses_request *q = run->request;
    if (run->n_past > 0 || !q->extends) return false;
    if (responses_record_is_warm_up(r)) return false; // it has no answer to continue
    return responses_record_has_prefix(r, q->prefix) && continue_behind(run, r);
}

static void looked_up(void *ctx, struct responses_record *r, const struct completion_failure *f) {
    struct responses_run *run = ctx;
    struct completion_failure busy = {0};
    run->lookup = NULL;
    if (f->status) {
        refuse_previous(run, f);
    } else if (!r->finish[0]) {
        responses_record_release(r);
        completion_failure_set(&busy, "session_busy", "the previous response is in progress");
        refuse_previous(run, &busy);
    } else if (goes_on(run, r)) {
        responses_record_release(r);
        begin_check(run);
    } else if (responses_record_read(r, run->service) < 0 ||
               ARRAY_RESERVE(run->past, run->cap_past, run->n_past + 1) < 0) {
        responses_record_release(r);
        refuse_no_memory(run);
    } else {
        take_past(run, r);
    }
}

static void look(struct responses_run *run, const struct responses_id *id) {
    run->lookup =
        responses_lookup_start(run->service, run->owner, id->session, id->turn, looked_up, run);
    if (run->lookup) return;
    openai_no_memory(&run->failure);
    service_push(run->service, &run->follower);
}

// --- the conversation ------------------------------------------------------

// Turns of the session are read from the newest back. If the newest turn has seen all items, its cache is continued.
// Otherwise the conversation is rebuilt from all turns, and its words find the cache in the session
// (ws/completion/README.md).
static void look_back(struct responses_run *run, int64_t turn);

static bool conversation_goes_on(struct responses_run *run, const struct responses_record *r) {
    const struct responses_request *q = run->request;
    return run->n_past == 0 && responses_record_has_revision(r, q->prefix, q->revision) &&
           continue_behind(run, r);
}

static void looked_back(void *ctx, struct responses_record *r, const struct completion_failure *f) {
    struct responses_run *run = ctx;
    struct completion_failure why = {0};
    int64_t turn = run->looking_at;
    run->lookup = NULL;
    if (f->status && f->status != 404) { // 404: the turn was deleted
        refuse_conversation(run, f);
        return;
    }
    bool goes_on = !f->status && r->finish[0] && conversation_goes_on(run, r);
    if (f->status || goes_on) {
        responses_record_release(r);
    } else if (!r->finish[0]) {
        completion_failure_set(&why, "session_busy", NULL);
    } else if (run->n_past >= PAST_MAX) {
        completion_failure_set(&why, "invalid", "conversation has more than 4096 turns");
    } else if (ARRAY_RESERVE(run->past, run->cap_past, run->n_past + 1) < 0) {
        openai_no_memory(&why);
    } else {
        run->past[run->n_past++] = *r;
    }
    if (why.status) {
        responses_record_release(r);
        refuse_conversation(run, &why);
    } else if (goes_on) {
        begin_check(run);
    } else {
        look_back(run, turn - 1);
    }
}

static void look_back(struct responses_run *run, int64_t turn) {
    struct responses_request *q = run->request;
    run->looking_at = turn;
    if (turn >= 0) {
        run->lookup = responses_lookup_start(run->service, run->owner, q->conversation, turn,
                                             looked_back, run);
        if (run->lookup) return;
    } else if ((q->completion->session = strdup(q->conversation))) {
        begin_check(run);
        return;
    }
    refuse_no_memory(run);
}

static void conversation_found(void *ctx, struct responses_session *s,
                               const struct completion_failure *f) {
    struct responses_run *run = ctx;
    struct responses_request *q = run->request;
    struct completion_failure why = *f;
    run->lookup = NULL;
    run->conversation = *s;
    q->revision = conversation_note_revision(s->note);
    if (!why.status && q->revision < 0) completion_failure_set(&why, "not_found", NULL);
    if (why.status) {
        refuse_conversation(run, &why);
    } else if (strcmp(s->model, q->completion->served->name) != 0) {
        char message[160];
        snprintf(message, sizeof message, "The conversation is one of the model '%.64s'.",
                 s->model);
        openai_fail(&run->failure, 400, "invalid_value", "model", message);
        refuse(run);
    } else {
        look_back(run, s->n_turns - 1);
    }
}

static void look_for_conversation(struct responses_run *run) {
    run->lookup = responses_lookup_session(run->service, run->owner, run->request->conversation,
                                           conversation_found, run);
    if (run->lookup) return;
    openai_no_memory(&run->failure);
    service_push(run->service, &run->follower);
}

// --- where it begins -------------------------------------------------------

// Looks up what the request continues. false: it continues nothing.
static bool look_for_past(struct responses_run *run) {
    const struct responses_request *q = run->request;
    if (q->continues)
        look(run, &q->previous);
    else if (q->conversation[0])
        look_for_conversation(run);
    return q->continues || q->conversation[0];
}

static void references_known(void *ctx, const struct completion_failure *f) {
    struct responses_run *run = ctx;
    run->failure = *f;
    if (f->status)
        refuse(run);
    else if (!look_for_past(run))
        begin_check(run);
}

static void look_for_references(struct responses_run *run) {
    if (responses_references_look(run->request->references, run->service, run->owner,
                                  references_known, run) == 0)
        return;
    openai_no_memory(&run->failure);
    service_push(run->service, &run->follower);
}

// --- as a follower ---------------------------------------------------------

// The first step of a run, and its failure inside a call.
static void push(struct follower *f) {
    struct responses_run *run = (struct responses_run *)f;
    if (run->state == CHECKED) {
        run->failure = run->request->failure;
        if (run->failure.status)
            refuse(run);
        else
            start_completion(run);
    } else if (run->state == LOOKING && !run->lookup) {
        if (run->failure.status)
            refuse(run);
        else
            begin_check(run);
    }
}

static const struct follower_ops follower_ops = {
    .push = push}; // the completion and the lookup get the other calls

// --- starting --------------------------------------------------------------

static struct responses_run *run_new(struct service *s, const char *owner,
                                     const struct responses_sink *sink, void *ctx) {
    struct responses_run *run = calloc(1, sizeof *run);
    if (!run) return NULL;
    *run = (struct responses_run){
        .follower.ops = &follower_ops, .service = s, .sink = sink, .ctx = ctx};
    run->owner = strdup(owner);
    if (run->owner && followers_add(&s->followers, &run->follower) == 0) return run;
    free(run->owner);
    free(run);
    return NULL;
}

struct responses_run *responses_run_start(struct service *s, const char *owner,
                                          struct responses_request *r,
                                          const struct responses_sink *sink, void *ctx) {
    struct responses_run *run = run_new(s, owner, sink, ctx);
    if (!run) return NULL;
    run->request = r;
    responses_output_init(&run->output, r->echo, sink->event, ctx);
    run->output.silent = !r->generate;
    run->output.thinking = r->thinking;
    run->output.logprobs = r->completion->sampling->params.logprobs;
    if (*r->stream_id) run->output.stream_id = r->stream_id;
    if (r->references)
        look_for_references(run);
    else if (!look_for_past(run))
        service_push(run->service, &run->follower);
    return run;
}

struct responses_run *responses_run_follow(struct service *s, const char *owner,
                                           struct responses_record *r, int64_t after,
                                           const struct responses_sink *sink, void *ctx) {
    struct completion_request *c = responses_record_completion(r);
    struct responses_run *run = c ? run_new(s, owner, sink, ctx) : NULL;
    if (!run) {
        completion_request_free(c);
        responses_record_release(r);
        return NULL;
    }
    run->followed = *r;
    *r = (struct responses_record){0};
    responses_output_init(&run->output, run->followed.echo, sink->event, ctx);
    run->output.after = after;
    run->output.silent = responses_record_is_warm_up(&run->followed);
    run->output.thinking = responses_record_thinking(&run->followed);
    run->output.logprobs = run->followed.wants_logprobs;
    run->state = RUNNING;
    c->steady = c->outlives = true;
    const struct completion_turn turn = {.session = run->followed.session,
                                         .turn = run->followed.turn,
                                         .after = run->followed.seq_first - 1,
                                         .thinks = responses_record_thinks(&run->followed)};
    run->completion = completion_follow(s, owner, c, &turn, on_completion_ready, run);
    if (run->completion) return run;
    completion_request_free(c);
    destroy(run);
    return NULL;
}

void responses_run_cancel(struct responses_run *run) {
    if (run->completion && run->state == RUNNING) completion_cancel(run->completion);
}
