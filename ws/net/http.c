// A connection's HTTP: one state, changed by received bytes (process), by the socket's room
// (http_flush), by deadlines (http_tick) and by handlers. See http.h; http_send.c sends.
//
//     HEAD -> BODY -> DECODING -> handle() -> REPLYING -> HEAD, or LINGERING, or closed
//                                    |-> WAITING ----^
//                                    `-> STREAMING --^
#include "ws/net/cors.h"
#include "ws/net/http_state.h"
#include "ws/net/websocket.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define READS_PER_EVENT 4
#define OUT_MAX_BYTES (32 << 20)
#define INLINE_BYTES 4096 // a longer body is decoded on a worker
#define HEAD_US 10000000
#define KEEPALIVE_US 30000000
#define BODY_US 10000000            // and more for the bytes that come (long_body_patience_us)
#define COUNT_AHEAD_BYTES (1 << 20) // of a body of unknown length
#define LINGER_US 2000000
#define PING_US 15000000

// --- the end ---

static void on_closed(uv_handle_t *handle) {
    free(handle->data);
}

static void forget_request(struct http *h) {
    if (h->decoded && h->route->release) h->route->release(h->decoded);
    if (h->decoding) {
        h->decoding->h = NULL;
        h->decoding->counted = h->counted;
        h->counted = (struct long_body){0};
        workers_cancel(h->net->workers, h->peer->number);
    }
    http_body_release(&h->body);
    long_body_release(&h->counted);
    free(h->head_text);
    free(h->owned);
    h->head_text = h->owned = NULL;
    h->decoding = NULL;
    h->decoded = NULL;
    h->route = NULL;
    h->bytes = NULL;
    h->n_bytes = h->n_sent = h->out_sent = 0;
    h->blocked_us = 0;
    h->starved = h->authorised = false;
    buf_reset(&h->out);
    if (h->out.cap > KEEP_BYTES) buf_release(&h->out);
}

// Stops using the socket, which is closed or given to another owner.
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
    struct channel channel = h->channel;
    if (h->state == CLOSED) return;
    dispose(h);
    channel_close(&channel);
    peer_free(p);
}

// --- requests ---

const char *http_path(const struct http *h) {
    return h->head.path;
}
enum http_method http_verb(const struct http *h) {
    return h->head.method;
}
bool http_query(const struct http *h, const char *name, char *out, size_t cap) {
    return http_query_get(h->head.query ? h->head.query : "", name, out, cap);
}

const struct http_head *http_request_head(const struct http *h) {
    return &h->head;
}
const char *http_header(const struct http *h, enum http_header name) {
    return h->head.header[name];
}
const char *http_owner(const struct http *h) {
    return h->peer->as.owner ? h->peer->as.owner->name : NULL;
}
const struct peer *http_peer(const struct http *h) {
    return h->peer;
}
bool http_is_authorised(const struct http *h) {
    return h->authorised;
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
    buf_init(&plain, d->unpacked_max);
    if (d->zipped) {
        d->rc = http_body_unzip(buf_z(&d->data), d->data.len, &plain);
        buf_release(&d->data);
        d->data = plain;
    }
    struct http_payload p = {d->path, d->json_length, buf_z(&d->data), d->data.len, d->owner};
    if (d->rc == 0) d->decoded = d->route->decode(d->user, &p);
}

static void process(struct http *h);

// The body as the route wants it, or the refusal.
static void take_decoded(struct http *h, struct decoding *d) {
    h->decoding = NULL;
    h->decoded = d->decoded;
    d->decoded = NULL;
    if (d->rc == E_LIMIT)
        http_refuse(h, http_too_long(h, "unpacked body"));
    else if (d->rc == E_FORMAT)
        http_reply_error(h, 400, "bad_message", "the body is not valid gzip or deflate", 0);
    else
        handle(h);
}

static void free_decoding(struct decoding *d) {
    if (d->decoded && d->route->release) d->route->release(d->decoded);
    long_body_release(&d->counted);
    buf_release(&d->data);
    free(d);
}

static void decoded(struct work *work) {
    struct decoding *d = (struct decoding *)work;
    struct http *h = d->h;
    if (h) {
        h->processing = true;
        take_decoded(h, d);
        process(h);
    }
    free_decoding(d);
}

