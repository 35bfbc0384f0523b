// Reading requests for responses. See responses_request.h.
#include "ws/openai/responses_request.h"
#include "base/clock.h"
#include "base/json_form.h"
#include "base/xxh64.h"
#include "ws/completion/thinking_options.h"
#include "ws/openai/body.h"
#include "ws/openai/tool_choice.h"
#include "ws/service.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ECHO_MAX ((size_t)16 << 20)
#define COMPACT_PROMPT                                                                             \
    "Summarize this conversation for an assistant that continues it and sees only your summary "   \
    "and my messages: the task, decisions and their reasons, facts, file names and identifiers, "  \
    "what is done, and what comes next. Answer with the summary alone."

struct reading {
    struct responses_request *r;
    const struct service *service;
    enum responses_body kind;
    cJSON *json;
    bool logprobs; // asked for
};

static int bad(struct reading *d, const char *param, const char *what) {
    return openai_bad(&d->r->failure, param, what);
}

static int unserved(struct reading *d, const char *param, const char *what) {
    return openai_refuse(&d->r->failure, "unsupported", param, what);
}

static int no_memory(struct reading *d) {
    return openai_no_memory(&d->r->failure);
}

static int read_bool(struct reading *d, const char *key, bool fallback, bool *out) {
    const cJSON *v = json_member(d->json, key);
    *out = v ? cJSON_IsTrue(v) : fallback;
    return !v || cJSON_IsBool(v) ? 0 : bad(d, key, "must be true or false");
}

static int copy_string(struct reading *d, const char *key, char **out) {
    const cJSON *v = json_member(d->json, key);
    if (!v) return 0;
    if (!cJSON_IsString(v)) return bad(d, key, "must be a string");
    *out = strdup(v->valuestring);
    return *out ? 0 : no_memory(d);
}

// --- what is not served ----------------------------------------------------

// Known members that would change the answer or how it is stored. Unknown ones are ignored.
static const struct unserved {
    const char *name;
    const char *taken; // the value that asks for nothing, as JSON; NULL: none but null
    const char *why;
} unserved_members[] = {
    {"context_management", "[]", "is not served: a session's window needs no compaction"},
    {"prompt", NULL, "is not served: this server has no stored prompts"},
    {"moderation", NULL, "is not served"},
    {"image", NULL, "is not served"},
    {"service_tier", "\"default\"", "must be auto or default"},
};

// Agents ask for auto although their input fits. An input that does not fit is refused with both values, because the
// server would have to choose what the model forgets.
static int read_truncation(struct reading *d) {
    const cJSON *v = json_member(d->json, "truncation");
    const char *word = cJSON_GetStringValue(v);
    bool known = word && (strcmp(word, "auto") == 0 || strcmp(word, "disabled") == 0);
    return !v || known ? 0 : bad(d, "truncation", "must be auto or disabled");
}

static int refuse_unserved(struct reading *d) {
    const char *tier = json_string(d->json, "service_tier");
    for (size_t i = 0; i < sizeof unserved_members / sizeof *unserved_members; i++) {
        const struct unserved *u = &unserved_members[i];
        const cJSON *v = json_member(d->json, u->name);
        if (!v || (tier && v->valuestring == tier && strcmp(tier, "auto") == 0)) continue;
        char *text = cJSON_PrintUnformatted(v);
        if (!text) return no_memory(d);
        bool taken = u->taken && strcmp(text, u->taken) == 0;
        cJSON_free(text);
        if (!taken) return unserved(d, u->name, u->why);
    }
    TRY(read_truncation(d));
    if (d->kind != RESPONSES_SOCKET) return 0;
    if (json_member(d->json, "background") && !cJSON_IsFalse(json_member(d->json, "background")))
        return unserved(d, "background", "is not served on a WebSocket");
    if (json_member(d->json, "stream"))
        return unserved(d, "stream", "has no place here: a WebSocket always streams");
    return 0;
}

