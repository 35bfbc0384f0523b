// Keywords that are written with others: `if`, `not`, and those about dependent properties become entries of allOf.
#include "engine/grammar/schema.h"
#include <stdlib.h>
#include <string.h>

// --- exclusions of strings -----------------------------------------------------------------------

static bool is_exclusion(const cJSON *v) {
    const cJSON *item = v->child;
    if (!cJSON_IsObject(v) || !item || item->next) return false;
    if (strcmp(item->string, "const") == 0 || strcmp(item->string, "pattern") == 0)
        return cJSON_IsString(item);
    bool any = strcmp(item->string, "anyOf") == 0;
    if ((!any && strcmp(item->string, "enum") != 0) || !cJSON_IsArray(item)) return false;
    cJSON_ArrayForEach(v, item) {
        if (any ? !is_exclusion(v) : !cJSON_IsString(v)) return false;
    }
    return true;
}

bool schema_excludes_strings(const cJSON *s) {
    const cJSON *type = schema_get(s, "type"), *excluded = schema_get(s, "not");
    if (cJSON_IsArray(type) && cJSON_GetArraySize(type) == 1) type = type->child;
    return excluded && cJSON_IsString(type) && strcmp(type->valuestring, "string") == 0 &&
           is_exclusion(excluded);
}

// --- building ------------------------------------------------------------------------------------

// {"anyOf": [a, b]} in the list; as schema_pair.
static int add_either(struct schema_compiler *c, cJSON *list, cJSON *a, cJSON *b) {
    cJSON *o = schema_pair("anyOf", a, b);
    return o && cJSON_AddItemToArray(list, o) ? 0 : schema_no_memory(c, "anyOf");
}

// {"allOf": [first, copy of second]}; takes the first. second NULL: anything.
static cJSON *all_of(cJSON *first, const cJSON *second) {
    return schema_pair("allOf", first, second ? cJSON_Duplicate(second, true) : cJSON_CreateTrue());
}

// --- keywords ------------------------------------------------------------------------------------

static int add_not(struct schema_compiler *c, cJSON *list, const cJSON *excluded) {
    cJSON *other;
    TRY(schema_negate(c, excluded, &other));
    if (cJSON_AddItemToArray(list, other)) return 0;
    cJSON_Delete(other);
    return schema_no_memory(c, "not");
}

static int add_if(struct schema_compiler *c, cJSON *list, const cJSON *s) {
    const cJSON *test = schema_get(s, "if");
    const cJSON *yes = schema_get(s, "then"), *no = schema_get(s, "else");
    struct err own = {0}, *mine = c->err;
    cJSON *other;
    if (!yes && !no) return 0;
    c->err = &own;
    int rc = schema_negate(c, test, &other);
    c->err = mine;
    if (rc < 0) return schema_refuse(c, rc, "if", "the opposite of this schema is not supported");
    return add_either(c, list, all_of(cJSON_Duplicate(test, true), yes), all_of(other, no));
}

static cJSON *forbidding(const char *name) {
    cJSON *o = cJSON_CreateObject();
    cJSON *properties = o ? cJSON_AddObjectToObject(o, "properties") : NULL;
    if (properties && cJSON_AddFalseToObject(properties, name)) return o;
    cJSON_Delete(o);
    return NULL;
}

// The property is absent, or what it depends on holds: a list of names that are required then, or a schema.
static int add_dependent(struct schema_compiler *c, cJSON *list, const cJSON *one) {
    const cJSON *name;
    cJSON *present = cJSON_CreateObject();
    cJSON *required = present ? cJSON_AddArrayToObject(present, "required") : NULL;
    bool whole = required && cJSON_AddItemToArray(required, cJSON_CreateString(one->string));
    if (whole && cJSON_IsArray(one)) {
        cJSON_ArrayForEach(name, one) {
            if (cJSON_IsString(name) && whole)
                whole = cJSON_AddItemToArray(required, cJSON_CreateString(name->valuestring));
        }
    } else if (whole) {
        present = all_of(present, one);
    }
    if (!whole) {
        cJSON_Delete(present);
        return schema_no_memory(c, one->string);
    }
    return add_either(c, list, forbidding(one->string), present);
}

static int add_keyword(struct schema_compiler *c, cJSON *list, const cJSON *s, const cJSON *v) {
    const cJSON *one;
    if (strcmp(v->string, "not") == 0) return add_not(c, list, v);
    if (strcmp(v->string, "if") == 0) return add_if(c, list, s);
    if (strncmp(v->string, "depende", 7) == 0)
        cJSON_ArrayForEach(one, v) TRY(add_dependent(c, list, one));
    return 0;
}

static bool is_rewritten(const cJSON *s, const char *key) {
    static const char *const keys[] = {"if", "dependentRequired", "dependentSchemas",
                                       "dependencies"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i], key) == 0) return true;
    return strcmp(key, "not") == 0 && !schema_excludes_strings(s);
}

int schema_rewrite(struct schema_compiler *c, const cJSON *s, const cJSON **out) {
    const cJSON *v = cJSON_IsObject(s) ? s->child : NULL, *type = schema_get(s, "type");
    bool no_type = cJSON_IsArray(type) && !type->child; // where types that exclude each other met
    *out = no_type ? &schema_never : s;
    if (no_type) return 0;
    while (v && !is_rewritten(s, v->string)) v = v->next;
    if (!v) return 0;
    cJSON *copy = cJSON_Duplicate(s, true);
    if (!copy) return schema_no_memory(c, v->string);
    TRY(schema_own(c, copy));
    cJSON *all = cJSON_GetObjectItemCaseSensitive(copy, "allOf");
    if (all && !cJSON_IsArray(all))
        return schema_refuse(c, E_INVAL, "allOf", "it must be a list of schemas");
    if (!all) all = cJSON_AddArrayToObject(copy, "allOf");
    if (!all) return schema_no_memory(c, v->string);
    for (v = s->child; v; v = v->next) {
        if (!is_rewritten(s, v->string)) continue;
        TRY(add_keyword(c, all, s, v));
        cJSON_DeleteItemFromObjectCaseSensitive(copy, v->string);
    }
    cJSON_DeleteItemFromObjectCaseSensitive(copy, "then");
    cJSON_DeleteItemFromObjectCaseSensitive(copy, "else");
    if (!all->child) cJSON_DeleteItemFromObjectCaseSensitive(copy, "allOf");
    *out = copy;
    return 0;
}
