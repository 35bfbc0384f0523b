// Reads a tokenizer.json (the format of Hugging Face tokenizers): its model, its added tokens, and the
// parts that tokenizer_pre.c, tokenizer_normalizer.c and tokenizer_decoder.c read. A value that is
// not supported and would change a result is refused by name.
#include "base/json.h"
#include "engine/text/tokenizer_file.h"
#include <stdlib.h>
#include <string.h>

// --- added tokens --------------------------------------------------------------------------------

static int read_added_token(struct tokenizer *t, const cJSON *json, struct err *err) {
    static const char *const keys[] = {"id",     "content", "single_word", "lstrip",
                                       "rstrip", "special", "normalized",  NULL};
    struct added_token token = {0};
    const char *content = "";
    TRY(tokenizer_known_keys(json, "added_tokens", keys, err));
    TRY(json_get_string(json, "content", &content, err));
    if (!*content) return err_set(err, E_FORMAT, "added_tokens: a token without content");
    TRY(tokenizer_token_id(cJSON_GetObjectItemCaseSensitive(json, "id"), &token.id, content, err));
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
    if (normalized && t->normalizer.n_steps)
        rc = normalizer_apply(&t->normalizer, content, strlen(content), &form, NULL, 0, false, NULL,
                              err);
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

// Special ones first: if normalising makes two contents equal, the first one is found.
int tokenizer_read_added(struct tokenizer *t, const cJSON *list, struct err *err) {
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

// --- vocabulary and merges -----------------------------------------------------------------------

struct id_range {
    int32_t highest;
    size_t n;
};

static int count_id(struct id_range *r, const cJSON *item, const char *content, struct err *err) {
    int32_t id = 0;
    TRY(tokenizer_token_id(item, &id, content, err));
    if (id > r->highest) r->highest = id;
    r->n++;
    return 0;
}

// Room for the model's vocabulary, an object of ids or an array whose indices are ids, and the
// added tokens. Ids may have holes, but the table of tokens must stay in proportion to the file.
static int make_vocab(struct tokenizer *t, const cJSON *vocab, const cJSON *added,
                      struct err *err) {
    struct id_range range = {.highest = -1};
    const cJSON *item;
    if (cJSON_IsArray(vocab)) {
        cJSON_ArrayForEach(item, vocab) range.n++;
        range.highest = (int32_t)range.n - 1; // the JSON reader's own limits are far below 2^31
    } else {
        cJSON_ArrayForEach(item, vocab) TRY(count_id(&range, item, item->string, err));
    }
    cJSON_ArrayForEach(item, added) {
        if (!cJSON_IsObject(item))
            return err_set(err, E_FORMAT, "added_tokens: an item is not an object");
        TRY(count_id(&range, cJSON_GetObjectItemCaseSensitive(item, "id"), "(added)", err));
    }
    if (range.n == 0) return err_set(err, E_FORMAT, "model.vocab is empty");
    if ((size_t)range.highest > 2 * range.n + 65536)
        return err_set(err, E_LIMIT, "token id %d in a vocabulary of %zu tokens", range.highest,
                       range.n);
    return vocab_init(&t->vocab, range.highest + 1, range.n, err);
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

// The model's settings beside its vocabulary.
struct bpe_options {
    const char *prefix, *suffix, *unk;
    bool fuse_unk, byte_fallback, ignore_merges;
};

static int add_merge(struct tokenizer *t, struct bpe *bpe, const struct merge_text *m,
                     size_t prefix_len, struct buf *joined, struct err *err) {
    if (m->right_len < prefix_len)
        return err_set(err, E_FORMAT, "merge '%.*s' + '%.40s' lacks the prefix",
                       m->left_len < 40 ? (int)m->left_len : 40, m->left, m->right);
    buf_reset(joined);
    buf_add(joined, m->left, m->left_len);
    if (buf_add(joined, m->right + prefix_len, m->right_len - prefix_len) < 0)
        return err_set(err, joined->error, "no memory for a merge of %zu bytes",
                       m->left_len + m->right_len);
    int32_t left = vocab_find(&t->vocab, m->left, m->left_len);
    int32_t right = vocab_find(&t->vocab, m->right, m->right_len);
    int32_t merged = vocab_find(&t->vocab, buf_z(joined), joined->len);
    if (left < 0 || right < 0 || merged < 0 || !m->left_len || !m->right_len)
        return err_set(err, E_FORMAT,
                       "merge '%.*s' + '%.40s' names a token that is not in the vocabulary",
                       m->left_len < 40 ? (int)m->left_len : 40, m->left, m->right);
    bpe_add_merge(bpe, left, right, merged);
    return 0;
}

static int read_merges(struct tokenizer *t, struct bpe *bpe, const cJSON *merges,
                       const char *prefix, struct err *err) {
    uint32_t n = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, merges) n++;
    TRY(bpe_init(bpe, n, err));
    struct buf joined;
    struct merge_text m = {0};
    int rc = 0;
    buf_init(&joined, SIZE_MAX);
    cJSON_ArrayForEach(item, merges) {
        TRY_GOTO(out, split_merge(item, &m, err));
        TRY_GOTO(out, add_merge(t, bpe, &m, strlen(prefix), &joined, err));
    }
out:
    buf_release(&joined);
    return rc;
}

static int read_bpe_options(const cJSON *model, struct bpe_options *o, struct err *err) {
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
    double dropout = 0;
    *o = (struct bpe_options){.prefix = "", .suffix = ""};
    TRY(tokenizer_known_keys(model, "model", keys, err));
    TRY(json_get_double(model, "dropout", 0, 1, &dropout, err));
    if (dropout > 0)
        return err_set(err, E_UNSUPPORTED, "model.dropout %g: encoding must not be random",
                       dropout);
    TRY(json_get_string(model, "continuing_subword_prefix", &o->prefix, err));
    TRY(json_get_string(model, "end_of_word_suffix", &o->suffix, err));
    if (strlen(o->prefix) > BPE_AFFIX_MAX || strlen(o->suffix) > BPE_AFFIX_MAX)
        return err_set(err, E_LIMIT, "model.%s is longer than %d bytes",
                       strlen(o->prefix) > BPE_AFFIX_MAX ? "continuing_subword_prefix"
                                                         : "end_of_word_suffix",
                       BPE_AFFIX_MAX);
    TRY(json_get_string(model, "unk_token", &o->unk, err));
    TRY(json_get_bool(model, "fuse_unk", &o->fuse_unk, err));
    TRY(json_get_bool(model, "byte_fallback", &o->byte_fallback, err));
    TRY(json_get_bool(model, "ignore_merges", &o->ignore_merges, err));
    return 0;
}

static int copy(char **out, const char *s, struct err *err) {
    *out = s && *s ? strdup(s) : NULL;
    return !s || !*s || *out ? 0 : err_set(err, E_NOMEM, "no memory for the model's options");
}

// Words are bytes if ByteLevel is the last step: then every byte has a token, or is left out (bpe_finish),
// so unk_token, fuse_unk and byte_fallback, which handle unknown characters, change nothing.
static int read_bpe(struct tokenizer *t, const cJSON *model, const cJSON *added, bool byte_level,
                    struct err *err) {
    struct bpe_options o;
    const cJSON *vocab = NULL, *merges = NULL, *item;
    TRY(read_bpe_options(model, &o, err));
    TRY(json_get_object(model, "vocab", &vocab, err));
    TRY(json_get_array(model, "merges", &merges, err));
    if (!vocab || !merges)
        return err_set(err, E_FORMAT, "model has no %s", vocab ? "merges" : "vocab");
    TRY(make_vocab(t, vocab, added, err));
    cJSON_ArrayForEach(item, vocab)
        TRY(vocab_add(&t->vocab, item->string, (int32_t)item->valuedouble, TOKEN_MODEL, err));
    t->kind = byte_level && !*o.prefix && !*o.suffix ? TOKENIZER_BYTE_BPE : TOKENIZER_CHAR_BPE;
    if (t->kind == TOKENIZER_BYTE_BPE) {
        TRY(read_merges(t, &t->bpe, merges, "", err));
        return bpe_finish(&t->bpe, &t->vocab, o.ignore_merges, err);
    }
    if (byte_level && !pre_tokenizer_add_step(&t->pre, PRE_BYTE_ALPHABET, err)) return E_LIMIT;
    TRY(copy(&t->chars.prefix, o.prefix, err));
    TRY(copy(&t->chars.suffix, o.suffix, err));
    TRY(copy(&t->chars.unk, o.unk, err));
    t->chars.fuse_unk = o.fuse_unk;
    t->chars.ignore_merges = o.ignore_merges;
    TRY(read_merges(t, &t->chars.bpe, merges, o.prefix, err));
    return bpe_chars_finish(&t->chars, &t->vocab, o.byte_fallback, err);
}

// --- Unigram

// [["piece", score], ...]
static int read_pieces(struct tokenizer *t, const cJSON *vocab, double *scores, struct err *err) {
    int32_t id = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, vocab) {
        const cJSON *content = cJSON_IsArray(item) ? item->child : NULL,
                    *score = content ? content->next : NULL;
        if (!cJSON_IsString(content) || !cJSON_IsNumber(score) || score->next)
            return err_set(err, E_FORMAT, "model.vocab: item %d is not a piece and its score", id);
        scores[id] = score->valuedouble;
        TRY(vocab_add(&t->vocab, content->valuestring, id++, TOKEN_MODEL, err));
    }
    return 0;
}

static int read_unigram(struct tokenizer *t, const cJSON *model, const cJSON *added,
                        bool byte_level, struct err *err) {
    static const char *const keys[] = {"type", "unk_id", "vocab", "byte_fallback", NULL};
    const cJSON *vocab = NULL;
    int64_t unk_id = -1;
    bool byte_fallback = false;
    TRY(tokenizer_known_keys(model, "model", keys, err));
    TRY(json_get_int(model, "unk_id", 0, INT32_MAX, &unk_id, err));
    TRY(json_get_bool(model, "byte_fallback", &byte_fallback, err));
    TRY(json_get_array(model, "vocab", &vocab, err));
    if (!vocab) return err_set(err, E_FORMAT, "model has no vocab");
    if (unk_id >= cJSON_GetArraySize(vocab))
        return err_set(err, E_FORMAT, "model.unk_id %lld is not in the vocabulary",
                       (long long)unk_id);
    if (byte_level && !pre_tokenizer_add_step(&t->pre, PRE_BYTE_ALPHABET, err)) return E_LIMIT;
    TRY(make_vocab(t, vocab, added, err));
    double *scores = malloc((size_t)t->vocab.n_ids * sizeof *scores);
    if (!scores) return err_set(err, E_NOMEM, "no memory for %d scores", t->vocab.n_ids);
    int rc = read_pieces(t, vocab, scores, err);
    if (rc < 0) {
        free(scores);
        return rc;
    }
    t->kind = TOKENIZER_UNIGRAM;
    return unigram_init(&t->unigram, &t->vocab, scores, (int32_t)unk_id, byte_fallback, err);
}

static int read_model(struct tokenizer *t, const cJSON *root, bool byte_level, struct err *err) {
    const cJSON *model = NULL, *added = NULL;
    const char *type = NULL;
    TRY(json_get_object(root, "model", &model, err));
    TRY(json_get_array(root, "added_tokens", &added, err));
    if (!model) return err_set(err, E_FORMAT, "no model");
    TRY(json_get_string(model, "type", &type, err));
    // Older files without `type` are recognised by their keys, as Hugging Face does.
    if (!type && cJSON_HasObjectItem(model, "merges")) type = "BPE";
    if (!type && cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(model, "vocab"))) type = "Unigram";
    if (type && strcmp(type, "BPE") == 0)
        TRY(read_bpe(t, model, added, byte_level, err));
    else if (type && strcmp(type, "Unigram") == 0)
        TRY(read_unigram(t, model, added, byte_level, err));
    else
        return err_set(err, E_UNSUPPORTED, "model of type '%.40s' is not supported",
                       type ? type : "");
    return tokenizer_read_added(t, added, err);
}

