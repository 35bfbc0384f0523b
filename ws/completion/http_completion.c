// See http_completion.h.
#include "ws/completion/http_completion.h"
#include "ws/service.h"
#include <stdlib.h>
#include <string.h>

#define REPLY_MAX_BYTES ((size_t)256 << 20)
#define HEADERS_BYTES 2048

// --- the end ---

void http_completion_request_free(void *r) {
    struct http_completion_request *in = r;
    if (!in) return;
    completion_request_free(in->request);
    free(in);
}

static void http_completion_free(struct http_completion *x) {
    completion_release(x->completion);
    if (x->dialect->release) x->dialect->release(x);
    x->dialect->release_request(x->in);
    free(x);
}

void http_completion_client_gone(void *x) {
    http_completion_free(x);
}

static void fail(struct http_completion *x, const struct completion_failure *failure) {
    struct completion_failure f = *failure;
    struct buf out;
    if (x->dialect->name_param) x->dialect->name_param(&f);
    if (x->streaming) {
        buf_init(&out, REPLY_MAX_BYTES);
        x->dialect->write_failure(x, &f, &out);
        http_stream_buf(x->http, &out);
        http_stream_end(x->http);
    } else {
        x->dialect->reply_failure(x->http, &f);
    }
    http_completion_free(x);
}

// --- events ---

static void put_headers(const struct http_completion *x, struct buf *extra) {
    if (x->dialect->put_headers) x->dialect->put_headers(x, extra);
    if (*x->session) buf_addf(extra, "x-session-id: %s\r\n", x->session);
}

// A stream begins with the first event, so that an earlier refusal has its HTTP status.
static void begin_stream(struct http_completion *x) {
    struct buf extra;
    x->streaming = true;
    buf_init(&extra, HEADERS_BYTES);
    buf_addz(&extra, HTTP_EVENTS_HEADERS);
    put_headers(x, &extra);
    http_stream(x->http, x->dialect->type, buf_z(&extra), &x->dialect->waiter, x);
    buf_release(&extra);
}

static void reply_whole(struct http_completion *x) {
    struct buf out, extra;
    buf_init(&out, REPLY_MAX_BYTES);
    buf_init(&extra, HEADERS_BYTES);
    x->dialect->write_whole(x, &out);
    buf_addz(&extra, "cache-control: no-store\r\n");
    put_headers(x, &extra);
    http_reply_buf(x->http, 200, "application/json", buf_z(&extra), &out);
    buf_release(&out);
    buf_release(&extra);
}

// false: x is gone.
static bool take_event(struct http_completion *x, const struct completion_event *e) {
    struct buf out;
    bool ends = e->kind == COMPLETION_DONE;
    if (!*x->session && e->turn != TURN_NONE) strcpy(x->session, e->session);
    buf_init(&out, REPLY_MAX_BYTES);
    int rc = x->dialect->take(x, e, &out);
    if (rc < 0) {
        if (!x->failure.status) completion_no_memory(&x->failure);
        buf_release(&out);
        fail(x, &x->failure);
        return false;
    }
    if (x->in->stream && !x->streaming) begin_stream(x);
    if (x->streaming) {
        if (out.len) service_count_token(x->service, e->drawn_us);
        http_stream_buf(x->http, &out);
        if (ends) http_stream_end(x->http);
    } else if (ends) {
        reply_whole(x);
    }
    buf_release(&out);
    if (ends) http_completion_free(x);
    return !ends;
}

// Sends as far as the client's socket has room: the rest stays in the session, after the cursor.
void http_completion_push(void *ctx) {
    struct http_completion *x = ctx;
    struct completion_event e;
    while (!x->streaming || http_stream_has_room(x->http)) {
        if (completion_next(x->completion, &e) != 1) return;
        if (e.kind == COMPLETION_FAILED) {
            fail(x, e.failure);
            return;
        }
        if (!take_event(x, &e)) return;
    }
}

static void on_ready(void *x, struct completion *c) {
    http_completion_push(x);
}

// --- the beginning ---

// The cache of a request that is alone serves every session.
static bool name_session(struct completion_request *r, const struct http_completion *x) {
    char name[SESSION_ID_MAX + 1];
    if (r->alone || !x->dialect->names_session) return true;
    completion_session_name(http_request_head(x->http), name);
    return completion_name_session(r, name);
}

// Takes the decoded request. NULL: no memory.
static struct http_completion *http_completion_new(struct service *s, struct http *h,
                                                   const struct dialect *d) {
    struct http_completion *x = calloc(1, d->bytes);
    if (!x) return NULL;
    *x =
        (struct http_completion){.dialect = d, .service = s, .http = h, .in = http_take_decoded(h)};
    if (name_session(x->in->request, x) && (!d->begin || d->begin(x)))
        x->completion = completion_start(s, http_owner(h), x->in->request, on_ready, x);
    if (x->completion) return x;
    http_completion_free(x);
    return NULL;
}

void http_completion_handle(struct service *s, struct http *h, const struct dialect *d) {
    const struct http_completion_request *in = http_decoded(h);
    if (in->failure.status) {
        d->reply_failure(h, &in->failure);
        return;
    }
    struct http_completion *x = http_completion_new(s, h, d);
    if (!x) {
        http_reply_error(h, 503, "overloaded", "no memory for the request", 1000);
        return;
    }
    x->in->request = NULL; // the completion's now
    http_wait(h, &d->waiter, x);
    service_poll_soon(s);
}
