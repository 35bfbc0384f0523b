// The answer's form (response_format) becomes a grammar of the turn's sampling, and a grammar that is new is
// compiled, so that a request which cannot be served is refused before it begins. See plan.h.
#include "sessions/state/owners.h"
#include "ws/completion/plan.h"
#include <string.h>

static int refuse_err(struct completion_failure *f, const char *param, const struct err *err) {
    if (err->code == E_NOMEM) return completion_no_memory(f);
    return completion_refuse(f, err->code == E_UNSUPPORTED ? "unsupported" : "invalid", param, "%s",
                             err->text);
}

// json_schema without a schema: any object, as json_object.
static int read_schema(const struct completion_request *r, struct completion_failure *f,
                       cJSON **out) {
    const char *type = json_string(r->format, "type");
    const cJSON *schema = json_member(json_member(r->format, "json_schema"), "schema");
    if (!type || (strcmp(type, "json_object") != 0 && strcmp(type, "json_schema") != 0))
        return completion_refuse(f, "invalid", "format",
                                 "the type of the answer's form must be text, json_object or "
                                 "json_schema");
    // llama.cpp's json_object may bring a schema of its own.
    if (strcmp(type, "json_object") == 0) schema = json_member(r->format, "schema");
    if (!schema && strcmp(type, "json_schema") == 0)
        return completion_refuse(f, "invalid", "format", "json_schema.schema is missing");
    *out = schema ? cJSON_Duplicate(schema, true) : cJSON_Parse("{\"type\":\"object\"}");
    return *out ? 0 : completion_no_memory(f);
}

static int set_schema(struct completion_request *r, cJSON *schema, struct completion_failure *f) {
    struct err err = {0};
    cJSON *keys = cJSON_CreateObject();
    int rc = json_set(keys, "json_schema", schema)
                 ? sampling_json_read(r->sampling, keys, INT32_MAX, &err)
                 : err_set(&err, E_NOMEM, "no memory for the schema");
    cJSON_Delete(keys);
    return rc < 0 ? refuse_err(f, "format", &err) : 0;
}

static int take_schema(struct completion_request *r, struct completion_failure *f) {
    cJSON *schema;
    if (!completion_sampling(r)) return completion_no_memory(f);
    if (r->sampling->params.grammar)
        return completion_refuse(f, "invalid", "format",
                                 "the request has a grammar beside the answer's form");
    TRY(read_schema(r, f, &schema));
    return set_schema(r, schema, f);
}

// Looks for parts of all keys that lead to a grammar (response_format, structured_outputs, json_schema, guided_json,
// tool_choice, parallel_tool_calls), and for escaped characters, which may be part of such a key.
bool completion_is_costly(const char *json, size_t len) {
    static const char *const signs[] = {"format",  "schema", "outputs",  "guided", "regex",
                                        "grammar", "choice", "parallel", "\\u00"};
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (memmem(json, len, signs[i], strlen(signs[i]))) return true;
    return false;
}

int completion_take_format(struct completion_request *r, struct completion_failure *f) {
    struct err err = {0};
    const char *type = json_string(r->format, "type");
    bool formed = r->format && !cJSON_IsNull(r->format) && !(type && strcmp(type, "text") == 0);
    if (formed) TRY(take_schema(r, f));
    const struct grammar_text *grammar = r->sampling ? r->sampling->params.grammar : NULL;
    struct grammar *compiled = NULL; // the turn finds it
    if (!grammar || engine_grammar_prepare(r->served->engine, r->owner ? r->owner->number : 0,
                                           grammar, &compiled, &err) == 0) {
        engine_grammar_release(compiled);
        return 0;
    }
    return refuse_err(f, formed ? "format" : grammar_kind_name(grammar_text_kind(grammar)), &err);
}
