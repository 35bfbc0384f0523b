// Strings of a JSON schema. Without a pattern or a format any escape may be written; with one, each character has
// one form (CHARS_JSON). Several constraints together become a product (product.h).
#include "engine/grammar/chars.h"
#include "engine/grammar/lookahead.h"
#include "engine/grammar/product.h"
#include "engine/grammar/regex.h"
#include "engine/grammar/schema.h"
#include <string.h>

#define DAY_OF_MONTH                                                                               \
    "(((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01]))|((0[469]|11)-(0[1-9]|[12]\\d|30))|"                \
    "(02-(0[1-9]|1\\d|2[0-8])))"
#define LEAP_YEAR "(\\d\\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"
#define DATE "((\\d{4}-" DAY_OF_MONTH ")|(" LEAP_YEAR "-02-29))"
#define TIME "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define LABEL "[a-zA-Z0-9]([a-zA-Z0-9-]{0,30}[a-zA-Z0-9])?"
#define OCTET "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define POINTER "(/([^~/]|~[01])*)*"
#define HEX4 "[0-9a-fA-F]{1,4}"

// Texts of a format; some formats have more texts than are written here, none has fewer.
static const struct {
    const char *name, *regex;
} formats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "T" TIME},
    {"duration", "P(\\d{1,4}W|(\\d{1,4}Y(\\d{1,2}M(\\d{1,3}D)?)?|\\d{1,2}M(\\d{1,3}D)?|\\d{1,3}D)"
                 "(T(\\d{1,3}H(\\d{1,3}M(\\d{1,3}S)?)?|\\d{1,3}M(\\d{1,3}S)?|\\d{1,3}S))?|"
                 "T(\\d{1,3}H(\\d{1,3}M(\\d{1,3}S)?)?|\\d{1,3}M(\\d{1,3}S)?|\\d{1,3}S))"},
    {"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"},
    {"email", "[a-zA-Z0-9_+-]{1,32}(\\.[a-zA-Z0-9_+-]{1,32}){0,3}@" LABEL "(\\." LABEL "){1,3}"},
    {"hostname", LABEL "(\\." LABEL "){0,4}"},
    {"ipv4", OCTET "(\\." OCTET "){3}"},
    {"ipv6", "(" HEX4 "(:" HEX4 "){7}|::1|::|" HEX4 "(:" HEX4 "){0,3}::" HEX4 "(:" HEX4 "){0,2})"},
    {"uri", "https?://" LABEL "(\\." LABEL "){0,4}(:[1-9]\\d{0,3})?(/[a-zA-Z0-9._~-]{0,40}){0,8}"
            "(\\?[a-zA-Z0-9._~=&-]{0,80})?(#[a-zA-Z0-9._~-]{0,40})?"},
    {"uri-reference", "(https?://" LABEL "(\\." LABEL "){0,4})?(/[a-zA-Z0-9._~-]{1,40}){0,8}"
                      "(\\?[a-zA-Z0-9._~=&-]{0,80})?(#[a-zA-Z0-9._~-]{0,40})?"},
    {"json-pointer", POINTER},
    {"relative-json-pointer", "(0|[1-9]\\d{0,3})(#|" POINTER ")"},
    {"byte", "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"},
};

static const char *regex_of_format(const char *name) {
    static const char *const same[][2] = {{"iri", "uri"},
                                          {"iri-reference", "uri-reference"},
                                          {"idn-email", "email"},
                                          {"idn-hostname", "hostname"}};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (strcmp(name, same[i][0]) == 0) name = same[i][1];
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, name) == 0) return formats[i].regex;
    return NULL; // an annotation
}

// --- free strings --------------------------------------------------------------------------------

static void hex_digit(struct net *n, int32_t from, int32_t to) {
    net_byte_range(n, from, '0', '9', to);
    net_byte_range(n, from, 'a', 'f', to);
    net_byte_range(n, from, 'A', 'F', to);
}

static void hex_digits(struct net *n, int32_t from, int count, int32_t to) {
    for (int i = 0; i < count; i++) {
        int32_t next = i + 1 < count ? net_state_new(n) : to;
        hex_digit(n, from, next);
        from = next;
    }
}

