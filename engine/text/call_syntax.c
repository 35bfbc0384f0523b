// See call_syntax.h.
#include "engine/text/call_syntax.h"
#include <stdlib.h>
#include <string.h>

#define VALUE_DEPTH 64

// --- markers ---

const char *const *call_markers(enum tool_syntax syntax) {
    static const char *const of[][3] = {
        [TOOL_SYNTAX_HERMES] = {"<tool_call>"},
        [TOOL_SYNTAX_XML] = {"<tool_call>", "<function="},
        [TOOL_SYNTAX_LLAMA] = {"<|python_tag|>"},
        [TOOL_SYNTAX_MISTRAL] = {"[TOOL_CALLS]"},
        [TOOL_SYNTAX_LIST] = {"<|tool_call|>"},
        [TOOL_SYNTAX_GLM] = {"<tool_call>"},
        [TOOL_SYNTAX_OTHER] = {NULL},
    };
    return of[syntax];
}

// --- spans ---

struct span span_from(struct span t, size_t from) {
    if (from > t.len) from = t.len;
    return (struct span){t.s + from, t.len - from};
}

static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

size_t span_space(struct span t) {
    size_t n = 0;
    while (n < t.len && is_space(t.s[n])) n++;
    return n;
}

size_t span_trimmed(struct span t, size_t n) {
    while (n > 0 && is_space(t.s[n - 1])) n--;
    return n;
}

bool span_starts(struct span t, const char *with) {
    size_t n = strlen(with);
    return t.len >= n && memcmp(t.s, with, n) == 0;
}

bool span_begins(struct span t, const char *what) {
    return t.len < strlen(what) && memcmp(t.s, what, t.len) == 0;
}

size_t span_find(struct span t, const char *what) {
    const char *at = t.len ? memmem(t.s, t.len, what, strlen(what)) : NULL;
    return at ? (size_t)(at - t.s) : SIZE_MAX;
}

size_t span_held(struct span t, const char *what) {
    size_t n = strlen(what) - 1;
    if (n > t.len) n = t.len;
    while (n > 0 && memcmp(t.s + t.len - n, what, n) != 0) n--;
    return n;
}

bool span_is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
}

// --- JSON that may be cut ---

// The end of the string that begins at `at`; SIZE_MAX: its end has not come yet.
static size_t string_end(struct span t, size_t at) {
    for (size_t i = at + 1; i < t.len; i++) {
        if (t.s[i] == '\\')
            i++;
        else if (t.s[i] == '"')
            return i + 1;
    }
    return SIZE_MAX;
}

// The end of any value. A number or a word ends where the next character cannot belong to it.
static size_t value_end(struct span t, size_t at) {
    int depth = 0;
    if (at >= t.len) return SIZE_MAX;
    for (size_t i = at; i < t.len; i++) {
        char c = t.s[i];
        if (c == '"') {
            size_t end = string_end(t, i);
            if (end == SIZE_MAX) return SIZE_MAX;
            if (depth == 0) return end;
            i = end - 1;
        } else if (c == '{' || c == '[') {
            if (++depth > VALUE_DEPTH) return SIZE_MAX;
        } else if (c == '}' || c == ']') {
            if (depth == 0) return i;
            if (--depth == 0) return i + 1;
        } else if (depth == 0 && (c == ',' || is_space(c))) {
            return i;
        }
    }
    return SIZE_MAX;
}

static const struct json_limits value_limits = {
    .max_bytes = 1 << 20, .max_depth = VALUE_DEPTH, .max_nodes = 100000};

// A JSON string's characters.
static bool decode_string(struct span t, size_t at, size_t end, char *out, size_t cap) {
    cJSON *v = json_parse(t.s + at, end - at, &value_limits, NULL);
    const char *s = cJSON_GetStringValue(v);
    bool ok = s && strlen(s) < cap;
    if (ok) strcpy(out, s);
    cJSON_Delete(v);
    return ok;
}

void call_escape(struct buf *out, char c, bool escaped) {
    static const char names[] = "btnvfr"; // of the characters 8 to 13; 11 has none in JSON
    if (!escaped) buf_addc(out, '\\');
    if (c >= 8 && c <= 13 && c != 11)
        buf_addc(out, names[c - 8]);
    else
        buf_addf(out, "u%04x", (unsigned)(unsigned char)c);
}

