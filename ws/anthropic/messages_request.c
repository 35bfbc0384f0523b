// Reads requests, except for conversation and tools. See messages_request.h.
#include "ws/anthropic/messages_request.h"
#include "base/json_form.h"
#include "ws/anthropic/messages_write.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_type(const cJSON *object, const char *type) {
    const char *s = cJSON_GetStringValue(json_member(object, "type"));
    return s && strcmp(s, type) == 0;
}

// --- sampling ---

static bool copy_number(struct messages_request *r, const cJSON *body, const char *key, cJSON *to) {
    const cJSON *v = json_member(body, key);
    if (!v) return true;
    if (!cJSON_IsNumber(v)) return messages_refuse(r, "%s: must be a number", key);
    return cJSON_AddNumberToObject(to, key, v->valuedouble) || messages_no_memory(r);
}

static bool copy_stop(struct messages_request *r, const cJSON *body, cJSON *to) {
    const cJSON *list = json_member(body, "stop_sequences"), *s;
    int i = 0;
    if (!list) return true;
    if (!cJSON_IsArray(list))
        return messages_refuse(r, "stop_sequences: must be an array of strings");
    cJSON *stop = cJSON_AddArrayToObject(to, "stop");
    cJSON_ArrayForEach(s, list) {
        if (!cJSON_IsString(s) || !*s->valuestring)
            return messages_refuse(r, "stop_sequences.%d: must be a string that is not empty", i);
        if (!cJSON_AddItemToArray(stop, cJSON_CreateString(s->valuestring)))
            return messages_no_memory(r);
        i++;
    }
    return stop || messages_no_memory(r);
}

// A top_p of 0 leaves the most likely token, as top_k 1 does. The row's is above 0.
static bool replace_zero_top_p(struct messages_request *r, cJSON *rows) {
    const cJSON *top_p = json_member(rows, "top_p");
    if (!top_p || top_p->valuedouble != 0) return true;
    cJSON_DeleteItemFromObjectCaseSensitive(rows, "top_p");
    cJSON_DeleteItemFromObjectCaseSensitive(rows, "top_k");
    return cJSON_AddNumberToObject(rows, "top_k", 1) || messages_no_memory(r);
}

// Puts the parameters under the names of the engine's rows, which check their ranges.
static bool fill_sampling(struct messages_request *r, const cJSON *body, cJSON *rows) {
    static const char *const numbers[] = {"max_tokens", "temperature", "top_p", "top_k"};
    const cJSON *max_tokens = json_member(body, "max_tokens");
    const cJSON *seed = json_member(body, "seed"); // not Anthropic's: answers can be repeated
    struct err err = {0};
    for (int i = 0; i < 4; i++)
        if (!copy_number(r, body, numbers[i], rows)) return false;
    if (!replace_zero_top_p(r, rows) || !copy_stop(r, body, rows)) return false;
    if (seed && !cJSON_AddItemToObject(rows, "seed", cJSON_Duplicate(seed, true)))
        return messages_no_memory(r);
    if (!max_tokens) return messages_refuse(r, "max_tokens: Field required");
    if (max_tokens->valuedouble < 0) return messages_refuse(r, "max_tokens: must be at least 0");
    r->warms_up = max_tokens->valuedouble == 0;
    if (r->warms_up) cJSON_SetNumberValue(json_member(rows, "max_tokens"), 1); // it is not shown
    r->in.request->sampling = malloc(sizeof *r->in.request->sampling);
    if (!r->in.request->sampling) return messages_no_memory(r);
    turn_sampling_init(r->in.request->sampling);
    if (sampling_json_read(r->in.request->sampling, rows, INT32_MAX, &err) == 0) return true;
    return messages_refuse(r, "%s", err.text);
}

static bool read_sampling(struct messages_request *r, const cJSON *body) {
    cJSON *rows = cJSON_CreateObject();
    bool ok = rows ? fill_sampling(r, body, rows) : messages_no_memory(r);
    cJSON_Delete(rows);
    return ok;
}

// --- thinking ---

static bool read_budget(struct messages_request *r, const cJSON *thinking) {
    const cJSON *v = json_member(thinking, "budget_tokens");
    double n = cJSON_IsNumber(v) ? v->valuedouble : 0;
    if (!(n >= 1 && n <= INT32_MAX) || n != (int32_t)n)
        return messages_refuse(r, "thinking.enabled.budget_tokens: must be an integer from 1");
    if (r->in.request->sampling && n >= r->in.request->sampling->params.max_tokens)
        return messages_refuse(r,
                               "thinking.enabled.budget_tokens: must be less than max_tokens (%d)",
                               r->warms_up ? 0 : r->in.request->sampling->params.max_tokens);
    r->in.request->thinking_budget = (int32_t)n;
    return true;
}

// Without the field the model does not think, as in Anthropic's API.
static bool read_thinking(struct messages_request *r, const cJSON *body) {
    const cJSON *thinking = json_member(body, "thinking");
    const char *display = cJSON_GetStringValue(json_member(thinking, "display"));
    r->in.request->thinking = THINKING_OFF;
    if (!thinking || is_type(thinking, "disabled")) return true;
    r->in.request->thinking = THINKING_ON;
    if (display && strcmp(display, "omitted") == 0)
        return messages_refuse(r, "thinking.display: 'omitted' is not served: a thinking block is "
                                  "checked against its text when it is sent back");
    if (is_type(thinking, "adaptive")) return true;
    if (is_type(thinking, "enabled")) return read_budget(r, thinking);
    return messages_refuse(r, "thinking.type: must be 'enabled', 'disabled' or 'adaptive'");
}

// --- the answer's form ---

