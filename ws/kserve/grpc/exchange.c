// Inferences over gRPC. See exchange.h.
//
// A stream sends one message at a time. Meanwhile pieces wait in their sessions (has_room), and last answers in
// a queue with a place for each request that may run.
#include "ws/kserve/grpc/exchange.h"
#include "ws/kserve/grpc/caller.h"
#include "ws/kserve/grpc/reply.h"
#include "ws/kserve/grpc/request.h"
#include "ws/kserve/infer_outputs.h"
#include "ws/kserve/kserve.h"
#include "ws/net/guest.h"
#include "ws/service.h"
#include <stdlib.h>
#include <utlist.h>

#define STREAM_REQUESTS_MAX 16 // that run at once; with more, nothing is read from the stream

struct exchange {
    struct exchange *prev, *next; // stream->exchanges
    struct rpc *rpc;
    struct stream *stream; // NULL: of ModelInfer
    struct infer *infer;
    struct long_body counted; // its message's
};

static void exchange_free(struct exchange *x) {
    long_body_release(&x->counted);
    free(x);
}

struct answer { // that waits for room
    struct answer *prev, *next;
    struct buf message;
};

enum requests { // of a stream
    MORE_COME,
    CLIENT_ENDED, // it sends no more
    SERVER_ENDED, // no more are taken: one that the client has sent may be left unread and unanswered
};

struct stream {
    struct rpc *rpc;
    struct exchange *exchanges; // the first is the next to be asked for a piece
    struct answer *answers;
    size_t n_exchanges;
    enum requests requests;
    bool reading;  // a message is on its way
    bool admitted; // its first request was, with the call
    bool taken;    // its first inference was
};

// --- decoding ---

struct decoded {
    struct infer_request *request;
    struct buf answer; // request->answered
    bool fits;
};

static void *decode(const struct service *s, enum infer_form form, bool in_stream,
                    const void *bytes, size_t len) {
    struct decoded *d = calloc(1, sizeof *d);
    if (d) d->request = infer_message_read(s, form, bytes, len);
    if (!d || !d->request) {
        free(d);
        return NULL;
    }
    buf_init(&d->answer, REPLY_MESSAGE_MAX_BYTES);
    if (!d->request->code && d->request->answered)
        d->fits = reply_outputs(d->request, in_stream ? REPLY_FINAL : REPLY_ONLY,
                                &d->request->answer, &d->answer);
    return d;
}

void *exchange_decode(const struct service *s, const void *bytes, size_t len) {
    return decode(s, FORM_TENSORS, false, bytes, len);
}

void *stream_decode(const struct service *s, const void *bytes, size_t len) {
    return decode(s, s->config->decoupled ? FORM_PIECES : FORM_TENSORS, true, bytes, len);
}

void exchange_release(void *decoded) {
    struct decoded *d = decoded;
    infer_request_free(d->request);
    buf_release(&d->answer);
    free(d);
}

// --- answers ---

// Makes a message of the tokens so far. false: *err says why.
static bool make_outputs(const struct infer *i, enum reply_kind kind, struct buf *message,
                         struct err *err) {
    struct tensors_out outputs = {0};
    bool empty = kind == REPLY_FINAL && i->request->empty_final;
    int rc = empty ? 0 : infer_outputs_make(i, &outputs, err);
    buf_init(message, REPLY_MESSAGE_MAX_BYTES);
    bool fits = rc == 0 && reply_outputs(i->request, kind, &outputs, message);
    if (!fits && !err->code) err_set(err, E_NOMEM, "no memory for the answer");
    tensors_out_release(&outputs);
    return fits;
}

// --- ModelInfer ---

static bool has_room(void *ctx) {
    return true;
}

static void on_reply(void *ctx, struct infer *i) {
    struct exchange *x = ctx;
    struct rpc *r = x->rpc;
    struct buf message = {0};
    struct err err = {0};
    r->ctx = NULL;
    exchange_free(x);
    if (i->code)
        rpc_fail(r, i->code, i->message, i->retry_after_ms);
    else if (make_outputs(i, REPLY_ONLY, &message, &err))
        rpc_reply(r, &message);
    else
        rpc_fail(r, err.code == E_NOMEM ? KSERVE_UNAVAILABLE : KSERVE_INTERNAL, err.text, 0);
    buf_release(&message);
}

