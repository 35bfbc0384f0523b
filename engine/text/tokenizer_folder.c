// Finds a model folder's tokenizer and reads the files beside it: tokenizer_config.json,
// special_tokens_map.json, added_tokens.json. A tokenizer.json is complete without them. A
// SentencePiece model and GPT-2's two files need them for the special tokens. The names that the
// tokenizer's files have in FasterTransformer's model repositories are found too.
#include "base/json.h"
#include "base/path.h"
#include "engine/gguf/gguf_folder.h"
#include "engine/text/tokenizer_file.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL_MAX_BYTES ((size_t)1 << 28)
#define MAX_SPECIAL 256
#define GPT2_END "<|endoftext|>"

struct folder {
    const char *dir;
    cJSON *config, *map, *added,
        *model; // tokenizer_config, special_tokens_map, added_tokens, config; NULL: not there
    const char *special[MAX_SPECIAL]; // contents of the named special tokens, each once
    size_t n_special;
    struct err *err;
};

// --- files

// Puts the file's name before the sentence that a reader of its contents left.
static int in_file(const struct folder *f, const char *name, int rc) {
    if (rc >= 0) return 0;
    struct err inner = *f->err;
    return err_set(f->err, rc, "%.120s/%s: %.300s", f->dir, name, inner.text);
}

// *out stays NULL if there is no such file.
static int read_json(const struct folder *f, const char *name, cJSON **out) {
    char path[PATH_MAX];
    struct err why = {0};
    if (gguf_is(f->dir)) {
        int rc = gguf_folder_json(out, f->dir, name, &why);
        return rc == 0 || rc == E_NOTFOUND ? 0 : err_set(f->err, rc, "%s", why.text);
    }
    TRY(path_join(path, f->dir, name, f->err));
    *out = json_parse_file(path, &json_limits_file, &why);
    if (!*out && why.code == E_NOTFOUND) return 0;
    if (!*out) return err_set(f->err, why.code, "%s", why.text);
    if (cJSON_IsObject(*out)) return 0;
    cJSON_Delete(*out);
    *out = NULL;
    return in_file(f, name, err_set(f->err, E_FORMAT, "not an object"));
}

// --- names of special tokens

// A string, or an object with its content. NULL, with *err, for anything else.
static const char *content_of(const struct folder *f, const cJSON *item, const char *key) {
    if (cJSON_IsObject(item)) item = cJSON_GetObjectItemCaseSensitive(item, "content");
    if (cJSON_IsString(item)) return item->valuestring;
    err_set(f->err, E_FORMAT, "%s is neither a string nor an added token", key);
    return NULL;
}

static int read_name(const struct folder *f, const cJSON *root, const char *key, char **out) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, key);
    if (*out || !item || cJSON_IsNull(item)) return 0;
    const char *content = content_of(f, item, key);
    if (!content) return E_FORMAT;
    *out = strdup(content);
    return *out ? 0 : err_set(f->err, E_NOMEM, "no memory for %s", key);
}

static int read_names(const struct folder *f, struct tokenizer *t, const cJSON *root,
                      const char *file) {
    if (!root) return 0;
    int rc = read_name(f, root, "bos_token", &t->bos);
    if (rc == 0) rc = read_name(f, root, "eos_token", &t->eos);
    return in_file(f, file, rc);
}

static int note_special(struct folder *f, const cJSON *item, const char *key) {
    if (!item || cJSON_IsNull(item)) return 0;
    const char *content = content_of(f, item, key);
    if (!content) return E_FORMAT;
    if (!*content) return 0;
    for (size_t i = 0; i < f->n_special; i++)
        if (strcmp(f->special[i], content) == 0) return 0;
    if (f->n_special == MAX_SPECIAL)
        return err_set(f->err, E_LIMIT, "%s: more than %d special tokens", key, MAX_SPECIAL);
    f->special[f->n_special++] = content;
    return 0;
}

