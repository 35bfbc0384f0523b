// A chat completion: one session, one turn, followed until its end. The session stays in the store,
// under the completion's id, and its turn is cancelled when the client goes. See openai.h.
#include "base/random_id.h"
#include "ws/openai/chat_request.h"
#include "ws/openai/chat_write.h"
#include "ws/openai/openai.h"
#include "ws/service.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENT_TEXT_BYTES 4096       // of one joined delta
#define ANSWER_MAX_BYTES (64 << 20) // of a whole answer
#define CANCEL_AFTER_MS 1
#define PING_US 15000000 // proxies cut what is silent for a minute

struct chat {
    struct follower follower; // first: its callbacks cast
    struct service *service;
    struct http *http;
    struct chat_request *request;
    char id[16 + RANDOM_ID_LEN];
    int64_t created_s, written_us;
    struct session *session; // while its events wait; NULL: none do
    struct buf text;         // of an answer that is not streamed
    bool streaming;
    // Why it failed; status 0: it has not.
    int status;
    char code[48], message[512];
    int64_t retry_after_ms;
};

// --- the end ---

static void chat_free(struct chat *c) {
    struct service *s = c->service;
    sessions_client_gone(s->sessions, c->follower.client);
    service_poll_soon(s);
    followers_remove(&s->followers, &c->follower);
    chat_request_free(c->request);
    buf_release(&c->text);
    free(c);
}

static void on_client_gone(void *ctx) {
    chat_free(ctx);
}

static void set_failure(struct chat *c, int status, const char *code, const char *message) {
    if (c->status) return; // the first is the cause
    c->status = status;
    snprintf(c->code, sizeof(c->code), "%s", code);
    snprintf(c->message, sizeof(c->message), "%s", message);
}

static void reply_failure(struct chat *c) {
    struct buf out;
    if (!c->streaming) {
        http_reply_error(c->http, c->status, c->code, c->message, c->retry_after_ms);
    } else {
        buf_init(&out, 8192);
        chat_write_stream_error(&out, c->status, c->code, c->message);
        http_stream_write(c->http, buf_z(&out), out.len);
        http_stream_end(c->http);
        buf_release(&out);
    }
    chat_free(c);
}

// --- events ---

static struct chat_head head_of(const struct chat *c) {
    const struct served_model *m = c->request->served;
    return (struct chat_head){.id = c->id,
                              .model = m->name,
                              .fingerprint = m->info->fingerprint,
                              .created_s = c->created_s,
                              .include_usage = c->request->include_usage};
}

static void stream_tx(struct chat *c, struct buf *out) {
    http_stream_write(c->http, buf_z(out), out->len);
    c->written_us = net_now_us();
    buf_release(out);
}

static void on_room(void *ctx);
static void on_tick(void *ctx, int64_t now_us);
static const struct http_waiter waiter = {
    .client_gone = on_client_gone, .writable = on_room, .tick = on_tick};

static void begin_stream(struct chat *c) {
    struct chat_head head = head_of(c);
    struct buf out;
    if (!c->request->stream || c->streaming) return;
    c->streaming = true;
    http_stream(c->http, "text/event-stream",
                "cache-control: no-cache\r\nx-accel-buffering: no\r\n", &waiter, c);
    buf_init(&out, 8192);
    chat_write_role(&out, &head);
    stream_tx(c, &out);
}

static void take_text(struct chat *c, const char *text, size_t len, int64_t drawn_us) {
    struct chat_head head = head_of(c);
    struct buf out;
    if (len == 0) return;
    if (!c->request->stream) {
        buf_add(&c->text, text, len);
        return;
    }
    begin_stream(c);
    buf_init(&out, ANSWER_MAX_BYTES);
    chat_write_delta(&out, &head, text, len);
    stream_tx(c, &out);
    service_count_token(c->service, drawn_us);
}

static void finish(struct chat *c, const struct turn_view *t) {
    struct chat_head head = head_of(c);
    struct buf out;
    take_text(c, t->text, t->text_len, 0);
    if (t->error_code) {
        set_failure(c, 500, t->error_code, t->error_message ? t->error_message : "the turn failed");
        reply_failure(c);
        return;
    }
    buf_init(&out, ANSWER_MAX_BYTES);
    if (c->request->stream) {
        begin_stream(c);
        chat_write_end(&out, &head, t);
        stream_tx(c, &out);
        http_stream_end(c->http);
    } else {
        chat_write_whole(&out, &head, buf_z(&c->text), c->text.len, t);
        http_reply_buf(c->http, 200, "application/json", "cache-control: no-store\r\n", &out);
        buf_release(&out);
    }
    chat_free(c);
}

// false: c is gone.
static bool take_event(struct chat *c, const struct session_event *ev) {
    switch (ev->kind) {
    case EVENT_STARTED:
        begin_stream(c);
        return true;
    case EVENT_DELTA:
        take_text(c, ev->text, ev->text_len, ev->drawn_us);
        return true;
    case EVENT_DONE:
        finish(c, &ev->turn);
        return false;
    default:
        return true;
    }
}

// As far as the client's socket has room: the rest stays in the session, behind its cursor.
static void push(struct follower *f) {
    struct chat *c = (struct chat *)f;
    struct session_event ev;
    if (c->status) {
        reply_failure(c);
        return;
    }
    while (c->session && (!c->streaming || http_stream_has_room(c->http))) {
        if (session_next_event(c->session, f->client, EVENT_TEXT_BYTES, &ev) != 1)
            c->session = NULL; // on_ready comes
        else if (!take_event(c, &ev))
            return;
    }
}

