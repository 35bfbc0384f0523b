// Reading tools and tool_choice. See messages_request.h.
#include "base/json_form.h"
#include "ws/anthropic/messages_request.h"
#include <string.h>

#define TOOLS_MAX 1024
#define NAME_MAX_LEN 128
#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

// The name of a tool in the neutral form.
static const char *name_of(const cJSON *tool) {
    return cJSON_GetStringValue(json_member(json_member(tool, "function"), "name"));
}

static const cJSON *find_tool(const cJSON *tools, const char *name) {
    const cJSON *tool;
    cJSON_ArrayForEach(tool, tools) if (strcmp(name_of(tool), name) == 0) return tool;
    return NULL;
}

// Accepts only the client's own tools: others are run by Anthropic, or known only to its models.
static bool check_tool(struct messages_request *r, const cJSON *tool, int i) {
    const char *type = cJSON_GetStringValue(json_member(tool, "type"));
    const char *name = cJSON_GetStringValue(json_member(tool, "name"));
    const cJSON *description = json_member(tool, "description");
    if (!cJSON_IsObject(tool)) return messages_refuse(r, "tools.%d: must be an object", i);
    if (type && strcmp(type, "custom") != 0)
        return messages_refuse(
            r, "tools.%d.type: '%.64s' is not served here; only custom tools are", i, type);
    if (!name || !*name || strlen(name) > NAME_MAX_LEN || name[strspn(name, NAME_CHARS)])
        return messages_refuse(r, "tools.%d.name: must be 1 to %d of a-z A-Z 0-9 _ -", i,
                               NAME_MAX_LEN);
    if (find_tool(r->in.request->tools, name))
        return messages_refuse(r, "tools.%d.name: two tools are called '%s'", i, name);
    if (description && !cJSON_IsString(description))
        return messages_refuse(r, "tools.%d.description: must be a string", i);
    if (!cJSON_IsObject(json_member(tool, "input_schema")))
        return messages_refuse(r, "tools.%d.input_schema: must be a JSON Schema of an object", i);
    return true;
}

static bool add_tool(struct messages_request *r, const cJSON *tool) {
    const char *description = json_string(tool, "description");
    cJSON *one = json_append(r->in.request->tools, json_tree("{type:'function',function:{name:%s}}",
                                                             json_string(tool, "name")));
    cJSON *function = json_member(one, "function");
    bool ok =
        function &&
        (!description || json_set(function, "description", cJSON_CreateString(description))) &&
        json_set(function, "parameters",
                 cJSON_Duplicate(json_member(tool, "input_schema"), true)) &&
        (!cJSON_IsTrue(json_member(tool, "strict")) ||
         json_set(function, "strict", cJSON_CreateTrue()));
    return ok || messages_no_memory(r);
}

static bool read_list(struct messages_request *r, const cJSON *list) {
    const cJSON *tool;
    int i = 0;
    if (!list || (cJSON_IsArray(list) && !list->child)) return true;
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) > TOOLS_MAX)
        return messages_refuse(r, "tools: must be an array of at most %d", TOOLS_MAX);
    r->in.request->tools = cJSON_CreateArray();
    if (!r->in.request->tools) return messages_no_memory(r);
    cJSON_ArrayForEach(tool, list) {
        if (!check_tool(r, tool, i++) || !add_tool(r, tool)) return false;
    }
    return true;
}

// --- tool_choice ---

static bool name_one(struct messages_request *r, const cJSON *choice) {
    const char *name = cJSON_GetStringValue(json_member(choice, "name"));
    if (!name) return messages_refuse(r, "tool_choice.tool.name: Field required");
    if (!find_tool(r->in.request->tools, name))
        return messages_refuse(r, "tool_choice.tool.name: tools has no '%.128s'", name);
    r->in.request->tool_name = strdup(name);
    return r->in.request->tool_name || messages_no_memory(r);
}

static bool read_choice(struct messages_request *r, const cJSON *choice) {
    static const struct {
        const char *type;
        enum tool_choice choice;
    } types[] = {
        {"auto", TOOLS_AUTO}, {"any", TOOLS_REQUIRED}, {"tool", TOOLS_NAMED}, {"none", TOOLS_NONE}};
    const char *type = cJSON_GetStringValue(json_member(choice, "type"));
    const cJSON *single = json_member(choice, "disable_parallel_tool_use");
    int i = 0;
    if (!choice) return true;
    while (i < 4 && !(type && strcmp(type, types[i].type) == 0)) i++;
    if (i == 4) return messages_refuse(r, "tool_choice.type: must be auto, any, tool or none");
    if (single && !cJSON_IsBool(single))
        return messages_refuse(r, "tool_choice.disable_parallel_tool_use: must be true or false");
    r->in.request->tool_choice = types[i].choice;
    r->in.request->no_parallel_tool_calls = cJSON_IsTrue(single);
    if (!r->in.request->tools &&
        (r->in.request->tool_choice == TOOLS_REQUIRED || r->in.request->tool_choice == TOOLS_NAMED))
        return messages_refuse(r, "tool_choice: '%s' needs tools", type);
    return r->in.request->tool_choice != TOOLS_NAMED || name_one(r, choice);
}

bool messages_read_tools(struct messages_request *r, const cJSON *body) {
    return read_list(r, json_member(body, "tools")) &&
           read_choice(r, json_member(body, "tool_choice"));
}
