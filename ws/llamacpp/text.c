// POST /tokenize, /detokenize and /apply-template. Each is one pass over its body, made where the body is
// decoded (on a worker, where it is long): what is handed over is the reply. See llamacpp.h.
#include "base/json_form.h"
#include "base/utf8.h"
#include "ws/completion/plan.h"
#include "ws/completion/thinking_options.h"
#include "ws/llamacpp/llamacpp.h"
#include "ws/openai/tool_choice.h"
#include "ws/service.h"
#include <stdlib.h>
#include <string.h>

#define REPLY_MAX_BYTES (64 << 20)

struct text_reply {
    int status;
    struct buf body;
};

struct text_call {
    cJSON *json;
    const struct served_model *served; // held; NULL: given away
    const struct engine *engine;
    struct json_writer *w;
    struct err *err;
};

// --- /tokenize ---

// llama.cpp's form of a piece: text, or an array of bytes if the bytes are not UTF-8.
static void put_piece(const struct text_call *c, int32_t id) {
    size_t len = 0;
    const char *bytes = engine_token_bytes(c->engine, id, &len);
    if (utf8_valid(bytes, len)) {
        json_put_text(c->w, "piece", bytes, len);
        return;
    }
    json_open(c->w, "piece", '[');
    for (size_t i = 0; i < len; i++) json_put_int(c->w, NULL, (unsigned char)bytes[i]);
    json_close(c->w, ']');
}

static void put_tokens(const struct text_call *c, const struct token_list *ids, bool with_pieces) {
    if (!with_pieces) {
        json_put_ids(c->w, "tokens", ids->ids, ids->len);
        return;
    }
    json_open(c->w, "tokens", '[');
    for (size_t i = 0; i < ids->len; i++) {
        json_form(c->w, "{id:%d", ids->ids[i]);
        put_piece(c, ids->ids[i]);
        json_close(c->w, '}');
    }
    json_close(c->w, ']');
}

static int tokenize(struct text_call *c) {
    bool add_special = false, parse_special = true, with_pieces = false;
    const char *content = NULL;
    struct token_list ids;
    TRY(json_get_string(c->json, "content", &content, c->err));
    TRY(json_get_bool(c->json, "add_special", &add_special, c->err));
    TRY(json_get_bool(c->json, "parse_special", &parse_special, c->err));
    TRY(json_get_bool(c->json, "with_pieces", &with_pieces, c->err));
    if (!content) return err_set(c->err, E_INVAL, "'content' is missing");
    if (add_special && !parse_special)
        return err_set(c->err, E_INVAL, "'add_special' is not served with 'parse_special' false");
    token_list_init(&ids);
    int rc = add_special ? engine_tokenize_start(c->engine, content, strlen(content), &ids, c->err)
                         : engine_tokenize(c->engine, content, strlen(content), parse_special, &ids,
                                           c->err);
    if (rc == 0) put_tokens(c, &ids, with_pieces);
    token_list_release(&ids);
    return rc;
}

// --- /detokenize ---

static int detokenize(struct text_call *c) {
    const cJSON *tokens = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    struct buf text;
    TRY(json_get_array(c->json, "tokens", &tokens, c->err));
    if (!tokens) return err_set(c->err, E_INVAL, "'tokens' is missing");
    buf_init(&text, REPLY_MAX_BYTES);
    int rc = json_copy_ids(tokens, "tokens", &ids, &n, c->err);
    if (rc == 0) rc = engine_detokenize(c->engine, ids, n, false, &text, c->err);
    if (rc == 0) json_put_text(c->w, "content", buf_z(&text), text.len);
    buf_release(&text);
    free(ids);
    return rc;
}

// --- /apply-template ---

static int take_conversation(struct text_call *c, struct completion_request *r) {
    struct completion_failure f = {0};
    r->messages = cJSON_DetachItemFromObjectCaseSensitive(c->json, "messages");
    r->tools = cJSON_DetachItemFromObjectCaseSensitive(c->json, "tools");
    r->served = c->served;
    c->served = NULL;
    if (cJSON_IsNull(r->tools) || (cJSON_IsArray(r->tools) && !r->tools->child)) {
        cJSON_Delete(r->tools);
        r->tools = NULL;
    }
    if (r->tools && !cJSON_IsArray(r->tools))
        return err_set(c->err, E_INVAL, "'tools' must be an array");
    if (!r->messages) return err_set(c->err, E_INVAL, "'messages' is missing");
    if (openai_tool_choice_read(r, json_member(c->json, "tool_choice"), openai_chat_choice_name,
                                &f) < 0 ||
        thinking_options_read(r, c->json, &f) < 0 || thinking_options_rename(r, &f) < 0)
        return err_set(c->err, f.status == 503 ? E_NOMEM : E_INVAL, "%s", f.message);
    return 0;
}