// A value with the control characters in its strings escaped: models write line ends into them.
static void repair(struct span value, struct buf *out) {
    bool in_string = false, escaped = false;
    buf_reset(out);
    for (size_t i = 0; i < value.len; i++) {
        char c = value.s[i];
        if (in_string && (unsigned char)c < 0x20)
            call_escape(out, c, escaped);
        else
            buf_addc(out, c);
        if (c == '"' && !escaped) in_string = !in_string;
        escaped = in_string && c == '\\' && !escaped;
    }
}

// The arguments' JSON: as they stand, or out of a string.
static bool take_arguments(struct span t, size_t at, size_t end, struct buf *args) {
    repair((struct span){t.s + at, end - at}, args);
    cJSON *v = json_parse(buf_z(args), args->len, &value_limits, NULL);
    const char *s = cJSON_GetStringValue(v);
    if (!cJSON_IsObject(v)) buf_reset(args);
    if (s) buf_addz(args, s);
    bool ok = v != NULL;
    cJSON_Delete(v);
    return ok;
}

// --- a call's object ---

enum member { MEMBER_NAME, MEMBER_ARGUMENTS, MEMBER_OTHER };
static enum member member_named(const char *key) {
    if (strcmp(key, "name") == 0) return MEMBER_NAME;
    if (strcmp(key, "arguments") == 0 || strcmp(key, "parameters") == 0) return MEMBER_ARGUMENTS;
    return MEMBER_OTHER;
}

enum call_found call_head_read(struct span t, bool strict, struct call_head *out,
                               struct buf *args) {
    char key[64];
    bool has_args = false;
    size_t i = 0;
    *out = (struct call_head){0};
    buf_reset(args);
    if (t.len == 0) return CALL_INCOMPLETE;
    if (t.s[i++] != '{') return CALL_NONE;
    for (bool first = true;; first = false) {
        i += span_space(span_from(t, i));
        if (i == t.len) return CALL_INCOMPLETE;
        if (t.s[i] == '}' && out->name[0] && (has_args || !strict)) {
            out->end = i + 1;
            return CALL_WHOLE;
        }
        if (!first && t.s[i++] != ',') return CALL_NONE;
        i += span_space(span_from(t, i));
        if (i == t.len) return CALL_INCOMPLETE;
        if (t.s[i] != '"') return CALL_NONE;
        size_t end = string_end(t, i);
        if (end == SIZE_MAX) return CALL_INCOMPLETE;
        if (!decode_string(t, i, end, key, sizeof key)) return CALL_NONE;
        enum member m = member_named(key);
        if (m == MEMBER_OTHER && strict && strcmp(key, "type") != 0 && strcmp(key, "id") != 0)
            return CALL_NONE;
        i = end + span_space(span_from(t, end));
        if (i == t.len) return CALL_INCOMPLETE;
        if (t.s[i++] != ':') return CALL_NONE;
        i += span_space(span_from(t, i));
        if (i == t.len) return CALL_INCOMPLETE;
        if (m == MEMBER_ARGUMENTS && out->name[0] && t.s[i] == '{') {
            out->end = i;
            return CALL_ARGUMENTS;
        }
        end = value_end(t, i);
        if (end == SIZE_MAX) return CALL_INCOMPLETE;
        if (m == MEMBER_NAME &&
            (!decode_string(t, i, end, out->name, sizeof out->name) || !out->name[0]))
            return CALL_NONE;
        if (m == MEMBER_ARGUMENTS && !take_arguments(t, i, end, args)) return CALL_NONE;
        has_args = has_args || m == MEMBER_ARGUMENTS;
        i = end;
    }
}

size_t call_object_end(struct span t) {
    int depth = 1;
    for (size_t i = 0; i < t.len; i++) {
        if (t.s[i] == '"') {
            size_t end = string_end(t, i);
            if (end == SIZE_MAX) return SIZE_MAX;
            i = end - 1;
        }
        if (t.s[i] == '{' || t.s[i] == '[') depth++;
        if ((t.s[i] == '}' || t.s[i] == ']') && --depth == 0) return i + 1;
    }
    return SIZE_MAX;
}

// --- parameters in XML ---

