// config.json and generation_config.json into struct model_config. See model_config.h.
//
// families_*.c have the differences between families. This file has the rest: the shape with its ranges,
// unsupported values, the token ids. In an error, inner functions name the wrong key, and the outermost
// one adds the file's name.
#include "engine/model/model_config.h"
#include "base/json.h"
#include "base/near_name.h"
#include "base/path.h"
#include "engine/gguf/gguf_folder.h"
#include "engine/model/embedding_files.h"
#include "engine/model/families.h"
#include "engine/model/ft_checkpoint.h"
#include "engine/model/ft_folder.h"
#include "engine/model/quantization.h"
#include "engine/model/rope.h"
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_COMPUTED_TABLE                                                                         \
    (1 << 28) // values of the table of sinusoidal positions, which is computed

static const struct json_limits config_limits = {4 << 20, 16, 100000};

// --- other names of keys ---

// If a file has both names they must agree: versions differ in which one wins.
static int rename_key(cJSON *json, const struct family_alias *a, struct err *err) {
    cJSON *item = cJSON_DetachItemFromObjectCaseSensitive(json, a->alias);
    const cJSON *there = cJSON_GetObjectItemCaseSensitive(json, a->key);
    if (!item) return 0;
    int rc = 0;
    if (there && !cJSON_IsNull(there)) {
        if (!cJSON_IsNull(item) && !cJSON_Compare(item, there, true))
            rc = err_set(err, E_FORMAT, "'%s' and '%s' disagree", a->alias, a->key);
        cJSON_Delete(item);
        return rc;
    }
    cJSON_DeleteItemFromObjectCaseSensitive(json, a->key);
    if (cJSON_AddItemToObject(json, a->key, item)) return 0;
    cJSON_Delete(item);
    return err_set(err, E_NOMEM, "no memory for '%s'", a->key);
}

static int rename_keys(cJSON *json, const struct family *f, struct err *err) {
    for (const struct family_alias *a = f->keys->aliases; a && a->alias; a++)
        TRY(rename_key(json, a, err));
    return 0;
}

// --- the shape ---

static int read_i32(const cJSON *json, const char *key, int32_t max, int32_t *out,
                    struct err *err) {
    int64_t v;
    int rc = json_get_int(json, key, 1, max, &v, err);
    if (rc == JSON_PRESENT) *out = (int32_t)v;
    return rc;
}

static int require_i32(const cJSON *json, const char *key, int32_t max, int32_t *out,
                       struct err *err) {
    int rc = read_i32(json, key, max, out, err);
    return rc == JSON_ABSENT ? err_set(err, E_FORMAT, "'%s' is missing", key) : rc;
}

static int read_heads(struct model_config *c, const struct family *f, const cJSON *json,
                      struct err *err) {
    const struct family_keys *k = f->keys;
    TRY(require_i32(json, k->n_heads, MODEL_MAX_HEADS, &c->kinds[0].attention.n_heads, err));
    c->kinds[0].attention.n_kv_heads = c->kinds[0].attention.n_heads;
    if (k->n_kv_heads && f->kv_heads_required)
        TRY(require_i32(json, k->n_kv_heads, MODEL_MAX_HEADS, &c->kinds[0].attention.n_kv_heads,
                        err));
    else if (k->n_kv_heads)
        TRY(read_i32(json, k->n_kv_heads, MODEL_MAX_HEADS, &c->kinds[0].attention.n_kv_heads, err));
    if (c->kinds[0].attention.n_heads % c->kinds[0].attention.n_kv_heads != 0)
        return err_set(err, E_FORMAT, "'%s' %d does not divide by '%s' %d", k->n_heads,
                       c->kinds[0].attention.n_heads, k->n_kv_heads,
                       c->kinds[0].attention.n_kv_heads);
    // null means the value that follows from the shape, even if the class has another default.
    if (k->head_dim && cJSON_GetObjectItemCaseSensitive(json, k->head_dim))
        c->kinds[0].attention.head_dim = 0;
    if (k->head_dim)
        TRY(read_i32(json, k->head_dim, MODEL_MAX_HEAD_DIM, &c->kinds[0].attention.head_dim, err));
    if (c->kinds[0].attention.head_dim != 0) return 0;
    if (c->width % c->kinds[0].attention.n_heads != 0)
        return err_set(err, E_FORMAT, "'%s' %d does not divide by '%s' %d", k->width, c->width,
                       k->n_heads, c->kinds[0].attention.n_heads);
    c->kinds[0].attention.head_dim = c->width / c->kinds[0].attention.n_heads;
    return c->kinds[0].attention.head_dim <= MODEL_MAX_HEAD_DIM
               ? 0
               : err_set(err, E_UNSUPPORTED, "heads of %d; the limit is %d",
                         c->kinds[0].attention.head_dim, MODEL_MAX_HEAD_DIM);
}

