// A connection's HTTP: one state, changed by what arrives (process), by the socket's room (flush),
// by deadlines (http_tick) and by handlers. See http.h.
//
//     HEAD -> BODY -> DECODING -> handle() -> REPLYING -> HEAD, or LINGERING, or closed
//                                    |-> WAITING ----^
//                                    `-> STREAMING --^
#include "ws/net/http.h"
#include "base/workers.h"
#include "ws/net/http_body.h"
#include "ws/net/http_reply.h"
#include "ws/net/peer.h"
#include "ws/net/upgrade.h"
#include "ws/net/websocket.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_BYTES 16384
#define READS_PER_EVENT 4
#define SEND_BYTES 262144 // in one event: others get their turn
#define KEEP_BYTES 4096   // a buffer that grew beyond is given back when it is empty
#define OUT_MAX_BYTES (32 << 20)
#define INLINE_BYTES 4096 // a body beyond is decoded on a worker
#define HEAD_US 10000000
#define KEEPALIVE_US 30000000
#define BODY_US 10000000 // and a second more for each of these:
#define BODY_BYTES_PER_SECOND 4096
#define REPLY_US 120000000 // for a whole reply, however slowly it is read
#define LINGER_US 2000000
// Units of net.request_limit: a tenth of a WebSocket message.
#define COST_READ 1
#define COST_WRITE 10
#define COST_BYTES 6554 // of a body, for one unit

struct decoding { // a body on its way through a worker
    struct work work;
    struct http *h; // NULL: the client is gone
    const struct http_route *route;
    void *user;
    struct buf data;
    bool zipped;
    int rc;
    void *decoded;
};

struct http {
    struct peer *peer;
    struct net *net;
    int fd, watching;
    uv_poll_t poll;
    enum {
        READING_HEAD,
        READING_BODY,
        DECODING,
        WAITING,
        REPLYING,
        STREAMING,
        LINGERING,
        CLOSED
    } state;
    int64_t deadline_us; // 0: none
    struct rate rate;
    struct buf in; // read, not taken yet
    bool eof, processing, served;

    // the request
    char *head_text; // head's strings
    struct http_head head;
    const struct http_route *route; // NULL before it is known
    char *owner;
    struct http_body body;
    struct decoding *decoding;
    void *decoded;

    // the reply
    struct buf out; // a head, and what is streamed
    size_t out_sent;
    const char *bytes; // (n_bytes) behind out
    void *owned;       // free()d with the reply
    size_t n_bytes, n_sent;
    const struct http_waiter *waiter;
    void *waiter_ctx;
    int64_t blocked_us; // since when the socket takes nothing; 0: it does
    bool closes, chunked, starved;
};

static void watch(struct http *h);

static void set_deadline(struct http *h, int64_t us) {
    h->deadline_us = us ? net_now_us() + us : 0;
}

// --- the end ---

static void on_closed(uv_handle_t *handle) {
    free(handle->data);
}

static void forget_request(struct http *h) {
    if (h->decoded && h->route->release) h->route->release(h->decoded);
    if (h->decoding) {
        h->decoding->h = NULL;
        workers_cancel(h->net->workers, h->peer->number);
    }
    http_body_release(&h->body);
    free(h->head_text);
    free(h->owner);
    free(h->owned);
    h->head_text = h->owner = h->owned = NULL;
    h->decoding = NULL;
    h->decoded = NULL;
    h->route = NULL;
    h->bytes = NULL;
    h->n_bytes = h->n_sent = h->out_sent = 0;
    h->blocked_us = 0;
    h->starved = false;
    buf_reset(&h->out);
    if (h->out.cap > KEEP_BYTES) buf_release(&h->out);
}

// Lets go of the socket, which is closed or given to another owner.
static void dispose(struct http *h) {
    const struct http_waiter *w = h->state == WAITING || h->state == STREAMING ? h->waiter : NULL;
    h->state = CLOSED;
    h->peer->http = NULL;
    uv_close((uv_handle_t *)&h->poll, on_closed);
    if (w) w->client_gone(h->waiter_ctx);
    forget_request(h);
    buf_release(&h->in);
    buf_release(&h->out);
}

