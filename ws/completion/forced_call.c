// Forced calls (tool_choice "required", or a name): after its thinking, the answer is calls and nothing else. The tools'
// schemas become the answer's format, a json_schema. The calls are written as the chat template writes them
// (call_form.h), so that the next request's prompt repeats them. Where that form is unknown or does not suit a tool, the
// answer is one call in plain JSON, {"name":"..","arguments":{..}}, which answer_parser.h accepts with every syntax. See
// plan.h.
#include "base/json_form.h"
#include "ws/completion/call_form.h"
#include "ws/completion/plan.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const cJSON *function_of(const cJSON *tool) {
    return cJSON_GetObjectItemCaseSensitive(tool, "function");
}

static const char *name_of(const cJSON *tool) {
    return json_string(function_of(tool), "name");
}

// References in a tool's schema begin at its root, which moves to `root`. The recursion is as deep as json_parse
// allows.
static bool move_references(cJSON *schema, const char *root) {
    cJSON *member, *ref = cJSON_GetObjectItemCaseSensitive(schema, "$ref");
    if (cJSON_IsString(ref) && ref->valuestring[0] == '#') {
        size_t n = strlen(root) + strlen(ref->valuestring);
        char *moved = malloc(n);
        if (moved) snprintf(moved, n, "%s%s", root, ref->valuestring + 1);
        ref = json_set(schema, "$ref", moved ? cJSON_CreateString(moved) : NULL);
        free(moved);
        if (!ref) return false;
    }
    cJSON_ArrayForEach(member, schema) {
        bool nested = cJSON_IsObject(member) || cJSON_IsArray(member);
        if (nested && !move_references(member, root)) return false;
    }
    return true;
}

// The schema of a call of one tool, at place `i` of the choice.
static cJSON *call_schema(const cJSON *tool, int i) {
    const cJSON *given = cJSON_GetObjectItemCaseSensitive(function_of(tool), "parameters");
    cJSON *call = json_tree("{type:'object',properties:{name:{const:%s}},"
                            "required:['name','arguments'],additionalProperties:false}",
                            name_of(tool));
    cJSON *arguments = json_set(cJSON_GetObjectItemCaseSensitive(call, "properties"), "arguments",
                                given ? cJSON_Duplicate(given, true) : cJSON_CreateObject());
    char root[64];
    snprintf(root, sizeof root, "#/anyOf/%d/properties/arguments", i);
    bool typed = cJSON_GetObjectItemCaseSensitive(arguments, "type") ||
                 json_set(arguments, "type", cJSON_CreateString("object"));
    if (typed && move_references(arguments, root)) return call;
    cJSON_Delete(call);
    return NULL;
}

static bool add_calls(const struct completion_request *r, cJSON *choice) {
    const cJSON *tool;
    int n = 0;
    cJSON_ArrayForEach(tool, completion_calls(r)) {
        if (r->tool_choice == TOOLS_NAMED && strcmp(name_of(tool), r->tool_name) != 0) continue;
        if (!json_append(choice, call_schema(tool, n++))) return false;
    }
    return true;
}

// Exactly one call for a name (OpenAI's and Anthropic's rule), one or more otherwise.
static int add_form(const struct completion_request *r, cJSON *schema, struct err *err) {
    const bool several = r->tool_choice == TOOLS_REQUIRED && !r->no_parallel_tool_calls;
    const cJSON *tool;
    cJSON *form;
    if (call_form_find(r, several, &form) < 0) return err_set(err, E_NOMEM, "no memory for a call");
    bool suits = form;
    cJSON_ArrayForEach(tool, completion_calls(r)) {
        if (r->tool_choice == TOOLS_NAMED && strcmp(name_of(tool), r->tool_name) != 0) continue;
        const cJSON *given = cJSON_GetObjectItemCaseSensitive(function_of(tool), "parameters");
        suits = suits && call_form_suits(form, given);
    }
    if (suits && cJSON_AddItemToObject(schema, GRAMMAR_WRITTEN, form)) return 0;
    cJSON_Delete(form);
    return suits ? err_set(err, E_NOMEM, "no memory for a call") : 0;
}

int completion_force_call(struct completion_request *r, struct err *err) {
    const cJSON *form = cJSON_GetObjectItemCaseSensitive(r->format, "type");
    bool formed = cJSON_IsString(form) && strcmp(form->valuestring, "text") != 0;
    if (r->tool_choice < TOOLS_REQUIRED) return 0;
    if (formed)
        return err_set(err, E_INVAL, "a forced tool call and a response format exclude each other");
    cJSON_Delete(r->format);
    r->format = json_tree("{type:'json_schema',json_schema:{schema:{anyOf:[]}}}");
    cJSON *schema = json_member(json_member(r->format, "json_schema"), "schema");
    if (!schema || !add_calls(r, json_member(schema, "anyOf")))
        return err_set(err, E_NOMEM, "no memory for the schemas of calls");
    return add_form(r, schema, err);
}