static int read_ffn_width(struct model_config *c, const struct family_keys *k, const cJSON *json,
                          struct err *err) {
    c->kinds[0].feed.width = 4 * c->width;
    if (!k->ffn_width) return 0;
    if (!k->ffn_width_optional)
        return require_i32(json, k->ffn_width, MODEL_MAX_FFN, &c->kinds[0].feed.width, err);
    return read_i32(json, k->ffn_width, MODEL_MAX_FFN, &c->kinds[0].feed.width, err);
}

// A family with a fixed length needs no such key.
static int read_max_positions(struct model_config *c, const struct family_keys *k,
                              const cJSON *json, struct err *err) {
    if (c->max_positions == 0)
        return require_i32(json, k->max_positions, INT32_MAX, &c->max_positions, err);
    return read_i32(json, k->max_positions, INT32_MAX, &c->max_positions, err);
}

static int read_shape(struct model_config *c, const struct family *f, const cJSON *json,
                      struct err *err) {
    const struct family_keys *k = f->keys;
    TRY(require_i32(json, "vocab_size", MODEL_MAX_VOCAB, &c->vocab_size, err));
    TRY(require_i32(json, k->n_layers, MODEL_MAX_LAYERS, &c->n_layers, err));
    TRY(require_i32(json, k->width, MODEL_MAX_WIDTH, &c->width, err));
    TRY(read_ffn_width(c, k, json, err));
    TRY(read_max_positions(c, k, json, err));
    TRY(read_heads(c, f, json, err));
    if (((int64_t)c->kinds[0].attention.n_heads + 2 * (int64_t)c->kinds[0].attention.n_kv_heads) *
            c->kinds[0].attention.head_dim >
        MODEL_MAX_QKV_ROWS)
        return err_set(err, E_LIMIT, "%d heads of %d are more than a matrix may have rows",
                       c->kinds[0].attention.n_heads, c->kinds[0].attention.head_dim);
    c->embed_width = c->width;
    c->kinds[0].attention.scale = (float)(1.0 / sqrt(c->kinds[0].attention.head_dim));
    return 0;
}

// --- numbers and switches that all families have ---

static int read_activation(struct model_config *c, const char *key, const cJSON *json,
                           struct err *err) {
    static const struct {
        const char *name;
        enum activation activation;
    } names[] = {
        // by transformers' ACT2FN
        {"silu", ACT_SILU},
        {"swish", ACT_SILU},
        {"gelu", ACT_GELU},
        {"gelu_python", ACT_GELU},
        {"gelu_new", ACT_GELU_TANH},
        {"gelu_fast", ACT_GELU_TANH},
        {"gelu_accurate", ACT_GELU_TANH},
        {"gelu_pytorch_tanh", ACT_GELU_TANH},
        {"gelu_python_tanh", ACT_GELU_TANH},
        {"quick_gelu", ACT_QUICK_GELU},
        {"relu", ACT_RELU},
        {"relu2", ACT_RELU2},
        {"relu6", ACT_RELU6},
        {"leaky_relu", ACT_LEAKY_RELU},
        {"sigmoid", ACT_SIGMOID},
        {"tanh", ACT_TANH},
        {"mish", ACT_MISH},
        {"linear", ACT_LINEAR},
    };
    const char *name;
    int rc = json_get_string(json, key, &name, err);
    if (rc != JSON_PRESENT) return rc;
    c->kinds[0].feed.xielu = strcmp(name, "xielu") == 0 && !c->kinds[0].feed.gated;
    if (c->kinds[0].feed.xielu) return 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i].name) != 0) continue;
        c->kinds[0].feed.activation = names[i].activation;
        return 0;
    }
    return err_set(err, E_UNSUPPORTED, "'%s' is '%.60s', an unknown activation", key, name);
}

