// Reads a model folder's tokenizer.json (Hugging Face tokenizers' own format) and the names of its
// special tokens. Every value that would change a result and is not handled is refused by its name.
#include "base/json.h"
#include "engine/text/tokenizer_file.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int token_id(const cJSON *item, int32_t *id, const char *content, struct err *err) {
    double v = item ? item->valuedouble : NAN;
    if (!cJSON_IsNumber(item) || !(v >= 0 && v < INT32_MAX) || v != floor(v))
        return err_set(err, E_FORMAT, "the id of token '%.40s' is not a non-negative integer",
                       content);
    *id = (int32_t)v;
    return 0;
}

// --- added tokens
// -----------------------------------------------------------------------------------------

static int read_added_token(struct tokenizer *t, const cJSON *json, struct err *err) {
    static const char *const keys[] = {"id",     "content", "single_word", "lstrip",
                                       "rstrip", "special", "normalized",  NULL};
    struct added_token token = {0};
    const char *content = "";
    TRY(tokenizer_known_keys(json, "added_tokens", keys, err));
    TRY(json_get_string(json, "content", &content, err));
    if (!*content) return err_set(err, E_FORMAT, "added_tokens: a token without content");
    TRY(token_id(cJSON_GetObjectItemCaseSensitive(json, "id"), &token.id, content, err));
    TRY(json_get_bool(json, "special", &token.special, err));
    TRY(json_get_bool(json, "single_word", &token.single_word, err));
    TRY(json_get_bool(json, "lstrip", &token.lstrip, err));
    TRY(json_get_bool(json, "rstrip", &token.rstrip, err));
    bool normalized = !token.special;
    TRY(json_get_bool(json, "normalized", &normalized, err));
    TRY(vocab_add(&t->vocab, content, token.id, TOKEN_ADDED | (token.special ? TOKEN_SPECIAL : 0),
                  err));

    struct buf form;
    buf_init(&form, SIZE_MAX);
    int rc = 0;
    if (normalized && t->normalizer.n_forms)
        rc = normalizer_apply(&t->normalizer, content, strlen(content), &form, NULL, 0, err);
    else
        rc = buf_addz(&form, content);
    if (rc == 0)
        rc = added_tokens_add(normalized ? &t->added_normalized : &t->added, buf_z(&form), form.len,
                              &token);
    buf_release(&form);
    if (rc == E_LIMIT)
        return err_set(err, E_LIMIT, "added token '%.40s...' is longer than %d bytes", content,
                       ADDED_TOKEN_MAX_BYTES);
    return rc < 0 ? err_set(err, rc, "no memory for the added token '%.40s'", content) : 0;
}

// Special ones first: where normalising makes two contents equal, the first one entered is found.
static int read_added_tokens(struct tokenizer *t, const cJSON *list, struct err *err) {
    const cJSON *item;
    for (int pass = 0; pass < 2; pass++) {
        cJSON_ArrayForEach(item, list) {
            bool special = false;
            TRY(json_get_bool(item, "special", &special, err));
            if (special == (pass == 0)) TRY(read_added_token(t, item, err));
        }
    }
    return 0;
}

// --- vocabulary and merges
// --------------------------------------------------------------------------------

struct id_range {
    int32_t highest;
    size_t n;
};

static int count_id(struct id_range *r, const cJSON *item, const char *content, struct err *err) {
    int32_t id = 0;
    TRY(token_id(item, &id, content, err));
    if (id > r->highest) r->highest = id;
    r->n++;
    return 0;
}