// --- the other parts -----------------------------------------------------------------------------

static int keep_special(char **out, const cJSON *piece, struct err *err) {
    const char *id = json_string(json_member(piece, "SpecialToken"), "id");
    if (!id || *out) return 0;
    *out = strdup(id);
    return *out ? 0 : err_set(err, E_NOMEM, "no memory for a token's name");
}

// The tokens right before and behind a template's text.
static int read_template(struct tokenizer *t, const cJSON *json, struct err *err) {
    const cJSON *piece, *before = NULL;
    cJSON_ArrayForEach(piece, json_member(json, "single")) {
        if (json_member(piece, "Sequence") && before) TRY(keep_special(&t->start, before, err));
        if (before && json_member(before, "Sequence")) TRY(keep_special(&t->end, piece, err));
        before = piece;
    }
    return 0;
}

// Post-processors add bos and eos and move offsets; encoding here does neither. tokenizer_start and _end tell them.
static int read_post_processor(struct tokenizer *t, const cJSON *json, int depth, struct err *err) {
    static const char *const known[] = {"ByteLevel", "RobertaProcessing", "BertProcessing"};
    const char *type = "";
    if (!json || cJSON_IsNull(json)) return 0;
    if (!cJSON_IsObject(json) || depth > 8)
        return err_set(err, E_FORMAT, "post_processor is not an object");
    TRY(json_get_string(json, "type", &type, err));
    if (strcmp(type, "Sequence") == 0) {
        const cJSON *list = NULL, *item;
        TRY(json_get_array(json, "processors", &list, err));
        cJSON_ArrayForEach(item, list) TRY(read_post_processor(t, item, depth + 1, err));
        return 0;
    }
    if (strcmp(type, "TemplateProcessing") == 0) return read_template(t, json, err);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(type, known[i]) == 0) return 0;
    return err_set(err, E_UNSUPPORTED, "post_processor '%.60s' is not supported", type);
}

