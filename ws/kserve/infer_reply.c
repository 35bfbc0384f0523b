// Answers of inferences. See infer_reply.h.
#include "ws/kserve/infer_reply.h"
#include "ws/kserve/reply.h"
#include "ws/kserve/text_models.h"
#include "ws/service.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPLY_MAX_BYTES (256 << 20)

// --- tensors ---

// Widths of the batch: rows are padded to the longest possible one, with the end-of-sequence token.
static size_t total_width(const struct infer *i) {
    size_t before = 0;
    for (size_t row = 0; row < i->request->n_rows; row++)
        if ((size_t)i->turns[row].n_before > before) before = (size_t)i->turns[row].n_before;
    return before + i->request->width + i->request->max_output;
}

static int64_t ids_at(const struct infer *i, size_t row, size_t at) {
    const struct infer_turn *t = &i->turns[row];
    const struct engine_info *info = engine_info(i->service->engine);
    return at < t->n_ids ? t->ids[at] : info->n_eos ? info->eos_ids[0] : 0;
}

static float cum_log_probs(const struct infer_turn *t) {
    double sum = 0;
    for (size_t n = 0; n < t->n_logprobs; n++) sum += (double)t->logprobs[n];
    return (float)sum;
}

struct out_data { // what a tensor_out points to
    int64_t *ints;
    float *floats;
    struct tensor_text *texts;
    struct buf *text_bufs; // (n_rows)
};

static void out_data_free(struct out_data *d, size_t n_rows) {
    for (size_t row = 0; d->text_bufs && row < n_rows; row++) buf_release(&d->text_bufs[row]);
    free(d->text_bufs);
    free(d->ints);
    free(d->floats);
    free(d->texts);
}

static int fill_texts(const struct infer *i, struct out_data *d, struct err *err) {
    size_t n_rows = i->request->n_rows;
    d->texts = calloc(n_rows, sizeof *d->texts);
    d->text_bufs = calloc(n_rows, sizeof *d->text_bufs);
    if (!d->texts || !d->text_bufs) return E_NOMEM;
    for (size_t row = 0; row < n_rows; row++) {
        struct buf *b = &d->text_bufs[row];
        buf_init(b, INFER_TEXT_BYTES);
        TRY(text_model_decode(i->service->engine, i->turns[row].ids, i->turns[row].n_ids, b, err));
        d->texts[row] = (struct tensor_text){buf_z(b), b->len};
    }
    return 0;
}

static int fill_ints(const struct infer *i, enum infer_output what, size_t width,
                     struct out_data *d) {
    size_t n_rows = i->request->n_rows;
    d->ints = calloc(n_rows * width, sizeof *d->ints);
    if (!d->ints) return E_NOMEM;
    for (size_t row = 0; row < n_rows; row++)
        for (size_t at = 0; at < width; at++) {
            int64_t *out = &d->ints[row * width + at];
            if (what == OUTPUT_IDS) *out = ids_at(i, row, at);
            if (what == OUTPUT_SEQUENCE_LENGTH) *out = (int64_t)i->turns[row].n_ids;
            if (what == OUTPUT_RESPONSE_INPUT_LENGTHS) *out = (int64_t)i->request->rows[row].n_ids;
        }
    return 0;
}

static int fill_floats(const struct infer *i, enum infer_output what, size_t width,
                       struct out_data *d) {
    size_t n_rows = i->request->n_rows;
    d->floats = calloc(n_rows * width, sizeof *d->floats);
    if (!d->floats) return E_NOMEM;
    for (size_t row = 0; row < n_rows; row++) {
        const struct infer_turn *t = &i->turns[row];
        if (what == OUTPUT_CUM_LOG_PROBS) d->floats[row] = cum_log_probs(t);
        for (size_t at = 0; what == OUTPUT_LOG_PROBS && at < width && at < t->n_logprobs; at++)
            d->floats[row * width + at] = t->logprobs[at];
    }
    return 0;
}

// [rows, beams, width], [rows, beams], of text [rows]; with the pseudo batch dimension in front.
static void shape_of(const struct infer *i, enum infer_output what, size_t width,
                     struct tensor_out *t) {
    bool has_beams = what != OUTPUT_TEXT;
    bool has_width = what == OUTPUT_IDS || what == OUTPUT_LOG_PROBS;
    if (i->request->outer_dim) t->shape[t->n_dims++] = 1;
    t->shape[t->n_dims++] = (int64_t)i->request->n_rows;
    if (has_beams) t->shape[t->n_dims++] = 1;
    if (has_width) t->shape[t->n_dims++] = (int64_t)width;
}

