// See gguf_vocab.h. Keys: ggml's docs/gguf.md.
#include "engine/convert/gguf_vocab.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/path.h"
#include "engine/gguf/gguf_folder.h"
#include "engine/gguf/gguf_pre.h"
#include "engine/model/text_files.h"
#include "engine/text/sentencepiece_file.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENIZER "tokenizer.ggml."
#define TEMPLATE "tokenizer.chat_template"
#define TEXT_MAX_BYTES ((size_t)4 << 20)
#define MODEL_MAX_BYTES ((size_t)256 << 20)

enum listed_type { // as SentencePiece counts the types of pieces
    LISTED_NONE,   // no file names the id
    LISTED_NORMAL,
    LISTED_UNKNOWN,
    LISTED_CONTROL,
    LISTED_USER_DEFINED,
    LISTED_UNUSED,
    LISTED_BYTE
};

struct listed_token {
    const char *text; // borrowed from the files
    size_t len;
    float score;
    enum listed_type type;
};

struct listing {
    struct gguf_writer *w;
    const char *dir;
    const struct model_config *c;
    struct err *err;
    cJSON *json, *config; // tokenizer.json, tokenizer_config.json; NULL: not there
    struct buf model;     // tokenizer.model
    struct sentencepiece_file pieces;
    struct listed_token *tokens; // (c->vocab_size)
};

static int refuse(const struct listing *v, const char *what) {
    return err_set(v->err, E_UNSUPPORTED,
                   "the tokenizer of %.200s has %.200s, which GGUF's "
                   "metadata cannot say",
                   v->dir, what);
}

// --- files ---

static int read_json(const struct listing *v, const char *name, cJSON **out) {
    char path[PATH_MAX];
    struct err why = {0};
    if (gguf_is(v->dir))
        return gguf_folder_holds(v->dir, name) ? gguf_folder_json(out, v->dir, name, v->err) : 0;
    TRY(path_join(path, v->dir, name, v->err));
    *out = json_parse_file(path, &json_limits_file, &why);
    return *out || why.code == E_NOTFOUND ? 0 : err_set(v->err, why.code, "%s", why.text);
}

static int read_model(struct listing *v) {
    char path[PATH_MAX];
    struct err why = {0};
    TRY(path_join(path, v->dir, "tokenizer.model", v->err));
    const bool made = gguf_is(v->dir);
    const int rc = made ? gguf_folder_model(&v->model, v->dir, &why)
                        : buf_read_file(&v->model, path, MODEL_MAX_BYTES, &why);
    if (rc < 0)
        return err_set(v->err, rc == E_NOTFOUND ? E_UNSUPPORTED : rc,
                       rc == E_NOTFOUND ? "%s is missing: a GGUF file has the scores of its pieces"
                                        : "%s cannot be read",
                       path);
    return sentencepiece_file_read(&v->pieces, v->model.data, v->model.len, v->err);
}

// --- tokens ---

static int set_token(const struct listing *v, int64_t id, const char *text, size_t len, float score,
                     enum listed_type type) {
    if (id < 0 || id >= v->c->vocab_size)
        return err_set(v->err, E_UNSUPPORTED,
                       "the token '%.60s' has the number %lld; the embedding has %d rows", text,
                       (long long)id, v->c->vocab_size);
    v->tokens[id] = (struct listed_token){text, len, score, type};
    return 0;
}

// {"content", "id", ...}, found in the text before anything else. White space that such tokens take is left to
// probe_texts.h, since a reader may know it by the model's name.
static int add_added(const struct listing *v, const cJSON *token, int64_t id) {
    const char *text = json_string(token, "content");
    char what[128];
    if (!text) return err_set(v->err, E_FORMAT, "an added token without its text");
    snprintf(what, sizeof what, "the token '%.60s' with single_word", text);
    if (cJSON_IsTrue(json_member(token, "single_word"))) return refuse(v, what);
    const bool special = cJSON_IsTrue(json_member(token, "special"));
    const struct listed_token *old = id >= 0 && id < v->c->vocab_size ? &v->tokens[id] : NULL;
    return set_token(v, id, text, strlen(text), old ? old->score : 0,
                     old && old->type == LISTED_UNKNOWN ? LISTED_UNKNOWN
                     : special                          ? LISTED_CONTROL
                                                        : LISTED_USER_DEFINED);
}

