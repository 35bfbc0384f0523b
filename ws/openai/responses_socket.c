// See responses_socket.h.
#include "ws/openai/responses_socket.h"
#include "base/array.h"
#include "base/workers.h"
#include "ws/net/http.h"
#include "ws/net/peer.h"
#include "ws/openai/failure.h"
#include "ws/openai/responses_run.h"
#include "ws/service.h"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define IN_FLIGHT_MAX 16
#define INLINE_BYTES 8192 // of a message; a longer one is a worker's
#define RX_KEEP_BYTES 4096
#define FRAGMENT_BYTES 1024           // a shorter fragment counts as a control frame
#define ROOM_BYTES ((size_t)64 << 10) // unsent: the runs wait
#define ERROR_MAX_BYTES 16384
#define CLOSE_GRACE_US 10000000 // for the last frames and the close handshake

enum {
    CLOSE_PROTOCOL = 1002,
    CLOSE_BINARY = 1003,
    CLOSE_TOO_BIG = 1009,
    CLOSE_INTERNAL = 1011,
    CLOSE_RESTART = 1012,
    CLOSE_OVERLOAD = 1013,
    CLOSE_SLOW = 4001,
    CLOSE_RATE = 4002,
    CLOSE_TOKEN = 4003,
};

struct message { // on its way out
    struct message *prev, *next;
    size_t len, sent;
    char bytes[];
};

struct socket;
struct flight {                 // a request that came
    struct flight *prev, *next; // of the socket, in their order
    struct socket *socket;
    char stream_id[RESPONSES_STREAM_ID_MAX + 1];
    struct responses_request *request; // while it waits for those before it in its lane
    struct responses_run *run;         // NULL: it waits
    bool stored;
    bool done; // to be freed by the socket's push
};

struct reading { // a message that a worker decodes
    struct work work;
    struct socket *socket; // NULL: it is gone
    const struct service *service;
    char *text;
    size_t len;
    struct responses_request *request;
};

struct socket {
    struct follower follower; // first: its callbacks cast
    struct service *service;
    struct peer *peer;
    struct buf rx;
    struct message *out; // utlist
    size_t n_unsent;
    struct flight *flights;
    int n_flights;
    char (*local)[SESSION_ID_MAX + 1]; // (n_local) sessions that die with the socket
    size_t n_local, cap_local;
    struct reading *reading;
    struct rate_limit limit;
    struct rate rate;
    int64_t n_control, n_refused;
    size_t frame_bytes;
    int close_code; // 0: open
    const char *close_reason;
    bool close_sent;
    int64_t end_by_us, stuck_us;
};

static void wake(struct socket *so) {
    follower_push_later(&so->service->followers, &so->follower);
    service_poll_soon(so->service);
}

// --- the end ---------------------------------------------------------------

static bool is_local(const struct socket *so, const char *session) {
    for (size_t i = 0; i < so->n_local; i++)
        if (strcmp(so->local[i], session) == 0) return true;
    return false;
}

static void delete_session(struct socket *so, const char *session) {
    struct request r;
    request_init(&r, REQUEST_CLOSE);
    r.client = CLIENT_GONE;
    r.owner = so->peer->as.owner->name;
    r.session = session;
    r.delete_it = true;
    sessions_submit(so->service->sessions, &r);
    service_poll_soon(so->service);
}

// A response that is not stored can be gone on from while its socket lives.
static void note_local(struct flight *fl) {
    struct socket *so = fl->socket;
    const char *session = fl->run ? responses_run_output(fl->run)->session : "";
    if (fl->stored || !*session || is_local(so, session)) return;
    if (ARRAY_RESERVE(so->local, so->cap_local, so->n_local + 1) < 0)
        delete_session(so, session);
    else
        memcpy(so->local[so->n_local++], session, sizeof so->local[0]);
}