static int read_dtype(struct model_config *c, const cJSON *json, struct err *err) {
    static const struct {
        const char *name;
        enum dtype dtype;
    } names[] = {{"float32", DTYPE_F32}, {"float16", DTYPE_F16}, {"bfloat16", DTYPE_BF16}};
    const char *name = "float32"; // as transformers
    TRY(json_get_string(json, "torch_dtype", &name, err));
    TRY(json_get_string(json, "dtype", &name, err));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i].name) != 0) continue;
        c->dtype = names[i].dtype;
        return 0;
    }
    return err_set(err, E_UNSUPPORTED, "'dtype' is '%.60s'; known are float32, float16, bfloat16",
                   name);
}

// Keys that would change the result and that no family supports.
static int refuse_unknown(const cJSON *json, struct err *err) {
    static const char *const keys[] = {"is_encoder_decoder", "add_cross_attention"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, keys[i]);
        if (item && !cJSON_IsNull(item) && !cJSON_IsFalse(item))
            return err_set(err, E_UNSUPPORTED, "'%s' is not supported", keys[i]);
    }
    return 0;
}

// GPT-J: the width is given, and null does not mean whole heads but fails in its class.
static int read_rotary_dim(struct model_config *c, const char *key, const cJSON *json,
                           struct err *err) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    if (item && cJSON_IsNull(item))
        return err_set(err, E_UNSUPPORTED, "'%s' is null; it must be a width", key);
    TRY(read_i32(json, key, c->kinds[0].attention.head_dim, &c->ropes[0].rot_dim, err));
    if (c->ropes[0].rot_dim > c->kinds[0].attention.head_dim)
        return err_set(err, E_FORMAT, "'%s' is %d of heads of %d", key, c->ropes[0].rot_dim,
                       c->kinds[0].attention.head_dim);
    return rope_plain(&c->ropes[0], err);
}

static int read_positions(struct model_config *c, const struct family *f, const cJSON *json,
                          struct err *err) {
    int64_t rows = (int64_t)c->max_positions + c->position_offset;
    if (c->positions == POSITION_LEARNED && rows > INT32_MAX)
        return err_set(err, E_LIMIT, "a table of %lld positions", (long long)rows);
    if (c->positions == POSITION_SINUSOIDAL && c->width < 4)
        return err_set(err, E_UNSUPPORTED, "sinusoidal positions of width %d", c->width);
    if (c->positions == POSITION_SINUSOIDAL && rows > MAX_COMPUTED_TABLE / c->width)
        return err_set(err, E_LIMIT, "a table of %lld positions of width %d", (long long)rows,
                       c->width);
    if (c->positions != POSITION_ROTARY) return 0;
    if (f->keys->rotary_dim) return read_rotary_dim(c, f->keys->rotary_dim, json, err);
    if (f->keys->reads_ropes) return 0;
    struct attention_config *a = &c->kinds[0].attention;
    const struct rope_request r = {.head_dim = a->head_dim,
                                   .part = f->keys->rotary_part,
                                   .theta = f->keys->theta != 0 ? f->keys->theta : 10000,
                                   .theta_key = "rope_theta",
                                   .ropes = f->keys->ropes};
    return rope_read(c, &c->ropes[0], &r, json, f->keys->query_scale ? a : NULL, err);
}

static int read_numbers(struct model_config *c, const struct family *f, const cJSON *json,
                        struct err *err) {
    double eps = c->norm_eps;
    if (f->keys->norm_eps) TRY(json_get_double(json, f->keys->norm_eps, 1e-12, 1, &eps, err));
    c->norm_eps = (float)eps;
    TRY(json_get_bool(json, "tie_word_embeddings", &c->tied_head, err));
    if (f->keys->activation) TRY(read_activation(c, f->keys->activation, json, err));
    TRY(read_dtype(c, json, err));
    return 0;
}

// --- token ids ---

// -1 (some conversions of the first Llama) means that there is none.
static int read_token_id(const cJSON *item, const char *key, int32_t vocab_size, int32_t *out,
                         struct err *err) {
    double v = cJSON_IsNumber(item) ? item->valuedouble : NAN;
    if (!(v >= -1 && v < vocab_size) || v != floor(v))
        return err_set(err, E_FORMAT, "'%s' must be a token id from 0 to %d", key, vocab_size - 1);
    *out = (int32_t)v;
    return 0;
}

static int add_eos(struct model_config *c, const cJSON *item, struct err *err) {
    int32_t id = -1;
    TRY(read_token_id(item, "eos_token_id", c->vocab_size, &id, err));
    for (int32_t i = 0; i < c->n_eos; i++)
        if (c->eos_ids[i] == id) return 0;
    if (id < 0) return 0;
    if (c->n_eos == MODEL_MAX_EOS)
        return err_set(err, E_LIMIT, "'eos_token_id' lists more than %d tokens", MODEL_MAX_EOS);
    c->eos_ids[c->n_eos++] = id;
    return 0;
}