static int add_added_tokens(const struct listing *v) {
    const cJSON *item;
    cJSON_ArrayForEach(item, json_member(v->json, "added_tokens")) {
        int64_t id = -1;
        TRY(json_get_int(item, "id", 0, INT32_MAX, &id, v->err));
        TRY(add_added(v, item, id));
    }
    cJSON_ArrayForEach(item, json_member(v->config, "added_tokens_decoder"))
        TRY(add_added(v, item, strtol(item->string, NULL, 10)));
    return 0;
}

// Ids without a token: rows that pad the embedding.
static void put_tokens(const struct listing *v, bool scores) {
    const int32_t n = v->c->vocab_size;
    gguf_put_array(v->w, TOKENIZER "tokens", GGUF_STRING, (uint64_t)n);
    for (int32_t i = 0; i < n; i++) {
        const struct listed_token *t = &v->tokens[i];
        char name[32];
        const int len = snprintf(name, sizeof name, "[PAD%d]", i);
        if (t->type == LISTED_NONE)
            gguf_add_string(v->w, name, (size_t)len);
        else
            gguf_add_string(v->w, t->text, t->len);
    }
    gguf_put_array(v->w, TOKENIZER "token_type", GGUF_I32, (uint64_t)n);
    for (int32_t i = 0; i < n; i++)
        gguf_add_i32(v->w, v->tokens[i].type == LISTED_NONE ? LISTED_UNUSED : v->tokens[i].type);
    if (!scores) return;
    gguf_put_array(v->w, TOKENIZER "scores", GGUF_F32, (uint64_t)n);
    for (int32_t i = 0; i < n; i++) gguf_add_f32(v->w, v->tokens[i].score);
}

// --- byte-level BPE ---

static int add_byte_level_tokens(const struct listing *v) {
    const cJSON *item;
    cJSON_ArrayForEach(item, json_member(json_member(v->json, "model"), "vocab")) {
        if (!cJSON_IsNumber(item)) return err_set(v->err, E_FORMAT, "a token without its number");
        TRY(set_token(v, (int64_t)item->valuedouble, item->string, strlen(item->string), 0,
                      LISTED_NORMAL));
    }
    return add_added_tokens(v);
}

// "a b", or ["a", "b"] in newer files.
static int put_merges(const struct listing *v) {
    const cJSON *list = json_member(json_member(v->json, "model"), "merges"), *item;
    char both[1024];
    gguf_put_array(v->w, TOKENIZER "merges", GGUF_STRING, (uint64_t)cJSON_GetArraySize(list));
    cJSON_ArrayForEach(item, list) {
        const cJSON *first = item->child, *second = first ? first->next : NULL;
        if (cJSON_IsString(item)) {
            gguf_add_string(v->w, item->valuestring, strlen(item->valuestring));
            continue;
        }
        if (!cJSON_IsString(first) || !cJSON_IsString(second))
            return err_set(v->err, E_FORMAT, "a merge that is no pair of texts");
        const int len =
            snprintf(both, sizeof both, "%s %s", first->valuestring, second->valuestring);
        if ((size_t)len >= sizeof both) return refuse(v, "a merge of more than 1,000 bytes");
        gguf_add_string(v->w, both, (size_t)len);
    }
    return 0;
}

static bool has_prefix_space(const cJSON *pre) {
    const cJSON *step;
    cJSON_ArrayForEach(step,
                       json_member(pre, "pretokenizers")) if (has_prefix_space(step)) return true;
    return cJSON_IsTrue(json_member(pre, "add_prefix_space"));
}

