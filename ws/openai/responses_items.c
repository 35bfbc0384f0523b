// Reading items. See responses_items.h.
#include "ws/openai/responses_items.h"
#include "base/base64.h"
#include "base/json_form.h"
#include "base/utf8.h"
#include "ws/openai/responses_hosted.h"
#include <stdio.h>
#include <string.h>

#define TOOL_WORD_MAX 64 // of a function's and a namespace's name, as OpenAI has it
#define METADATA_MAX 16
#define METADATA_KEY_MAX 64
#define METADATA_VALUE_MAX 512

static bool is_any(const char *word, const char *const *list) {
    for (; word && *list; list++)
        if (strcmp(word, *list) == 0) return true;
    return false;
}

// --- texts -----------------------------------------------------------------

struct place { // of what is read, for failures
    const char *name;
    int item;
    struct completion_failure *f;
};

static int refuse_member(const struct place *at, const char *code, const char *member,
                         const char *message) {
    char param[96];
    snprintf(param, sizeof param, "%.32s[%d]%s%s", at->name, at->item, *member ? "." : "", member);
    return openai_refuse(at->f, code, param, message);
}

static int bad_member(const struct place *at, const char *member, const char *message) {
    return refuse_member(at, "invalid_value", member, message);
}

static int unserved_part(const struct place *at, const char *key, int part, const char *type) {
    char where[48], message[160];
    snprintf(where, sizeof where, "%.20s[%d]", key, part);
    snprintf(message, sizeof message, "is of the type %.40s, which this server does not serve",
             type ? type : "(none)");
    return refuse_member(at, type ? "unsupported" : "invalid_value", where, message);
}

// Text parts, joined. types: the accepted ones; the words of a refusal are text as well.
static int join_parts(const struct place *at, const char *key, const cJSON *parts,
                      const char *const *types, struct buf *out) {
    const cJSON *part;
    int i = 0;
    cJSON_ArrayForEach(part, parts) {
        const char *type = json_string(part, "type");
        const char *text = json_string(part, "text");
        if (!is_any(type, types)) return unserved_part(at, key, i, type);
        if (!text) text = json_string(part, "refusal");
        if (!text) return unserved_part(at, key, i, NULL);
        buf_addz(out, text);
        i++;
    }
    return 0;
}

static const char *const text_types[] = {"input_text",     "output_text",  "text", "refusal",
                                         "reasoning_text", "summary_text", NULL};

// A string or text parts, as a new string value. NULL: *rc says why.
static cJSON *read_text(const struct place *at, const char *key, const cJSON *value, int *rc) {
    struct buf text;
    cJSON *out = NULL;
    if (cJSON_IsString(value)) {
        out = cJSON_CreateString(value->valuestring);
        *rc = out ? 0 : openai_no_memory(at->f);
        return out;
    }
    if (!cJSON_IsArray(value)) {
        *rc = bad_member(at, key, "must be a string or an array of text parts");
        return NULL;
    }
    buf_init(&text, SIZE_MAX / 2);
    *rc = join_parts(at, key, value, text_types, &text);
    if (*rc < 0) {
        buf_release(&text);
        return NULL;
    }
    out = json_take_text(&text);
    if (!out) *rc = openai_no_memory(at->f);
    return out;
}

// --- messages --------------------------------------------------------------

static cJSON *add_message(cJSON *messages, const char *role) {
    return json_append(messages, json_tree("{role:%s}", role));
}

// The name that the model knows a function by. in_namespace NULL: it has none.
static void tool_name(char out[RESPONSES_TOOL_NAME_MAX], const char *in_namespace,
                      const char *name) {
    if (in_namespace)
        snprintf(out, RESPONSES_TOOL_NAME_MAX, "%.*s.%.*s", TOOL_WORD_MAX, in_namespace,
                 TOOL_WORD_MAX, name);
    else
        snprintf(out, RESPONSES_TOOL_NAME_MAX, "%s", name);
}

static int read_message(cJSON *messages, const cJSON *item, const struct place *at) {
    static const char *const roles[] = {"user", "assistant", "system", "developer", NULL};
    const char *role = json_string(item, "role");
    int rc;
    if (!is_any(role, roles))
        return bad_member(at, "role", "must be user, assistant, system or developer");
    cJSON *text = read_text(at, "content", json_member(item, "content"), &rc);
    if (!text) return rc;
    cJSON *m = add_message(messages, strcmp(role, "developer") == 0 ? "system" : role);
    return json_set(m, "content", text) ? 0 : openai_no_memory(at->f);
}