// Values of `include`: log-probabilities, encrypted thinking, and what this server never has.
static int read_include(struct reading *d) {
    static const char *const idle[] = {"file_search_call.results",
                                       "web_search_call.results",
                                       "web_search_call.action.sources",
                                       "message.input_image.image_url",
                                       "computer_call_output.output.image_url",
                                       "code_interpreter_call.outputs",
                                       NULL};
    const cJSON *list = json_member(d->json, "include"), *v;
    if (list && !cJSON_IsArray(list)) return bad(d, "include", "must be an array");
    cJSON_ArrayForEach(v, list) {
        const char *const *known = idle;
        if (!cJSON_IsString(v)) return bad(d, "include", "must be an array of strings");
        while (*known && strcmp(*known, v->valuestring) != 0) known++;
        if (strcmp(v->valuestring, "message.output_text.logprobs") == 0)
            d->logprobs = true;
        else if (strcmp(v->valuestring, "reasoning.encrypted_content") == 0)
            d->r->thinking.encrypted = true;
        else if (!*known)
            return unserved(d, "include", "has a value that is not served");
    }
    return 0;
}

// top_logprobs is the number of alternatives of each token; `include` says whether tokens are shown at all.
static int read_logprobs(struct reading *d) {
    const struct completion_request *c = d->r->completion;
    int64_t n = 0;
    char text[64];
    struct err err = {0};
    if (json_get_int(d->json, "top_logprobs", 0, SAMPLING_MAX_TOP_LOGPROBS, &n, &err) < 0)
        return bad(d, "top_logprobs", "must be a number from 0 to 20");
    if (!d->logprobs) return 0;
    snprintf(text, sizeof text, "{\"logprobs\":true,\"top_logprobs\":%d}", (int)n);
    int rc = sampling_json_apply(c->sampling, text, c->served->info->n_vocab, &err);
    return rc < 0 ? no_memory(d) : 0;
}

// --- tools -----------------------------------------------------------------

static int read_tools(struct reading *d) {
    struct completion_request *c = d->r->completion;
    return responses_tools_read(&c->tools, json_member(d->json, "tools"),
                                json_member(d->json, "tool_choice"), &d->r->failure);
}

static int read_tool_choice(struct reading *d) {
    struct completion_request *c = d->r->completion;
    bool parallel;
    TRY(read_bool(d, "parallel_tool_calls", true, &parallel));
    c->no_parallel_tool_calls = !parallel;
    return openai_tool_choice_read(c, json_member(d->json, "tool_choice"), responses_choice_name,
                                   &d->r->failure);
}

// --- parameters ------------------------------------------------------------

static int read_sampling(struct reading *d) {
    struct completion_request *c = d->r->completion;
    const cJSON *max = json_member(d->json, "max_output_tokens");
    struct err err = {0};
    int32_t n_vocab = c->served->info->n_vocab;
    c->sampling = malloc(sizeof *c->sampling);
    if (!c->sampling) return no_memory(d);
    turn_sampling_init(c->sampling);
    TRY(openai_sampling_read(c->sampling, d->json, n_vocab, &d->r->failure));
    if (!d->r->generate) { // one token, which is not shown
        c->sampling->params.max_tokens = 1;
        c->sampling->params.n = 1;
    }
    if (!max || !d->r->generate) return 0;
    if (!cJSON_IsNumber(max) || max->valuedouble < 1 || max->valuedouble > INT32_MAX)
        return bad(d, "max_output_tokens", "must be a number of tokens, at least 1");
    char text[64];
    snprintf(text, sizeof text, "{\"max_tokens\":%lld}", (long long)max->valuedouble);
    return sampling_json_apply(c->sampling, text, n_vocab, &err) < 0
               ? bad(d, "max_output_tokens", "is not a number of tokens")
               : 0;
}

static int read_summary(struct reading *d, const cJSON *reasoning, const char *key) {
    static const char *const forms[] = {"auto", "concise", "detailed", NULL};
    const cJSON *v = json_member(reasoning, key);
    const char *const *form = forms;
    if (!v || cJSON_IsNull(v)) return 0;
    while (*form && !(cJSON_IsString(v) && strcmp(v->valuestring, *form) == 0)) form++;
    char param[64];
    snprintf(param, sizeof param, "reasoning.%s", key);
    return *form ? 0 : bad(d, param, "must be auto, concise or detailed");
}

