// See schema_keys.h.
#include "engine/grammar/schema_keys.h"
#include "engine/grammar/chars.h"
#include "engine/grammar/regex.h"
#include <stdlib.h>
#include <string.h>

enum { NAMES_MAX_DEPTH = 8 };

// --- parts ---------------------------------------------------------------------------------------

static struct net *new_part(struct schema_keys *k) {
    struct net *n = &k->parts[k->n++];
    net_begin(n);
    return n;
}

static int check_room(const struct schema_keys *k, struct schema_compiler *c, const char *key) {
    if (k->n < PRODUCT_MAX_PARTS - 1) return 0; // the names need one
    return schema_refuse(c, E_UNSUPPORTED, key, "too many of them");
}

static int finish_part(struct net *n, struct schema_compiler *c, const char *key) {
    struct err why = {0};
    int rc = net_finish(n, NULL, &why);
    return rc < 0 ? schema_refuse(c, rc, key, why.text) : 0;
}

static int emit_any_text(struct net *n, struct schema_compiler *c) {
    static struct char_range everything = {0, CHAR_MAX_CODE};
    const struct char_set set = {.ranges = &everything, .n = 1};
    net_begin(n);
    if (net_failed(n)) return finish_part(n, c, NULL);
    int32_t loop = net_state_new(n);
    net_empty(n, n->rules[n->root].start, loop);
    chars_emit(n, loop, &set, CHARS_JSON, loop);
    net_empty(n, loop, n->rules[n->root].end);
    return finish_part(n, c, NULL);
}

// --- propertyNames -------------------------------------------------------------------------------

// Strings among the values of enum, or the const.
static void emit_listed(struct schema_compiler *c, const cJSON *s, int32_t from, int32_t to) {
    const cJSON *one = schema_get(s, "const"), *list = schema_get(s, "enum"), *v;
    for (v = one ? one : list->child; v; v = one ? NULL : v->next) {
        if (cJSON_IsString(v))
            chars_emit_text(c->net, from, v->valuestring, strlen(v->valuestring), CHARS_JSON, to);
    }
}

static int emit_names(struct schema_compiler *c, const cJSON *s, int depth, int32_t from,
                      int32_t to);

static int emit_branches(struct schema_compiler *c, const cJSON *s, const char *key, int depth,
                         int32_t from, int32_t to) {
    const cJSON *rest, *a;
    cJSON *merged;
    TRY(schema_without(c, s, key, &rest));
    cJSON_ArrayForEach(a, schema_get(s, key)) {
        TRY(schema_merge(c, rest, a, &merged)); // the rest has a type
        TRY(schema_own(c, merged));
        TRY(emit_names(c, merged, depth + 1, from, to));
    }
    return 0;
}

static int check_names(struct schema_compiler *c, const cJSON *s, int depth) {
    bool values = schema_get(s, "const") || schema_get(s, "enum");
    bool content = schema_get(s, "pattern") || schema_get(s, "format") || schema_get(s, "not") ||
                   schema_get(s, "minLength") || schema_get(s, "maxLength");
    if (depth < NAMES_MAX_DEPTH && !schema_get(s, "oneOf") && !schema_get(s, "$dynamicRef") &&
        !(values && content) && (!schema_get(s, "not") || schema_excludes_strings(s)))
        return 0;
    return schema_refuse(c, E_UNSUPPORTED, "propertyNames",
                         "only the keywords of a string, enum or const without others, anyOf, "
                         "allOf, $ref and simple kinds of not are supported in it");
}

// The characters of names that match the schema, whose type is string.
static int emit_names(struct schema_compiler *c, const cJSON *s, int depth, int32_t from,
                      int32_t to) {
    TRY(schema_rewrite(c, s, &s));
    TRY(schema_flatten(c, s, &s));
    if (!cJSON_IsObject(s)) return 0; // false
    if (!(schema_kinds(schema_get(s, "type")) & TYPE_STRING)) return 0;
    if (cJSON_IsArray(schema_get(s, "anyOf"))) return emit_branches(c, s, "anyOf", depth, from, to);
    TRY(check_names(c, s, depth));
    if (!schema_get(s, "const") && !cJSON_IsArray(schema_get(s, "enum")))
        return schema_emit_content(c, s, from, to);
    emit_listed(c, s, from, to);
    return 0;
}

static int read_names(struct schema_keys *k, struct schema_compiler *c, const cJSON *names) {
    struct err why = {0};
    cJSON *merged, *string = cJSON_CreateObject();
    if (!string || !cJSON_AddStringToObject(string, "type", "string")) {
        cJSON_Delete(string);
        return schema_no_memory(c, "propertyNames");
    }
    TRY(schema_own(c, string));
    TRY(schema_merge(c, string, names, &merged));
    TRY(schema_own(c, merged));
    struct schema_compiler aside = schema_aside(c, &k->parts[k->n++]);
    struct net *n = aside.net;
    k->n_limits++;
    int rc = 0;
    if (!net_failed(n))
        rc = emit_names(&aside, merged, 0, n->rules[n->root].start, n->rules[n->root].end);
    c->n_made = aside.n_made;
    TRY(rc);
    rc = net_finish(n, NULL, &why);
    k->none = n->matches_nothing;
    return rc < 0 && !k->none ? schema_refuse(c, rc, "propertyNames", why.text) : 0;
}