// key: the member that has what is passed to the tool. In the message, both kinds of calls have the form of chat
// completions.
static int read_call_as(cJSON *messages, const cJSON *item, const char *type, const char *key,
                        const struct place *at) {
    const char *id = json_string(item, "call_id"), *name = json_string(item, "name");
    const char *passed = json_string(item, key);
    char full[RESPONSES_TOOL_NAME_MAX];
    if (!id) return bad_member(at, "call_id", "must be a string");
    if (!name) return bad_member(at, "name", "must be a string");
    if (!passed) return bad_member(at, key, "must be a string");
    tool_name(full, json_string(item, "namespace"), name);
    cJSON *m = json_append(messages, json_tree("{role:'assistant',content:null,tool_calls:["
                                               "{id:%s,type:%s,%s:{name:%s}}]}",
                                               id, type, type, full));
    const cJSON *call = cJSON_GetArrayItem(json_member(m, "tool_calls"), 0);
    return json_set(json_member(call, type), key, cJSON_CreateString(passed))
               ? 0
               : openai_no_memory(at->f);
}

static int read_call(cJSON *messages, const cJSON *item, const struct place *at) {
    return read_call_as(messages, item, "function", "arguments", at);
}

static int read_custom_call(cJSON *messages, const cJSON *item, const struct place *at) {
    return read_call_as(messages, item, "custom", "input", at);
}

static int read_call_output(cJSON *messages, const cJSON *item, const struct place *at) {
    const char *id = json_string(item, "call_id");
    int rc;
    if (!id) return bad_member(at, "call_id", "must be a string");
    cJSON *text = read_text(at, "output", json_member(item, "output"), &rc);
    if (!text) return rc;
    cJSON *m = json_append(messages, json_tree("{role:'tool',tool_call_id:%s}", id));
    return json_set(m, "content", text) ? 0 : openai_no_memory(at->f);
}

// The words in an item's encrypted_content. NULL: this server did not write it, or there is no memory (*rc: E_NOMEM).
static cJSON *read_encrypted(const cJSON *item, int *rc) {
    const char *given = json_string(item, "encrypted_content");
    size_t mark = strlen(RESPONSES_ENCRYPTED);
    struct buf text;
    cJSON *out = NULL;
    if (!given || strncmp(given, RESPONSES_ENCRYPTED, mark) != 0) return NULL;
    buf_init(&text, SIZE_MAX / 2);
    int read = base64_decode(&text, given + mark, strlen(given + mark));
    const char *words = buf_z(&text);
    bool is_text = read == 0 && strlen(words) == text.len && utf8_valid(words, text.len);
    if (is_text) out = cJSON_CreateString(words);
    if (read == E_NOMEM || (is_text && !out)) *rc = E_NOMEM;
    buf_release(&text);
    return out;
}

// The item's thinking: from its content, its encrypted_content or its summary. NULL: none, or an error (*rc).
static cJSON *thinking_of(const cJSON *item, const struct place *at, int *rc) {
    const cJSON *content = json_member(item, "content"), *summary = json_member(item, "summary");
    *rc = 0;
    if (cJSON_GetArraySize(content) > 0) return read_text(at, "content", content, rc);
    cJSON *text = read_encrypted(item, rc);
    if (text || *rc < 0) return text;
    return cJSON_GetArraySize(summary) > 0 ? read_text(at, "summary", summary, rc) : NULL;
}

static int read_reasoning(cJSON *messages, const cJSON *item, const struct place *at) {
    int rc;
    cJSON *text = thinking_of(item, at, &rc);
    if (!text) return rc == E_NOMEM ? openai_no_memory(at->f) : rc;
    cJSON *m = add_message(messages, "assistant");
    bool ok = json_set(m, "reasoning_content", text) && json_set(m, "content", cJSON_CreateNull());
    return ok ? 0 : openai_no_memory(at->f);
}

