// One row for each family. See families.h.
//
// What a missing key means follows the configuration classes of transformers (v4.57, v5), where it
// differs from family to family: that is what the weights were trained with.
#include "engine/model/families.h"
#include "base/json.h"
#include <stdio.h>
#include <string.h>

static bool has_key(const cJSON *json, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(json, key) != NULL;
}

// --- sliding windows ---

// Reads layer_types. *first = the first layer with a window, n_layers when there is none. What
// model_config can say is "full below *first, a window from there on"; another pattern is refused.
static int read_layer_types(const cJSON *json, int32_t n_layers, int32_t *first, struct err *err) {
    const cJSON *list = NULL, *item;
    int rc = json_get_array(json, "layer_types", &list, err);
    if (rc != JSON_PRESENT) return rc;
    int32_t n = 0;
    *first = n_layers;
    cJSON_ArrayForEach(item, list) {
        const char *type = cJSON_IsString(item) ? item->valuestring : "?";
        bool full = strcmp(type, "full_attention") == 0;
        if (!full && strcmp(type, "sliding_attention") != 0)
            return err_set(err, E_UNSUPPORTED, "'layer_types' asks for '%.60s' in layer %d", type,
                           n);
        if (full && n > *first)
            return err_set(
                err, E_UNSUPPORTED,
                "'layer_types' asks for full attention in layer %d above a sliding window", n);
        if (!full && *first == n_layers) *first = n;
        n++;
    }
    if (n != n_layers)
        return err_set(err, E_FORMAT, "'layer_types' lists %d layers of %d", n, n_layers);
    return JSON_PRESENT;
}

// For families whose classes in transformers do not look at layer_types: it must not say anything
// else.
static int check_layer_types(const struct model_config *c, const cJSON *json, struct err *err) {
    int32_t first, expected = c->sliding_window ? 0 : c->n_layers;
    int rc = read_layer_types(json, c->n_layers, &first, err);
    if (rc != JSON_PRESENT || first == expected) return rc;
    return err_set(err, E_UNSUPPORTED, "'layer_types' contradicts 'sliding_window'");
}

// A key that is there with null means no window; one that is not there, the class's default.
static int read_window(const cJSON *json, int32_t fallback, int32_t *window, struct err *err) {
    int64_t v = has_key(json, "sliding_window") ? 0 : fallback;
    TRY(json_get_int(json, "sliding_window", 1, INT32_MAX, &v, err));
    *window = (int32_t)v;
    return 0;
}

// Qwen: a window only with use_sliding_window, and only from layer max_window_layers on.
static int read_qwen_window(struct model_config *c, const cJSON *json, struct err *err) {
    bool use = false;
    int32_t window, first;
    int64_t below = 28;
    TRY(json_get_bool(json, "use_sliding_window", &use, err));
    TRY(read_window(json, 4096, &window, err));
    TRY(json_get_int(json, "max_window_layers", 0, INT32_MAX, &below, err));
    int rc = read_layer_types(json, c->n_layers, &first, err);
    if (rc < 0) return rc;
    if (!use) window = 0;
    if (rc == JSON_ABSENT) first = window && below < c->n_layers ? (int32_t)below : c->n_layers;
    if (first == c->n_layers) return 0;
    if (!window)
        return err_set(err, E_FORMAT,
                       "'layer_types' asks for a window that 'sliding_window' and "
                       "'use_sliding_window' do not give");
    c->sliding_window = window;
    c->first_windowed_layer = first;
    return 0;
}

// --- what config.json decides in each family ---

static int read_attention_bias(struct model_config *c, const cJSON *json, struct err *err) {
    TRY(json_get_bool(json, "attention_bias", &c->qkv_bias, err));
    c->o_bias = c->qkv_bias;
    return 0;
}