// --- patterns ------------------------------------------------------------------------------------

static int add_pattern(struct schema_keys *k, struct schema_compiler *c, const char *pattern) {
    struct regex *r;
    struct err why = {0};
    TRY(check_room(k, c, "patternProperties"));
    int rc = regex_parse(&r, pattern, strlen(pattern), true, &why);
    if (rc < 0) return schema_refuse(c, rc, "patternProperties", why.text);
    struct net *n = new_part(k);
    if (!net_failed(n))
        regex_emit(r, n, n->rules[n->root].start, CHARS_JSON, n->rules[n->root].end);
    regex_free(r);
    return finish_part(n, c, "patternProperties");
}

int schema_keys_read(struct schema_keys *k, struct schema_compiler *c, const cJSON *schema) {
    const cJSON *p;
    k->patterns = schema_get(schema, "patternProperties");
    if (k->patterns && !cJSON_IsObject(k->patterns))
        return schema_refuse(c, E_INVAL, "patternProperties", "it must be an object");
    k->n = 1; // any text and the names are written where keys are emitted
    const cJSON *names = schema_get(schema, "propertyNames");
    if (names && !cJSON_IsTrue(names)) TRY(read_names(k, c, names));
    k->n++;
    cJSON_ArrayForEach(p, k->patterns) TRY(add_pattern(k, c, p->string));
    return 0;
}

void schema_keys_release(struct schema_keys *k) {
    for (int i = 0; i < k->n; i++) net_release(&k->parts[i]);
}

// --- listed names --------------------------------------------------------------------------------

// The name as it is inside of a key's quotes; NULL: no memory.
static char *written(const char *name) {
    cJSON *v = cJSON_CreateString(name);
    char *text = v ? cJSON_PrintUnformatted(v) : NULL;
    size_t len = text ? strlen(text) : 0;
    cJSON_Delete(v);
    if (!text) return NULL;
    memmove(text, text + 1, len - 2);
    text[len - 2] = 0;
    return text;
}

static int add_schema(struct schema_compiler *c, const cJSON *more, const cJSON **schema) {
    cJSON *merged;
    if (!*schema) {
        *schema = more;
        return 0;
    }
    TRY(schema_merge(c, *schema, more, &merged));
    TRY(schema_own(c, merged));
    *schema = merged;
    return 0;
}

static int value_of(struct schema_keys *k, struct schema_compiler *c, const char *text,
                    const cJSON **schema) {
    const cJSON *p;
    int i = 1, is;
    for (; i <= k->n_limits; i++) {
        TRY(is = schema_matches(&k->parts[i], text, c->err));
        if (is == 0) *schema = &schema_never;
        if (is == 0) return 0;
    }
    cJSON_ArrayForEach(p, k->patterns) {
        TRY(is = schema_matches(&k->parts[++i], text, c->err));
        if (is == 1) TRY(add_schema(c, p, schema));
    }
    return 0;
}

int schema_keys_value(struct schema_keys *k, struct schema_compiler *c, const char *name,
                      const cJSON **schema) {
    if (k->none) *schema = &schema_never;
    if (k->none || k->n == 2) return 0; // nothing is asserted
    char *text = written(name);
    if (!text) return schema_no_memory(c, NULL);
    int rc = value_of(k, c, text, schema);
    free(text);
    return rc;
}

// --- other names ---------------------------------------------------------------------------------

static void add_names(struct net *n, const char *const *names, int n_names) {
    net_begin(n);
    if (net_failed(n)) return;
    int32_t start = n->rules[n->root].start, end = n->rules[n->root].end;
    if (n_names == 0) net_byte_range(n, start, 0, 0, end); // a byte that no text has
    for (int i = 0; i < n_names; i++)
        chars_emit_text(n, start, names[i], strlen(names[i]), CHARS_JSON, end);
}

static int32_t key_target(void *ctx, uint32_t matched) {
    struct schema_keys *k = ctx;
    uint32_t needed = (2u << k->n_limits) - 1, names = needed + 1;
    uint32_t patterns = matched >> (k->n_limits + 2);
    if ((matched & needed) != needed || matched & names) return -1;
    if (patterns & (patterns - 1)) { // two at once
        k->ambiguous = true;
        return -1;
    }
    int i = 0;
    while (patterns >> i > 1) i++;
    return k->targets[patterns ? i + 1 : 0];
}

int schema_keys_emit(struct schema_keys *k, struct schema_compiler *c, const char *const *names,
                     int n_names, int32_t from) {
    struct err why = {0};
    struct net *listed = &k->parts[k->n_limits + 1];
    TRY(emit_any_text(&k->parts[0], c));
    add_names(listed, names, n_names);
    TRY(finish_part(listed, c, "properties"));
    int rc = product_emit(c->net, from, k->parts, k->n, k->n_limits + 1, key_target, k, &why);
    if (rc < 0) return schema_refuse(c, rc, "patternProperties", why.text);
    if (!k->ambiguous) return 0;
    return schema_refuse(c, E_UNSUPPORTED, "patternProperties",
                         "patterns that match the same name are not supported");
}
