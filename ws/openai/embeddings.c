// POST /v1/embeddings: a session and a turn of one token for each input, deleted when its embedding is there. The
// turn's context output is the mean of the input's hidden states after the final norm, or the last one ("pooling", or
// as the model's files say). The vector is cut to `dimensions`, and scaled to length 1 unless the files say otherwise.
// A few inputs run at a time, so that a long list neither takes all places nor meets its owner's limit on turns. See
// openai.h.
#include "base/base64.h"
#include "base/json_form.h"
#include "ws/openai/embeddings_request.h"
#include "ws/openai/prompted.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define AT_ONCE 8
#define EVENT_TEXT_BYTES 4096
#define REPLY_MAX_BYTES (64 << 20)

struct embedded {           // one input
    struct batch_turn turn; // first
    char *json;             // (len) its embedding as it is answered
    size_t len;
};

struct embeddings {
    struct prompted p; // first
    size_t bytes;
    int64_t n_tokens;
};

static const struct embeddings_request *request_of(const struct embeddings *e) {
    return (const struct embeddings_request *)e->p.request;
}

static struct embedded *input_at(const struct embeddings *e, size_t i) {
    return (struct embedded *)turn_batch_at(&e->p.batch, i);
}

static bool begin(struct prompted *p) {
    char id[RANDOM_ID_LEN + 1];
    random_id(id);
    for (size_t i = 0; i < p->batch.n; i++)
        snprintf(turn_batch_at(&p->batch, i)->id, sizeof turn_batch_at(&p->batch, i)->id,
                 "embd-%s-%zu", id, i);
    return true;
}

static void release(struct prompted *p) {
    for (size_t i = 0; i < p->batch.n; i++) {
        const struct embedded *in = input_at((struct embeddings *)p, i);
        if (i < p->batch.n_started && !in->turn.ended)
            service_delete_session(p->batch.service, p->batch.owner, in->turn.id);
        free(in->json);
    }
}

static void reply(struct embeddings *e) {
    struct json_writer w;
    struct buf out;
    buf_init(&out, REPLY_MAX_BYTES + (1 << 20));
    json_writer_init(&w, &out);
    json_form(&w, "{object:'list',data:[");
    for (size_t i = 0; i < e->p.batch.n; i++)
        json_put_raw(&w, NULL, input_at(e, i)->json, input_at(e, i)->len);
    json_form(&w, "],model:%s,usage:{prompt_tokens:%ld,total_tokens:%ld}}",
              e->p.request->served->name, e->n_tokens, e->n_tokens);
    http_reply_json(e->p.http, 200, &out);
    prompted_free(&e->p);
}

// --- embeddings ---

// Reads the embedding from the turn's context, cuts it and, with unit_length, scales it to length 1. NULL: no memory,
// or the context has none.
static float *read_vector(const char *context, int32_t n, bool unit_length) {
    cJSON *json = context ? cJSON_Parse(context) : NULL;
    const cJSON *item, *list = cJSON_GetObjectItemCaseSensitive(json, "embedding");
    float *v = list ? calloc((size_t)n, sizeof *v) : NULL;
    double squares = 0;
    int32_t i = 0;
    cJSON_ArrayForEach(item, list) {
        if (!v || i == n) break;
        v[i] = (float)item->valuedouble;
        squares += (double)v[i] * v[i];
        i++;
    }
    double scale = squares > 0 && isfinite(squares) ? 1 / sqrt(squares) : 0;
    if (!unit_length) scale = 1;
    for (i = 0; v && i < n; i++) v[i] = (float)(v[i] * scale);
    cJSON_Delete(json);
    return v;
}

static char *write_vector(size_t index, const float *v, int32_t n, bool as_base64, size_t *len) {
    struct json_writer w;
    struct buf out;
    buf_init(&out, REPLY_MAX_BYTES);
    json_writer_init(&w, &out);
    json_form(&w, "{object:'embedding',index:%zu", index);
    if (as_base64) { // little-endian floats, as this machine's
        json_open(&w, "embedding", '"');
        base64_encode(&out, v, (size_t)n * sizeof *v);
        json_close(&w, '"');
    } else {
        json_open(&w, "embedding", '[');
        for (int32_t i = 0; i < n; i++) json_put_double(&w, NULL, (double)v[i]);
        json_close(&w, ']');
    }
    json_close(&w, '}');
    char *text = buf_take(&out, len);
    buf_release(&out);
    return text;
}

static void take_end(struct embeddings *e, struct embedded *in, size_t i,
                     const struct turn_view *t) {
    const struct embeddings_request *q = request_of(e);
    struct completion_failure *f = &e->p.failure;
    if (t->error_code || !t->context) {
        completion_failure_set(f, t->error_code ? t->error_code : "interrupted",
                               t->error_message ? t->error_message : "the turn was cut off");
        return;
    }
    float *v = read_vector(t->context, q->dimensions, q->unit_length);
    in->json = v ? write_vector(i, v, q->dimensions, q->base64, &in->len) : NULL;
    free(v);
    e->bytes += in->len;
    if (!in->json)
        openai_no_memory(f);
    else if (e->bytes > REPLY_MAX_BYTES)
        openai_bad(f, "input", "has too many for one answer");
    if (f->status) return;
    e->n_tokens += t->numbers.input_tokens;
    in->turn.ended = true;
    service_delete_session(e->p.batch.service, e->p.batch.owner, in->turn.id);
}

static void take(struct prompted *p, struct batch_turn *t, const struct session_event *ev) {
    struct embeddings *e = (struct embeddings *)p;
    struct embedded *in = (struct embedded *)t;
    if (ev->kind == EVENT_DONE) take_end(e, in, (size_t)(in - input_at(e, 0)), &ev->turn);
}

static size_t event_bytes(const struct prompted *p) {
    return EVENT_TEXT_BYTES;
}

static void step(struct prompted *p) {
    while (!p->failure.status && p->batch.n_started < p->batch.n &&
           p->batch.n_started - p->n_ended < AT_ONCE)
        prompted_start(p, &p->request->prompts[p->batch.n_started], true, false);
    if (p->n_ended == p->batch.n) reply((struct embeddings *)p);
}

static const struct prompted_ops ops = {.waiter = {.client_gone = prompted_client_gone},
                                        .begin = begin,
                                        .take = take,
                                        .event_bytes = event_bytes,
                                        .step = step,
                                        .release = release,
                                        .bytes = sizeof(struct embeddings),
                                        .turn_bytes = sizeof(struct embedded)};

void openai_embeddings_handle(void *user, struct http *h) {
    const struct prompts_request *r = http_decoded(h);
    prompted_handle(user, h, &ops, r->n);
}
