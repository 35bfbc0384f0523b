// Tool calls in the form that a chat template writes them. A root schema with GRAMMAR_WRITTEN is a list of calls:
//
//   {"anyOf": [{"properties": {"name": {"const": ".."}, "arguments": SCHEMA}}, ..], "$written": FORM}
//   answer ::= open call (between call)* close                         at most CALLS_MAX calls
//   call   ::= NAME arguments                                          arguments as JSON: FORM has "arguments"
//            | NAME (empty | first member (next member)* last)         each argument on its own: FORM has "value"
//   member ::= KEY value VALUE
//
// The small words are texts of FORM. "open" is a list of texts, of which one is written. Without "between" there is one
// call. VALUE is JSON, except that a string stands without quotes and escapes and does not contain "stop".
#include "engine/grammar/chars.h"
#include "engine/grammar/schema.h"
#include "engine/grammar/text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STOP_MAX = 64,
    CALLS_MAX = 32
}; // bytes; calls of an answer, so that a weak model comes to an end

struct calls {
    struct schema_compiler *c;
    const cJSON *form;
};

static const char *text_of(const struct calls *k, const char *key) {
    return json_string(k->form, key);
}

static void put_text(const struct calls *k, const char *text, int32_t from, int32_t to) {
    chars_emit_text(k->c->net, from, text, strlen(text), CHARS_UTF8, to);
}

static void put(const struct calls *k, const char *key, int32_t from, int32_t to) {
    const char *text = text_of(k, key);
    put_text(k, text ? text : "", from, to);
}

// --- a string without quotes ---

// How many bytes of `stop` the text ends with after the byte c, if it ended with n before.
static size_t matched_after(const char *stop, size_t n, char c) {
    char text[STOP_MAX + 1];
    memcpy(text, stop, n);
    text[n++] = c;
    while (n > 0 && memcmp(stop, text, n) != 0) memmove(text, text + 1, --n);
    return n;
}

// Any text that does not contain `stop` (len): a state for each number of its bytes that the text ends with.
static void put_free_string(struct net *n, const char *stop, size_t len, int32_t from, int32_t to) {
    int32_t states[STOP_MAX];
    struct char_set own = {0}, others = {0};
    int rc = char_set_add(&own, 0, 0); // is in no string
    for (size_t i = 0; i < len && rc == 0; i++)
        rc = char_set_add(&own, (uint8_t)stop[i], (uint8_t)stop[i]);
    char_set_order(&own);
    if (rc == 0) rc = char_set_add_ranges(&others, own.ranges, own.n, true);
    char_set_order(&others);
    if (rc < 0) net_fail(n, E_NOMEM, "no memory to compile it");
    for (size_t i = 0; i < len; i++) {
        states[i] = i == 0 ? from : net_state_new(n);
        net_empty(n, states[i], to);
    }
    for (size_t i = 0; i < len && !net_failed(n); i++) {
        chars_emit(n, states[i], &others, CHARS_UTF8, states[0]);
        for (int32_t r = 0; r < own.n; r++)
            for (uint32_t ch = own.ranges[r].lo; ch <= own.ranges[r].hi; ch++) {
                const size_t next = matched_after(stop, i, (char)ch);
                if (ch > 0 && next < len)
                    net_byte_range(n, states[i], (uint8_t)ch, (uint8_t)ch, states[next]);
            }
    }
    char_set_release(&own);
    char_set_release(&others);
}

static int put_string(const struct calls *k, const cJSON *schema, int32_t from, int32_t to) {
    const cJSON *list = schema_get(schema, "enum"), *item;
    const char *stop = text_of(k, "stop");
    cJSON_ArrayForEach(item, list) if (cJSON_IsString(item))
        put_text(k, item->valuestring, from, to);
    if (list) return 0;
    struct net *n = k->c->net;
    const int32_t inside = net_state_new(n);
    net_empty(n, from, inside);
    put_free_string(n, stop, strlen(stop), inside, to);
    return 0;
}

// --- arguments ---

static bool is_string(const cJSON *schema) {
    const char *type = json_string(schema, "type");
    return type && strcmp(type, "string") == 0;
}

static int put_member(const struct calls *k, const cJSON *property, const char *path,
                      int32_t rule) {
    struct net *n = k->c->net;
    if (net_failed(n)) return 0;
    const int32_t key_end = net_state_new(n), value = net_state_new(n), end = n->rules[rule].end;
    put_text(k, property->string, n->rules[rule].start, key_end);
    put(k, "value", key_end, value);
    if (is_string(property)) return put_string(k, property, value, end);
    char place[160];
    snprintf(place, sizeof place, "%.80s/properties/%.60s", path, property->string);
    int of = schema_rule_of(k->c, property, place, -1);
    if (of < 0) return of;
    net_call(n, value, of, end);
    return 0;
}

