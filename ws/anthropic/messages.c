// POST /v1/messages: a conversation's next answer; POST /v1/messages/count_tokens: the exact number of its tokens. Both
// are read and spelled here; ws/completion/http_completion.c sends them. See anthropic.h.
#include "ws/anthropic/anthropic.h"
#include "ws/anthropic/messages_request.h"
#include "ws/anthropic/messages_write.h"
#include "ws/anthropic/reply.h"
#include <stdlib.h>
#include <string.h>

#define ANSWER_MAX_BYTES (64 << 20) // of a whole answer

struct message {
    struct http_completion x; // first
    struct message_writer writer;
    char request_id[REQUEST_ID_MAX];
    bool counts;
};

// --- reading, on a worker ---

// The model that the request names, or the server's only one.
static const struct served_model *hold_model(struct messages_request *r, const struct service *s) {
    struct err err = {0};
    const struct served_model *served = service_hold_asked_model(s, r->model, &err);
    if (served) return served;
    messages_refuse(r, "model: %s%s", err.text,
                    err.code == E_NOTFOUND ? "; GET /v1/models lists those of this server." : "");
    if (err.code != E_NOTFOUND) return NULL;
    r->in.failure.status = 404;
    snprintf(r->in.failure.code, sizeof r->in.failure.code, "not_found");
    return NULL;
}

// The prompt alone is computed: what the answer would have to be does not matter.
static void warm_up(struct completion_request *to) {
    to->alone = to->temporary = to->forget = true;
    if (to->tool_choice != TOOLS_NONE) to->tool_choice = TOOLS_AUTO;
    cJSON_Delete(to->format);
    to->format = NULL;
}

static void check(struct messages_request *r, const struct http_payload *p,
                  const struct service *s) {
    struct completion_request *to = r->in.request;
    to->served = hold_model(r, s);
    to->owner = p->owner;
    if (!to->served) return;
    if (r->warms_up) warm_up(to);
    if (!completion_check(to, &r->in.failure) || *r->model) return;
    free(r->model);
    r->model = strdup(to->served->name);
    if (!r->model) messages_no_memory(r);
}

static void *decode(const struct service *s, const struct http_payload *p,
                    enum messages_purpose purpose) {
    struct messages_request *r = malloc(sizeof *r);
    if (!r) return NULL;
    messages_request_read(r, purpose, p->body, p->len);
    sessions_secret(s->sessions, r->key);
    if (!r->in.failure.status) check(r, p, s);
    if (purpose == MESSAGES_COUNT && r->in.request) {
        r->in.request->counts = true;
        r->in.stream = false;
    }
    return r;
}

void *anthropic_messages_decode(void *user, const struct http_payload *p) {
    return decode(user, p, MESSAGES_ANSWER);
}

void *anthropic_count_decode(void *user, const struct http_payload *p) {
    return decode(user, p, MESSAGES_COUNT);
}

void anthropic_messages_release(void *decoded) {
    if (decoded) messages_request_release(decoded);
    free(decoded);
}

// --- as a dialect ---

static bool begin(struct http_completion *x) {
    struct message *m = (struct message *)x;
    const struct messages_request *r = (const struct messages_request *)x->in;
    const struct turn_sampling *sampling = r->in.request->sampling;
    m->counts = r->in.request->counts;
    message_writer_init(&m->writer, ANSWER_MAX_BYTES);
    m->writer.model = r->model;
    m->writer.key = r->key;
    m->writer.max_tokens = sampling && !r->warms_up ? sampling->params.max_tokens : 0;
    m->writer.stream = r->in.stream;
    m->writer.silent = r->warms_up;
    anthropic_request_id(m->request_id);
    return true;
}

static void release(struct http_completion *x) {
    message_writer_release(&((struct message *)x)->writer);
}

static void put_headers(const struct http_completion *x, struct buf *extra) {
    anthropic_put_headers(extra, x->http, ((const struct message *)x)->request_id);
}

static int take(struct http_completion *x, const struct completion_event *e, struct buf *out) {
    struct message *m = (struct message *)x;
    if (e->kind == COMPLETION_DONE && m->writer.finish == COMPLETION_CANCELLED) {
        completion_failure_set(&x->failure, "error", "the turn was cancelled in its session");
        return E_CANCELLED;
    }
    message_write_event(&m->writer, e, out);
    return 0;
}

static void write_whole(struct http_completion *x, struct buf *out) {
    struct message *m = (struct message *)x;
    if (m->counts)
        message_write_count(out, m->writer.usage.prompt_tokens);
    else
        message_write_whole(&m->writer, out);
}

static void reply_failure(struct http *h, const struct completion_failure *f) {
    http_reply_error(h, f->status, f->code, f->message, f->retry_after_ms);
}

static void write_failure(const struct http_completion *x, const struct completion_failure *f,
                          struct buf *out) {
    char sentence[600];
    message_write_stream_error(out, anthropic_status(f->status, f->code), f->code,
                               anthropic_sentence(f->code, f->message, sentence),
                               ((const struct message *)x)->request_id);
}

static const struct dialect dialect = {
    .bytes = sizeof(struct message),
    .type = "text/event-stream; charset=utf-8",
    .names_session = true,
    .waiter = {http_completion_client_gone, http_completion_push,
               "event: ping\ndata: {\"type\":\"ping\"}\n\n"},
    .begin = begin,
    .release = release,
    .release_request = anthropic_messages_release,
    .put_headers = put_headers,
    .take = take,
    .write_whole = write_whole,
    .reply_failure = reply_failure,
    .write_failure = write_failure,
};

void anthropic_messages_handle(void *user, struct http *h) {
    http_completion_handle(user, h, &dialect);
}