static void on_room(void *ctx) {
    push(ctx);
}

static void on_tick(void *ctx, int64_t now_us) {
    struct chat *c = ctx;
    if (!c->streaming || now_us - c->written_us < PING_US) return;
    c->written_us = now_us;
    http_stream_write(c->http, ": ping\n\n", 8);
}

// --- as a follower ---

static void push_later(struct chat *c) {
    if (follower_push_later(&c->service->followers, &c->follower)) return;
    set_failure(c, 503, "overloaded", "the server is out of memory");
    c->session = NULL; // and with no memory for it either, the client's patience ends it
}

static const struct failure {
    const char *code; // of the session service
    int status;
    const char *theirs;
} failures[] = {
    {"invalid", 400, "invalid_value"},
    {"session_full", 400, "context_length_exceeded"},
    {"unsupported", 400, "unsupported"},
    {"overloaded", 503, "overloaded"},
    {"rate_limited", 429, "rate_limit_exceeded"},
    {"limit_reached", 429, "insufficient_quota"},
    {"shutting_down", 503, "shutting_down"},
    {"store_failed", 503, "store_failed"},
};

static const struct failure *find_failure(const char *code) {
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++)
        if (strcmp(failures[i].code, code) == 0) return &failures[i];
    return NULL;
}

static void on_answer(struct follower *f, const struct session_answer *a) {
    struct chat *c = (struct chat *)f;
    if (a->kind != ANSWER_ERROR) return;
    const struct failure *known = find_failure(a->code);
    int status = known ? known->status : 500;
    const char *code = known ? known->theirs : a->code;
    if (!c->status) c->retry_after_ms = a->retry_after_ms;
    set_failure(c, status, code, a->message);
    push_later(c);
}

static void on_ready(struct follower *f, struct session *s) {
    struct chat *c = (struct chat *)f;
    c->session = s;
    push_later(c);
}

static void on_gone(struct follower *f, struct session *s) {
    struct chat *c = (struct chat *)f;
    c->session = NULL;
    set_failure(c, 500, "session_closed", "the completion's session was deleted");
    push_later(c);
}

static bool is_drained(const struct follower *f) {
    return !((const struct chat *)f)->session;
}

static void on_end(struct follower *f) {
    struct chat *c = (struct chat *)f;
    set_failure(c, 503, "shutting_down", "the server is shutting down");
    reply_failure(c);
}

static const struct follower_ops follower_ops = {.on_answer = on_answer,
                                                 .on_ready = on_ready,
                                                 .on_gone = on_gone,
                                                 .push = push,
                                                 .drained = is_drained,
                                                 .end = on_end};

// --- the beginning ---

static void submit(struct chat *c, const char *owner) {
    struct request r;
    struct sessions *ss = c->service->sessions;
    request_init(&r, REQUEST_OPEN);
    r.client = c->follower.client;
    r.owner = owner;
    r.session = c->id;
    r.model = c->request->served->name;
    r.system = c->request->system;
    r.cancel_after_ms = CANCEL_AFTER_MS;
    sessions_submit(ss, &r);
    if (c->status) return;
    request_init(&r, REQUEST_START);
    r.client = c->follower.client;
    r.owner = owner;
    r.session = c->id;
    r.turn = TURN_HEAD;
    r.input = c->request->input;
    r.sampling = &c->request->sampling;
    sessions_submit(ss, &r);
}

static struct chat *chat_new(struct service *s, struct http *h) {
    struct chat *c = calloc(1, sizeof(*c));
    char id[RANDOM_ID_LEN + 1];
    if (c) c->follower.ops = &follower_ops;
    if (!c || followers_add(&s->followers, &c->follower) < 0) {
        free(c);
        return NULL;
    }
    random_id(id);
    snprintf(c->id, sizeof(c->id), "chatcmpl-%s", id);
    c->service = s;
    c->http = h;
    c->created_s = clock_wall_us(&clock_system) / 1000000;
    buf_init(&c->text, ANSWER_MAX_BYTES);
    return c;
}

static void refuse(struct http *h, const struct chat_request *r) {
    struct buf out;
    buf_init(&out, 8192);
    chat_write_error(&out, r->status, r->code, r->err.text, r->param);
    http_reply_buf(h, r->status, "application/json", "cache-control: no-store\r\n", &out);
    buf_release(&out);
}

void openai_chat_handle(void *user, struct http *h) {
    struct service *s = user;
    const struct chat_request *r = http_decoded(h);
    if (r->status) {
        refuse(h, r);
        return;
    }
    struct chat *c = chat_new(s, h);
    if (!c) {
        http_reply_error(h, 503, "overloaded", "no memory for the request", 1000);
        return;
    }
    c->request = http_take_decoded(h);
    http_wait(h, &waiter, c);
    submit(c, http_owner(h));
    service_poll_soon(s);
}

void *openai_chat_decode(void *user, const struct http_payload *p) {
    const struct service *s = user;
    return chat_request_read(s, p->body, p->len, (size_t)s->config->max_message_bytes);
}

void openai_chat_release(void *decoded) {
    chat_request_free(decoded);
}

void openai_write_error(struct buf *out, int status, const char *code, const char *message) {
    const struct failure *known = find_failure(code);
    chat_write_error(out, status, known && known->status == status ? known->theirs : code, message,
                     NULL);
}
