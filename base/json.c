// Reading JSON: the check before cJSON, the parse, the getters. json_writer.c writes. See json.h.
//
// cJSON takes more than JSON (white space of any kind, control characters, numbers such as 01 or
// 1.), loses what it cannot hold (\u0000 and \u12xy end a string, 1e400 becomes infinity) and
// spends 64 bytes and an allocation on each value. One pass over the text, which allocates nothing,
// therefore refuses all that first; cJSON then refuses only a wrong order of tokens.
#include "base/json.h"
#include "base/utf8.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// cJSON copies a number into a buffer of 64 bytes and would split a longer one in two.
#define NUMBER_MAX_CHARS 62
// Each integer below this is one double; 2^53 + 1 rounds to 2^53.
#define INTEGER_MAX 9007199254740991

const struct json_limits json_limits_message = {1 << 20, 32, 200000};
const struct json_limits json_limits_file = {256 << 20, 64, 20000000};

// --- the guard ---

struct scan {
    const char *text;
    size_t len, at;
    int depth;
    size_t n_nodes;
    const struct json_limits *limits;
    struct err *err;
};

static int malformed(struct scan *s, size_t at, const char *what) {
    return err_set(s->err, E_FORMAT, "not valid JSON: %s at byte %zu", what, at);
}

static bool is_white_space(char c) {
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

// At a backslash. cJSON reads \uXYZW as \u0000 if the digits are invalid.
static int scan_escape(struct scan *s) {
    const char *p = s->text + s->at + 1;
    size_t left = s->len - s->at - 1;
    if (left == 0 || !memchr("\"\\/bfnrtu", *p, 9)) return malformed(s, s->at, "an unknown escape");
    if (*p != 'u') {
        s->at += 2;
        return 0;
    }
    for (size_t i = 1; i <= 4; i++)
        if (i >= left || !isxdigit((unsigned char)p[i]))
            return malformed(s, s->at, "\\u without four digits");
    if (memcmp(p + 1, "0000", 4) == 0) return malformed(s, s->at, "\\u0000");
    s->at += 6;
    return 0;
}

static int scan_string(struct scan *s) {
    size_t start = s->at++;
    while (s->at < s->len && s->text[s->at] != '"') {
        unsigned char c = (unsigned char)s->text[s->at];
        if (c < 0x20) return malformed(s, s->at, "a control character in a string");
        if (c == '\\')
            TRY(scan_escape(s));
        else
            s->at++;
    }
    if (s->at >= s->len) return malformed(s, start, "a string without an end");
    s->at++;
    return 0;
}

static size_t digits(const struct scan *s, size_t at) {
    size_t n = 0;
    while (at + n < s->len && is_digit(s->text[at + n])) n++;
    return n;
}

// With this exponent the number may not fit a double: strtod decides. Shorter numbers always fit.
static bool overflows(const char *number, size_t len) {
    char copy[NUMBER_MAX_CHARS + 1];
    memcpy(copy, number, len);
    copy[len] = '\0';
    return !isfinite(strtod(copy, NULL));
}

static int scan_number(struct scan *s) {
    size_t start = s->at, at = start, n, n_exponent = 0;
    if (s->text[at] == '-') at++;
    n = digits(s, at);
    bool bad = n == 0 || (n > 1 && s->text[at] == '0');
    at += n;
    if (at < s->len && s->text[at] == '.') {
        n = digits(s, at + 1);
        bad = bad || n == 0;
        at += 1 + n;
    }
    if (at < s->len && (s->text[at] == 'e' || s->text[at] == 'E')) {
        at++;
        if (at < s->len && (s->text[at] == '+' || s->text[at] == '-')) at++;
        n_exponent = digits(s, at);
        bad = bad || n_exponent == 0;
        at += n_exponent;
    }
    if (bad) return malformed(s, start, "a number of the wrong form");
    if (at - start > NUMBER_MAX_CHARS)
        return err_set(s->err, E_LIMIT, "the JSON number at byte %zu has more than %d characters",
                       start, NUMBER_MAX_CHARS);
    if (n_exponent > 2 && overflows(s->text + start, at - start))
        return err_set(s->err, E_FORMAT, "the JSON number at byte %zu is too large", start);
    s->at = at;
    return 0;
}

static int scan_literal(struct scan *s) {
    static const char *const words[] = {"true", "false", "null"};
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);
        if (s->len - s->at < n || memcmp(s->text + s->at, words[i], n) != 0) continue;
        s->at += n;
        return 0;
    }
    return malformed(s, s->at, "an unexpected character");
}

static void skip_white_space(struct scan *s) {
    while (s->at < s->len && is_white_space(s->text[s->at])) s->at++;
}

