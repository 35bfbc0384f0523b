// Receiving: a message is gathered, weighed (rate.h), decoded, and given to the session service. A
// long one is decoded on a worker; nothing more is read from its client meanwhile, so the order of
// its messages stays. See connection.h.
#include "ws/parley/connection.h"
#include "base/workers.h"
#include "ws/net/peer.h"
#include "ws/parley/outgoing.h"
#include "ws/parley/protocol.h"
#include "ws/parley/upload.h"
#include "ws/usage.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RX_KEEP_BYTES 4096  // a receive buffer that grew beyond is given back after its message
#define INLINE_BYTES 8192   // a message beyond is decoded on a worker
#define FRAGMENT_BYTES 1024 // one that is shorter counts as a message, unless it is the last
#define HELLO_BYTES 4096    // of a message before the client is authorised

struct decoding { // a message on its way through a worker, and back to be freed there
    struct work work;
    struct connection *c; // NULL: it is gone
    char *text;
    size_t len;
    struct json_limits limits;
    int32_t n_vocab;
    struct message message;
    const char *code;
    struct err err;
    int rc;
};

struct connection {
    struct service *service;
    struct peer *peer;
    struct buf rx; // of the message that is arriving
    struct rate_limit limit;
    struct rate rate;
    int64_t refused_in_a_row;
    size_t frame_bytes;     // of the frame that is arriving
    int64_t control_frames; // beyond the rate, in this second
    struct outgoing out;
    struct decoding *decoding;
    struct upload upload;
};

static struct owner *owner_of(const struct connection *c) { // NULL until authorised
    return c->peer->as.owner;
}

// --- messages ---

static void send_hello(struct connection *c, const char *request_id) {
    const struct service *s = c->service;
    const struct protocol_hello hello = {
        .models = sessions_placement(s->sessions)->models,
        .server_name = s->config->server_name,
        .message_bytes = s->config->max_message_bytes,
        .messages_per_second = s->config->messages_per_second,
        .rate_bytes = NET_RATE_BYTES,
        .queued_turns = s->config->max_queued_turns_per_session,
        .idle_eviction_ms = s->config->max_sequence_idle_microseconds / 1000,
    };
    protocol_write_hello(outgoing_tx(&c->out), &hello, request_id);
    outgoing_queue(&c->out);
}

static void refuse_client(struct connection *c, const struct http_refusal *r,
                          const char *request_id) {
    outgoing_error(&c->out, r->code, r->message, request_id, r->retry_after_ms);
    outgoing_end(&c->out, CLOSE_POLICY, r->code);
}

static void handle_hello(struct connection *c, const struct message *m) {
    struct http_refusal r = REFUSE(401, "unauthorized", "a token is needed");
    if (owner_of(c)) return; // it was not needed, and ours has been said
    if (m->token) r = peer_authorise(c->peer, m->token, strlen(m->token));
    if (r.status)
        refuse_client(c, &r, m->request.request_id);
    else
        send_hello(c, m->request.request_id);
}

// False: it was a piece of an archive, and is answered.
static bool import_is_whole(struct connection *c, struct message *m) {
    struct request *r = &m->request;
    struct err err = {0};
    if (r->kind != REQUEST_IMPORT || (!m->more && m->at == 0)) return true;
    int rc = upload_add(&c->upload, &c->service->upload_bytes, m->at, r->archive, r->archive_len,
                        net_now_us(), &err);
    if (rc < 0) {
        const char *code = rc == E_LIMIT ? "too_large" : rc == E_BUSY ? "overloaded" : "invalid";
        outgoing_error(&c->out, code, err.text, r->request_id, rc == E_BUSY ? 5000 : 0);
    } else if (m->more) {
        protocol_write_importing(outgoing_tx(&c->out), (int64_t)c->upload.text.len, r->request_id);
        outgoing_queue(&c->out);
    } else {
        r->archive = buf_z(&c->upload.text);
        r->archive_len = c->upload.text.len;
        return true;
    }
    return false;
}

static void handle_usage(struct connection *c, const struct message *m) {
    const struct auth_token *as = &c->peer->as;
    struct json_writer w;
    if (m->owners && !as->admin) {
        outgoing_error(&c->out, "forbidden", "counts of other owners are an administrator's",
                       m->request.request_id, 0);
        return;
    }
    json_writer_init(&w, outgoing_tx(&c->out));
    json_open(&w, NULL, '{');
    json_put_string(&w, "type", "usage");
    if (*m->request.request_id) json_put_string(&w, "request_id", m->request.request_id);
    usage_put_owners(&w, c->service, as->owner, m->owners);
    json_close(&w, '}');
    outgoing_queue(&c->out);
}

