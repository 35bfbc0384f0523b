// Sampling parameters from text. The text becomes a JSON value of the row's type, so that the one
// reader of JSON checks it; text of another type becomes a string, which the reader refuses.
#include "engine/sampling/text.h"
#include "base/json.h"
#include "engine/sampling/json.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static cJSON *number(const char *text) {
    char *end;
    if (text[strspn(text, "+-.eE0123456789")]) return cJSON_CreateString(text); // "nan", "0x10"
    double v = strtod(text, &end);
    bool good = end != text && !*end && isfinite(v);
    return good ? cJSON_CreateNumber(v) : cJSON_CreateString(text);
}

static cJSON *truth(const char *text) {
    bool on = !strcasecmp(text, "true") || !strcasecmp(text, "on");
    bool off = !strcasecmp(text, "false") || !strcasecmp(text, "off");
    return on || off ? cJSON_CreateBool(on) : cJSON_CreateString(text);
}

// Decimal or hexadecimal; a string in JSON, which cannot carry 64 bits as a number.
static cJSON *seed(const char *text) {
    char *end, digits[24];
    errno = 0;
    unsigned long long v = strtoull(text, &end, 0);
    bool good = end != text && !*end && !errno && text[0] >= '0' && text[0] <= '9';
    snprintf(digits, sizeof digits, "%llu", v);
    return cJSON_CreateString(good ? digits : text);
}

static cJSON *object(const char *text) {
    cJSON *value = json_parse(text, strlen(text), &json_limits_message, NULL);
    return value ? value : cJSON_CreateString(text);
}

// A JSON list of texts and lists, or one text, which may look like other JSON.
static cJSON *words(const char *text) {
    cJSON *value = json_parse(text, strlen(text), &json_limits_message, NULL);
    bool is_list = cJSON_IsArray(value);
    const cJSON *item;
    cJSON_ArrayForEach(item, value) is_list =
        is_list && (cJSON_IsString(item) || cJSON_IsArray(item));
    if (is_list) return value;
    cJSON_Delete(value);
    return cJSON_CreateString(text);
}

static cJSON *value_of(const struct sampling_row *row, const char *text) {
    switch (row->type) {
    case SAMPLING_FLOAT:
    case SAMPLING_INT:
    case SAMPLING_MS:
        return number(text);
    case SAMPLING_BOOL:
        return truth(text);
    case SAMPLING_SEED:
        return seed(text);
    case SAMPLING_BIASES:
        return object(text);
    case SAMPLING_WORDS:
        return words(text);
    case SAMPLING_GRAMMAR:
        return cJSON_CreateString(text);
    }
    return NULL;
}

int sampling_text_apply(struct turn_sampling *s, const struct sampling_row *row, const char *text,
                        struct err *err) {
    cJSON *object = cJSON_CreateObject(), *value = value_of(row, text);
    int rc = E_NOMEM;
    if (object && value && cJSON_AddItemToObject(object, row->name, value)) {
        value = NULL; // the object's
        rc = sampling_json_read(s, object, INT32_MAX, err);
    } else {
        err_set(err, rc, "no memory for %s", row->name);
    }
    cJSON_Delete(value);
    cJSON_Delete(object);
    return rc;
}