// The four digits behind \u: of a character, or of both halves of one.
static void unicode_escape(struct net *n, int32_t from, int32_t to) {
    int32_t three = net_state_new(n), d = net_state_new(n), low = net_state_new(n);
    int32_t high = net_state_new(n), slash = net_state_new(n), u = net_state_new(n);
    int32_t second = net_state_new(n), two = net_state_new(n), last = net_state_new(n);
    net_byte_range(n, from, '0', '9', three);
    net_byte_range(n, from, 'a', 'c', three);
    net_byte_range(n, from, 'A', 'C', three);
    net_byte_range(n, from, 'e', 'f', three);
    net_byte_range(n, from, 'E', 'F', three);
    hex_digits(n, three, 3, to);
    net_byte_range(n, from, 'd', 'd', d);
    net_byte_range(n, from, 'D', 'D', d);
    net_byte_range(n, d, '0', '7', low);
    hex_digits(n, low, 2, to);
    net_byte_range(n, d, '8', '9', high);
    net_byte_range(n, d, 'a', 'b', high);
    net_byte_range(n, d, 'A', 'B', high);
    hex_digits(n, high, 2, slash);
    net_text(n, slash, "\\u", 2, u);
    net_byte_range(n, u, 'd', 'd', second);
    net_byte_range(n, u, 'D', 'D', second);
    net_byte_range(n, second, 'c', 'f', two);
    net_byte_range(n, second, 'C', 'F', two);
    hex_digits(n, two, 1, last);
    hex_digits(n, last, 1, to);
}

// One character in any form.
static int32_t character_rule(struct schema_compiler *c) {
    static struct char_range plain[] = {{0x20, 0x21}, {0x23, 0x5b}, {0x5d, CHAR_MAX_CODE}};
    const struct char_set set = {.ranges = plain, .n = 3};
    struct net *n = c->net;
    if (c->character >= 0) return c->character;
    c->character = net_rule_new(n, "character", 9);
    if (net_failed(n)) return 0;
    int32_t from = n->rules[c->character].start, to = n->rules[c->character].end;
    if (c->comma) { // each in its one form
        static struct char_range all[] = {{1, CHAR_MAX_CODE}};
        chars_emit(n, from, &(const struct char_set){.ranges = all, .n = 1}, CHARS_JSON, to);
        return c->character;
    }
    int32_t slash = net_state_new(n), u = net_state_new(n);
    chars_emit(n, from, &set, CHARS_UTF8, to);
    net_byte_range(n, from, '\\', '\\', slash);
    for (const char *e = "\"\\/bfnrt"; *e; e++)
        net_byte_range(n, slash, (uint8_t)*e, (uint8_t)*e, to);
    net_byte_range(n, slash, 'u', 'u', u);
    unicode_escape(n, u, to);
    return c->character;
}

static void emit_free_string(struct schema_compiler *c, int32_t from, int32_t to) {
    struct net *n = c->net;
    if (c->string < 0) {
        c->string = net_rule_new(n, "string", 6);
        if (net_failed(n)) return;
        int32_t from_quote = net_state_new(n), to_quote = net_state_new(n);
        net_byte_range(n, n->rules[c->string].start, '"', '"', from_quote);
        net_repeat(n, from_quote, character_rule(c), 0, -1, to_quote);
        net_byte_range(n, to_quote, '"', '"', n->rules[c->string].end);
    }
    net_call(n, from, c->string, to);
}

// --- constrained strings -------------------------------------------------------------------------

struct constraints {
    struct net parts[PRODUCT_MAX_PARTS];
    int n, n_forbidden; // the last n_forbidden parts must not match
};

static int add_part(struct schema_compiler *c, struct constraints *k, const char *key,
                    const char *regex, bool search, bool forbidden) {
    struct regex *r;
    struct err why = {0};
    if (k->n == PRODUCT_MAX_PARTS) return schema_refuse(c, E_UNSUPPORTED, key, "too many of them");
    struct net *n = &k->parts[k->n++];
    net_init(n);
    int rc = regex_parse(&r, regex, strlen(regex), search, &why);
    if (rc < 0) return schema_refuse(c, rc, key, why.text);
    if (forbidden && regex_has_property(r)) {
        regex_free(r);
        return schema_refuse(c, E_UNSUPPORTED, key, "\\p in what must not match is not supported");
    }
    net_begin(n);
    if (!net_failed(n))
        regex_emit(r, n, n->rules[n->root].start, CHARS_JSON, n->rules[n->root].end);
    regex_free(r);
    return 0;
}