// A summary that takes the place of earlier items (/v1/responses/compact). What another server has encrypted is
// unreadable here, so the model does not see it.
static int read_compaction(cJSON *messages, const cJSON *item, const struct place *at) {
    int rc = 0;
    cJSON *text = read_encrypted(item, &rc);
    if (!text) return rc == E_NOMEM ? openai_no_memory(at->f) : 0;
    cJSON *m = add_message(messages, "user");
    bool ok = json_set(m, "content", text) && json_set(m, RESPONSES_SUMMARY, cJSON_CreateTrue());
    return ok ? 0 : openai_no_memory(at->f);
}

// --- items -----------------------------------------------------------------

static const struct item_kind {
    const char *type;
    int (*read)(cJSON *messages, const cJSON *item, const struct place *at);
} kinds[] = {
    {"message", read_message},
    {"function_call", read_call},
    {"function_call_output", read_call_output},
    {"custom_tool_call", read_custom_call},
    {"custom_tool_call_output", read_call_output},
    {"reasoning", read_reasoning},
    {"compaction", read_compaction},
    {"compaction_summary", read_compaction},
};

static const char *type_of(const cJSON *item) {
    const char *type = json_string(item, "type");
    return type || !json_member(item, "role") ? type : "message"; // its short form
}

bool responses_item_is_reference(const cJSON *item) {
    const char *type = type_of(item);
    return type ? strcmp(type, "item_reference") == 0 : cJSON_IsString(json_member(item, "id"));
}

static int read_item(cJSON *messages, const cJSON *item, const struct place *at) {
    char message[128];
    const char *type = type_of(item);
    if (!cJSON_IsObject(item)) return bad_member(at, "", "must be an object");
    if (!type) return bad_member(at, "type", "is missing");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(type, kinds[i].type) == 0) return kinds[i].read(messages, item, at);
    if (responses_leaves_out_item(type)) return 0;
    snprintf(message, sizeof message, "is %.40s, which this server does not serve", type);
    return refuse_member(at, "unsupported", "type", message);
}

static bool is_compaction(const cJSON *item) {
    const char *type = json_string(item, "type");
    return type && (strcmp(type, "compaction") == 0 || strcmp(type, "compaction_summary") == 0);
}

int responses_items_refuse_foreign(const cJSON *input, const char *name,
                                   struct completion_failure *f) {
    struct place at = {name, 0, f};
    const cJSON *item;
    if (!cJSON_IsArray(input)) return 0;
    cJSON_ArrayForEach(item, input) {
        int rc = 0;
        cJSON *text = is_compaction(item) ? read_encrypted(item, &rc) : NULL;
        bool is_read = text && *text->valuestring;
        cJSON_Delete(text);
        if (rc == E_NOMEM) return openai_no_memory(f);
        if (is_compaction(item) && !is_read)
            return bad_member(&at, "encrypted_content", "is not a summary that this server wrote");
        at.item++;
    }
    return 0;
}

int responses_items_read(cJSON *messages, const cJSON *input, const char *name,
                         struct completion_failure *f) {
    struct place at = {name, 0, f};
    const cJSON *item;
    if (cJSON_IsString(input)) {
        cJSON *m = add_message(messages, "user");
        return m && cJSON_AddStringToObject(m, "content", input->valuestring) ? 0
                                                                              : openai_no_memory(f);
    }
    if (!cJSON_IsArray(input)) return openai_bad(f, name, "must be a string or an array");
    if (cJSON_GetArraySize(input) > RESPONSES_ITEMS_MAX)
        return openai_bad(f, name, "has more than 8192 items");
    cJSON_ArrayForEach(item, input) {
        TRY(read_item(messages, item, &at));
        at.item++;
    }
    return 0;
}

// --- the recorded form -----------------------------------------------------

static bool add_text_part(cJSON *parts, const char *type, const char *text) {
    cJSON *part = json_append(parts, json_tree("{type:%s}", type));
    if (!json_set(part, "text", cJSON_CreateString(text))) return false;
    return strcmp(type, "output_text") != 0 ||
           (json_set(part, "annotations", cJSON_CreateArray()) &&
            json_set(part, "logprobs", cJSON_CreateArray()));
}

cJSON *responses_item_of_user(const char *text) {
    cJSON *item = json_tree("{type:'message',role:'user',content:[]}");
    if (add_text_part(json_member(item, "content"), "input_text", text)) return item;
    cJSON_Delete(item);
    return NULL;
}

