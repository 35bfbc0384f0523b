// Objects of a JSON schema.
//
// Properties are written in the schema's order, then required ones that `properties` does not list, then all
// others. A member is a rule. A state knows how many members came before, as far as commas, minProperties and
// maxProperties need the number.
#include "engine/grammar/chars.h"
#include "engine/grammar/schema_keys.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OBJECT_MAX_STATES = 40000 };

struct object {
    struct schema_compiler *c;
    const cJSON *schema;
    const char **names; // (n) declared and required
    const cJSON **schemas;
    int *members; // rules
    bool *required;
    int n;
    const cJSON *patterns, *additional; // NULL: none
    struct schema_keys *keys;
    int further; // the rule of a further member; -1: none
};

// --- members -------------------------------------------------------------------------------------

static int32_t rule_new(struct net *n) {
    return net_rule_new(n, NULL, 0);
}

// ": value" behind a key.
static int emit_value(struct object *o, const cJSON *schema, const char *key, int32_t from,
                      int32_t to) {
    struct net *n = o->c->net;
    int rule = schema_rule_of(o->c, schema, key, -1);
    if (rule < 0) return rule;
    net_call(n, schema_colon(o->c, from), rule, to);
    return 0;
}

static int member(struct object *o, int i) {
    struct net *n = o->c->net;
    char key[128];
    snprintf(key, sizeof key, "properties/%.100s", o->names[i]);
    int32_t rule = o->members[i] = rule_new(n);
    int32_t inside = net_state_new(n), end = net_state_new(n), behind = net_state_new(n);
    if (net_failed(n)) return 0;
    net_byte_range(n, n->rules[rule].start, '"', '"', inside);
    chars_emit_text(n, inside, o->names[i], strlen(o->names[i]), CHARS_JSON, end);
    net_byte_range(n, end, '"', '"', behind);
    return emit_value(o, o->schemas[i], key, behind, n->rules[rule].end);
}

// --- further members -----------------------------------------------------------------------------

// Behind the key of a pattern, or of none (i = 0), its value.
static int further_value(struct object *o, const cJSON *schema, int i, int32_t end) {
    struct net *n = o->c->net;
    int32_t quote = net_state_new(n), behind = net_state_new(n);
    net_byte_range(n, quote, '"', '"', behind);
    o->keys->targets[i] = quote;
    return emit_value(o, schema, i == 0 ? "additionalProperties" : "patternProperties", behind,
                      end);
}

static int further_member(struct object *o) {
    struct net *n = o->c->net;
    const cJSON *p;
    int i = 1;
    int32_t rule = o->further = rule_new(n), inside = net_state_new(n);
    if (net_failed(n)) return 0;
    net_byte_range(n, n->rules[rule].start, '"', '"', inside);
    int32_t end = n->rules[rule].end;
    for (int k = 0; k < PRODUCT_MAX_PARTS; k++) o->keys->targets[k] = -1;
    if (o->additional) TRY(further_value(o, o->additional, 0, end));
    cJSON_ArrayForEach(p, o->patterns) TRY(further_value(o, p, i++, end));
    return schema_keys_emit(o->keys, o->c, o->names, o->n, inside);
}

// --- the sequence of members ---------------------------------------------------------------------

struct grid { // states [member][how many came before]; the last row is behind all named members
    int32_t *at;
    int64_t cap; // counts above it are equal to it
};

static int32_t grid_at(const struct grid *g, int row, int64_t count) {
    return g->at[(int64_t)row * (g->cap + 1) + (count > g->cap ? g->cap : count)];
}

static void add_member(struct object *o, int32_t rule, int32_t from, bool first, int32_t to) {
    net_call(o->c->net, first ? from : schema_comma(o->c, from), rule, to);
}

// Further members behind `count` named ones. The first counts for minProperties; others may have its name.
static void emit_further(struct object *o, const struct grid *g, int64_t min, int64_t max,
                         int32_t end) {
    struct net *n = o->c->net;
    int64_t most = max < 0 ? g->cap + 1 : max;
    int32_t *states = calloc((size_t)most + 2, sizeof *states); // by the count of all members
    if (!states) {
        net_fail(n, E_NOMEM, "no memory to compile it");
        return;
    }
    for (int64_t i = 0; i <= most; i++) {
        states[i] = net_state_new(n);
        net_empty(n, states[i], end);
    }
    for (int64_t i = 1; i <= most; i++) {
        if (i < most) add_member(o, o->further, states[i], false, states[i + 1]);
        if (i == most && max < 0) add_member(o, o->further, states[i], false, states[i]);
    }
    for (int64_t count = 0; count <= g->cap; count++)
        if (count + 1 >= min && count < most)
            add_member(o, o->further, grid_at(g, o->n, count), count == 0, states[count + 1]);
    free(states);
}

static void emit_grid(struct object *o, struct grid *g, int64_t min, int64_t max, int32_t end) {
    struct net *n = o->c->net;
    for (int i = 0; i < o->n && !net_failed(n); i++)
        for (int64_t count = 0; count <= g->cap; count++) {
            int32_t from = grid_at(g, i, count);
            if (!o->required[i]) net_empty(n, from, grid_at(g, i + 1, count));
            if (max < 0 || count < max)
                add_member(o, o->members[i], from, count == 0, grid_at(g, i + 1, count + 1));
        }
    for (int64_t count = 0; count <= g->cap; count++)
        if (count >= min) net_empty(n, grid_at(g, o->n, count), end);
    if (o->further >= 0) emit_further(o, g, min, max, end);
}