// A normaliser to NFC is passed over, as llama.cpp's converters do: text that people type is in that form.
static int check_normalizer(const struct listing *v) {
    const cJSON *normalizer = json_member(v->json, "normalizer");
    const char *type = json_string(normalizer, "type");
    if (!cJSON_IsObject(normalizer) || (type && strcmp(type, "NFC") == 0)) return 0;
    return refuse(v, "a normaliser other than NFC");
}

static int put_byte_level(const struct listing *v) {
    const cJSON *model = json_member(v->json, "model"),
                *pre = json_member(v->json, "pre_tokenizer");
    const char *name = NULL;
    TRY(check_normalizer(v));
    TRY(gguf_pre_of(pre, cJSON_IsTrue(json_member(model, "ignore_merges")), &name, v->err));
    TRY(add_byte_level_tokens(v));
    gguf_put_string(v->w, TOKENIZER "model", "gpt2");
    gguf_put_string(v->w, TOKENIZER "pre", name);
    put_tokens(v, false);
    TRY(put_merges(v));
    gguf_put_bool(v->w, TOKENIZER "add_space_prefix", has_prefix_space(pre));
    return 0;
}

// --- SentencePiece ---

// Whether a text gets a space in front: tokenizer.json decides, where it is there.
static bool puts_space(const struct listing *v) {
    const cJSON *pre = json_member(v->json, "pre_tokenizer"), *item;
    const char *type = json_string(pre, "type"), *scheme = json_string(pre, "prepend_scheme");
    if (!v->json) {
        const cJSON *given = json_member(v->config, "add_prefix_space");
        return cJSON_IsBool(given) ? cJSON_IsTrue(given) : v->pieces.add_dummy_prefix;
    }
    if (type && strcmp(type, "Metaspace") == 0)
        return scheme ? strcmp(scheme, "never") != 0
                      : !cJSON_IsFalse(json_member(pre, "add_prefix_space"));
    cJSON_ArrayForEach(item, json_member(json_member(v->json, "normalizer"), "normalizers")) {
        const char *step = json_string(item, "type");
        if (step && strcmp(step, "Prepend") == 0) return true;
    }
    return false;
}

static int put_sentencepiece(struct listing *v) {
    TRY(read_model(v));
    if (v->pieces.type != SENTENCEPIECE_BPE || !v->pieces.byte_fallback ||
        v->pieces.charsmap.len > 0)
        return refuse(v, "pieces that are not merged by scores over plain text and bytes");
    for (size_t i = 0; i < v->pieces.n_pieces; i++) {
        const struct file_piece *p = &v->pieces.pieces[i];
        TRY(set_token(v, (int64_t)i, p->content.bytes, p->content.len, p->score,
                      (enum listed_type)p->kind)); // numbered alike
    }
    TRY(add_added_tokens(v));
    gguf_put_string(v->w, TOKENIZER "model", "llama");
    gguf_put_string(v->w, TOKENIZER "pre", "default");
    put_tokens(v, true);
    gguf_put_bool(v->w, TOKENIZER "add_space_prefix", puts_space(v));
    gguf_put_bool(v->w, TOKENIZER "remove_extra_whitespaces", v->pieces.remove_extra_whitespaces);
    return 0;
}

// --- Gemma 4: merges over pieces, without scores ---

static bool is_byte_token(const char *s) {
    unsigned byte;
    char end;
    return strlen(s) == 6 && sscanf(s, "<0x%2X%c", &byte, &end) == 2 && end == '>';
}

static int put_pieces(const struct listing *v) {
    const cJSON *item, *normalizer = json_member(v->json, "normalizer");
    const char *from = json_string(json_member(normalizer, "pattern"), "String");
    if (!from || strcmp(from, " ") != 0) return refuse(v, "a normaliser that does not mark spaces");
    cJSON_ArrayForEach(item, json_member(json_member(v->json, "model"), "vocab")) {
        if (!cJSON_IsNumber(item)) return err_set(v->err, E_FORMAT, "a token without its number");
        TRY(set_token(v, (int64_t)item->valuedouble, item->string, strlen(item->string), 0,
                      is_byte_token(item->string) ? LISTED_BYTE : LISTED_NORMAL));
    }
    TRY(add_added_tokens(v));
    gguf_put_string(v->w, TOKENIZER "model", "gemma4");
    put_tokens(v, true); // scores, which other readers expect
    gguf_put_bool(v->w, TOKENIZER "add_space_prefix", false);
    return put_merges(v);
}

