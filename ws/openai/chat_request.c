// Reading chat completions. See chat_request.h.
#include "ws/openai/chat_request.h"
#include "ws/completion/thinking_options.h"
#include "ws/openai/body.h"
#include "ws/openai/openai.h"
#include "ws/openai/tool_choice.h"
#include "ws/service.h"
#include <stdlib.h>
#include <string.h>

static int bad(struct chat_request *r, const char *param, const char *what) {
    return openai_bad(&r->in.failure, param, what);
}

static int no_memory(struct chat_request *r) {
    return openai_no_memory(&r->in.failure);
}

// Moves a member from the body to the request.
static cJSON *take(struct chat_request *r, const char *key) {
    return json_member(r->json, key) ? cJSON_DetachItemFromObjectCaseSensitive(r->json, key) : NULL;
}

// --- flags, model ---

static int read_bool(struct chat_request *r, const char *key, bool *out) {
    const cJSON *v = json_member(r->json, key);
    if (v && !cJSON_IsBool(v)) return bad(r, key, "must be true or false");
    if (v) *out = cJSON_IsTrue(v);
    return 0;
}

static int read_flags(struct chat_request *r) {
    const cJSON *options = json_member(r->json, "stream_options");
    bool parallel = true;
    TRY(read_bool(r, "stream", &r->in.stream));
    if (options && !cJSON_IsObject(options)) return bad(r, "stream_options", "must be an object");
    r->include_usage = cJSON_IsTrue(json_member(options, "include_usage"));
    TRY(read_bool(r, "parallel_tool_calls", &parallel));
    r->in.request->no_parallel_tool_calls = !parallel;
    return 0;
}

// --- sampling ---

// Members with the name and meaning of a parameter of parley.v1, which they have in no other of OpenAI's requests.
static const char *const own_keys[] = {
    "n",
    "logprobs",
    "top_logprobs",
    "logit_bias",
};

static int read_own(struct chat_request *r, cJSON *own, struct turn_sampling *sampling) {
    int32_t n_vocab = r->in.request->served->info->n_vocab;
    struct err err = {0};
    for (size_t i = 0; i < sizeof own_keys / sizeof *own_keys; i++) {
        cJSON *v = take(r, own_keys[i]);
        if (!v) continue;
        cJSON_AddItemToObject(own, own_keys[i], v);
        if (sampling_json_read(sampling, own, n_vocab, &err) < 0)
            return openai_fail(&r->in.failure, 400, "invalid_value", own_keys[i], err.text);
    }
    return 0;
}

// To a row of sampling parameters 0 is no limit, which a client that asks for no tokens does not mean; below 0 the row's
// own range would name 0 as allowed.
static int refuse_no_tokens(struct chat_request *r) {
    static const char *const keys[] = {"max_completion_tokens", "max_tokens"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const cJSON *v = json_member(r->json, keys[i]);
        if (cJSON_IsNumber(v) && v->valuedouble < 1) return bad(r, keys[i], "must be at least 1");
    }
    return 0;
}

static int read_sampling(struct chat_request *r) {
    struct turn_sampling *sampling = malloc(sizeof *sampling);
    cJSON *own = cJSON_CreateObject();
    r->in.request->sampling = sampling;
    if (sampling) turn_sampling_init(sampling);
    int rc = sampling && own ? read_own(r, own, sampling) : no_memory(r);
    cJSON_Delete(own);
    TRY(rc);
    if (sampling->params.top_logprobs > 0 && !sampling->params.logprobs)
        return bad(r, "top_logprobs", "needs logprobs");
    r->n = sampling->params.n > 1 ? (size_t)sampling->params.n : 1;
    return openai_sampling_read(sampling, r->json, r->in.request->served->info->n_vocab,
                                &r->in.failure);
}

// --- tools, prediction ---

// {"type":"content","content":"..." or [{"type":"text","text":"..."}]}
static int read_prediction(struct chat_request *r) {
    const cJSON *v = json_member(r->json, "prediction"), *part;
    const cJSON *content = json_member(v, "content");
    const char *type = json_string(v, "type");
    size_t len = 0;
    if (!v) return 0;
    if (!type || strcmp(type, "content") != 0)
        return bad(r, "prediction", "must have the type content");
    if (!cJSON_IsString(content) && !cJSON_IsArray(content))
        return bad(r, "prediction", "must have a content: a string or text parts");
    cJSON_ArrayForEach(part, content) {
        const char *text = json_string(part, "text");
        if (!text) return bad(r, "prediction", "can have text parts only");
        len += strlen(text);
    }
    if (cJSON_IsString(content)) {
        r->in.request->prediction = strdup(content->valuestring);
        return r->in.request->prediction ? 0 : no_memory(r);
    }
    char *at = r->in.request->prediction = malloc(len + 1);
    if (!at) return no_memory(r);
    *at = '\0';
    cJSON_ArrayForEach(part, content) at = stpcpy(at, json_string(part, "text"));
    return 0;
}

// Refuses members that would change the answer and are not served, because ignoring them would mislead.
static int refuse_unserved(struct chat_request *r) {
    static const char *const keys[] = {"audio", "functions", "function_call", "moderation",
                                       "web_search_options"};
    const cJSON *modality;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (json_member(r->json, keys[i])) return bad(r, keys[i], "is not served here");
    cJSON_ArrayForEach(modality, json_member(r->json, "modalities")) {
        if (!cJSON_IsString(modality) || strcmp(modality->valuestring, "text") != 0)
            return bad(r, "modalities", "can be text only here");
    }
    return 0;
}

void chat_name_param(struct completion_failure *f) {
    static const char *const names[][2] = {
        {"format", "response_format"}, {"thinking", "reasoning_effort"}, {NULL, NULL}};
    openai_name_param(f, names);
    if (strcmp(f->code, "context_length_exceeded") == 0) strcpy(f->param, "messages");
}

static int read_all(struct chat_request *r, const struct service *s) {
    if (!r->in.request) return no_memory(r);
    TRY(read_flags(r));
    r->in.request->served = openai_body_model(s, r->json, &r->in.failure);
    if (!r->in.request->served) return E_INVAL;
    TRY(refuse_unserved(r));
    TRY(refuse_no_tokens(r));
    TRY(read_sampling(r));
    TRY(openai_tool_choice_read(r->in.request, json_member(r->json, "tool_choice"),
                                openai_chat_choice_name, &r->in.failure));
    TRY(thinking_options_read(r->in.request, r->json, &r->in.failure));
    TRY(verbosity_read(r->in.request, json_member(r->json, "verbosity"), "verbosity",
                       &r->in.failure));
    TRY(read_prediction(r));
    r->in.request->messages = take(r, "messages");
    TRY(thinking_options_rename(r->in.request, &r->in.failure));
    r->in.request->tools = take(r, "tools");
    r->in.request->format = take(r, "response_format");
    if (completion_check(r->in.request, &r->in.failure)) return 0;
    chat_name_param(&r->in.failure);
    return E_INVAL;
}

void *openai_chat_decode(void *service, const struct http_payload *p) {
    struct chat_request *r = calloc(1, sizeof(*r));
    if (!r) return NULL;
    r->in.request = completion_request_new();
    if (r->in.request) r->in.request->owner = p->owner;
    r->json = openai_body_read(p->body, p->len, &r->in.failure);
    if (r->json && read_all(r, service) < 0 && r->in.request)
        completion_request_empty(r->in.request);
    cJSON_Delete(r->json); // on this worker: freeing two hundred thousand values takes milliseconds
    r->json = NULL;
    return r;
}