static void handle_authorised(struct connection *c, struct message *m) {
    switch (m->type) {
    case MESSAGE_WATCH:
        c->out.owner = owner_of(c)->name;
        protocol_write_plain(outgoing_tx(&c->out), "sessions.watching", m->request.request_id);
        outgoing_queue(&c->out);
        break;
    case MESSAGE_PING:
        protocol_write_plain(outgoing_tx(&c->out), "pong", m->request.request_id);
        outgoing_queue(&c->out);
        break;
    case MESSAGE_USAGE:
        handle_usage(c, m);
        break;
    case MESSAGE_HELLO:
        break;
    case MESSAGE_REQUEST:
        if (!import_is_whole(c, m)) return;
        m->request.client = c->out.follower.client;
        m->request.owner = owner_of(c)->name;
        sessions_submit(c->service->sessions, &m->request);
        if (m->request.kind == REQUEST_IMPORT) upload_release(&c->upload);
    }
    service_poll_soon(c->service);
}

static void handle_message(struct connection *c, struct decoding *d) {
    struct message *m = &d->message;
    if (c->out.close_code) return;
    const struct http_refusal first = REFUSE(401, "unauthorized", "say hello with a token first");
    if (!owner_of(c) && (d->rc < 0 || m->type != MESSAGE_HELLO))
        refuse_client(c, &first, m->request.request_id);
    else if (d->rc < 0)
        outgoing_error(&c->out, d->code, d->err.text, m->request.request_id, 0);
    else if (m->type == MESSAGE_HELLO)
        handle_hello(c, m);
    else
        handle_authorised(c, m);
}

// --- decoding ---

static void run_decode(struct work *work) {
    struct decoding *d = (struct decoding *)work;
    d->rc = message_decode(&d->message, d->text, d->len, &d->limits, d->n_vocab, &d->code, &d->err);
}

// Two hundred thousand values take milliseconds to free.
static void run_release(struct work *work) {
    struct decoding *d = (struct decoding *)work;
    message_release(&d->message);
    free(d->text);
    d->text = NULL;
}

static void done_release(struct work *work) {
    struct decoding *d = (struct decoding *)work;
    if (d->text) run_release(work); // it was cancelled
    free(d);
}

static void done_decode(struct work *work) {
    struct decoding *d = (struct decoding *)work;
    struct connection *c = d->c;
    struct workers *workers = c ? c->service->net->workers : NULL;
    if (c) {
        c->decoding = NULL;
        handle_message(c, d);
        websocket_pause(c->peer, PAUSE_WORK, false);
    }
    d->work.run = run_release;
    d->work.done = done_release;
    if (!workers || workers_submit(workers, &d->work) < 0) done_release(work);
}

static int32_t n_vocab(const struct connection *c) {
    return placement_max_vocab(sessions_placement(c->service->sessions));
}

static void decode_here(struct connection *c, const struct json_limits *limits) {
    struct decoding d = {.c = c};
    d.rc =
        message_decode(&d.message, buf_z(&c->rx), c->rx.len, limits, n_vocab(c), &d.code, &d.err);
    handle_message(c, &d);
    message_release(&d.message);
}

static void decode_elsewhere(struct connection *c, const struct json_limits *limits) {
    struct decoding *d = calloc(1, sizeof(*d));
    if (!d) {
        outgoing_end(&c->out, CLOSE_INTERNAL, "no memory");
        return;
    }
    d->work = (struct work){.group = peer_group(c->peer),
                            .lane = c->peer->number,
                            .run = run_decode,
                            .done = done_decode};
    d->c = c;
    d->limits = *limits;
    d->n_vocab = n_vocab(c);
    d->text = buf_take(&c->rx, &d->len);
    c->decoding = d;
    if (workers_submit(c->service->net->workers, &d->work) == 0) {
        websocket_pause(c->peer, PAUSE_WORK, true);
        return;
    }
    c->decoding = NULL;
    outgoing_error(&c->out, "overloaded", "too many long messages are being read", "", 1000);
    free(d->text);
    free(d);
}

static void take_message(struct connection *c) {
    struct json_limits limits = json_limits_message;
    limits.max_bytes = (size_t)c->service->config->max_message_bytes;
    if (c->rx.len <= INLINE_BYTES)
        decode_here(c, &limits);
    else
        decode_elsewhere(c, &limits);
}

// --- rates ---

// A client that goes on in spite of as many refusals as its burst is cut off.
static struct http_refusal within_rate(struct connection *c, double cost) {
    struct http_refusal r = REFUSE(0, NULL, NULL);
    if (!rate_take(&c->rate, &c->limit, cost, net_now_us()))
        r = (struct http_refusal){429, "rate_limited", "too many messages",
                                  rate_promise_ms(&c->rate, &c->limit, cost)};
    else if (owner_of(c))
        r = peer_take_request(c->peer, cost);
    if (!r.status) {
        c->refused_in_a_row = 0;
        return r;
    }
    metric_add(c->service->metrics.rate_limited, 1);
    if (++c->refused_in_a_row > (int64_t)c->limit.burst)
        outgoing_end(&c->out, CLOSE_RATE, "too many messages");
    return r;
}

// A long message costs in proportion: a worker's time, and a session's for its tokens.
static bool message_within_rate(struct connection *c) {
    char request_id[SESSION_REQUEST_ID_MAX + 1];
    double cost = 1 + (double)(c->rx.len / NET_RATE_BYTES);
    struct http_refusal r = within_rate(c, cost);
    if (!r.status || c->out.close_code) return !r.status;
    message_glance(buf_z(&c->rx), c->rx.len, request_id);
    outgoing_error(&c->out, r.code, r.message, request_id, r.retry_after_ms);
    return false;
}

