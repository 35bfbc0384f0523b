// The filter from_json (also fromjson): Python's json.loads. The arguments of a tool call come as JSON text;
// newer templates parse it to list the names and values. This needs a parser of its own, because every byte of a
// string keeps its origin: a user's text inside the JSON stays marked as the user's.
#include "engine/jinja/run.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct json_text {
    struct jinja_run *r;
    struct jinja_string s;
    size_t at;
};

static int refuse(const struct json_text *t, const char *what) {
    return jinja_fail(t->r, E_INVAL, "from_json: %s at character %zu", what,
                      jinja_string_n_chars(jinja_string_sub(t->s, 0, t->at)));
}

// 0 behind the end, where the text itself has no NUL outside of strings.
static char peek(const struct json_text *t) {
    return t->at < t->s.len ? t->s.s[t->at] : 0;
}

static void skip_space(struct json_text *t) {
    while (t->at < t->s.len && memchr(" \t\n\r", t->s.s[t->at], 4)) t->at++;
}

static bool take(struct json_text *t, const char *word) {
    size_t n = strlen(word);
    if (t->s.len - t->at < n || memcmp(t->s.s + t->at, word, n) != 0) return false;
    t->at += n;
    return true;
}

// --- strings

static bool read_hex4(struct json_text *t, uint32_t *out) {
    *out = 0;
    if (t->s.len - t->at < 4) return false;
    for (int i = 0; i < 4; i++) {
        const char *digits = "0123456789abcdef", *d;
        char c = t->s.s[t->at + (size_t)i];
        if (c >= 'A' && c <= 'F') c = (char)(c - 'A' + 'a');
        if (!c || !(d = strchr(digits, c))) return false;
        *out = *out << 4 | (uint32_t)(d - digits);
    }
    t->at += 4;
    return true;
}

// Behind "\u". Python keeps half a surrogate pair, which no UTF-8 text can hold.
static int read_unicode(struct json_text *t, uint32_t *out) {
    uint32_t low;
    if (!read_hex4(t, out)) return refuse(t, "invalid \\uXXXX escape");
    if (*out < 0xd800 || *out > 0xdfff) return 0;
    if (*out > 0xdbff || !take(t, "\\u") || !read_hex4(t, &low) || low < 0xdc00 || low > 0xdfff)
        return jinja_fail(t->r, E_UNSUPPORTED, "from_json: half of a surrogate pair");
    *out = 0x10000 + ((*out - 0xd800) << 10) + (low - 0xdc00);
    return 0;
}

