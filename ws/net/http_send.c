// The sending side of a connection's HTTP: replies, streams, and which events the loop watches for. See
// http_state.h.
#include "ws/net/cors.h"
#include "ws/net/http_reply.h"
#include "ws/net/http_state.h"
#include <assert.h>
#include <string.h>

#define SEND_BYTES 262144  // in one event, before other connections
#define REPLY_US 120000000 // for a whole reply, however slowly it is read

void http_set_deadline(struct http *h, int64_t us) {
    h->deadline_us = us ? net_served_us(h->net) + us : 0;
}

// Under TLS a client may end by a record (close_notify) on a socket that stays open. What it sends before, such as the
// next request, waits in `in`.
bool http_reads_ahead(const struct http *h) {
    bool waits = h->state == DECODING || h->state == WAITING || h->state == STREAMING;
    return waits && h->channel.ssl && h->in.len < HTTP_HEAD_BYTES;
}

// An idle stream takes no processor time: the loop watches only for the client's end.
void http_watch(struct http *h) {
    int events = UV_DISCONNECT;
    if (h->state == CLOSED) return;
    if (http_reads_ahead(h)) events |= UV_READABLE;
    if (h->state == READING_HEAD || h->state == READING_BODY || h->state == LINGERING)
        events = UV_READABLE;
    if (h->state == REPLYING) events = UV_WRITABLE;
    if (h->state == STREAMING && (http_unsent(h) > 0 || h->starved)) events |= UV_WRITABLE;
    events = channel_events(&h->channel, events);
    if (events == h->watching) return;
    h->watching = events;
    uv_poll_start(&h->poll, events, h->on_event);
}

// --- sending ---

size_t http_unsent(const struct http *h) {
    return h->out.len - h->out_sent;
}

// 1: all is sent, 0: the socket takes no more, -1: it is broken.
static int send_some(struct http *h, const char *bytes, size_t len, size_t *sent, size_t *budget,
                     bool more) {
    while (len > *sent && *budget > 0) {
        size_t want = len - *sent < *budget ? len - *sent : *budget;
        ssize_t n = channel_send(&h->channel, bytes + *sent, want, more);
        if (n < 0) return n == CHANNEL_WAITS ? 0 : -1;
        *sent += (size_t)n;
        *budget -= (size_t)n;
        metric_add(h->net->metrics.bytes_out, (double)n);
    }
    return *sent == len;
}

// The head of a reply and the begin of its body are one record of TLS, as they are one packet in plain text.
static void join_head(struct http *h) {
    size_t head = http_unsent(h), body = h->n_bytes - h->n_sent;
    if (!h->channel.ssl || head == 0 || body == 0 || head >= CHANNEL_READ_BYTES) return;
    size_t n = CHANNEL_READ_BYTES - head < body ? CHANNEL_READ_BYTES - head : body;
    if (buf_add(&h->out, h->bytes + h->n_sent, n) == 0) h->n_sent += n;
}

int http_flush(struct http *h) {
    join_head(h);
    size_t budget = SEND_BYTES, before = h->out_sent + h->n_sent;
    if (h->out.error) return -1;
    bool more = h->n_sent < h->n_bytes;
    int rc = send_some(h, h->out.data, h->out.len, &h->out_sent, &budget, more);
    if (rc == 1) rc = send_some(h, h->bytes, h->n_bytes, &h->n_sent, &budget, false);
    bool progress = h->out_sent + h->n_sent > before;
    if (rc == 1)
        h->blocked_us = 0;
    else if (progress || !h->blocked_us)
        h->blocked_us = net_served_us(h->net);
    if (h->out_sent == h->out.len) {
        h->out_sent = 0;
        buf_reset(&h->out);
        if (h->out.cap > KEEP_BYTES) buf_release(&h->out);
    }
    return rc;
}

static void count(struct http *h, int status) {
    struct net_metrics *m = &h->net->metrics;
    metric_add(status < 400 ? m->http_2xx : status < 500 ? m->http_4xx : m->http_5xx, 1);
}

static void begin_reply(struct http *h, const struct http_reply_head *r) {
    assert(h->state != REPLYING && h->state != STREAMING && h->state != LINGERING);
    if (!h->head.keep_alive || h->eof || h->net->life != NET_OPEN) h->closes = true;
    count(h, r->status);
    struct http_reply_head head = *r;
    struct buf extra;
    buf_init(&extra, 8192);
    buf_addz(&extra, r->extra ? r->extra : "");
    if (h->route && h->route->put_headers) h->route->put_headers(h, &extra);
    // Without its text the head is an earlier request's, or none has come.
    if (h->head_text && cors_is_listed(h->net, &h->head)) cors_put_headers(&h->head, &extra);
    if (!extra.error) head.extra = buf_z(&extra);
    head.close = h->closes;
    head.tls = h->net->ssl != NULL;
    http_reply_write_head(&h->out, &head);
    buf_release(&extra);
}

void http_reply(struct http *h, int status, const char *type, const char *extra, const void *body,
                size_t len, bool owned) {
    if (status == 304) type = NULL;
    begin_reply(
        h, &(struct http_reply_head){.status = status, .type = type, .extra = extra, .len = len});
    h->owned = owned ? (void *)(size_t)body : NULL;
    h->bytes = body;
    h->n_bytes = status == 304 || h->head.method == HTTP_HEAD ? 0 : len;
    h->n_sent = 0;
    h->state = REPLYING;
    http_set_deadline(h, REPLY_US);
    if (!h->processing) http_watch(h);
}