// Ids may have holes, but the table of tokens must stay in proportion to the file.
static int make_vocab(struct tokenizer *t, const cJSON *vocab, const cJSON *added,
                      struct err *err) {
    struct id_range range = {.highest = -1};
    const cJSON *item;
    cJSON_ArrayForEach(item, vocab) TRY(count_id(&range, item, item->string, err));
    cJSON_ArrayForEach(item, added) {
        if (!cJSON_IsObject(item))
            return err_set(err, E_FORMAT, "added_tokens: an item is not an object");
        TRY(count_id(&range, cJSON_GetObjectItemCaseSensitive(item, "id"), "(added)", err));
    }
    if (range.n == 0) return err_set(err, E_FORMAT, "model.vocab is empty");
    if ((size_t)range.highest > 2 * range.n + 65536)
        return err_set(err, E_LIMIT, "token id %d in a vocabulary of %zu tokens", range.highest,
                       range.n);
    TRY(vocab_init(&t->vocab, range.highest + 1, range.n, err));
    cJSON_ArrayForEach(item, vocab)
        TRY(vocab_add(&t->vocab, item->string, (int32_t)item->valuedouble, TOKEN_MODEL, err));
    return 0;
}

struct merge_text {
    const char *left, *right;
    size_t left_len, right_len;
};

// "left right", or ["left", "right"].
static int split_merge(const cJSON *item, struct merge_text *m, struct err *err) {
    if (cJSON_IsString(item)) {
        const char *space = strchr(item->valuestring, ' ');
        if (!space || strchr(space + 1, ' '))
            return err_set(err, E_FORMAT, "merge '%.60s' is not two tokens", item->valuestring);
        *m = (struct merge_text){item->valuestring, space + 1, (size_t)(space - item->valuestring),
                                 0};
    } else {
        const cJSON *left = cJSON_IsArray(item) ? item->child : NULL,
                    *right = left ? left->next : NULL;
        if (!cJSON_IsString(left) || !cJSON_IsString(right) || right->next)
            return err_set(err, E_FORMAT,
                           "model.merges: an item is neither a string nor a pair of strings");
        *m = (struct merge_text){left->valuestring, right->valuestring, strlen(left->valuestring),
                                 0};
    }
    m->right_len = strlen(m->right);
    return 0;
}

static int add_merge(struct tokenizer *t, const struct merge_text *m, struct buf *joined,
                     struct err *err) {
    buf_reset(joined);
    buf_add(joined, m->left, m->left_len);
    if (buf_add(joined, m->right, m->right_len) < 0)
        return err_set(err, joined->error, "no memory for a merge of %zu bytes",
                       m->left_len + m->right_len);
    int32_t left = vocab_find(&t->vocab, m->left, m->left_len);
    int32_t right = vocab_find(&t->vocab, m->right, m->right_len);
    int32_t merged = vocab_find(&t->vocab, buf_z(joined), joined->len);
    if (left < 0 || right < 0 || merged < 0 || !m->left_len || !m->right_len)
        return err_set(err, E_FORMAT,
                       "merge '%.40s' + '%.40s' names a token that is not in the vocabulary",
                       m->left, m->right);
    bpe_add_merge(&t->bpe, left, right, merged);
    return 0;
}

static int read_merges(struct tokenizer *t, const cJSON *merges, struct err *err) {
    uint32_t n = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, merges) n++;
    TRY(bpe_init(&t->bpe, n, err));
    struct buf joined;
    struct merge_text m = {0};
    int rc = 0;
    buf_init(&joined, SIZE_MAX);
    cJSON_ArrayForEach(item, merges) {
        TRY_GOTO(out, split_merge(item, &m, err));
        TRY_GOTO(out, add_merge(t, &m, &joined, err));
    }
out:
    buf_release(&joined);
    return rc;
}