static int write_output(const struct infer *i, enum infer_output what, struct json_writer *w,
                        struct buf *raw, struct err *err) {
    const struct infer_field *f = &infer_outputs[what];
    struct out_data d = {0};
    struct tensor_out t = {.name = f->name, .type = f->type};
    size_t width = what == OUTPUT_IDS         ? total_width(i)
                   : what == OUTPUT_LOG_PROBS ? i->request->max_output
                                              : 1;
    int rc = f->type == TENSOR_BYTES  ? fill_texts(i, &d, err)
             : f->type == TENSOR_FP32 ? fill_floats(i, what, width, &d)
                                      : fill_ints(i, what, width, &d);
    shape_of(i, what, width, &t);
    t.ints = d.ints;
    t.floats = d.floats;
    t.texts = d.texts;
    t.binary = (i->request->binary & 1u << what) != 0;
    if (rc == 0) tensor_write(w, &t, raw);
    out_data_free(&d, i->request->n_rows);
    return rc;
}

static void reply_tensors(struct infer *i, struct http *h) {
    struct buf out, raw;
    struct json_writer w;
    struct err err = {0};
    int rc = 0;
    buf_init(&out, REPLY_MAX_BYTES);
    buf_init(&raw, REPLY_MAX_BYTES);
    json_writer_init(&w, &out);
    kserve_reply_head(i->request, &w);
    json_open(&w, "outputs", '[');
    for (int o = 0; o < INFER_OUTPUTS && rc == 0; o++)
        if (i->request->outputs & 1u << o)
            rc = write_output(i, (enum infer_output)o, &w, &raw, &err);
    json_close(&w, ']');
    json_close(&w, '}');
    size_t json_len = out.len;
    buf_add(&out, raw.data, raw.len);
    if (rc < 0 || out.error || raw.error)
        kserve_reply_error(h, err.code ? 500 : 503,
                           err.code ? err.text : "no memory for the answer");
    else
        kserve_reply_body(h, &out, json_len);
    buf_release(&out);
    buf_release(&raw);
}

// --- text ---

static void put_text(struct infer *i, struct buf *out, const char *text, size_t len) {
    struct json_writer w;
    json_writer_init(&w, out);
    kserve_reply_head(i->request, &w);
    json_put_text(&w, "text_output", text, len);
    json_close(&w, '}');
}

static void stream_event(struct infer *i, struct http *h, const char *text, size_t len) {
    struct buf out;
    buf_init(&out, REPLY_MAX_BYTES);
    if (!i->streaming)
        http_stream(h, "text/event-stream; charset=utf-8", "cache-control: no-cache\r\n",
                    &infer_waiter, i);
    i->streaming = true;
    buf_addz(&out, "data: ");
    if (i->status)
        kserve_write_error(&out, i->status, NULL, i->message);
    else
        put_text(i, &out, text, len);
    buf_addz(&out, "\n\n");
    http_stream_write(h, buf_z(&out), out.len);
    buf_release(&out);
}

void infer_reply_text(struct infer *i, const char *text, size_t len, int64_t drawn_us) {
    if (len == 0 || i->request->form == FORM_TENSORS || !i->http) return;
    if (i->request->form == FORM_TEXT) {
        buf_add(&i->text, text, len);
        return;
    }
    stream_event(i, i->http, text, len);
    service_count_token(i->service, drawn_us);
}

static void reply_text(struct infer *i, struct http *h) {
    struct buf out;
    buf_init(&out, REPLY_MAX_BYTES);
    put_text(i, &out, buf_z(&i->text), i->text.len);
    http_reply_buf(h, 200, "application/json", "", &out);
    buf_release(&out);
}

void infer_reply(struct infer *i, struct http *h) {
    bool is_stream = i->streaming || (!i->status && i->request->form == FORM_STREAM);
    if (is_stream && (i->status || !i->streaming)) stream_event(i, h, "", 0);
    if (is_stream)
        http_stream_end(h);
    else if (i->status)
        kserve_reply_error(h, i->status, i->message);
    else if (i->request->form == FORM_TENSORS)
        reply_tensors(i, h);
    else
        reply_text(i, h);
}
