// Reading chat completions. See chat_request.h.
#include "ws/openai/chat_request.h"
#include "ws/service.h"
#include <stdlib.h>
#include <string.h>

#define MESSAGES_MAX 4096

static int refuse(struct chat_request *r, int status, const char *code, const char *param) {
    r->status = status;
    r->code = code;
    r->param = param;
    return E_INVAL;
}

static int bad(struct chat_request *r, const char *param, const char *what) {
    err_set(&r->err, E_INVAL, "%s %s", param, what);
    return refuse(r, 400, "invalid_value", param);
}

static int no_memory(struct chat_request *r) {
    err_set(&r->err, E_NOMEM, "the server is out of memory");
    return refuse(r, 503, "overloaded", NULL);
}

static const cJSON *member(const struct chat_request *r, const char *key) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(r->json, key);
    return cJSON_IsNull(v) ? NULL : v;
}

// --- messages ---

static const char *role_of(const cJSON *message) {
    const char *role = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(message, "role"));
    if (!role) return NULL;
    if (strcmp(role, "developer") == 0) return "system"; // its newer name
    static const char *const roles[] = {"system", "user", "assistant"};
    for (int i = 0; i < 3; i++)
        if (strcmp(role, roles[i]) == 0) return roles[i];
    return NULL;
}

// A string, or an array of {"type":"text","text":...}, joined.
static int read_content(struct chat_request *r, const cJSON *content, struct buf *out) {
    const cJSON *part;
    if (cJSON_IsString(content)) {
        buf_addz(out, content->valuestring);
        return 0;
    }
    if (!cJSON_IsArray(content)) return bad(r, "messages", "need a content of text");
    cJSON_ArrayForEach(part, content) {
        const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(part, "type"));
        const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(part, "text"));
        if (!type || strcmp(type, "text") != 0 || !text)
            return bad(r, "messages", "may have parts of type text only");
        buf_addz(out, text);
    }
    return 0;
}

static int add_message(struct chat_request *r, const cJSON *message) {
    struct buf text;
    const char *role = role_of(message);
    if (!role) return bad(r, "messages", "need a role: system, developer, user or assistant");
    buf_init(&text, SIZE_MAX / 2);
    int rc = read_content(r, cJSON_GetObjectItemCaseSensitive(message, "content"), &text);
    buf_addz(&text, "");
    char *content = rc == 0 ? buf_take(&text, NULL) : NULL;
    buf_release(&text);
    if (rc < 0) return rc;
    if (!content) return no_memory(r);
    r->messages[r->n_messages++] = (struct engine_message){role, content};
    return 0;
}

static int read_messages(struct chat_request *r) {
    const cJSON *list = member(r, "messages"), *message;
    int n = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0;
    if (n < 1 || n > MESSAGES_MAX) return bad(r, "messages", "must be an array of 1 to 4096");
    r->messages = calloc((size_t)n, sizeof(*r->messages));
    if (!r->messages) return no_memory(r);
    cJSON_ArrayForEach(message, list) TRY(add_message(r, message));
    if (strcmp(r->messages[n - 1].role, "user") != 0)
        return bad(r, "messages", "must end with a user's");
    return 0;
}

// One user message, perhaps behind a system one, is a session's first turn as any other. A longer
// conversation goes in as ids: a turn holds one message.
static int make_input(struct chat_request *r, const struct engine *e) {
    size_t n = r->n_messages;
    bool has_system = n == 2 && strcmp(r->messages[0].role, "system") == 0;
    struct token_list ids;
    if (n == 1 || has_system) {
        const char *text = r->messages[n - 1].content;
        r->system = has_system ? r->messages[0].content : NULL;
        r->input =
            (struct turn_input){.kind = INPUT_CONTENT, .text = text, .text_len = strlen(text)};
        return 0;
    }
    token_list_init(&ids);
    int rc = engine_render_turn(e, r->messages, n, -1, &ids, &r->err);
    size_t n_ids = 0;
    if (rc == 0) r->ids = token_list_take(&ids, &n_ids);
    token_list_release(&ids);
    if (rc == E_NOMEM || (rc == 0 && !r->ids)) return no_memory(r);
    if (rc < 0) return refuse(r, 400, "invalid_value", "messages");
    r->input = (struct turn_input){.kind = INPUT_IDS, .ids = r->ids, .n_ids = n_ids};
    return 0;
}

// --- parameters ---

static int read_sampling(struct chat_request *r, int32_t n_vocab) {
    turn_sampling_init(&r->sampling);
    int rc = sampling_json_read_openai(&r->sampling, r->json, n_vocab, &r->err);
    return rc < 0 ? refuse(r, 400, "invalid_value", NULL) : 0;
}

// What would change the answer's form, and is not served: better refused than ignored.
static int refuse_unserved(struct chat_request *r) {
    const cJSON *n = member(r, "n"), *format = member(r, "response_format");
    const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(format, "type"));
    if (n && !(cJSON_IsNumber(n) && n->valuedouble == 1)) return bad(r, "n", "must be 1 here");
    if (cJSON_IsTrue(member(r, "logprobs"))) return bad(r, "logprobs", "is not served here");
    if (cJSON_GetArraySize(member(r, "tools")) > 0) return bad(r, "tools", "are not served here");
    if (cJSON_GetArraySize(member(r, "logit_bias")) > 0)
        return bad(r, "logit_bias", "is not served here");
    if (format && (!type || strcmp(type, "text") != 0))
        return bad(r, "response_format", "must be text here");
    return 0;
}

static int read_flags(struct chat_request *r) {
    const cJSON *stream = member(r, "stream"), *options = member(r, "stream_options");
    if (stream && !cJSON_IsBool(stream)) return bad(r, "stream", "must be true or false");
    r->stream = cJSON_IsTrue(stream);
    r->include_usage = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(options, "include_usage"));
    r->model = cJSON_GetStringValue(member(r, "model"));
    return r->model ? 0 : bad(r, "model", "is missing");
}

static int find_model(struct chat_request *r, const struct service *s) {
    r->served = service_hold_model(s, r->model);
    if (r->served) return 0;
    err_set(&r->err, E_NOTFOUND,
            "The model '%.64s' does not exist; GET /v1/models lists those of this server.",
            r->model);
    return refuse(r, 404, "model_not_found", "model");
}

static int read_all(struct chat_request *r, const struct service *s) {
    TRY(read_flags(r));
    TRY(find_model(r, s));
    TRY(refuse_unserved(r));
    TRY(read_sampling(r, r->served->info->n_vocab));
    TRY(read_messages(r));
    return make_input(r, r->served->engine);
}

struct chat_request *chat_request_read(const struct service *s, const char *body, size_t len,
                                       size_t max_bytes) {
    struct json_limits limits = json_limits_message;
    struct chat_request *r = calloc(1, sizeof(*r));
    if (!r) return NULL;
    limits.max_bytes = max_bytes;
    r->json = json_parse(body, len, &limits, &r->err);
    if (!r->json && r->err.code == E_NOMEM)
        no_memory(r);
    else if (!r->json)
        refuse(r, 400, "invalid_json", NULL);
    else
        read_all(r, s);
    cJSON_Delete(r->json); // here: two hundred thousand values take milliseconds
    r->json = NULL;
    r->model = NULL;
    return r;
}

void chat_request_free(struct chat_request *r) {
    if (!r) return;
    for (size_t i = 0; i < r->n_messages; i++) free((char *)(size_t)r->messages[i].content);
    free(r->messages);
    placement_drop(r->served);
    turn_sampling_release(&r->sampling);
    free(r->ids);
    free(r);
}
