// One row for each family. See families.h.
//
// The default of a missing key is that of the family's configuration class in transformers (v4.57, v5),
// because the weights were trained with it.
#include "engine/model/families.h"
#include "base/json.h"
#include "engine/model/ft_layout.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool has_key(const cJSON *json, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(json, key) != NULL;
}

// --- sliding windows ---

// Reads layer_types. *first = the first layer with a window, n_layers when there is none.
// model_config can express "full below *first, a window from there on"; another pattern is refused.
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

// For families whose classes in transformers ignore layer_types: refuses a list that contradicts them.
static int check_layer_types(const struct model_config *c, const cJSON *json, struct err *err) {
    int32_t first, expected = c->sliding_window ? 0 : c->n_layers;
    int rc = read_layer_types(json, c->n_layers, &first, err);
    if (rc != JSON_PRESENT || first == expected) return rc;
    return err_set(err, E_UNSUPPORTED, "'layer_types' contradicts 'sliding_window'");
}

// A key with the value null means no window; an absent key, the class's default.
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

// --- switches that config.json decides, by family ---

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

static int read_gpt2(struct model_config *c, const cJSON *json, struct err *err) {
    bool scaled = true;
    TRY(json_get_bool(json, "scale_attn_weights", &scaled, err));
    if (!scaled) c->attention_scale = 1;
    TRY(json_get_bool(json, "scale_attn_by_inverse_layer_idx", &c->scale_by_layer, err));
    return 0;
}

static int read_gpt_neox(struct model_config *c, const cJSON *json, struct err *err) {
    TRY(json_get_bool(json, "use_parallel_residual", &c->parallel_residual, err));
    TRY(json_get_bool(json, "attention_bias", &c->qkv_bias, err));
    c->o_bias = c->qkv_bias;
    return 0;
}

static int read_bloom(struct model_config *c, const cJSON *json, struct err *err) {
    TRY(json_get_bool(json, "apply_residual_connection_post_layernorm", &c->normed_residual, err));
    return 0;
}

static int read_opt(struct model_config *c, const cJSON *json, struct err *err) {
    bool before = true, removed = false, affine = true, bias = true;
    int64_t embed_width = c->width;
    TRY(json_get_bool(json, "do_layer_norm_before", &before, err));
    TRY(json_get_bool(json, "_remove_final_layer_norm", &removed, err));
    TRY(json_get_bool(json, "layer_norm_elementwise_affine", &affine, err));
    TRY(json_get_bool(json, "enable_bias", &bias, err));
    TRY(json_get_int(json, "word_embed_proj_dim", 1, MODEL_MAX_WIDTH, &embed_width, err));
    if (!affine)
        return err_set(err, E_UNSUPPORTED,
                       "'layer_norm_elementwise_affine' false is not supported");
    c->norm_placement = before ? NORM_PRE : NORM_POST;
    c->final_norm = before && !removed;
    c->qkv_bias = c->o_bias = c->ffn_bias = bias;
    c->embed_width = (int32_t)embed_width;
    return 0;
}

