// Tools of a request: checked, custom ones as functions, and those that the answer may call. See completion.h.
#include "base/json_form.h"
#include "base/log.h"
#include "ws/completion/plan.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOOLS_MAX 128
#define TOOL_NAME_MAX 128 // Anthropic's limit; OpenAI's is 64

// --- custom tools ---

// A string; a regular expression says how it must look as a whole.
static cJSON *input_schema(const char *pattern) {
    struct buf whole;
    if (!pattern)
        return json_tree("{type:'object',properties:{input:{type:'string'}},required:['input'],"
                         "additionalProperties:false}");
    buf_init(&whole, SIZE_MAX / 2);
    buf_addf(&whole, "^(?:%s)$", pattern);
    cJSON *schema = whole.error ? NULL
                                : json_tree("{type:'object',properties:{input:{type:'string',"
                                            "pattern:%s}},required:['input'],"
                                            "additionalProperties:false}",
                                            buf_z(&whole));
    buf_release(&whole);
    return schema;
}

// Adds the grammar to the tool's description: in a call that is not forced, nothing enforces the grammar.
static int describe_form(cJSON *custom, const char *syntax, const char *definition,
                         struct completion_failure *f) {
    const char *given = json_string(custom, "description");
    struct buf text;
    buf_init(&text, SIZE_MAX / 2);
    buf_addf(&text, "%s%sThe input has this form (%.20s):\n", given ? given : "", given ? "\n" : "",
             syntax);
    buf_addz(&text, definition);
    return json_set(custom, "description", json_take_text(&text)) ? 0 : completion_no_memory(f);
}

// {"type":"text"} or {"type":"grammar","syntax","definition"}; chat completions write the last two inside "grammar".
static int read_form(const struct completion_request *r, cJSON *custom, const char **pattern,
                     struct completion_failure *f) {
    static atomic_bool noted; // in the log
    const cJSON *format = json_member(custom, "format");
    const char *type = json_string(format, "type");
    const cJSON *grammar = json_member(format, "grammar");
    if (!grammar) grammar = format;
    const char *syntax = json_string(grammar, "syntax"),
               *definition = json_string(grammar, "definition");
    bool forced = r->tool_choice == TOOLS_REQUIRED || r->tool_choice == TOOLS_NAMED;
    *pattern = NULL;
    if (!format || (type && strcmp(type, "text") == 0)) return 0;
    if (!type || strcmp(type, "grammar") != 0)
        return completion_refuse(f, "invalid", "tools",
                                 "a custom tool's format must be of the type text or grammar");
    bool regex = syntax && strcmp(syntax, "regex") == 0,
         known = regex || (syntax && strcmp(syntax, "lark") == 0);
    if (!known || (forced && !regex))
        return completion_refuse(
            f, "unsupported", "tools",
            "a custom tool's grammar of the syntax '%.20s' is not served here, "
            "only regex%s",
            syntax ? syntax : "?", forced ? "" : " and lark");
    if (!definition)
        return completion_refuse(f, "invalid", "tools",
                                 "a custom tool's grammar needs a definition");
    if (forced) {
        *pattern = definition;
        return 0;
    }
    if (!atomic_exchange(&noted, true))
        log_info("tools.grammar_left_out", "syntax=%s why=\"tool_choice forces no call\"",
                 regex ? "regex" : "lark");
    return describe_form(custom, syntax, definition, f);
}

// {"type":"custom","custom":{"name","description","format"}} becomes a function, and is noted in `custom`.
static int read_custom(struct completion_request *r, cJSON *tool, struct completion_failure *f) {
    const char *type = json_string(tool, "type"), *pattern;
    cJSON *custom = json_member(tool, "custom");
    if (!type || strcmp(type, "custom") != 0) return 0;
    const char *name = json_string(custom, "name");
    if (!name)
        return completion_refuse(f, "invalid", "tools",
                                 "custom tools need {\"custom\":{\"name\"}}");
    TRY(read_form(r, custom, &pattern, f));
    if (!r->custom) r->custom = cJSON_CreateArray();
    bool ok = json_append(r->custom, cJSON_CreateString(name)) &&
              json_set(custom, "parameters", input_schema(pattern)) &&
              json_set(tool, "type", cJSON_CreateString("function"));
    cJSON_DeleteItemFromObjectCaseSensitive(custom, "format");
    custom = cJSON_DetachItemFromObjectCaseSensitive(tool, "custom");
    return json_set(tool, "function", custom) && ok ? 0 : completion_no_memory(f);
}

// --- tools ---

static const cJSON *tool_find(const cJSON *tools, const char *name) {
    const cJSON *tool;
    cJSON_ArrayForEach(tool, tools) {
        const char *known = json_string(json_member(tool, "function"), "name");
        if (known && strcmp(known, name) == 0) return tool;
    }
    return NULL;
}

const cJSON *completion_calls(const struct completion_request *r) {
    if (r->tool_choice == TOOLS_NONE) return NULL;
    return r->callable ? r->callable : r->tools;
}

// Makes `callable` of `allowed`. E_NOTFOUND: the tools lack *missing.
static int allow(struct completion_request *r, const char **missing) {
    const cJSON *name;
    if (!r->allowed) return 0;
    cJSON_Delete(r->callable);
    r->callable = cJSON_CreateArray();
    cJSON_ArrayForEach(name, r->allowed) {
        const cJSON *tool = tool_find(r->tools, name->valuestring);
        if (!tool) {
            *missing = name->valuestring;
            return E_NOTFOUND;
        }
        if (tool_find(r->callable, name->valuestring)) continue;
        if (!json_append(r->callable, cJSON_Duplicate(tool, true))) return E_NOMEM;
    }
    return r->callable ? 0 : E_NOMEM;
}

static int refuse_missing(const char *name, struct completion_failure *f) {
    return completion_refuse(f, "invalid", "tool_choice",
                             "tool_choice names '%.64s', which is not among the tools", name);
}

int completion_read_tools(struct completion_request *r, struct completion_failure *f) {
    cJSON *tool;
    const char *missing = "";
    int n = cJSON_GetArraySize(r->tools);
    if (r->tools && !cJSON_IsArray(r->tools))
        return completion_refuse(f, "invalid", "tools", "tools must be an array");
    if (n > TOOLS_MAX)
        return completion_refuse(f, "invalid", "tools", "there may be at most %d tools", TOOLS_MAX);
    cJSON_ArrayForEach(tool, r->tools) {
        TRY(read_custom(r, tool, f));
        const char *type = json_string(tool, "type");
        const char *name = json_string(json_member(tool, "function"), "name");
        if (!type || strcmp(type, "function") != 0)
            return completion_refuse(f, "unsupported", "tools",
                                     "tools of type '%.40s' are not served here, only function "
                                     "and custom",
                                     type ? type : "?");
        if (!name || !name[0] || strlen(name) > TOOL_NAME_MAX)
            return completion_refuse(f, "invalid", "tools",
                                     "tools need a function name of 1 to 128 characters");
    }
    if (n == 0 && r->tool_choice >= TOOLS_REQUIRED)
        return completion_refuse(f, "invalid", "tool_choice", "tool_choice needs tools");
    const char *named = r->tool_name ? r->tool_name : "";
    if (r->tool_choice == TOOLS_NAMED && !tool_find(r->tools, named))
        return refuse_missing(named, f);
    int rc = allow(r, &missing);
    if (rc == E_NOTFOUND) return refuse_missing(missing, f);
    return rc < 0 ? completion_no_memory(f) : 0;
}