static int emit_members(struct object *o, int32_t from, int32_t end) {
    struct schema_compiler *c = o->c;
    int64_t min, max, total = o->n;
    TRY(schema_count(c, o->schema, "minProperties", 0, &min));
    TRY(schema_count(c, o->schema, "maxProperties", -1, &max));
    if (min > total + 1 && o->further >= 0)
        return schema_refuse(c, E_UNSUPPORTED, "minProperties",
                             "more than one property without a name is not supported");
    if (o->further < 0 && max > total) max = -1;
    struct grid g = {.cap = schema_max(1, schema_max(min, max))};
    int64_t n_states = (total + 1) * (g.cap + 1);
    if (n_states > OBJECT_MAX_STATES)
        return schema_refuse(c, E_UNSUPPORTED, "maxProperties", "it takes too many states");
    g.at = malloc((size_t)n_states * sizeof *g.at);
    if (!g.at) return schema_no_memory(c, NULL);
    for (int64_t i = 0; i < n_states; i++) g.at[i] = net_state_new(c->net);
    net_empty(c->net, from, grid_at(&g, 0, 0));
    emit_grid(o, &g, min, max, end);
    free(g.at);
    return 0;
}

// --- reading an object ---------------------------------------------------------------------------

static int find_name(const struct object *o, const char *name) {
    for (int i = 0; i < o->n; i++)
        if (strcmp(o->names[i], name) == 0) return i;
    return -1;
}

// schema NULL: `properties` does not list the name.
static int add_name(struct object *o, const char *name, const cJSON *schema, bool required) {
    const cJSON *additional = schema_get(o->schema, "additionalProperties");
    TRY(schema_keys_value(o->keys, o->c, name, &schema));
    if (!schema) schema = additional ? additional : &schema_always;
    o->names[o->n] = name;
    o->schemas[o->n] = schema;
    o->required[o->n++] = required;
    return 0;
}

static int read_names(struct object *o) {
    const cJSON *properties = schema_get(o->schema, "properties"), *p;
    const cJSON *required = schema_get(o->schema, "required");
    if (properties && !cJSON_IsObject(properties))
        return schema_refuse(o->c, E_INVAL, "properties", "it must be an object");
    if (required && !cJSON_IsArray(required))
        return schema_refuse(o->c, E_INVAL, "required", "it must be a list of names");
    size_t most = 1 + (size_t)(properties ? cJSON_GetArraySize(properties) : 0) +
                  (size_t)(required ? cJSON_GetArraySize(required) : 0);
    o->names = calloc(most, sizeof *o->names);
    o->schemas = calloc(most, sizeof *o->schemas);
    o->members = calloc(most, sizeof *o->members);
    o->required = calloc(most, sizeof *o->required);
    if (!o->names || !o->schemas || !o->members || !o->required)
        return schema_no_memory(o->c, NULL);
    cJSON_ArrayForEach(p, properties) TRY(add_name(o, p->string, p, false));
    cJSON_ArrayForEach(p, required) {
        if (!cJSON_IsString(p))
            return schema_refuse(o->c, E_INVAL, "required", "a name is no text");
        int i = find_name(o, p->valuestring);
        if (i >= 0) {
            o->required[i] = true;
            continue;
        }
        TRY(add_name(o, p->valuestring, NULL, true));
    }
    return 0;
}

static int read_object(struct object *o) {
    const cJSON *additional = schema_get(o->schema, "additionalProperties");
    o->patterns = schema_get(o->schema, "patternProperties");
    TRY(schema_keys_read(o->keys, o->c, o->schema));
    // Without a word on further properties they are left out where others are described.
    bool described = schema_get(o->schema, "properties") || o->patterns;
    o->additional = additional ? additional : described ? NULL : &schema_always;
    if (o->additional && cJSON_IsFalse(o->additional)) o->additional = NULL;
    TRY(read_names(o));
    for (int i = 0; i < o->n && !net_failed(o->c->net); i++) TRY(member(o, i));
    int64_t max;
    TRY(schema_count(o->c, o->schema, "maxProperties", -1, &max));
    if ((o->additional || (o->patterns && o->patterns->child)) && max != 0 && !o->keys->none)
        return further_member(o);
    return 0;
}

int schema_emit_object(struct schema_compiler *c, const cJSON *s, int32_t from, int32_t to) {
    struct schema_keys *keys = calloc(1, sizeof *keys);
    struct object o = {.c = c, .schema = s, .keys = keys, .further = -1};
    if (!keys) return schema_no_memory(c, NULL);
    struct schema_inside inside = schema_enclose(c, "{}", from, to);
    int rc = read_object(&o);
    if (rc == 0 && !net_failed(c->net)) rc = emit_members(&o, inside.from, inside.to);
    schema_keys_release(keys);
    free(keys);
    free(o.names);
    free(o.schemas);
    free(o.members);
    free(o.required);
    return rc;
}
