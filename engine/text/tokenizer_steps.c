// The normalizer and pre_tokenizer of a tokenizer.json: nested JSON to flat lists of steps.
// Everything that is not known here by name is refused: a skipped step would be a silent difference
// in every text.
#include "base/json.h"
#include "engine/text/tokenizer_file.h"
#include <string.h>

#define MAX_NESTING 8

// What ByteLevel cuts by when use_regex is on: GPT-2's pattern, from OpenAI's encoder.
#define GPT2_PATTERN                                                                               \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

int tokenizer_known_keys(const cJSON *obj, const char *where, const char *const *known,
                         struct err *err) {
    for (const cJSON *item = obj->child; item; item = item->next) {
        const char *const *k = known;
        while (*k && strcmp(*k, item->string) != 0) k++;
        if (!*k) return err_set(err, E_UNSUPPORTED, "%s: unknown key '%.60s'", where, item->string);
    }
    return 0;
}

static int type_of(const cJSON *json, const char *where, const char **type, struct err *err) {
    if (!cJSON_IsObject(json)) return err_set(err, E_FORMAT, "%s is not an object", where);
    int rc = json_get_string(json, "type", type, err);
    if (rc == JSON_ABSENT) return err_set(err, E_FORMAT, "%s has no type", where);
    return rc < 0 ? rc : 0;
}

// --- normalizer
// -------------------------------------------------------------------------------------------

static int read_normalizer(struct normalizer *n, const cJSON *json, int depth, struct err *err) {
    static const char *const names[] = {"NFC", "NFD", "NFKC", "NFKD"}; // as enum normal_form
    static const char *const sequence_keys[] = {"type", "normalizers", NULL}, *const form_keys[] = {
                                                                                  "type", NULL};
    const char *type = NULL;
    TRY(type_of(json, "normalizer", &type, err));
    if (depth > MAX_NESTING)
        return err_set(err, E_LIMIT, "normalizer: nested more than %d deep", MAX_NESTING);
    if (strcmp(type, "Sequence") == 0) {
        const cJSON *list = NULL, *item;
        TRY(tokenizer_known_keys(json, "normalizer Sequence", sequence_keys, err));
        TRY(json_get_array(json, "normalizers", &list, err));
        cJSON_ArrayForEach(item, list) TRY(read_normalizer(n, item, depth + 1, err));
        return 0;
    }
    for (int i = 0; i < 4; i++) {
        if (strcmp(type, names[i]) != 0) continue;
        if (n->n_forms == NORMALIZER_MAX_FORMS)
            return err_set(err, E_LIMIT, "normalizer: more than %d steps", NORMALIZER_MAX_FORMS);
        n->forms[n->n_forms++] = (enum normal_form)i;
        return tokenizer_known_keys(json, type, form_keys, err);
    }
    return err_set(err, E_UNSUPPORTED, "normalizer '%.60s' is not supported", type);
}

int tokenizer_read_normalizer(struct normalizer *n, const cJSON *json, struct err *err) {
    return !json || cJSON_IsNull(json) ? 0 : read_normalizer(n, json, 0, err);
}

// --- pre-tokeniser
// ----------------------------------------------------------------------------------------

struct pre_reader {
    struct pre_tokenizer *pre;
    bool byte_level; // met: from there on text is in the byte alphabet, so nothing may follow
    struct err *err;
};

static int read_byte_level(struct pre_reader *r, const cJSON *json) {
    static const char *const keys[] = {"type", "add_prefix_space", "trim_offsets", "use_regex",
                                       NULL};
    bool prefix = true, regex = true; // the defaults of files that leave them out
    TRY(tokenizer_known_keys(json, "pre_tokenizer ByteLevel", keys, r->err));
    TRY(json_get_bool(json, "add_prefix_space", &prefix, r->err));
    TRY(json_get_bool(json, "use_regex", &regex, r->err));
    r->byte_level = true;
    if (prefix) TRY(pre_tokenizer_add(r->pre, PRE_PREFIX_SPACE, NULL, PRE_ISOLATED, false, r->err));
    return regex ? pre_tokenizer_add(r->pre, PRE_PATTERN, GPT2_PATTERN, PRE_ISOLATED, false, r->err)
                 : 0;
}

