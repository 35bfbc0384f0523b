// The pre_tokenizer of a tokenizer.json: nested JSON to a flat list of steps. Unknown names are
// refused: skipping a step would silently change the ids of every text.
#include "base/json.h"
#include "engine/text/tokenizer_file.h"
#include <string.h>

// ByteLevel's pattern with use_regex: GPT-2's, from OpenAI's encoder.
#define GPT2_PATTERN                                                                               \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

// --- pre-tokeniser -------------------------------------------------------------------------------

struct pre_reader {
    struct pre_tokenizer *pre;
    bool byte_level; // the last step left text to be read as bytes
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

static int read_behavior(struct pre_reader *r, const cJSON *json, const char *where,
                         enum pre_behavior *out) {
    static const char *const behaviors[] = {"Isolated", "Removed", "MergedWithPrevious",
                                            "MergedWithNext", "Contiguous"}; // as enum pre_behavior
    const char *behavior = NULL;
    TRY(json_get_string(json, "behavior", &behavior, r->err));
    for (int i = 0; i < 5 && behavior; i++)
        if (strcmp(behavior, behaviors[i]) == 0) {
            *out = (enum pre_behavior)i;
            return 0;
        }
    return behavior ? err_set(r->err, E_UNSUPPORTED, "%s behavior '%.60s' is not supported", where,
                              behavior)
                    : 0;
}

static int read_split(struct pre_reader *r, const cJSON *json) {
    static const char *const keys[] = {"type", "pattern", "behavior", "invert", NULL};
    enum pre_behavior behavior = PRE_REMOVED;
    const char *regex = NULL, *string = NULL;
    bool invert = false;
    TRY(tokenizer_known_keys(json, "pre_tokenizer Split", keys, r->err));
    TRY(json_get_bool(json, "invert", &invert, r->err));
    TRY(tokenizer_read_pattern(json, "Split", &regex, &string, r->err));
    if (!cJSON_HasObjectItem(json, "behavior"))
        return err_set(r->err, E_FORMAT, "pre_tokenizer Split has no behavior");
    TRY(read_behavior(r, json, "Split", &behavior));
    return pre_tokenizer_add(r->pre, regex ? PRE_PATTERN : PRE_LITERAL, regex ? regex : string,
                             behavior, invert, r->err);
}

static int read_digits(struct pre_reader *r, const cJSON *json) {
    static const char *const keys[] = {"type", "individual_digits", NULL};
    bool individual = false;
    TRY(tokenizer_known_keys(json, "pre_tokenizer Digits", keys, r->err));
    TRY(json_get_bool(json, "individual_digits", &individual, r->err));
    return pre_tokenizer_add(r->pre, PRE_NUMERIC, NULL, individual ? PRE_ISOLATED : PRE_CONTIGUOUS,
                             false, r->err);
}

static int read_punctuation(struct pre_reader *r, const cJSON *json) {
    static const char *const keys[] = {"type", "behavior", NULL};
    enum pre_behavior behavior = PRE_ISOLATED;
    TRY(tokenizer_known_keys(json, "pre_tokenizer Punctuation", keys, r->err));
    TRY(read_behavior(r, json, "Punctuation", &behavior));
    return pre_tokenizer_add(r->pre, PRE_PUNCTUATION, NULL, behavior, false, r->err);
}

static int read_char_delimiter(struct pre_reader *r, const cJSON *json) {
    static const char *const keys[] = {"type", "delimiter", NULL};
    const char *delimiter = "";
    TRY(tokenizer_known_keys(json, "pre_tokenizer CharDelimiterSplit", keys, r->err));
    TRY(json_get_string(json, "delimiter", &delimiter, r->err));
    if (!tokenizer_is_character(delimiter))
        return err_set(r->err, E_FORMAT,
                       "CharDelimiterSplit: delimiter '%.20s' is not one character", delimiter);
    return pre_tokenizer_add(r->pre, PRE_LITERAL, delimiter, PRE_REMOVED, false, r->err);
}

static int read_fixed_length(struct pre_reader *r, const cJSON *json) {
    static const char *const keys[] = {"type", "length", NULL};
    int64_t length = 5;
    TRY(tokenizer_known_keys(json, "pre_tokenizer FixedLength", keys, r->err));
    TRY(json_get_int(json, "length", 1, INT32_MAX, &length, r->err));
    struct pre_step *step = pre_tokenizer_add_step(r->pre, PRE_FIXED_LENGTH, r->err);
    if (!step) return E_LIMIT;
    step->length = (size_t)length;
    return 0;
}

static int read_metaspace(struct pre_reader *r, const cJSON *json) {
    struct tokenizer_metaspace m;
    TRY(tokenizer_read_metaspace(json, "pre_tokenizer Metaspace", &m, r->err));
    struct pre_step *step = pre_tokenizer_add_step(r->pre, PRE_METASPACE, r->err);
    if (!step) return E_LIMIT;
    step->prepend = m.prepend;
    step->split = m.split;
    return pattern_literal(&step->pattern, m.replacement, r->err);
}

static int read_simple(struct pre_reader *r, const cJSON *json, enum pre_kind kind,
                       const char *type, enum pre_behavior behavior) {
    static const char *const keys[] = {"type", NULL};
    TRY(tokenizer_known_keys(json, type, keys, r->err));
    return pre_tokenizer_add(r->pre, kind, NULL, behavior, false, r->err);
}

static int read_bert(struct pre_reader *r, const cJSON *json) {
    TRY(read_simple(r, json, PRE_WHITE_SPACE, "BertPreTokenizer", PRE_REMOVED));
    return pre_tokenizer_add(r->pre, PRE_PUNCTUATION, NULL, PRE_ISOLATED, false, r->err);
}

static int read_one(struct pre_reader *r, const cJSON *json, const char *type) {
    if (strcmp(type, "ByteLevel") == 0) return read_byte_level(r, json);
    if (strcmp(type, "Split") == 0) return read_split(r, json);
    if (strcmp(type, "Digits") == 0) return read_digits(r, json);
    if (strcmp(type, "Metaspace") == 0) return read_metaspace(r, json);
    if (strcmp(type, "Punctuation") == 0) return read_punctuation(r, json);
    if (strcmp(type, "CharDelimiterSplit") == 0) return read_char_delimiter(r, json);
    if (strcmp(type, "FixedLength") == 0) return read_fixed_length(r, json);
    if (strcmp(type, "BertPreTokenizer") == 0) return read_bert(r, json);
    if (strcmp(type, "Whitespace") == 0) return read_simple(r, json, PRE_WORDS, type, PRE_ISOLATED);
    if (strcmp(type, "WhitespaceSplit") == 0)
        return read_simple(r, json, PRE_WHITE_SPACE, type, PRE_REMOVED);
    if (strcmp(type, "UnicodeScripts") == 0) {
        TRY(read_simple(r, json, PRE_PATTERN, type, PRE_REMOVED));
        struct pre_step *step = &r->pre->steps[r->pre->n_steps - 1];
        step->invert = true;
        return pattern_unicode_scripts(&step->pattern, r->err);
    }
    return err_set(r->err, E_UNSUPPORTED, "pre_tokenizer '%.60s' is not supported", type);
}

static int read_pre(struct pre_reader *r, const cJSON *json, int depth) {
    static const char *const sequence_keys[] = {"type", "pretokenizers", NULL};
    const char *type = NULL;
    TRY(tokenizer_type_of(json, "pre_tokenizer", &type, r->err));
    if (depth > TOKENIZER_MAX_NESTING)
        return err_set(r->err, E_LIMIT, "pre_tokenizer: nested more than %d deep",
                       TOKENIZER_MAX_NESTING);
    if (strcmp(type, "Sequence") == 0) {
        const cJSON *list = NULL, *item;
        TRY(tokenizer_known_keys(json, "pre_tokenizer Sequence", sequence_keys, r->err));
        TRY(json_get_array(json, "pretokenizers", &list, r->err));
        cJSON_ArrayForEach(item, list) TRY(read_pre(r, item, depth + 1));
        return 0;
    }
    // What stands behind ByteLevel sees its alphabet: then the bytes are written out, and are
    // characters from there on.
    if (r->byte_level && !pre_tokenizer_add_step(r->pre, PRE_BYTE_ALPHABET, r->err)) return E_LIMIT;
    r->byte_level = false;
    return read_one(r, json, type);
}

int tokenizer_read_pre(struct pre_tokenizer *p, const cJSON *json, bool *byte_level,
                       struct err *err) {
    struct pre_reader r = {.pre = p, .err = err};
    int rc = json && !cJSON_IsNull(json) ? read_pre(&r, json, 0) : 0;
    *byte_level = r.byte_level;
    return rc;
}
