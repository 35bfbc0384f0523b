// See shared.h. The service reads the session in pieces; the next piece is read when the client has room for it.
#include "ws/shared.h"
#include "ws/service.h"
#include <stdlib.h>
#include <string.h>

#define PIECE_MAX_BYTES ((size_t)1 << 20)
#define STREAM_HEADERS "cache-control: no-store\r\n"

struct shared_reply {
    struct follower follower; // first: its callbacks cast
    struct service *service;
    struct http *http;
    struct buf piece;
    bool begun, answered, last, waits_for_room;
    const char *code; // why there is no piece: a word of this file; NULL: there is one
    int64_t retry_after_ms;
};

void shared_put_headers(const struct http *h, struct buf *out) {
    buf_addz(out, "x-robots-tag: noindex\r\n");
}

static void reply_nothing(struct http *h) {
    http_reply_error(h, 404, "not_found", "nothing is shared at this address", 0);
}

static void destroy(struct shared_reply *r) {
    service_drop_follower(r->service, &r->follower);
    buf_release(&r->piece);
    free(r);
}

static void on_client_gone(void *ctx) {
    destroy(ctx);
}

static void reply_failed(struct shared_reply *r) {
    if (strcmp(r->code, "session_not_found") == 0)
        reply_nothing(r->http);
    else if (strcmp(r->code, "overloaded") == 0)
        http_reply_error(r->http, 503, r->code, "too many readers wait", r->retry_after_ms);
    else if (strcmp(r->code, "shutting_down") == 0)
        http_reply_error(r->http, 503, r->code, "the server is shutting down", r->retry_after_ms);
    else
        http_reply_error(r->http, 500, "internal", "this conversation cannot be read", 0);
    destroy(r);
}

static void on_room(void *ctx) {
    struct shared_reply *r = ctx;
    if (!r->waits_for_room) return;
    r->waits_for_room = false;
    service_push(r->service, &r->follower);
}

static const struct http_waiter waiter = {.client_gone = on_client_gone, .writable = on_room};

// False: r is gone.
static bool begin(struct shared_reply *r) {
    if (http_verb(r->http) != HTTP_HEAD) {
        http_stream(r->http, "application/json", STREAM_HEADERS, &waiter, r);
        r->begun = true;
        return true;
    }
    http_reply(r->http, 200, "application/json", STREAM_HEADERS, "", 0, false);
    destroy(r);
    return false;
}

static void push(struct follower *f) {
    struct shared_reply *r = (struct shared_reply *)f;
    if (r->answered && r->code) {
        if (r->begun)
            http_close(r->http); // the client must see that the rest is missing
        else
            reply_failed(r);
        return;
    }
    if (r->answered) {
        r->answered = false;
        if (!r->begun && !begin(r)) return;
        http_stream_buf(r->http, &r->piece);
        buf_init(&r->piece, PIECE_MAX_BYTES);
        if (r->last) {
            http_stream_end(r->http);
            destroy(r);
            return;
        }
    } else if (!r->begun) {
        return;
    }
    if (http_stream_has_room(r->http)) {
        sessions_continue(r->service->sessions, f->client);
        service_poll_soon(r->service);
    } else {
        r->waits_for_room = true;
    }
}

static void on_answer(struct follower *f, const struct session_answer *a) {
    static const char *const codes[] = {"session_not_found", "overloaded", "shutting_down"};
    struct shared_reply *r = (struct shared_reply *)f;
    if (a->kind == ANSWER_EXPORTED) {
        r->last = a->last;
        if (a->code || buf_add(&r->piece, a->archive, a->archive_len) < 0) r->code = "internal";
    } else if (a->kind == ANSWER_ERROR) {
        r->code = "internal";
        for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
            if (strcmp(a->code, codes[i]) == 0) r->code = codes[i];
        r->retry_after_ms = a->retry_after_ms;
    } else {
        return;
    }
    r->answered = true;
    follower_push_later(&r->service->followers, f);
}

static void on_end(struct follower *f) {
    struct shared_reply *r = (struct shared_reply *)f;
    r->code = "shutting_down";
    r->answered = true;
    push(f);
}

static const struct follower_ops ops = {.on_answer = on_answer, .push = push, .end = on_end};

// The turn of the path that the reader's part begins with; false: it is no number.
static bool first_turn(const struct http *h, size_t *first) {
    char from[12] = "0"; // a path has fewer turns than that
    *first = 0;
    if (!http_query(h, "from", from, sizeof from)) return true;
    if (!from[0] || from[strspn(from, "0123456789")]) return false;
    *first = (size_t)strtoull(from, NULL, 10);
    return true;
}

void shared_handle(void *service, struct http *h) {
    struct service *s = service;
    struct shared_reply *r = s->config->sharing ? calloc(1, sizeof *r) : NULL;
    if (!s->config->sharing) {
        reply_nothing(h);
        return;
    }
    size_t first;
    if (!first_turn(h, &first)) {
        free(r);
        http_reply_error(h, 400, "invalid", "from must be the number of a turn", 0);
        return;
    }
    if (r) *r = (struct shared_reply){.follower.ops = &ops, .service = s, .http = h};
    if (!r || followers_add(&s->followers, &r->follower) < 0) {
        free(r);
        http_reply_error(h, 503, "overloaded", "the server is out of memory", 1000);
        return;
    }
    buf_init(&r->piece, PIECE_MAX_BYTES);
    struct request ask = service_request(&r->follower, REQUEST_SHARED, "", NULL);
    ask.shared.token = http_path(h) + strlen(SHARED_PATH);
    ask.shared.first = first;
    http_wait(h, &waiter, r);
    service_submit(s, &ask);
}
