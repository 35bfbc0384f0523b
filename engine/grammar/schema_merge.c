// Merges schemas that must hold together (allOf, keywords beside $ref and anyOf).
#include "engine/grammar/schema.h"
#include <stdlib.h>
#include <string.h>

enum { MERGE_MAX_DEPTH = 16 };

// Puts value (taken) under the key.
static int put(struct schema_compiler *c, cJSON *out, const char *key, cJSON *value) {
    if (value) {
        cJSON_DeleteItemFromObjectCaseSensitive(out, key);
        if (cJSON_AddItemToObject(out, key, value)) return 0;
    }
    cJSON_Delete(value);
    return schema_no_memory(c, key);
}

static int put_copy(struct schema_compiler *c, cJSON *out, const char *key, const cJSON *value) {
    return put(c, out, key, cJSON_Duplicate(value, true));
}

// Merged when it is emitted.
static cJSON *both(const cJSON *a, const cJSON *b) {
    return schema_pair("allOf", cJSON_Duplicate(a, true), cJSON_Duplicate(b, true));
}
static cJSON *either(const cJSON *a, const cJSON *b) {
    return schema_pair("anyOf", cJSON_Duplicate(a, true), cJSON_Duplicate(b, true));
}

// --- keywords that both have ---------------------------------------------------------------------

static bool is_one_of(const char *key, const char *const *keys) {
    for (; *keys; keys++)
        if (strcmp(*keys, key) == 0) return true;
    return false;
}

// A list that memory cut short would be another schema.
static cJSON *if_whole(cJSON *list, bool whole) {
    if (whole) return list;
    cJSON_Delete(list);
    return NULL;
}

static cJSON *types_of_both(const cJSON *a, const cJSON *b) {
    unsigned in_a = schema_type_names(a), in_b = schema_type_names(b), in_both = in_a & in_b;
    cJSON *out = cJSON_CreateArray();
    // "number" has the integers too: a number here and an integer there leave integers.
    bool a_has = in_a & (TYPE_NUMBER | TYPE_INTEGER), b_has = in_b & (TYPE_NUMBER | TYPE_INTEGER);
    if (a_has && b_has && !(in_both & TYPE_NUMBER)) in_both |= TYPE_INTEGER;
    if (in_both & TYPE_NUMBER) in_both &= ~(unsigned)TYPE_INTEGER;
    bool whole = out;
    for (int i = 0; whole && i < SCHEMA_N_TYPES; i++)
        if (in_both >> i & 1)
            whole = cJSON_AddItemToArray(out, cJSON_CreateString(schema_type_words[i]));
    return if_whole(out, whole);
}

static cJSON *values_of_both(const cJSON *a, const cJSON *b) {
    cJSON *out = cJSON_CreateArray();
    const cJSON *x, *y;
    bool whole = out;
    cJSON_ArrayForEach(x, a) cJSON_ArrayForEach(y, b) if (whole && cJSON_Compare(x, y, true))
        whole = cJSON_AddItemToArray(out, cJSON_Duplicate(x, true));
    return if_whole(out, whole);
}

static cJSON *lists_of_both(const cJSON *a, const cJSON *b) {
    cJSON *out = cJSON_CreateArray();
    const cJSON *lists[] = {a, b}, *item;
    bool whole = out;
    for (int i = 0; i < 2 && whole; i++) {
        if (!cJSON_IsArray(lists[i])) {
            whole = cJSON_AddItemToArray(out, cJSON_Duplicate(lists[i], true));
            continue;
        }
        cJSON_ArrayForEach(item, lists[i]) {
            whole = whole && cJSON_AddItemToArray(out, cJSON_Duplicate(item, true));
        }
    }
    return if_whole(out, whole);
}

static cJSON *prefixes_of_both(const cJSON *a, const cJSON *b) {
    cJSON *out = cJSON_CreateArray();
    const cJSON *x = a->child, *y = b->child;
    bool whole = out;
    for (; whole && x && y; x = x->next, y = y->next) whole = cJSON_AddItemToArray(out, both(x, y));
    return if_whole(out, whole);
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
    if (strcmp(key, "const") == 0) return put(c, out, "enum", cJSON_CreateArray()); // they differ
    if (strcmp(key, "anyOf") == 0 || strcmp(key, "oneOf") == 0)
        return put_copy(c, out, key, a); // see keep_second
    if (strcmp(key, "not") == 0) return put(c, out, key, either(a, b));
    if (strcmp(key, "prefixItems") == 0 && cJSON_GetArraySize(a) == cJSON_GetArraySize(b))
        return put(c, out, key, prefixes_of_both(a, b));
    return schema_refuse(c, E_UNSUPPORTED, key, "schemas that both have it cannot be merged");
}