// generation_config.json is read second and overrides config.json, as in transformers.
static int read_tokens(struct model_config *c, const cJSON *json, struct err *err) {
    const cJSON *bos = cJSON_GetObjectItemCaseSensitive(json, "bos_token_id");
    const cJSON *eos = cJSON_GetObjectItemCaseSensitive(json, "eos_token_id"), *item;
    if (bos && !cJSON_IsNull(bos))
        TRY(read_token_id(bos, "bos_token_id", c->vocab_size, &c->bos_id, err));
    if (!eos || cJSON_IsNull(eos)) return 0;
    c->n_eos = 0;
    if (!cJSON_IsArray(eos)) return add_eos(c, eos, err);
    cJSON_ArrayForEach(item, eos) {
        TRY(add_eos(c, item, err));
    }
    return 0;
}

static int read_suggestions(struct model_config *c, const cJSON *json, struct err *err) {
    double v;
    int64_t k;
    int rc;
    TRY(rc = json_get_double(json, "temperature", 0, 1000, &v, err));
    if (rc == JSON_PRESENT) c->temperature = (float)v;
    TRY(rc = json_get_double(json, "top_p", 0, 1, &v, err));
    if (rc == JSON_PRESENT) c->top_p = (float)v;
    TRY(rc = json_get_double(json, "repetition_penalty", 1e-3, 1000, &v, err));
    if (rc == JSON_PRESENT) c->repetition_penalty = (float)v;
    TRY(rc = json_get_int(json, "top_k", 0, INT32_MAX, &k, err));
    if (rc == JSON_PRESENT) c->top_k = (int32_t)k;
    return 0;
}

// --- the files ---

// A model that also sees: its text is described by text_config, to which some keys of the whole belong.
static int read_nested(cJSON *json, cJSON **text, struct err *err) {
    static const char *const keys[] = {
        "dtype",        "torch_dtype",  "quantization_config", MODEL_FP8_KEY,
        "bos_token_id", "eos_token_id", "compression_config"};
    cJSON *inner = cJSON_GetObjectItemCaseSensitive(json, "text_config");
    *text = json;
    if (!inner || cJSON_IsNull(inner)) return 0;
    if (!cJSON_IsObject(inner)) return err_set(err, E_FORMAT, "'text_config' is not an object");
    cJSON *tied = cJSON_DetachItemFromObjectCaseSensitive(json, "tie_word_embeddings");
    if (tied) { // the whole model's head
        cJSON_DeleteItemFromObjectCaseSensitive(inner, "tie_word_embeddings");
        cJSON_AddItemToObject(inner, "tie_word_embeddings", tied);
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (cJSON_GetObjectItemCaseSensitive(inner, keys[i])) continue;
        cJSON *item = cJSON_DetachItemFromObjectCaseSensitive(json, keys[i]);
        if (item) cJSON_AddItemToObject(inner, keys[i], item);
    }
    *text = inner;
    return 0;
}

// The keys that a text_config leaves out. A whole config.json lacks at most its length (the first conversions of Llama
// have it under another name).
static int add_defaults(cJSON *text, const struct family *f, bool is_whole, struct err *err) {
    cJSON *all = f->keys->nested ? cJSON_Parse(f->keys->nested) : NULL, *item;
    bool done = all || !f->keys->nested;
    while (done && (item = cJSON_DetachItemFromArray(all, 0)) != NULL) {
        const bool there = cJSON_GetObjectItemCaseSensitive(text, item->string) != NULL ||
                           (is_whole && strcmp(item->string, f->keys->max_positions) != 0);
        done = there || cJSON_AddItemToObject(text, item->string, item);
        if (there || !done) cJSON_Delete(item);
    }
    cJSON_Delete(all);
    return done ? 0 : err_set(err, E_NOMEM, "no memory for the keys of config.json");
}

static int unknown_family(const char *type, struct err *err) {
    struct near_names near = {.name = type};
    char text[NEAR_NAMES_TEXT];
    for (size_t i = 0; family_name(i); i++) near_names_look(&near, family_name(i));
    return err_set(err, E_UNSUPPORTED,
                   "'model_type' is '%.60s', which is unknown%s (`parley inspect --families` lists "
                   "the known)",
                   type, near_names_text(text, &near));
}

