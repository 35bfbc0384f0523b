// Messages that came: decodes each and gives it to the session service. A long one is decoded on a worker; nothing
// more is read from its client meanwhile, so its messages stay in order. See connection.h.
#include "ws/parley/connection.h"
#include "base/json_form.h"
#include "ws/parley/outgoing.h"
#include "ws/parley/protocol.h"
#include "ws/parley/upload.h"
#include "ws/usage.h"
#include <stdlib.h>
#include <string.h>

struct decoding {            // a message on its way through a worker, and back to be freed there
    struct socket_work work; // first: its callbacks cast
    struct json_limits limits;
    int32_t n_vocab;
    struct message message;
    const char *code;
    struct err err;
    int rc;
};

struct connection {
    struct outgoing out; // first: callbacks cast
    struct service *service;
    struct peer *peer;
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
        .user = auth_needs_token(s->net->auth) ? owner_of(c)->name : NULL,
        .admin = c->peer->as.admin,
        .sharing = s->config->sharing,
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
    outgoing_error(&c->out, r->code, r->message, request_id, r->retry_after_ms, NULL);
    socket_end(&c->out.socket, CLOSE_POLICY, r->code);
}

static void handle_hello(struct connection *c, const struct message *m) {
    struct http_refusal r = REFUSE(401, "unauthorized", "a token is needed");
    if (owner_of(c)) return; // not needed: the server's hello was sent when the socket opened
    if (m->token) r = peer_authorise(c->peer, m->token, strlen(m->token));
    if (r.status)
        refuse_client(c, &r, m->request.request_id);
    else
        send_hello(c, m->request.request_id);
}

// False: m was a piece of an archive, and is answered.
static bool import_is_whole(struct connection *c, struct message *m) {
    struct request *r = &m->request;
    struct err err = {0};
    if (r->kind != REQUEST_IMPORT || (!m->more && m->at == 0)) return true;
    int rc = upload_add(&c->upload, &c->service->upload_bytes, m->at, r->import.archive,
                        r->import.archive_len, net_served_us(c->service->net), &err);
    if (rc < 0) {
        const char *code = rc == E_LIMIT ? "too_large" : rc == E_BUSY ? "overloaded" : "invalid";
        outgoing_error(&c->out, code, err.text, r->request_id, rc == E_BUSY ? 5000 : 0, NULL);
    } else if (m->more) {
        protocol_write_importing(outgoing_tx(&c->out), (int64_t)c->upload.text.len, r->request_id);
        outgoing_queue(&c->out);
    } else {
        r->import.archive = buf_z(&c->upload.text);
        r->import.archive_len = c->upload.text.len;
        return true;
    }
    return false;
}

static void handle_usage(struct connection *c, const struct message *m) {
    const struct auth_token *as = &c->peer->as;
    struct json_writer w;
    if (m->owners && !as->admin) {
        outgoing_error(&c->out, "forbidden", "counts of other owners are an administrator's",
                       m->request.request_id, 0, NULL);
        return;
    }
    json_writer_init(&w, outgoing_tx(&c->out));
    json_form(&w, "{type:'usage',request_id?:%s", m->request.request_id);
    usage_put_owners(&w, c->service, as->owner, m->owners);
    json_close(&w, '}');
    outgoing_queue(&c->out);
}

// False: m asks for a link, which this server does not make, and is answered. It takes links back in any case.
static bool may_share(struct connection *c, const struct message *m) {
    if (m->request.share != FLAG_ON || c->service->config->sharing) return true;
    outgoing_error(&c->out, "unsupported", "this server shares no sessions (sharing is off)",
                   m->request.request_id, 0, NULL);
    return false;
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
        if (!import_is_whole(c, m) || !may_share(c, m)) return;
        m->request.client = c->out.socket.follower.client;
        m->request.owner = owner_of(c)->name;
        sessions_submit(c->service->sessions, &m->request);
        if (m->request.kind == REQUEST_IMPORT) upload_release(&c->upload);
    }
    service_poll_soon(c->service);
}

static void handle_message(struct connection *c, struct decoding *d) {
    struct message *m = &d->message;
    if (c->out.socket.close_code) return;
    const struct http_refusal first = REFUSE(401, "unauthorized", "say hello with a token first");
    if (!owner_of(c) && (d->rc < 0 || m->type != MESSAGE_HELLO))
        refuse_client(c, &first, m->request.request_id);
    else if (d->rc < 0)
        outgoing_error(&c->out, d->code, d->err.text, m->request.request_id, 0, &d->err.facts);
    else if (m->type == MESSAGE_HELLO)
        handle_hello(c, m);
    else
        handle_authorised(c, m);
}

// --- decoding ---

static void run_decode(struct work *work) {
    struct decoding *d = (struct decoding *)work;
    d->rc = message_decode(&d->message, d->work.text, d->work.len, &d->limits, d->n_vocab, &d->code,
                           &d->err);
}