// A ping or a short fragment. It cannot be refused: it is answered already, or a part of a message.
// A flood within a second ends the connection.
static void on_control_frame(void *ws) {
    struct connection *c = ws;
    bool within = rate_take(&c->rate, &c->limit, 1, net_now_us());
    if (within && (!owner_of(c) || !peer_take_request(c->peer, 1).status)) return;
    metric_add(c->service->metrics.rate_limited, 1);
    if (++c->control_frames > (int64_t)c->limit.burst)
        outgoing_end(&c->out, CLOSE_RATE, "too many pings or fragments");
}

// --- receiving ---

static void too_big(struct connection *c) {
    char text[96];
    snprintf(text, sizeof(text), "a message may have %zu bytes", c->rx.max);
    outgoing_error(&c->out, "too_large", text, "", 0);
    outgoing_end(&c->out, CLOSE_TOO_BIG, "message too big");
}

static int on_receive(void *ws, const struct websocket_piece *piece) {
    struct connection *c = ws;
    if (c->out.close_code) return 0; // dropped, so that the close handshake can end
    if (piece->binary) {
        outgoing_end(&c->out, CLOSE_BINARY, "binary frames are not used");
        return 0;
    }
    if (piece->first) {
        buf_reset(&c->rx);
        c->rx.max = owner_of(c) ? (size_t)c->service->config->max_message_bytes : HELLO_BYTES;
    }
    if (buf_add(&c->rx, piece->bytes, piece->len) == E_LIMIT)
        too_big(c);
    else if (c->rx.error)
        outgoing_end(&c->out, CLOSE_INTERNAL, "no memory");
    c->frame_bytes += piece->len;
    if (piece->frame_ends && !piece->last && c->frame_bytes < FRAGMENT_BYTES) on_control_frame(c);
    if (piece->frame_ends) c->frame_bytes = 0;
    if (c->out.close_code || !piece->last) return 0;
    metric_add(c->service->metrics.messages_in, 1);
    if (message_within_rate(c)) take_message(c);
    buf_reset(&c->rx);
    if (c->rx.cap > RX_KEEP_BYTES) buf_release(&c->rx);
    return 0;
}

static int on_writable(void *ws) {
    return outgoing_writable(&((struct connection *)ws)->out);
}

static int on_client_closes(void *ws) {
    return ((struct connection *)ws)->out.close_sent ? -1 : 0;
}

static void on_unmasked(void *ws) {
    outgoing_end(&((struct connection *)ws)->out, CLOSE_PROTOCOL, "frames must be masked");
}

static void on_tick(void *ws, int64_t now_us) {
    struct connection *c = ws;
    c->control_frames = 0;
    upload_tick(&c->upload, now_us);
    outgoing_tick(&c->out, now_us);
}

static void on_no_hello(void *ws) {
    struct connection *c = ws;
    outgoing_error(&c->out, "unauthorized", "no token came in time", "", 0);
    outgoing_end(&c->out, CLOSE_POLICY, "no hello in time");
}

static void on_lost_token(void *ws) {
    struct connection *c = ws;
    outgoing_error(&c->out, "unauthorized", "the token was removed", "", 0);
    outgoing_end(&c->out, CLOSE_TOKEN, "the token was removed");
}

// --- life ---

static void *on_open(void *user, struct peer *p) {
    struct service *s = user;
    struct connection *c = calloc(1, sizeof(*c));
    if (!c || outgoing_init(&c->out, s, p) < 0) {
        free(c);
        return NULL;
    }
    c->service = s;
    c->peer = p;
    buf_init(&c->rx, HELLO_BYTES);
    c->limit = (struct rate_limit){(double)s->config->messages_per_second,
                                   (double)serve_config_burst(s->config)};
    rate_init(&c->rate, &c->limit, net_now_us());
    if (owner_of(c)) send_hello(c, "");
    if (s->state == SERVICE_CLOSING) outgoing_end(&c->out, CLOSE_GOING_AWAY, "shutting down");
    return c;
}

static void on_close(void *ws) {
    struct connection *c = ws;
    if (c->decoding) {
        c->decoding->c = NULL;
        workers_cancel(c->service->net->workers, c->peer->number);
    }
    outgoing_release(&c->out);
    buf_release(&c->rx);
    upload_release(&c->upload);
    free(c);
}

const struct websocket_protocol connection_protocol = {.path = "/ws",
                                                       .name = PROTOCOL_NAME,
                                                       .open = on_open,
                                                       .close = on_close,
                                                       .receive = on_receive,
                                                       .control_frame = on_control_frame,
                                                       .writable = on_writable,
                                                       .client_closes = on_client_closes,
                                                       .unmasked = on_unmasked,
                                                       .no_hello = on_no_hello,
                                                       .lost_token = on_lost_token,
                                                       .tick = on_tick};