static int read_llama(struct model_config *c, const cJSON *json, struct err *err) {
    TRY(read_attention_bias(c, json, err));
    TRY(json_get_bool(json, "mlp_bias", &c->ffn_bias, err));
    return check_layer_types(c, json, err);
}

static int read_mistral(struct model_config *c, const cJSON *json, struct err *err) {
    TRY(read_window(json, 4096, &c->sliding_window, err));
    return check_layer_types(c, json, err);
}

static int read_qwen2(struct model_config *c, const cJSON *json, struct err *err) {
    return read_qwen_window(c, json, err);
}

static int read_qwen3(struct model_config *c, const cJSON *json, struct err *err) {
    TRY(read_attention_bias(c, json, err));
    return read_qwen_window(c, json, err);
}

// --- the table ---

static const struct family_keys llama_keys = {
    .n_layers = "num_hidden_layers",
    .width = "hidden_size",
    .n_heads = "num_attention_heads",
    .n_kv_heads = "num_key_value_heads",
    .head_dim = "head_dim",
    .ffn_width = "intermediate_size",
    .max_positions = "max_position_embeddings",
    .norm_eps = "rms_norm_eps",
    .activation = "hidden_act",
};

// Names of all four; a family without q_norm has switched it off.
static const struct family_tensors llama_tensors = {
    .embed = "model.embed_tokens",
    .final_norm = "model.norm",
    .head = "lm_head",
    .layers = "model.layers",
    .attn_norm = "input_layernorm",
    .ffn_norm = "post_attention_layernorm",
    .q = "self_attn.q_proj",
    .k = "self_attn.k_proj",
    .v = "self_attn.v_proj",
    .q_norm = "self_attn.q_norm",
    .k_norm = "self_attn.k_norm",
    .o = "self_attn.o_proj",
    .gate = "mlp.gate_proj",
    .up = "mlp.up_proj",
    .down = "mlp.down_proj",
};

#define LLAMA_SWITCHES                                                                             \
    .norm = NORM_RMS, .norm_placement = NORM_PRE, .norm_eps = 1e-6f, .final_norm = true,           \
    .positions = POSITION_ROTARY, .rope_style = ROPE_HALF, .rope_scale = 1,                        \
    .activation = ACT_SILU, .gated = true, .embed_scale = 1

static const struct model_config llama_base = {LLAMA_SWITCHES};
static const struct model_config qwen2_base = {LLAMA_SWITCHES, .qkv_bias = true};
static const struct model_config qwen3_base = {LLAMA_SWITCHES, .qk_norm = true, .head_dim = 128};

static const struct family families[] = {
    {"llama", &llama_keys, &llama_tensors, &llama_base, false, read_llama},
    {"mistral", &llama_keys, &llama_tensors, &llama_base, true, read_mistral},
    {"qwen2", &llama_keys, &llama_tensors, &qwen2_base, true, read_qwen2},
    {"qwen3", &llama_keys, &llama_tensors, &qwen3_base, true, read_qwen3},
};
#define N_FAMILIES (sizeof families / sizeof *families)

const struct family *family_find(const char *model_type) {
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (strcmp(families[i].model_type, model_type) == 0) return &families[i];
    return NULL;
}

char *family_names(char out[FAMILY_NAMES_MAX]) {
    size_t at = 0;
    for (size_t i = 0; i < N_FAMILIES && at < FAMILY_NAMES_MAX; i++)
        at += (size_t)snprintf(out + at, FAMILY_NAMES_MAX - at, "%s%s", i ? ", " : "",
                               families[i].model_type);
    return out;
}

char *family_tensor_name(char out[TENSOR_NAME_MAX], const struct family_tensors *t, int32_t layer,
                         const char *stem, const char *suffix) {
    if (layer < 0)
        snprintf(out, TENSOR_NAME_MAX, "%s.%s", stem, suffix);
    else
        snprintf(out, TENSOR_NAME_MAX, "%s.%d.%s.%s", t->layers, layer, stem, suffix);
    return out;
}
