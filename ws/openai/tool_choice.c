// See tool_choice.h.
#include "ws/openai/tool_choice.h"
#include <string.h>

static const struct {
    const char *word;
    enum tool_choice choice;
} words[] = {{"auto", TOOLS_AUTO}, {"required", TOOLS_REQUIRED}, {"none", TOOLS_NONE}};

// The first n words. False: none of them.
static bool take_word(struct completion_request *c, const cJSON *v, int n) {
    for (int i = 0; cJSON_IsString(v) && i < n; i++) {
        if (strcmp(v->valuestring, words[i].word) != 0) continue;
        c->tool_choice = words[i].choice;
        return true;
    }
    return false;
}

// {"type":"allowed_tools","mode","tools"}, of chat completions one level deeper.
static int read_allowed(struct completion_request *c, const cJSON *choice,
                        openai_tool_name_fn name_of, struct completion_failure *f) {
    const cJSON *inner = json_member(choice, "allowed_tools"), *tool;
    if (!inner) inner = choice;
    const cJSON *tools = json_member(inner, "tools");
    char full[OPENAI_TOOL_NAME_MAX];
    if (!take_word(c, json_member(inner, "mode"), 2))
        return openai_bad(f, "tool_choice.mode", "must be auto or required");
    if (!cJSON_IsArray(tools) || !tools->child)
        return openai_bad(f, "tool_choice.tools", "must be an array of tools");
    c->allowed = cJSON_CreateArray();
    cJSON_ArrayForEach(tool, tools) {
        const char *name = name_of(tool, full);
        if (!name)
            return openai_refuse(f, "unsupported", "tool_choice.tools",
                                 "must name function and custom tools only");
        if (!json_append(c->allowed, cJSON_CreateString(name))) return openai_no_memory(f);
    }
    return 0;
}

const char *openai_chat_choice_name(const cJSON *tool, char full[OPENAI_TOOL_NAME_MAX]) {
    const char *name = json_string(json_member(tool, "function"), "name");
    return name ? name : json_string(json_member(tool, "custom"), "name");
}

int openai_tool_choice_read(struct completion_request *c, const cJSON *choice,
                            openai_tool_name_fn name_of, struct completion_failure *f) {
    const char *type = json_string(choice, "type");
    char full[OPENAI_TOOL_NAME_MAX];
    if (!choice || cJSON_IsNull(choice) || take_word(c, choice, 3)) return 0;
    if (type && strcmp(type, "allowed_tools") == 0) return read_allowed(c, choice, name_of, f);
    const char *name = name_of(choice, full);
    if (!name)
        return openai_bad(f, "tool_choice",
                          "must be auto, none, required, allowed_tools or a named tool");
    c->tool_choice = TOOLS_NAMED;
    c->tool_name = strdup(name);
    return c->tool_name ? 0 : openai_no_memory(f);
}
