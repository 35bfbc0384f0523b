// The values that a schema rejects, as a schema: for `not`, for `if` without a match, and for branches of oneOf.
//
// A schema is a conjunction of its keywords, so its negation is anyOf of their negations. A keyword whose negation
// cannot be written is left out of this anyOf: the result then accepts fewer values, never one too many.
#include "engine/grammar/schema.h"
#include <stdlib.h>
#include <string.h>

enum { NEGATE_MAX_DEPTH = 8 };

static int no_memory(struct schema_compiler *c) {
    return schema_no_memory(c, "not");
}

// --- building ------------------------------------------------------------------------------------

// A new object in the list; NULL: no memory.
static cJSON *add_object(cJSON *list) {
    cJSON *o = cJSON_CreateObject();
    if (o && cJSON_AddItemToArray(list, o)) return o;
    cJSON_Delete(o);
    return NULL;
}

// {"type": type, key: value} in the list; takes the value.
static int add(struct schema_compiler *c, cJSON *any, const char *type, const char *key,
               cJSON *value) {
    cJSON *o = value ? add_object(any) : NULL;
    if (o && cJSON_AddItemToObject(o, key, value)) {
        if (cJSON_AddStringToObject(o, "type", type)) return 0;
        return no_memory(c);
    }
    cJSON_Delete(value);
    return no_memory(c);
}

// Values of all other types.
static int add_types(struct schema_compiler *c, cJSON *any, unsigned excluded) {
    cJSON *list = cJSON_CreateArray(), *o = list ? add_object(any) : NULL;
    bool whole = o;
    for (int i = 0; i < SCHEMA_N_TYPES && whole; i++)
        if ((TYPE_EVERY & ~excluded) >> i & 1)
            whole = cJSON_AddItemToArray(list, cJSON_CreateString(schema_type_words[i]));
    if (o && cJSON_AddItemToObject(o, "type", list)) return whole ? 0 : no_memory(c);
    cJSON_Delete(list);
    return no_memory(c);
}

// --- types and values ----------------------------------------------------------------------------

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// The ranges between the numbers.
static int add_gaps(struct schema_compiler *c, cJSON *any, double *numbers, int n) {
    if (n == 0) return 0;
    qsort(numbers, (size_t)n, sizeof *numbers, compare_doubles);
    for (int i = 0; i <= n; i++) {
        cJSON *o = add_object(any);
        if (!o || !cJSON_AddStringToObject(o, "type", "number")) return no_memory(c);
        if (i > 0 && !cJSON_AddNumberToObject(o, "exclusiveMinimum", numbers[i - 1]))
            return no_memory(c);
        if (i < n && !cJSON_AddNumberToObject(o, "exclusiveMaximum", numbers[i]))
            return no_memory(c);
    }
    return 0;
}

struct listed {
    unsigned types;
    bool is_true, is_false;
    cJSON *texts;
    double *numbers;
    int n_numbers;
};

// false: no memory.
static bool read_value(struct listed *l, const cJSON *v) {
    l->types |= schema_type_of(v);
    if (cJSON_IsTrue(v)) l->is_true = true;
    if (cJSON_IsFalse(v)) l->is_false = true;
    if (cJSON_IsNumber(v)) l->numbers[l->n_numbers++] = v->valuedouble;
    if (!cJSON_IsString(v)) return true;
    cJSON *copy = cJSON_Duplicate(v, true);
    return copy && cJSON_AddItemToArray(l->texts, copy);
}

static int add_others(struct schema_compiler *c, cJSON *any, struct listed *l) {
    TRY(add_types(c, any, l->types));
    if (l->is_true != l->is_false)
        TRY(add(c, any, "boolean", "const", cJSON_CreateBool(l->is_false)));
    TRY(add_gaps(c, any, l->numbers, l->n_numbers));
    return l->texts->child ? add(c, any, "string", "not", schema_with("enum", l->texts)) : 0;
}

// Values of enum, or one of const. No object and no array differs from such a value.
static int add_unlisted(struct schema_compiler *c, cJSON *any, const cJSON *first, int n) {
    struct listed l = {.texts = cJSON_CreateArray(),
                       .numbers = calloc((size_t)n + 1, sizeof *l.numbers)};
    int rc = l.texts && l.numbers ? 0 : no_memory(c);
    for (const cJSON *v = first; rc == 0 && v && n > 0; v = v->next, n--)
        if (!read_value(&l, v)) rc = no_memory(c);
    if (rc == 0) rc = add_others(c, any, &l);
    cJSON_Delete(l.texts);
    free(l.numbers);
    return rc;
}

