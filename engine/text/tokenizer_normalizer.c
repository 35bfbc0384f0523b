// The normalizer of a tokenizer.json: nested JSON to a flat list of steps. Unknown names are refused.
#include "base/json.h"
#include "engine/text/tokenizer_file.h"
#include <stdlib.h>
#include <string.h>

// A file that says the same again may hold millions of steps; normalizer.h holds a few.
static int add(struct normalizer *n, enum normalize_kind kind, struct normalize_step **out,
               struct err *err) {
    if (n->n_steps == NORMALIZER_MAX_STEPS)
        return err_set(err, E_LIMIT, "normalizer: more than %d steps", NORMALIZER_MAX_STEPS);
    struct normalize_step *step = &n->steps[n->n_steps++];
    step->kind = kind;
    if (out) *out = step;
    return 0;
}

static int read_content(const cJSON *json, const char *where, const char *key, char **out,
                        struct err *err) {
    const char *content = NULL;
    TRY(json_get_string(json, key, &content, err));
    if (!content) return err_set(err, E_FORMAT, "%s has no %s", where, key);
    *out = strdup(content);
    return *out ? 0 : err_set(err, E_NOMEM, "no memory for %s", where);
}

static int read_strip(struct normalizer *n, const cJSON *json, struct err *err) {
    static const char *const keys[] = {"type", "strip_left", "strip_right", NULL};
    struct normalize_step *step = NULL;
    TRY(tokenizer_known_keys(json, "normalizer Strip", keys, err));
    TRY(add(n, NORMALIZE_STRIP, &step, err));
    step->left = step->right = true;
    TRY(json_get_bool(json, "strip_left", &step->left, err));
    TRY(json_get_bool(json, "strip_right", &step->right, err));
    return 0;
}

static int read_prepend(struct normalizer *n, const cJSON *json, struct err *err) {
    static const char *const keys[] = {"type", "prepend", NULL};
    struct normalize_step *step = NULL;
    TRY(tokenizer_known_keys(json, "normalizer Prepend", keys, err));
    TRY(add(n, NORMALIZE_PREPEND, &step, err));
    return read_content(json, "normalizer Prepend", "prepend", &step->content, err);
}

static int read_replace(struct normalizer *n, const cJSON *json, struct err *err) {
    static const char *const keys[] = {"type", "pattern", "content", NULL};
    struct normalize_step *step = NULL;
    const char *regex, *string;
    TRY(tokenizer_known_keys(json, "normalizer Replace", keys, err));
    TRY(tokenizer_read_pattern(json, "Replace", &regex, &string, err));
    TRY(add(n, NORMALIZE_REPLACE, &step, err));
    TRY(regex ? pattern_regex(&step->pattern, regex, err)
              : pattern_literal(&step->pattern, string, err));
    return read_content(json, "normalizer Replace", "content", &step->content, err);
}

// BERT's is four steps in one.
static int read_bert(struct normalizer *n, const cJSON *json, struct err *err) {
    static const char *const keys[] = {"type",          "clean_text", "handle_chinese_chars",
                                       "strip_accents", "lowercase",  NULL};
    bool clean = true, chinese = true, lowercase = true;
    TRY(tokenizer_known_keys(json, "normalizer BertNormalizer", keys, err));
    TRY(json_get_bool(json, "clean_text", &clean, err));
    TRY(json_get_bool(json, "handle_chinese_chars", &chinese, err));
    TRY(json_get_bool(json, "lowercase", &lowercase, err));
    bool accents = lowercase; // null: as lowercase
    TRY(json_get_bool(json, "strip_accents", &accents, err));
    if (clean) TRY(add(n, NORMALIZE_BERT_CLEAN, NULL, err));
    if (chinese) TRY(add(n, NORMALIZE_BERT_CHINESE, NULL, err));
    if (accents) TRY(add(n, NORMALIZE_NFD, NULL, err));
    if (accents) TRY(add(n, NORMALIZE_DROP_ACCENTS, NULL, err));
    return lowercase ? add(n, NORMALIZE_LOWERCASE, NULL, err) : 0;
}