// Zipped bodies are unpacked up to *max.
static struct http_refusal judge_zipped(struct http *h, size_t *max) {
    *max = h->longest;
    if (!h->head.zipped || !http_takes_long_body(h)) return REFUSE(0, NULL, NULL);
    *max = long_body_unpacked(h->net, h->body.data.len, h->longest);
    return http_count_body(h, *max);
}

static void begin_decoding(struct http *h) {
    struct decoding *d = calloc(1, sizeof(*d));
    size_t unpacked_max = 0;
    if (!d) {
        http_reply_error(h, 503, "overloaded", "no memory for the request", 1000);
        return;
    }
    struct http_refusal r = judge_zipped(h, &unpacked_max);
    if (r.status) {
        free(d);
        http_refuse(h, r);
        return;
    }
    *d = (struct decoding){.work = {.group = peer_group(h->peer),
                                    .lane = h->peer->number,
                                    .run = decode,
                                    .done = decoded},
                           .h = h,
                           .owner = h->peer->as.owner,
                           .route = h->route,
                           .user = h->net->user,
                           .data = h->body.data,
                           .zipped = h->head.zipped,
                           .unpacked_max = unpacked_max};
    memcpy(d->path, h->head.path, sizeof(d->path));
    snprintf(d->json_length, sizeof(d->json_length), "%s", h->head.header[HEADER_JSON_LENGTH]);
    bool inlined = d->data.len <= INLINE_BYTES && !d->zipped &&
                   !(h->route->is_costly && h->route->is_costly(buf_z(&d->data), d->data.len));
    buf_init(&h->body.data, 0);
    h->decoding = d;
    h->state = DECODING;
    http_set_deadline(h, 0);
    if (!inlined && workers_submit(h->net->workers, &d->work) == 0) return;
    if (!inlined) {
        h->decoding = NULL;
        http_reply_error(h, 503, "overloaded", "too many requests are being read", 1000);
    } else {
        decode(&d->work);
        take_decoded(h, d);
    }
    free_decoding(d);
}

static void upgrade(struct http *h) {
    struct peer *p = h->peer;
    char key[64];
    struct channel channel = h->channel;
    struct http_refusal r = upgrade_judge(p, &h->head);
    if (!r.status && h->in.len > 0)
        r = REFUSE(400, "bad_message", "a frame came before the handshake");
    if (r.status) {
        http_refuse(h, r);
        return;
    }
    strncpy(key, h->head.header[HEADER_WS_KEY], sizeof(key) - 1);
    key[sizeof(key) - 1] = '\0';
    dispose(h);
    websocket_adopt(p, &channel, key);
}

static bool within_rate(struct http *h) {
    double cost = h->head.method <= HTTP_HEAD ? NET_COST_READ : NET_COST_WRITE;
    if (rate_take(&h->rate, &h->net->request_limit, cost, net_now_us())) return true;
    metric_add(h->net->metrics.http_limited, 1);
    h->closes = true;
    http_reply_error(h, 429, "rate_limited",
                     "too many requests on this connection: see messages_per_second",
                     rate_promise_ms(&h->rate, &h->net->request_limit, cost));
    return false;
}

// A request of a page, or a page's preflight request. true: this function has answered.
static bool answer_page(struct http *h) {
    struct http_refusal r = cors_judge(h->net, &h->head);
    struct buf extra;
    if (r.status) {
        http_refuse(h, r);
        return true;
    }
    if (!cors_is_preflight(&h->head) || !cors_is_listed(h->net, &h->head)) return false;
    h->closes = http_has_body(h);
    buf_init(&extra, 8192);
    cors_put_permission(&h->head, &extra);
    http_reply(h, 204, NULL, buf_z(&extra), NULL, 0, false);
    buf_release(&extra);
    return true;
}

