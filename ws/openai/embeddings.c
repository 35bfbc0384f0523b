// POST /v1/embeddings: a session and a turn of one token for each input, deleted when its embedding is there.
// The turn's context output is the mean of the input's hidden states after the final norm, or the last one
// ("pooling", or as the model's files say); it is cut to `dimensions` and brought to length 1, unless these files leave
// that out. A few inputs are under way at a time, so
// that a long list neither takes all places nor meets its owner's limit on turns. See openai.h.
#include "base/base64.h"
#include "base/random_id.h"
#include "ws/openai/embeddings_request.h"
#include "ws/openai/openai.h"
#include "ws/service.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT_ONCE 8
#define EVENT_TEXT_BYTES 4096
#define REPLY_MAX_BYTES (64 << 20)
#define CANCEL_AFTER_MS 1

enum input_state { INPUT_WAITING, INPUT_STARTED, INPUT_ENDED };

struct embedded { // one input
    enum input_state state;
    struct session *session; // while its events wait; NULL: none do
    char *json;              // (len) ENDED: its embedding as it is answered
    size_t len;
};

struct embeddings {
    struct follower follower; // first: its callbacks cast
    struct service *service;
    struct http *http;
    struct embeddings_request *request;
    char *owner, id[RANDOM_ID_LEN + 1];
    struct embedded *inputs; // (request->n_inputs)
    size_t n_started, n_ended, bytes;
    int64_t n_tokens;
    struct completion_failure failure;
};

// --- sessions ---

static struct request request_for(const struct embeddings *e, enum request_kind kind, size_t i,
                                  char id[SESSION_ID_MAX + 1]) {
    snprintf(id, SESSION_ID_MAX + 1, "embd-%s-%zu", e->id, i);
    return service_request(&e->follower, kind, e->owner, id);
}

static void delete_session(struct embeddings *e, size_t i) {
    char id[SESSION_ID_MAX + 1];
    snprintf(id, sizeof id, "embd-%s-%zu", e->id, i);
    service_delete_session(e->service, e->owner, id);
}

static void start(struct embeddings *e, size_t i) {
    struct sessions *ss = e->service->sessions;
    char id[SESSION_ID_MAX + 1];
    struct request r = request_for(e, REQUEST_OPEN, i, id);
    r.open.model = e->request->served->name;
    r.cancel_after_ms = CANCEL_AFTER_MS;
    r.temporary = true;
    e->inputs[i].state = INPUT_STARTED;
    e->n_started++;
    sessions_submit(ss, &r);
    if (e->failure.status) return;
    r = request_for(e, REQUEST_START, i, id);
    r.turn = TURN_HEAD;
    r.sampling = &e->request->sampling;
    r.input = openai_prompt_input(&e->request->inputs[i]);
    sessions_submit(ss, &r);
}

static void start_some(struct embeddings *e) {
    while (!e->failure.status && e->n_started < e->request->n_inputs &&
           e->n_started - e->n_ended < AT_ONCE)
        start(e, e->n_started);
    service_poll_soon(e->service);
}

// --- the end ---

static void embeddings_free(struct embeddings *e) {
    service_drop_follower(e->service, &e->follower);
    for (size_t i = 0; e->inputs && i < e->n_started; i++)
        if (e->inputs[i].state == INPUT_STARTED) delete_session(e, i);
    for (size_t i = 0; e->inputs && i < e->request->n_inputs; i++) free(e->inputs[i].json);
    free(e->inputs);
    free(e->owner);
    embeddings_request_free(e->request);
    free(e);
}

static void on_client_gone(void *ctx) {
    embeddings_free(ctx);
}

static void reply_failure(struct embeddings *e) {
    const struct completion_failure *f = &e->failure;
    http_reply_error(e->http, f->status, f->code, f->message, f->retry_after_ms);
    embeddings_free(e);
}

static void reply(struct embeddings *e) {
    struct json_writer w;
    struct buf out;
    buf_init(&out, REPLY_MAX_BYTES + (1 << 20));
    json_writer_init(&w, &out);
    json_open(&w, NULL, '{');
    json_put_string(&w, "object", "list");
    json_open(&w, "data", '[');
    for (size_t i = 0; i < e->request->n_inputs; i++)
        json_put_raw(&w, NULL, e->inputs[i].json, e->inputs[i].len);
    json_close(&w, ']');
    json_put_string(&w, "model", e->request->served->name);
    json_open(&w, "usage", '{');
    json_put_int(&w, "prompt_tokens", e->n_tokens);
    json_put_int(&w, "total_tokens", e->n_tokens);
    json_close(&w, '}');
    json_close(&w, '}');
    http_reply_json(e->http, 200, &out);
    embeddings_free(e);
}

// --- embeddings ---

// Reads the embedding from the turn's context, cuts it and, with unit_length, scales it to length 1. NULL: no memory, or the
// context has none.
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
    json_open(&w, NULL, '{');
    json_put_string(&w, "object", "embedding");
    json_put_int(&w, "index", (int64_t)index);
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