// A message's content in parts.
static bool expand_content(cJSON *item) {
    const cJSON *content = json_member(item, "content");
    if (!cJSON_IsString(content)) return true;
    const char *role = json_string(item, "role");
    bool said = role && strcmp(role, "assistant") == 0;
    cJSON *parts = cJSON_CreateArray();
    if (add_text_part(parts, said ? "output_text" : "input_text", content->valuestring))
        return json_set(item, "content", parts);
    cJSON_Delete(parts);
    return false;
}

static cJSON *normal_item(const cJSON *from) {
    cJSON *item = cJSON_Duplicate(from, true);
    const char *type = type_of(from);
    if (!item) return NULL;
    cJSON_DeleteItemFromObjectCaseSensitive(item, "id");
    if (type && strcmp(type, "message") == 0) {
        bool typed = json_set(item, "type", cJSON_CreateString("message"));
        if (!typed || !expand_content(item)) {
            cJSON_Delete(item);
            return NULL;
        }
    }
    return item;
}

cJSON *responses_items_normal(const cJSON *input) {
    cJSON *list = cJSON_CreateArray();
    const cJSON *from;
    bool ok = list;
    if (cJSON_IsString(input)) ok = json_append(list, responses_item_of_user(input->valuestring));
    cJSON_ArrayForEach(from, input) ok = ok && json_append(list, normal_item(from));
    if (ok) return list;
    cJSON_Delete(list);
    return NULL;
}

void responses_item_put(struct json_writer *w, const cJSON *item, const char *id) {
    char *text = cJSON_PrintUnformatted(item);
    if (!text) w->buf->error = E_NOMEM;
    if (!text) return;
    json_form(w, "{id:%s", id);
    if (!cJSON_HasObjectItem(item, "status")) json_put_string(w, "status", "completed");
    if (text[1] != '}') buf_addc(w->buf, ',');
    buf_addz(w->buf, text + 1);
    w->comma = true;
    cJSON_free(text);
}

// --- tools -----------------------------------------------------------------

// A tool, or (in_namespace) a tool of a namespace. A failure's param begins with its place.
struct tool_place {
    char where[40];
    const char *in_namespace; // NULL: none
    bool lenient;             // tools that this server does not have are left out
    struct completion_failure *f;
};

static int refuse_tool(const struct tool_place *at, const char *code, const char *key,
                       const char *message) {
    char param[64];
    snprintf(param, sizeof param, "%s.%s", at->where, key);
    return openai_refuse(at->f, code, param, message);
}

static int bad_tool(const struct tool_place *at, const char *key, const char *message) {
    return refuse_tool(at, "invalid_value", key, message);
}

// key: the member that says what is passed to the tool, an object.
static int read_tool_as(cJSON *out, const cJSON *tool, const char *type, const char *key,
                        const struct tool_place *at) {
    const char *name = json_string(tool, "name");
    const char *description = json_string(tool, "description");
    const cJSON *passed = json_member(tool, key);
    char full[RESPONSES_TOOL_NAME_MAX];
    if (!name || !*name) return bad_tool(at, "name", "must be a string");
    if (strchr(name, '.') || strlen(name) > TOOL_WORD_MAX)
        return bad_tool(at, "name", "must be at most 64 letters, digits, '_' and '-'");
    if (passed && !cJSON_IsObject(passed)) return bad_tool(at, key, "must be an object");
    tool_name(full, at->in_namespace, name);
    cJSON *one = json_append(out, json_tree("{type:%s,%s:{name:%s}}", type, type, full));
    cJSON *inner = json_member(one, type);
    bool ok =
        inner && (!description || json_set(inner, "description", cJSON_CreateString(description)));
    if (passed || strcmp(type, "custom") != 0)
        ok = ok &&
             json_set(inner, key, passed ? cJSON_Duplicate(passed, true) : cJSON_CreateObject());
    return ok ? 0 : openai_no_memory(at->f);
}

static int read_tool(cJSON *out, const cJSON *tool, const struct tool_place *at);

