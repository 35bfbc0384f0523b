// Calls, their batches of operations. See rpc.h.
#include "ws/kserve/grpc/rpc.h"
#include "base/log.h"
#include "ws/kserve/grpc/reply.h"
#include "ws/net/http_body.h"
#include "ws/service.h"
#include <grpc/byte_buffer_reader.h>
#include <grpc/support/alloc.h>
#include <stdlib.h>

#define INLINE_BYTES 4096 // longer messages are decoded on a worker
#define RETRY_MS 1000     // after a shortage that soon ends

#define RPC_OF(event, member) ((struct rpc *)((char *)(event)-offsetof(struct rpc, member)))

// --- the end ---

static void free_if_over(struct rpc *r) {
    if (r->n_pending > 0 || r->state != RPC_OVER) return;
    if (r->message) grpc_byte_buffer_destroy(r->message);
    if (r->out) grpc_byte_buffer_destroy(r->out);
    grpc_call_unref(r->call);
    r->freed(r);
    free(r);
}

// Takes the call out of its worker. The caller lets the method go.
static void over(struct rpc *r) {
    if (r->reading) {
        r->reading->rpc = NULL;
        workers_cancel(r->service->net->workers, r->lane);
    }
    r->reading = NULL;
    r->state = RPC_OVER;
}

static bool start(struct rpc *r, struct event *e, const grpc_op *ops, size_t n) {
    grpc_call_error rc = grpc_call_start_batch(r->call, ops, n, e, NULL);
    if (rc == GRPC_CALL_OK) {
        r->n_pending++;
        return true;
    }
    log_error("grpc.batch", "error=\"%s\"", grpc_call_error_to_string(rc));
    grpc_call_cancel(r->call, NULL);
    return false;
}

static void on_closed(struct event *e, bool ok) {
    struct rpc *r = RPC_OF(e, closed);
    r->n_pending--;
    if (r->state == RPC_OPEN) {
        over(r);
        if (r->method && r->method->gone && r->ctx) r->method->gone(r);
    }
    r->state = RPC_OVER;
    free_if_over(r);
}

void rpc_cancel(struct rpc *r, int status, const char *message) {
    grpc_call_cancel_with_status(r->call, (grpc_status_code)status, message, NULL);
}

// --- sending ---

static void on_sent(struct event *e, bool ok) {
    struct rpc *r = RPC_OF(e, sent);
    r->n_pending--;
    r->out_us = 0;
    if (r->out) grpc_byte_buffer_destroy(r->out);
    r->out = NULL;
    if (r->state == RPC_OPEN && ok) r->method->writable(r);
    free_if_over(r);
}

struct sending {
    grpc_op ops[3];
    size_t n;
    grpc_slice message, details;
    grpc_metadata trailing[2];
};

static grpc_op *sending_add(struct sending *b, grpc_op_type op) {
    b->ops[b->n] = (grpc_op){.op = op};
    return &b->ops[b->n++];
}

static void sending_begin(struct sending *b, struct rpc *r) {
    *b = (struct sending){.n = 0};
    if (!r->begun) sending_add(b, GRPC_OP_SEND_INITIAL_METADATA);
    r->begun = true;
}

static void free_bytes(void *bytes) {
    free(bytes);
}

static void sending_message(struct sending *b, struct rpc *r, struct buf *message) {
    size_t len;
    char *bytes = buf_take(message, &len);
    grpc_slice slice = bytes ? grpc_slice_new(bytes, len, free_bytes) : grpc_empty_slice();
    r->out = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    sending_add(b, GRPC_OP_SEND_MESSAGE)->data.send_message.send_message = r->out;
}

static void send_ops(struct rpc *r, const struct sending *b) {
    r->out_us = net_now_us();
    start(r, &r->sent, b->ops, b->n);
}

bool rpc_has_room(const struct rpc *r) {
    return r->state == RPC_OPEN && !r->out_us;
}

void rpc_send(struct rpc *r, struct buf *message) {
    struct sending b;
    sending_begin(&b, r);
    sending_message(&b, r, message);
    send_ops(r, &b);
}