// truncation and padding are batch settings of the file's author; texts here are neither cut nor
// padded.
int tokenizer_read_json(struct tokenizer *t, const cJSON *root, struct err *err) {
    static const char *const keys[] = {
        "version",       "truncation",     "padding", "added_tokens", "normalizer",
        "pre_tokenizer", "post_processor", "decoder", "model",        NULL};
    const char *version = "1.0";
    bool byte_level;
    if (!cJSON_IsObject(root)) return err_set(err, E_FORMAT, "not an object");
    TRY(tokenizer_known_keys(root, "top level", keys, err));
    TRY(json_get_string(root, "version", &version, err));
    if (strcmp(version, "1.0") != 0) return err_set(err, E_UNSUPPORTED, "version '%.20s'", version);
    TRY(tokenizer_read_normalizer(&t->normalizer,
                                  cJSON_GetObjectItemCaseSensitive(root, "normalizer"), err));
    TRY(tokenizer_read_pre(&t->pre, cJSON_GetObjectItemCaseSensitive(root, "pre_tokenizer"),
                           &byte_level, err));
    TRY(tokenizer_read_decoder(&t->decoder, cJSON_GetObjectItemCaseSensitive(root, "decoder"),
                               err));
    TRY(read_post_processor(t, json_member(root, "post_processor"), 0, err));
    return read_model(t, root, byte_level, err);
}