void http_reply_buf(struct http *h, int status, const char *type, const char *extra,
                    struct buf *body) {
    size_t len = 0;
    char *bytes = buf_take(body, &len);
    if (bytes)
        http_reply(h, status, type, extra, bytes, len, true);
    else
        http_reply_error(h, 500, "internal", "no memory for the answer", 0);
}

void http_reply_json(struct http *h, int status, struct buf *body) {
    http_reply_buf(h, status, "application/json", "cache-control: no-store\r\n", body);
    buf_release(body);
}

// The methods of every route with h's path, as an Allow header.
static void write_allow(struct http *h, struct buf *out) {
    unsigned methods = 0;
    const char *separator = "allow: ";
    for (size_t i = 0; i < h->net->n_routes; i++) {
        const struct http_route *r = &h->net->routes[i];
        if (r->path ? strcmp(r->path, h->head.path) == 0 : !methods) methods |= r->methods;
    }
    if (methods & HTTP_METHOD(HTTP_GET)) methods |= HTTP_METHOD(HTTP_HEAD);
    for (int m = 0; m < HTTP_UNKNOWN; m++) {
        if (!(methods & HTTP_METHOD(m))) continue;
        buf_addf(out, "%s%s", separator, http_method_name((enum http_method)m));
        separator = ", ";
    }
    buf_addz(out, methods ? "\r\n" : "");
}

void http_add_retry(struct buf *out, int64_t ms) {
    if (ms > 0)
        buf_addf(out, "retry-after: %lld\r\nretry-after-ms: %lld\r\n",
                 (long long)((ms + 999) / 1000), (long long)ms);
}

void http_reply_error(struct http *h, int status, const char *code, const char *message,
                      int64_t retry_after_ms) {
    struct http_error e = {status, code, message, retry_after_ms};
    struct buf body, extra;
    buf_init(&body, 8192);
    buf_init(&extra, 2048);
    if (h->route && h->route->shape_error)
        h->route->shape_error(h, &e, &body, &extra);
    else if (h->route && h->route->write_error)
        h->route->write_error(&body, status, code, message);
    else
        http_reply_write_error(&body, code, message);
    status = e.status;
    retry_after_ms = e.retry_after_ms;
    buf_addz(&extra, "cache-control: no-store\r\n");
    if (status == 405) write_allow(h, &extra);
    if (status == 401) buf_addz(&extra, "www-authenticate: Bearer\r\n");
    if (status == 426) buf_addz(&extra, "sec-websocket-version: 13\r\nupgrade: websocket\r\n");
    http_add_retry(&extra, retry_after_ms);
    size_t len = 0;
    char *bytes = buf_take(&body, &len);
    http_reply(h, status, "application/json", buf_z(&extra), bytes ? bytes : "", len,
               bytes != NULL);
    buf_release(&extra);
}

void http_refuse(struct http *h, struct http_refusal r) {
    h->closes = true;
    http_reply_error(h, r.status, r.code, r.message, r.retry_after_ms);
}

// --- streams ---

static void wait_in(struct http *h, int state, const struct http_waiter *w, void *ctx) {
    h->state = state;
    h->waiter = w;
    h->waiter_ctx = ctx;
    http_set_deadline(h, 0);
    if (!h->processing) http_watch(h);
}

void http_wait(struct http *h, const struct http_waiter *w, void *ctx) {
    wait_in(h, WAITING, w, ctx);
}

void http_stream(struct http *h, const char *type, const char *extra, const struct http_waiter *w,
                 void *ctx) {
    h->chunked = !h->head.http10;
    if (!h->chunked) h->closes = true;
    begin_reply(h, &(struct http_reply_head){
                       .status = 200, .type = type, .extra = extra, .chunked = h->chunked});
    wait_in(h, STREAMING, w, ctx);
    h->streamed_us = net_served_us(h->net);
}

bool http_stream_has_room(const struct http *h) {
    bool room = http_unsent(h) < HTTP_ROOM_BYTES;
    if (!room) ((struct http *)(size_t)h)->starved = true; // writable() is owed
    return room;
}

bool http_is_replying(const struct http *h) {
    return h->state == REPLYING || (h->state == STREAMING && http_unsent(h) > 0);
}

void http_stream_write(struct http *h, const void *bytes, size_t len) {
    bool idle = http_unsent(h) == 0;
    if (len == 0) return; // an empty chunk would end the reply
    h->streamed_us = net_served_us(h->net);
    if (h->chunked) buf_addf(&h->out, "%zx\r\n", len);
    buf_add(&h->out, bytes, len);
    if (h->chunked) buf_addz(&h->out, "\r\n");
    if (!h->processing && idle) {
        // A broken socket is closed by its own event, not here, where a handler is running.
        if (http_flush(h) < 0) h->deadline_us = 1;
        http_watch(h);
    }
}

void http_stream_buf(struct http *h, struct buf *b) {
    http_stream_write(h, buf_z(b), b->len);
    buf_release(b);
}

void http_stream_end(struct http *h) {
    if (h->chunked) buf_addz(&h->out, "0\r\n\r\n");
    h->state = REPLYING;
    http_set_deadline(h, REPLY_US);
    if (!h->processing) http_watch(h);
}