static int read_config(struct model_config *c, cJSON *whole, struct err *err) {
    const char *type = NULL;
    cJSON *json;
    TRY(read_nested(whole, &json, err));
    TRY(json_get_string(json, "model_type", &type, err));
    if (!type) return err_set(err, E_FORMAT, "'model_type' is missing");
    const struct family *f = family_find(type);
    if (!f) return unknown_family(type, err);
    TRY(add_defaults(json, f, json == whole, err));
    *c = *f->base;
    c->n_kinds = 1;
    snprintf(c->family, sizeof c->family, "%s", f->model_type);
    c->bos_id = -1;
    c->embeddings = (struct embedding_config){.pooling = EMBEDDING_MEAN, .unit_length = true};
    c->temperature = c->top_p = c->repetition_penalty = -1;
    c->top_k = -1;
    TRY(refuse_unknown(json, err));
    TRY(quantization_read(c, json, err));
    TRY(rename_keys(json, f, err));
    TRY(read_shape(c, f, json, err));
    TRY(read_numbers(c, f, json, err));
    TRY(read_positions(c, f, json, err));
    if (f->read) TRY(f->read(c, json, err));
    model_config_settle_layers(c);
    return read_tokens(c, json, err);
}

static int read_generation(struct model_config *c, cJSON *json, struct err *err) {
    TRY(read_tokens(c, json, err));
    return read_suggestions(c, json, err);
}

static int read_file(struct model_config *c, const char *path,
                     int (*read)(struct model_config *, cJSON *, struct err *), struct err *err) {
    struct err why = {0};
    cJSON *json = json_parse_file(path, &config_limits, &why);
    if (!json) return err_set(err, why.code, "%s", why.text);
    int rc = cJSON_IsObject(json) ? read(c, json, &why)
                                  : err_set(&why, E_FORMAT, "it is not a JSON object");
    cJSON_Delete(json);
    // A bad value in a file is E_FORMAT, not the E_INVAL of the getters.
    if (rc < 0) return err_set(err, rc == E_INVAL ? E_FORMAT : rc, "%s: %s", path, why.text);
    return 0;
}

int model_config_load_file(struct model_config *c, const char *config_path, struct err *err) {
    return read_file(c, config_path, read_config, err);
}

static int read_gguf(struct model_config *c, const char *path, struct err *err) {
    struct err why = {0};
    cJSON *json = NULL;
    TRY(gguf_folder_json(&json, path, "config.json", err));
    int rc = read_config(c, json, &why);
    if (rc == 0) rc = embedding_gguf_read(c, json, &why);
    cJSON_Delete(json);
    return rc < 0 ? err_set(err, rc == E_INVAL ? E_FORMAT : rc, "%s: %s", path, why.text) : 0;
}

// Neither a Hugging Face folder nor FasterTransformer's.
static int no_model(const char *dir, struct err *err) {
    struct stat st;
    bool file = gguf_is_name(dir);
    if (file && stat(dir, &st) == 0 && !S_ISDIR(st.st_mode))
        return err_set(err, E_FORMAT, "%s is not a regular file", dir);
    DIR *folder = opendir(dir);
    if (!folder) return err_errno(err, file ? "GGUF file %s" : "model folder %s", dir);
    closedir(folder);
    return err_set(err, E_NOTFOUND,
                   "%s is no model folder: it has neither config.json nor N-gpu/config.ini", dir);
}

// config.json or config.ini, then generation_config.json beside it, whose token ids win.
int model_config_load(struct model_config *c, const char *model_dir, struct err *err) {
    char config[PATH_MAX], generation[PATH_MAX], ft_dir[PATH_MAX];
    bool is_ft;
    if (gguf_is(model_dir)) return read_gguf(c, model_dir, err);
    TRY(ft_folder_find(ft_dir, model_dir, &is_ft, err));
    TRY(path_join(config, model_dir, "config.json", err));
    TRY(path_join(generation, is_ft ? ft_dir : model_dir, "generation_config.json", err));
    if (!is_ft && access(config, F_OK) < 0 && errno != EACCES) return no_model(model_dir, err);
    TRY(is_ft ? ft_model_config_load(c, ft_dir, err) : read_file(c, config, read_config, err));
    if (!is_ft) TRY(embedding_files_read(c, model_dir, err));
    return access(generation, F_OK) == 0 ? read_file(c, generation, read_generation, err) : 0;
}

const char *model_config_weight_dtype(const struct model_config *c) {
    return c->int8 ? "int8" : c->fp8 ? "fp8" : dtype_name(c->dtype);
}