static void free_flight(struct flight *fl) {
    note_local(fl);
    DL_DELETE(fl->socket->flights, fl);
    fl->socket->n_flights--;
    responses_run_free(fl->run);
    responses_request_free(fl->request);
    free(fl);
}

static void drop_messages(struct socket *so) {
    struct message *m, *next;
    DL_FOREACH_SAFE(so->out, m, next) {
        if (m->sent > 0 && m->sent < m->len) continue; // the client is inside it
        DL_DELETE(so->out, m);
        so->n_unsent -= m->len - m->sent;
        free(m);
    }
}

// The queued messages go out, but not to those who do not read; then the close frame. The responses end with the
// next push: they may be what calls this.
static void end(struct socket *so, int code, const char *reason) {
    if (so->close_code) return;
    so->close_code = code;
    so->close_reason = reason;
    so->end_by_us = net_now_us() + CLOSE_GRACE_US;
    if (code == CLOSE_SLOW || code == CLOSE_INTERNAL) drop_messages(so);
    if (code == CLOSE_RATE) websocket_pause(so->peer, PAUSE_OUTPUT, true);
    wake(so);
}

// --- sending ---------------------------------------------------------------

static void queue(struct socket *so, const struct buf *text) {
    struct message *m = text->error ? NULL : malloc(sizeof *m + text->len);
    if (so->close_code) {
        free(m);
        return;
    }
    if (!m) {
        end(so, CLOSE_INTERNAL, "no memory");
        return;
    }
    *m = (struct message){.len = text->len};
    memcpy(m->bytes, text->data, text->len);
    DL_APPEND(so->out, m);
    so->n_unsent += m->len;
    metric_add(so->service->metrics.frames_out, 1);
    wake(so);
}

static int send_close(struct socket *so) {
    struct buf *tx = websocket_tx(so->peer->net);
    unsigned char code[2] = {(unsigned char)(so->close_code >> 8), (unsigned char)so->close_code};
    buf_add(tx, code, 2);
    if (buf_addz(tx, so->close_reason) < 0) return -1;
    so->close_sent = true;
    if (so->close_code != CLOSE_RATE) websocket_pause(so->peer, PAUSE_OUTPUT, false);
    return websocket_write_close(so->peer, tx->len - LWS_PRE);
}

// One frame, or a piece of one. 0, or -1 when the socket is broken.
static int send_one(struct socket *so) {
    struct message *m = so->out;
    if (!m) return so->close_code ? send_close(so) : 0;
    size_t n = m->len - m->sent < NET_CHUNK_BYTES ? m->len - m->sent : NET_CHUNK_BYTES;
    struct buf *tx = websocket_tx(so->peer->net);
    bool first = m->sent == 0, last = m->sent + n == m->len;
    if (buf_add(tx, m->bytes + m->sent, n) < 0) return -1;
    m->sent += n;
    so->n_unsent -= n;
    so->stuck_us = 0;
    if (last) {
        DL_DELETE(so->out, m);
        free(m);
    }
    return websocket_write_text(so->peer, n, first, last);
}

static bool has_more(const struct socket *so) {
    return so->out || (so->close_code && !so->close_sent);
}

static void write_more(struct socket *so) {
    while (has_more(so) && !websocket_choked(so->peer))
        if (send_one(so) < 0) {
            websocket_kill(so->peer);
            return;
        }
    if (!has_more(so)) return;
    if (!so->stuck_us) so->stuck_us = net_now_us();
    websocket_want_write(so->peer);
}

static void send_failure(struct socket *so, const char *stream_id,
                         const struct completion_failure *f) {
    struct buf out, error;
    buf_init(&error, ERROR_MAX_BYTES);
    openai_write_failure(&error, f); // {"error":{...}}
    buf_init(&out, ERROR_MAX_BYTES);
    buf_addf(&out, "{\"type\":\"error\",\"status\":%d,", f->status);
    if (*stream_id) buf_addf(&out, "\"stream_id\":\"%s\",", stream_id); // letters, digits, _ . -
    if (f->retry_after_ms) buf_addf(&out, "\"retry_after_ms\":%lld,", (long long)f->retry_after_ms);
    buf_addz(&out, buf_z(&error) + 1);
    queue(so, &out);
    metric_add(so->service->metrics.errors_out, 1);
    buf_release(&error);
    buf_release(&out);
}

