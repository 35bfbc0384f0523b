// Messages of a request, checked and put into the form that templates take. See plan.h.
#include "base/json_form.h"
#include "ws/completion/plan.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGES_MAX 4096

const char *message_text(const cJSON *message, const char *key) {
    const char *text = json_string(message, key);
    return text ? text : "";
}

bool message_has_role(const cJSON *message, const char *role) {
    return strcmp(message_text(message, "role"), role) == 0;
}

// --- content ---

// Refuses a member of a message; name_message puts the message's place in front of it.
static int refuse(struct completion_failure *f, const char *code, const char *member,
                  const char *what) {
    return completion_refuse(f, code, member, "%s %s", member, what);
}

// A list of {"type":"text","text":..} becomes the joined text.
static int join_parts(cJSON *message, const cJSON *parts, struct completion_failure *f) {
    const cJSON *part;
    struct buf text;
    int n = 0;
    buf_init(&text, SIZE_MAX / 2);
    cJSON_ArrayForEach(part, parts) {
        const char *type = json_string(part, "type"), *words = json_string(part, "text");
        if (type && strcmp(type, "refusal") == 0) words = json_string(part, "refusal");
        if (!words) {
            char member[32];
            snprintf(member, sizeof member, "content[%d]", n);
            buf_release(&text);
            if (type && strcmp(type, "text") == 0)
                return completion_refuse(f, "invalid", member, "%s needs a text", member);
            return completion_refuse(f, "unsupported", member,
                                     "%s must be a part of type text, not '%.40s'", member,
                                     type ? type : "?");
        }
        buf_addz(&text, words);
        n++;
    }
    return json_set(message, "content", json_take_text(&text)) ? 0 : completion_no_memory(f);
}

static int read_content(cJSON *message, bool may_lack, struct completion_failure *f) {
    const cJSON *content = json_member(message, "content");
    if (cJSON_IsString(content)) return 0;
    if (cJSON_IsArray(content)) return join_parts(message, content, f);
    if (content || !may_lack)
        return refuse(f, "invalid", "content", "must be a text, or a list of text parts");
    return json_set(message, "content", cJSON_CreateString("")) ? 0 : completion_no_memory(f);
}

// --- tool calls ---

// {"type":"custom","custom":{"name","input"}} becomes the call of the function that the model knows (tools.c).
static int read_custom_call(cJSON *call, struct completion_failure *f) {
    const cJSON *custom = json_member(call, "custom");
    const char *name = json_string(custom, "name"), *input = json_string(custom, "input");
    if (!name || !input)
        return refuse(f, "invalid", "tool_calls",
                      "of type custom need {\"custom\":{\"name\",\"input\"}}");
    cJSON *function = json_set(call, "function", json_tree("{name:%s,arguments:{}}", name));
    if (!json_set(json_member(function, "arguments"), "input", cJSON_CreateString(input)) ||
        !json_set(call, "type", cJSON_CreateString("function")))
        return completion_no_memory(f);
    cJSON_DeleteItemFromObjectCaseSensitive(call, "custom");
    return 0;
}

// Templates print arguments as JSON values.
static int read_call(cJSON *call, struct completion_failure *f) {
    if (json_member(call, "custom")) TRY(read_custom_call(call, f));
    cJSON *function = cJSON_GetObjectItemCaseSensitive(call, "function");
    const cJSON *arguments = json_member(function, "arguments");
    const char *text = cJSON_GetStringValue(arguments);
    if (!json_string(function, "name"))
        return refuse(f, "invalid", "tool_calls", "need {\"function\":{\"name\",\"arguments\"}}");
    if (cJSON_IsObject(arguments)) return 0;
    cJSON *value = text && text[0] ? json_parse(text, strlen(text), &json_limits_message, NULL)
                                   : cJSON_CreateObject();
    if (text && text[0] && !cJSON_IsObject(value)) { // not JSON: stays as the model wrote it
        cJSON_Delete(value);
        return 0;
    }
    return json_set(function, "arguments", value) ? 0 : completion_no_memory(f);
}