static bool read_format(struct messages_request *r, const cJSON *format, const char *path) {
    const cJSON *schema = json_member(format, "schema");
    if (!format) return true;
    if (!is_type(format, "json_schema") || !cJSON_IsObject(schema))
        return messages_refuse(r, "%s: must be {\"type\":\"json_schema\",\"schema\":{...}}", path);
    r->in.request->format =
        json_tree("{type:'json_schema',json_schema:{name:'answer',strict:true}}");
    return json_set(json_member(r->in.request->format, "json_schema"), "schema",
                    cJSON_Duplicate(schema, true)) ||
           messages_no_memory(r);
}

// Passes the effort to the template as reasoning_effort, as OpenAI's models take it, which has three degrees.
static bool read_effort(struct messages_request *r, const cJSON *effort) {
    static const char *const words[] = {"low", "medium", "high", "xhigh", "max"};
    const char *word = cJSON_GetStringValue(effort);
    int i = 0;
    if (!effort) return true;
    while (i < 5 && !(word && strcmp(word, words[i]) == 0)) i++;
    if (i == 5)
        return messages_refuse(r, "output_config.effort: must be low, medium, high, xhigh or max");
    r->in.request->template_args = json_tree("{reasoning_effort:%s}", words[i < 2 ? i : 2]);
    return r->in.request->template_args || messages_no_memory(r);
}

// --- the whole ---

// Coding agents ask to keep all thinking, which happens anyway.
static bool keeps_everything(const cJSON *context_management) {
    const cJSON *edits = json_member(context_management, "edits"), *edit;
    cJSON_ArrayForEach(edit, edits) {
        const char *type = cJSON_GetStringValue(json_member(edit, "type"));
        const char *keep = cJSON_GetStringValue(json_member(edit, "keep"));
        if (!type || strncmp(type, "clear_thinking_", 15) != 0 || !keep || strcmp(keep, "all") != 0)
            return false;
    }
    return !edits || cJSON_IsArray(edits);
}

// Clients do without threads: when a conversation is sent whole, only its new part is computed.
static bool refuse_thread(struct messages_request *r) {
    messages_refuse(
        r, "thread: is not served here; send all messages, their session is found by them");
    snprintf(r->in.failure.code, sizeof r->in.failure.code, "%s", MESSAGES_NO_THREADS);
    return false;
}

static bool refuse_unserved(struct messages_request *r, const cJSON *body) {
    const cJSON *metadata = json_member(body, "metadata");
    const cJSON *user = json_member(metadata, "user_id");
    if (json_member(body, "thread")) return refuse_thread(r);
    if (json_member(body, "container")) return messages_refuse(r, "container: is not served here");
    if (cJSON_GetArraySize(json_member(body, "mcp_servers")) > 0)
        return messages_refuse(r, "mcp_servers: are not served here; connect the client to them");
    if (!keeps_everything(json_member(body, "context_management")))
        return messages_refuse(r, "context_management: is not served here");
    if (metadata && (!cJSON_IsObject(metadata) || (user && !cJSON_IsString(user))))
        return messages_refuse(r, "metadata: must be an object whose user_id is a string");
    return true;
}

static bool read_flags(struct messages_request *r, const cJSON *body) {
    const cJSON *model = json_member(body, "model"), *stream = json_member(body, "stream");
    if (!cJSON_IsObject(body)) return messages_refuse(r, "the body must be a JSON object");
    if (model && !cJSON_IsString(model) && !cJSON_IsNull(model))
        return messages_refuse(r, "model: must be the name of a model; GET /v1/models lists them");
    if (stream && !cJSON_IsBool(stream)) return messages_refuse(r, "stream: must be true or false");
    r->in.stream = cJSON_IsTrue(stream);
    r->model = strdup(cJSON_IsString(model) ? model->valuestring : "");
    return r->model || messages_no_memory(r);
}

// Anthropic refuses the combination too.
static bool check_forced_call(struct messages_request *r) {
    if (r->in.request->thinking != THINKING_ON || r->in.request->tool_choice < TOOLS_REQUIRED)
        return true;
    return messages_refuse(r, "thinking: may not be enabled when tool_choice forces tool use");
}

static bool read_all(struct messages_request *r, enum messages_purpose purpose, cJSON *body) {
    const cJSON *config = json_member(body, "output_config");
    return read_flags(r, body) && refuse_unserved(r, body) &&
           (purpose == MESSAGES_COUNT || read_sampling(r, body)) && read_thinking(r, body) &&
           read_effort(r, json_member(config, "effort")) &&
           read_format(r, json_member(config, "format"), "output_config.format") &&
           (r->in.request->format ||
            read_format(r, json_member(body, "output_format"), "output_format")) &&
           messages_read_tools(r, body) && check_forced_call(r) &&
           messages_read_conversation(r, body);
}

void messages_request_read(struct messages_request *r, enum messages_purpose purpose,
                           const char *body, size_t len) {
    struct json_limits limits = json_limits_message;
    struct err err = {0};
    *r = (struct messages_request){.in.request = completion_request_new()};
    limits.max_bytes = len;
    cJSON *json = json_parse(body, len, &limits, &err);
    if (!r->in.request || err.code == E_NOMEM)
        messages_no_memory(r);
    else if (json)
        read_all(r, purpose, json);
    else if (len == 0)
        messages_refuse(r, "the body is empty");
    else
        messages_refuse(r, "the body: %s", err.text);
    if (r->in.request && r->in.failure.status) completion_request_empty(r->in.request);
    cJSON_Delete(json); // on this worker
}

void messages_request_release(struct messages_request *r) {
    completion_request_free(r->in.request);
    free(r->model);
    *r = (struct messages_request){.in.failure = r->in.failure};
}
