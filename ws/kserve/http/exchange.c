// Inferences over HTTP. See exchange.h.
#include "ws/kserve/http/exchange.h"
#include "base/json_form.h"
#include "ws/kserve/http/reply.h"
#include "ws/kserve/infer_outputs.h"
#include "ws/service.h"
#include <stdlib.h>

struct exchange {
    struct service *service;
    struct http *http;
    struct infer *infer;
    struct buf text; // of a generate request that is not streamed
    bool streaming;  // the stream has begun
};

static void exchange_free(struct exchange *x) {
    buf_release(&x->text);
    free(x);
}

// --- the client ---

static void on_client_gone(void *ctx) {
    struct exchange *x = ctx;
    infer_client_gone(x->infer);
    exchange_free(x);
}

static void on_writable(void *ctx) {
    infer_go_on(((struct exchange *)ctx)->infer);
}

static const struct http_waiter waiter = {.client_gone = on_client_gone, .writable = on_writable};

// --- text ---

static void put_text(const struct infer *i, struct buf *out, const char *text, size_t len) {
    struct json_writer w;
    json_writer_init(&w, out);
    kserve_reply_head(i->request, &w);
    json_form(&w, "text_output:%.*s}", (int)len, text);
}

static void stream_event(struct exchange *x, const struct infer *i, const char *text, size_t len) {
    struct buf out;
    buf_init(&out, REPLY_MAX_BYTES);
    if (!x->streaming)
        http_stream(x->http, "text/event-stream; charset=utf-8", "cache-control: no-cache\r\n",
                    &waiter, x);
    x->streaming = true;
    buf_addz(&out, "data: ");
    if (i->code)
        kserve_write_error(&out, kserve_statuses[i->code].http, NULL, i->message);
    else
        put_text(i, &out, text, len);
    buf_addz(&out, "\n\n");
    http_stream_write(x->http, buf_z(&out), out.len);
    buf_release(&out);
}

static void on_text(void *ctx, struct infer *i, const char *text, size_t len, int64_t drawn_us) {
    struct exchange *x = ctx;
    if (i->request->form == FORM_TEXT) {
        buf_add(&x->text, text, len);
        return;
    }
    stream_event(x, i, text, len);
    service_count_token(x->service, drawn_us);
}

static bool has_room(void *ctx) {
    const struct exchange *x = ctx;
    return !x->streaming || http_stream_has_room(x->http);
}

// --- the reply ---

static void reply_tensors(struct exchange *x, const struct infer *i) {
    struct tensors_out outputs = {0};
    struct err err = {0};
    struct buf body;
    size_t json_len = 0;
    int rc = infer_outputs_make(i, &outputs, &err);
    buf_init(&body, REPLY_MAX_BYTES);
    if (rc < 0 && err.code)
        kserve_reply_error(x->http, KSERVE_INTERNAL, err.text);
    else if (rc < 0 || !kserve_encode_outputs(i->request, &outputs, &body, &json_len))
        kserve_reply_error(x->http, KSERVE_UNAVAILABLE, "no memory for the answer");
    else
        kserve_reply_body(x->http, &body, json_len);
    buf_release(&body);
    tensors_out_release(&outputs);
}

static void reply_text(struct exchange *x, const struct infer *i) {
    struct buf out;
    buf_init(&out, REPLY_MAX_BYTES);
    put_text(i, &out, buf_z(&x->text), x->text.len);
    http_reply_buf(x->http, 200, "application/json", "", &out);
    buf_release(&out);
}

static void on_reply(void *ctx, struct infer *i) {
    struct exchange *x = ctx;
    bool is_stream = x->streaming || (!i->code && i->request->form == FORM_STREAM);
    if (is_stream && (i->code || !x->streaming)) stream_event(x, i, "", 0);
    if (is_stream)
        http_stream_end(x->http);
    else if (i->code)
        kserve_reply_refusal(x->http, i->code, i->message, i->retry_after_ms);
    else if (i->request->form == FORM_TENSORS)
        reply_tensors(x, i);
    else
        reply_text(x, i);
    exchange_free(x);
}

static const struct infer_client_ops client_ops = {
    .has_room = has_room, .text = on_text, .reply = on_reply};

void exchange_start(struct service *s, struct http *h, struct infer_request *r) {
    struct exchange *x = calloc(1, sizeof *x);
    if (x) {
        *x = (struct exchange){.service = s, .http = h};
        buf_init(&x->text, INFER_TEXT_BYTES);
        x->infer = infer_new(s, http_owner(h), r, &client_ops, x);
    } else {
        infer_request_free(r);
    }
    if (!x || !x->infer) {
        free(x);
        kserve_reply_error(h, KSERVE_UNAVAILABLE, "the server is out of memory");
        return;
    }
    http_wait(h, &waiter, x);
    infer_begin(x->infer);
}