// As chat completions render it: the text that the model would be given.
static int apply_template(struct text_call *c) {
    struct completion_request *r = completion_request_new();
    struct completion_failure f;
    bool prompt = true;
    if (!r) return err_set(c->err, E_NOMEM, "the server is out of memory");
    int rc = json_get_bool(c->json, "add_generation_prompt", &prompt, c->err);
    if (rc >= 0 && !prompt)
        rc = err_set(c->err, E_INVAL, "'add_generation_prompt' must be true here");
    if (rc >= 0) rc = take_conversation(c, r);
    if (rc == 0 && !completion_check(r, &f))
        rc = err_set(c->err, f.status == 503 ? E_NOMEM : E_INVAL, "%s", f.message);
    if (rc == 0) json_put_text(c->w, "prompt", r->plan->text, r->plan->len);
    completion_request_free(r);
    return rc;
}

// --- calls ---

static const struct text_route {
    const char *path;
    int (*run)(struct text_call *c);
    const char *const *unserved; // (NULL at the end) keys that would change the answer
} routes[] = {
    {"/tokenize", tokenize, (const char *const[]){NULL}},
    {"/detokenize", detokenize, (const char *const[]){NULL}},
    {"/apply-template", apply_template,
     (const char *const[]){"chat_template", "response_format", "json_schema", "grammar", NULL}},
};

static bool is_given(const cJSON *v) {
    bool empty = (cJSON_IsArray(v) || cJSON_IsObject(v)) && !v->child;
    bool blank = cJSON_IsString(v) && !*v->valuestring;
    return v && !cJSON_IsFalse(v) && !empty && !blank;
}

static int check_served(const struct text_call *c, const struct text_route *r) {
    for (const char *const *key = r->unserved; *key; key++)
        if (is_given(json_member(c->json, *key)))
            return err_set(c->err, E_INVAL, "'%s' is not served here", *key);
    return 0;
}

static int run(const struct text_route *r, const struct service *s, cJSON *json, struct buf *body,
               struct err *err) {
    struct json_writer w;
    const char *model = NULL;
    if (!cJSON_IsObject(json)) return err_set(err, E_INVAL, "the body must be an object");
    TRY(json_get_string(json, "model", &model, err));
    const struct served_model *m = service_hold_model(s, model);
    if (!m) return err_set(err, E_NOTFOUND, "the model '%.64s' is not served", model ? model : "");
    struct text_call c = {json, m, m->engine, &w, err};
    json_writer_init(&w, body);
    json_open(&w, NULL, '{');
    int rc = check_served(&c, r);
    if (rc == 0) rc = r->run(&c);
    json_close(&w, '}');
    if (rc == 0 && body->error) rc = err_set(err, body->error, "the answer is too long");
    placement_drop(c.served);
    return rc;
}

static int status_of(int rc) {
    switch (rc) {
    case 0:
        return 200;
    case E_NOTFOUND:
        return 404;
    case E_UNSUPPORTED:
        return 501;
    case E_NOMEM:
        return 503;
    default:
        return 400;
    }
}

void *llamacpp_text_decode(void *user, const struct http_payload *p) {
    const struct service *s = user;
    const struct text_route *route = routes;
    struct json_limits limits = json_limits_message;
    struct err err = {0};
    struct text_reply *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    while (strcmp(route->path, p->path) != 0) route++; // the server's table has no others
    limits.max_bytes = p->len;                         // bounded by the route
    buf_init(&r->body, REPLY_MAX_BYTES);
    cJSON *json = json_parse(p->body, p->len, &limits, &err);
    int rc = json ? run(route, s, json, &r->body, &err) : err.code;
    cJSON_Delete(json);
    r->status = status_of(rc);
    if (rc == 0) return r;
    buf_release(&r->body);
    buf_init(&r->body, 8192);
    llamacpp_write_error(&r->body, r->status, NULL, err.text);
    return r;
}

void llamacpp_text_release(void *decoded) {
    struct text_reply *r = decoded;
    if (!r) return;
    buf_release(&r->body);
    free(r);
}

void llamacpp_text_handle(void *user, struct http *h) {
    struct text_reply *r = http_decoded(h);
    http_reply_json(h, r->status, &r->body);
}