static int read_reasoning(struct reading *d) {
    const cJSON *v = json_member(d->json, "reasoning");
    static const char *const efforts[] = {"none", "minimal", "low", "medium",
                                          "high", "xhigh",   "max"};
    const char *effort = json_string(v, "effort");
    if (v && !cJSON_IsObject(v)) return bad(d, "reasoning", "must be an object");
    TRY(read_summary(d, v, "summary"));
    TRY(read_summary(d, v, "generate_summary"));
    d->r->thinking.summary = responses_asks_summary(v);
    if (!effort) return 0;
    for (size_t i = 0; i < sizeof efforts / sizeof *efforts; i++)
        if (strcmp(effort, efforts[i]) == 0) {
            d->r->completion->thinking = i == 0 ? THINKING_OFF : THINKING_ON;
            return 0;
        }
    return bad(d, "reasoning.effort", "must be none, minimal, low, medium, high, xhigh or max");
}

// The response repeats `text` with the form that its answer has.
static int name_plain_text(struct reading *d, cJSON *text) {
    return json_set(text, "format", json_tree("{type:'text'}")) ? 0 : no_memory(d);
}

// text.format as chat completions' response_format: json_schema has its members one level deeper.
static int read_format(struct reading *d) {
    cJSON *text = json_member(d->json, "text");
    const cJSON *format = json_member(text, "format"), *v;
    const char *type = json_string(format, "type");
    if (text && !cJSON_IsObject(text)) return bad(d, "text", "must be an object");
    TRY(verbosity_read(d->r->completion, json_member(text, "verbosity"), "text.verbosity",
                       &d->r->failure));
    if (!format) return text ? name_plain_text(d, text) : 0;
    if (type && strcmp(type, "text") == 0) return 0;
    if (!type || (strcmp(type, "json_object") != 0 && strcmp(type, "json_schema") != 0))
        return bad(d, "text.format", "must be of the type text, json_object or json_schema");
    cJSON *out = d->r->completion->format = json_tree("{type:%s}", type);
    if (!out) return no_memory(d);
    if (strcmp(type, "json_object") == 0) return 0;
    cJSON *schema = json_set(out, "json_schema", cJSON_CreateObject());
    cJSON_ArrayForEach(v, format) {
        if (strcmp(v->string, "type") != 0) json_set(schema, v->string, cJSON_Duplicate(v, true));
    }
    return json_member(schema, "schema") ? 0 : bad(d, "text.format.schema", "must be an object");
}

// --- the conversation ------------------------------------------------------

static int read_previous(struct reading *d) {
    const cJSON *v = json_member(d->json, "previous_response_id");
    struct responses_request *r = d->r;
    if (v && !cJSON_IsString(v)) return bad(d, "previous_response_id", "must be a string");
    if (v && !responses_id_parse(v->valuestring, &r->previous))
        return responses_no_previous(&r->failure, v->valuestring);
    r->continues = v != NULL;
    return 0;
}

static int read_conversation(struct reading *d) {
    const cJSON *v = json_member(d->json, "conversation");
    const char *id = cJSON_IsObject(v) ? json_string(v, "id") : cJSON_GetStringValue(v);
    if (!v) return 0;
    if (!id) return bad(d, "conversation", "must be an id or {\"id\"}");
    if (d->r->continues)
        return bad(d, "conversation", "does not go together with previous_response_id");
    if (!d->r->store) return bad(d, "conversation", "needs a response that is stored");
    if (responses_id_parse_conversation(id, d->r->conversation)) return 0;
    return responses_no_conversation(&d->r->failure, id);
}

static int read_stream_id(struct reading *d) {
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
    const cJSON *v = d->kind == RESPONSES_SOCKET ? json_member(d->json, "stream_id") : NULL;
    if (!v) return 0;
    const char *id = cJSON_GetStringValue(v);
    size_t n = id ? strlen(id) : 0;
    if (n == 0 || n > RESPONSES_STREAM_ID_MAX || strspn(id, allowed) != n)
        return bad(d, "stream_id", "must be 1 to 256 letters, digits, '_', '.' or '-'");
    memcpy(d->r->stream_id, id, n + 1);
    return 0;
}

