// oneOf: no value may match two of its schemas. Those that are not known to exclude each other are narrowed.
#include "engine/grammar/schema.h"
#include <stdlib.h>
#include <string.h>

// --- telling apart -------------------------------------------------------------------------------

static unsigned kinds_of(const cJSON *s) {
    const cJSON *type = schema_get(s, "type");
    return type ? schema_kinds(type) : TYPE_EVERY;
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

static const cJSON *first_item(const cJSON *s) {
    const cJSON *prefix = schema_get(s, "prefixItems"), *items = schema_get(s, "items");
    if (cJSON_IsArray(items)) prefix = items;
    return cJSON_IsArray(prefix) && prefix->child ? prefix->child : items;
}

static bool has_item(const cJSON *s) {
    const cJSON *min = schema_get(s, "minItems");
    return cJSON_IsNumber(min) && min->valuedouble >= 1;
}

// The property whose values tell two objects apart if one of them has it. NULL: none.
static const cJSON *discriminator(struct schema_compiler *c, const cJSON *a, const cJSON *b,
                                  int depth, bool required) {
    const cJSON *p;
    cJSON_ArrayForEach(p, schema_get(a, "properties")) {
        const cJSON *other = schema_get(schema_get(b, "properties"), p->string);
        if (other && (!required || requires(a, p->string) || requires(b, p->string)) &&
            schema_disjoint(c, p, other, depth + 1))
            return p;
    }
    return NULL;
}

static bool follow_quietly(struct schema_compiler *c, const cJSON **a, const cJSON **b) {
    struct err unused, *mine = c->err;
    c->err = &unused;
    bool found = schema_target(c, *a, a) == 0 && schema_target(c, *b, b) == 0;
    c->err = mine;
    return found;
}

bool schema_disjoint(struct schema_compiler *c, const cJSON *a, const cJSON *b, int depth) {
    if (!follow_quietly(c, &a, &b) || depth > 4) return false;
    if (cJSON_IsFalse(a) || cJSON_IsFalse(b)) return true;
    unsigned kinds = kinds_of(a) & kinds_of(b);
    if (!kinds || lists_differ(a, b)) return true;
    if (kinds == TYPE_ARRAY && (has_item(a) || has_item(b)) && first_item(a) && first_item(b))
        return schema_disjoint(c, first_item(a), first_item(b), depth + 1);
    if (kinds != TYPE_OBJECT) return false;
    return excludes(a, b) || excludes(b, a) || discriminator(c, a, b, depth, true);
}

// --- narrowing -----------------------------------------------------------------------------------

// What references and allOf say, in one schema.
int schema_flatten(struct schema_compiler *c, const cJSON *s, const cJSON **out) {
    bool stuck = false;
    *out = s;
    for (int i = 0; i < 16 && !stuck; i++) {
        if (!schema_get(*out, "$ref") && !schema_get(*out, "allOf")) return 0;
        if (schema_get(*out, "$ref")) {
            cJSON *merged;
            TRY(schema_target(c, *out, out));
            if (!schema_get(*out, "$ref")) continue;
            TRY(schema_merge(c, *out, &schema_always, &merged));
            TRY(schema_own(c, merged));
            *out = merged;
        } else {
            TRY(schema_fold(c, *out, out, &stuck));
        }
    }
    return 0;
}

static int narrow(struct schema_compiler *c, const cJSON **s, cJSON *more) {
    cJSON *o = schema_pair("allOf", cJSON_Duplicate(*s, true), more);
    if (!o) return schema_no_memory(c, "oneOf");
    *s = o;
    return schema_own(c, o);
}

static cJSON *requiring(const char *name) {
    cJSON *o = cJSON_CreateObject();
    cJSON *list = o ? cJSON_AddArrayToObject(o, "required") : NULL;
    if (list && cJSON_AddItemToArray(list, cJSON_CreateString(name))) return o;
    cJSON_Delete(o);
    return NULL;
}

static bool overlaps(struct schema_compiler *c, const cJSON *flat, const cJSON *any) {
    const cJSON *one;
    if (!schema_get(any, "anyOf")) return !schema_disjoint(c, flat, any, 0);
    cJSON_ArrayForEach(one, schema_get(any, "anyOf")) {
        if (!schema_disjoint(c, flat, one, 0)) return true;
    }
    return false;
}

// Leaves in *s only values that `other` rejects.
static int exclude(struct schema_compiler *c, const cJSON **s, const cJSON *flat,
                   const cJSON *other) {
    struct err unused, *mine = c->err;
    cJSON *opposite = NULL;
    if (schema_disjoint(c, flat, other, 0)) return 0;
    if ((kinds_of(flat) & kinds_of(other)) == TYPE_OBJECT) {
        const cJSON *p = discriminator(c, flat, other, 0, false);
        if (p) return narrow(c, s, requiring(p->string));
    }
    c->err = &unused;
    int rc = schema_negate(c, other, &opposite);
    c->err = mine;
    if (rc == 0 && overlaps(c, flat, opposite)) return narrow(c, s, opposite);
    cJSON_Delete(opposite);
    return schema_refuse(c, E_UNSUPPORTED, "oneOf",
                         "two of its schemas may match the same value; tell them apart by type or "
                         "by a const, or use anyOf");
}

int schema_tell_apart(struct schema_compiler *c, const cJSON **branches, int n) {
    const cJSON **flat = calloc((size_t)n, sizeof *flat);
    int rc = flat ? 0 : schema_no_memory(c, "oneOf");
    for (int i = 0; i < n && rc == 0; i++) rc = schema_flatten(c, branches[i], &flat[i]);
    for (int i = 0; i < n && rc == 0; i++)
        for (int k = 0; k < n && rc == 0; k++)
            if (i != k) rc = exclude(c, &branches[i], flat[i], flat[k]);
    free(flat);
    return rc;
}
