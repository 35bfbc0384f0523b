// Functions that the parts of the JSON Schema compiler share: rules of schemas, references, errors. See schema.h.
#include "engine/grammar/machine.h"
#include "engine/grammar/schema.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCHEMA_MOST_COUNT = 100000, SCHEMA_PATH_MAX = 200, SCHEMA_MOST_MADE = 400000 };

// --- types ---------------------------------------------------------------------------------------

const char *const schema_type_words[SCHEMA_N_TYPES] = {"null",   "boolean", "object", "array",
                                                       "string", "number",  "integer"};

unsigned schema_type_names(const cJSON *type) {
    const cJSON *item;
    unsigned types = 0;
    for (int i = 0; i < SCHEMA_N_TYPES && cJSON_IsString(type); i++)
        if (strcmp(type->valuestring, schema_type_words[i]) == 0) types |= 1u << i;
    if (cJSON_IsArray(type)) cJSON_ArrayForEach(item, type) types |= schema_type_names(item);
    return types;
}

unsigned schema_kinds(const cJSON *type) {
    unsigned types = schema_type_names(type);
    return types & TYPE_INTEGER ? (types & TYPE_EVERY) | TYPE_NUMBER : types;
}

unsigned schema_type_of(const cJSON *v) {
    if (cJSON_IsNull(v)) return TYPE_NULL;
    if (cJSON_IsBool(v)) return TYPE_BOOLEAN;
    if (cJSON_IsObject(v)) return TYPE_OBJECT;
    if (cJSON_IsArray(v)) return TYPE_ARRAY;
    if (cJSON_IsString(v)) return TYPE_STRING;
    bool whole = v->valuedouble == (double)(int64_t)v->valuedouble;
    return whole ? TYPE_NUMBER | TYPE_INTEGER : TYPE_NUMBER;
}

// --- what the parts share ------------------------------------------------------------------------

const cJSON schema_always = {.type = cJSON_True};
const cJSON schema_never = {.type = cJSON_False};

const cJSON *schema_get(const cJSON *schema, const char *key) {
    return cJSON_IsObject(schema) ? cJSON_GetObjectItemCaseSensitive(schema, key) : NULL;
}

int schema_refuse(struct schema_compiler *c, int code, const char *key, const char *why) {
    return err_set(c->err, code, "#%s%s%s: %s", c->path, key ? "/" : "", key ? key : "", why);
}

int schema_no_memory(struct schema_compiler *c, const char *key) {
    return schema_refuse(c, E_NOMEM, key, "no memory");
}

int schema_count(struct schema_compiler *c, const cJSON *schema, const char *key, int64_t absent,
                 int64_t *out) {
    const cJSON *v = schema_get(schema, key);
    *out = absent;
    if (!v) return 0;
    if (!cJSON_IsNumber(v) || v->valuedouble < 0 ||
        v->valuedouble != (double)(int64_t)v->valuedouble)
        return schema_refuse(c, E_INVAL, key, "it must be a whole number, 0 or more");
    if (v->valuedouble > SCHEMA_MOST_COUNT)
        return schema_refuse(c, E_UNSUPPORTED, key, "more than 100000 is not supported");
    *out = (int64_t)v->valuedouble;
    return 0;
}

int schema_rule_of(struct schema_compiler *c, const cJSON *schema, const char *key, int index) {
    struct schema_rule *r = NULL;
    char path[SCHEMA_PATH_MAX + 160], number[16] = "";
    HASH_FIND_PTR(c->rules, &schema, r);
    if (r) return r->rule;
    if (index >= 0) snprintf(number, sizeof number, "/%d", index);
    snprintf(path, sizeof path, "%.*s%s%.120s%s", SCHEMA_PATH_MAX, c->path, key ? "/" : "",
             key ? key : "", number);
    r = calloc(1, sizeof *r);
    if (r) {
        r->schema = schema;
        r->path = strdup(path);
        r->rule = net_rule_new(c->net, path[0] ? path : "#", path[0] ? strlen(path) : 1);
        HASH_ADD_PTR(c->rules, schema, r);
    }
    if (r && r->path && hash_added(&r->hh)) return r->rule;
    if (r && !hash_added(&r->hh)) {
        free(r->path);
        free(r);
    }
    return schema_no_memory(c, key);
}