// --- keywords ------------------------------------------------------------------------------------

static const struct {
    const char *key, *type, *other;
    int step; // added to the count
} opposites[] = {
    {"minimum", "number", "exclusiveMaximum", 0},
    {"maximum", "number", "exclusiveMinimum", 0},
    {"exclusiveMinimum", "number", "maximum", 0},
    {"exclusiveMaximum", "number", "minimum", 0},
    {"minLength", "string", "maxLength", -1},
    {"maxLength", "string", "minLength", 1},
    {"minItems", "array", "maxItems", -1},
    {"maxItems", "array", "minItems", 1},
    {"minProperties", "object", "maxProperties", -1},
    {"maxProperties", "object", "minProperties", 1},
};

static int add_opposite(struct schema_compiler *c, cJSON *any, const cJSON *v) {
    for (size_t i = 0; i < sizeof opposites / sizeof *opposites; i++) {
        if (strcmp(v->string, opposites[i].key) != 0 || !cJSON_IsNumber(v)) continue;
        double bound = v->valuedouble + opposites[i].step;
        if (opposites[i].step && bound < 0) return 0; // minLength 0
        return add(c, any, opposites[i].type, opposites[i].other, cJSON_CreateNumber(bound));
    }
    return 0;
}

// {"type": "object", "properties": {name: schema}}, in the list, and its name required if a schema is given.
static int add_property(struct schema_compiler *c, cJSON *any, const char *name, cJSON *schema) {
    cJSON *properties = cJSON_CreateObject(), *required = cJSON_CreateArray();
    bool given = schema;
    if (!schema) schema = cJSON_CreateFalse();
    if (!properties || !required || !schema || !cJSON_AddItemToObject(properties, name, schema)) {
        cJSON_Delete(schema);
        cJSON_Delete(properties);
        cJSON_Delete(required);
        return no_memory(c);
    }
    if (given && !cJSON_AddItemToArray(required, cJSON_CreateString(name))) {
        cJSON_Delete(properties);
        cJSON_Delete(required);
        return no_memory(c);
    }
    int rc = add(c, any, "object", "properties", properties);
    cJSON *o = rc == 0 ? cJSON_GetArrayItem(any, cJSON_GetArraySize(any) - 1) : NULL;
    if (o && given) cJSON_AddTrueToObject(o, SCHEMA_NEGATED);
    if (o && cJSON_AddItemToObject(o, "required", required)) return 0;
    cJSON_Delete(required);
    return rc < 0 ? rc : no_memory(c);
}

static int negate(struct schema_compiler *c, const cJSON *s, int depth, cJSON **out);

// As negate, but a schema without a negation is NULL in *out.
static int try_negate(struct schema_compiler *c, const cJSON *s, int depth, cJSON **out) {
    struct err unused = {0}, *mine = c->err;
    c->err = &unused;
    int rc = negate(c, s, depth + 1, out);
    c->err = mine;
    if (rc == 0 || rc == E_UNSUPPORTED) return 0;
    return err_set(mine, rc, "%s", unused.text);
}

static int add_properties(struct schema_compiler *c, cJSON *any, const cJSON *properties,
                          int depth) {
    const cJSON *p;
    cJSON_ArrayForEach(p, properties) {
        cJSON *other;
        TRY(try_negate(c, p, depth, &other));
        if (other && !cJSON_IsFalse(other))
            TRY(add_property(c, any, p->string, other));
        else
            cJSON_Delete(other);
    }
    return 0;
}

static int add_required(struct schema_compiler *c, cJSON *any, const cJSON *required) {
    const cJSON *name;
    cJSON_ArrayForEach(name, required) {
        if (cJSON_IsString(name)) TRY(add_property(c, any, name->valuestring, NULL));
    }
    return 0;
}

// A value that one schema of allOf rejects is rejected.
static int add_all_of(struct schema_compiler *c, cJSON *any, const cJSON *schemas, int depth) {
    const cJSON *item;
    cJSON_ArrayForEach(item, schemas) {
        cJSON *other;
        TRY(try_negate(c, item, depth, &other));
        if (other) cJSON_AddItemToArray(any, other);
    }
    return 0;
}

