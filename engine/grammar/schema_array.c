// Arrays of a JSON schema: a chain of elements, or a grid of states where `contains` counts elements or uniqueItems
// must know which values are taken.
#include "engine/grammar/schema.h"
#include <stdlib.h>
#include <string.h>

enum { ARRAY_MAX_STATES = 40000, UNIQUE_ANY_ORDER = 10, UNIQUE_MAX_VALUES = 1000 };

struct array {
    const cJSON *prefix, *items;
    int64_t min, max;      // max -1: no bound
    const cJSON *contains; // NULL: none
    int64_t least, most;   // elements that match `contains`; most -1: no bound
};

static int merged(struct schema_compiler *c, const cJSON *a, const cJSON *b, const cJSON **out) {
    cJSON *both;
    TRY(schema_merge(c, a, b, &both));
    *out = both;
    return schema_own(c, both);
}

static int element(struct schema_compiler *c, const cJSON *schema, const char *key, int index,
                   bool first, int32_t *rule) {
    struct net *n = c->net;
    int inner = schema_rule_of(c, schema, key, index);
    if (inner < 0) return inner;
    *rule = net_rule_new(n, NULL, 0);
    if (net_failed(n)) return 0;
    int32_t at = n->rules[*rule].start;
    if (!first) at = schema_comma(c, at);
    net_call(n, at, inner, n->rules[*rule].end);
    return 0;
}

// A chain of elements; where enough of them have come it may end.
static int emit_elements(struct schema_compiler *c, const struct array *a, int32_t from,
                         int32_t end) {
    struct net *n = c->net;
    int64_t i = 0;
    const cJSON *p = a->prefix ? a->prefix->child : NULL;
    int32_t rule, at = from;
    for (; p && (a->max < 0 || i < a->max); p = p->next, i++) {
        if (i >= a->min) net_empty(n, at, end);
        TRY(element(c, p, "prefixItems", (int)i, i == 0, &rule));
        int32_t next = net_state_new(n);
        net_call(n, at, rule, next);
        at = next;
    }
    if (p || cJSON_IsFalse(a->items) || i == a->max) {
        if (i >= a->min) net_empty(n, at, end);
        return 0;
    }
    if (i == 0) {
        if (a->min == 0) net_empty(n, at, end);
        TRY(element(c, a->items, "items", -1, true, &rule));
        int32_t next = net_state_new(n);
        net_call(n, at, rule, next);
        at = next;
        i = 1;
    }
    TRY(element(c, a->items, "items", -1, false, &rule));
    net_repeat(n, at, rule, schema_max(a->min - i, 0), a->max < 0 ? -1 : a->max - i, end);
    return 0;
}

// --- contains ------------------------------------------------------------------------------------

// Rules of an element that may be anything, or does not match where matches are bounded; and of one that matches.
static int element_pair(struct schema_compiler *c, const struct array *a, const cJSON *schema,
                        const char *key, int index, bool first, int32_t *rules) {
    const cJSON *plain = schema, *matching;
    cJSON *opposite;
    TRY(merged(c, schema, a->contains, &matching));
    if (a->most >= 0) {
        TRY(schema_negate(c, a->contains, &opposite));
        TRY(schema_own(c, opposite));
        TRY(merged(c, schema, opposite, &plain));
    }
    TRY(element(c, plain, key, index, first, &rules[0]));
    return element(c, matching, "contains", -1, first, &rules[1]);
}

// states (rows + 1, cap + 1): behind so many elements, of which so many match. The last row repeats if there is no
// bound.
struct counted {
    int32_t *states;
    int64_t rows, cap;
};

static void emit_row(struct schema_compiler *c, const struct array *a, const struct counted *g,
                     int64_t row, const int32_t *rules) {
    const int32_t *at = g->states + row * (g->cap + 1);
    const int32_t *next = row < g->rows ? at + g->cap + 1 : at;
    for (int64_t k = 0; k <= g->cap; k++) {
        net_call(c->net, at[k], rules[0], next[k]);
        if (k < g->cap) net_call(c->net, at[k], rules[1], next[k + 1]);
    }
}

static int emit_rows(struct schema_compiler *c, const struct array *a, const struct counted *g,
                     int32_t end) {
    const cJSON *p = a->prefix ? a->prefix->child : NULL;
    int32_t rules[2], others[2] = {-1, -1};
    for (int64_t row = 0; row <= g->rows && !net_failed(c->net); row++) {
        for (int64_t k = a->least; k <= g->cap && row >= a->min; k++)
            net_empty(c->net, g->states[row * (g->cap + 1) + k], end);
        if (row == g->rows && a->max >= 0) break;
        if (p || row == 0) {
            TRY(element_pair(c, a, p ? p : a->items, p ? "prefixItems" : "items", p ? (int)row : -1,
                             row == 0, rules));
        } else if (others[0] < 0) {
            TRY(element_pair(c, a, a->items, "items", -1, false, others));
        }
        emit_row(c, a, g, row, p || row == 0 ? rules : others);
        p = p ? p->next : NULL;
    }
    return 0;
}

