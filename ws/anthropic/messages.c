// POST /v1/messages: a conversation's next answer, followed until its end; and the exact count of a
// conversation's tokens. See anthropic.h.
#include "ws/anthropic/anthropic.h"
#include "ws/anthropic/messages_request.h"
#include "ws/anthropic/messages_write.h"
#include "ws/anthropic/reply.h"
#include "ws/service.h"
#include <stdlib.h>
#include <string.h>

#define ANSWER_MAX_BYTES (64 << 20) // of a whole answer

struct decoded {                        // a request that was read, and checked against its model
    struct completion_request *request; // NULL: refused
    struct completion_failure failure;
    char *model;
    int32_t max_tokens;
    bool stream, warms_up;
    uint64_t key[2];
};

struct exchange {
    struct service *service;
    struct http *http;
    struct decoded *decoded;
    struct completion *completion;
    struct message_writer writer;
    char request_id[REQUEST_ID_MAX], session[SESSION_ID_MAX + 1];
    bool streaming, counts;
};

// --- reading, on a worker ---

// Moves what was read into the request.
static void fill_request(struct completion_request *to, struct messages_request *r) {
    to->messages = r->messages;
    to->tools = r->tools;
    to->template_args = r->template_args;
    to->format = r->format;
    to->tool_choice = r->choice;
    to->tool_name = r->tool_name;
    to->no_parallel_tool_calls = r->no_parallel_tool_calls;
    to->thinking = r->thinking;
    to->thinking_budget = r->thinking_budget > 0 ? r->thinking_budget : -1;
    to->sampling = r->sampling;
    if (r->warms_up) { // what the answer would have to be does not matter
        to->alone = to->temporary = to->forget = true;
        to->tool_choice = r->choice == TOOLS_NONE ? TOOLS_NONE : TOOLS_AUTO;
        cJSON_Delete(r->format);
        to->format = NULL;
    }
    r->messages = r->tools = r->template_args = r->format = NULL;
    r->tool_name = NULL;
    r->sampling = NULL;
}

// The model that the request names, or the server's only one.
static const struct served_model *hold_model(struct messages_request *r, const struct service *s) {
    struct err err = {0};
    const struct served_model *served = service_hold_asked_model(s, r->model, &err);
    if (served) return served;
    messages_refuse(r, "model: %s%s", err.text,
                    err.code == E_NOTFOUND ? "; GET /v1/models lists those of this server." : "");
    if (err.code != E_NOTFOUND) return NULL;
    r->failure.status = 404;
    snprintf(r->failure.code, sizeof r->failure.code, "not_found");
    return NULL;
}

static struct completion_request *make_request(struct messages_request *r, const struct service *s,
                                               const struct owner *owner,
                                               struct completion_failure *f) {
    const struct served_model *served = hold_model(r, s);
    struct completion_request *to = served ? completion_request_new() : NULL;
    if (!served) {
        *f = r->failure;
        return NULL;
    }
    if (!to) {
        placement_drop(served);
        messages_no_memory(r);
        *f = r->failure;
        return NULL;
    }
    to->served = served;
    to->owner = owner;
    fill_request(to, r);
    if (completion_check(to, f)) return to;
    completion_request_free(to);
    return NULL;
}

static struct decoded *decode(const struct service *s, const struct http_payload *p,
                              enum messages_purpose purpose) {
    struct messages_request r;
    struct decoded *d = calloc(1, sizeof *d);
    if (!d) return NULL;
    sessions_secret(s->sessions, d->key);
    messages_request_read(&r, purpose, p->body, p->len);
    d->failure = r.failure;
    d->stream = r.stream;
    d->warms_up = r.warms_up;
    d->max_tokens = r.sampling && !r.warms_up ? r.sampling->params.max_tokens : 0;
    if (!r.failure.status) d->request = make_request(&r, s, p->owner, &d->failure);
    d->model = d->request && !*r.model ? strdup(d->request->served->name) : r.model;
    if (d->model == r.model) r.model = NULL;
    messages_request_release(&r);
    if (d->request) d->request->counts = purpose == MESSAGES_COUNT;
    return d;
}

void *anthropic_messages_decode(void *user, const struct http_payload *p) {
    return decode(user, p, MESSAGES_ANSWER);
}

void *anthropic_count_decode(void *user, const struct http_payload *p) {
    return decode(user, p, MESSAGES_COUNT);
}

void anthropic_messages_release(void *decoded) {
    struct decoded *d = decoded;
    if (!d) return;
    completion_request_free(d->request);
    free(d->model);
    free(d);
}

// --- the end ---

static void exchange_free(struct exchange *x) {
    completion_release(x->completion);
    message_writer_release(&x->writer);
    anthropic_messages_release(x->decoded);
    free(x);
}

static void on_client_gone(void *ctx) {
    exchange_free(ctx);
}

static void end_stream(struct exchange *x) {
    http_stream_end(x->http);
    exchange_free(x);
}

static void fail(struct exchange *x, const struct completion_failure *f) {
    char sentence[600];
    struct buf out;
    if (!x->streaming) {
        http_reply_error(x->http, f->status, f->code, f->message, f->retry_after_ms);
        exchange_free(x);
        return;
    }
    buf_init(&out, 8192);
    message_write_stream_error(&out, anthropic_status(f->status, f->code), f->code,
                               anthropic_sentence(f->code, f->message, sentence), x->request_id);
    http_stream_buf(x->http, &out);
    end_stream(x);
}