static void send_error(struct socket *so, const char *stream_id, int status, const char *code,
                       const char *message, int64_t retry_after_ms) {
    struct completion_failure f = {.retry_after_ms = retry_after_ms};
    openai_fail(&f, status, code, NULL, message);
    send_failure(so, stream_id, &f);
}

// --- responses -------------------------------------------------------------

static bool has_room(void *ctx) {
    const struct flight *fl = ctx;
    return fl->socket->n_unsent < ROOM_BYTES && !fl->socket->close_code;
}

static void on_event(void *ctx, const char *type, const struct buf *json) {
    queue(((struct flight *)ctx)->socket, json);
}

static bool on_sent(void *ctx, int64_t drawn_us) {
    struct flight *fl = ctx;
    service_count_token(fl->socket->service, drawn_us);
    return true;
}

static void on_done(struct flight *fl) {
    fl->done = true;
    wake(fl->socket);
}

static void on_refused(void *ctx, const struct completion_failure *f) {
    struct flight *fl = ctx;
    send_failure(fl->socket, fl->stream_id, f);
    on_done(fl);
    if (strcmp(f->code, "shutting_down") == 0)
        end(fl->socket, CLOSE_RESTART, "the server is shutting down");
}

static void on_ended(void *ctx) {
    on_done(ctx);
}

static const struct responses_sink sink = {
    .room = has_room, .event = on_event, .sent = on_sent, .refused = on_refused, .ended = on_ended};

static void start(struct flight *fl) {
    struct socket *so = fl->socket;
    struct responses_request *r = fl->request;
    fl->request = NULL;
    r->forget = false; // the socket does that
    r->extends |= is_local(so, r->previous.session);
    fl->run = responses_run_start(so->service, so->peer->as.owner->name, r, &sink, fl);
    if (fl->run) return;
    responses_request_free(r);
    fl->done = true;
    end(so, CLOSE_OVERLOAD, "the server is out of memory");
}

static bool lane_is_free(const struct flight *fl) {
    for (const struct flight *before = fl->socket->flights; before != fl; before = before->next)
        if (!before->done && strcmp(before->stream_id, fl->stream_id) == 0) return false;
    return true;
}

// Takes r.
static void take_request(struct socket *so, struct responses_request *r) {
    struct flight *fl = NULL;
    if (!r) {
        end(so, CLOSE_OVERLOAD, "the server is out of memory");
    } else if (r->failure.status) {
        send_failure(so, r->stream_id, &r->failure);
    } else if (so->n_flights >= IN_FLIGHT_MAX) {
        send_error(so, r->stream_id, 429, "websocket_stream_limit_reached",
                   "16 responses are under way already", 0);
    } else if (!(fl = calloc(1, sizeof *fl))) {
        end(so, CLOSE_OVERLOAD, "the server is out of memory");
    }
    if (!fl) {
        responses_request_free(r);
        return;
    }
    fl->socket = so;
    fl->request = r;
    fl->stored = r->store;
    memcpy(fl->stream_id, r->stream_id, sizeof fl->stream_id);
    DL_APPEND(so->flights, fl);
    so->n_flights++;
    if (lane_is_free(fl)) start(fl);
}

// --- messages that come ----------------------------------------------------

static struct responses_request *decode(const struct service *s, const char *text, size_t len) {
    return responses_request_read(s, text, len, (size_t)s->config->max_message_bytes,
                                  RESPONSES_SOCKET);
}

static void run_reading(struct work *work) {
    struct reading *d = (struct reading *)work;
    d->request = decode(d->service, d->text, d->len);
}

