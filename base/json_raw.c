// JSON values as they were written. See json_raw.h.
#include "base/json_raw.h"
#include <stdbool.h>
#include <string.h>

static const char *skip_space(const char *p) {
    while (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r') p++;
    return p;
}

static const char *skip_string(const char *p) {
    for (p++; *p != '"'; p++)
        if (*p == '\\') p++;
    return p + 1;
}

static const char *skip_value(const char *p) {
    int depth = 0;
    if (*p != '{' && *p != '[') // a string, a number or a word
        return *p == '"' ? skip_string(p) : p + strcspn(p, ",}] \t\r\n");
    do {
        if (*p == '"') {
            p = skip_string(p);
            continue;
        }
        if (*p == '{' || *p == '[') depth++;
        if (*p == '}' || *p == ']') depth--;
        p++;
    } while (depth > 0);
    return p;
}

const char *json_raw_value(const char *text, const char *key, size_t *len) {
    size_t key_len = strlen(key);
    const char *p = skip_space(skip_space(text) + 1);
    while (*p == '"') {
        const char *name = p + 1;
        p = skip_string(p);
        bool hit = (size_t)(p - name) == key_len + 1 && memcmp(name, key, key_len) == 0;
        p = skip_space(skip_space(p) + 1); // over the colon
        const char *start = p;
        p = skip_value(p);
        *len = (size_t)(p - start);
        if (hit) return start;
        p = skip_space(p);
        if (*p == ',') p = skip_space(p + 1);
    }
    return NULL;
}

size_t json_raw_len(const char *value) {
    return (size_t)(skip_value(value) - value);
}

const char *json_raw_first(const char *text) {
    const char *p = skip_space(skip_space(text) + 1);
    return *p == ']' ? NULL : p;
}

const char *json_raw_next(const char *item) {
    const char *p = skip_space(skip_value(item));
    return *p == ',' ? skip_space(p + 1) : NULL;
}