static int note_specials(struct folder *f, const cJSON *root, const char *file) {
    static const char *const keys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};
    static const char more[] = "additional_special_tokens";
    const cJSON *item;
    int rc = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && rc == 0; i++)
        rc = note_special(f, cJSON_GetObjectItemCaseSensitive(root, keys[i]), keys[i]);
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(root, more)) {
        if (rc == 0) rc = note_special(f, item, more);
    }
    return in_file(f, file, rc);
}

static bool is_noted(const struct folder *f, const char *content) {
    for (size_t i = 0; i < f->n_special; i++)
        if (strcmp(f->special[i], content) == 0) return true;
    return false;
}

// --- added tokens, as a list like tokenizer.json's

static int append(const struct folder *f, cJSON *list, cJSON *token) {
    if (token && cJSON_AddItemToArray(list, token)) return 0;
    cJSON_Delete(token);
    return err_set(f->err, E_NOMEM, "no memory for the added tokens");
}

// {"32000": {"content": "<x>", "lstrip": false, ...}, ...}
static int list_decoder(const struct folder *f, const cJSON *decoder, bool raw, cJSON *list) {
    const cJSON *item;
    cJSON_ArrayForEach(item, decoder) {
        char *end;
        long id = strtol(item->string, &end, 10);
        if (!cJSON_IsObject(item) || !*item->string || *end || id < 0 || id >= INT32_MAX)
            return err_set(f->err, E_FORMAT,
                           "added_tokens_decoder: '%.20s' is not a token under its id",
                           item->string);
        cJSON *token = cJSON_Duplicate(item, true);
        if (token) cJSON_AddNumberToObject(token, "id", (double)id);
        if (token && raw) { // SentencePiece's normaliser applies between added tokens
            cJSON_DeleteItemFromObjectCaseSensitive(token, "normalized");
            cJSON_AddBoolToObject(token, "normalized", false);
        }
        TRY(append(f, list, token));
    }
    return 0;
}

// {"<x>": 32000, ...}
static int list_added(const struct folder *f, cJSON *list) {
    const cJSON *item;
    cJSON_ArrayForEach(item, f->added) {
        cJSON *token = cJSON_CreateObject();
        if (token) {
            cJSON_AddStringToObject(token, "content", item->string);
            cJSON_AddItemToObject(token, "id", cJSON_Duplicate(item, true));
            cJSON_AddBoolToObject(token, "special", is_noted(f, item->string));
            cJSON_AddBoolToObject(token, "normalized", false);
        }
        TRY(append(f, list, token));
    }
    return 0;
}

static int make_list(const struct folder *f, bool raw, cJSON **out) {
    const cJSON *decoder = cJSON_GetObjectItemCaseSensitive(f->config, "added_tokens_decoder");
    *out = cJSON_CreateArray();
    if (!*out) return err_set(f->err, E_NOMEM, "no memory for the added tokens");
    int rc = cJSON_IsObject(decoder)
                 ? in_file(f, "tokenizer_config.json", list_decoder(f, decoder, raw, *out))
                 : in_file(f, "added_tokens.json", list_added(f, *out));
    if (rc == 0) return 0;
    cJSON_Delete(*out);
    *out = NULL;
    return rc;
}

// --- which tokenizer it is

// "LlamaTokenizer" for "LlamaTokenizerFast" too; "" where the files do not say.
static void class_of(const struct folder *f, char out[64]) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(f->config, "tokenizer_class");
    if (!cJSON_IsString(item)) item = cJSON_GetObjectItemCaseSensitive(f->model, "tokenizer_class");
    snprintf(out, 64, "%s", cJSON_IsString(item) ? item->valuestring : "");
    size_t len = strlen(out);
    if (len > 4 && strcmp(out + len - 4, "Fast") == 0) out[len - 4] = '\0';
}

static bool is_one_of(const char *name, const char *const *known) {
    while (*known && strcmp(*known, name) != 0) known++;
    return *known != NULL;
}

static int flag(const struct folder *f, const char *key, bool *out) {
    int rc = f->config ? json_get_bool(f->config, key, out, f->err) : 0;
    return in_file(f, "tokenizer_config.json", rc < 0 ? rc : 0);
}