static void done_reading(struct work *work) {
    struct reading *d = (struct reading *)work;
    struct socket *so = d->socket;
    if (so) {
        so->reading = NULL;
        if (!so->close_code) {
            take_request(so, d->request);
            d->request = NULL;
        }
        websocket_pause(so->peer, PAUSE_WORK, false);
    }
    responses_request_free(d->request);
    free(d->text);
    free(d);
}

static void read_elsewhere(struct socket *so) {
    struct reading *d = calloc(1, sizeof *d);
    if (!d) {
        end(so, CLOSE_OVERLOAD, "the server is out of memory");
        return;
    }
    *d = (struct reading){.work = {.group = peer_group(so->peer),
                                   .lane = so->peer->number,
                                   .run = run_reading,
                                   .done = done_reading},
                          .socket = so,
                          .service = so->service};
    d->text = buf_take(&so->rx, &d->len);
    so->reading = d;
    if (workers_submit(so->service->net->workers, &d->work) == 0) {
        websocket_pause(so->peer, PAUSE_WORK, true);
        return;
    }
    so->reading = NULL;
    free(d->text);
    free(d);
    end(so, CLOSE_OVERLOAD, "too many long messages are being read");
}

// A client that goes on in spite of as many refusals as its burst is cut off.
static bool within_rate(struct socket *so, double cost) {
    struct http_refusal r = REFUSE(429, "rate_limited", "too many messages");
    if (rate_take(&so->rate, &so->limit, cost, net_now_us()))
        r = peer_take_request(so->peer, cost);
    else
        r.retry_after_ms = rate_promise_ms(&so->rate, &so->limit, cost);
    if (!r.status) {
        so->n_refused = 0;
        return true;
    }
    metric_add(so->service->metrics.rate_limited, 1);
    if (++so->n_refused > (int64_t)so->limit.burst)
        end(so, CLOSE_RATE, "too many messages");
    else
        send_error(so, "", r.status, r.code, r.message, r.retry_after_ms);
    return false;
}

static void on_control_frame(void *ws) {
    struct socket *so = ws;
    if (rate_take(&so->rate, &so->limit, 1, net_now_us()) && !peer_take_request(so->peer, 1).status)
        return;
    metric_add(so->service->metrics.rate_limited, 1);
    if (++so->n_control > (int64_t)so->limit.burst)
        end(so, CLOSE_RATE, "too many pings or fragments");
}

static void take_message(struct socket *so) {
    metric_add(so->service->metrics.messages_in, 1);
    if (!within_rate(so, 1 + (double)(so->rx.len / NET_RATE_BYTES))) return;
    if (so->rx.len > INLINE_BYTES || completion_is_costly(buf_z(&so->rx), so->rx.len))
        read_elsewhere(so);
    else
        take_request(so, decode(so->service, buf_z(&so->rx), so->rx.len));
}

static int on_receive(void *ws, const struct websocket_piece *piece) {
    struct socket *so = ws;
    if (so->close_code) return 0; // dropped, so that the close handshake can end
    if (piece->binary) {
        end(so, CLOSE_BINARY, "binary frames are not used");
        return 0;
    }
    if (piece->first) buf_reset(&so->rx);
    if (buf_add(&so->rx, piece->bytes, piece->len) == E_LIMIT)
        end(so, CLOSE_TOO_BIG, "message too big");
    else if (so->rx.error)
        end(so, CLOSE_OVERLOAD, "the server is out of memory");
    so->frame_bytes += piece->len;
    if (piece->frame_ends && !piece->last && so->frame_bytes < FRAGMENT_BYTES) on_control_frame(so);
    if (piece->frame_ends) so->frame_bytes = 0;
    if (so->close_code || !piece->last) return 0;
    take_message(so);
    buf_reset(&so->rx);
    if (so->rx.cap > RX_KEEP_BYTES) {
        buf_release(&so->rx);
        buf_init(&so->rx, (size_t)so->service->config->max_message_bytes);
    }
    return 0;
}

