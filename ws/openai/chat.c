// POST /v1/chat/completions: a completion (ws/completion) in OpenAI's form, whole or streamed. Its id
// names the session and the turn (completion_id); x-session-id names the session too. See openai.h.
#include "ws/net/http.h"
#include "ws/openai/chat_request.h"
#include "ws/openai/chat_write.h"
#include "ws/openai/openai.h"
#include "ws/service.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHOLE_MAX_BYTES ((size_t)256 << 20)
#define CHUNK_MAX_BYTES ((size_t)64 << 20)
#define HEADERS_BYTES 256

struct chat {
    struct service *service;
    struct http *http;
    struct completion *completion;
    const struct served_model *served; // the request's
    bool stream, include_usage, streaming;
    char id[COMPLETION_ID_MAX], session[SESSION_ID_MAX + 1];
    int64_t created_s;
    struct chat_answer *answers; // (n) of a completion that is not streamed
    size_t n;
};

// --- the end ---

static void chat_free(struct chat *c) {
    completion_release(c->completion);
    for (size_t i = 0; c->answers && i < c->n; i++) chat_answer_release(&c->answers[i]);
    free(c->answers);
    free(c);
}

static void on_client_gone(void *ctx) {
    chat_free(ctx);
}

static void fail(struct chat *c, const struct completion_failure *failure) {
    struct completion_failure f = *failure;
    chat_name_param(&f);
    if (c->streaming)
        openai_stream_failure(c->http, &f);
    else
        openai_reply_failure(c->http, &f);
    chat_free(c);
}

// --- events ---

static struct answer_head head_of(const struct chat *c) {
    return (struct answer_head){.id = c->id,
                                .model = c->served->name,
                                .fingerprint = c->served->info->fingerprint,
                                .created_s = c->created_s,
                                .include_usage = c->include_usage};
}

static void on_room(void *ctx);
static const struct http_waiter waiter = {
    .client_gone = on_client_gone, .writable = on_room, .ping = HTTP_EVENTS_PING};

static void begin(struct chat *c, const struct completion_event *ev) {
    char headers[HEADERS_BYTES];
    struct answer_head head = head_of(c);
    struct buf out;
    if (c->id[0]) return;
    snprintf(c->session, sizeof c->session, "%s", ev->session);
    completion_id(c->id, "chatcmpl-", ev->session, ev->turn);
    if (!c->stream) return;
    snprintf(headers, sizeof headers, HTTP_EVENTS_HEADERS "x-session-id: %s\r\n", c->session);
    c->streaming = true;
    http_stream(c->http, "text/event-stream", headers, &waiter, c);
    buf_init(&out, CHUNK_MAX_BYTES);
    for (size_t i = 0; i < c->n; i++) chat_write_role(&out, &head, (int32_t)i);
    http_stream_buf(c->http, &out);
}

// false: c is gone.
static bool take_part(struct chat *c, const struct completion_event *ev) {
    static const struct completion_failure no_memory = {
        .status = 503, .code = "overloaded", .message = "the server is out of memory"};
    struct answer_head head = head_of(c);
    struct buf out;
    begin(c, ev);
    if (!c->stream) {
        struct chat_answer *a = &c->answers[(size_t)ev->answer < c->n ? ev->answer : 0];
        if (chat_answer_take(a, ev) == 0) return true;
        fail(c, &no_memory);
        return false;
    }
    buf_init(&out, CHUNK_MAX_BYTES);
    chat_write_event(&out, &head, ev);
    http_stream_buf(c->http, &out);
    service_count_token(c->service, ev->drawn_us);
    return true;
}

static void finish(struct chat *c, const struct completion_event *ev) {
    char headers[HEADERS_BYTES];
    struct answer_head head = head_of(c);
    struct buf out;
    begin(c, ev);
    buf_init(&out, WHOLE_MAX_BYTES);
    if (c->stream) {
        chat_write_end(&out, &head, &ev->usage);
        http_stream_buf(c->http, &out);
        http_stream_end(c->http);
    } else {
        chat_write_whole(&out, &head, c->answers, c->n, &ev->usage);
        snprintf(headers, sizeof headers, "cache-control: no-store\r\nx-session-id: %s\r\n",
                 c->session);
        http_reply_buf(c->http, 200, "application/json", headers, &out);
        buf_release(&out);
    }
    chat_free(c);
}

// Sends as far as the client's socket has room: the rest stays in the session, after the cursor.
static void take_events(void *user, struct completion *completion) {
    struct chat *c = user;
    struct completion_event ev;
    while ((!c->streaming || http_stream_has_room(c->http)) &&
           completion_next(completion, &ev) == 1) {
        switch (ev.kind) {
        case COMPLETION_STARTED:
            begin(c, &ev);
            break;
        case COMPLETION_DONE:
            finish(c, &ev);
            return;
        case COMPLETION_FAILED:
            fail(c, ev.failure);
            return;
        default:
            if (!take_part(c, &ev)) return;
        }
    }
}

static void on_room(void *ctx) {
    struct chat *c = ctx;
    take_events(c, c->completion);
}

// --- the beginning ---

static struct chat *chat_new(struct service *s, struct http *h, const struct chat_request *r) {
    struct chat *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    *c = (struct chat){.service = s,
                       .http = h,
                       .served = r->request->served,
                       .stream = r->stream,
                       .include_usage = r->include_usage,
                       .n = r->n,
                       .created_s = clock_wall_us(&clock_system) / 1000000};
    if (!c->stream && !(c->answers = calloc(c->n, sizeof *c->answers))) {
        free(c);
        return NULL;
    }
    bool logprobs = r->request->sampling->params.logprobs;
    for (size_t i = 0; c->answers && i < c->n; i++) chat_answer_init(&c->answers[i], logprobs);
    return c;
}

void openai_chat_handle(void *user, struct http *h) {
    struct service *s = user;
    struct chat_request *r = http_decoded(h);
    char session[SESSION_ID_MAX + 1];
    if (r->failure.status) {
        openai_reply_failure(h, &r->failure);
        return;
    }
    completion_session_name(h, session);
    if (session[0]) r->request->session = strdup(session);
    struct chat *c = chat_new(s, h, r);
    if (c) c->completion = completion_start(s, http_owner(h), r->request, take_events, c);
    if (!c || !c->completion) {
        if (c) chat_free(c);
        http_reply_error(h, 503, "overloaded", "no memory for the request", 1000);
        return;
    }
    r->request = NULL; // the completion's now
    http_wait(h, &waiter, c);
}

void *openai_chat_decode(void *user, const struct http_payload *p) {
    const struct service *s = user;
    return chat_request_read(s, p);
}

void openai_chat_release(void *decoded) {
    chat_request_free(decoded);
}
