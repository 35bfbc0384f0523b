// GET /health and GET /props: how llama.cpp's server shows itself. See llamacpp.h.
#include "base/json_form.h"
#include "ws/health.h"
#include "ws/llamacpp/llamacpp.h"
#include "ws/service.h"
#include "ws/version.h"

#define REPLY_MAX_BYTES (4 << 20) // the chat template is most of it

// Their words for a status.
static const char *error_type(int status) {
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 429:
        return "rate_limit_error";
    case 501:
        return "not_supported_error";
    case 503:
        return "unavailable_error";
    default:
        return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

void llamacpp_write_error(struct buf *out, int status, const char *code, const char *message) {
    json_form_to(out, "{error:{code:%d,message:%s,type:%s}}", status, message, error_type(status));
}

void llamacpp_health(void *user, struct http *h) {
    struct buf out;
    buf_init(&out, 1024);
    bool ready = health_is_ready(user);
    if (ready)
        buf_addz(&out, "{\"status\":\"ok\"}");
    else
        llamacpp_write_error(&out, 503, "unavailable", "the server takes no turns: see /readyz");
    http_reply_json(h, ready ? 200 : 503, &out);
}

// --- /props ---

static int64_t count_slots(const struct service *s, const struct served_model *m) {
    int64_t n = 0;
    for (const struct instance *i = sessions_placement(s->sessions)->instances; i; i = i->next)
        if (i->model == m) n += i->max_sequences;
    return n;
}

static void put_settings(struct json_writer *w, const struct served_model *m) {
    struct turn_sampling sampling = {.params = m->sampling};
    json_form(w, "default_generation_settings:{n_ctx:%ld", m->session_len);
    sampling_json_put(w, "params", &sampling, SAMPLING_EVERY_KEY);
    json_close(w, '}');
}

static void put_modalities(struct json_writer *w) {
    json_form(w, "modalities:{vision:false,audio:false}");
}

// Of the default model, or ?model=NAME. Its folder is not told, only its name.
void llamacpp_props(void *user, struct http *h) {
    struct service *s = user;
    char name[256];
    bool named = http_query(h, "model", name, sizeof name);
    const struct served_model *m = service_hold_model(s, named ? name : NULL);
    struct buf out;
    struct json_writer w;
    if (!m) {
        http_reply_error(h, 404, "not_found", "the model is not served", 0);
        return;
    }
    buf_init(&out, REPLY_MAX_BYTES);
    json_writer_init(&w, &out);
    json_open(&w, NULL, '{');
    put_settings(&w, m);
    json_form(&w, "total_slots:%ld,model_alias:%s,model_path:%s,chat_template:%s",
              count_slots(s, m), m->name, m->name,
              m->info->template_text ? m->info->template_text : "");
    put_modalities(&w);
    json_form(&w, "bos_token:%s,eos_token:%s,build_info:%s}",
              m->info->bos_token ? m->info->bos_token : "",
              m->info->eos_token ? m->info->eos_token : "", "parley " PARLEY_VERSION);
    placement_drop(m);
    http_reply_json(h, 200, &out);
}