// unk_token, fuse_unk and byte_fallback speak of bytes that the vocabulary lacks: bpe_finish sees
// that it lacks none, so they change nothing.
static int read_bpe(struct tokenizer *t, const cJSON *model, const cJSON *added, struct err *err) {
    static const char *const keys[] = {"type",
                                       "dropout",
                                       "unk_token",
                                       "continuing_subword_prefix",
                                       "end_of_word_suffix",
                                       "fuse_unk",
                                       "byte_fallback",
                                       "ignore_merges",
                                       "vocab",
                                       "merges",
                                       NULL};
    const cJSON *vocab = NULL, *merges = NULL;
    const char *prefix = "", *suffix = "";
    double dropout = 0;
    bool ignore_merges = false;
    TRY(tokenizer_known_keys(model, "model", keys, err));
    TRY(json_get_double(model, "dropout", 0, 1, &dropout, err));
    if (dropout > 0)
        return err_set(err, E_UNSUPPORTED, "model.dropout %g: encoding must not be random",
                       dropout);
    TRY(json_get_string(model, "continuing_subword_prefix", &prefix, err));
    TRY(json_get_string(model, "end_of_word_suffix", &suffix, err));
    if (*prefix)
        return err_set(err, E_UNSUPPORTED, "model.continuing_subword_prefix '%.20s'", prefix);
    if (*suffix) return err_set(err, E_UNSUPPORTED, "model.end_of_word_suffix '%.20s'", suffix);
    TRY(json_get_bool(model, "ignore_merges", &ignore_merges, err));
    TRY(json_get_object(model, "vocab", &vocab, err));
    TRY(json_get_array(model, "merges", &merges, err));
    if (!vocab || !merges)
        return err_set(err, E_FORMAT, "model has no %s", vocab ? "merges" : "vocab");
    TRY(make_vocab(t, vocab, added, err));
    TRY(read_merges(t, merges, err));
    TRY(bpe_finish(&t->bpe, &t->vocab, ignore_merges, err));
    return read_added_tokens(t, added, err);
}

static int read_model(struct tokenizer *t, const cJSON *root, struct err *err) {
    const cJSON *model = NULL, *added = NULL;
    const char *type = NULL;
    TRY(json_get_object(root, "model", &model, err));
    TRY(json_get_array(root, "added_tokens", &added, err));
    if (!model) return err_set(err, E_FORMAT, "no model");
    TRY(json_get_string(model, "type", &type, err));
    // Files from before `type` existed are recognised by their merges, as Hugging Face does.
    if (!type && cJSON_HasObjectItem(model, "merges")) type = "BPE";
    if (type && strcmp(type, "BPE") == 0) return read_bpe(t, model, added, err);
    return err_set(err, E_UNSUPPORTED, "model of type '%.40s' is not supported", type ? type : "");
}

// --- the other parts
// --------------------------------------------------------------------------------------

static int read_decoder(const cJSON *root, struct err *err) {
    const cJSON *decoder = NULL;
    const char *type = "";
    TRY(json_get_object(root, "decoder", &decoder, err));
    if (!decoder) return err_set(err, E_UNSUPPORTED, "no decoder: only ByteLevel is supported");
    TRY(json_get_string(decoder, "type", &type, err));
    if (strcmp(type, "ByteLevel") == 0) return 0; // its options say nothing about decoding
    return err_set(err, E_UNSUPPORTED, "decoder '%.60s' is not supported", type);
}

// Post-processors add bos and eos and move offsets; encoding here does neither, so knowing their
// names is enough.
static int read_post_processor(const cJSON *json, int depth, struct err *err) {
    static const char *const known[] = {"ByteLevel", "TemplateProcessing", "RobertaProcessing",
                                        "BertProcessing"};
    const char *type = "";
    if (!json || cJSON_IsNull(json)) return 0;
    if (!cJSON_IsObject(json) || depth > 8)
        return err_set(err, E_FORMAT, "post_processor is not an object");
    TRY(json_get_string(json, "type", &type, err));
    if (strcmp(type, "Sequence") == 0) {
        const cJSON *list = NULL, *item;
        TRY(json_get_array(json, "processors", &list, err));
        cJSON_ArrayForEach(item, list) TRY(read_post_processor(item, depth + 1, err));
        return 0;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(type, known[i]) == 0) return 0;
    return err_set(err, E_UNSUPPORTED, "post_processor '%.60s' is not supported", type);
}

