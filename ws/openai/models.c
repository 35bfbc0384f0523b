// GET /v1/models: the models of this server, and one of them by its name. See openai.h.
#include "base/json_form.h"
#include "ws/openai/failure.h"
#include "ws/openai/openai.h"
#include "ws/service.h"
#include <string.h>

#define REPLY_MAX_BYTES (1 << 20)

// The context length under each of the names that clients look for: vLLM's, OpenRouter's and Groq's.
static const char *const length_names[] = {"max_model_len", "context_length", "context_window"};

static void put_model(struct json_writer *w, const struct served_model *m) {
    json_form(w, "{id:%s,object:'model',created:%ld,owned_by:'parley'", m->name, m->loaded_s);
    for (size_t i = 0; i < sizeof length_names / sizeof *length_names; i++)
        json_put_int(w, length_names[i], m->session_len);
    json_form(w, "weight_format?:%s}", m->info->weight_format);
}

void openai_models_handle(void *user, struct http *h) {
    struct service *s = user;
    struct buf out;
    struct json_writer w;
    const struct served_model *m = sessions_placement(s->sessions)->models;
    buf_init(&out, REPLY_MAX_BYTES);
    json_writer_init(&w, &out);
    json_form(&w, "{object:'list',data:[");
    for (; m; m = m->next) put_model(&w, m);
    json_form(&w, "]}");
    http_reply_json(h, 200, &out);
}

void openai_model_handle(void *user, struct http *h) {
    struct service *s = user;
    const char *name = http_path(h) + strlen("/v1/models/");
    if (!*name) {
        openai_models_handle(user, h);
        return;
    }
    const struct served_model *m = service_hold_model(s, name);
    struct completion_failure f = {.status = 0};
    struct json_writer w;
    struct buf out;
    if (!m) {
        openai_fail_model(&f, name);
        openai_reply_failure(h, &f);
        return;
    }
    buf_init(&out, REPLY_MAX_BYTES);
    json_writer_init(&w, &out);
    put_model(&w, m);
    placement_drop(m);
    http_reply_json(h, 200, &out);
}
