// Merges schemas that must hold together (allOf, keywords beside $ref and anyOf). For oneOf, proves that no value
// matches two of its schemas.
#include "engine/grammar/schema.h"
#include <stdlib.h>
#include <string.h>

enum { MERGE_MAX_DEPTH = 16 };

static int no_memory(struct schema_compiler *c, const char *key) {
    return schema_refuse(c, E_NOMEM, key, "no memory");
}

// Puts value (taken) under the key.
static int put(struct schema_compiler *c, cJSON *out, const char *key, cJSON *value) {
    if (value) {
        cJSON_DeleteItemFromObjectCaseSensitive(out, key);
        if (cJSON_AddItemToObject(out, key, value)) return 0;
    }
    cJSON_Delete(value);
    return no_memory(c, key);
}

static int put_copy(struct schema_compiler *c, cJSON *out, const char *key, const cJSON *value) {
    return put(c, out, key, cJSON_Duplicate(value, true));
}

// {"allOf": [a, b]}: merged when it is emitted.
static cJSON *both(const cJSON *a, const cJSON *b) {
    cJSON *out = cJSON_CreateObject(), *list = cJSON_CreateArray();
    cJSON *x = cJSON_Duplicate(a, true), *y = cJSON_Duplicate(b, true);
    if (out && list && x && y && cJSON_AddItemToObject(out, "allOf", list)) {
        cJSON_AddItemToArray(list, x);
        cJSON_AddItemToArray(list, y);
        return out;
    }
    cJSON_Delete(out);
    cJSON_Delete(list);
    cJSON_Delete(x);
    cJSON_Delete(y);
    return NULL;
}

// --- keywords that both have ---------------------------------------------------------------------

static bool is_one_of(const char *key, const char *const *keys) {
    for (; *keys; keys++)
        if (strcmp(*keys, key) == 0) return true;
    return false;
}

static bool names_type(const cJSON *type, const char *name) {
    const cJSON *item;
    if (cJSON_IsString(type)) return strcmp(type->valuestring, name) == 0;
    cJSON_ArrayForEach(item, type) if (names_type(item, name)) return true;
    return false;
}

static cJSON *types_of_both(const cJSON *a, const cJSON *b) {
    static const char *const names[] = {"null",   "boolean", "object", "array",
                                        "string", "number",  "integer"};
    cJSON *out = cJSON_CreateArray();
    for (int i = 0; out && i < 7; i++) {
        bool whole = i == 6;
        bool in_a = names_type(a, names[i]) || (whole && names_type(a, "number"));
        bool in_b = names_type(b, names[i]) || (whole && names_type(b, "number"));
        bool covered = whole && names_type(a, "number") && names_type(b, "number");
        if (in_a && in_b && !covered) cJSON_AddItemToArray(out, cJSON_CreateString(names[i]));
    }
    return out;
}

static cJSON *values_of_both(const cJSON *a, const cJSON *b) {
    cJSON *out = cJSON_CreateArray();
    const cJSON *x, *y;
    cJSON_ArrayForEach(x, a) cJSON_ArrayForEach(y, b) if (out && cJSON_Compare(x, y, true))
        cJSON_AddItemToArray(out, cJSON_Duplicate(x, true));
    return out;
}

static cJSON *lists_of_both(const cJSON *a, const cJSON *b) {
    cJSON *out = cJSON_CreateArray();
    const cJSON *lists[] = {a, b};
    for (int i = 0; out && i < 2; i++) {
        const cJSON *item;
        if (!cJSON_IsArray(lists[i]))
            cJSON_AddItemToArray(out, cJSON_Duplicate(lists[i], true));
        else
            cJSON_ArrayForEach(item, lists[i])
                cJSON_AddItemToArray(out, cJSON_Duplicate(item, true));
    }
    return out;
}

static cJSON *prefixes_of_both(const cJSON *a, const cJSON *b) {
    cJSON *out = cJSON_CreateArray();
    const cJSON *x = a->child, *y = b->child;
    for (; out && x && y; x = x->next, y = y->next) cJSON_AddItemToArray(out, both(x, y));
    return out;
}

static int merge_word(struct schema_compiler *c, cJSON *out, const cJSON *a, const cJSON *b) {
    static const char *const larger[] = {"minimum",  "exclusiveMinimum", "minLength",
                                         "minItems", "minProperties",    NULL};
    static const char *const smaller[] = {"maximum",  "exclusiveMaximum", "maxLength",
                                          "maxItems", "maxProperties",    NULL};
    static const char *const schemas[] = {"items", "additionalItems", "propertyNames", NULL};
    static const char *const lists[] = {"required", "pattern", "allOf", NULL};
    const char *key = a->string;
    if (cJSON_Compare(a, b, true)) return put_copy(c, out, key, a);
    bool numbers = cJSON_IsNumber(a) && cJSON_IsNumber(b);
    if (numbers && is_one_of(key, larger))
        return put_copy(c, out, key, a->valuedouble > b->valuedouble ? a : b);
    if (numbers && is_one_of(key, smaller))
        return put_copy(c, out, key, a->valuedouble < b->valuedouble ? a : b);
    if (is_one_of(key, schemas)) return put(c, out, key, both(a, b));
    if (is_one_of(key, lists)) return put(c, out, key, lists_of_both(a, b));
    if (strcmp(key, "type") == 0) return put(c, out, key, types_of_both(a, b));
    if (strcmp(key, "enum") == 0) return put(c, out, key, values_of_both(a, b));
    if (strcmp(key, "const") == 0) { // two that differ
        TRY(put(c, out, "enum", cJSON_CreateArray()));
        return 0;
    }
    if (strcmp(key, "prefixItems") == 0 && cJSON_GetArraySize(a) == cJSON_GetArraySize(b))
        return put(c, out, key, prefixes_of_both(a, b));
    return schema_refuse(c, E_UNSUPPORTED, key, "schemas that both have it cannot be merged");
}