// A value that all schemas of anyOf reject is rejected. If one has no negation, this adds nothing.
static int add_any_of(struct schema_compiler *c, cJSON *any, const cJSON *schemas, int depth) {
    cJSON *list = cJSON_CreateArray(), *o = NULL, *other = NULL;
    const cJSON *item;
    int rc = list ? 0 : no_memory(c);
    cJSON_ArrayForEach(item, schemas) {
        if (rc == 0) rc = try_negate(c, item, depth, &other);
        if (rc < 0 || !other) break;
        cJSON_AddItemToArray(list, other);
    }
    bool complete = rc == 0 && !item;
    if (complete) o = add_object(any);
    if (o && cJSON_AddItemToObject(o, "allOf", list)) return 0;
    cJSON_Delete(list);
    return rc < 0 ? rc : complete ? no_memory(c) : 0;
}

static int add_keyword(struct schema_compiler *c, cJSON *any, const cJSON *s, const cJSON *v,
                       int depth) {
    const char *key = v->string;
    // A number that is no integer has no schema of its own.
    if (strcmp(key, "type") == 0) return add_types(c, any, schema_kinds(v));
    if (strcmp(key, "const") == 0) return add_unlisted(c, any, v, 1);
    if (strcmp(key, "enum") == 0) return add_unlisted(c, any, v->child, cJSON_GetArraySize(v));
    if (strcmp(key, "required") == 0) return add_required(c, any, v);
    if (strcmp(key, "properties") == 0) return add_properties(c, any, v, depth);
    if (strcmp(key, "pattern") == 0) return add(c, any, "string", "not", schema_with(key, v));
    // What matches none of oneOf's schemas is rejected; what matches two is left out.
    if (strcmp(key, "anyOf") == 0 || strcmp(key, "oneOf") == 0) return add_any_of(c, any, v, depth);
    if (strcmp(key, "allOf") == 0) return add_all_of(c, any, v, depth);
    if (strcmp(key, "not") == 0) {
        cJSON *copy = cJSON_Duplicate(v, true);
        if (cJSON_IsObject(copy)) cJSON_AddTrueToObject(copy, SCHEMA_NEGATED);
        if (copy && cJSON_AddItemToArray(any, copy)) return 0;
        return no_memory(c);
    }
    if (strcmp(key, "contains") == 0 && !schema_get(s, "minContains")) {
        cJSON *items;
        TRY(try_negate(c, v, depth, &items));
        return items ? add(c, any, "array", "items", items) : 0;
    }
    return add_opposite(c, any, v);
}

static int negate_object(struct schema_compiler *c, const cJSON *s, int depth, cJSON *any) {
    const cJSON *v, *at, *ref = schema_get(s, "$ref");
    cJSON_ArrayForEach(v, s) TRY(add_keyword(c, any, s, v, depth));
    if (!cJSON_IsString(ref)) return 0;
    cJSON *other;
    TRY(schema_resolve(c, ref->valuestring, &at));
    TRY(try_negate(c, at, depth, &other));
    if (other) cJSON_AddItemToArray(any, other);
    return 0;
}

static int negate(struct schema_compiler *c, const cJSON *s, int depth, cJSON **out) {
    *out = NULL;
    if (cJSON_IsFalse(s)) *out = cJSON_CreateTrue();
    if (cJSON_IsTrue(s) || (cJSON_IsObject(s) && !s->child)) *out = cJSON_CreateFalse();
    if (*out) return 0;
    if (!cJSON_IsObject(s)) return schema_refuse(c, E_INVAL, "not", "it is no schema");
    cJSON *any = depth < NEGATE_MAX_DEPTH ? cJSON_CreateArray() : NULL;
    int rc = any ? negate_object(c, s, depth, any) : 0;
    if (rc == 0 && any && any->child) {
        *out = cJSON_CreateObject();
        if (*out && cJSON_AddItemToObject(*out, "anyOf", any)) return 0;
        rc = no_memory(c);
    }
    cJSON_Delete(any);
    if (rc < 0) return rc;
    return schema_refuse(c, E_UNSUPPORTED, "not", "the opposite of this schema is not supported");
}

int schema_negate(struct schema_compiler *c, const cJSON *s, cJSON **out) {
    return negate(c, s, 0, out);
}