static int emit_counted(struct schema_compiler *c, const struct array *a, int32_t from,
                        int32_t end) {
    int64_t n_prefix = a->prefix ? cJSON_GetArraySize(a->prefix) : 0;
    struct counted g = {.rows = a->max >= 0 ? a->max : schema_max(schema_max(a->min, n_prefix), 1),
                        .cap = a->most >= 0 ? a->most : a->least};
    if ((g.rows + 1) * (g.cap + 1) > ARRAY_MAX_STATES)
        return schema_refuse(c, E_UNSUPPORTED, "contains", "it takes too many states");
    int64_t n = (g.rows + 1) * (g.cap + 1);
    g.states = malloc((size_t)n * sizeof *g.states);
    if (!g.states) return schema_no_memory(c, "contains");
    for (int64_t i = 0; i < n; i++) g.states[i] = net_state_new(c->net);
    net_empty(c->net, from, g.states[0]);
    int rc = emit_rows(c, a, &g, end);
    free(g.states);
    return rc;
}

static int read_contains(struct schema_compiler *c, const cJSON *s, struct array *a) {
    a->contains = schema_get(s, "contains");
    if (!a->contains) return 0;
    TRY(schema_count(c, s, "minContains", 1, &a->least));
    TRY(schema_count(c, s, "maxContains", -1, &a->most));
    if (a->least == 0 && a->most < 0) a->contains = NULL;
    return 0;
}

// --- unique elements -----------------------------------------------------------------------------

static int add_value(struct schema_compiler *c, cJSON *values, const cJSON *v) {
    const cJSON *known;
    cJSON_ArrayForEach(known, values) if (cJSON_Compare(known, v, true)) return 0;
    if (cJSON_GetArraySize(values) == UNIQUE_MAX_VALUES)
        return schema_refuse(c, E_UNSUPPORTED, "uniqueItems", "so many values are not supported");
    cJSON *copy = cJSON_Duplicate(v, true);
    if (copy && cJSON_AddItemToArray(values, copy)) return 0;
    return schema_no_memory(c, "uniqueItems");
}

static int add_integers(struct schema_compiler *c, cJSON *values, const cJSON *s) {
    const cJSON *lo = schema_get(s, "minimum"), *hi = schema_get(s, "maximum");
    if (!cJSON_IsNumber(lo) || !cJSON_IsNumber(hi) ||
        hi->valuedouble - lo->valuedouble > UNIQUE_MAX_VALUES)
        return 1;
    for (double v = lo->valuedouble; v <= hi->valuedouble; v++) {
        const cJSON one = {.type = cJSON_Number, .valuedouble = v, .valueint = (int)v};
        if (v == (double)(int64_t)v) TRY(add_value(c, values, &one));
    }
    return 0;
}

// All values that may match the schema. 1: they cannot be listed.
static int list_values(struct schema_compiler *c, cJSON *values, const cJSON *s, int depth) {
    static const cJSON simple[] = {
        {.type = cJSON_False}, {.type = cJSON_True}, {.type = cJSON_NULL}};
    const cJSON *item;
    if (depth > 8) return 1;
    TRY(schema_flatten(c, s, &s));
    const cJSON *one = schema_get(s, "const"), *list = schema_get(s, "enum");
    if (one) return add_value(c, values, one);
    if (cJSON_IsArray(list)) {
        cJSON_ArrayForEach(item, list) TRY(add_value(c, values, item));
        return 0;
    }
    list = schema_get(s, "anyOf") ? schema_get(s, "anyOf") : schema_get(s, "oneOf");
    if (list) {
        int rc = 0;
        cJSON_ArrayForEach(item, list) if (rc == 0) rc = list_values(c, values, item, depth + 1);
        return rc;
    }
    const cJSON *type = schema_get(s, "type");
    if (!cJSON_IsString(type)) return 1;
    if (strcmp(type->valuestring, "integer") == 0) return add_integers(c, values, s);
    if (strcmp(type->valuestring, "null") == 0) return add_value(c, values, &simple[2]);
    if (strcmp(type->valuestring, "boolean") != 0) return 1;
    TRY(add_value(c, values, &simple[0]));
    return add_value(c, values, &simple[1]);
}

static int value_rules(struct schema_compiler *c, const struct array *a, const cJSON *value,
                       int32_t *rules) {
    const cJSON *schema;
    cJSON *one = schema_with("const", value);
    if (!one) return schema_no_memory(c, "uniqueItems");
    TRY(schema_own(c, one));
    TRY(merged(c, a->items, one, &schema));
    TRY(element(c, schema, "items", -1, true, &rules[0]));
    return element(c, schema, "items", -1, false, &rules[1]);
}

static int count_bits(unsigned mask) {
    int n = 0;
    for (; mask; mask &= mask - 1) n++;
    return n;
}