// So many characters, each in its one form.
static int add_length(struct schema_compiler *c, struct constraints *k, int64_t min, int64_t max) {
    static struct char_range everything = {0, CHAR_MAX_CODE};
    const struct char_set set = {.ranges = &everything, .n = 1};
    if (k->n == PRODUCT_MAX_PARTS)
        return schema_refuse(c, E_UNSUPPORTED, "pattern", "too many of them");
    struct net *n = &k->parts[k->n++];
    net_begin(n);
    int32_t one = net_rule_new(n, NULL, 0);
    if (net_failed(n)) return 0;
    chars_emit(n, n->rules[one].start, &set, CHARS_JSON, n->rules[one].end);
    net_repeat(n, n->rules[n->root].start, one, min, max, n->rules[n->root].end);
    return 0;
}

// One pass adds what must match, another one what must not.
static int add_pattern(struct schema_compiler *c, struct constraints *k, const char *pattern,
                       bool forbidden) {
    struct lookaheads l;
    int rc = lookaheads_split(&l, pattern) ? 0 : schema_no_memory(c, "pattern");
    if (rc == 0 && !forbidden) rc = add_part(c, k, "pattern", l.rest, true, false);
    for (int i = 0; i < l.n && rc == 0; i++) {
        if (l.at[i].negated == forbidden)
            rc = add_part(c, k, "pattern", l.at[i].pattern, true, forbidden);
        k->n_forbidden += l.at[i].negated && forbidden;
    }
    lookaheads_release(&l);
    return rc;
}

static int add_patterns(struct schema_compiler *c, struct constraints *k, const cJSON *pattern,
                        bool forbidden) {
    const cJSON *item; // a list where schemas were merged
    if (cJSON_IsString(pattern)) return add_pattern(c, k, pattern->valuestring, forbidden);
    if (!cJSON_IsArray(pattern)) return schema_refuse(c, E_INVAL, "pattern", "it must be a string");
    cJSON_ArrayForEach(item, pattern) TRY(add_patterns(c, k, item, forbidden));
    return 0;
}

struct ends {
    uint32_t all;
    int32_t to;
};

static int32_t target(void *ctx, uint32_t matched) {
    const struct ends *e = ctx;
    return matched == e->all ? e->to : -1;
}

static int emit_product(struct schema_compiler *c, struct constraints *k, int32_t from,
                        int32_t to) {
    struct err why = {0};
    for (int i = 0; i < k->n; i++) {
        int rc = net_finish(&k->parts[i], NULL, &why);
        bool never = k->parts[i].matches_nothing;
        if (never && i < k->n - k->n_forbidden) return 0; // no string matches it
        if (rc < 0) return schema_refuse(c, rc, "pattern", why.text);
    }
    int n_needed = k->n - k->n_forbidden;
    struct ends e = {.all = (uint32_t)(((uint64_t)1 << n_needed) - 1), .to = to};
    int rc = product_emit(c->net, from, k->parts, k->n, n_needed, target, &e, &why);
    return rc < 0 ? schema_refuse(c, rc, "pattern", why.text) : 0;
}

// One of these texts.
static int add_texts(struct schema_compiler *c, struct constraints *k, const cJSON *first) {
    if (k->n == PRODUCT_MAX_PARTS)
        return schema_refuse(c, E_UNSUPPORTED, "not", "too many of them");
    struct net *n = &k->parts[k->n++];
    net_begin(n);
    for (const cJSON *v = first; v && !net_failed(n); v = v->next)
        chars_emit_text(n, n->rules[n->root].start, v->valuestring, strlen(v->valuestring),
                        CHARS_JSON, n->rules[n->root].end);
    return 0;
}

// What `not` excludes: see schema_excludes_strings.
static int add_excluded(struct schema_compiler *c, struct constraints *k, const cJSON *excluded) {
    const cJSON *pattern = schema_get(excluded, "pattern"), *list = schema_get(excluded, "enum");
    const cJSON *one = schema_get(excluded, "const"), *item;
    cJSON_ArrayForEach(item, schema_get(excluded, "anyOf")) TRY(add_excluded(c, k, item));
    if (pattern) TRY(add_part(c, k, "not", pattern->valuestring, true, true));
    if (one) TRY(add_texts(c, k, &(const cJSON){.valuestring = one->valuestring}));
    if (list && list->child) TRY(add_texts(c, k, list->child));
    k->n_forbidden += pattern || one || (list && list->child);
    return 0;
}