static void put_headers(const struct exchange *x, struct buf *extra) {
    anthropic_put_headers(extra, x->http, x->request_id);
    buf_addf(extra, "x-session-id: %s\r\n", x->session);
}

static void reply_whole(struct exchange *x) {
    struct buf out, extra;
    buf_init(&out, ANSWER_MAX_BYTES);
    buf_init(&extra, 2048);
    message_write_whole(&x->writer, &out);
    buf_addz(&extra, "cache-control: no-store\r\n");
    put_headers(x, &extra);
    http_reply_buf(x->http, 200, "application/json", buf_z(&extra), &out);
    buf_release(&out);
    buf_release(&extra);
    exchange_free(x);
}

// --- events ---

static void on_room(void *ctx);
static const struct http_waiter waiter = {.client_gone = on_client_gone,
                                          .writable = on_room,
                                          .ping = "event: ping\ndata: {\"type\":\"ping\"}\n\n"};

// Begins the stream with the first event, so that an earlier refusal has its HTTP status.
static void begin_stream(struct exchange *x) {
    struct buf extra;
    if (!x->decoded->stream || x->streaming) return;
    x->streaming = true;
    buf_init(&extra, 2048);
    buf_addz(&extra, HTTP_EVENTS_HEADERS);
    put_headers(x, &extra);
    http_stream(x->http, "text/event-stream; charset=utf-8", buf_z(&extra), &waiter, x);
    buf_release(&extra);
}

static void stream_event(struct exchange *x, const struct completion_event *e) {
    struct buf out;
    buf_init(&out, ANSWER_MAX_BYTES);
    message_write_event(&x->writer, e, &out);
    if (x->streaming && out.len) {
        http_stream_buf(x->http, &out);
        service_count_token(x->service, e->drawn_us);
    }
    buf_release(&out);
}

static bool was_cancelled(const struct exchange *x) {
    return x->writer.finish == COMPLETION_CANCELLED;
}

static void reply_count(struct exchange *x, int64_t n_tokens) {
    struct buf out;
    buf_init(&out, 256);
    message_write_count(&out, n_tokens);
    anthropic_reply(x->http, &out);
    exchange_free(x);
}

// false: x is gone.
static bool take_event(struct exchange *x, const struct completion_event *e) {
    static const struct completion_failure cancelled = {
        .status = 500, .code = "error", .message = "the turn was cancelled in its session"};
    if (e->kind == COMPLETION_FAILED || (e->kind == COMPLETION_DONE && was_cancelled(x))) {
        fail(x, e->kind == COMPLETION_FAILED ? e->failure : &cancelled);
        return false;
    }
    if (x->counts) {
        reply_count(x, e->usage.prompt_tokens);
        return false;
    }
    if (e->kind == COMPLETION_STARTED) snprintf(x->session, sizeof x->session, "%s", e->session);
    begin_stream(x);
    stream_event(x, e);
    if (e->kind != COMPLETION_DONE) return true;
    if (x->streaming)
        end_stream(x);
    else
        reply_whole(x);
    return false;
}

// Sends as far as the client's socket has room: the rest stays in the completion.
static void push(struct exchange *x) {
    struct completion_event e;
    while (!x->streaming || http_stream_has_room(x->http))
        if (completion_next(x->completion, &e) != 1 || !take_event(x, &e)) return;
}

static void on_room(void *ctx) {
    push(ctx);
}

static void on_ready(void *user, struct completion *c) {
    push(user);
}

// --- the beginning ---

static struct exchange *exchange_new(struct service *s, struct http *h) {
    struct exchange *x = calloc(1, sizeof *x);
    if (!x) return NULL;
    x->service = s;
    x->http = h;
    x->decoded = http_take_decoded(h);
    message_writer_init(&x->writer, ANSWER_MAX_BYTES);
    x->writer.model = x->decoded->model;
    x->writer.key = x->decoded->key;
    x->writer.max_tokens = x->decoded->max_tokens;
    x->writer.stream = x->decoded->stream;
    x->writer.silent = x->decoded->warms_up;
    x->counts = x->decoded->request->counts;
    anthropic_request_id(x->request_id);
    return x;
}

static bool name_session(struct completion_request *r, const struct http *h) {
    char name[SESSION_ID_MAX + 1];
    if (r->alone) return true; // its cache serves every session
    completion_session_name(h, name);
    if (!*name) return true;
    r->session = strdup(name);
    return r->session;
}

void anthropic_messages_handle(void *user, struct http *h) {
    struct service *s = user;
    const struct decoded *d = http_decoded(h);
    if (!d->request) {
        http_reply_error(h, d->failure.status, d->failure.code, d->failure.message,
                         d->failure.retry_after_ms);
        return;
    }
    struct exchange *x = name_session(d->request, h) ? exchange_new(s, h) : NULL;
    if (x) http_wait(h, &waiter, x);
    if (x) x->completion = completion_start(s, http_owner(h), x->decoded->request, on_ready, x);
    if (x && x->completion) {
        x->decoded->request = NULL;
        service_poll_soon(s);
        return;
    }
    http_reply_error(h, 503, "overloaded", "no memory for the request", 1000);
    if (x) exchange_free(x);
}