// --- properties ----------------------------------------------------------------------------------

// What `other` says of a property that only the first schema lists.
static cJSON *property_beside(const cJSON *schema, const cJSON *other) {
    const cJSON *additional = schema_get(other, "additionalProperties");
    return additional ? both(schema, additional) : cJSON_Duplicate(schema, true);
}

static int merge_properties(struct schema_compiler *c, cJSON *out, const cJSON *a, const cJSON *b) {
    const cJSON *in_a = schema_get(a, "properties"), *in_b = schema_get(b, "properties"), *p;
    const cJSON *more_a = schema_get(a, "additionalProperties");
    const cJSON *more_b = schema_get(b, "additionalProperties");
    bool patterns = schema_get(a, "patternProperties") || schema_get(b, "patternProperties");
    if (!in_a && !in_b && !patterns && !(more_a && more_b)) return 0; // copied as they are
    if (patterns && (in_a || schema_get(a, "patternProperties") || more_a) &&
        (in_b || schema_get(b, "patternProperties") || more_b))
        return schema_refuse(c, E_UNSUPPORTED, "patternProperties", "it cannot be merged");
    if (in_a || in_b) {
        cJSON *all = cJSON_CreateObject();
        if (!all) return no_memory(c, "properties");
        TRY(put(c, out, "properties", all));
        cJSON_ArrayForEach(p, in_a) {
            const cJSON *same = schema_get(in_b, p->string);
            TRY(put(c, all, p->string, same ? both(p, same) : property_beside(p, b)));
        }
        cJSON_ArrayForEach(p, in_b) {
            if (!schema_get(in_a, p->string)) TRY(put(c, all, p->string, property_beside(p, a)));
        }
    }
    if (more_a && more_b) return put(c, out, "additionalProperties", both(more_a, more_b));
    return 0;
}

// --- merging -------------------------------------------------------------------------------------

// The schema itself, or the one that it only refers to.
static int target(struct schema_compiler *c, const cJSON *s, const cJSON **out) {
    *out = s;
    for (int depth = 0; depth < MERGE_MAX_DEPTH; depth++) {
        const cJSON *ref = schema_get(*out, "$ref");
        if (!cJSON_IsString(ref)) return 0;
        if ((*out)->child->next) return 0; // with others: the caller merges
        TRY(schema_resolve(c, ref->valuestring, out));
    }
    return schema_refuse(c, E_INVAL, "$ref", "references go round in a circle");
}

static bool is_described(const char *key) {
    static const char *const keys[] = {"properties", NULL};
    return is_one_of(key, keys);
}

// A reference within what is merged is followed first, one level for each call.
static int follow(struct schema_compiler *c, const cJSON *s, const cJSON **out, int depth) {
    TRY(target(c, s, out));
    const cJSON *ref = schema_get(*out, "$ref");
    if (!ref) return 0;
    if (depth > MERGE_MAX_DEPTH || !cJSON_IsString(ref))
        return schema_refuse(c, E_UNSUPPORTED, "$ref", "references are nested too deeply to merge");
    const cJSON *at;
    cJSON *rest = cJSON_Duplicate(*out, true), *merged;
    if (!rest) return no_memory(c, "$ref");
    TRY(schema_own(c, rest));
    TRY(schema_resolve(c, ref->valuestring, &at));
    cJSON_DeleteItemFromObjectCaseSensitive(rest, "$ref");
    TRY(follow(c, at, &at, depth + 1));
    TRY(schema_merge(c, at, rest, &merged));
    TRY(schema_own(c, merged));
    *out = merged;
    return 0;
}

