// Parsing JSON into cJSON's tree, in one pass over the text. See json.h.
//
// cJSON's own parser takes more than JSON (white space of any kind, control characters, numbers such as 01 or 1.),
// loses what it cannot hold (\u0000 and \u12xy end a string, 1e400 becomes infinity) and allocates three times for
// each member of an object. A conversation that a client sends again whole has thousands of members, and each
// allocation reads memory that the model's last step has evicted from the processor's caches. So a string is allocated
// together with its value, which cJSON_IsReference keeps cJSON from freeing apart, and common keys are not copied.
#include "base/json.h"
#include "base/utf8.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// cJSON copies a number into a buffer of 64 bytes and would split a longer one in two.
#define NUMBER_MAX_CHARS 62
// Integers of so many digits are exact as doubles, and read without strtod.
#define SHORT_INTEGER_CHARS 15

const struct json_limits json_limits_message = {1 << 20, 48, 200000};
const struct json_limits json_limits_file = {256 << 20, 64, 20000000};
const struct json_limits json_limits_outline = {256 << 20, 64, 200000};

struct scan {
    const char *text;
    size_t len, at;
    int depth;
    size_t n_nodes; // in the tree, which an outline's items leave again
    bool outline;
    bool in_key;
    const struct json_limits *limits;
    struct err *err;
};

static int malformed(struct scan *s, size_t at, const char *what) {
    if (at >= s->len) return err_set(s->err, E_FORMAT, "not valid JSON: it ends too early");
    return err_set(s->err, E_FORMAT, "not valid JSON: %s at byte %zu", what, at);
}

static int no_memory(struct scan *s) {
    return err_set(s->err, E_NOMEM, "no memory for JSON of %zu bytes", s->len);
}