static int read_split(struct pre_reader *r, const cJSON *json) {
    static const char *const keys[] = {"type", "pattern", "behavior", "invert", NULL};
    static const char *const pattern_keys[] = {"String", "Regex", NULL};
    static const char *const behaviors[] = {"Isolated", "Removed", "MergedWithPrevious",
                                            "MergedWithNext", "Contiguous"}; // as enum pre_behavior
    const cJSON *pattern = NULL;
    const char *behavior = "", *regex = NULL, *string = NULL;
    bool invert = false;
    TRY(tokenizer_known_keys(json, "pre_tokenizer Split", keys, r->err));
    TRY(json_get_object(json, "pattern", &pattern, r->err));
    TRY(json_get_string(json, "behavior", &behavior, r->err));
    TRY(json_get_bool(json, "invert", &invert, r->err));
    if (!pattern) return err_set(r->err, E_FORMAT, "pre_tokenizer Split has no pattern");
    TRY(tokenizer_known_keys(pattern, "pattern", pattern_keys, r->err));
    TRY(json_get_string(pattern, "Regex", &regex, r->err));
    TRY(json_get_string(pattern, "String", &string, r->err));
    if (!regex == !string)
        return err_set(r->err, E_FORMAT, "pattern of Split is not one of Regex and String");
    for (int i = 0; i < 5; i++)
        if (strcmp(behavior, behaviors[i]) == 0)
            return pre_tokenizer_add(r->pre, regex ? PRE_PATTERN : PRE_LITERAL,
                                     regex ? regex : string, (enum pre_behavior)i, invert, r->err);
    return err_set(r->err, E_UNSUPPORTED, "Split behavior '%.60s' is not supported", behavior);
}

static int read_digits(struct pre_reader *r, const cJSON *json) {
    static const char *const keys[] = {"type", "individual_digits", NULL};
    bool individual = false;
    TRY(tokenizer_known_keys(json, "pre_tokenizer Digits", keys, r->err));
    TRY(json_get_bool(json, "individual_digits", &individual, r->err));
    return pre_tokenizer_add(r->pre, PRE_NUMERIC, NULL, individual ? PRE_ISOLATED : PRE_CONTIGUOUS,
                             false, r->err);
}

static int read_pre(struct pre_reader *r, const cJSON *json, int depth) {
    static const char *const sequence_keys[] = {"type", "pretokenizers", NULL};
    const char *type = NULL;
    TRY(type_of(json, "pre_tokenizer", &type, r->err));
    if (depth > MAX_NESTING)
        return err_set(r->err, E_LIMIT, "pre_tokenizer: nested more than %d deep", MAX_NESTING);
    if (strcmp(type, "Sequence") == 0) {
        const cJSON *list = NULL, *item;
        TRY(tokenizer_known_keys(json, "pre_tokenizer Sequence", sequence_keys, r->err));
        TRY(json_get_array(json, "pretokenizers", &list, r->err));
        cJSON_ArrayForEach(item, list) TRY(read_pre(r, item, depth + 1));
        return 0;
    }
    if (r->byte_level)
        return err_set(r->err, E_UNSUPPORTED,
                       "pre_tokenizer '%.60s' behind ByteLevel is not supported", type);
    if (strcmp(type, "ByteLevel") == 0) return read_byte_level(r, json);
    if (strcmp(type, "Split") == 0) return read_split(r, json);
    if (strcmp(type, "Digits") == 0) return read_digits(r, json);
    return err_set(r->err, E_UNSUPPORTED, "pre_tokenizer '%.60s' is not supported", type);
}

int tokenizer_read_pre(struct pre_tokenizer *p, const cJSON *json, struct err *err) {
    struct pre_reader r = {.pre = p, .err = err};
    if (json && !cJSON_IsNull(json)) TRY(read_pre(&r, json, 0));
    if (!r.byte_level)
        return err_set(err, E_UNSUPPORTED,
                       "pre_tokenizer without ByteLevel: only byte-level vocabularies are read");
    return 0;
}
