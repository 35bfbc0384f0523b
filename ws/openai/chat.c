// POST /v1/chat/completions: a completion in OpenAI's form (ws/completion/http_completion.h). Its id names the session and the
// turn (completion_id). See openai.h.
#include "ws/openai/chat_request.h"
#include "ws/openai/chat_write.h"
#include "ws/openai/openai.h"
#include <stdlib.h>

struct chat {
    struct http_completion x; // first
    struct answer_head head;
    char id[COMPLETION_ID_MAX];
    struct chat_answer *answers; // (n) of a completion that is not streamed
    size_t n;
    struct completion_usage usage;
};

static bool begin(struct http_completion *x) {
    struct chat *c = (struct chat *)x;
    const struct chat_request *r = (const struct chat_request *)x->in;
    const struct served_model *m = r->in.request->served;
    bool logprobs = r->in.request->sampling->params.logprobs;
    c->n = r->n;
    c->head = (struct answer_head){.id = c->id,
                                   .model = m->name,
                                   .fingerprint = m->info->fingerprint,
                                   .created_s = clock_wall_us(&clock_system) / 1000000,
                                   .include_usage = r->include_usage};
    if (r->in.stream) return true;
    c->answers = calloc(c->n, sizeof *c->answers);
    for (size_t i = 0; c->answers && i < c->n; i++) chat_answer_init(&c->answers[i], logprobs);
    return c->answers;
}

static void release(struct http_completion *x) {
    struct chat *c = (struct chat *)x;
    for (size_t i = 0; c->answers && i < c->n; i++) chat_answer_release(&c->answers[i]);
    free(c->answers);
}

static void stream_event(struct chat *c, const struct completion_event *e, bool begins,
                         struct buf *out) {
    for (size_t i = 0; begins && i < c->n; i++) chat_write_role(out, &c->head, (int32_t)i);
    if (e->kind == COMPLETION_DONE)
        chat_write_end(out, &c->head, &e->usage);
    else if (e->kind != COMPLETION_STARTED)
        chat_write_event(out, &c->head, e);
}

static int take(struct http_completion *x, const struct completion_event *e, struct buf *out) {
    struct chat *c = (struct chat *)x;
    bool begins = !c->id[0];
    if (begins) completion_id(c->id, "chatcmpl-", e->session, e->turn);
    c->usage = e->usage;
    if (!x->in->stream)
        return chat_answer_take(&c->answers[(size_t)e->answer < c->n ? e->answer : 0], e);
    stream_event(c, e, begins, out);
    return 0;
}

static void write_whole(struct http_completion *x, struct buf *out) {
    const struct chat *c = (const struct chat *)x;
    chat_write_whole(out, &c->head, c->answers, c->n, &c->usage);
}

static const struct dialect dialect = {
    .bytes = sizeof(struct chat),
    .type = "text/event-stream",
    .names_session = true,
    .waiter = {http_completion_client_gone, http_completion_push, HTTP_EVENTS_PING},
    .begin = begin,
    .release = release,
    .release_request = http_completion_request_free,
    .take = take,
    .write_whole = write_whole,
    .name_param = chat_name_param,
    .reply_failure = openai_reply_failure,
    .write_failure = openai_write_stream_failure,
};

void openai_chat_handle(void *user, struct http *h) {
    http_completion_handle(user, h, &dialect);
}