static int read_sentencepiece(struct folder *f, struct tokenizer *t, const char *name) {
    static const char *const known[] = {"",
                                        "LlamaTokenizer",
                                        "CodeLlamaTokenizer",
                                        "GemmaTokenizer",
                                        "XGLMTokenizer",
                                        "PreTrainedTokenizer",
                                        "TokenizersBackend",
                                        NULL};
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(f->model, "model_type");
    struct model_options o = {
        .known = f->config || f->map || f->model, .special = f->special, .n_special = f->n_special};
    char class[64], path[PATH_MAX];
    bool legacy = true, prefix = true;
    struct buf bytes;
    cJSON *list;
    class_of(f, class);
    if (!is_one_of(class, known))
        return err_set(f->err, E_UNSUPPORTED,
                       "%.200s: tokenizer_class '%.60s' may number the pieces of %s otherwise: "
                       "save its tokenizer.json",
                       f->dir, class, name);
    o.xglm = strcmp(class, "XGLMTokenizer") == 0 ||
             (!*class && cJSON_IsString(type) && strcmp(type->valuestring, "xglm") == 0);
    TRY(flag(f, "legacy", &legacy));
    TRY(flag(f, "add_prefix_space", &prefix));
    o.prefix_first_only = !legacy;
    o.no_prefix = !prefix;
    TRY(path_join(path, f->dir, name, f->err));
    TRY(make_list(f, true, &list));
    o.added = list;
    int rc = gguf_is(f->dir) ? gguf_folder_model(&bytes, f->dir, f->err)
                             : buf_read_file(&bytes, path, MODEL_MAX_BYTES, f->err);
    if (rc == 0)
        rc = in_file(f, name, tokenizer_read_model(t, buf_z(&bytes), bytes.len, &o, f->err));
    buf_release(&bytes);
    cJSON_Delete(list);
    return rc;
}

// --- vocab.json and merges.txt: written as the tokenizer.json that they stand for

// GPT-2's pattern is ByteLevel's own; Qwen2's digits stand alone, and its text is composed first.
#define GPT2_PARTS                                                                                 \
    "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":%s,\"trim_offsets\":true,"    \
    "\"use_regex\":true},"                                                                         \
    "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\"}}"
#define QWEN2_PARTS                                                                                \
    "{\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"Sequence\","                 \
    "\"pretokenizers\":[{\"type\":\"Split\","                                                      \
    "\"pattern\":{\"Regex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}" \
    "+|\\\\p{N}| "                                                                                 \
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},"       \
    "\"behavior\":\"Isolated\","                                                                   \
    "\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":%s,\"use_regex\":false}]},"    \
    "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\"}}"

// A line is a merge; the first may be "#version: ...".
static int read_merges(const struct folder *f, const char *name, cJSON *list) {
    char path[PATH_MAX];
    struct buf text;
    TRY(path_join(path, f->dir, name, f->err));
    int rc = buf_read_file(&text, path, MODEL_MAX_BYTES, f->err);
    char *line = text.data, *end;
    for (size_t n = 0; rc == 0 && line && *line; line = end, n++) {
        end = strchrnul(line, '\n');
        if (*end) *end++ = '\0';
        line[strcspn(line, "\r")] = '\0';
        if (!*line || (n == 0 && strncmp(line, "#version", 8) == 0)) continue;
        cJSON *item = cJSON_CreateString(line);
        if (!item || !cJSON_AddItemToArray(list, item)) {
            cJSON_Delete(item);
            rc = err_set(f->err, E_NOMEM, "no memory for the merges");
        }
    }
    buf_release(&text);
    return rc;
}