static int read_namespace(cJSON *out, const cJSON *tool, const struct tool_place *at) {
    const char *name = json_string(tool, "name");
    const cJSON *tools = json_member(tool, "tools"), *one;
    int i = 0;
    if (!name || !*name || strchr(name, '.') || strlen(name) > TOOL_WORD_MAX)
        return bad_tool(at, "name", "must be at most 64 letters, digits, '_' and '-'");
    if (!cJSON_IsArray(tools)) return bad_tool(at, "tools", "must be an array");
    cJSON_ArrayForEach(one, tools) {
        struct tool_place inner = {.in_namespace = name, .lenient = at->lenient, .f = at->f};
        snprintf(inner.where, sizeof inner.where, "%.16s.tools[%d]", at->where, i++);
        TRY(read_tool(out, one, &inner));
    }
    return 0;
}

// A search that must not reach the web has nothing to search here, so the tool is left out.
static bool finds_nothing(const cJSON *tool, const char *type) {
    return strncmp(type, "web_search", 10) == 0 &&
           cJSON_IsFalse(json_member(tool, "external_web_access"));
}

static int read_tool(cJSON *out, const cJSON *tool, const struct tool_place *at) {
    const char *type = json_string(tool, "type");
    char message[128];
    if (!type) return bad_tool(at, "type", "must be function");
    if (strcmp(type, "function") == 0) return read_tool_as(out, tool, "function", "parameters", at);
    if (strcmp(type, "custom") == 0) return read_tool_as(out, tool, "custom", "format", at);
    if (strcmp(type, "namespace") == 0 && !at->in_namespace) return read_namespace(out, tool, at);
    if (finds_nothing(tool, type) || (at->lenient && responses_leaves_out_tool(type))) return 0;
    snprintf(message, sizeof message, "is %.48s, and only function and custom tools are served",
             type);
    return refuse_tool(at, "unsupported", "type", message);
}

// Whether this tool_choice allows an answer without a call.
static bool forces_nothing(const cJSON *choice) {
    const cJSON *mode = cJSON_IsObject(choice) ? json_member(choice, "mode") : choice;
    const char *word = cJSON_GetStringValue(mode);
    if (!choice || cJSON_IsNull(choice)) return true;
    return word && (strcmp(word, "auto") == 0 || strcmp(word, "none") == 0);
}

int responses_tools_read(cJSON **out, const cJSON *tools, const cJSON *choice,
                         struct completion_failure *f) {
    const cJSON *tool;
    int i = 0;
    if (!tools || cJSON_IsNull(tools)) return 0;
    if (!cJSON_IsArray(tools)) return openai_bad(f, "tools", "must be an array");
    cJSON *list = cJSON_CreateArray();
    if (!list) return openai_no_memory(f);
    cJSON_ArrayForEach(tool, tools) {
        struct tool_place at = {.lenient = forces_nothing(choice), .f = f};
        snprintf(at.where, sizeof at.where, "tools[%d]", i++);
        int rc = read_tool(list, tool, &at);
        if (rc == 0) continue;
        cJSON_Delete(list);
        return rc;
    }
    if (cJSON_GetArraySize(list) > 0)
        *out = list;
    else
        cJSON_Delete(list);
    return 0;
}

const char *responses_choice_name(const cJSON *tool, char full[RESPONSES_TOOL_NAME_MAX]) {
    const char *type = json_string(tool, "type"), *name = json_string(tool, "name");
    bool known = type && (strcmp(type, "function") == 0 || strcmp(type, "custom") == 0);
    if (!known || !name || strlen(name) > TOOL_WORD_MAX) return NULL;
    tool_name(full, json_string(tool, "namespace"), name);
    return full;
}

int responses_metadata_check(const cJSON *metadata, struct completion_failure *f) {
    const cJSON *pair;
    if (!metadata || cJSON_IsNull(metadata)) return 0;
    if (!cJSON_IsObject(metadata) || cJSON_GetArraySize(metadata) > METADATA_MAX)
        return openai_bad(f, "metadata", "must be an object of at most 16 strings");
    cJSON_ArrayForEach(pair, metadata) {
        if (!cJSON_IsString(pair) || strlen(pair->string) > METADATA_KEY_MAX ||
            strlen(pair->valuestring) > METADATA_VALUE_MAX)
            return openai_bad(f, "metadata",
                              "must have keys of 64 and strings of 512 characters at most");
    }
    return 0;
}