static int scan_value(struct scan *s) {
    char c = s->text[s->at];
    if (c == '"') {
        TRY(scan_string(s));
        skip_white_space(s);
        if (s->at < s->len && s->text[s->at] == ':') { // it was a key, not a value
            s->at++;
            return 0;
        }
    }
    if (++s->n_nodes > s->limits->max_nodes)
        return err_set(s->err, E_LIMIT, "JSON of more than %zu values", s->limits->max_nodes);
    if (c == '"') return 0;
    if (c == '-' || is_digit(c)) return scan_number(s);
    if (c != '{' && c != '[') return scan_literal(s);
    if (++s->depth > s->limits->max_depth)
        return err_set(s->err, E_LIMIT, "JSON nested more than %d deep", s->limits->max_depth);
    s->at++;
    return 0;
}

static int scan_text(struct scan *s) {
    for (skip_white_space(s); s->at < s->len; skip_white_space(s)) {
        switch (s->text[s->at]) {
        case ',':
            s->at++;
            break;
        case '}':
        case ']':
            s->at++;
            s->depth--;
            break;
        default:
            TRY(scan_value(s));
        }
    }
    return 0;
}

static int guard(const char *text, size_t len, const struct json_limits *limits, struct err *err) {
    if (len > limits->max_bytes)
        return err_set(err, E_LIMIT, "JSON of %zu bytes; the limit is %zu", len, limits->max_bytes);
    if (memchr(text, '\0', len))
        return err_set(err, E_FORMAT, "not valid JSON: it holds a NUL byte");
    if (!utf8_valid(text, len)) return err_set(err, E_FORMAT, "not valid JSON: it is not UTF-8");
    struct scan s = {.text = text, .len = len, .limits = limits, .err = err};
    return scan_text(&s);
}

// --- the parse ---

static int compare_keys(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// Of one object. Sorts, which takes n log n for any keys that a client chooses; a vocabulary has
// 150,000.
static int refuse_twins(const cJSON *object, struct err *err) {
    size_t n = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, object) n++;
    if (n < 2) return 0;
    const char *few[16], **keys = n <= 16 ? few : malloc(n * sizeof *keys);
    if (!keys) return err_set(err, E_NOMEM, "no memory for a JSON object of %zu keys", n);
    n = 0;
    cJSON_ArrayForEach(item, object) keys[n++] = item->string;
    if (n > 2) qsort(keys, n, sizeof *keys, compare_keys);
    int rc = 0;
    for (size_t i = 1; i < n && rc == 0; i++)
        if (strcmp(keys[i - 1], keys[i]) == 0)
            rc = err_set(err, E_FORMAT, "not valid JSON: the key '%s' appears twice", keys[i]);
    if (keys != few) free(keys);
    return rc;
}

// As deep as the guard lets a text be.
static int refuse_duplicate_keys(const cJSON *value, struct err *err) {
    const cJSON *item;
    if (cJSON_IsObject(value)) TRY(refuse_twins(value, err));
    cJSON_ArrayForEach(item, value) if (item->child) TRY(refuse_duplicate_keys(item, err));
    return 0;
}

static bool only_white_space(const char *p, const char *end) {
    while (p < end && is_white_space(*p)) p++;
    return p == end;
}

cJSON *json_parse(const char *text, size_t len, const struct json_limits *limits, struct err *err) {
    if (guard(text, len, limits, err) < 0) return NULL;
    const char *end = text;
    errno = 0;
    cJSON *root = cJSON_ParseWithLengthOpts(text, len, &end, 0);
    if (!root) {
        if (errno == ENOMEM)
            err_set(err, E_NOMEM, "no memory for JSON of %zu bytes", len);
        else
            err_set(err, E_FORMAT, "not valid JSON at byte %zu", (size_t)(end - text));
        return NULL;
    }
    int rc = 0;
    if (!only_white_space(end, text + len))
        rc = err_set(err, E_FORMAT, "not valid JSON: more text after the value at byte %zu",
                     (size_t)(end - text));
    else
        rc = refuse_duplicate_keys(root, err);
    if (rc == 0) return root;
    cJSON_Delete(root);
    return NULL;
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

// --- getters ---

cJSON *json_member(const cJSON *obj, const char *key) {
    cJSON *v = cJSON_GetObjectItemCaseSensitive(obj, key);
    return cJSON_IsNull(v) ? NULL : v;
}

const char *json_string(const cJSON *obj, const char *key) {
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(obj, key));
}

// JSON_PRESENT with *item, JSON_ABSENT, or E_INVAL if obj is not an object.
static int find(const cJSON *obj, const char *key, const cJSON **item, struct err *err) {
    *item = NULL;
    if (!obj) return JSON_ABSENT;
    if (!cJSON_IsObject(obj)) return err_set(err, E_INVAL, "'%s' is not in a JSON object", key);
    *item = cJSON_GetObjectItemCaseSensitive(obj, key);
    return *item && !cJSON_IsNull(*item) ? JSON_PRESENT : JSON_ABSENT;
}

int json_get_string(const cJSON *obj, const char *key, const char **out, struct err *err) {
    const cJSON *item;
    int rc = find(obj, key, &item, err);
    if (rc != JSON_PRESENT) return rc;
    if (!cJSON_IsString(item)) return err_set(err, E_INVAL, "'%s' must be a string", key);
    *out = item->valuestring;
    return JSON_PRESENT;
}