// truncation and padding are batch habits of whoever saved the file; no text here is cut or filled.
static int read_root(struct tokenizer *t, const cJSON *root, struct err *err) {
    static const char *const keys[] = {
        "version",       "truncation",     "padding", "added_tokens", "normalizer",
        "pre_tokenizer", "post_processor", "decoder", "model",        NULL};
    const char *version = "1.0";
    if (!cJSON_IsObject(root)) return err_set(err, E_FORMAT, "not an object");
    TRY(tokenizer_known_keys(root, "top level", keys, err));
    TRY(json_get_string(root, "version", &version, err));
    if (strcmp(version, "1.0") != 0) return err_set(err, E_UNSUPPORTED, "version '%.20s'", version);
    TRY(tokenizer_read_normalizer(&t->normalizer,
                                  cJSON_GetObjectItemCaseSensitive(root, "normalizer"), err));
    TRY(tokenizer_read_pre(&t->pre, cJSON_GetObjectItemCaseSensitive(root, "pre_tokenizer"), err));
    TRY(read_decoder(root, err));
    TRY(read_post_processor(cJSON_GetObjectItemCaseSensitive(root, "post_processor"), 0, err));
    return read_model(t, root, err);
}

// --- files
// ------------------------------------------------------------------------------------------------

// Puts the file's name before the sentence that a reader of its contents left.
static int in_file(struct err *err, const char *path, int rc) {
    if (rc < 0 && err) {
        struct err inner = *err;
        err_set(err, rc, "%s: %.380s", path, inner.text);
    }
    return rc;
}

static int read_tokenizer_json(struct tokenizer *t, const char *model_dir, struct err *err) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s/tokenizer.json", model_dir) >= (int)sizeof path)
        return err_set(err, E_INVAL, "the model folder's name is too long");
    cJSON *root = json_parse_file(path, &json_limits_file, err);
    if (!root) return err->code;
    int rc = in_file(err, path, read_root(t, root, err));
    cJSON_Delete(root);
    return rc;
}

// A special token's name: a string, or an object with its content.
static int read_name(const cJSON *root, const char *key, char **out, struct err *err) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, key);
    if (*out || !item || cJSON_IsNull(item)) return 0;
    if (cJSON_IsObject(item)) item = cJSON_GetObjectItemCaseSensitive(item, "content");
    if (!cJSON_IsString(item))
        return err_set(err, E_FORMAT, "%s is neither a string nor an added token", key);
    *out = strdup(item->valuestring);
    return *out ? 0 : err_set(err, E_NOMEM, "no memory for %s", key);
}

static int read_names(struct tokenizer *t, const char *model_dir, const char *name,
                      struct err *err) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", model_dir, name) >= (int)sizeof path)
        return err_set(err, E_INVAL, "the model folder's name is too long");
    struct err why = {0};
    cJSON *root = json_parse_file(path, &json_limits_file, &why);
    if (!root && why.code == E_NOTFOUND) return 0; // both files are optional
    if (!root) return err_set(err, why.code, "%s", why.text);
    int rc = cJSON_IsObject(root) ? 0 : err_set(err, E_FORMAT, "not an object");
    if (rc == 0) rc = read_name(root, "bos_token", &t->bos, err);
    if (rc == 0) rc = read_name(root, "eos_token", &t->eos, err);
    cJSON_Delete(root);
    return in_file(err, path, rc);
}

static void describe(struct tokenizer *t) {
    int n = t->vocab.n_tokens;
    char count[32];
    if (n < 1000)
        snprintf(count, sizeof count, "%d", n);
    else if (n < 1000000)
        snprintf(count, sizeof count, "%d,%03d", n / 1000, n % 1000);
    else
        snprintf(count, sizeof count, "%d,%03d,%03d", n / 1000000, n / 1000 % 1000, n % 1000);
    snprintf(t->description, sizeof t->description, "byte-level BPE, %s tokens", count);
}

int tokenizer_read(struct tokenizer *t, const char *model_dir, struct err *err) {
    struct err local = {0};
    if (!err) err = &local; // the code of a failed parse comes through it
    TRY(read_tokenizer_json(t, model_dir, err));
    TRY(read_names(t, model_dir, "tokenizer_config.json", err));
    TRY(read_names(t, model_dir, "special_tokens_map.json", err));
    describe(t);
    return 0;
}