// --- special tokens ---

static int32_t find_token(const struct listing *v, const char *text) {
    const size_t len = text ? strlen(text) : 0;
    for (int32_t i = 0; text && i < v->c->vocab_size; i++)
        if (v->tokens[i].type != LISTED_NONE && v->tokens[i].len == len &&
            memcmp(v->tokens[i].text, text, len) == 0)
            return i;
    return -1;
}

// A special token that tokenizer_config.json names, as text or as an object; -1: none.
static int32_t named_token(const struct listing *v, const char *key) {
    const cJSON *item = json_member(v->config, key);
    return find_token(v, cJSON_IsObject(item) ? json_string(item, "content")
                                              : json_string(v->config, key));
}

// Whether the tokenizer puts such a token around a text by itself.
static bool adds(const struct listing *v, const char *key, bool first) {
    const cJSON *given = json_member(v->config, key), *post, *item;
    if (cJSON_IsBool(given)) return cJSON_IsTrue(given);
    post = json_member(v->json, "post_processor");
    cJSON_ArrayForEach(item, json_member(post, "processors")) if (json_member(item, "single"))
        post = item;
    const cJSON *single = json_member(post, "single");
    const int n = cJSON_GetArraySize(single);
    return n > 0 && json_member(cJSON_GetArrayItem(single, first ? 0 : n - 1), "SpecialToken");
}

static bool ends_answer(const struct model_config *c, int32_t id) {
    for (int32_t i = 0; i < c->n_eos; i++)
        if (c->eos_ids[i] == id) return true;
    return false;
}

// The ids that end an answer have three keys: of the text, of a turn, of a message.
static int put_ends(const struct listing *v) {
    static const char *const keys[] = {TOKENIZER "eos_token_id", TOKENIZER "eot_token_id",
                                       TOKENIZER "eom_token_id"};
    enum { N_KEYS = sizeof keys / sizeof *keys };
    const int32_t named = named_token(v, "eos_token");
    int n = 0;
    if (v->c->n_eos > N_KEYS)
        return err_set(v->err, E_UNSUPPORTED,
                       "%d tokens end an answer; GGUF's metadata can name %d", v->c->n_eos,
                       (int)N_KEYS);
    if (named >= 0 && ends_answer(v->c, named)) gguf_put_u32(v->w, keys[n++], (uint32_t)named);
    for (int32_t i = 0; i < v->c->n_eos; i++)
        if (v->c->eos_ids[i] != named) gguf_put_u32(v->w, keys[n++], (uint32_t)v->c->eos_ids[i]);
    return 0;
}

static int put_special(const struct listing *v, bool sentencepiece) {
    const int32_t named = named_token(v, "bos_token");
    const int32_t bos = named >= 0 ? named : v->c->bos_id;
    const int32_t pad = named_token(v, "pad_token"), unknown = named_token(v, "unk_token");
    if (bos >= 0) gguf_put_u32(v->w, TOKENIZER "bos_token_id", (uint32_t)bos);
    if (pad >= 0) gguf_put_u32(v->w, TOKENIZER "padding_token_id", (uint32_t)pad);
    if (unknown >= 0) gguf_put_u32(v->w, TOKENIZER "unknown_token_id", (uint32_t)unknown);
    const bool plain = sentencepiece && !v->json; // LlamaTokenizer's own default
    gguf_put_bool(v->w, TOKENIZER "add_bos_token",
                  bos >= 0 && (adds(v, "add_bos_token", true) ||
                               (plain && !json_member(v->config, "add_bos_token"))));
    gguf_put_bool(v->w, TOKENIZER "add_eos_token",
                  v->c->n_eos > 0 && adds(v, "add_eos_token", false));
    return put_ends(v);
}

