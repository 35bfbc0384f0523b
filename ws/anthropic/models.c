// GET /v1/models in Anthropic's form. See anthropic.h.
#include "base/json_form.h"
#include "ws/anthropic/anthropic.h"
#include "ws/anthropic/reply.h"
#include "ws/service.h"
#include <string.h>
#include <time.h>

#define REPLY_MAX_BYTES (1 << 20)

static void put_model(struct json_writer *w, const struct served_model *m) {
    char created[32];
    time_t at = (time_t)m->loaded_s;
    struct tm utc;
    gmtime_r(&at, &utc);
    strftime(created, sizeof created, "%Y-%m-%dT%H:%M:%SZ", &utc);
    json_form(w,
              "{type:'model',id:%s,display_name:%s,created_at:%s,max_input_tokens:%ld,"
              "max_tokens:%ld}",
              m->name, m->name, created, m->session_len, m->session_len);
}

// All models are on one page, whatever `limit` says: a server has few.
void anthropic_models_handle(void *user, struct http *h) {
    struct service *s = user;
    struct buf out;
    struct json_writer w;
    const struct served_model *models = sessions_placement(s->sessions)->models, *last = NULL;
    buf_init(&out, REPLY_MAX_BYTES);
    json_writer_init(&w, &out);
    json_form(&w, "{data:[");
    for (const struct served_model *m = models; m; last = m, m = m->next) put_model(&w, m);
    json_form(&w, "],has_more:false,first_id:%s,last_id:%s}", models ? models->name : NULL,
              last ? last->name : NULL);
    anthropic_reply(h, &out);
}

void anthropic_model_handle(void *user, struct http *h) {
    struct service *s = user;
    struct buf out;
    struct json_writer w;
    const char *name = http_path(h) + strlen("/v1/models/");
    if (!*name) {
        anthropic_models_handle(user, h);
        return;
    }
    const struct served_model *m = service_hold_model(s, name);
    if (!m) {
        http_reply_error(h, 404, "not_found", "model: there is none of this name", 0);
        return;
    }
    buf_init(&out, REPLY_MAX_BYTES);
    json_writer_init(&w, &out);
    put_model(&w, m);
    placement_drop(m);
    anthropic_reply(h, &out);
}