static bool is_text(const cJSON *tools, const char *name, struct span key) {
    const cJSON *tool, *of;
    char member[128];
    if (key.len >= sizeof member) return false;
    memcpy(member, key.s, key.len);
    member[key.len] = '\0';
    cJSON_ArrayForEach(tool, tools) {
        const cJSON *function = cJSON_GetObjectItemCaseSensitive(tool, "function");
        of = cJSON_GetObjectItemCaseSensitive(function, "name");
        if (!cJSON_IsString(of) || strcmp(of->valuestring, name) != 0) continue;
        of = cJSON_GetObjectItemCaseSensitive(function, "parameters");
        of = cJSON_GetObjectItemCaseSensitive(of, "properties");
        of = cJSON_GetObjectItemCaseSensitive(of, member);
        of = cJSON_GetObjectItemCaseSensitive(of, "type");
        return cJSON_IsString(of) && strcmp(of->valuestring, "string") == 0;
    }
    return false;
}

enum call_found call_parameter_read(struct span t, const cJSON *tools, const char *name,
                                    struct call_parameter *out) {
    static const char open[] = "<parameter=", close[] = "</parameter>", end[] = "</function>";
    size_t white = span_space(t);
    struct span rest = span_from(t, white);
    *out = (struct call_parameter){0};
    if (span_starts(rest, end)) {
        out->end = white + sizeof end - 1;
        return CALL_WHOLE;
    }
    if (span_begins(rest, open) || span_begins(rest, end)) return CALL_INCOMPLETE;
    if (!span_starts(rest, open)) return CALL_NONE;
    size_t key_end = span_find(rest, ">"), stop = span_find(rest, close);
    if (key_end == SIZE_MAX || stop == SIZE_MAX) return CALL_INCOMPLETE;
    if (stop < key_end) return CALL_NONE;
    out->key = white + sizeof open - 1;
    out->key_len = white + key_end - out->key;
    out->value = white + key_end + 1;
    out->value_len = white + stop - out->value;
    out->end = white + stop + sizeof close - 1;
    // A line of its own.
    if (out->value_len && t.s[out->value] == '\n') out->value++, out->value_len--;
    if (out->value_len && t.s[out->value + out->value_len - 1] == '\n') out->value_len--;
    out->text = is_text(tools, name, (struct span){t.s + out->key, out->key_len});
    return CALL_PARAMETER;
}

enum call_found call_argument_read(struct span t, const cJSON *tools, const char *name,
                                   struct call_parameter *out) {
    static const char end[] = "</tool_call>", key[] = "<arg_key>", key_end[] = "</arg_key>",
                      value[] = "<arg_value>", value_end[] = "</arg_value>";
    const size_t white = span_space(t);
    const struct span rest = span_from(t, white);
    *out = (struct call_parameter){0};
    if (span_starts(rest, end)) {
        out->end = white + sizeof end - 1;
        return CALL_WHOLE;
    }
    if (span_begins(rest, key) || span_begins(rest, end)) return CALL_INCOMPLETE;
    if (!span_starts(rest, key)) return CALL_NONE;
    const size_t stop = span_find(rest, key_end);
    if (stop == SIZE_MAX) return CALL_INCOMPLETE;
    out->key = white + sizeof key - 1;
    out->key_len = white + stop - out->key;
    const size_t behind = white + stop + sizeof key_end - 1,
                 begin = behind + span_space(span_from(t, behind));
    const struct span said = span_from(t, begin);
    if (span_begins(said, value)) return CALL_INCOMPLETE;
    if (!span_starts(said, value)) return CALL_NONE;
    const size_t last = span_find(said, value_end);
    if (last == SIZE_MAX) return CALL_INCOMPLETE;
    out->value = begin + sizeof value - 1;
    out->value_len = begin + last - out->value;
    out->end = begin + last + sizeof value_end - 1;
    out->text = is_text(tools, name, (struct span){t.s + out->key, out->key_len});
    return CALL_PARAMETER;
}

static void write_string(struct buf *out, const char *s, size_t len) {
    struct json_writer w;
    json_writer_init(&w, out);
    json_put_text(&w, NULL, s, len);
}

void call_parameter_write(struct buf *out, struct span t, const struct call_parameter *p) {
    const char *value = t.s + p->value;
    write_string(out, t.s + p->key, p->key_len);
    buf_addz(out, ": ");
    cJSON *v = p->text ? NULL : json_parse(value, p->value_len, &value_limits, NULL);
    if (v)
        buf_add(out, value, p->value_len);
    else
        write_string(out, value, p->value_len);
    cJSON_Delete(v);
}
