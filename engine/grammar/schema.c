// JSON Schema (2020-12, and the different spellings of earlier drafts) as a network. See schema.h.
//
// Keywords fall in three groups: compiled ones, assertions that are not supported (refused by their path),
// and everything else, which asserts nothing (annotations, unknown words).
#include "engine/grammar/schema.h"
#include "engine/grammar/choice.h"
#include "engine/grammar/notations.h"
#include "engine/grammar/text.h"
#include <stdlib.h>
#include <string.h>

static const char *const unsupported[] = {"$dynamicRef", "$recursiveRef", "disallow",
                                          "divisibleBy"};

// --- values --------------------------------------------------------------------------------------

static int read_types(struct schema_compiler *c, const cJSON *s, unsigned *out) {
    const cJSON *type = schema_get(s, "type"), *item;
    bool known = !type || cJSON_IsArray(type) || schema_type_names(type);
    for (item = cJSON_IsArray(type) ? type->child : NULL; item; item = item->next)
        known = known && cJSON_IsString(item) && schema_type_names(item);
    *out = schema_type_names(type);
    return known ? 0 : schema_refuse(c, E_INVAL, "type", "it names no type of JSON");
}

// Without `type` the keywords tell which types are meant: by the letter of the standard all others would
// match too.
static unsigned implied_types(const cJSON *s) {
    static const struct {
        const char *key;
        unsigned types;
    } hints[] = {
        {"properties", TYPE_OBJECT},
        {"required", TYPE_OBJECT},
        {"additionalProperties", TYPE_OBJECT},
        {"patternProperties", TYPE_OBJECT},
        {"propertyNames", TYPE_OBJECT},
        {"minProperties", TYPE_OBJECT},
        {"maxProperties", TYPE_OBJECT},
        {"items", TYPE_ARRAY},
        {"prefixItems", TYPE_ARRAY},
        {"minItems", TYPE_ARRAY},
        {"maxItems", TYPE_ARRAY},
        {"uniqueItems", TYPE_ARRAY},
        {"contains", TYPE_ARRAY},
        {"not", TYPE_STRING},
        {"pattern", TYPE_STRING},
        {"minLength", TYPE_STRING},
        {"maxLength", TYPE_STRING},
        {"format", TYPE_STRING},
        {"minimum", TYPE_NUMBER},
        {"maximum", TYPE_NUMBER},
        {"exclusiveMinimum", TYPE_NUMBER},
        {"exclusiveMaximum", TYPE_NUMBER},
        {"multipleOf", TYPE_NUMBER},
    };
    unsigned types = 0;
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++)
        if (schema_get(s, hints[i].key)) types |= hints[i].types;
    return types ? types : TYPE_EVERY;
}

static int emit_types(struct schema_compiler *c, const cJSON *s, unsigned types, int32_t from,
                      int32_t to) {
    if (types & TYPE_NULL) net_text(c->net, from, "null", 4, to);
    if (types & TYPE_BOOLEAN) {
        net_text(c->net, from, "true", 4, to);
        net_text(c->net, from, "false", 5, to);
    }
    if (types & TYPE_STRING) TRY(schema_emit_string(c, s, from, to));
    if (types & (TYPE_NUMBER | TYPE_INTEGER))
        TRY(schema_emit_number(c, s, !(types & TYPE_NUMBER), from, to));
    if (types & TYPE_ARRAY) TRY(schema_emit_array(c, s, from, to));
    if (types & TYPE_OBJECT) TRY(schema_emit_object(c, s, from, to));
    return 0;
}

// --- enum and const ------------------------------------------------------------------------------

static bool has_assertions(const cJSON *s) {
    return implied_types(s) != TYPE_EVERY;
}

// The other assertions beside an enum, compiled on their own, so that its values can be tried. 1: no value
// matches them.
static int compile_rest(struct schema_compiler *c, const cJSON *s, struct net *n) {
    struct err why = {0};
    cJSON *rest = cJSON_Duplicate(s, true);
    if (!rest) return schema_no_memory(c, "enum");
    cJSON_DeleteItemFromObjectCaseSensitive(rest, "enum");
    cJSON_DeleteItemFromObjectCaseSensitive(rest, "const");
    char *json = json_print(rest);
    cJSON_Delete(rest);
    int rc = json ? schema_compile(n, json, strlen(json), &why)
                  : err_set(&why, E_NOMEM, "no memory for it");
    free(json);
    if (rc == 0) rc = net_finish(n, NULL, &why);
    if (n->matches_nothing) return 1;
    return rc < 0 ? schema_refuse(c, rc, "enum", why.text) : 0;
}