// A state for each set of values taken.
static void emit_sets(struct net *n, const struct array *a, int n_values, const int32_t *rules,
                      int32_t from, int32_t end) {
    int32_t states[1 << UNIQUE_ANY_ORDER];
    for (unsigned set = 0; set < 1u << n_values; set++) states[set] = set ? net_state_new(n) : from;
    for (unsigned set = 0; set < 1u << n_values; set++) {
        int64_t taken = count_bits(set);
        if (taken >= a->min && (a->max < 0 || taken <= a->max)) net_empty(n, states[set], end);
        for (int i = 0; i < n_values && taken != a->max; i++)
            if (!(set >> i & 1))
                net_call(n, states[set], rules[2 * i + (set != 0)], states[set | 1u << i]);
    }
}

// Values in the schema's order: at each one, a state for the number taken before.
static int emit_ordered(struct schema_compiler *c, const struct array *a, int n_values,
                        const int32_t *rules, int32_t from, int32_t end) {
    struct net *n = c->net;
    int64_t cap = schema_max(1, schema_max(a->min, a->max)); // counts above it are equal to it
    if ((n_values + 1) * (cap + 1) > ARRAY_MAX_STATES)
        return schema_refuse(c, E_UNSUPPORTED, "uniqueItems", "it takes too many states");
    int32_t *row = calloc((size_t)(2 * (cap + 1)), sizeof *row);
    if (!row) return schema_no_memory(c, "uniqueItems");
    int32_t *next = row + cap + 1;
    for (int64_t k = 0; k <= cap; k++) row[k] = k ? net_state_new(n) : from;
    for (int i = 0; i < n_values && !net_failed(n); i++) {
        for (int64_t k = 0; k <= cap; k++) next[k] = net_state_new(n);
        for (int64_t k = 0; k <= cap; k++) {
            net_empty(n, row[k], next[k]);
            if (k != a->max) net_call(n, row[k], rules[2 * i + (k > 0)], next[k < cap ? k + 1 : k]);
        }
        memcpy(row, next, (size_t)(cap + 1) * sizeof *row);
    }
    for (int64_t k = a->min; k <= cap; k++) net_empty(n, row[k], end);
    free(row);
    return 0;
}

static int emit_values(struct schema_compiler *c, const struct array *a, const cJSON *values,
                       int32_t from, int32_t end) {
    int n_values = cJSON_GetArraySize(values), i = 0;
    const cJSON *v;
    if (a->min > n_values) return 0;
    int32_t *rules = calloc((size_t)n_values + 1, 2 * sizeof *rules);
    int rc = rules ? 0 : schema_no_memory(c, "uniqueItems");
    cJSON_ArrayForEach(v, values) if (rc == 0) rc = value_rules(c, a, v, rules + 2 * i++);
    if (rc == 0 && n_values <= UNIQUE_ANY_ORDER && !net_failed(c->net))
        emit_sets(c->net, a, n_values, rules, from, end);
    else if (rc == 0)
        rc = emit_ordered(c, a, n_values, rules, from, end);
    free(rules);
    return rc;
}

static int emit_unique(struct schema_compiler *c, const struct array *a, int32_t from,
                       int32_t end) {
    cJSON *values = cJSON_CreateArray();
    int rc = values ? 0 : schema_no_memory(c, "uniqueItems");
    if (rc == 0) rc = a->prefix || a->contains ? 1 : list_values(c, values, a->items, 0);
    if (rc == 0) rc = emit_values(c, a, values, from, end);
    cJSON_Delete(values);
    if (rc != 1) return rc;
    return schema_refuse(c, E_UNSUPPORTED, "uniqueItems",
                         "it is supported where the items have few values (enum, const, boolean, "
                         "a range of integers), and with a maxItems of 1");
}

// --- arrays --------------------------------------------------------------------------------------

int schema_emit_array(struct schema_compiler *c, const cJSON *s, int32_t from, int32_t to) {
    struct array a = {.prefix = schema_get(s, "prefixItems"), .items = schema_get(s, "items")};
    if (a.prefix && !cJSON_IsArray(a.prefix))
        return schema_refuse(c, E_INVAL, "prefixItems", "it must be a list of schemas");
    if (cJSON_IsArray(a.items)) { // as prefixItems was called before 2020-12
        if (a.prefix) return schema_refuse(c, E_INVAL, "items", "it must be a schema");
        a.prefix = a.items;
        a.items = schema_get(s, "additionalItems");
    }
    if (!a.items) a.items = &schema_always;
    TRY(schema_count(c, s, "minItems", 0, &a.min));
    TRY(schema_count(c, s, "maxItems", -1, &a.max));
    TRY(read_contains(c, s, &a));
    if (a.max >= 0 && a.min > a.max) return 0;
    struct schema_inside inside = schema_enclose(c, "[]", from, to);
    if (cJSON_IsTrue(schema_get(s, "uniqueItems")) && (a.max < 0 || a.max > 1))
        return emit_unique(c, &a, inside.from, inside.to);
    if (a.contains) return emit_counted(c, &a, inside.from, inside.to);
    return emit_elements(c, &a, inside.from, inside.to);
}