// --- properties ----------------------------------------------------------------------------------

// What `other` says of a property that only the first schema lists. other NULL: nothing.
static cJSON *property_beside(const cJSON *schema, const cJSON *other) {
    const cJSON *additional = other ? schema_get(other, "additionalProperties") : NULL;
    return additional ? both(schema, additional) : cJSON_Duplicate(schema, true);
}

// Merges in_a and in_b, the schemas by name of a and b, into out's member `key`. A name in one of them alone gets what the
// other schema, a or b, says of properties that it does not list (property_beside).
static int merge_members(struct schema_compiler *c, cJSON *out, const char *key, const cJSON *in_a,
                         const cJSON *in_b, const cJSON *a, const cJSON *b) {
    cJSON *all = cJSON_CreateObject();
    const cJSON *p;
    if (!all) return schema_no_memory(c, key);
    TRY(put(c, out, key, all));
    cJSON_ArrayForEach(p, in_a) {
        const cJSON *same = schema_get(in_b, p->string);
        TRY(put(c, all, p->string, same ? both(p, same) : property_beside(p, b)));
    }
    cJSON_ArrayForEach(p, in_b) {
        if (!schema_get(in_a, p->string)) TRY(put(c, all, p->string, property_beside(p, a)));
    }
    return 0;
}

// Whether two patterns match the same name shows where names are emitted.
static int merge_patterns(struct schema_compiler *c, cJSON *out, const cJSON *a, const cJSON *b) {
    const cJSON *in_a = schema_get(a, "patternProperties");
    const cJSON *in_b = schema_get(b, "patternProperties");
    if (!cJSON_IsObject(in_a) || !cJSON_IsObject(in_b)) return 0; // copied as they are
    return merge_members(c, out, "patternProperties", in_a, in_b, NULL, NULL);
}

static int merge_properties(struct schema_compiler *c, cJSON *out, const cJSON *a, const cJSON *b) {
    const cJSON *in_a = schema_get(a, "properties"), *in_b = schema_get(b, "properties");
    const cJSON *more_a = schema_get(a, "additionalProperties");
    const cJSON *more_b = schema_get(b, "additionalProperties");
    bool patterns = schema_get(a, "patternProperties") || schema_get(b, "patternProperties");
    if (!in_a && !in_b && !patterns && !(more_a && more_b)) return 0; // copied as they are
    // The names that additionalProperties is for are those that its own schema neither lists nor matches.
    if (patterns && (more_a || more_b) && (in_a || schema_get(a, "patternProperties") || more_a) &&
        (in_b || schema_get(b, "patternProperties") || more_b))
        return schema_refuse(c, E_UNSUPPORTED, "patternProperties",
                             "beside additionalProperties of another schema it cannot be merged");
    if (patterns) TRY(merge_patterns(c, out, a, b));
    if (in_a || in_b) TRY(merge_members(c, out, "properties", in_a, in_b, a, b));
    if (more_a && more_b) return put(c, out, "additionalProperties", both(more_a, more_b));
    return 0;
}

// --- merging -------------------------------------------------------------------------------------

int schema_target(struct schema_compiler *c, const cJSON *s, const cJSON **out) {
    *out = s;
    for (int depth = 0; depth < MERGE_MAX_DEPTH; depth++) {
        const cJSON *ref = schema_get(*out, "$ref");
        if (!cJSON_IsString(ref)) return 0;
        if ((*out)->child->next) return 0; // with others: the caller merges
        TRY(schema_resolve(c, ref->valuestring, out));
    }
    return schema_refuse(c, E_INVAL, "$ref", "references go round in a circle");
}

static bool is_properties(const char *key) { // merge_properties has done it
    return strcmp(key, "properties") == 0;
}

// A reference within what is merged is followed first, one level for each call.
static int follow(struct schema_compiler *c, const cJSON *s, const cJSON **out, int depth) {
    TRY(schema_target(c, s, out));
    TRY(schema_rewrite(c, *out, out));
    const cJSON *ref = schema_get(*out, "$ref");
    if (!ref) return 0;
    if (depth > MERGE_MAX_DEPTH || !cJSON_IsString(ref))
        return schema_refuse(c, E_UNSUPPORTED, "$ref", "references are nested too deeply to merge");
    const cJSON *at;
    cJSON *rest = cJSON_Duplicate(*out, true), *merged;
    if (!rest) return schema_no_memory(c, "$ref");
    TRY(schema_own(c, rest));
    TRY(schema_resolve(c, ref->valuestring, &at));
    cJSON_DeleteItemFromObjectCaseSensitive(rest, "$ref");
    TRY(follow(c, at, &at, depth + 1));
    TRY(schema_merge_around(c, at, rest, rest, &merged));
    TRY(schema_own(c, merged));
    *out = merged;
    return 0;
}