static int add_missing_specials(const struct folder *f, const cJSON *vocab, cJSON *list) {
    int32_t next = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, vocab) {
        int32_t id;
        TRY(tokenizer_token_id(item, &id, item->string, f->err));
        if (id >= next) next = id + 1;
    }
    cJSON_ArrayForEach(item, list) {
        int32_t id;
        TRY(tokenizer_token_id(cJSON_GetObjectItemCaseSensitive(item, "id"), &id, "(added)",
                               f->err));
        if (id >= next) next = id + 1;
    }
    for (size_t i = 0; i < f->n_special; i++) {
        bool listed = false;
        cJSON_ArrayForEach(item, list) {
            const cJSON *content = cJSON_GetObjectItemCaseSensitive(item, "content");
            listed = listed ||
                     (cJSON_IsString(content) && strcmp(content->valuestring, f->special[i]) == 0);
        }
        if (listed) continue;
        const cJSON *known = cJSON_GetObjectItemCaseSensitive(vocab, f->special[i]);
        cJSON *token = cJSON_CreateObject();
        if (token) {
            cJSON_AddStringToObject(token, "content", f->special[i]);
            cJSON_AddNumberToObject(token, "id", known ? known->valuedouble : (double)next++);
            cJSON_AddBoolToObject(token, "special", true);
            cJSON_AddBoolToObject(token, "normalized", false);
        }
        TRY(append(f, list, token));
    }
    return 0;
}

// GPT-2's two files, and how FasterTransformer calls them.
static const struct gpt2_files {
    const char *vocab, *merges;
} gpt2_files[] = {{"vocab.json", "merges.txt"}, {"gpt2-vocab.json", "gpt2-merges.txt"}};

static int build_gpt2(struct folder *f, const struct gpt2_files *names, struct tokenizer *t,
                      cJSON *root, cJSON **vocab) {
    cJSON *model = cJSON_GetObjectItemCaseSensitive(root, "model"), *merges, *list;
    TRY(read_json(f, names->vocab, vocab));
    if (f->n_special == 0 && cJSON_HasObjectItem(*vocab, GPT2_END))
        f->special[f->n_special++] = GPT2_END;
    TRY(make_list(f, false, &list));
    if (!cJSON_AddItemToObject(root, "added_tokens", list)) {
        cJSON_Delete(list);
        return err_set(f->err, E_NOMEM, "no memory for the added tokens");
    }
    TRY(in_file(f, names->vocab, add_missing_specials(f, *vocab, list)));
    if (!(merges = cJSON_AddArrayToObject(model, "merges")))
        return err_set(f->err, E_NOMEM, "no memory for the merges");
    TRY(read_merges(f, names->merges, merges));
    if (!cJSON_AddItemToObject(model, "vocab", *vocab))
        return err_set(f->err, E_NOMEM, "no memory for the vocabulary");
    *vocab = NULL; // the model's now
    char both[64];
    snprintf(both, sizeof both, "%s, %s", names->vocab, names->merges);
    TRY(in_file(f, both, tokenizer_read_json(t, root, f->err)));
    if (f->config || f->map || vocab_find(&t->vocab, GPT2_END, strlen(GPT2_END)) < 0) return 0;
    t->bos = strdup(GPT2_END);
    t->eos = strdup(GPT2_END);
    return t->bos && t->eos ? 0 : err_set(f->err, E_NOMEM, "no memory for " GPT2_END);
}

static int read_gpt2(struct folder *f, const struct gpt2_files *names, struct tokenizer *t) {
    static const char *const known[] = {
        "", "GPT2Tokenizer", "CodeGenTokenizer", "Qwen2Tokenizer", "PreTrainedTokenizer", NULL};
    char class[64], parts[2048];
    bool prefix = false;
    class_of(f, class);
    if (!is_one_of(class, known))
        return err_set(f->err, E_UNSUPPORTED,
                       "%.200s: tokenizer_class '%.60s' may cut text differently from GPT-2: save "
                       "its tokenizer.json",
                       f->dir, class);
    TRY(flag(f, "add_prefix_space", &prefix));
    snprintf(parts, sizeof parts, strcmp(class, "Qwen2Tokenizer") == 0 ? QWEN2_PARTS : GPT2_PARTS,
             prefix ? "true" : "false");
    cJSON *root = json_parse(parts, strlen(parts), &json_limits_file, f->err), *vocab = NULL;
    if (!root) return f->err->code;
    int rc = build_gpt2(f, names, t, root, &vocab);
    cJSON_Delete(vocab);
    cJSON_Delete(root);
    return rc;
}