struct values {
    const cJSON *first;
    int n;
    unsigned types;   // 0: any
    struct net *rest; // NULL: there are no other assertions
};

// The texts of those values that match; out has room for all.
static int texts_of(struct schema_compiler *c, const struct values *v, char **out, size_t *used) {
    const cJSON *value = v->first;
    for (int i = 0; i < v->n; i++, value = value->next) {
        if (v->types && !(schema_type_of(value) & v->types)) continue;
        char *text = json_print(value);
        if (!text) return schema_no_memory(c, "enum");
        int good = v->rest ? schema_matches(v->rest, text, c->err) : 1;
        if (good == 1)
            out[(*used)++] = text;
        else
            free(text);
        TRY(good);
    }
    return 0;
}

static int emit_values(struct schema_compiler *c, const cJSON *s, struct values *v, int32_t from,
                       int32_t to) {
    struct net rest;
    char **texts = calloc((size_t)v->n + 1, sizeof *texts);
    size_t used = 0;
    int rc = texts ? 0 : schema_no_memory(c, "enum");
    net_init(&rest);
    if (rc == 0 && has_assertions(s)) {
        rc = compile_rest(c, s, &rest);
        v->rest = &rest;
    }
    if (rc == 0) rc = texts_of(c, v, texts, &used);
    if (rc == 0 && used > 0) choice_emit(c->net, (const char **)texts, used, from, to);
    for (size_t i = 0; i < used; i++) free(texts[i]);
    free(texts);
    net_release(&rest);
    return rc < 0 ? rc : 0;
}

static int emit_enum(struct schema_compiler *c, const cJSON *s, unsigned types, int32_t from,
                     int32_t to) {
    const cJSON *list = schema_get(s, "enum"), *one = schema_get(s, "const");
    if (list && !cJSON_IsArray(list))
        return schema_refuse(c, E_INVAL, "enum", "it must be a list of values");
    if (one && list) {
        const cJSON *v;
        bool found = false;
        cJSON_ArrayForEach(v, list) found = found || cJSON_Compare(v, one, true);
        if (!found) return 0;
    }
    struct values v = {
        .first = one ? one : list->child, .n = one ? 1 : cJSON_GetArraySize(list), .types = types};
    return emit_values(c, s, &v, from, to);
}

// --- combinations --------------------------------------------------------------------------------

static int call(struct schema_compiler *c, const cJSON *schema, const char *key, int index,
                int32_t from, int32_t to) {
    int rule = schema_rule_of(c, schema, key, index);
    if (rule < 0) return rule;
    net_call(c->net, from, rule, to);
    return 0;
}

static int emit_ref(struct schema_compiler *c, const cJSON *s, const cJSON *ref, int32_t from,
                    int32_t to) {
    const cJSON *at, *rest;
    cJSON *merged;
    if (!cJSON_IsString(ref)) return schema_refuse(c, E_INVAL, "$ref", "it must be a text");
    TRY(schema_resolve(c, ref->valuestring, &at));
    TRY(schema_without(c, s, "$ref", &rest));
    if (!rest) return call(c, at, "$ref", -1, from, to);
    TRY(schema_merge_around(c, at, rest, rest, &merged));
    TRY(schema_own(c, merged));
    return call(c, merged, "$ref", -1, from, to);
}

// The branches with what stands beside them, whose properties come first.
static int read_branches(struct schema_compiler *c, const cJSON *s, const char *key,
                         const cJSON **branches) {
    const cJSON *rest, *a;
    cJSON *merged;
    TRY(schema_without(c, s, key, &rest));
    cJSON_ArrayForEach(a, schema_get(s, key)) {
        *branches++ = a;
        if (!rest) continue;
        TRY(schema_merge_around(c, rest, a, rest, &merged));
        TRY(schema_own(c, merged));
        branches[-1] = merged;
    }
    return 0;
}