static int append_copy(struct schema_compiler *c, cJSON *out, const char *key, const cJSON *value) {
    cJSON *all = cJSON_GetObjectItemCaseSensitive(out, "allOf"), *one = schema_with(key, value);
    if (!all) all = cJSON_AddArrayToObject(out, "allOf");
    if (all && one && cJSON_AddItemToArray(all, one)) return 0;
    cJSON_Delete(one);
    return schema_no_memory(c, key);
}

// Of two anyOf, the second becomes an entry of allOf: emitting the first one merges it into each branch.
static int keep_second(struct schema_compiler *c, cJSON *out, const cJSON *a, const cJSON *b,
                       const char *key) {
    const cJSON *first = schema_get(a, key), *second = schema_get(b, key);
    if (!first || !second || cJSON_Compare(first, second, true)) return 0;
    return append_copy(c, out, key, second);
}

static int merge_into(struct schema_compiler *c, cJSON *out, const cJSON *a, const cJSON *b) {
    const cJSON *v;
    TRY(merge_properties(c, out, a, b));
    bool prefix = schema_get(a, "prefixItems") || schema_get(b, "prefixItems");
    if (prefix && (!schema_get(a, "prefixItems") || !schema_get(b, "prefixItems")) &&
        schema_get(schema_get(a, "prefixItems") ? b : a, "items"))
        return schema_refuse(c, E_UNSUPPORTED, "prefixItems", "it cannot be merged with items");
    cJSON_ArrayForEach(v, a) {
        const cJSON *same = schema_get(b, v->string);
        if (is_properties(v->string) || schema_get(out, v->string)) continue;
        TRY(same ? merge_word(c, out, v, same) : put_copy(c, out, v->string, v));
    }
    cJSON_ArrayForEach(v, b) {
        bool done = schema_get(a, v->string) || is_properties(v->string);
        if (!done && !schema_get(out, v->string)) TRY(put_copy(c, out, v->string, v));
    }
    TRY(keep_second(c, out, a, b, "anyOf"));
    return keep_second(c, out, a, b, "oneOf");
}

int schema_merge(struct schema_compiler *c, const cJSON *a, const cJSON *b, cJSON **out) {
    *out = NULL;
    if (++c->merge_depth > 64)
        return schema_refuse(c, E_LIMIT, "allOf", "merging its schemas takes too many steps");
    int rc = follow(c, a, &a, 0);
    if (rc == 0) rc = follow(c, b, &b, 0);
    if (rc == 0 && !cJSON_IsTrue(b)) rc = schema_close(c, a, &a);
    if (rc == 0 && !cJSON_IsTrue(a)) rc = schema_close(c, b, &b);
    c->merge_depth--;
    TRY(rc);
    if (cJSON_IsFalse(a) || cJSON_IsFalse(b)) *out = cJSON_CreateFalse();
    if (!*out && cJSON_IsTrue(a)) *out = cJSON_Duplicate(b, true);
    if (!*out && cJSON_IsTrue(b)) *out = cJSON_Duplicate(a, true);
    if (*out) return 0;
    if (!cJSON_IsObject(a) || !cJSON_IsObject(b))
        return schema_refuse(c, E_INVAL, "allOf", "one of its entries is no schema");
    *out = cJSON_CreateObject();
    if (!*out) return schema_no_memory(c, "allOf");
    rc = merge_into(c, *out, a, b);
    if (rc == 0) return 0;
    cJSON_Delete(*out);
    *out = NULL;
    return rc;
}

// --- unevaluated members -------------------------------------------------------------------------

static const char *const unevaluated[] = {"unevaluatedProperties", "unevaluatedItems"};

static bool has_unevaluated(const cJSON *s) {
    return schema_get(s, unevaluated[0]) || schema_get(s, unevaluated[1]);
}

int schema_close(struct schema_compiler *c, const cJSON *s, const cJSON **out) {
    static const char *const others[] = {"additionalProperties", "items"};
    static const char *const apart[] = {"$ref", "anyOf", "oneOf", "allOf", SCHEMA_NEGATED};
    bool stuck = false;
    *out = s;
    if (!has_unevaluated(s)) return 0;
    for (int i = 0; i < MERGE_MAX_DEPTH && schema_get(s, "allOf") && !stuck; i++)
        TRY(schema_fold(c, s, &s, &stuck));
    for (size_t i = 0; i < sizeof apart / sizeof *apart; i++)
        if (schema_get(s, apart[i]))
            return schema_refuse(c, E_UNSUPPORTED, unevaluated[!schema_get(s, unevaluated[0])],
                                 "it cannot be merged with this");
    cJSON *copy = cJSON_Duplicate(s, true);
    if (!copy) return schema_no_memory(c, unevaluated[0]);
    TRY(schema_own(c, copy));
    *out = copy;
    for (int i = 0; i < 2; i++) {
        cJSON *v = cJSON_DetachItemFromObjectCaseSensitive(copy, unevaluated[i]);
        const char *key = others[i];
        if (i == 1 && cJSON_IsArray(schema_get(copy, key))) key = "additionalItems";
        bool wanted = v && !schema_get(copy, key);
        if (wanted) TRY(put(c, copy, key, v));
        if (!wanted) cJSON_Delete(v);
    }
    return 0;
}