static int merge_into(struct schema_compiler *c, cJSON *out, const cJSON *a, const cJSON *b) {
    const cJSON *v;
    TRY(merge_properties(c, out, a, b));
    bool prefix = schema_get(a, "prefixItems") || schema_get(b, "prefixItems");
    if (prefix && (!schema_get(a, "prefixItems") || !schema_get(b, "prefixItems")) &&
        schema_get(schema_get(a, "prefixItems") ? b : a, "items"))
        return schema_refuse(c, E_UNSUPPORTED, "prefixItems", "it cannot be merged with items");
    bool any = (schema_get(a, "anyOf") && schema_get(b, "anyOf")) ||
               (schema_get(a, "oneOf") && schema_get(b, "oneOf"));
    if (any) return schema_refuse(c, E_UNSUPPORTED, "anyOf", "two of them cannot be merged");
    cJSON_ArrayForEach(v, a) {
        const cJSON *same = schema_get(b, v->string);
        if (is_described(v->string) || schema_get(out, v->string)) continue;
        TRY(same ? merge_word(c, out, v, same) : put_copy(c, out, v->string, v));
    }
    cJSON_ArrayForEach(v, b) {
        bool done = schema_get(a, v->string) || is_described(v->string);
        if (!done && !schema_get(out, v->string)) TRY(put_copy(c, out, v->string, v));
    }
    return 0;
}

int schema_merge(struct schema_compiler *c, const cJSON *a, const cJSON *b, cJSON **out) {
    *out = NULL;
    if (++c->merge_depth > 64)
        return schema_refuse(c, E_LIMIT, "allOf", "merging its schemas takes too many steps");
    int rc = follow(c, a, &a, 0);
    if (rc == 0) rc = follow(c, b, &b, 0);
    c->merge_depth--;
    TRY(rc);
    if (cJSON_IsFalse(a) || cJSON_IsFalse(b)) *out = cJSON_CreateFalse();
    if (!*out && cJSON_IsTrue(a)) *out = cJSON_Duplicate(b, true);
    if (!*out && cJSON_IsTrue(b)) *out = cJSON_Duplicate(a, true);
    if (*out) return 0;
    if (!cJSON_IsObject(a) || !cJSON_IsObject(b))
        return schema_refuse(c, E_INVAL, "allOf", "one of its entries is no schema");
    *out = cJSON_CreateObject();
    if (!*out) return no_memory(c, "allOf");
    rc = merge_into(c, *out, a, b);
    if (rc == 0) return 0;
    cJSON_Delete(*out);
    *out = NULL;
    return rc;
}

// --- telling apart -------------------------------------------------------------------------------

static unsigned kinds_of(const cJSON *s) {
    static const char *const names[] = {"null", "boolean", "object", "array", "string", "number"};
    const cJSON *type = schema_get(s, "type");
    unsigned kinds = 0;
    if (!type) return 63;
    for (unsigned i = 0; i < 6; i++)
        if (names_type(type, names[i]) || (i == 5 && names_type(type, "integer"))) kinds |= 1u << i;
    return kinds;
}

// The values of const or enum as a list of `n`; NULL: neither.
static const cJSON *listed(const cJSON *s, int *n) {
    const cJSON *one = schema_get(s, "const"), *list = schema_get(s, "enum");
    *n = one ? 1 : list ? cJSON_GetArraySize(list) : 0;
    return one ? one : cJSON_IsArray(list) ? list->child : NULL;
}

static bool lists_differ(const cJSON *a, const cJSON *b) {
    int n, m;
    const cJSON *x = listed(a, &n), *first = listed(b, &m);
    if (!x || !first) return false;
    for (; n > 0; x = x->next, n--) {
        const cJSON *y = first;
        for (int k = 0; k < m; k++, y = y->next)
            if (cJSON_Compare(x, y, true)) return false;
    }
    return true;
}

static bool requires(const cJSON *s, const char *name) {
    const cJSON *item;
    cJSON_ArrayForEach(item, schema_get(s, "required")) {
        if (cJSON_IsString(item) && strcmp(item->valuestring, name) == 0) return true;
    }
    return false;
}

// One requires what the other does not allow.
static bool excludes(const cJSON *a, const cJSON *b) {
    const cJSON *item;
    if (!cJSON_IsFalse(schema_get(b, "additionalProperties")) || schema_get(b, "patternProperties"))
        return false;
    cJSON_ArrayForEach(item, schema_get(a, "required")) {
        if (cJSON_IsString(item) && !schema_get(schema_get(b, "properties"), item->valuestring))
            return true;
    }
    return false;
}

bool schema_disjoint(struct schema_compiler *c, const cJSON *a, const cJSON *b, int depth) {
    struct err unused, *mine = c->err;
    const cJSON *p;
    c->err = &unused;
    bool found = target(c, a, &a) == 0 && target(c, b, &b) == 0;
    c->err = mine;
    if (!found || depth > 4) return false;
    if (cJSON_IsFalse(a) || cJSON_IsFalse(b)) return true;
    if (!(kinds_of(a) & kinds_of(b)) || lists_differ(a, b)) return true;
    bool objects = (kinds_of(a) & kinds_of(b)) == 4;
    if (!objects) return false;
    if (excludes(a, b) || excludes(b, a)) return true;
    cJSON_ArrayForEach(p, schema_get(a, "properties")) {
        const cJSON *other = schema_get(schema_get(b, "properties"), p->string);
        if (other && requires(a, p->string) && requires(b, p->string) &&
            schema_disjoint(c, p, other, depth + 1))
            return true;
    }
    return false;
}