static bool is_white_space(char c) {
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static void skip_white_space(struct scan *s) {
    while (s->at < s->len && is_white_space(s->text[s->at])) s->at++;
}

// The byte at the place of reading; NUL, which JSON cannot have, at the end.
static char here(const struct scan *s) {
    return s->at < s->len ? s->text[s->at] : '\0';
}

// --- strings ---

// The four hexadecimal digits at p. -1: they are not.
static int32_t hex4(const char *p, size_t left) {
    int32_t v = 0;
    for (size_t i = 0; i < 4; i++) {
        if (i >= left || !isxdigit((unsigned char)p[i])) return -1;
        v = v << 4 | (p[i] <= '9' ? p[i] - '0' : (p[i] | 0x20) - 'a' + 10);
    }
    return v;
}

static void put_utf8(uint32_t c, char **out) {
    char *to = *out;
    if (c < 0x80) {
        *to++ = (char)c;
    } else {
        int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3; // bytes behind the first one
        *to++ = (char)((0xff00 >> (more + 1) & 0xff) | c >> 6 * more);
        while (more-- > 0) *to++ = (char)(0x80 | (c >> 6 * more & 0x3f));
    }
    *out = to;
}

// An escape that is no text. Keys must be equal for every reader, so they cannot have it.
static int no_text(struct scan *s, size_t at, const char *what, char **out) {
    if (s->in_key) return malformed(s, at, what);
    put_utf8(0xfffd, out);
    return 0;
}

// At the u of \uXXXX; with a high surrogate, also the low one that must follow. Moves behind them.
static int read_unicode(struct scan *s, char **out) {
    size_t start = s->at - 1;
    int32_t c = hex4(s->text + s->at + 1, s->len - s->at - 1);
    if (c < 0) return malformed(s, start, "\\u without four digits");
    s->at += 5;
    if (c == 0) return no_text(s, start, "\\u0000", out);
    if (c >= 0xd800 && c < 0xe000) {
        bool pair = s->len - s->at >= 6 && s->text[s->at] == '\\' && s->text[s->at + 1] == 'u';
        int32_t low = pair && c < 0xdc00 ? hex4(s->text + s->at + 2, 4) : -1;
        if (low < 0xdc00 || low > 0xdfff) return no_text(s, start, "half a surrogate pair", out);
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        s->at += 6;
    }
    put_utf8((uint32_t)c, out);
    return 0;
}

// At a backslash: writes the character that the escape means.
static int read_escape(struct scan *s, char **out) {
    static const char names[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    char c = s->len - s->at > 1 ? s->text[s->at + 1] : '\0';
    const char *name = c ? strchr(names, c) : NULL;
    s->at++;
    if (c == 'u') return read_unicode(s, out);
    if (!name) return malformed(s, s->at - 1, "an unknown escape");
    *(*out)++ = meant[name - names];
    s->at++;
    return 0;
}

struct quoted { // a string of the text
    size_t from, n;
    bool escapes;
};

// Moves behind the closing quote.
static int scan_string(struct scan *s, struct quoted *q) {
    size_t start = s->at++;
    *q = (struct quoted){.from = s->at};
    for (; s->at < s->len && s->text[s->at] != '"'; s->at++) {
        unsigned char c = (unsigned char)s->text[s->at];
        if (c < 0x20) return malformed(s, s->at, "a control character in a string");
        if (c != '\\') continue;
        q->escapes = true;
        s->at++; // whatever follows, be it a quote
    }
    if (s->at >= s->len) return malformed(s, start, "a string without an end");
    q->n = s->at++ - q->from;
    return 0;
}

// Writes the text and a NUL to a place of n + 1 bytes: an escape is longer than what it means.
static int copy_string(struct scan *s, const struct quoted *q, char *to) {
    size_t behind = s->at, end = q->from + q->n;
    if (!q->escapes) {
        memcpy(to, s->text + q->from, q->n);
        to[q->n] = '\0';
        return 0;
    }
    for (s->at = q->from; s->at < end;) {
        if (s->text[s->at] != '\\')
            *to++ = s->text[s->at++];
        else
            TRY(read_escape(s, &to));
    }
    *to = '\0';
    s->at = behind;
    return 0;
}

// --- keys ---

// A literal that is equal to the key; NULL: it is none of the common ones.
static const char *common_key(const char *key, size_t n) {
    static const struct {
        size_t len;
        const char *name;
    } common[] = {{4, "role"},
                  {7, "content"},
                  {4, "type"},
                  {4, "text"},
                  {8, "function"},
                  {4, "name"},
                  {2, "id"},
                  {9, "arguments"},
                  {5, "input"},
                  {10, "tool_calls"},
                  {12, "tool_call_id"},
                  {11, "tool_use_id"},
                  {13, "cache_control"}};
    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        if (common[i].len == n && memcmp(common[i].name, key, n) == 0) return common[i].name;
    return NULL;
}

// Moves behind the colon.
static int scan_key(struct scan *s, struct quoted *key) {
    if (here(s) != '"') return malformed(s, s->at, "no key");
    TRY(scan_string(s, key));
    skip_white_space(s);
    if (here(s) != ':') return malformed(s, s->at, "no colon behind a key");
    s->at++;
    skip_white_space(s);
    return 0;
}

static int set_key(struct scan *s, const struct quoted *key, cJSON *value) {
    const char *common = key->escapes ? NULL : common_key(s->text + key->from, key->n);
    if (common) {
        value->string = (char *)(size_t)common; // never written to
        value->type |= cJSON_StringIsConst;
        return 0;
    }
    value->string = cJSON_malloc(key->n + 1);
    if (!value->string) return no_memory(s);
    value->string[0] = '\0'; // if it turns out to be malformed
    s->in_key = true;
    int rc = copy_string(s, key, value->string);
    s->in_key = false;
    return rc;
}

static int compare_keys(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// Of one object. Sorts, which takes n log n for any keys that a client chooses; a vocabulary has
// 150,000.
static int refuse_twins(struct scan *s, const cJSON *object) {
    size_t n = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, object) n++;
    if (n < 2) return 0;
    const char *few[16], **keys = n <= 16 ? few : malloc(n * sizeof *keys);
    if (!keys) return err_set(s->err, E_NOMEM, "no memory for a JSON object of %zu keys", n);
    n = 0;
    cJSON_ArrayForEach(item, object) keys[n++] = item->string;
    if (n > 2) qsort(keys, n, sizeof *keys, compare_keys);
    int rc = 0;
    for (size_t i = 1; i < n && rc == 0; i++)
        if (strcmp(keys[i - 1], keys[i]) == 0)
            rc = err_set(s->err, E_FORMAT, "not valid JSON: the key '%s' appears twice", keys[i]);
    if (keys != few) free(keys);
    return rc;
}

// --- numbers and words ---

static size_t digits(const struct scan *s, size_t at) {
    size_t n = 0;
    while (at + n < s->len && s->text[at + n] >= '0' && s->text[at + n] <= '9') n++;
    return n;
}

// Moves behind the number. *whole: it has digits alone.
static int scan_number(struct scan *s, bool *whole) {
    size_t start = s->at, at = start + (s->text[start] == '-'), n = digits(s, at);
    bool bad = n == 0 || (n > 1 && s->text[at] == '0');
    at += n;
    *whole = true;
    if (at < s->len && s->text[at] == '.') {
        n = digits(s, at + 1);
        bad = bad || n == 0;
        at += 1 + n;
        *whole = false;
    }
    if (at < s->len && (s->text[at] == 'e' || s->text[at] == 'E')) {
        at++;
        if (at < s->len && (s->text[at] == '+' || s->text[at] == '-')) at++;
        n = digits(s, at);
        bad = bad || n == 0;
        at += n;
        *whole = false;
    }
    if (bad) return malformed(s, start, "a number of the wrong form");
    if (at - start > NUMBER_MAX_CHARS)
        return err_set(s->err, E_LIMIT, "the JSON number at byte %zu has more than %d characters",
                       start, NUMBER_MAX_CHARS);
    s->at = at;
    return 0;
}

static double short_integer(const char *text, size_t n) {
    bool negative = text[0] == '-';
    double v = 0;
    for (size_t i = negative; i < n; i++) v = v * 10 + (text[i] - '0');
    return negative ? -v : v;
}

static int read_number(struct scan *s, cJSON *value) {
    size_t start = s->at;
    bool whole;
    TRY(scan_number(s, &whole));
    size_t n = s->at - start;
    double v;
    if (whole && n <= SHORT_INTEGER_CHARS) {
        v = short_integer(s->text + start, n);
    } else { // cJSON minds the locale's decimal point
        cJSON *number = cJSON_ParseWithLength(s->text + start, n);
        if (!number) return no_memory(s);
        v = number->valuedouble;
        cJSON_Delete(number);
    }
    if (!isfinite(v))
        return err_set(s->err, E_FORMAT, "the JSON number at byte %zu is too large", start);
    value->type |= cJSON_Number;
    cJSON_SetNumberHelper(value, v);
    return 0;
}

static int read_word(struct scan *s, cJSON *value) {
    static const struct {
        const char *name;
        int type;
    } words[] = {{"true", cJSON_True}, {"false", cJSON_False}, {"null", cJSON_NULL}};
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(words[i].name);
        if (s->len - s->at < n || memcmp(s->text + s->at, words[i].name, n) != 0) continue;
        s->at += n;
        value->type |= words[i].type;
        return 0;
    }
    return malformed(s, s->at, "an unexpected character");
}

// --- values ---

// Where a value goes: into a list, into an object with a key, or nowhere (the root).
struct place {
    cJSON *parent;
    const struct quoted *key;
};

static int read_value(struct scan *s, const struct place *at, cJSON **out);

// The first child's prev is the last one, as in cJSON.
static void add_child(cJSON *parent, cJSON *child) {
    cJSON *first = parent->child;
    if (first) {
        child->prev = first->prev;
        first->prev->next = child;
        first->prev = child;
    } else {
        parent->child = child->prev = child;
    }
}

// In its place, so that it is freed with the root. *out: zeros, with n_more bytes behind it; NULL: no memory.
static int add_value(struct scan *s, const struct place *at, size_t n_more, cJSON **out) {
    cJSON *value = *out = cJSON_malloc(sizeof *value + n_more);
    if (!value) return no_memory(s);
    memset(value, 0, sizeof *value);
    if (at->parent) add_child(at->parent, value);
    return at->key ? set_key(s, at->key, value) : 0;
}

static int read_string(struct scan *s, const struct place *at, cJSON **out) {
    struct quoted text;
    TRY(scan_string(s, &text));
    TRY(add_value(s, at, text.n + 1, out));
    (*out)->type |= cJSON_String | cJSON_IsReference;
    (*out)->valuestring = (char *)(*out + 1);
    return copy_string(s, &text, (*out)->valuestring);
}

// At the opening bracket.
static int read_children(struct scan *s, cJSON *parent, bool keys) {
    struct quoted key;
    struct place place = {.parent = parent, .key = keys ? &key : NULL};
    char close = keys ? '}' : ']';
    if (++s->depth > s->limits->max_depth)
        return err_set(s->err, E_LIMIT, "JSON nested more than %d deep", s->limits->max_depth);
    s->at++;
    skip_white_space(s);
    while (here(s) != close) {
        cJSON *child;
        if (keys) TRY(scan_key(s, &key));
        size_t n_before = s->n_nodes;
        TRY(read_value(s, &place, &child));
        if (s->outline && !keys) {
            cJSON_Delete(child);
            parent->child = NULL;
            s->n_nodes = n_before;
        }
        skip_white_space(s);
        if (here(s) == close) break;
        if (here(s) != ',') return malformed(s, s->at, "no comma");
        s->at++;
        skip_white_space(s);
        if (here(s) == close) return malformed(s, s->at, "a comma before the end");
    }
    s->at++;
    s->depth--;
    return keys ? refuse_twins(s, parent) : 0;
}

// *out: the value, on failure too, unless it has not been made yet.
static int read_value(struct scan *s, const struct place *at, cJSON **out) {
    char c = here(s);
    *out = NULL;
    if (++s->n_nodes > s->limits->max_nodes)
        return err_set(s->err, E_LIMIT, "JSON of more than %zu values", s->limits->max_nodes);
    if (c == '"') return read_string(s, at, out);
    TRY(add_value(s, at, 0, out));
    if (c == '-' || (c >= '0' && c <= '9')) return read_number(s, *out);
    if (c != '{' && c != '[') return read_word(s, *out);
    (*out)->type |= c == '{' ? cJSON_Object : cJSON_Array;
    return read_children(s, *out, c == '{');
}

static int read_all(struct scan *s, cJSON **root) {
    const struct place nowhere = {.parent = NULL};
    skip_white_space(s);
    if (s->at == s->len) return err_set(s->err, E_FORMAT, "not valid JSON: it is empty");
    TRY(read_value(s, &nowhere, root));
    skip_white_space(s);
    return s->at == s->len ? 0 : malformed(s, s->at, "more text after the value");
}

static int check_text(const struct scan *s) {
    if (s->len > s->limits->max_bytes)
        return err_set(s->err, E_LIMIT, "JSON of %zu bytes; the limit is %zu", s->len,
                       s->limits->max_bytes);
    if (memchr(s->text, '\0', s->len))
        return err_set(s->err, E_FORMAT, "not valid JSON: it holds a NUL byte");
    if (!utf8_valid(s->text, s->len))
        return err_set(s->err, E_FORMAT, "not valid JSON: it is not UTF-8");
    return 0;
}

static cJSON *parse(struct scan *s) {
    cJSON *root = NULL;
    if (check_text(s) == 0 && read_all(s, &root) == 0) return root;
    cJSON_Delete(root);
    return NULL;
}

cJSON *json_parse(const char *text, size_t len, const struct json_limits *limits, struct err *err) {
    struct scan s = {.text = text, .len = len, .limits = limits, .err = err};
    return parse(&s);
}

cJSON *json_parse_outline(const char *text, size_t len, const struct json_limits *limits,
                          struct err *err) {
    struct scan s = {.text = text, .len = len, .outline = true, .limits = limits, .err = err};
    return parse(&s);
}

cJSON *json_parse_file(const char *path, const struct json_limits *limits, struct err *err) {
    struct buf text;
    struct err reason = {0};
    cJSON *root = NULL;
    if (buf_read_file(&text, path, limits->max_bytes, err) == 0) {
        root = json_parse(buf_z(&text), text.len, limits, &reason);
        if (!root) err_set(err, reason.code, "%s: %s", path, reason.text);
    }
    buf_release(&text);
    return root;
}