static int read_escape(struct json_text *t, struct jinja_text *to) {
    static const char from[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    uint8_t origin = jinja_string_origin(t->s, t->at++);
    char c = peek(t);
    const char *simple = c ? strchr(from, c) : NULL;
    uint32_t code;
    if (!simple && c != 'u') return refuse(t, "invalid escape");
    t->at++;
    if (simple)
        code = (uint32_t)means[simple - from];
    else
        TRY(read_unicode(t, &code));
    jinja_text_add_char(to, code, origin);
    return 0;
}

static int read_string(struct json_text *t, struct jinja_value *out) {
    struct jinja_text text;
    jinja_text_init(&text, &t->r->arena);
    t->at++;
    for (;;) {
        size_t from = t->at;
        while (t->at < t->s.len && (unsigned char)t->s.s[t->at] >= 0x20 && t->s.s[t->at] != '"' &&
               t->s.s[t->at] != '\\')
            t->at++;
        TRY(jinja_spend(t->r, 1 + (t->at - from) / 64));
        jinja_text_add(&text, jinja_string_sub(t->s, from, t->at));
        if (t->at == t->s.len) return refuse(t, "unterminated string");
        if (t->s.s[t->at] == '"') break;
        if (t->s.s[t->at] != '\\') return refuse(t, "invalid control character");
        TRY(read_escape(t, &text));
    }
    t->at++;
    return jinja_text_take_value(&text, out);
}

// --- numbers

static size_t count_digits(const struct json_text *t, size_t at) {
    size_t n = 0;
    while (at + n < t->s.len && t->s.s[at + n] >= '0' && t->s.s[at + n] <= '9') n++;
    return n;
}

// JSON's numbers are a part of those that strtod and strtoll read, so their end is found first.
static int read_number(struct json_text *t, struct jinja_value *out) {
    size_t from = t->at, end = from + (peek(t) == '-'), n = count_digits(t, end);
    bool whole = true;
    if (n == 0) return refuse(t, "a value is expected");
    end += t->s.s[end] == '0' ? 1 : n; // a digit behind a leading zero is extra data
    if (end < t->s.len && t->s.s[end] == '.' && (n = count_digits(t, end + 1)) > 0) {
        end += 1 + n;
        whole = false;
    }
    if (end < t->s.len && (t->s.s[end] | 0x20) == 'e') {
        size_t sign = end + 1 < t->s.len && memchr("+-", t->s.s[end + 1], 2);
        if ((n = count_digits(t, end + 1 + sign)) > 0) {
            end += 1 + sign + n;
            whole = false;
        }
    }
    TRY(jinja_spend(t->r, 1 + (end - from) / 16));
    char *digits = jinja_arena_get(&t->r->arena, end - from + 1);
    if (!digits) return t->r->arena.error;
    memcpy(digits, t->s.s + from, end - from); // the arena's memory is zeroed
    t->at = end;
    errno = 0;
    *out = whole ? jinja_int(strtoll(digits, NULL, 10)) : jinja_float(strtod(digits, NULL));
    return whole && errno ? jinja_fail(t->r, E_LIMIT, "a whole number past 64 bits") : 0;
}

// --- values

static int read_value(struct json_text *t, int depth, struct jinja_value *out);

// Behind a value inside brackets: true at a comma, false at the closing bracket.
static int read_comma(struct json_text *t, char close, bool *more) {
    skip_space(t);
    char c = peek(t);
    if (c != ',' && c != close) return refuse(t, "a comma is expected");
    t->at++;
    *more = c == ',';
    return 0;
}

static bool is_empty(struct json_text *t, char close) {
    t->at++;
    skip_space(t);
    if (peek(t) != close) return false;
    t->at++;
    return true;
}

static int read_list(struct json_text *t, int depth, struct jinja_value *out) {
    struct jinja_value item;
    TRY(jinja_list_new(t->r, JINJA_LIST, out));
    bool more = !is_empty(t, ']');
    while (more) {
        TRY(read_value(t, depth, &item));
        TRY(jinja_list_push(t->r, out->list, item));
        TRY(read_comma(t, ']', &more));
    }
    return 0;
}

// Of a key that comes twice, the last value counts.
static int read_dict(struct json_text *t, int depth, struct jinja_value *out) {
    struct jinja_value key, value;
    TRY(jinja_dict_new(t->r, out));
    bool more = !is_empty(t, '}');
    while (more) {
        skip_space(t);
        if (peek(t) != '"') return refuse(t, "a name in double quotes is expected");
        TRY(read_string(t, &key));
        skip_space(t);
        if (!take(t, ":")) return refuse(t, "a colon is expected");
        TRY(read_value(t, depth, &value));
        TRY(jinja_dict_set(t->r, out->dict, key, value));
        TRY(read_comma(t, '}', &more));
    }
    return 0;
}

static bool read_word(struct json_text *t, struct jinja_value *out) {
    if (take(t, "null"))
        *out = jinja_none();
    else if (take(t, "true"))
        *out = jinja_bool(true);
    else if (take(t, "false"))
        *out = jinja_bool(false);
    else if (take(t, "NaN"))
        *out = jinja_float(NAN);
    else if (take(t, "Infinity"))
        *out = jinja_float(INFINITY);
    else if (take(t, "-Infinity"))
        *out = jinja_float(-INFINITY);
    else
        return false;
    return true;
}

static int read_value(struct json_text *t, int depth, struct jinja_value *out) {
    TRY(jinja_spend(t->r, 1));
    if (depth > JINJA_MAX_NESTING) // before the recursion has used the stack
        return jinja_fail(t->r, E_LIMIT, "from_json: nested deeper than %d", JINJA_MAX_NESTING);
    skip_space(t);
    switch (peek(t)) {
    case '"':
        return read_string(t, out);
    case '[':
        return read_list(t, depth + 1, out);
    case '{':
        return read_dict(t, depth + 1, out);
    default:
        return read_word(t, out) ? 0 : read_number(t, out);
    }
}

int jinja_from_json(struct jinja_run *r, const struct jinja_value *a, const struct jinja_call *c,
                    struct jinja_value *out) {
    struct json_text t = {.r = r};
    if (a[0].kind != JINJA_STRING)
        return jinja_fail(r, E_INVAL, "from_json: the JSON object must be str, not %s",
                          jinja_type_name(&a[0]));
    t.s = a[0].s;
    TRY(jinja_spend(r, t.s.len / 64));
    TRY(read_value(&t, 0, out));
    skip_space(&t);
    return t.at == t.s.len ? 0 : refuse(&t, "extra data");
}