static int base64_digit(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

// In blocks of four digits to three bytes, with = for the missing digits of the last block.
static int read_base64(const char *s, struct buf *out, struct err *err) {
    size_t len = strlen(s),
           padding = len && s[len - 1] == '=' ? 1 + (len > 1 && s[len - 2] == '=') : 0;
    unsigned block = 0;
    if (len % 4)
        return err_set(err, E_FORMAT, "precompiled_charsmap: %zu characters are not base64", len);
    for (size_t i = 0; i < len; i++) {
        int digit = i < len - padding ? base64_digit(s[i]) : 0;
        if (digit < 0)
            return err_set(err, E_FORMAT, "precompiled_charsmap: character %zu is not base64", i);
        block = block << 6 | (unsigned)digit;
        if (i % 4 < 3) continue;
        const char bytes[3] = {(char)(block >> 16), (char)(block >> 8), (char)block};
        if (buf_add(out, bytes, i == len - 1 ? 3 - padding : 3) < 0)
            return err_set(err, out->error, "no memory for precompiled_charsmap");
    }
    return 0;
}

static int read_precompiled(struct normalizer *n, const cJSON *json, struct err *err) {
    static const char *const keys[] = {"type", "precompiled_charsmap", NULL};
    struct normalize_step *step = NULL;
    const char *base64 = NULL;
    struct buf blob;
    TRY(tokenizer_known_keys(json, "normalizer Precompiled", keys, err));
    TRY(json_get_string(json, "precompiled_charsmap", &base64, err));
    if (!base64)
        return err_set(err, E_FORMAT, "normalizer Precompiled has no precompiled_charsmap");
    TRY(add(n, NORMALIZE_CHARSMAP, &step, err));
    buf_init(&blob, SIZE_MAX);
    int rc = read_base64(base64, &blob, err);
    if (rc == 0) rc = charsmap_init(&step->charsmap, buf_z(&blob), blob.len, err);
    buf_release(&blob);
    return rc;
}

static int read_simple(struct normalizer *n, const cJSON *json, const char *type, struct err *err) {
    static const char *const keys[] = {"type", NULL};
    static const struct {
        const char *name;
        enum normalize_kind kind;
    } known[] = {{"NFC", NORMALIZE_NFC},
                 {"NFD", NORMALIZE_NFD},
                 {"NFKC", NORMALIZE_NFKC},
                 {"NFKD", NORMALIZE_NFKD},
                 {"Lowercase", NORMALIZE_LOWERCASE},
                 {"StripAccents", NORMALIZE_DROP_MARKS},
                 {"Nmt", NORMALIZE_NMT},
                 {"ByteLevel", NORMALIZE_BYTE_ALPHABET}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(type, known[i].name) != 0) continue;
        TRY(add(n, known[i].kind, NULL, err));
        return tokenizer_known_keys(json, type, keys, err);
    }
    return err_set(err, E_UNSUPPORTED, "normalizer '%.60s' is not supported", type);
}

static int read_normalizer(struct normalizer *n, const cJSON *json, int depth, struct err *err) {
    static const char *const sequence_keys[] = {"type", "normalizers", NULL};
    const char *type = NULL;
    TRY(tokenizer_type_of(json, "normalizer", &type, err));
    if (depth > TOKENIZER_MAX_NESTING)
        return err_set(err, E_LIMIT, "normalizer: nested more than %d deep", TOKENIZER_MAX_NESTING);
    if (strcmp(type, "Strip") == 0) return read_strip(n, json, err);
    if (strcmp(type, "Prepend") == 0) return read_prepend(n, json, err);
    if (strcmp(type, "Replace") == 0) return read_replace(n, json, err);
    if (strcmp(type, "BertNormalizer") == 0) return read_bert(n, json, err);
    if (strcmp(type, "Precompiled") == 0) return read_precompiled(n, json, err);
    if (strcmp(type, "Sequence") != 0) return read_simple(n, json, type, err);
    const cJSON *list = NULL, *item;
    TRY(tokenizer_known_keys(json, "normalizer Sequence", sequence_keys, err));
    TRY(json_get_array(json, "normalizers", &list, err));
    cJSON_ArrayForEach(item, list) TRY(read_normalizer(n, item, depth + 1, err));
    return 0;
}

int tokenizer_read_normalizer(struct normalizer *n, const cJSON *json, struct err *err) {
    return !json || cJSON_IsNull(json) ? 0 : read_normalizer(n, json, 0, err);
}