// --- the folder

static int read_tokenizer(struct folder *f, struct tokenizer *t) {
    // The second name is that of GPT-NeoX in FasterTransformer's repositories.
    static const char *const whole[] = {"tokenizer.json", "20B_tokenizer.json"};
    static const char *const models[] = {"tokenizer.model", "sentencepiece.bpe.model",
                                         "spiece.model"};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        cJSON *root = NULL;
        TRY(read_json(f, whole[i], &root));
        if (!root) continue;
        int rc = in_file(f, whole[i], tokenizer_read_json(t, root, f->err));
        cJSON_Delete(root);
        return rc;
    }
    TRY(read_json(f, "added_tokens.json", &f->added));
    TRY(read_json(f, "config.json", &f->model));
    if (f->config) TRY(note_specials(f, f->config, "tokenizer_config.json"));
    if (f->map) TRY(note_specials(f, f->map, "special_tokens_map.json"));
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (path_holds(f->dir, models[i], F_OK) || gguf_folder_holds(f->dir, models[i]))
            return read_sentencepiece(f, t, models[i]);
    for (size_t i = 0; i < sizeof gpt2_files / sizeof *gpt2_files; i++)
        if (path_holds(f->dir, gpt2_files[i].vocab, F_OK) &&
            path_holds(f->dir, gpt2_files[i].merges, F_OK))
            return read_gpt2(f, &gpt2_files[i], t);
    return err_set(
        f->err, E_NOTFOUND,
        "%s has no tokenizer: no tokenizer.json, no tokenizer.model, no vocab.json with merges.txt",
        f->dir);
}

// add_bos_token decides. Without that key the post-processor of a tokenizer.json does, and of a SentencePiece model its
// class in transformers.
static int settle_start(const struct folder *f, struct tokenizer *t) {
    static const char *const adding[] = {"LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer",
                                         NULL};
    char class[64];
    class_of(f, class);
    bool adds = t->pieces.kinds && is_one_of(class, adding);
    const bool given = f->config && cJSON_IsBool(json_member(f->config, "add_bos_token"));
    TRY(flag(f, "add_bos_token", &adds));
    if (!given && !adds) return 0;
    free(t->start);
    t->start = NULL;
    if (!adds || !t->bos) return 0;
    t->start = strdup(t->bos);
    return t->start ? 0 : err_set(f->err, E_NOMEM, "no memory for the first token");
}

// The post-processor's, or eos if add_eos_token says so.
static int settle_end(const struct folder *f, struct tokenizer *t) {
    bool adds = false;
    TRY(flag(f, "add_eos_token", &adds));
    if (!adds || t->end || !t->eos) return 0;
    t->end = strdup(t->eos);
    return t->end ? 0 : err_set(f->err, E_NOMEM, "no memory for the last token");
}

static int read_all(struct folder *f, struct tokenizer *t) {
    TRY(read_json(f, "tokenizer_config.json", &f->config));
    TRY(read_json(f, "special_tokens_map.json", &f->map));
    TRY(read_names(f, t, f->config, "tokenizer_config.json"));
    TRY(read_names(f, t, f->map, "special_tokens_map.json"));
    TRY(read_tokenizer(f, t));
    TRY(settle_start(f, t));
    return settle_end(f, t);
}

int tokenizer_read_folder(struct tokenizer *t, const char *model_dir, struct err *err) {
    struct err local = {0};
    struct folder f = {.dir = model_dir, .err = err ? err : &local};
    int rc = read_all(&f, t);
    cJSON_Delete(f.config);
    cJSON_Delete(f.map);
    cJSON_Delete(f.added);
    cJSON_Delete(f.model);
    return rc;
}