// The schema without its unevaluated* keywords.
static int open_copy(struct schema_compiler *c, const cJSON *s, const cJSON **out) {
    cJSON *copy = cJSON_Duplicate(s, true);
    if (!copy) return schema_no_memory(c, unevaluated[0]);
    for (int i = 0; i < 2; i++) cJSON_DeleteItemFromObjectCaseSensitive(copy, unevaluated[i]);
    *out = copy;
    return schema_own(c, copy);
}

static int put_unevaluated(struct schema_compiler *c, cJSON *out, const cJSON *from) {
    for (int i = 0; i < 2 && cJSON_IsObject(out); i++) {
        const cJSON *v = schema_get(from, unevaluated[i]);
        if (v) TRY(put_copy(c, out, unevaluated[i], v));
    }
    return 0;
}

int schema_merge_around(struct schema_compiler *c, const cJSON *a, const cJSON *b,
                        const cJSON *outer, cJSON **out) {
    const cJSON *open = outer;
    if (!has_unevaluated(outer)) return schema_merge(c, a, b, out);
    TRY(open_copy(c, outer, &open));
    TRY(schema_merge(c, a == outer ? open : a, b == outer ? open : b, out));
    int rc = put_unevaluated(c, *out, outer);
    if (rc < 0) cJSON_Delete(*out);
    return rc;
}

// --- folding -------------------------------------------------------------------------------------

static bool clashes(const cJSON *a, const cJSON *b) {
    return (schema_get(a, "anyOf") && schema_get(b, "anyOf")) ||
           (schema_get(a, "oneOf") && schema_get(b, "oneOf"));
}

static int fold_item(struct schema_compiler *c, const cJSON **so_far, const cJSON *item,
                     cJSON *left) {
    cJSON *merged;
    TRY(follow(c, item, &item, 0));
    if (clashes(*so_far, item)) {
        cJSON *copy = cJSON_Duplicate(item, true);
        if (copy && cJSON_AddItemToArray(left, copy)) return 0;
        cJSON_Delete(copy);
        return schema_no_memory(c, "allOf");
    }
    TRY(schema_merge(c, *so_far, item, &merged));
    TRY(schema_own(c, merged));
    *so_far = merged;
    return 0;
}

// Takes the entries that are left out of the list.
static int put_left(struct schema_compiler *c, const cJSON **so_far, cJSON *left) {
    cJSON *copy = cJSON_Duplicate(*so_far, true), *item;
    if (!copy) return schema_no_memory(c, "allOf");
    TRY(schema_own(c, copy));
    *so_far = copy;
    if (!left->child) return 0;
    cJSON *all = cJSON_GetObjectItemCaseSensitive(copy, "allOf");
    if (!all) all = cJSON_AddArrayToObject(copy, "allOf");
    if (!all) return schema_no_memory(c, "allOf");
    while ((item = cJSON_DetachItemFromArray(left, 0))) cJSON_AddItemToArray(all, item);
    return 0;
}

int schema_fold(struct schema_compiler *c, const cJSON *s, const cJSON **out, bool *stuck) {
    static const cJSON empty = {.type = cJSON_Object};
    const cJSON *all = schema_get(s, "allOf"), *item;
    *stuck = false;
    if (!cJSON_IsArray(all) || !all->child)
        return schema_refuse(c, E_INVAL, "allOf", "it must be a list of schemas");
    TRY(schema_without(c, s, "allOf", out));
    TRY(open_copy(c, *out ? *out : &empty, out));
    cJSON *left = cJSON_CreateArray();
    int rc = left ? 0 : schema_no_memory(c, "allOf");
    cJSON_ArrayForEach(item, all) if (rc == 0) rc = fold_item(c, out, item, left);
    *stuck = rc == 0 && left->child;
    if (rc == 0 && (*stuck || has_unevaluated(s))) rc = put_left(c, out, left);
    if (rc == 0) rc = put_unevaluated(c, (cJSON *)*out, s);
    cJSON_Delete(left);
    return rc;
}