int json_get_bool(const cJSON *obj, const char *key, bool *out, struct err *err) {
    const cJSON *item;
    int rc = find(obj, key, &item, err);
    if (rc != JSON_PRESENT) return rc;
    if (!cJSON_IsBool(item)) return err_set(err, E_INVAL, "'%s' must be true or false", key);
    *out = cJSON_IsTrue(item);
    return JSON_PRESENT;
}

static bool is_integer(const cJSON *item) {
    return cJSON_IsNumber(item) && fabs(item->valuedouble) <= (double)INTEGER_MAX &&
           trunc(item->valuedouble) == item->valuedouble;
}

int json_get_int(const cJSON *obj, const char *key, int64_t min, int64_t max, int64_t *out,
                 struct err *err) {
    const cJSON *item;
    int rc = find(obj, key, &item, err);
    if (rc != JSON_PRESENT) return rc;
    if (!is_integer(item) || (int64_t)item->valuedouble < min || (int64_t)item->valuedouble > max)
        return err_set(err, E_INVAL, "'%s' must be a whole number from %lld to %lld", key,
                       (long long)(min < -INTEGER_MAX ? -INTEGER_MAX : min),
                       (long long)(max > INTEGER_MAX ? INTEGER_MAX : max));
    *out = (int64_t)item->valuedouble;
    return JSON_PRESENT;
}

static bool parse_u64(const char *digits_only, uint64_t *out) {
    uint64_t v = 0;
    if (!*digits_only) return false;
    for (const char *p = digits_only; *p; p++) {
        if (!is_digit(*p) || __builtin_mul_overflow(v, (uint64_t)10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
            return false;
    }
    *out = v;
    return true;
}

int json_get_u64(const cJSON *obj, const char *key, uint64_t *out, struct err *err) {
    const cJSON *item;
    int rc = find(obj, key, &item, err);
    if (rc != JSON_PRESENT) return rc;
    if (cJSON_IsString(item) && parse_u64(item->valuestring, out)) return JSON_PRESENT;
    if (!is_integer(item) || item->valuedouble < 0)
        return err_set(err, E_INVAL,
                       "'%s' must be a whole number from 0 to 2^64 - 1, as a string of digits "
                       "where it is above 2^53 - 1",
                       key);
    *out = (uint64_t)item->valuedouble;
    return JSON_PRESENT;
}

int json_get_double(const cJSON *obj, const char *key, double min, double max, double *out,
                    struct err *err) {
    const cJSON *item;
    int rc = find(obj, key, &item, err);
    if (rc != JSON_PRESENT) return rc;
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= min && item->valuedouble <= max))
        return err_set(err, E_INVAL, "'%s' must be a number from %g to %g", key, min, max);
    *out = item->valuedouble;
    return JSON_PRESENT;
}

int json_get_object(const cJSON *obj, const char *key, const cJSON **out, struct err *err) {
    const cJSON *item;
    int rc = find(obj, key, &item, err);
    if (rc != JSON_PRESENT) return rc;
    if (!cJSON_IsObject(item)) return err_set(err, E_INVAL, "'%s' must be an object", key);
    *out = item;
    return JSON_PRESENT;
}

int json_copy_ids(const cJSON *array, const char *key, int32_t **out, size_t *n, struct err *err) {
    const cJSON *item;
    *n = 0;
    *out = malloc(((size_t)cJSON_GetArraySize(array) + 1) * sizeof **out);
    if (!*out) return err_set(err, E_NOMEM, "no memory for the ids");
    cJSON_ArrayForEach(item, array) {
        double v = cJSON_IsNumber(item) ? item->valuedouble : -1;
        if (!(v >= 0 && v <= INT32_MAX) || v != (double)(int32_t)v)
            return err_set(err, cJSON_IsNumber(item) ? E_LIMIT : E_INVAL,
                           "'%s' must hold token ids; the value at index %zu is not one", key, *n);
        (*out)[(*n)++] = (int32_t)v;
    }
    return 0;
}

int json_get_array(const cJSON *obj, const char *key, const cJSON **out, struct err *err) {
    const cJSON *item;
    int rc = find(obj, key, &item, err);
    if (rc != JSON_PRESENT) return rc;
    if (!cJSON_IsArray(item)) return err_set(err, E_INVAL, "'%s' must be an array", key);
    *out = item;
    return JSON_PRESENT;
}

// Numbers become raw texts, in the fewest digits that are read back as the same number.
static bool make_exact(cJSON *v) {
    char text[40];
    cJSON *child;
    cJSON_ArrayForEach(child, v) if (!make_exact(child)) return false;
    if (!cJSON_IsNumber(v)) return true;
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v->valuedouble);
        if (strtod(text, NULL) == v->valuedouble) break;
    }
    v->valuestring = strdup(text); // cJSON_Delete frees it
    v->type = cJSON_Raw;
    return v->valuestring != NULL;
}

char *json_print(const cJSON *v) {
    cJSON *copy = cJSON_Duplicate(v, true);
    char *text = copy && make_exact(copy) ? cJSON_PrintUnformatted(copy) : NULL;
    cJSON_Delete(copy);
    return text;
}