static void take_end(struct embeddings *e, size_t i, const struct turn_view *t) {
    struct embedded *in = &e->inputs[i];
    int32_t n = e->request->dimensions;
    if (t->error_code || !t->context) {
        openai_fail(&e->failure, 500, t->error_code ? t->error_code : "interrupted", NULL,
                    t->error_message ? t->error_message : "the turn was cut off");
        return;
    }
    float *v = read_vector(t->context, n, e->request->unit_length);
    in->json = v ? write_vector(i, v, n, e->request->base64, &in->len) : NULL;
    free(v);
    e->bytes += in->len;
    if (!in->json)
        openai_no_memory(&e->failure);
    else if (e->bytes > REPLY_MAX_BYTES)
        openai_bad(&e->failure, "input", "has too many for one answer");
    if (e->failure.status) return;
    e->n_tokens += t->numbers.input_tokens;
    in->state = INPUT_ENDED;
    in->session = NULL;
    e->n_ended++;
    delete_session(e, i);
}

static void take_events(struct embeddings *e, size_t i) {
    struct embedded *in = &e->inputs[i];
    struct session_event ev;
    while (in->session && !e->failure.status) {
        if (session_next_event(in->session, e->follower.client, EVENT_TEXT_BYTES, &ev) != 1)
            in->session = NULL; // on_ready comes
        else if (ev.kind == EVENT_DONE)
            take_end(e, i, &ev.turn);
    }
}

static void push(struct follower *f) {
    struct embeddings *e = (struct embeddings *)f;
    for (size_t i = 0; i < e->n_started && !e->failure.status; i++) take_events(e, i);
    start_some(e);
    if (e->failure.status)
        reply_failure(e);
    else if (e->n_ended == e->request->n_inputs)
        reply(e);
}

// --- as a follower ---

static void push_later(struct embeddings *e) {
    if (!follower_push_later(&e->service->followers, &e->follower))
        openai_no_memory(&e->failure); // the next event takes it further
}

static void on_answer(struct follower *f, const struct session_answer *a) {
    struct embeddings *e = (struct embeddings *)f;
    if (a->kind != ANSWER_ERROR) return;
    completion_failure_take(&e->failure, a);
    push_later(e);
}

// The session's input, whose number is at the end of the session's id.
static struct embedded *input_of(struct embeddings *e, const struct session *s) {
    size_t i = strtoul(session_id(s) + strlen("embd-") + RANDOM_ID_LEN + 1, NULL, 10);
    return i < e->n_started && e->inputs[i].state == INPUT_STARTED ? &e->inputs[i] : NULL;
}

static void on_ready(struct follower *f, struct session *s) {
    struct embeddings *e = (struct embeddings *)f;
    struct embedded *in = input_of(e, s);
    if (!in) return;
    in->session = s;
    push_later(e);
}

// The session of an input that has ended was deleted by embeddings.c itself.
static void on_gone(struct follower *f, struct session *s) {
    struct embeddings *e = (struct embeddings *)f;
    struct embedded *in = input_of(e, s);
    if (!in) return;
    in->session = NULL;
    openai_fail(&e->failure, 500, "session_closed", NULL, "the input's session was deleted");
    push_later(e);
}

static bool is_drained(const struct follower *f) {
    const struct embeddings *e = (const struct embeddings *)f;
    for (size_t i = 0; i < e->n_started; i++)
        if (e->inputs[i].session) return false;
    return true;
}

static void on_end(struct follower *f) {
    struct embeddings *e = (struct embeddings *)f;
    openai_fail(&e->failure, 503, "shutting_down", NULL, "the server is shutting down");
    reply_failure(e);
}

static const struct follower_ops follower_ops = {.on_answer = on_answer,
                                                 .on_ready = on_ready,
                                                 .on_gone = on_gone,
                                                 .push = push,
                                                 .drained = is_drained,
                                                 .end = on_end};

// --- the beginning ---

static const struct http_waiter waiter = {.client_gone = on_client_gone};

// Takes the request. NULL: no memory, the request is freed.
static struct embeddings *embeddings_new(struct service *s, struct http *h,
                                         struct embeddings_request *q) {
    struct embeddings *e = calloc(1, sizeof *e);
    if (!e || (e->follower.ops = &follower_ops, followers_add(&s->followers, &e->follower)) < 0) {
        embeddings_request_free(q);
        free(e);
        return NULL;
    }
    e->service = s;
    e->http = h;
    e->request = q;
    e->inputs = calloc(q->n_inputs, sizeof *e->inputs);
    e->owner = strdup(http_owner(h));
    random_id(e->id);
    if (e->inputs && e->owner) return e;
    embeddings_free(e);
    return NULL;
}

void openai_embeddings_handle(void *user, struct http *h) {
    struct service *s = user;
    const struct embeddings_request *q = http_decoded(h);
    if (q->failure.status) {
        openai_reply_failure(h, &q->failure);
        return;
    }
    struct embeddings *e = embeddings_new(s, h, http_take_decoded(h));
    if (!e) {
        http_reply_error(h, 503, "overloaded", "no memory for the request", 1000);
        return;
    }
    http_wait(h, &waiter, e);
    start_some(e);
}

void *openai_embeddings_decode(void *user, const struct http_payload *p) {
    const struct service *s = user;
    return embeddings_request_read(s, p->body, p->len);
}

void openai_embeddings_release(void *decoded) {
    embeddings_request_free(decoded);
}