static int emit_any(struct schema_compiler *c, const cJSON *s, const char *key, int32_t from,
                    int32_t to) {
    const cJSON *list = schema_get(s, key);
    if (!cJSON_IsArray(list) || !list->child)
        return schema_refuse(c, E_INVAL, key, "it must be a list of schemas");
    int n = cJSON_GetArraySize(list);
    const cJSON **branches = calloc((size_t)n, sizeof *branches);
    if (!branches) return schema_no_memory(c, key);
    int rc = read_branches(c, s, key, branches);
    if (rc == 0 && strcmp(key, "oneOf") == 0) rc = schema_tell_apart(c, branches, n);
    for (int i = 0; i < n && rc == 0; i++) rc = call(c, branches[i], key, i, from, to);
    free(branches);
    return rc;
}

static int emit_all(struct schema_compiler *c, const cJSON *s, const cJSON *all, int32_t from,
                    int32_t to) {
    const cJSON *rest;
    bool stuck;
    TRY(schema_without(c, s, "allOf", &rest));
    if (!rest && cJSON_IsArray(all) && cJSON_GetArraySize(all) == 1)
        return call(c, all->child, "allOf", -1, from, to);
    TRY(schema_fold(c, s, &s, &stuck));
    if (!stuck) return call(c, s, "allOf", -1, from, to);
    return emit_any(c, s, schema_get(s, "anyOf") ? "anyOf" : "oneOf", from, to);
}

// --- one schema ----------------------------------------------------------------------------------

static int emit_schema(struct schema_compiler *c, const cJSON *s, int32_t from, int32_t to) {
    unsigned types;
    if (cJSON_IsFalse(s)) return 0;
    if (cJSON_IsTrue(s)) return emit_types(c, s, TYPE_EVERY, from, to);
    if (!cJSON_IsObject(s)) return schema_refuse(c, E_INVAL, NULL, "it is no schema");
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++)
        if (schema_get(s, unsupported[i]))
            return schema_refuse(c, E_UNSUPPORTED, unsupported[i], "it is not supported");
    TRY(schema_rewrite(c, s, &s));
    if (cJSON_IsFalse(s)) return 0;
    if (schema_get(s, "$ref")) return emit_ref(c, s, schema_get(s, "$ref"), from, to);
    if (schema_get(s, "allOf")) return emit_all(c, s, schema_get(s, "allOf"), from, to);
    if (schema_get(s, "anyOf")) return emit_any(c, s, "anyOf", from, to);
    if (schema_get(s, "oneOf")) return emit_any(c, s, "oneOf", from, to);
    TRY(schema_close(c, s, &s));
    TRY(read_types(c, s, &types));
    if (schema_get(s, "enum") || schema_get(s, "const")) return emit_enum(c, s, types, from, to);
    if (schema_get(s, "type") && !types) return 0;
    return emit_types(c, s, types ? types : implied_types(s), from, to);
}

static int emit_queue(struct schema_compiler *c) {
    for (struct schema_rule *r = c->rules; r && !net_failed(c->net); r = r->hh.next) {
        c->path = r->path;
        TRY(emit_schema(c, r->schema, c->net->rules[r->rule].start, c->net->rules[r->rule].end));
    }
    return 0;
}

static void release(struct schema_compiler *c) {
    struct schema_rule *r, *next;
    HASH_ITER(hh, c->rules, r, next) {
        HASH_DEL(c->rules, r);
        free(r->path);
        free(r);
    }
    cJSON_Delete(c->made);
}

int schema_compile(struct net *net, const char *text, size_t len, struct err *err) {
    struct err own = {0};
    cJSON *root = json_parse(text, len, &json_limits_message, &own);
    if (!root) return err_set(err, E_INVAL, "it is not JSON: %s", own.text);
    struct schema_compiler c = {.net = net,
                                .root = root,
                                .path = "",
                                .space = -1,
                                .character = -1,
                                .string = -1,
                                .number = -1,
                                .integer = -1,
                                .any = -1,
                                .err = err};
    c.made = cJSON_CreateArray();
    int rc = !c.made                             ? err_set(err, E_NOMEM, "no memory")
             : schema_get(root, GRAMMAR_WRITTEN) ? schema_calls_rule(&c)
                                                 : schema_rule_of(&c, root, NULL, -1);
    if (rc >= 0) {
        net->root = rc;
        rc = emit_queue(&c);
    }
    release(&c);
    cJSON_Delete(root);
    return rc < 0 ? rc : 0;
}