// Ends the call with a status; the method gets no further calls.
static void finish(struct rpc *r, struct buf *message, struct rpc_refusal refusal) {
    struct sending b;
    struct buf details, pushback;
    if (r->state != RPC_OPEN) return;
    if (r->out_us) { // the last message is not sent yet, and the status cannot wait for it
        rpc_cancel(r, refusal.status, refusal.message);
        return;
    }
    sending_begin(&b, r);
    if (message) sending_message(&b, r, message);
    grpc_op *op = sending_add(&b, GRPC_OP_SEND_STATUS_FROM_SERVER);
    grpc_slice text = grpc_slice_from_copied_string(refusal.message);
    op->data.send_status_from_server.status = (grpc_status_code)refusal.status;
    op->data.send_status_from_server.status_details = &text;
    buf_init(&details, 4096);
    buf_init(&pushback, 32);
    if (refusal.retry_after_ms > 0 && reply_retry_details(refusal.status, refusal.message,
                                                          refusal.retry_after_ms, &details) == 0) {
        buf_addf(&pushback, "%lld", (long long)refusal.retry_after_ms);
        b.trailing[0].key = grpc_slice_from_static_string("grpc-status-details-bin");
        b.trailing[0].value = grpc_slice_from_copied_buffer(details.data, details.len);
        b.trailing[1].key = grpc_slice_from_static_string("grpc-retry-pushback-ms");
        b.trailing[1].value = grpc_slice_from_copied_buffer(pushback.data, pushback.len);
        op->data.send_status_from_server.trailing_metadata_count = 2;
        op->data.send_status_from_server.trailing_metadata = b.trailing;
    }
    buf_release(&details);
    buf_release(&pushback);
    over(r);
    r->state = RPC_ENDING;
    send_ops(r, &b);
    for (size_t i = 0; i < op->data.send_status_from_server.trailing_metadata_count; i++)
        grpc_slice_unref(b.trailing[i].value);
    grpc_slice_unref(text);
}

void rpc_reply(struct rpc *r, struct buf *message) {
    finish(r, message, (struct rpc_refusal){0, "", 0});
}

void rpc_end(struct rpc *r) {
    finish(r, NULL, (struct rpc_refusal){0, "", 0});
}

void rpc_refuse(struct rpc *r, struct rpc_refusal refusal) {
    finish(r, NULL, refusal);
}

void rpc_fail(struct rpc *r, enum kserve_code code, const char *message, int64_t retry_after_ms) {
    finish(r, NULL, (struct rpc_refusal){kserve_statuses[code].grpc, message, retry_after_ms});
}

// --- receiving ---

static void run_decode(struct work *work) {
    struct rpc_reading *g = (struct rpc_reading *)work;
    const void *bytes = GRPC_SLICE_START_PTR(g->bytes);
    size_t len = GRPC_SLICE_LENGTH(g->bytes);
    if (g->packed) {
        g->rc = http_body_unzip(bytes, len, &g->unpacked);
        bytes = buf_z(&g->unpacked);
        len = g->unpacked.len;
    }
    if (g->rc == 0) g->decoded = g->method->decode(g->service, bytes, len);
}

// If requests of the call already run, gone() ends them.
static void refuse_message(struct rpc *r, int status, const char *message, int64_t retry_ms) {
    if (r->ctx)
        rpc_cancel(r, status, message);
    else
        rpc_refuse(r, (struct rpc_refusal){status, message, retry_ms});
}

static void refuse_no_memory(struct rpc *r) {
    refuse_message(r, GRPC_STATUS_UNAVAILABLE, "no memory for the request", RETRY_MS);
}

static void refuse_packed(struct rpc *r, int rc) {
    if (rc == E_NOMEM)
        refuse_no_memory(r);
    else if (rc == E_LIMIT)
        refuse_message(r, GRPC_STATUS_RESOURCE_EXHAUSTED,
                       "the message unpacks to more than max_infer_bytes, or to much more than its "
                       "packed length and max_message_bytes",
                       0);
    else
        refuse_message(r, GRPC_STATUS_INVALID_ARGUMENT,
                       "the message is compressed, and is not valid gzip or deflate", 0);
}

static void free_reading(struct rpc_reading *g) {
    if (g->decoded) g->method->release(g->decoded);
    long_body_release(&g->counted);
    buf_release(&g->unpacked);
    free(g);
}