static int add_all(struct schema_compiler *c, struct constraints *k, const cJSON *s,
                   const char *format, int64_t min, int64_t max) {
    const cJSON *pattern = schema_get(s, "pattern"), *excluded = schema_get(s, "not");
    if (pattern) TRY(add_patterns(c, k, pattern, false));
    if (format) TRY(add_part(c, k, "format", format, false, false));
    if (min > 0 || max >= 0 || k->n == 0) TRY(add_length(c, k, min, max));
    if (excluded) TRY(add_excluded(c, k, excluded));
    return pattern ? add_patterns(c, k, pattern, true) : 0;
}

// One pattern alone needs no product, which may be large.
static int emit_one(struct schema_compiler *c, const char *key, const char *text, bool search,
                    int32_t from, int32_t to) {
    struct regex *r;
    struct err why = {0};
    int rc = regex_parse(&r, text, strlen(text), search, &why);
    if (rc < 0) return schema_refuse(c, rc, key, why.text);
    regex_emit(r, c->net, from, CHARS_JSON, to);
    regex_free(r);
    return 0;
}

static int emit_constrained(struct schema_compiler *c, const cJSON *s, const char *format,
                            int64_t min, int64_t max, int32_t from, int32_t to) {
    struct constraints k = {.n = 0};
    const cJSON *pattern = schema_get(s, "pattern");
    bool counted = min > 0 || max >= 0 || schema_get(s, "not");
    bool plain = cJSON_IsString(pattern) && strncmp(pattern->valuestring, "^(?", 3) != 0;
    if (!counted && !format && plain)
        return emit_one(c, "pattern", pattern->valuestring, true, from, to);
    if (!counted && !pattern) return emit_one(c, "format", format, false, from, to);
    int rc = add_all(c, &k, s, format, min, max);
    if (rc == 0) rc = emit_product(c, &k, from, to);
    for (int i = 0; i < k.n; i++) net_release(&k.parts[i]);
    return rc;
}

static const char *known_format(const cJSON *s) {
    const cJSON *format = schema_get(s, "format");
    return cJSON_IsString(format) ? regex_of_format(format->valuestring) : NULL;
}

// Bounds that a pattern or a format implies are not counted: a product may be large.
static int drop_implied(struct schema_compiler *c, const char *key, const char *text, bool search,
                        int64_t *min, int64_t *max) {
    struct regex *r;
    struct err why = {0};
    int rc = regex_parse(&r, text, strlen(text), search, &why);
    if (rc < 0) return schema_refuse(c, rc, key, why.text);
    struct regex_lengths own = regex_lengths(r);
    regex_free(r);
    if (own.min >= *min) *min = 0;
    if (*max >= 0 && own.max <= *max) *max = -1;
    return 0;
}

int schema_emit_content(struct schema_compiler *c, const cJSON *s, int32_t from, int32_t to) {
    int64_t min, max;
    const cJSON *pattern = schema_get(s, "pattern");
    const char *known = known_format(s);
    TRY(schema_count(c, s, "minLength", 0, &min));
    TRY(schema_count(c, s, "maxLength", -1, &max));
    if (max >= 0 && min > max) return 0;
    bool counted = min > 0 || max >= 0;
    if (counted && known) TRY(drop_implied(c, "format", known, false, &min, &max));
    if (counted && cJSON_IsString(pattern))
        TRY(drop_implied(c, "pattern", pattern->valuestring, true, &min, &max));
    if (pattern || known || schema_get(s, "not"))
        return emit_constrained(c, s, known, min, max, from, to);
    net_repeat(c->net, from, character_rule(c), min, max, to);
    return 0;
}

int schema_emit_string(struct schema_compiler *c, const cJSON *s, int32_t from, int32_t to) {
    if (!schema_get(s, "pattern") && !known_format(s) && !schema_get(s, "minLength") &&
        !schema_get(s, "maxLength") && !schema_get(s, "not")) {
        emit_free_string(c, from, to);
        return 0;
    }
    int32_t inside = net_state_new(c->net), end = net_state_new(c->net);
    net_byte_range(c->net, from, '"', '"', inside);
    net_byte_range(c->net, end, '"', '"', to);
    return schema_emit_content(c, s, inside, end);
}
