// Reading parsed JSON: the getters, and the text of a value. json_parse.c parses, json_writer.c writes. See json.h.
#include "base/json.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Each integer below this is one double; 2^53 + 1 rounds to 2^53.
#define INTEGER_MAX 9007199254740991

cJSON *json_member(const cJSON *obj, const char *key) {
    cJSON *v = cJSON_GetObjectItemCaseSensitive(obj, key);
    return cJSON_IsNull(v) ? NULL : v;
}

const char *json_string(const cJSON *obj, const char *key) {
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(obj, key));
}

cJSON *json_set(cJSON *obj, const char *key, cJSON *v) {
    bool has = obj && cJSON_GetObjectItemCaseSensitive(obj, key);
    if (v && (has ? cJSON_ReplaceItemInObjectCaseSensitive : cJSON_AddItemToObject)(obj, key, v))
        return v;
    cJSON_Delete(v);
    return NULL;
}

cJSON *json_append(cJSON *array, cJSON *v) {
    if (v && cJSON_AddItemToArray(array, v)) return v;
    cJSON_Delete(v);
    return NULL;
}

cJSON *json_take_text(struct buf *text) {
    cJSON *v = text->error ? NULL : cJSON_CreateString(buf_z(text));
    buf_release(text);
    return v;
}

// JSON_PRESENT with *item, JSON_ABSENT, or E_INVAL if obj is not an object.
static int find(const cJSON *obj, const char *key, const cJSON **item, struct err *err) {
    *item = NULL;
    if (!obj) return JSON_ABSENT;
    if (!cJSON_IsObject(obj))
        return err_key(err, E_INVAL, key, "'%s' is not in a JSON object", key);
    *item = cJSON_GetObjectItemCaseSensitive(obj, key);
    return *item && !cJSON_IsNull(*item) ? JSON_PRESENT : JSON_ABSENT;
}

int json_get_string(const cJSON *obj, const char *key, const char **out, struct err *err) {
    const cJSON *item;
    int rc = find(obj, key, &item, err);
    if (rc != JSON_PRESENT) return rc;
    if (!cJSON_IsString(item)) return err_key(err, E_INVAL, key, "'%s' must be a string", key);
    *out = item->valuestring;
    return JSON_PRESENT;
}

int json_get_bool(const cJSON *obj, const char *key, bool *out, struct err *err) {
    const cJSON *item;
    int rc = find(obj, key, &item, err);
    if (rc != JSON_PRESENT) return rc;
    if (!cJSON_IsBool(item)) return err_key(err, E_INVAL, key, "'%s' must be true or false", key);
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
        return err_key(err, E_INVAL, key, "'%s' must be a whole number from %lld to %lld", key,
                       (long long)(min < -INTEGER_MAX ? -INTEGER_MAX : min),
                       (long long)(max > INTEGER_MAX ? INTEGER_MAX : max));
    *out = (int64_t)item->valuedouble;
    return JSON_PRESENT;
}

static bool parse_u64(const char *digits_only, uint64_t *out) {
    uint64_t v = 0;
    if (!*digits_only) return false;
    for (const char *p = digits_only; *p; p++) {
        if (*p < '0' || *p > '9' || __builtin_mul_overflow(v, (uint64_t)10, &v) ||
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
        return err_key(err, E_INVAL, key,
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
        return err_key(err, E_INVAL, key, "'%s' must be a number from %g to %g", key, min, max);
    *out = item->valuedouble;
    return JSON_PRESENT;
}

int json_get_object(const cJSON *obj, const char *key, const cJSON **out, struct err *err) {
    const cJSON *item;
    int rc = find(obj, key, &item, err);
    if (rc != JSON_PRESENT) return rc;
    if (!cJSON_IsObject(item)) return err_key(err, E_INVAL, key, "'%s' must be an object", key);
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
            return err_key(err, cJSON_IsNumber(item) ? E_LIMIT : E_INVAL, key,
                           "'%s' must hold token ids; the value at index %zu is not one", key, *n);
        (*out)[(*n)++] = (int32_t)v;
    }
    return 0;
}

int json_get_array(const cJSON *obj, const char *key, const cJSON **out, struct err *err) {
    const cJSON *item;
    int rc = find(obj, key, &item, err);
    if (rc != JSON_PRESENT) return rc;
    if (!cJSON_IsArray(item)) return err_key(err, E_INVAL, key, "'%s' must be an array", key);
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
    v->type = cJSON_Raw | (v->type & cJSON_StringIsConst);
    return v->valuestring != NULL;
}

char *json_print(const cJSON *v) {
    cJSON *copy = cJSON_Duplicate(v, true);
    char *text = copy && make_exact(copy) ? cJSON_PrintUnformatted(copy) : NULL;
    cJSON_Delete(copy);
    return text;
}