static void decoded(struct work *work) {
    struct rpc_reading *g = (struct rpc_reading *)work;
    struct rpc *r = g->rpc;
    grpc_slice_unref(g->bytes);
    if (r) {
        r->reading = NULL;
        r->counted = g->counted;
        g->counted = (struct long_body){0};
        if (g->packed) r->message_len = g->unpacked.len;
        if (g->rc < 0)
            refuse_packed(r, g->rc);
        else if (g->decoded)
            r->method->handle(r, g->decoded);
        else
            refuse_no_memory(r);
        long_body_release(&r->counted);
    }
    free_reading(g);
}

// Counts a long message, and limits what a packed one may become.
static struct http_refusal count_message(struct rpc *r, struct rpc_reading *g, size_t len) {
    struct net *n = r->service->net;
    size_t most = g->packed ? long_body_unpacked(n, len, r->longest) : len;
    buf_init(&g->unpacked, most);
    if (!r->as.owner) return REFUSE(0, NULL, NULL);
    return long_body_count(&g->counted, n, r->as.owner, LONG_INFERENCES, most, r->longest);
}

// gRPC does not unpack messages for us, because it would unpack to any size (server.c). A packed message may
// become a long one, so a worker unpacks it.
static void decode(struct rpc *r, grpc_slice bytes, bool packed) {
    struct rpc_reading *g = calloc(1, sizeof *g);
    if (!g) {
        grpc_slice_unref(bytes);
        refuse_no_memory(r);
        return;
    }
    *g = (struct rpc_reading){.work = {.group = r->as.owner ? r->as.owner->number : 0,
                                       .lane = r->lane,
                                       .run = run_decode,
                                       .done = decoded},
                              .rpc = r,
                              .method = r->method,
                              .service = r->service,
                              .bytes = bytes,
                              .packed = packed};
    struct http_refusal no = count_message(r, g, GRPC_SLICE_LENGTH(bytes));
    if (no.status) {
        grpc_slice_unref(bytes);
        free(g);
        refuse_message(r, GRPC_STATUS_UNAVAILABLE, no.message, no.retry_after_ms);
        return;
    }
    r->reading = g;
    if (GRPC_SLICE_LENGTH(bytes) <= INLINE_BYTES && !packed) {
        run_decode(&g->work);
        decoded(&g->work);
    } else if (workers_submit(r->service->net->workers, &g->work) < 0) {
        r->reading = NULL;
        grpc_slice_unref(bytes);
        free_reading(g);
        refuse_message(r, GRPC_STATUS_UNAVAILABLE, "too many requests are being read", RETRY_MS);
    }
}

static void take_message(struct rpc *r) {
    grpc_byte_buffer_reader reader;
    if (!grpc_byte_buffer_reader_init(&reader, r->message)) {
        refuse_message(r, GRPC_STATUS_INVALID_ARGUMENT, "the message cannot be read", 0);
        return;
    }
    grpc_slice bytes = grpc_byte_buffer_reader_readall(&reader);
    grpc_byte_buffer_reader_destroy(&reader);
    bool packed = r->message->data.raw.compression != GRPC_COMPRESS_NONE;
    grpc_byte_buffer_destroy(r->message);
    r->message = NULL;
    r->message_len = GRPC_SLICE_LENGTH(bytes);
    decode(r, bytes, packed);
}

static void on_read(struct event *e, bool ok) {
    struct rpc *r = RPC_OF(e, read);
    r->n_pending--;
    r->read_us = 0;
    r->received(r);
    if (r->state == RPC_OPEN && ok && r->message)
        take_message(r);
    else if (r->state == RPC_OPEN && r->method->streams)
        r->method->ended(r);
    else if (r->state == RPC_OPEN && !r->cancelled)
        rpc_fail(r, KSERVE_INVALID, "the call has no message", 0);
    free_if_over(r);
}

void rpc_next(struct rpc *r) {
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &r->message};
    if (r->state != RPC_OPEN) return;
    r->read_us = net_now_us();
    start(r, &r->read, &op, 1);
}

bool rpc_start(struct rpc *r) {
    grpc_op op = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER,
                  .data.recv_close_on_server.cancelled = &r->cancelled};
    r->read.done = on_read;
    r->sent.done = on_sent;
    r->closed.done = on_closed;
    if (start(r, &r->closed, &op, 1)) return true;
    r->state = RPC_OVER;
    free_if_over(r);
    return false;
}