// Another Upgrade than WebSocket's is ignored, as RFC 9110 7.8 lets a server do: clients that offer h2c with each request
// (Java's HttpClient, curl --http2) are answered in HTTP/1.1.
static void begin_request(struct http *h) {
    h->closes = false;
    if (!auth_host_allowed(h->head.header[HEADER_HOST], h->net->config->allowed_hosts)) {
        http_refuse(
            h, REFUSE(403, "forbidden", "this Host is not one of the server's: see allowed_hosts"));
    } else if (http_has_token(h->head.header[HEADER_UPGRADE], "websocket")) {
        upgrade(h);
    } else if (within_rate(h) && !answer_page(h)) {
        struct http_refusal r = http_judge(h);
        if (r.status) {
            // A refusal before the body is read closes the connection; another refusal need not.
            if (http_has_body(h) || h->head.lacks_length || h->head.method == HTTP_POST)
                h->closes = true;
            http_reply_error(h, r.status, r.code, r.message, r.retry_after_ms);
            return;
        }
        h->state = READING_BODY;
        http_set_deadline(h, BODY_US);
        if (h->head.expects_continue && h->in.len == 0 && h->body.state != BODY_COMPLETE) {
            buf_addz(&h->out, "HTTP/1.1 100 Continue\r\n\r\n");
            http_flush(h);
        }
    }
}

// --- reading ---

// false: the head is not whole yet.
static bool take_head(struct http *h) {
    size_t blank = strspn(buf_z(&h->in), "\r\n"); // a line or two before a request are allowed
    if (blank > 0) buf_remove_front(&h->in, blank < h->in.len ? blank : h->in.len);
    size_t len = http_head_find(buf_z(&h->in), h->in.len);
    struct http_refusal r = REFUSE(0, NULL, NULL);
    if (h->in.len == 0 || (len == 0 && h->in.len < HTTP_HEAD_BYTES)) return false;
    memset(&h->head, 0, sizeof(h->head));
    for (int i = 0; i < HEADER_COUNT; i++) h->head.header[i] = "";
    bool too_long = len == 0 || len > HTTP_HEAD_BYTES;
    if (too_long) len = HTTP_HEAD_BYTES; // its first line says in which form it is refused
    h->head_text = malloc(len);
    if (h->head_text) {
        memcpy(h->head_text, h->in.data, len);
        buf_remove_front(&h->in, len);
        r = http_head_parse(&h->head, h->head_text, len);
    } else {
        r = REFUSE(503, "overloaded", "no memory for the request");
    }
    if (too_long) r = REFUSE(431, "too_large", "the head is longer than 16 KiB");
    h->served = true;
    http_find_route(h);
    if (r.status)
        http_refuse(h, r);
    else
        begin_request(h);
    return true;
}

static bool take_body(struct http *h) {
    size_t used = 0;
    int rc = http_body_feed(&h->body, buf_z(&h->in), h->in.len, &used);
    struct http_refusal r = REFUSE(0, NULL, NULL);
    buf_remove_front(&h->in, used);
    if (rc == E_FORMAT) r = REFUSE(400, "bad_message", "the chunks are malformed");
    if (rc == E_LIMIT) r = http_too_long(h, "body");
    if (rc == E_NOMEM) r = REFUSE(503, "overloaded", "no memory for the body");
    size_t len = h->body.data.len;
    if (!r.status && h->body.chunked && len > h->counted.bytes &&
        len > (size_t)h->net->config->max_message_bytes)
        r = http_count_body(h, len + COUNT_AHEAD_BYTES);
    if (r.status) {
        http_refuse(h, r);
        return true;
    }
    if (rc == 0) {
        h->deadline_us += long_body_patience_us(h->net, len, used);
        return false;
    }
    double cost = long_body_cost(h->net, len);
    h->rate.tokens -= cost * NET_COST_WRITE;
    if (h->peer->as.owner) owner_charge_requests(h->peer->as.owner, cost, net_now_us());
    if (h->route->decode)
        begin_decoding(h);
    else
        handle(h);
    return true;
}

// The kernel has the whole reply. false: the connection does nothing more now.
static bool end_exchange(struct http *h) {
    bool closes = h->closes;
    forget_request(h);
    if (!closes) {
        h->state = READING_HEAD;
        http_set_deadline(h, KEEPALIVE_US);
        return true;
    }
    if (h->eof) {
        http_close(h);
        return false;
    }
    // Closing while bytes wait unread would reset the connection, and the client might never see
    // the reply.
    h->state = LINGERING;
    channel_shut(&h->channel);
    http_set_deadline(h, LINGER_US);
    buf_release(&h->in);
    return false;
}

static bool send_reply(struct http *h) {
    int rc = http_flush(h);
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
    if (gone || (h->state == STREAMING && http_unsent(h) > 0 && http_flush(h) < 0)) {
        http_close(h);
        return;
    }
    if (h->in.len == 0) buf_release(&h->in);
    http_watch(h);
}