void http_close(struct http *h) {
    struct peer *p = h->peer;
    int fd = h->fd;
    if (h->state == CLOSED) return;
    dispose(h);
    close(fd);
    peer_free(p);
}

// --- sending ---

static size_t unsent(const struct http *h) {
    return h->out.len - h->out_sent;
}

// 1: all is sent, 0: the socket takes no more, -1: it is broken.
static int send_some(struct http *h, const char *bytes, size_t len, size_t *sent, size_t *budget,
                     int flags) {
    while (*sent<len && * budget> 0) {
        size_t want = len - *sent < *budget ? len - *sent : *budget;
        ssize_t n = send(h->fd, bytes + *sent, want, flags | MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN ? 0 : -1;
        *sent += (size_t)n;
        *budget -= (size_t)n;
        metric_add(h->net->metrics.bytes_out, (double)n);
    }
    return *sent == len;
}

static int flush(struct http *h) {
    size_t budget = SEND_BYTES, before = h->out_sent + h->n_sent;
    if (h->out.error) return -1;
    int more = h->n_sent < h->n_bytes ? MSG_MORE : 0;
    int rc = send_some(h, h->out.data, h->out.len, &h->out_sent, &budget, more);
    if (rc == 1) rc = send_some(h, h->bytes, h->n_bytes, &h->n_sent, &budget, 0);
    bool progress = h->out_sent + h->n_sent > before;
    if (rc == 1)
        h->blocked_us = 0;
    else if (progress || !h->blocked_us)
        h->blocked_us = net_now_us();
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
    if (!h->head.keep_alive || h->eof) h->closes = true;
    count(h, r->status);
    struct http_reply_head head = *r;
    head.close = h->closes;
    http_reply_write_head(&h->out, &head);
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
    set_deadline(h, REPLY_US);
    if (!h->processing) watch(h);
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

void http_reply_error(struct http *h, int status, const char *code, const char *message,
                      int64_t retry_after_ms) {
    struct buf body, extra;
    buf_init(&body, 8192);
    buf_init(&extra, 1024);
    if (h->route && h->route->write_error)
        h->route->write_error(&body, status, code, message);
    else
        http_reply_write_error(&body, code, message);
    buf_addz(&extra, "cache-control: no-store\r\n");
    if (status == 405) write_allow(h, &extra);
    if (status == 401) buf_addz(&extra, "www-authenticate: Bearer\r\n");
    if (status == 426) buf_addz(&extra, "sec-websocket-version: 13\r\nupgrade: websocket\r\n");
    if (retry_after_ms > 0)
        buf_addf(&extra, "retry-after: %lld\r\nretry-after-ms: %lld\r\n",
                 (long long)((retry_after_ms + 999) / 1000), (long long)retry_after_ms);
    size_t len = 0;
    char *bytes = buf_take(&body, &len);
    http_reply(h, status, "application/json", buf_z(&extra), bytes ? bytes : "", len,
               bytes != NULL);
    buf_release(&extra);
}

// What follows on the connection cannot be trusted to be a request.
static void refuse(struct http *h, const struct http_refusal *r) {
    h->closes = true;
    http_reply_error(h, r->status, r->code, r->message, 0);
}

// --- replies that take their time ---

void http_wait(struct http *h, const struct http_waiter *w, void *ctx) {
    h->state = WAITING;
    h->waiter = w;
    h->waiter_ctx = ctx;
    set_deadline(h, 0);
    if (!h->processing) watch(h);
}

void http_stream(struct http *h, const char *type, const char *extra, const struct http_waiter *w,
                 void *ctx) {
    h->chunked = !h->head.http10;
    if (!h->chunked) h->closes = true;
    begin_reply(h, &(struct http_reply_head){
                       .status = 200, .type = type, .extra = extra, .chunked = h->chunked});
    h->state = STREAMING;
    h->waiter = w;
    h->waiter_ctx = ctx;
    set_deadline(h, 0);
    if (!h->processing) watch(h);
}

bool http_stream_has_room(const struct http *h) {
    bool room = unsent(h) < HTTP_ROOM_BYTES;
    if (!room) ((struct http *)(size_t)h)->starved = true; // writable() is owed
    return room;
}

void http_stream_write(struct http *h, const void *bytes, size_t len) {
    bool idle = unsent(h) == 0;
    if (len == 0) return; // a chunk of none would end the reply
    if (h->chunked) buf_addf(&h->out, "%zx\r\n", len);
    buf_add(&h->out, bytes, len);
    if (h->chunked) buf_addz(&h->out, "\r\n");
    if (!h->processing && idle) {
        // A broken socket is closed by its own event: not here, in the midst of a handler.
        if (flush(h) < 0) h->deadline_us = net_now_us();
        watch(h);
    }
}

void http_stream_end(struct http *h) {
    if (h->chunked) buf_addz(&h->out, "0\r\n\r\n");
    h->state = REPLYING;
    set_deadline(h, REPLY_US);
    if (!h->processing) watch(h);
}

void http_stream_abort(struct http *h) {
    h->chunked = false;
    h->closes = true;
    http_stream_end(h);
}

// --- requests ---

const char *http_path(const struct http *h) {
    return h->head.path;
}
const char *http_header(const struct http *h, enum http_header name) {
    return h->head.header[name];
}
const char *http_owner(const struct http *h) {
    return h->owner;
}
void *http_decoded(const struct http *h) {
    return h->decoded;
}
void *http_take_decoded(struct http *h) {
    void *decoded = h->decoded;
    h->decoded = NULL;
    return decoded;
}

static void handle(struct http *h) {
    if (h->route->decode && !h->decoded) {
        http_reply_error(h, 503, "overloaded", "no memory for the request", 1000);
        return;
    }
    h->route->handle(h->net->user, h);
    assert(h->state >= WAITING);
}

static void decode(struct work *work) {
    struct decoding *d = (struct decoding *)work;
    struct buf plain;
    buf_init(&plain, d->data.max);
    if (d->zipped) {
        d->rc = http_body_unzip(buf_z(&d->data), d->data.len, &plain);
        buf_release(&d->data);
        d->data = plain;
    }
    if (d->rc == 0) d->decoded = d->route->decode(d->user, buf_z(&d->data), d->data.len);
}

static void process(struct http *h);

// The body as the route wants it; or why it cannot be had.
static void take_decoded(struct http *h, struct decoding *d) {
    h->decoding = NULL;
    h->decoded = d->decoded;
    d->decoded = NULL;
    if (d->rc == E_LIMIT)
        http_reply_error(h, 413, "too_large", "the unpacked body is too long", 0);
    else if (d->rc == E_FORMAT)
        http_reply_error(h, 400, "bad_message", "the body is not valid gzip or deflate", 0);
    else
        handle(h);
}

static void decoded(struct work *work) {
    struct decoding *d = (struct decoding *)work;
    struct http *h = d->h;
    if (h) {
        h->processing = true;
        take_decoded(h, d);
        process(h);
    }
    if (d->decoded && d->route->release) d->route->release(d->decoded);
    buf_release(&d->data);
    free(d);
}

static void begin_decoding(struct http *h) {
    struct decoding *d = calloc(1, sizeof(*d));
    if (!d) {
        http_reply_error(h, 503, "overloaded", "no memory for the request", 1000);
        return;
    }
    *d = (struct decoding){.work = {.lane = h->peer->number, .run = decode, .done = decoded},
                           .h = h,
                           .route = h->route,
                           .user = h->net->user,
                           .data = h->body.data,
                           .zipped = h->head.zipped};
    bool inlined = d->data.len <= INLINE_BYTES && !d->zipped;
    buf_init(&h->body.data, 0);
    h->decoding = d;
    h->state = DECODING;
    set_deadline(h, 0);
    if (!inlined && workers_submit(h->net->workers, &d->work) == 0) return;
    if (!inlined) {
        h->decoding = NULL;
        http_reply_error(h, 503, "overloaded", "too many requests are being read", 1000);
    } else {
        decode(&d->work);
        take_decoded(h, d);
    }
    if (d->decoded && d->route->release) d->route->release(d->decoded);
    buf_release(&d->data);
    free(d);
}

static const struct http_route *find_route(struct http *h, bool *path_known) {
    enum http_method m = h->head.method == HTTP_HEAD ? HTTP_GET : h->head.method;
    *path_known = false;
    for (size_t i = 0; i < h->net->n_routes; i++) {
        const struct http_route *r = &h->net->routes[i];
        if (r->path ? strcmp(r->path, h->head.path) != 0 : *path_known) continue;
        *path_known = true;
        h->route = r; // for the form of its errors
        if (r->methods & HTTP_METHOD(m)) return r;
    }
    return NULL;
}

static struct http_refusal authorise(struct http *h) {
    size_t len = 0;
    const char *token = auth_bearer(h->head.header[HEADER_AUTHORIZATION], &len);
    const char *owner = auth_owner(h->net->auth, token ? token : "", token ? len : 0);
    if (!owner)
        return (struct http_refusal){401, "unauthorized", "this address needs a bearer token"};
    h->owner = strdup(owner);
    if (!h->owner) return (struct http_refusal){503, "overloaded", "no memory for the request"};
    return (struct http_refusal){0, NULL, NULL};
}

static struct http_refusal judge_route(struct http *h) {
    bool known;
    const struct http_route *r = find_route(h, &known);
    if (!r) return (struct http_refusal){405, "unsupported", "this method is not served here"};
    if (r->guarded) {
        struct http_refusal denied = authorise(h);
        if (denied.status) return denied;
    }
    if (h->head.framing != HTTP_NO_BODY && r->max_body == 0 &&
        (h->head.framing == HTTP_CHUNKED || h->head.content_length > 0))
        return (struct http_refusal){413, "too_large", "no request here takes a body"};
    size_t max = r->max_body == HTTP_BODY_AS_MESSAGES ? (size_t)h->net->config->max_message_bytes
                                                      : r->max_body;
    if (http_body_begin(&h->body, &h->head, max) < 0)
        return (struct http_refusal){413, "too_large", "the body is too long"};
    return (struct http_refusal){0, NULL, NULL};
}

static bool has_body(const struct http *h) {
    return h->head.framing == HTTP_CHUNKED || h->head.content_length > 0;
}

// A refusal whose body has not been read closes the connection; another one need not.
static void refuse_request(struct http *h, const struct http_refusal *r) {
    if (has_body(h) || h->head.method == HTTP_POST) h->closes = true;
    http_reply_error(h, r->status, r->code, r->message, 0);
}

static void upgrade(struct http *h) {
    struct peer *p = h->peer;
    char key[64];
    int fd = h->fd;
    struct http_refusal r = upgrade_judge(h->net, &h->head, &p->owner);
    if (!r.status && h->in.len > 0)
        r = (struct http_refusal){400, "bad_message", "a frame came before the handshake"};
    if (r.status) {
        refuse(h, &r);
        return;
    }
    strncpy(key, h->head.header[HEADER_WS_KEY], sizeof(key) - 1);
    key[sizeof(key) - 1] = '\0';
    dispose(h);
    websocket_adopt(p, fd, key);
}

static bool within_rate(struct http *h) {
    double cost = h->head.method <= HTTP_HEAD ? COST_READ : COST_WRITE;
    if (rate_take(&h->rate, &h->net->request_limit, cost, net_now_us())) return true;
    metric_add(h->net->metrics.http_limited, 1);
    h->closes = true;
    http_reply_error(h, 429, "rate_limited", "too many requests",
                     rate_wait_ms(&h->rate, &h->net->request_limit, cost));
    return false;
}

static void begin_request(struct http *h) {
    struct http_refusal r;
    h->closes = false;
    if (!auth_host_allowed(h->head.header[HEADER_HOST], h->net->config->allowed_hosts)) {
        r = (struct http_refusal){403, "forbidden",
                                  "this Host is not one of the server's: see allowed_hosts"};
        refuse(h, &r);
    } else if (*h->head.header[HEADER_UPGRADE]) {
        upgrade(h);
    } else if (within_rate(h)) {
        r = judge_route(h);
        if (r.status) {
            refuse_request(h, &r);
            return;
        }
        h->state = READING_BODY;
        set_deadline(h, BODY_US);
        if (h->head.expects_continue && h->in.len == 0 && h->body.state != BODY_COMPLETE) {
            buf_addz(&h->out, "HTTP/1.1 100 Continue\r\n\r\n");
            flush(h);
        }
    }
}

// --- reading ---

// false: the head is not whole yet.
static bool take_head(struct http *h) {
    size_t blank = strspn(buf_z(&h->in), "\r\n"); // a line or two before a request are allowed
    if (blank > 0) buf_remove_front(&h->in, blank < h->in.len ? blank : h->in.len);
    size_t len = http_head_find(buf_z(&h->in), h->in.len);
    struct http_refusal r = {0, NULL, NULL};
    if (h->in.len == 0 || (len == 0 && h->in.len < HTTP_HEAD_BYTES)) return false;
    memset(&h->head, 0, sizeof(h->head));
    for (int i = 0; i < HEADER_COUNT; i++) h->head.header[i] = "";
    if (len == 0 || len > HTTP_HEAD_BYTES)
        r = (struct http_refusal){431, "too_large", "the head is longer than 16 KiB"};
    else if (!(h->head_text = malloc(len)))
        r = (struct http_refusal){503, "overloaded", "no memory for the request"};
    if (!r.status) {
        memcpy(h->head_text, h->in.data, len);
        buf_remove_front(&h->in, len);
        r = http_head_parse(&h->head, h->head_text, len);
    }
    h->served = true;
    if (r.status)
        refuse(h, &r);
    else
        begin_request(h);
    return true;
}

static bool take_body(struct http *h) {
    size_t used = 0;
    int rc = http_body_feed(&h->body, buf_z(&h->in), h->in.len, &used);
    struct http_refusal r = {0, NULL, NULL};
    buf_remove_front(&h->in, used);
    if (rc == E_FORMAT) r = (struct http_refusal){400, "bad_message", "the chunks are malformed"};
    if (rc == E_LIMIT) r = (struct http_refusal){413, "too_large", "the body is too long"};
    if (rc == E_NOMEM) r = (struct http_refusal){503, "overloaded", "no memory for the body"};
    if (r.status) {
        refuse(h, &r);
        return true;
    }
    if (rc == 0) {
        h->deadline_us += (int64_t)used * 1000000 / BODY_BYTES_PER_SECOND;
        return false;
    }
    h->rate.tokens -= (double)(h->body.data.len / COST_BYTES);
    if (h->route->decode)
        begin_decoding(h);
    else
        handle(h);
    return true;
}

// The reply is with the kernel. false: nothing more is to be done now.
static bool end_exchange(struct http *h) {
    bool closes = h->closes;
    forget_request(h);
    if (!closes) {
        h->state = READING_HEAD;
        set_deadline(h, KEEPALIVE_US);
        return true;
    }
    if (h->eof) {
        http_close(h);
        return false;
    }
    // Closing while bytes wait unread would reset the connection, and the client might never see
    // the reply.
    h->state = LINGERING;
    shutdown(h->fd, SHUT_WR);
    set_deadline(h, LINGER_US);
    buf_release(&h->in);
    return false;
}

static bool send_reply(struct http *h) {
    int rc = flush(h);
    if (rc < 0) http_close(h);
    return rc == 1 && end_exchange(h);
}

static bool step(struct http *h) {
    switch (h->state) {
    case READING_HEAD:
        return take_head(h);
    case READING_BODY:
        return take_body(h);
    case REPLYING:
        return send_reply(h);
    default:
        return false;
    }
}

// As far as the bytes that have come and the socket's room allow.
static void process(struct http *h) {
    h->processing = true;
    while (step(h)) {}
    if (h->state == CLOSED) return;
    h->processing = false;
    bool gone = h->eof && h->state != REPLYING;
    if (gone || (h->state == STREAMING && unsent(h) > 0 && flush(h) < 0)) {
        http_close(h);
        return;
    }
    if (h->in.len == 0) buf_release(&h->in);
    watch(h);
}

static void drain(struct http *h) {
    char dropped[READ_BYTES];
    for (int i = 0; i < READS_PER_EVENT; i++) {
        ssize_t n = recv(h->fd, dropped, sizeof(dropped), MSG_DONTWAIT);
        if (n > 0) continue;
        if (n == 0 || (errno != EAGAIN && errno != EINTR)) http_close(h);
        return;
    }
}

static void read_some(struct http *h) {
    for (int i = 0; i < READS_PER_EVENT && !h->eof; i++) {
        if (h->state != READING_HEAD && h->state != READING_BODY) return;
        if (h->in.len >= HTTP_HEAD_BYTES || buf_reserve(&h->in, READ_BYTES) < 0) return;
        bool begins = h->state == READING_HEAD && h->in.len == 0 && h->served;
        ssize_t n = recv(h->fd, h->in.data + h->in.len, READ_BYTES, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (n <= 0) {
            h->eof = true;
            process(h);
            return;
        }
        if (begins) set_deadline(h, HEAD_US);
        h->in.len += (size_t)n;
        h->in.data[h->in.len] = '\0';
        process(h);
    }
}

static void write_some(struct http *h) {
    if (h->state == REPLYING) {
        process(h);
        return;
    }
    int rc = flush(h);
    if (rc < 0) {
        http_close(h);
        return;
    }
    if (rc == 1 && h->starved) {
        h->starved = false;
        h->waiter->writable(h->waiter_ctx);
    }
    watch(h);
}

static void on_event(uv_poll_t *handle, int status, int events) {
    struct http *h = handle->data;
    if (h->state == CLOSED) return;
    if (status < 0 || events & UV_DISCONNECT)
        http_close(h);
    else if (h->state == LINGERING)
        drain(h);
    else if (events & UV_READABLE)
        read_some(h);
    else if (events & UV_WRITABLE)
        write_some(h);
}

// What the loop is asked to watch for, by state. A stream that has nothing to say costs nothing: its
// client's end alone is watched for.
static void watch(struct http *h) {
    int events = UV_DISCONNECT;
    if (h->state == CLOSED) return;
    if (h->state == READING_HEAD || h->state == READING_BODY || h->state == LINGERING)
        events = UV_READABLE;
    if (h->state == REPLYING) events = UV_WRITABLE;
    if (h->state == STREAMING && (unsent(h) > 0 || h->starved)) events |= UV_WRITABLE;
    if (events == h->watching) return;
    h->watching = events;
    uv_poll_start(&h->poll, events, on_event);
}

// --- life ---

void http_open(struct peer *p, int fd) {
    struct http *h = calloc(1, sizeof(*h));
    if (!h || uv_poll_init(&p->net->loop, &h->poll, fd) != 0) {
        free(h);
        close(fd);
        peer_free(p);
        return;
    }
    h->peer = p;
    h->net = p->net;
    h->fd = fd;
    h->poll.data = h;
    p->http = h;
    rate_init(&h->rate, &p->net->request_limit, net_now_us());
    buf_init(&h->in, HTTP_HEAD_BYTES + READ_BYTES);
    buf_init(&h->out, OUT_MAX_BYTES);
    set_deadline(h, HEAD_US);
    watch(h);
}

static void time_out(struct http *h) {
    struct http_refusal r = {408, "timeout", "the request took too long"};
    bool begun = h->state == READING_BODY || (h->state == READING_HEAD && h->in.len > 0);
    if (!begun) {
        http_close(h);
        return;
    }
    refuse(h, &r);
    process(h);
}

void http_tick(struct http *h, int64_t now_us) {
    int64_t patience_us = (int64_t)(h->net->config->slow_reader_timeout * 1e6);
    bool stuck = h->state == STREAMING && h->blocked_us && now_us - h->blocked_us > patience_us;
    if (stuck || (h->deadline_us && now_us > h->deadline_us && h->state == STREAMING)) {
        http_close(h);
    } else if (h->deadline_us && now_us > h->deadline_us) {
        time_out(h);
    } else if ((h->state == STREAMING || h->state == WAITING) && h->waiter->tick) {
        h->waiter->tick(h->waiter_ctx, now_us);
    }
}