static int take_input(struct responses_request *r, const cJSON *input) {
    r->completion->messages = cJSON_CreateArray();
    if (!r->completion->messages) return openai_no_memory(&r->failure);
    if (r->compacts) TRY(responses_items_refuse_foreign(input, "input", &r->failure));
    if (input) TRY(responses_items_read(r->completion->messages, input, "input", &r->failure));
    cJSON *items = responses_items_normal(input);
    r->input = items ? cJSON_PrintUnformatted(items) : NULL;
    cJSON_Delete(items);
    return r->input ? 0 : openai_no_memory(&r->failure);
}

static int read_input(struct reading *d) {
    struct responses_request *r = d->r;
    const cJSON *input = json_member(d->json, "input");
    bool empty = !input || (cJSON_IsArray(input) && !cJSON_GetArraySize(input));
    if (empty && r->compacts && r->continues) return take_input(r, input);
    if (empty) return bad(d, "input", input ? "must have at least one item" : "is missing");
    if (!responses_references_in(input)) return take_input(r, input);
    TRY(responses_references_read(&r->references, input, &r->failure));
    r->unresolved = cJSON_DetachItemFromObjectCaseSensitive(d->json, "input");
    return 0;
}

static uint64_t hash_prefix(const struct reading *d) {
    const struct responses_request *r = d->r;
    uint64_t h = xxh64(r->completion->served->name, strlen(r->completion->served->name), 0);
    if (r->instructions) h = xxh64(r->instructions, strlen(r->instructions), h + 1);
    char *tools = r->completion->tools ? cJSON_PrintUnformatted(r->completion->tools) : NULL;
    if (tools) h = xxh64(tools, strlen(tools), h);
    cJSON_free(tools);
    return h;
}

// --- the echo --------------------------------------------------------------

// A member as it was sent, or its default.
static void put_echo(struct buf *out, const struct reading *d, const char *key,
                     const char *fallback) {
    const cJSON *v = json_member(d->json, key);
    char *text = v ? cJSON_PrintUnformatted(v) : NULL;
    buf_addf(out, "%s\"%s\":", out->len ? "," : "", key);
    buf_addz(out, text ? text : fallback);
    if (v && !text) out->error = E_NOMEM;
    cJSON_free(text);
}

static void put_number(struct buf *out, const struct reading *d, const char *key) {
    const cJSON *v = json_member(d->json, key);
    put_echo(out, d, key, v ? "null" : "1.0");
}

static void put_conversation(struct json_writer *w, const struct responses_request *r) {
    char id[RESPONSES_ID_MAX];
    responses_id_conversation(id, r->conversation);
    if (!r->conversation[0]) {
        json_put_null(w, "conversation");
        return;
    }
    json_form(w, "conversation:{id:%s}", id);
}

static int make_echo(struct reading *d) {
    struct responses_request *r = d->r;
    struct json_writer w;
    struct buf out;
    buf_init(&out, ECHO_MAX);
    json_writer_init(&w, &out);
    json_put_int(&w, "created_at", clock_wall_us(&clock_system) / 1000000);
    json_put_string(&w, "model", r->completion->served->name);
    put_conversation(&w, r);
    put_echo(&out, d, "instructions", "null");
    put_echo(&out, d, "max_output_tokens", "null");
    put_echo(&out, d, "max_tool_calls", "null");
    put_echo(&out, d, "metadata", "{}");
    put_echo(&out, d, "parallel_tool_calls", "true");
    put_echo(&out, d, "previous_response_id", "null");
    put_echo(&out, d, "prompt_cache_key", "null");
    put_echo(&out, d, "reasoning", "{\"effort\":null,\"summary\":null}");
    put_echo(&out, d, "safety_identifier", "null");
    put_number(&out, d, "temperature");
    put_echo(&out, d, "text", "{\"format\":{\"type\":\"text\"}}");
    put_echo(&out, d, "tool_choice", "\"auto\"");
    put_echo(&out, d, "tools", "[]");
    put_echo(&out, d, "top_logprobs", "0");
    put_number(&out, d, "top_p");
    put_echo(&out, d, "user", "null");
    json_form(&w, "store:%hhd,background:%hhd", r->store, r->background);
    put_echo(&out, d, "truncation", "\"disabled\"");
    json_put_string(&w, "service_tier", "default");
    r->echo = buf_take(&out, NULL);
    buf_release(&out);
    return r->echo ? 0 : no_memory(d);
}

