// See responses_socket.h.
#include "ws/openai/responses_socket.h"
#include "base/array.h"
#include "ws/net/http.h"
#include "ws/openai/failure.h"
#include "ws/openai/responses_run.h"
#include "ws/socket.h"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define IN_FLIGHT_MAX 16
#define ROOM_BYTES ((size_t)64 << 10) // unsent: the runs wait
#define ERROR_MAX_BYTES 16384

struct responses_socket;
struct flight {                 // a request that came
    struct flight *prev, *next; // of the socket, in their order
    struct responses_socket *socket;
    char stream_id[RESPONSES_STREAM_ID_MAX + 1];
    struct responses_request *request; // while it waits for earlier requests of its stream
    struct responses_run *run;         // NULL: the request waits
    char *settings;                    // of its request, for successors; NULL: it cannot be steered
    struct steer *steers;              // accepted while it runs
    // Of a successor: the steered inputs that it answers, until its first event; its response.create as text, until a
    // worker has read that text.
    struct steer *answers;
    char *text; // (text_len)
    size_t text_len;
    bool stored;
    bool done; // to be freed by the socket's push
};

struct reading {             // a message that a worker decodes
    struct socket_work work; // first: its callbacks cast
    const struct service *service;
    const struct owner *owner;
    struct responses_request *request;
    struct flight *successor; // the response.create is a successor's; NULL: a client's
};

struct responses_socket {
    struct socket socket; // first: callbacks cast
    struct service *service;
    struct peer *peer;
    char session[SESSION_ID_MAX + 1]; // that the upgrade's headers name; "": none
    struct flight *flights;
    int n_flights;
    char (*local)[SESSION_ID_MAX + 1]; // (n_local) sessions that die with the socket
    size_t n_local, cap_local;
};

static void wake(struct responses_socket *so) {
    service_push(so->service, &so->socket.follower);
}

// --- sessions that are not stored ---------------------------------------------------------------

static bool is_local(const struct responses_socket *so, const char *session) {
    for (size_t i = 0; i < so->n_local; i++)
        if (strcmp(so->local[i], session) == 0) return true;
    return false;
}

static void delete_session(struct responses_socket *so, const char *session) {
    service_delete_session(so->service, so->peer->as.owner->name, session);
}

// A response that is not stored can be continued while its socket lives.
static void note_local(struct flight *fl) {
    struct responses_socket *so = fl->socket;
    const char *session = fl->run ? responses_run_output(fl->run)->session : "";
    if (fl->stored || !*session || is_local(so, session)) return;
    if (ARRAY_RESERVE(so->local, so->cap_local, so->n_local + 1) < 0)
        delete_session(so, session);
    else
        memcpy(so->local[so->n_local++], session, sizeof so->local[0]);
}

static void free_flight(struct flight *fl) {
    note_local(fl);
    steers_free(&fl->steers);
    steers_free(&fl->answers);
    free(fl->settings);
    free(fl->text);
    DL_DELETE(fl->socket->flights, fl);
    fl->socket->n_flights--;
    responses_run_free(fl->run);
    responses_request_free(fl->request);
    free(fl);
}

static void queue(struct responses_socket *so, const struct buf *text) {
    if (text->error)
        socket_no_memory(&so->socket);
    else
        socket_queue(&so->socket, text->data, text->len);
}