static int count_nodes(const cJSON *v) {
    const cJSON *child;
    int n = 1;
    cJSON_ArrayForEach(child, v) n += count_nodes(child);
    return n;
}

int schema_own(struct schema_compiler *c, cJSON *schema) {
    c->n_made += count_nodes(schema);
    if (c->n_made < SCHEMA_MOST_MADE && cJSON_AddItemToArray(c->made, schema)) return 0;
    cJSON_Delete(schema);
    return schema_refuse(c, E_LIMIT, NULL, "merging its schemas takes too many steps");
}

cJSON *schema_with(const char *key, const cJSON *value) {
    cJSON *o = cJSON_CreateObject(), *copy = o ? cJSON_Duplicate(value, true) : NULL;
    if (copy && cJSON_AddItemToObject(o, key, copy)) return o;
    cJSON_Delete(copy);
    cJSON_Delete(o);
    return NULL;
}

cJSON *schema_pair(const char *key, cJSON *a, cJSON *b) {
    cJSON *o = a && b ? cJSON_CreateObject() : NULL;
    cJSON *list = o ? cJSON_AddArrayToObject(o, key) : NULL;
    if (list) {
        cJSON_AddItemToArray(list, a);
        cJSON_AddItemToArray(list, b);
        return o;
    }
    cJSON_Delete(a);
    cJSON_Delete(b);
    cJSON_Delete(o);
    return NULL;
}

int schema_without(struct schema_compiler *c, const cJSON *s, const char *key, const cJSON **out) {
    static const char *const silent[] = {
        "$defs",    "definitions", "title",   "description", "$schema",  "$id",      "default",
        "examples", "$comment",    "$anchor", "deprecated",  "readOnly", "writeOnly"};
    cJSON *rest = cJSON_CreateObject();
    const cJSON *v;
    *out = NULL;
    if (!rest) return schema_no_memory(c, key);
    cJSON_ArrayForEach(v, s) {
        bool skip = strcmp(v->string, key) == 0;
        for (size_t i = 0; i < sizeof silent / sizeof *silent; i++)
            skip = skip || strcmp(v->string, silent[i]) == 0;
        cJSON *copy = skip ? NULL : cJSON_Duplicate(v, true);
        if (skip || (copy && cJSON_AddItemToObject(rest, v->string, copy))) continue;
        cJSON_Delete(copy);
        cJSON_Delete(rest);
        return schema_no_memory(c, key);
    }
    if (!rest->child) {
        cJSON_Delete(rest);
        return 0;
    }
    TRY(schema_own(c, rest));
    *out = rest;
    return 0;
}

void schema_space(struct schema_compiler *c, int32_t from, int32_t to) {
    struct net *n = c->net;
    if (c->comma) {
        net_empty(n, from, to);
        return;
    }
    if (c->space < 0) {
        c->space = net_rule_new(n, "white space", 11);
        int32_t indent = net_rule_new(n, "indentation", 11);
        if (net_failed(n)) return;
        int32_t start = n->rules[c->space].start, end = n->rules[c->space].end;
        int32_t line = net_state_new(n);
        net_byte_range(n, n->rules[indent].start, ' ', ' ', n->rules[indent].end);
        net_empty(n, start, end);
        net_byte_range(n, start, ' ', ' ', end);
        net_byte_range(n, start, '\n', '\n', line);
        net_repeat(n, line, indent, 0, 32, end);
    }
    net_call(n, from, c->space, to);
}

static int32_t separator(struct schema_compiler *c, int32_t from, char mark, const char *exact) {
    int32_t behind_mark = net_state_new(c->net), behind = net_state_new(c->net);
    if (exact) {
        net_text(c->net, from, exact, strlen(exact), behind);
        return behind;
    }
    net_byte_range(c->net, from, (uint8_t)mark, (uint8_t)mark, behind_mark);
    schema_space(c, behind_mark, behind);
    return behind;
}