// --- all of it -------------------------------------------------------------

int responses_no_previous(struct completion_failure *f, const char *id) {
    char text[200];
    snprintf(text, sizeof text, "Previous response with id '%.100s' not found.", id);
    return openai_fail(f, 400, "previous_response_not_found", "previous_response_id", text);
}

int responses_no_conversation(struct completion_failure *f, const char *id) {
    char text[200];
    snprintf(text, sizeof text, "Conversation with id '%.100s' not found.", id);
    return openai_fail(f, 404, "conversation_not_found", "conversation", text);
}

static int read_flags(struct reading *d) {
    struct responses_request *r = d->r;
    r->compacts = d->kind == RESPONSES_COMPACT;
    TRY(read_bool(d, "store", true, &r->store));
    if (r->compacts) r->store = false;
    r->extends = r->store;
    r->forget = !r->store;
    TRY(read_bool(d, "generate", true, &r->generate));
    TRY(read_bool(d, "background", false, &r->background));
    if (r->background && !r->store) return bad(d, "background", "needs a response that is stored");
    if (d->kind == RESPONSES_HTTP) TRY(read_bool(d, "stream", false, &r->stream));
    if (d->kind == RESPONSES_SOCKET) r->stream = true;
    return 0;
}

static int read_all(struct reading *d) {
    TRY(read_stream_id(d)); // first: the answer to any other fault contains it
    const char *type = json_string(d->json, "type");
    if (d->kind == RESPONSES_SOCKET && type && strcmp(type, "response.steer") == 0) {
        d->r->steer = steer_read(d->json, &d->r->failure);
        return d->r->steer ? 0 : E_INVAL;
    }
    if (d->kind == RESPONSES_SOCKET && (!type || strcmp(type, "response.create") != 0))
        return unserved(d, "type", "must be response.create");
    TRY(read_flags(d));
    d->r->completion->served = openai_body_model(d->service, d->json, &d->r->failure);
    if (!d->r->completion->served) return E_INVAL;
    TRY(refuse_unserved(d));
    TRY(read_include(d));
    TRY(read_previous(d));
    TRY(read_conversation(d));
    TRY(copy_string(d, "instructions", &d->r->instructions));
    TRY(read_tools(d));
    TRY(read_tool_choice(d));
    TRY(read_reasoning(d));
    TRY(read_format(d));
    TRY(responses_metadata_check(json_member(d->json, "metadata"), &d->r->failure));
    TRY(read_sampling(d));
    TRY(read_logprobs(d));
    TRY(read_input(d));
    d->r->prefix = hash_prefix(d);
    return make_echo(d);
}

struct responses_request *responses_request_read(const struct service *s,
                                                 const struct http_payload *p,
                                                 enum responses_body kind) {
    struct responses_request *r = calloc(1, sizeof *r);
    struct reading d = {.r = r, .service = s, .kind = kind};
    if (!r) return NULL;
    r->completion = completion_request_new();
    if (!r->completion) {
        free(r);
        return NULL;
    }
    r->completion->owner = p->owner;
    d.json = openai_body_read(p->body, p->len, &r->failure);
    bool creates = d.json && read_all(&d) == 0 && !r->steer;
    if (creates && kind == RESPONSES_SOCKET) r->settings = steer_settings(d.json);
    cJSON_Delete(d.json);
    if (r->failure.status) {
        completion_request_empty(r->completion);
        cJSON_Delete(r->unresolved);
        r->unresolved = NULL;
    }
    return r;
}

void responses_request_free(void *request) {
    struct responses_request *r = request;
    if (!r) return;
    completion_request_free(r->completion);
    free(r->echo);
    cJSON_free(r->input);
    responses_references_free(r->references);
    cJSON_Delete(r->unresolved);
    cJSON_Delete(r->said);
    free(r->instructions);
    steers_free(&r->steer);
    free(r->settings);
    free(r);
}

// --- before it starts ------------------------------------------------------

bool responses_request_name(struct responses_request *r, const char *session) {
    bool names = r->store && r->generate && !r->continues && !r->conversation[0];
    return !names || completion_name_session(r->completion, session);
}

