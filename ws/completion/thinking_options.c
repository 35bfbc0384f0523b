// See thinking_options.h.
#include "ws/completion/thinking_options.h"
#include "base/json.h"
#include "ws/completion/plan.h"
#include <stdint.h>
#include <string.h>

struct reading {
    struct completion_request *r;
    const cJSON *json;
    struct completion_failure *f;
};

static int bad(const struct reading *g, const char *param, const char *what) {
    return completion_refuse(g->f, "invalid", param, "%s %s", param, what);
}

static int add_args(const struct reading *g, const char *key, const char *value) {
    cJSON **args = &g->r->template_args;
    if (!*args) *args = cJSON_CreateObject();
    return *args && cJSON_AddStringToObject(*args, key, value) ? 0 : completion_no_memory(g->f);
}

static int read_effort(const struct reading *g, const char *param, const cJSON *effort) {
    bool thinks = engine_syntax(g->r->served->engine).think_close;
    if (effort && !cJSON_IsString(effort)) return bad(g, param, "must be a string");
    if (!effort || !thinks) return 0;
    bool none = strcmp(effort->valuestring, "none") == 0;
    g->r->thinking = none ? THINKING_OFF : THINKING_ON;
    return none ? 0 : add_args(g, "reasoning_effort", effort->valuestring);
}

// -1: no limit.
static int read_budget(const struct reading *g, const char *param, const cJSON *v) {
    if (!v) return 0;
    double n = cJSON_IsNumber(v) ? v->valuedouble : -2;
    if (!(n >= -1 && n <= INT32_MAX) || n != (int32_t)n)
        return bad(g, param, "must be a number of tokens, or -1 for no limit");
    g->r->thinking_budget = (int32_t)n;
    return 0;
}

static void read_switch(const struct reading *g, const cJSON *on) {
    if (cJSON_IsBool(on)) g->r->thinking = cJSON_IsTrue(on) ? THINKING_ON : THINKING_OFF;
}

// {"effort":"low","max_tokens":2000,"enabled":true}, as OpenRouter's
static int read_reasoning(const struct reading *g) {
    const cJSON *v = json_member(g->json, "reasoning");
    if (v && !cJSON_IsObject(v)) return bad(g, "reasoning", "must be an object");
    read_switch(g, json_member(v, "enabled"));
    TRY(read_effort(g, "reasoning.effort", json_member(v, "effort")));
    return read_budget(g, "reasoning.max_tokens", json_member(v, "max_tokens"));
}

// {"type":"enabled","budget_tokens":2000}, as in chat completions of GLM, Kimi and DeepSeek
static int read_thinking_object(const struct reading *g) {
    const cJSON *v = json_member(g->json, "thinking");
    const char *type = json_string(v, "type");
    if (!cJSON_IsObject(v)) return 0;
    if (type && strcmp(type, "enabled") == 0) g->r->thinking = THINKING_ON;
    if (type && strcmp(type, "disabled") == 0) g->r->thinking = THINKING_OFF;
    return read_budget(g, "thinking.budget_tokens", json_member(v, "budget_tokens"));
}

// Beside the names that are rows of sampling parameters (engine/sampling/rows.c), llama.cpp's.
static int read_budgets(const struct reading *g) {
    static const char *const names[] = {"reasoning_budget", "thinking_budget_tokens"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        TRY(read_budget(g, names[i], json_member(g->json, names[i])));
    return 0;
}

int verbosity_read(struct completion_request *r, const cJSON *v, const char *param,
                   struct completion_failure *f) {
    static const char *const words[] = {"low", "medium", "high"};
    const struct reading g = {r, NULL, f};
    if (!v) return 0;
    for (int i = 0; cJSON_IsString(v) && i < 3; i++)
        if (strcmp(v->valuestring, words[i]) == 0) return add_args(&g, "verbosity", words[i]);
    return bad(&g, param, "must be low, medium or high");
}

int thinking_options_read(struct completion_request *r, cJSON *json, struct completion_failure *f) {
    static const char kwargs[] = "chat_template_kwargs";
    const struct reading g = {r, json, f};
    if (json_member(json, kwargs))
        r->template_args = cJSON_DetachItemFromObjectCaseSensitive(json, kwargs);
    if (r->template_args && !cJSON_IsObject(r->template_args))
        return bad(&g, kwargs, "must be an object");
    TRY(read_reasoning(&g));
    TRY(read_thinking_object(&g));
    TRY(read_budgets(&g));
    TRY(read_effort(&g, "reasoning_effort", json_member(json, "reasoning_effort")));
    read_switch(&g, json_member(json, "enable_thinking"));
    return 0;
}

int thinking_options_rename(struct completion_request *r, struct completion_failure *f) {
    cJSON *message;
    cJSON_ArrayForEach(message, r->messages) {
        const char *given = json_string(message, "reasoning");
        if (!given || json_string(message, "reasoning_content")) continue;
        cJSON_DeleteItemFromObjectCaseSensitive(message, "reasoning_content"); // null
        if (!cJSON_AddStringToObject(message, "reasoning_content", given))
            return completion_no_memory(f);
    }
    return 0;
}