static int read_calls(cJSON *message, struct completion_failure *f) {
    cJSON *calls = cJSON_GetObjectItemCaseSensitive(message, "tool_calls"), *call;
    if (!calls) return 0;
    if (!cJSON_IsNull(calls) && !cJSON_IsArray(calls))
        return refuse(f, "invalid", "tool_calls", "must be an array");
    if (!calls->child) {
        cJSON_DeleteItemFromObjectCaseSensitive(message, "tool_calls");
        return 0;
    }
    cJSON_ArrayForEach(call, calls) TRY(read_call(call, f));
    return 0;
}

// --- messages ---

static int read_message(cJSON *message, struct completion_failure *f) {
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    const char *role = json_string(message, "role");
    bool known = false;
    if (role && strcmp(role, "developer") == 0) { // OpenAI's newer name for system
        if (!json_set(message, "role", cJSON_CreateString("system")))
            return completion_no_memory(f);
        role = "system";
    }
    for (int i = 0; role && i < 4; i++) known |= strcmp(role, roles[i]) == 0;
    if (!known)
        return refuse(f, "invalid", "role", "must be system, developer, user, assistant or tool");
    bool answer = strcmp(role, "assistant") == 0;
    TRY(read_content(message, answer, f));
    if (answer) return read_calls(message, f);
    cJSON_DeleteItemFromObjectCaseSensitive(message, "tool_calls");
    return 0;
}

static int append_text(cJSON *to, const cJSON *from, const char *key) {
    const char *a = json_string(to, key), *b = json_string(from, key);
    struct buf text;
    if (!b || !b[0]) return 0;
    buf_init(&text, SIZE_MAX / 2);
    buf_addz(&text, a ? a : "");
    buf_addz(&text, b);
    return json_set(to, key, json_take_text(&text)) ? 0 : E_NOMEM;
}

// Consecutive messages of the assistant are one answer.
static int join(cJSON *to, cJSON *from) {
    cJSON *calls = cJSON_GetObjectItemCaseSensitive(to, "tool_calls"), *call;
    cJSON *more = cJSON_GetObjectItemCaseSensitive(from, "tool_calls");
    TRY(append_text(to, from, "content"));
    TRY(append_text(to, from, "reasoning_content"));
    if (more && !calls && !(calls = cJSON_AddArrayToObject(to, "tool_calls"))) return E_NOMEM;
    while (more && (call = cJSON_DetachItemFromArray(more, 0))) cJSON_AddItemToArray(calls, call);
    return 0;
}

// Puts the message's place in front of the member that was refused: messages[3].content.
static int name_message(struct completion_failure *f, int i) {
    struct completion_failure was = *f;
    char param[sizeof f->param];
    if (!was.param[0]) return E_NOMEM;
    snprintf(param, sizeof param, "messages[%d].%.70s", i, was.param);
    return completion_refuse(f, was.code, param, "messages[%d].%s", i, was.message);
}

static int read_messages(cJSON *messages, struct completion_failure *f) {
    int n = cJSON_IsArray(messages) ? cJSON_GetArraySize(messages) : 0, i = 0;
    bool after_answer = false;
    cJSON *next;
    if (n < 1 || n > MESSAGES_MAX)
        return completion_refuse(f, "invalid", "messages", "messages must be an array of 1 to %d",
                                 MESSAGES_MAX);
    for (cJSON *m = messages->child; m; m = next, i++) {
        next = m->next;
        if (read_message(m, f) < 0) return name_message(f, i);
        bool answer = message_has_role(m, "assistant"), second = answer && after_answer;
        after_answer = answer;
        if (!second) continue;
        if (join(m->prev, m) < 0) return completion_no_memory(f);
        cJSON_Delete(cJSON_DetachItemViaPointer(messages, m));
    }
    return 0;
}

int completion_normalise(struct completion_request *r, struct completion_failure *f) {
    TRY(read_messages(r->messages, f));
    return completion_read_tools(r, f);
}