int responses_request_resolve(struct responses_request *r, const struct service *s) {
    TRY(responses_references_resolve(r->references, s, r->unresolved, &r->failure));
    return take_input(r, r->unresolved);
}

// At the beginning or at the end of the messages.
static bool add_message(cJSON *messages, bool first, const char *role, const char *text) {
    cJSON *m = json_tree("{role:%s}", role);
    bool ok = json_set(m, "content", cJSON_CreateString(text)) &&
              (first ? cJSON_InsertItemInArray(messages, 0, m) : cJSON_AddItemToArray(messages, m));
    if (!ok) cJSON_Delete(m);
    return ok;
}

static void join(cJSON *list, cJSON *more) {
    cJSON *m;
    while ((m = cJSON_DetachItemFromArray(more, 0))) cJSON_AddItemToArray(list, m);
}

// Many templates want a message of the assistant between two of the user, so the prompt joins a last message of the user.
static bool add_prompt(cJSON *messages, const char *prompt) {
    cJSON *last = cJSON_GetArrayItem(messages, cJSON_GetArraySize(messages) - 1);
    const char *role = json_string(last, "role"), *content = json_string(last, "content");
    struct buf text;
    if (!role || strcmp(role, "user") != 0 || !content)
        return add_message(messages, false, "user", prompt);
    buf_init(&text, SIZE_MAX / 2);
    buf_addf(&text, "%s\n\n%s", content, prompt);
    return json_set(last, "content", json_take_text(&text));
}

// Asks for a summary of the messages instead of an answer to them, and keeps those of the user.
static bool ask_summary(struct responses_request *r) {
    struct completion_request *c = r->completion;
    const cJSON *m;
    r->said = cJSON_CreateArray();
    cJSON_ArrayForEach(m, c->messages) {
        const char *text = json_string(m, "content");
        if (strcmp(json_string(m, "role"), "user") != 0 || !text ||
            json_member(m, RESPONSES_SUMMARY))
            continue;
        if (!json_append(r->said, responses_item_of_user(text))) return false;
    }
    c->tool_choice = TOOLS_NONE;
    cJSON_Delete(c->format);
    c->format = NULL;
    return r->said && add_prompt(c->messages, COMPACT_PROMPT);
}

int responses_request_check(struct responses_request *r, cJSON *history) {
    struct completion_request *c = r->completion;
    static const char *const names[][2] = {{"messages", "input"},
                                           {"format", "text.format"},
                                           {"thinking", "reasoning.effort"},
                                           {NULL, NULL}};
    bool exact = c->previous_session != NULL; // the earlier conversation is in the session
    r->checked = true;
    if (history) {
        join(history, c->messages);
        cJSON_Delete(c->messages);
        c->messages = history;
    }
    if (r->compacts && !exact && cJSON_GetArraySize(c->messages) == 0)
        return openai_bad(&r->failure, "input", "has no item that the model reads");
    bool complete = exact || !r->instructions || !*r->instructions ||
                    add_message(c->messages, true, "system", r->instructions);
    if (complete && r->compacts) complete = ask_summary(r);
    if (!c->messages || !complete) return openai_no_memory(&r->failure);
    if (completion_check(c, &r->failure)) return 0;
    openai_name_param(&r->failure, names);
    return E_INVAL;
}

char *responses_request_note(const struct responses_request *r) {
    struct buf out;
    buf_init(&out, SIZE_MAX / 2);
    buf_addf(&out, "{\"prefix\":\"%016llx\",", (unsigned long long)r->prefix);
    if (!r->generate) buf_addz(&out, "\"generate\":false,");
    if (r->conversation[0]) buf_addf(&out, "\"revision\":%lld,", (long long)r->revision);
    if (completion_thinks(r->completion)) buf_addz(&out, "\"thinks\":true,");
    if (r->thinking.encrypted) buf_addz(&out, "\"encrypted\":true,");
    buf_addf(&out, "\"echo\":{%s},\"input\":", r->echo);
    buf_addz(&out, r->input);
    buf_addz(&out, "}");
    char *text = buf_take(&out, NULL);
    buf_release(&out);
    return text;
}