static const struct infer_client_ops infer_ops = {.has_room = has_room, .reply = on_reply};

// NULL: no memory. Takes request.
static struct exchange *exchange_new(struct rpc *r, struct infer_request *request,
                                     const struct infer_client_ops *ops) {
    struct exchange *x = calloc(1, sizeof *x);
    struct stream *s = r->ctx; // of ModelInfer: NULL
    // Its client cannot make this call elsewhere; a stream's further requests it can.
    request->promised = guest_port_has_parted(r->port, r->fd) && !(s && s->taken);
    if (x)
        x->infer = infer_new(r->service, r->as.owner->name, request, ops, x);
    else
        infer_request_free(request);
    if (!x || !x->infer) {
        free(x);
        return NULL;
    }
    x->rpc = r;
    x->counted = r->counted;
    r->counted = (struct long_body){0};
    return x;
}

static struct infer_request *take_request(struct decoded *d) {
    struct infer_request *request = d->request;
    d->request = NULL;
    return request;
}

void exchange_handle(struct rpc *r, void *decoded) {
    struct decoded *d = decoded;
    struct infer_request *request = d->request;
    struct exchange *x;
    if (request->code) {
        rpc_fail(r, request->code, request->err.text, 0);
    } else if (request->answered && d->fits) {
        r->service->kserve->stats[request->model].n_done++;
        rpc_reply(r, &d->answer);
    } else if (request->answered) {
        rpc_fail(r, KSERVE_UNAVAILABLE, "no memory for the answer", 0);
    } else if ((x = exchange_new(r, take_request(d), &infer_ops))) {
        r->ctx = x;
        infer_begin(x->infer);
    } else {
        rpc_fail(r, KSERVE_UNAVAILABLE, "the server is out of memory", 0);
    }
}

void exchange_gone(struct rpc *r) {
    struct exchange *x = r->ctx;
    r->ctx = NULL;
    infer_client_gone(x->infer);
    exchange_free(x);
}

// --- ModelStreamInfer ---

static void stream_free(struct stream *s) {
    struct answer *a, *next;
    DL_FOREACH_SAFE(s->answers, a, next) {
        buf_release(&a->message);
        free(a);
    }
    free(s);
}

static bool stream_has_room(const struct stream *s) {
    return !s->answers && rpc_has_room(s->rpc);
}

static bool on_has_room(void *ctx) {
    return stream_has_room(((struct exchange *)ctx)->stream);
}

static void fail_stream(struct stream *s) {
    rpc_cancel(s->rpc, kserve_statuses[KSERVE_UNAVAILABLE].grpc, "the server is out of memory");
}

// A last answer. Takes the bytes.
static void put_answer(struct stream *s, struct buf *message) {
    struct answer *a;
    if (stream_has_room(s)) {
        rpc_send(s->rpc, message);
    } else if ((a = calloc(1, sizeof *a))) {
        a->message = *message;
        buf_init(message, 0);
        DL_APPEND(s->answers, a);
    } else {
        buf_release(message);
        fail_stream(s);
    }
}

static void put_error(struct stream *s, const char *id, const char *text) {
    struct buf message;
    buf_init(&message, 1 << 16);
    if (reply_stream_error(id, text, &message))
        put_answer(s, &message);
    else
        fail_stream(s);
    buf_release(&message);
}

// Reads the next request if it may run; ends the stream after the last one.
static void go_on(struct stream *s) {
    struct rpc *r = s->rpc;
    bool idle = s->n_exchanges == 0 && !s->answers && !s->reading;
    if (s->requests == MORE_COME && !s->reading && s->n_exchanges < STREAM_REQUESTS_MAX) {
        s->reading = true;
        rpc_next(r);
    } else if (s->requests != MORE_COME && idle && rpc_has_room(r)) {
        r->ctx = NULL;
        if (s->requests == SERVER_ENDED)
            rpc_fail(r, KSERVE_UNAVAILABLE, "the server is shutting down", 0);
        else
            rpc_end(r);
        stream_free(s);
    }
}

