// POST /v1/responses and its token count. See responses.h.
#include "ws/openai/responses.h"
#include "base/json_form.h"
#include "base/workers.h"
#include "ws/openai/failure.h"
#include "ws/openai/responses_run.h"
#include "ws/service.h"
#include <stdlib.h>

#define REPLY_MAX_BYTES ((size_t)256 << 20)

struct posted {
    struct http *http;
    struct service *service;
    struct responses_run *run;
    const struct responses_request *request; // the run's
    bool streaming;                          // its head has been sent
    bool background;                         // its turn goes on without the client
};

// --- replies ---------------------------------------------------------------

void responses_http_reply(struct http *h, const struct responses_output *o) {
    struct buf out;
    buf_init(&out, REPLY_MAX_BYTES);
    responses_output_write(o, &out);
    if (out.error)
        http_reply_error(h, 503, "overloaded", "no memory for the reply", 1000);
    else
        http_reply_json(h, 200, &out);
    buf_release(&out);
}

void responses_http_event(struct http *h, const char *type, const struct buf *json) {
    struct buf out;
    buf_init(&out, REPLY_MAX_BYTES);
    buf_addf(&out, "event: %s\ndata: ", type);
    buf_add(&out, json->data, json->len);
    buf_addz(&out, "\n\n");
    http_stream_buf(h, &out);
}

// --- one that is under way -------------------------------------------------

static void posted_free(struct posted *p) {
    responses_run_free(p->run);
    free(p);
}

static void on_client_gone(void *ctx) {
    posted_free(ctx);
}

static void on_room(void *ctx) {
    struct posted *p = ctx;
    responses_run_pump(p->run);
}

static const struct http_waiter waiter = {
    .client_gone = on_client_gone, .writable = on_room, .ping = HTTP_EVENTS_PING};

static bool has_room(void *ctx) {
    const struct posted *p = ctx;
    return !p->streaming || http_stream_has_room(p->http);
}

static void send_event(void *ctx, const char *type, const struct buf *json) {
    struct posted *p = ctx;
    if (!p->streaming) http_stream(p->http, "text/event-stream", HTTP_EVENTS_HEADERS, &waiter, p);
    p->streaming = true;
    responses_http_event(p->http, type, json);
}

static bool on_sent(void *ctx, int64_t drawn_us) {
    struct posted *p = ctx;
    service_count_token(p->service, drawn_us);
    return true;
}

// A background response is sent as soon as it has an id.
static bool on_taken(void *ctx, int64_t drawn_us) {
    struct posted *p = ctx;
    const struct responses_output *o = responses_run_output(p->run);
    if (!p->background || !*o->id) return true;
    responses_http_reply(p->http, o);
    posted_free(p);
    return false;
}

static void on_refused(void *ctx, const struct completion_failure *f) {
    struct posted *p = ctx;
    struct buf out;
    if (!p->streaming) {
        openai_reply_failure(p->http, f);
    } else {
        buf_init(&out, 16384);
        responses_write_stream_error(&out, responses_run_output(p->run)->sequence, f);
        responses_http_event(p->http, "error", &out);
        buf_release(&out);
        http_stream_end(p->http);
    }
    posted_free(p);
}

static void on_ended(void *ctx) {
    struct posted *p = ctx;
    if (p->streaming)
        http_stream_end(p->http);
    else
        responses_http_reply(p->http, responses_run_output(p->run));
    posted_free(p);
}

// The summary of a conversation that is compacted.
static void on_summarized(void *ctx) {
    struct posted *p = ctx;
    const struct responses_output *o = responses_run_output(p->run);
    struct completion_failure f = {0};
    struct buf out;
    buf_init(&out, REPLY_MAX_BYTES);
    responses_output_write_compaction(o, p->request->said, &out);
    if (o->status == RESPONSES_FAILED)
        openai_fail(&f, 500, "server_error", NULL, o->error_message);
    else if (out.error)
        openai_no_memory(&f);
    if (f.status)
        openai_reply_failure(p->http, &f);
    else
        http_reply_json(p->http, 200, &out);
    buf_release(&out);
    posted_free(p);
}

static const struct responses_sink streamed = {.room = has_room,
                                               .event = send_event,
                                               .sent = on_sent,
                                               .refused = on_refused,
                                               .ended = on_ended};
static const struct responses_sink whole = {
    .room = has_room, .sent = on_taken, .refused = on_refused, .ended = on_ended};
static const struct responses_sink summary = {
    .room = has_room, .refused = on_refused, .ended = on_summarized};

// --- the request -----------------------------------------------------------

void openai_responses_handle(void *user, struct http *h) {
    struct service *s = user;
    const struct responses_request *r = http_decoded(h);
    if (r->failure.status) {
        openai_reply_failure(h, &r->failure);
        return;
    }
    struct posted *p = calloc(1, sizeof *p);
    struct responses_request *taken = http_take_decoded(h);
    char session[SESSION_ID_MAX + 1];
    completion_session_name(http_request_head(h), session);
    if (p && responses_request_name(taken, session)) {
        const struct responses_sink *sink = taken->compacts ? &summary
                                            : taken->stream ? &streamed
                                                            : &whole;
        *p = (struct posted){
            .http = h, .service = s, .request = taken, .background = taken->background};
        p->run = responses_run_start(s, http_owner(h), taken, sink, p);
    }
    if (!p || !p->run) {
        free(p);
        responses_request_free(taken);
        http_reply_error(h, 503, "overloaded", "no memory for the request", 1000);
        return;
    }
    http_wait(h, &waiter, p);
}

void *openai_responses_decode(void *user, const struct http_payload *p) {
    const struct service *s = user;
    return responses_request_read(s, p, RESPONSES_HTTP);
}

void *openai_responses_compact_decode(void *user, const struct http_payload *p) {
    return responses_request_read(user, p, RESPONSES_COMPACT);
}

// --- the count -------------------------------------------------------------

struct counted {
    struct http_completion x; // first
    int64_t n_tokens;
};

void *openai_responses_count_decode(void *user, const struct http_payload *p) {
    struct http_completion_request *in = calloc(1, sizeof *in);
    struct responses_request *r = in ? responses_request_read(user, p, RESPONSES_COUNT) : NULL;
    if (!r) {
        free(in);
        return NULL;
    }
    if (r->continues || r->conversation[0])
        openai_bad(&r->failure, r->continues ? "previous_response_id" : "conversation",
                   "is not counted here: send the conversation as input");
    if (r->references)
        openai_bad(&r->failure, "input",
                   "is not counted here with items that it names by their ids: send them in full");
    if (!r->failure.status && responses_request_check(r, NULL) == 0) {
        in->request = r->completion;
        in->request->counts = true;
        r->completion = NULL;
    }
    in->failure = r->failure;
    responses_request_free(r);
    return in;
}

static int take_count(struct http_completion *x, const struct completion_event *e,
                      struct buf *out) {
    ((struct counted *)x)->n_tokens = e->usage.prompt_tokens;
    return 0;
}

static void write_count(struct http_completion *x, struct buf *out) {
    json_form_to(out, "{object:'response.input_tokens',input_tokens:%ld}",
                 ((const struct counted *)x)->n_tokens);
}

static const struct dialect count_dialect = {
    .bytes = sizeof(struct counted),
    .waiter = {.client_gone = http_completion_client_gone},
    .release_request = http_completion_request_free,
    .take = take_count,
    .write_whole = write_count,
    .reply_failure = openai_reply_failure,
};

void openai_responses_count_handle(void *user, struct http *h) {
    http_completion_handle(user, h, &count_dialect);
}
