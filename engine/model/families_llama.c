// Llama and the families that differ from it by a few switches. See families.h.
//
// The default of a missing key is that of the family's configuration class in transformers (v4.57, v5),
// because the weights were trained with it.
#include "base/json.h"
#include "engine/model/family_rows.h"
#include <math.h>
#include <string.h>

// --- windows ---

// For families whose classes in transformers ignore layer_types: refuses a list that contradicts them.
static int check_layer_types(const struct model_config *c, const cJSON *json, struct err *err) {
    bool windowed[MODEL_MAX_LAYERS];
    int rc = family_read_layer_types(json, c->n_layers, windowed, err);
    for (int32_t i = 0; rc == JSON_PRESENT && i < c->n_layers; i++)
        if (windowed[i] != (c->kinds[0].attention.window > 0))
            return err_set(err, E_UNSUPPORTED, "'layer_types' contradicts 'sliding_window'");
    return rc < 0 ? rc : 0;
}

// Qwen: a window only with use_sliding_window, and only from layer max_window_layers on.
static int read_qwen_window(struct model_config *c, const cJSON *json, struct err *err) {
    bool use = false, any = false, windowed[MODEL_MAX_LAYERS];
    struct layer_config full = c->kinds[0], sliding = full;
    int32_t window;
    int64_t below = 28;
    TRY(json_get_bool(json, "use_sliding_window", &use, err));
    TRY(family_read_window(json, 4096, &window, err));
    TRY(json_get_int(json, "max_window_layers", 0, INT32_MAX, &below, err));
    int rc = family_read_layer_types(json, c->n_layers, windowed, err);
    if (rc < 0) return rc;
    if (!use) window = 0;
    for (int32_t i = 0; i < c->n_layers; i++) {
        if (rc == JSON_ABSENT) windowed[i] = window && i >= below;
        any = any || windowed[i];
    }
    if (any && !window)
        return err_set(err, E_FORMAT,
                       "'layer_types' asks for a window that 'sliding_window' and "
                       "'use_sliding_window' do not give");
    sliding.attention.window = window;
    return family_set_layers(c, windowed, &full, &sliding, err);
}

// --- switches that config.json decides, by family ---

static int read_llama(struct model_config *c, const cJSON *json, struct err *err) {
    TRY(family_read_attention_bias(c, json, err));
    TRY(json_get_bool(json, "mlp_bias", &c->kinds[0].feed.bias, err));
    return check_layer_types(c, json, err);
}

static int read_mistral(struct model_config *c, const cJSON *json, struct err *err) {
    TRY(family_read_window(json, 4096, &c->kinds[0].attention.window, err));
    return check_layer_types(c, json, err);
}

static int read_qwen3(struct model_config *c, const cJSON *json, struct err *err) {
    TRY(family_read_attention_bias(c, json, err));
    return read_qwen_window(c, json, err);
}

// --- the tables ---

const struct family_keys llama_keys = {
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

// Names of all that have a norm before each sub-layer; a family without q_norm has switched it off.
static const struct family_tensors llama_tensors = {
    LLAMA_TENSORS,
    .attn_norm = "input_layernorm",
    .ffn_norm = "post_attention_layernorm",
};

static const struct model_config llama_base = {LLAMA_SWITCHES};
static const struct model_config qwen2_base = {LLAMA_SWITCHES, .kinds[0].attention.qkv_bias = true};
static const struct model_config qwen3_base = {LLAMA_SWITCHES,
                                               .kinds[0].attention.qk_norm = QK_NORM_HEADS,
                                               .kinds[0].attention.head_dim = 128};

// clang-format off
static const struct family rows[] = {
    {"llama", "LlamaForCausalLM", &llama_keys, &llama_tensors, &llama_base, false, read_llama},
    {"mistral", "MistralForCausalLM", &llama_keys, &llama_tensors, &llama_base, true, read_mistral},
    {"qwen2", "Qwen2ForCausalLM", &llama_keys, &llama_tensors, &qwen2_base, true, read_qwen_window},
    {"qwen3", "Qwen3ForCausalLM", &llama_keys, &llama_tensors, &qwen3_base, true, read_qwen3},
};
// clang-format on
const struct family_list families_llama = {rows, sizeof rows / sizeof *rows};