static void send_failure(struct responses_socket *so, const char *stream_id,
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

static void send_error(struct responses_socket *so, const char *stream_id, int status,
                       const char *code, const char *message, int64_t retry_after_ms) {
    struct completion_failure f = {.retry_after_ms = retry_after_ms};
    openai_fail(&f, status, code, NULL, message);
    send_failure(so, stream_id, &f);
}

// --- steering ---------------------------------------------------------------

// fl: the steered response, which numbers the event; NULL: no response of this socket.
static void send_steer_failed(struct responses_socket *so, struct flight *fl,
                              const struct steer *st, const struct completion_failure *f) {
    struct buf out;
    int64_t number = fl && fl->run ? responses_run_number(fl->run) : 0;
    steer_write_failed(st, number, fl ? fl->stream_id : "", f, &out);
    queue(so, &out);
    buf_release(&out);
}

static void fail_steers(struct flight *fl, struct steer **list,
                        const struct completion_failure *f) {
    struct steer *st;
    DL_FOREACH(*list, st) send_steer_failed(fl->socket, fl, st, f);
    steers_free(list);
}

static struct flight *flight_of(const struct responses_socket *so, const char *response_id) {
    struct flight *fl;
    DL_FOREACH(so->flights, fl) {
        if (fl->run && !fl->done && strcmp(responses_run_output(fl->run)->id, response_id) == 0)
            return fl;
    }
    return NULL;
}

// Queues the steered input behind its response, or answers why not.
static void take_steer(struct responses_socket *so, struct responses_request *r) {
    struct steer *st = r->steer;
    struct flight *fl = flight_of(so, st->target);
    struct completion_failure f = {0};
    struct buf out;
    if (!fl)
        openai_fail(&f, 409, "response_not_active", "previous_response_id",
                    "The response does not run on this connection: send the input with "
                    "response.create");
    else if (!fl->settings)
        openai_fail(&f, 400, "unsupported", "previous_response_id",
                    "A response in a conversation, or with more than 1 MiB of settings, is not "
                    "steered");
    if (f.status) {
        send_steer_failed(so, fl, st, &f);
        return;
    }
    r->steer = NULL;
    DL_APPEND(fl->steers, st);
    steer_write_accepted(st, responses_run_number(fl->run), fl->stream_id, &out);
    queue(so, &out);
    buf_release(&out);
}

// Why a response that has ended has no successor. False: it gets one.
static bool refuses_successor(const struct responses_output *o, struct completion_failure *f) {
    bool whole = o->status == RESPONSES_COMPLETED || o->status == RESPONSES_INCOMPLETE;
    for (size_t i = 0; whole && i < o->n_items; i++)
        if (o->items[i].kind == ITEM_CALL || o->items[i].kind == ITEM_CUSTOM_CALL)
            return openai_fail(f, 400, "required_input_missing", NULL,
                               "The response waits for the outputs of its calls: send the input "
                               "with them") != 0;
    if (!whole)
        openai_fail(f, 400, "response_not_completed", NULL,
                    "The response was not completed, and nothing continues it");
    return !whole;
}

// A response that was steered has ended: its successor takes its place in the lane.
static void succeed(struct flight *fl) {
    struct completion_failure f = {0};
    struct flight *next = NULL;
    if (!refuses_successor(responses_run_output(fl->run), &f)) {
        next = calloc(1, sizeof *next);
        char *text = next ? steer_successor(fl->settings, fl->steers, &next->text_len) : NULL;
        if (!text) openai_no_memory(&f);
        if (next) next->text = text;
    }
    if (f.status) {
        fail_steers(fl, &fl->steers, &f);
        free(next);
        return;
    }
    next->socket = fl->socket;
    memcpy(next->stream_id, fl->stream_id, sizeof next->stream_id);
    next->answers = fl->steers;
    fl->steers = NULL;
    DL_APPEND_ELEM(fl->socket->flights, fl, next);
    fl->socket->n_flights++;
}

// --- responses -------------------------------------------------------------

static bool has_room(void *ctx) {
    const struct flight *fl = ctx;
    return fl->socket->socket.outbox.bytes < ROOM_BYTES && !fl->socket->socket.close_code;
}

static void on_event(void *ctx, const char *type, const struct buf *json) {
    struct flight *fl = ctx;
    steers_free(&fl->answers);
    queue(fl->socket, json);
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

static void refuse(struct flight *fl, const struct completion_failure *f) {
    if (fl->answers)
        fail_steers(fl, &fl->answers, f);
    else
        send_failure(fl->socket, fl->stream_id, f);
    on_done(fl);
}

static void on_refused(void *ctx, const struct completion_failure *f) {
    struct flight *fl = ctx;
    refuse(fl, f);
    if (strcmp(f->code, "shutting_down") == 0)
        socket_end(&fl->socket->socket, CLOSE_RESTART, "the server is shutting down");
}

static void on_ended(void *ctx) {
    on_done(ctx);
}

static const struct responses_sink sink = {
    .room = has_room, .event = on_event, .sent = on_sent, .refused = on_refused, .ended = on_ended};

static void start(struct flight *fl) {
    struct responses_socket *so = fl->socket;
    struct responses_request *r = fl->request;
    fl->request = NULL;
    fl->settings = r->settings;
    r->settings = NULL;
    r->forget = false; // the socket does that
    r->extends |= is_local(so, r->previous.session);
    if (responses_request_name(r, so->session))
        fl->run = responses_run_start(so->service, so->peer->as.owner->name, r, &sink, fl);
    if (fl->run) return;
    responses_request_free(r);
    fl->done = true;
    socket_no_memory(&so->socket);
}

static bool lane_is_free(const struct flight *fl) {
    for (const struct flight *before = fl->socket->flights; before != fl; before = before->next)
        if (!before->done && strcmp(before->stream_id, fl->stream_id) == 0) return false;
    return true;
}

// Takes r.
static void take_request(struct responses_socket *so, struct responses_request *r) {
    struct flight *fl = NULL;
    if (!r) {
        socket_no_memory(&so->socket);
    } else if (r->failure.status) {
        send_failure(so, r->stream_id, &r->failure);
    } else if (r->steer) {
        take_steer(so, r);
    } else if (so->n_flights >= IN_FLIGHT_MAX) {
        send_error(so, r->stream_id, 429, "websocket_stream_limit_reached",
                   "16 responses are under way already", 0);
    } else if (!(fl = calloc(1, sizeof *fl))) {
        socket_no_memory(&so->socket);
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

static void take_successor(struct flight *fl, struct responses_request *r) {
    fl->request = r;
    if (!r) {
        fl->done = true;
        socket_no_memory(&fl->socket->socket);
        return;
    }
    fl->stored = r->store;
    if (r->failure.status) refuse(fl, &r->failure);
    wake(fl->socket);
}

// --- messages that come ----------------------------------------------------

static struct responses_request *decode(const struct service *s, const char *text, size_t len,
                                        const struct owner *owner) {
    struct http_payload p = {.body = text, .len = len, .owner = owner};
    return responses_request_read(s, &p, RESPONSES_SOCKET);
}

static void run_reading(struct work *work) {
    struct reading *d = (struct reading *)work;
    d->request = decode(d->service, d->work.text, d->work.len, d->owner);
}

static void done_reading(struct work *work) {
    struct reading *d = (struct reading *)work;
    struct responses_socket *so = (struct responses_socket *)socket_work_done(&d->work);
    if (so && !so->socket.close_code && d->successor)
        take_successor(d->successor, d->request);
    else if (so && !so->socket.close_code)
        take_request(so, d->request);
    else
        responses_request_free(d->request);
    if (so) wake(so); // the next successor's request may be read
    free(d->work.text);
    free(d);
}

// successor: reads its request; NULL: the message that came.
static void read_elsewhere(struct responses_socket *so, struct flight *successor) {
    struct reading *d = calloc(1, sizeof *d);
    if (!d) {
        socket_no_memory(&so->socket);
        return;
    }
    d->service = so->service;
    d->owner = so->peer->as.owner;
    if (successor) {
        d->successor = successor;
        d->work.text = successor->text;
        d->work.len = successor->text_len;
        successor->text = NULL;
    }
    if (socket_work_submit(&so->socket, &d->work, run_reading, done_reading) == 0) return;
    free(d->work.text);
    free(d);
    socket_end(&so->socket, CLOSE_OVERLOAD, "too many long messages are being read");
}

static void on_message(struct socket *s) {
    struct responses_socket *so = (struct responses_socket *)s;
    const char *text = buf_z(&s->rx);
    if (s->rx.len > SOCKET_INLINE_BYTES || completion_is_costly(text, s->rx.len))
        read_elsewhere(so, NULL);
    else
        take_request(so, decode(so->service, text, s->rx.len, s->peer->as.owner));
}

static void on_refuse(struct socket *s, const struct http_refusal *r) {
    send_error((struct responses_socket *)s, "", r->status, r->code, r->message, r->retry_after_ms);
}

// The responses end with the next push: they may be what ends the socket.
static void on_socket_ended(struct socket *s) {
    wake((struct responses_socket *)s);
}

static const struct socket_ops socket_ops = {.message = on_message,
                                             .refuse = on_refuse,
                                             .ended = on_socket_ended,
                                             .no_memory = CLOSE_OVERLOAD,
                                             .no_memory_reason = "the server is out of memory"};

// --- from the loop ---------------------------------------------------------

static void pump(struct responses_socket *so) {
    struct flight *fl, *next;
    DL_FOREACH_SAFE(so->flights, fl, next) {
        if (fl->run && !fl->done && !so->socket.close_code) responses_run_pump(fl->run);
    }
    DL_FOREACH_SAFE(so->flights, fl, next) {
        if (fl->done && fl->steers && !so->socket.close_code) succeed(fl);
        if (fl->done || so->socket.close_code) free_flight(fl);
    }
    DL_FOREACH_SAFE(so->flights, fl, next) {
        if (fl->text && !so->socket.decoding) read_elsewhere(so, fl);
        if (fl->request && !fl->done && lane_is_free(fl)) start(fl);
    }
}

static void push(struct follower *f) {
    struct responses_socket *so = (struct responses_socket *)f;
    pump(so);
    socket_push(&so->socket);
}

static int on_writable(void *ws) {
    int rc = socket_writable(ws);
    if (rc == 0) wake(ws); // responses may have room again
    return rc;
}

static void on_no_hello(void *ws) {}

static void on_lost_token(void *ws) {
    struct responses_socket *so = ws;
    send_error(so, "", 401, "unauthorized", "the token was removed", 0);
    socket_end(&so->socket, CLOSE_TOKEN, "the token was removed");
}

// --- as a follower ---------------------------------------------------------

static bool is_drained(const struct follower *f) {
    const struct responses_socket *so = (const struct responses_socket *)f;
    return outbox_empty(&so->socket.outbox) && !so->flights;
}

static void on_end(struct follower *f) {
    socket_end((struct socket *)f, CLOSE_RESTART, "the server is shutting down");
}

static const struct follower_ops follower_ops = {
    .push = push, .drained = is_drained, .end = on_end};

// --- life ------------------------------------------------------------------

static void *on_ask(const struct http_head *h) {
    char name[SESSION_ID_MAX + 1];
    completion_session_name(h, name);
    return *name ? strdup(name) : NULL;
}

static void *on_open(void *user, struct peer *p) {
    struct service *s = user;
    struct responses_socket *so = calloc(1, sizeof *so);
    if (!so || socket_init(&so->socket, s, p, &follower_ops, &socket_ops) < 0) {
        free(so);
        return NULL;
    }
    so->service = s;
    so->peer = p;
    if (p->asked) snprintf(so->session, sizeof so->session, "%s", (const char *)p->asked);
    if (s->state != SERVICE_RUNNING)
        socket_end(&so->socket, CLOSE_RESTART, "the server is shutting down");
    return so;
}

static void on_close(void *ws) {
    struct responses_socket *so = ws;
    struct flight *fl, *next;
    DL_FOREACH_SAFE(so->flights, fl, next) free_flight(fl);
    for (size_t i = 0; i < so->n_local; i++) delete_session(so, so->local[i]);
    free(so->local);
    socket_release(&so->socket);
    free(so);
}

const struct websocket_protocol responses_socket_protocol = {.path = "/v1/responses",
                                                             .guarded = true,
                                                             .ask = on_ask,
                                                             .open = on_open,
                                                             .close = on_close,
                                                             .receive = socket_receive,
                                                             .control_frame = socket_control_frame,
                                                             .writable = on_writable,
                                                             .client_closes = socket_client_closes,
                                                             .unmasked = socket_unmasked,
                                                             .no_hello = on_no_hello,
                                                             .lost_token = on_lost_token,
                                                             .tick = socket_tick};