// Past TLS: what is dropped need not be decrypted.
static void drain(struct http *h) {
    char dropped[CHANNEL_READ_BYTES];
    for (int i = 0; i < READS_PER_EVENT; i++) {
        ssize_t n = recv(h->channel.fd, dropped, sizeof(dropped), MSG_DONTWAIT);
        if (n > 0) continue;
        if (n == 0 || (errno != EAGAIN && errno != EINTR)) http_close(h);
        return;
    }
}

static bool is_reading(const struct http *h) {
    return h->state == READING_HEAD || h->state == READING_BODY;
}

static void read_some(struct http *h) {
    for (int i = 0; i < READS_PER_EVENT && !h->eof; i++) {
        if (!is_reading(h) && !http_reads_ahead(h)) return;
        if (h->in.len >= HTTP_HEAD_BYTES || buf_reserve(&h->in, CHANNEL_READ_BYTES) < 0) return;
        bool begins = h->state == READING_HEAD && h->in.len == 0 && h->served;
        ssize_t n = channel_read(&h->channel, h->in.data + h->in.len);
        if (n == CHANNEL_WAITS) {
            http_watch(h);
            return;
        }
        if (n <= 0) {
            h->eof = true;
            process(h);
            return;
        }
        if (begins) http_set_deadline(h, HEAD_US);
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
    int rc = http_flush(h);
    if (rc < 0) {
        http_close(h);
        return;
    }
    if (rc == 1 && h->starved) {
        h->starved = false;
        h->waiter->writable(h->waiter_ctx);
    }
    http_watch(h);
}

// TLS may need either direction for the other one, so an event does not say which of them can go on.
static void read_and_write(struct http *h) {
    if (http_reads_ahead(h)) read_some(h);
    if (h->state == STREAMING || h->state == REPLYING) write_some(h);
}

static void on_event(uv_poll_t *handle, int status, int events) {
    struct http *h = handle->data;
    if (h->state == CLOSED) return;
    if (status < 0 || events & UV_DISCONNECT)
        http_close(h);
    else if (h->state == LINGERING)
        drain(h);
    else if (is_reading(h))
        read_some(h);
    else
        read_and_write(h);
}

// --- life ---

void http_open(struct peer *p, int fd) {
    struct channel channel;
    int rc = channel_open(&channel, fd, p->net->ssl, false);
    struct http *h = rc == 0 ? calloc(1, sizeof(*h)) : NULL;
    if (!h || uv_poll_init(&p->net->loop, &h->poll, fd) != 0) {
        free(h);
        if (rc == 0) channel_close(&channel);
        peer_free(p);
        return;
    }
    h->peer = p;
    h->net = p->net;
    h->channel = channel;
    h->poll.data = h;
    h->on_event = on_event;
    p->http = h;
    rate_init(&h->rate, &p->net->request_limit, net_now_us());
    buf_init(&h->in, HTTP_HEAD_BYTES + CHANNEL_READ_BYTES);
    buf_init(&h->out, OUT_MAX_BYTES);
    http_set_deadline(h, HEAD_US);
    http_watch(h);
}

static void time_out(struct http *h) {
    bool begun = h->state == READING_BODY || (h->state == READING_HEAD && h->in.len > 0);
    if (!begun) {
        http_close(h);
        return;
    }
    http_refuse(h, REFUSE(408, "timeout", "the request took too long"));
    process(h);
}

void http_lost_token(struct http *h) {
    bool served = h->state > READING_BODY && h->state < LINGERING;
    if (served && h->net->config->on_token_removed == SERVE_TOKEN_FINISH)
        h->closes = true;
    else
        http_close(h);
}

void http_tick(struct http *h, int64_t now_us) {
    int64_t patience_us = (int64_t)(h->net->config->slow_reader_timeout * 1e6);
    bool stuck = h->state == STREAMING && h->blocked_us && now_us - h->blocked_us > patience_us;
    if (stuck || (h->deadline_us && now_us > h->deadline_us && h->state == STREAMING)) {
        http_close(h);
    } else if (h->deadline_us && now_us > h->deadline_us) {
        time_out(h);
    } else if (h->state == STREAMING && h->waiter->ping && now_us - h->streamed_us >= PING_US) {
        http_stream_write(h, h->waiter->ping, strlen(h->waiter->ping));
    }
}
