// GET /v1/models in Anthropic's form. See anthropic.h.
#include "base/json.h"
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
    json_open(w, NULL, '{');
    json_put_string(w, "type", "model");
    json_put_string(w, "id", m->name);
    json_put_string(w, "display_name", m->name);
    json_put_string(w, "created_at", created);
    json_put_int(w, "max_input_tokens", m->session_len);
    json_put_int(w, "max_tokens", m->session_len);
    json_close(w, '}');
}

// All models are on one page, whatever `limit` says: a server has few.
void anthropic_models_handle(void *user, struct http *h) {
    struct service *s = user;
    struct buf out;
    struct json_writer w;
    const struct served_model *models = sessions_placement(s->sessions)->models, *last = NULL;
    buf_init(&out, REPLY_MAX_BYTES);
    json_writer_init(&w, &out);
    json_open(&w, NULL, '{');
    json_open(&w, "data", '[');
    for (const struct served_model *m = models; m; last = m, m = m->next) put_model(&w, m);
    json_close(&w, ']');
    json_put_bool(&w, "has_more", false);
    json_put_string(&w, "first_id", models ? models->name : NULL);
    json_put_string(&w, "last_id", last ? last->name : NULL);
    json_close(&w, '}');
    anthropic_reply(h, &out);
}

void anthropic_model_handle(void *user, struct http *h) {
    struct service *s = user;
    struct buf out;
    struct json_writer w;
    const struct served_model *m = service_hold_model(s, http_path(h) + strlen("/v1/models/"));
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