// The padding token's row of the table is zero. It stands before the first position, as long as
// the token's id does.
static int read_xglm(struct model_config *c, const cJSON *json, struct err *err) {
    bool scaled = true;
    int64_t pad = 1;
    TRY(json_get_bool(json, "scale_embedding", &scaled, err));
    TRY(json_get_int(json, "pad_token_id", -1, INT32_MAX, &pad, err));
    if (pad >= c->position_offset)
        return err_set(err, E_UNSUPPORTED,
                       "'pad_token_id' %lld takes a position; it must be below %d", (long long)pad,
                       c->position_offset);
    c->embed_scale = scaled ? (float)sqrt(c->width) : 1;
    return 0;
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

// --- GPT-2 and GPT-J ---

static const struct family_alias gpt2_aliases[] = {{"num_hidden_layers", "n_layer"},
                                                   {"hidden_size", "n_embd"},
                                                   {"num_attention_heads", "n_head"},
                                                   {"max_position_embeddings", "n_positions"},
                                                   {NULL, NULL}};

#define GPT2_KEYS                                                                                  \
    .n_layers = "n_layer", .width = "n_embd", .n_heads = "n_head", .ffn_width = "n_inner",         \
    .ffn_width_optional = true, .max_positions = "n_positions", .norm_eps = "layer_norm_epsilon",  \
    .activation = "activation_function", .aliases = gpt2_aliases

static const struct family_keys gpt2_keys = {GPT2_KEYS};
static const struct family_keys gptj_keys = {GPT2_KEYS, .rotary_dim = "rotary_dim"};

static const struct family_tensors gpt2_tensors = {
    .embed = "transformer.wte",
    .positions = "transformer.wpe",
    .final_norm = "transformer.ln_f",
    .head = "lm_head",
    .layers = "transformer.h",
    .attn_norm = "ln_1",
    .ffn_norm = "ln_2",
    .qkv = "attn.c_attn",
    .conv1d = true,
    .o = "attn.c_proj",
    .up = "mlp.c_fc",
    .down = "mlp.c_proj",
};

static const struct family_tensors gptj_tensors = {
    .embed = "transformer.wte",
    .final_norm = "transformer.ln_f",
    .head = "lm_head",
    .layers = "transformer.h",
    .attn_norm = "ln_1",
    .q = "attn.q_proj",
    .k = "attn.k_proj",
    .v = "attn.v_proj",
    .o = "attn.out_proj",
    .up = "mlp.fc_in",
    .down = "mlp.fc_out",
};

#define GPT_SWITCHES                                                                               \
    .norm = NORM_LAYER, .norm_bias = true, .norm_placement = NORM_PRE, .norm_eps = 1e-5f,          \
    .final_norm = true, .ffn_bias = true, .rope_scale = 1, .embed_scale = 1

static const struct model_config gpt2_base = {GPT_SWITCHES,
                                              .positions = POSITION_LEARNED,
                                              .activation = ACT_GELU_TANH,
                                              .qkv_bias = true,
                                              .o_bias = true,
                                              .tied_head = true};
static const struct model_config gptj_base = {GPT_SWITCHES,
                                              .positions = POSITION_ROTARY,
                                              .rope_style = ROPE_INTERLEAVED,
                                              .rot_dim = 64,
                                              .activation = ACT_GELU_TANH,
                                              .parallel_residual = true,
                                              .shared_norm = true,
                                              .head_bias = true};

// --- GPT-NeoX ---

// Before version 4.46 transformers knew the old names only, since then it writes both.
static const struct family_alias gpt_neox_aliases[] = {
    {"rotary_pct", "partial_rotary_factor"}, {"rotary_emb_base", "rope_theta"}, {NULL, NULL}};

static const struct family_keys gpt_neox_keys = {
    .n_layers = "num_hidden_layers",
    .width = "hidden_size",
    .n_heads = "num_attention_heads",
    .ffn_width = "intermediate_size",
    .max_positions = "max_position_embeddings",
    .norm_eps = "layer_norm_eps",
    .activation = "hidden_act",
    .rotary_part = 0.25,
    .aliases = gpt_neox_aliases,
};

static const struct family_tensors gpt_neox_tensors = {
    .embed = "gpt_neox.embed_in",
    .final_norm = "gpt_neox.final_layer_norm",
    .head = "embed_out",
    .layers = "gpt_neox.layers",
    .attn_norm = "input_layernorm",
    .ffn_norm = "post_attention_layernorm",
    .qkv = "attention.query_key_value",
    .qkv_by_head = true,
    .o = "attention.dense",
    .up = "mlp.dense_h_to_4h",
    .down = "mlp.dense_4h_to_h",
};

static const struct model_config gpt_neox_base = {GPT_SWITCHES,
                                                  .positions = POSITION_ROTARY,
                                                  .rope_style = ROPE_HALF,
                                                  .activation = ACT_GELU,
                                                  .qkv_bias = true,
                                                  .o_bias = true,
                                                  .parallel_residual = true};

// --- BLOOM ---

static const struct family_alias bloom_aliases[] = {{"num_hidden_layers", "n_layer"},
                                                    {"n_embed", "hidden_size"},
                                                    {"num_attention_heads", "n_head"},
                                                    {NULL, NULL}};

static const struct family_keys bloom_keys = {
    .n_layers = "n_layer",
    .width = "hidden_size",
    .n_heads = "n_head",
    .max_positions = "seq_length", // of its training; attention itself has no bound
    .norm_eps = "layer_norm_epsilon",
    .aliases = bloom_aliases,
};

static const struct family_tensors bloom_tensors = {
    .embed = "transformer.word_embeddings",
    .embed_norm = "transformer.word_embeddings_layernorm",
    .final_norm = "transformer.ln_f",
    .head = "lm_head",
    .layers = "transformer.h",
    .attn_norm = "input_layernorm",
    .ffn_norm = "post_attention_layernorm",
    .qkv = "self_attention.query_key_value",
    .qkv_by_head = true,
    .o = "self_attention.dense",
    .up = "mlp.dense_h_to_4h",
    .down = "mlp.dense_4h_to_h",
};

static const struct model_config bloom_base = {GPT_SWITCHES,
                                               .max_positions = 2048,
                                               .positions = POSITION_ALIBI,
                                               .embed_norm = true,
                                               .activation = ACT_GELU_TANH,
                                               .qkv_bias = true,
                                               .o_bias = true,
                                               .tied_head = true};

// --- OPT and XGLM, both from fairseq ---

static const struct family_keys opt_keys = {
    .n_layers = "num_hidden_layers",
    .width = "hidden_size",
    .n_heads = "num_attention_heads",
    .ffn_width = "ffn_dim",
    .max_positions = "max_position_embeddings",
    .activation = "activation_function",
};

static const struct family_alias xglm_aliases[] = {{"num_hidden_layers", "num_layers"},
                                                   {"hidden_size", "d_model"},
                                                   {"num_attention_heads", "attention_heads"},
                                                   {NULL, NULL}};

static const struct family_keys xglm_keys = {
    .n_layers = "num_layers",
    .width = "d_model",
    .n_heads = "attention_heads",
    .ffn_width = "ffn_dim",
    .max_positions = "max_position_embeddings",
    .activation = "activation_function",
    .aliases = xglm_aliases,
};

#define FAIRSEQ_LAYER                                                                              \
    .head = "lm_head", .attn_norm = "self_attn_layer_norm", .ffn_norm = "final_layer_norm",        \
    .q = "self_attn.q_proj", .k = "self_attn.k_proj", .v = "self_attn.v_proj",                     \
    .o = "self_attn.out_proj", .up = "fc1", .down = "fc2"

static const struct family_tensors opt_tensors = {
    FAIRSEQ_LAYER,
    .embed = "model.decoder.embed_tokens",
    .embed_in = "model.decoder.project_in",
    .embed_out = "model.decoder.project_out",
    .positions = "model.decoder.embed_positions",
    .final_norm = "model.decoder.final_layer_norm",
    .layers = "model.decoder.layers",
};

static const struct family_tensors xglm_tensors = {
    FAIRSEQ_LAYER,
    .embed = "model.embed_tokens",
    .final_norm = "model.layer_norm",
    .layers = "model.layers",
};

#define FAIRSEQ_SWITCHES                                                                           \
    GPT_SWITCHES, .position_offset = 2, .qkv_bias = true, .o_bias = true, .tied_head = true

static const struct model_config opt_base = {FAIRSEQ_SWITCHES, .positions = POSITION_LEARNED,
                                             .activation = ACT_RELU};
static const struct model_config xglm_base = {FAIRSEQ_SWITCHES, .positions = POSITION_SINUSOIDAL,
                                              .activation = ACT_GELU};

// clang-format off
static const struct family families[] = {
    {"llama", "LlamaForCausalLM", &llama_keys, &llama_tensors, &llama_base, false, read_llama},
    {"mistral", "MistralForCausalLM", &llama_keys, &llama_tensors, &llama_base, true, read_mistral},
    {"qwen2", "Qwen2ForCausalLM", &llama_keys, &llama_tensors, &qwen2_base, true, read_qwen2},
    {"qwen3", "Qwen3ForCausalLM", &llama_keys, &llama_tensors, &qwen3_base, true, read_qwen3},
    {"gpt2", "GPT2LMHeadModel", &gpt2_keys, &gpt2_tensors, &gpt2_base, false, read_gpt2},
    {"gptj", "GPTJForCausalLM", &gptj_keys, &gptj_tensors, &gptj_base, false, NULL},
    {"gpt_neox", "GPTNeoXForCausalLM", &gpt_neox_keys, &gpt_neox_tensors, &gpt_neox_base, false, read_gpt_neox},
    {"bloom", "BloomForCausalLM", &bloom_keys, &bloom_tensors, &bloom_base, false, read_bloom},
    {"opt", "OPTForCausalLM", &opt_keys, &opt_tensors, &opt_base, false, read_opt},
    {"xglm", "XGLMForCausalLM", &xglm_keys, &xglm_tensors, &xglm_base, false, read_xglm},
};
// clang-format on
#define N_FAMILIES (sizeof families / sizeof *families)

const struct family *family_find(const char *model_type) {
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (strcmp(families[i].model_type, model_type) == 0) return &families[i];
    return NULL;
}

const struct family_tensors *family_tensors_of(const struct model_config *c) {
    return c->format == FORMAT_FASTERTRANSFORMER ? &ft_tensors : family_find(c->family)->tensors;
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