// On a worker too: freeing two hundred thousand values takes milliseconds.
static void run_release(struct work *work) {
    struct decoding *d = (struct decoding *)work;
    message_release(&d->message);
    free(d->work.text);
    d->work.text = NULL;
}

static void done_release(struct work *work) {
    struct decoding *d = (struct decoding *)work;
    if (d->work.text) run_release(work); // it was cancelled
    free(d);
}

static void done_decode(struct work *work) {
    struct decoding *d = (struct decoding *)work;
    struct connection *c = (struct connection *)socket_work_done(&d->work);
    struct workers *workers = c ? c->service->net->workers : NULL;
    if (c) handle_message(c, d);
    work->run = run_release;
    work->done = done_release;
    if (!workers || workers_submit(workers, work) < 0) done_release(work);
}

static int32_t n_vocab(const struct connection *c) {
    return placement_max_vocab(sessions_placement(c->service->sessions));
}

static void decode_here(struct connection *c, const struct json_limits *limits) {
    const struct buf *rx = &c->out.socket.rx;
    struct decoding d = {0};
    d.rc = message_decode(&d.message, buf_z(rx), rx->len, limits, n_vocab(c), &d.code, &d.err);
    handle_message(c, &d);
    message_release(&d.message);
}

static void decode_elsewhere(struct connection *c, const struct json_limits *limits) {
    struct decoding *d = calloc(1, sizeof(*d));
    if (!d) {
        socket_no_memory(&c->out.socket);
        return;
    }
    d->limits = *limits;
    d->n_vocab = n_vocab(c);
    if (socket_work_submit(&c->out.socket, &d->work, run_decode, done_decode) == 0) return;
    outgoing_error(&c->out, "overloaded", "too many long messages are being read", "", 1000, NULL);
    free(d->work.text);
    free(d);
}

static void on_message(struct socket *s) {
    struct connection *c = (struct connection *)s;
    struct json_limits limits = json_limits_message;
    limits.max_bytes = (size_t)c->service->config->max_message_bytes;
    if (s->rx.len <= SOCKET_INLINE_BYTES)
        decode_here(c, &limits);
    else
        decode_elsewhere(c, &limits);
}

static void on_refuse(struct socket *s, const struct http_refusal *r) {
    char request_id[SESSION_REQUEST_ID_MAX + 1] = "";
    if (r->status == 429) message_glance(buf_z(&s->rx), s->rx.len, request_id);
    outgoing_error((struct outgoing *)s, r->code, r->message, request_id, r->retry_after_ms, NULL);
}

static const struct socket_ops socket_ops = {.message = on_message,
                                             .refuse = on_refuse,
                                             .ended = outgoing_ended,
                                             .has_more = outgoing_has_more,
                                             .send = outgoing_send,
                                             .sent = outgoing_sent,
                                             .no_memory = CLOSE_INTERNAL,
                                             .no_memory_reason = "no memory"};

static void on_tick(void *ws, int64_t now_us) {
    struct connection *c = ws;
    upload_tick(&c->upload, now_us);
    socket_tick(c, now_us);
}

static void on_no_hello(void *ws) {
    struct connection *c = ws;
    outgoing_error(&c->out, "unauthorized", "no token came in time", "", 0, NULL);
    socket_end(&c->out.socket, CLOSE_POLICY, "no hello in time");
}

static void on_lost_token(void *ws) {
    struct connection *c = ws;
    outgoing_error(&c->out, "unauthorized", "the token was removed", "", 0, NULL);
    socket_end(&c->out.socket, CLOSE_TOKEN, "the token was removed");
}

// --- life ---

static void *on_open(void *user, struct peer *p) {
    struct service *s = user;
    struct connection *c = calloc(1, sizeof(*c));
    if (!c || outgoing_init(&c->out, s, p, &socket_ops) < 0) {
        free(c);
        return NULL;
    }
    c->service = s;
    c->peer = p;
    if (owner_of(c)) send_hello(c, "");
    if (s->state == SERVICE_CLOSING) socket_end(&c->out.socket, CLOSE_GOING_AWAY, "shutting down");
    return c;
}

static void on_close(void *ws) {
    struct connection *c = ws;
    outgoing_release(&c->out);
    upload_release(&c->upload);
    free(c);
}

const struct websocket_protocol connection_protocol = {.path = "/ws",
                                                       .name = PROTOCOL_NAME,
                                                       .open = on_open,
                                                       .close = on_close,
                                                       .receive = socket_receive,
                                                       .control_frame = socket_control_frame,
                                                       .writable = socket_writable,
                                                       .client_closes = socket_client_closes,
                                                       .unmasked = socket_unmasked,
                                                       .no_hello = on_no_hello,
                                                       .lost_token = on_lost_token,
                                                       .tick = on_tick};