// --- the chat template ---

static int put_template_file(const struct listing *v, const char *name, const char *key,
                             bool *found) {
    char path[PATH_MAX];
    struct buf text;
    struct err why = {0};
    if (gguf_is(v->dir)) return 0;
    TRY(path_join(path, v->dir, name, v->err));
    int rc = buf_read_file(&text, path, TEXT_MAX_BYTES, &why);
    *found = rc == 0;
    if (rc == 0) gguf_put_string(v->w, key, buf_z(&text));
    if (rc < 0 && rc != E_NOTFOUND) err_set(v->err, rc, "%s", why.text);
    buf_release(&text);
    return rc == E_NOTFOUND ? 0 : rc;
}

// A file of its own, or a text in tokenizer_config.json, or a list of texts with names there.
static int put_templates(const struct listing *v) {
    const cJSON *given = json_member(v->config, "chat_template"), *item;
    bool found = false, tools = false;
    TRY(put_template_file(v, "chat_template.jinja", TEMPLATE, &found));
    TRY(put_template_file(v, "additional_chat_templates/tool_use.jinja", TEMPLATE ".tool_use",
                          &tools));
    if (cJSON_IsString(given) && !found) gguf_put_string(v->w, TEMPLATE, given->valuestring);
    if (!cJSON_IsArray(given)) return 0;
    cJSON_ArrayForEach(item, given) {
        const char *name = json_string(item, "name"), *text = json_string(item, "template");
        char key[128];
        if (!name || !text) continue;
        const bool is_main = strcmp(name, "default") == 0;
        if ((is_main && found) || (tools && strcmp(name, "tool_use") == 0)) continue;
        snprintf(key, sizeof key, TEMPLATE "%s%.80s", is_main ? "" : ".", is_main ? "" : name);
        gguf_put_string(v->w, key, text);
    }
    return 0;
}

// --- the whole ---

static int put(struct listing *v) {
    TRY(read_json(v, "tokenizer.json", &v->json));
    TRY(read_json(v, "tokenizer_config.json", &v->config));
    const cJSON *model = json_member(v->json, "model");
    const char *type = json_string(model, "type");
    const bool bytes = cJSON_IsTrue(json_member(model, "byte_fallback"));
    const char *file = text_files_tokenizer(v->dir);
    if (!file) {
        gguf_put_string(v->w, TOKENIZER "model", "none");
        return put_ends(v);
    }
    const bool is_json = strcmp(file, "tokenizer.json") == 0;
    if (!is_json && strcmp(file, "tokenizer.model") != 0)
        return err_set(v->err, E_UNSUPPORTED,
                       "the tokenizer of %.200s is %s; a GGUF file is written from "
                       "tokenizer.json or tokenizer.model",
                       v->dir, file);
    if (is_json && type && strcmp(type, "BPE") != 0) return refuse(v, "a model other than BPE");
    const bool pieces = is_json && bytes && strcmp(v->c->family, "gemma4_text") == 0;
    const bool sentencepiece = !pieces && (!is_json || bytes);
    TRY(pieces ? put_pieces(v) : sentencepiece ? put_sentencepiece(v) : put_byte_level(v));
    TRY(put_special(v, sentencepiece));
    return put_templates(v);
}

int gguf_vocab_put(struct gguf_writer *w, const char *dir, const struct model_config *c,
                   struct err *err) {
    struct listing v = {.w = w, .dir = dir, .c = c, .err = err};
    buf_init(&v.model, 1);
    v.tokens = calloc((size_t)c->vocab_size, sizeof *v.tokens);
    const int rc = v.tokens ? put(&v) : err_set(err, E_NOMEM, "no memory for the vocabulary");
    free(v.tokens);
    sentencepiece_file_release(&v.pieces);
    buf_release(&v.model);
    cJSON_Delete(v.json);
    cJSON_Delete(v.config);
    return rc;
}