int32_t schema_comma(struct schema_compiler *c, int32_t from) {
    return separator(c, from, ',', c->comma);
}

int32_t schema_colon(struct schema_compiler *c, int32_t from) {
    return separator(c, from, ':', c->colon);
}

struct schema_inside schema_enclose(struct schema_compiler *c, const char *brackets, int32_t from,
                                    int32_t to) {
    struct net *n = c->net;
    int32_t open = net_state_new(n), close = net_state_new(n);
    struct schema_inside inside = {.from = net_state_new(n), .to = net_state_new(n)};
    net_byte_range(n, from, (uint8_t)brackets[0], (uint8_t)brackets[0], open);
    schema_space(c, open, inside.from);
    schema_space(c, inside.to, close);
    net_byte_range(n, close, (uint8_t)brackets[1], (uint8_t)brackets[1], to);
    return inside;
}

struct schema_compiler schema_aside(const struct schema_compiler *c, struct net *net) {
    struct schema_compiler aside = *c;
    net_begin(net);
    aside.net = net;
    aside.rules = NULL;
    aside.space = aside.character = aside.string = aside.number = aside.integer = aside.any = -1;
    return aside;
}

int schema_matches(const struct net *n, const char *text, struct err *err) {
    struct machine m;
    TRY(machine_init(&m, n, err));
    int32_t at = machine_start(&m);
    for (; *text && at >= 0; text++) at = machine_step(&m, at, (uint8_t)*text);
    int is = at >= 0 && m.configs[at].accepts;
    machine_release(&m);
    return is;
}

// --- references ----------------------------------------------------------------------------------

// One step of a JSON pointer, percent and tilde escapes resolved. Returns what is behind it.
static const char *pointer_step(const char *at, char *out, size_t size) {
    size_t n = 0;
    for (; *at && *at != '/'; at++) {
        char ch = *at;
        if (ch == '~' && (at[1] == '0' || at[1] == '1'))
            ch = *++at == '0' ? '~' : '/';
        else if (ch == '%' && at[1] && at[2]) {
            char hex[3] = {at[1], at[2], 0};
            ch = (char)strtol(hex, NULL, 16);
            at += 2;
        }
        if (n + 1 < size) out[n++] = ch;
    }
    out[n] = 0;
    return at;
}

// The schema below `at` whose `key` is `name` ($anchor, $id). Values of enum and const are no schemas.
static const cJSON *find_named(const cJSON *at, const char *key, const char *name) {
    const cJSON *own = schema_get(at, key), *child;
    if (cJSON_IsString(own) && strcmp(own->valuestring, name) == 0) return at;
    cJSON_ArrayForEach(child, at) {
        bool value = child->string &&
                     (strcmp(child->string, "enum") == 0 || strcmp(child->string, "const") == 0);
        bool deeper = !value && (cJSON_IsObject(child) || cJSON_IsArray(child));
        const cJSON *found = deeper ? find_named(child, key, name) : NULL;
        if (found) return found;
    }
    return NULL;
}

int schema_resolve(struct schema_compiler *c, const char *ref, const cJSON **out) {
    const cJSON *at = c->root;
    char step[256];
    *out = NULL;
    if (ref[0] != '#') {
        at = find_named(c->root, "$id", ref);
        if (!at)
            return schema_refuse(c, E_UNSUPPORTED, "$ref",
                                 "only references within the schema are supported");
        ref = "#";
    } else if (ref[1] && ref[1] != '/') {
        at = find_named(c->root, "$anchor", ref + 1);
        ref = "#";
    }
    for (const char *p = ref + 1; at && *p == '/';) {
        p = pointer_step(p + 1, step, sizeof step);
        at = cJSON_IsArray(at) ? cJSON_GetArrayItem(at, atoi(step)) : schema_get(at, step);
    }
    if (!at) return schema_refuse(c, E_INVAL, "$ref", "there is no such schema");
    *out = at;
    return 0;
}