// --- from the loop ---------------------------------------------------------

static void pump(struct socket *so) {
    struct flight *fl, *next;
    DL_FOREACH_SAFE(so->flights, fl, next) {
        if (fl->run && !fl->done && !so->close_code) responses_run_pump(fl->run);
    }
    DL_FOREACH_SAFE(so->flights, fl, next) {
        if (fl->done || so->close_code) free_flight(fl);
    }
    DL_FOREACH_SAFE(so->flights, fl, next) {
        if (fl->request && lane_is_free(fl)) start(fl);
    }
}

static void push(struct follower *f) {
    struct socket *so = (struct socket *)f;
    pump(so);
    if (!so->close_sent) write_more(so);
}

static int on_writable(void *ws) {
    struct socket *so = ws;
    if (so->close_sent) return 0;
    so->stuck_us = 0;
    if (has_more(so) && send_one(so) < 0) return -1;
    wake(so); // and what waits for the room
    return 0;
}

static int on_client_closes(void *ws) {
    return ((struct socket *)ws)->close_sent ? -1 : 0;
}

static void on_unmasked(void *ws) {
    end(ws, CLOSE_PROTOCOL, "frames must be masked");
}

static void on_no_hello(void *ws) {}

static void on_lost_token(void *ws) {
    struct socket *so = ws;
    send_error(so, "", 401, "unauthorized", "the token was removed", 0);
    end(so, CLOSE_TOKEN, "the token was removed");
}

static void on_tick(void *ws, int64_t now_us) {
    struct socket *so = ws;
    int64_t slow_us = (int64_t)(so->service->config->slow_reader_timeout * 1e6);
    so->n_control = 0;
    if (so->end_by_us && now_us > so->end_by_us) {
        websocket_kill(so->peer);
    } else if (!so->close_code && so->stuck_us && now_us - so->stuck_us > slow_us) {
        metric_add(so->service->metrics.slow_readers, 1);
        end(so, CLOSE_SLOW, "reads too slowly");
    }
}

// --- as a follower ---------------------------------------------------------

static bool is_drained(const struct follower *f) {
    const struct socket *so = (const struct socket *)f;
    return !so->out && !so->flights;
}

static void on_end(struct follower *f) {
    end((struct socket *)f, CLOSE_RESTART, "the server is shutting down");
}

static const struct follower_ops follower_ops = {
    .push = push, .drained = is_drained, .end = on_end};

// --- life ------------------------------------------------------------------

static void *on_open(void *user, struct peer *p) {
    struct service *s = user;
    struct socket *so = calloc(1, sizeof *so);
    if (!so) return NULL;
    *so = (struct socket){.follower.ops = &follower_ops, .service = s, .peer = p};
    if (followers_add(&s->followers, &so->follower) < 0) {
        free(so);
        return NULL;
    }
    buf_init(&so->rx, (size_t)s->config->max_message_bytes);
    so->limit = (struct rate_limit){(double)s->config->messages_per_second,
                                    (double)serve_config_burst(s->config)};
    rate_init(&so->rate, &so->limit, net_now_us());
    if (s->state != SERVICE_RUNNING) end(so, CLOSE_RESTART, "the server is shutting down");
    return so;
}

static void on_close(void *ws) {
    struct socket *so = ws;
    struct flight *fl, *next;
    struct message *m, *after;
    if (so->reading) {
        so->reading->socket = NULL;
        workers_cancel(so->service->net->workers, so->peer->number);
    }
    DL_FOREACH_SAFE(so->flights, fl, next) free_flight(fl);
    DL_FOREACH_SAFE(so->out, m, after) free(m);
    for (size_t i = 0; i < so->n_local; i++) delete_session(so, so->local[i]);
    free(so->local);
    followers_remove(&so->service->followers, &so->follower);
    buf_release(&so->rx);
    free(so);
}

const struct websocket_protocol responses_socket_protocol = {.path = "/v1/responses",
                                                             .guarded = true,
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