static void on_piece(void *ctx, struct infer *i, int64_t drawn_us) {
    struct exchange *x = ctx;
    struct buf message;
    struct err err = {0};
    if (make_outputs(i, REPLY_PIECE, &message, &err)) {
        rpc_send(x->rpc, &message);
        service_count_token(x->rpc->service, drawn_us);
    } else {
        fail_stream(x->stream);
    }
    buf_release(&message);
}

static void on_stream_reply(void *ctx, struct infer *i) {
    struct exchange *x = ctx;
    struct stream *s = x->stream;
    struct buf message = {0};
    struct err err = {0};
    DL_DELETE(s->exchanges, x);
    s->n_exchanges--;
    exchange_free(x);
    if (i->code)
        put_error(s, i->request->id, i->message);
    else if (make_outputs(i, REPLY_FINAL, &message, &err))
        put_answer(s, &message);
    else
        put_error(s, i->request->id, err.text);
    buf_release(&message);
    go_on(s);
}

static const struct infer_client_ops stream_ops = {
    .has_room = on_has_room, .piece = on_piece, .reply = on_stream_reply};

static void begin_infer(struct stream *s, struct infer_request *request) {
    struct exchange *x = exchange_new(s->rpc, request, &stream_ops);
    if (!x) {
        put_error(s, NULL, "the server is out of memory");
        return;
    }
    x->stream = s;
    s->taken = true;
    DL_APPEND(s->exchanges, x);
    s->n_exchanges++;
    infer_begin(x->infer); // may end it at once
}

static struct stream *stream_of(struct rpc *r) {
    struct stream *s = r->ctx;
    if (s) return s;
    s = calloc(1, sizeof *s);
    if (s) s->rpc = r;
    r->ctx = s;
    return s;
}

void stream_handle(struct rpc *r, void *decoded) {
    struct decoded *d = decoded;
    struct infer_request *request = d->request;
    struct stream *s = stream_of(r);
    struct rpc_refusal no = {0};
    if (!s) {
        rpc_fail(r, KSERVE_UNAVAILABLE, "the server is out of memory", 0);
        return;
    }
    s->reading = true; // no go_on() ends the stream before the one below
    if (s->admitted) no = caller_take(r, r->message_len);
    s->admitted = true;
    if (no.status) {
        put_error(s, request->id, no.message);
    } else if (request->code) {
        put_error(s, request->id, request->err.text);
    } else if (request->answered && d->fits) {
        r->service->kserve->stats[request->model].n_done++;
        put_answer(s, &d->answer);
    } else if (request->answered) {
        put_error(s, request->id, "no memory for the answer");
    } else {
        begin_infer(s, take_request(d));
    }
    s->reading = false;
    go_on(s);
}

void stream_ended(struct rpc *r) {
    struct stream *s = stream_of(r);
    if (!s) {
        rpc_end(r);
        return;
    }
    s->reading = false;
    s->requests = CLIENT_ENDED;
    go_on(s);
}

// Exchanges take turns: the one that is asked goes to the end of the list.
void stream_writable(struct rpc *r) {
    struct stream *s = r->ctx;
    struct answer *a = s ? s->answers : NULL;
    if (a) {
        DL_DELETE(s->answers, a);
        rpc_send(r, &a->message);
        buf_release(&a->message);
        free(a);
        return;
    }
    for (size_t n = s ? s->n_exchanges : 0; n > 0 && r->ctx && stream_has_room(s); n--) {
        struct exchange *x = s->exchanges;
        DL_DELETE(s->exchanges, x);
        DL_APPEND(s->exchanges, x);
        infer_go_on(x->infer);
    }
    if (r->ctx) go_on(s);
}

// Takes no further request; the stream ends after its last answer. If the client may have sent more, the stream ends
// as unavailable: otherwise the client would take a request that was not read for answered.
void stream_closing(struct rpc *r) {
    struct stream *s = stream_of(r);
    if (!s) return;
    if (s->requests == MORE_COME) s->requests = SERVER_ENDED;
    s->reading = false;
    go_on(s);
}

void stream_gone(struct rpc *r) {
    struct stream *s = r->ctx;
    struct exchange *x, *next;
    r->ctx = NULL;
    DL_FOREACH_SAFE(s->exchanges, x, next) {
        infer_client_gone(x->infer);
        exchange_free(x);
    }
    stream_free(s);
}
