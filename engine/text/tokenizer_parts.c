// Functions that the readers of a tokenizer.json's parts share.
#include "base/json.h"
#include "engine/text/char_class.h"
#include "engine/text/tokenizer_file.h"
#include <math.h>
#include <string.h>

int tokenizer_known_keys(const cJSON *obj, const char *where, const char *const *known,
                         struct err *err) {
    for (const cJSON *item = obj->child; item; item = item->next) {
        const char *const *k = known;
        while (*k && strcmp(*k, item->string) != 0) k++;
        if (!*k) return err_set(err, E_UNSUPPORTED, "%s: unknown key '%.60s'", where, item->string);
    }
    return 0;
}

int tokenizer_type_of(const cJSON *json, const char *where, const char **type, struct err *err) {
    if (!cJSON_IsObject(json)) return err_set(err, E_FORMAT, "%s is not an object", where);
    int rc = json_get_string(json, "type", type, err);
    if (rc == JSON_ABSENT) return err_set(err, E_FORMAT, "%s has no type", where);
    return rc < 0 ? rc : 0;
}

int tokenizer_token_id(const cJSON *item, int32_t *id, const char *content, struct err *err) {
    double v = item ? item->valuedouble : NAN;
    if (!cJSON_IsNumber(item) || !(v >= 0 && v < INT32_MAX) || v != floor(v))
        return err_set(err, E_FORMAT, "the id of token '%.40s' is not a non-negative integer",
                       content);
    *id = (int32_t)v;
    return 0;
}

int tokenizer_read_pattern(const cJSON *json, const char *where, const char **regex,
                           const char **string, struct err *err) {
    static const char *const keys[] = {"String", "Regex", NULL};
    const cJSON *pattern = NULL;
    *regex = *string = NULL;
    TRY(json_get_object(json, "pattern", &pattern, err));
    if (!pattern) return err_set(err, E_FORMAT, "%s has no pattern", where);
    TRY(tokenizer_known_keys(pattern, "pattern", keys, err));
    TRY(json_get_string(pattern, "Regex", regex, err));
    TRY(json_get_string(pattern, "String", string, err));
    if (!*regex == !*string)
        return err_set(err, E_FORMAT, "pattern of %s is not one of Regex and String", where);
    return 0;
}

bool tokenizer_is_character(const char *s) {
    return *s && strlen(s) == char_utf8_len(s);
}

// Files from before prepend_scheme say add_prefix_space.
int tokenizer_read_metaspace(const cJSON *json, const char *where, struct tokenizer_metaspace *m,
                             struct err *err) {
    static const char *const keys[] = {
        "type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split", NULL};
    static const char *const schemes[] = {"always", "first", "never"}; // as enum pre_prepend
    const char *scheme = NULL;
    bool prefix = true;
    *m = (struct tokenizer_metaspace){.replacement = "\u2581", .split = true};
    TRY(tokenizer_known_keys(json, where, keys, err));
    TRY(json_get_string(json, "replacement", &m->replacement, err));
    TRY(json_get_string(json, "prepend_scheme", &scheme, err));
    TRY(json_get_bool(json, "add_prefix_space", &prefix, err));
    TRY(json_get_bool(json, "split", &m->split, err));
    if (!tokenizer_is_character(m->replacement))
        return err_set(err, E_FORMAT, "%s: replacement '%.20s' is not one character", where,
                       m->replacement);
    m->prepend = prefix ? PREPEND_ALWAYS : PREPEND_NEVER;
    if (!scheme) return 0;
    for (int i = 0; i < 3; i++) {
        if (strcmp(scheme, schemes[i]) != 0) continue;
        if (!prefix && i != PREPEND_NEVER)
            return err_set(err, E_FORMAT, "%s: add_prefix_space is false and prepend_scheme '%s'",
                           where, scheme);
        m->prepend = (enum pre_prepend)i;
        return 0;
    }
    return err_set(err, E_UNSUPPORTED, "%s: prepend_scheme '%.20s' is not supported", where,
                   scheme);
}