static bool is_required(const cJSON *schema, const char *name) {
    const cJSON *item;
    cJSON_ArrayForEach(item, schema_get(schema, "required")) {
        const char *one = cJSON_GetStringValue(item);
        if (one && strcmp(one, name) == 0) return true;
    }
    return false;
}

// Members come in the schema's order. `none` and `some`: the states before a member, without and with earlier ones.
static int put_members(const struct calls *k, const cJSON *schema, const char *path, int32_t from,
                       int32_t to) {
    struct net *n = k->c->net;
    const cJSON *property;
    int32_t none = from, some = net_state_new(n);
    cJSON_ArrayForEach(property, schema_get(schema, "properties")) {
        const int32_t rule = net_rule_new(n, NULL, 0), first = net_state_new(n),
                      next = net_state_new(n), none_after = net_state_new(n),
                      some_after = net_state_new(n);
        TRY(put_member(k, property, path, rule));
        put(k, "first", none, first);
        net_call(n, first, rule, some_after);
        put(k, "next", some, next);
        net_call(n, next, rule, some_after);
        if (!is_required(schema, property->string)) {
            net_empty(n, none, none_after);
            net_empty(n, some, some_after);
        }
        none = none_after;
        some = some_after;
    }
    put(k, "empty", none, to);
    put(k, "last", some, to);
    return 0;
}

static int put_arguments(const struct calls *k, const cJSON *schema, int i, int32_t from,
                         int32_t to) {
    char path[64];
    snprintf(path, sizeof path, "anyOf/%d/properties/arguments", i);
    if (!text_of(k, "arguments")) return put_members(k, schema, path, from, to);
    struct net *n = k->c->net;
    const int32_t at = net_state_new(n);
    put(k, "arguments", from, at);
    int rule = schema_rule_of(k->c, schema, path, -1);
    if (rule < 0) return rule;
    net_call(n, at, rule, to);
    return 0;
}

// --- calls ---

static int put_call(const struct calls *k, int32_t rule) {
    struct net *n = k->c->net;
    const cJSON *call;
    int i = 0;
    cJSON_ArrayForEach(call, schema_get(k->c->root, "anyOf")) {
        const cJSON *properties = schema_get(call, "properties");
        const char *name = json_string(schema_get(properties, "name"), "const");
        const cJSON *arguments = schema_get(properties, "arguments");
        if (net_failed(n)) return 0;
        if (!name || !arguments)
            return schema_refuse(k->c, E_INVAL, "anyOf", "a call needs a name and arguments");
        const int32_t behind = net_state_new(n);
        put_text(k, name, n->rules[rule].start, behind);
        TRY(put_arguments(k, arguments, i++, behind, n->rules[rule].end));
    }
    return 0;
}

static int check_form(const struct calls *k) {
    static const char *const of_members[] = {"first", "next", "empty", "last", "value", "stop"};
    bool known = text_of(k, "close") && text_of(k, "comma") && text_of(k, "colon");
    for (size_t i = 0; i < sizeof of_members / sizeof *of_members && !text_of(k, "arguments"); i++)
        known = known && text_of(k, of_members[i]);
    const char *stop = text_of(k, "stop");
    if (stop) known = known && stop[0] && strlen(stop) <= STOP_MAX;
    for (const char *s = stop; s && *s; s++) known = known && (signed char)*s > 0;
    if (known) return 0;
    return schema_refuse(k->c, E_INVAL, GRAMMAR_WRITTEN, "it is no form of calls");
}

int schema_calls_rule(struct schema_compiler *c) {
    const struct calls k = {.c = c, .form = schema_get(c->root, GRAMMAR_WRITTEN)};
    struct net *n = c->net;
    const cJSON *open = schema_get(k.form, "open"), *text;
    TRY(check_form(&k));
    c->comma = text_of(&k, "comma");
    c->colon = text_of(&k, "colon");
    const int32_t root = net_rule_new(n, "calls", 5), call = net_rule_new(n, "call", 4);
    int32_t begin = net_state_new(n);
    if (net_failed(n)) return root;
    cJSON_ArrayForEach(text, open) {
        const char *one = cJSON_GetStringValue(text);
        put_text(&k, one ? one : "", n->rules[root].start, begin);
    }
    const int most = text_of(&k, "between") ? CALLS_MAX : 1;
    for (int i = 0; i < most; i++) {
        const int32_t behind = net_state_new(n), next = net_state_new(n);
        net_call(n, begin, call, behind);
        put(&k, "close", behind, n->rules[root].end);
        if (i + 1 < most) put(&k, "between", behind, next);
        begin = next;
    }
    TRY(put_call(&k, call));
    return root;
}
