// GET /v1/models: the models of this server. See openai.h.
#include "base/json.h"
#include "ws/openai/openai.h"
#include "ws/service.h"

#define REPLY_MAX_BYTES (1 << 20)

void openai_models_handle(void *user, struct http *h) {
    struct service *s = user;
    struct buf out;
    struct json_writer w;
    const struct served_model *m = sessions_placement(s->sessions)->models;
    buf_init(&out, REPLY_MAX_BYTES);
    json_writer_init(&w, &out);
    json_open(&w, NULL, '{');
    json_put_string(&w, "object", "list");
    json_open(&w, "data", '[');
    for (; m; m = m->next) {
        json_open(&w, NULL, '{');
        json_put_string(&w, "id", m->name);
        json_put_string(&w, "object", "model");
        json_put_int(&w, "created", m->loaded_s);
        json_put_string(&w, "owned_by", "parley");
        json_close(&w, '}');
    }
    json_close(&w, ']');
    json_close(&w, '}');
    http_reply_buf(h, 200, "application/json", "cache-control: no-store\r\n", &out);
    buf_release(&out);
}
