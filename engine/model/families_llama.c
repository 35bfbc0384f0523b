// Llama and the families that differ from it by a few switches. See families.h.
//
// The default of a missing key is that of the family's configuration class in transformers (v4.57, v5),
// because the weights were trained with it.
#include "base/json.h"
#include "engine/model/family_rows.h"
#include "engine/model/rope.h"
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

// Two kinds of layers, with windows by layer_types or a pattern.
static int read_two_kinds(struct model_config *c, const cJSON *json, int64_t pattern,
                          struct layer_config *full, struct layer_config *sliding,
                          struct err *err) {
    bool windowed[MODEL_MAX_LAYERS];
    int32_t window;
    TRY(family_read_window(json, 4096, &window, err));
    TRY(family_read_pattern(json, c->n_layers, window ? pattern : 0, windowed, err));
    for (int32_t i = 0; i < c->n_layers; i++)
        if (windowed[i] && !window)
            return err_set(err, E_FORMAT,
                           "'layer_types' asks for a window in layer %d that 'sliding_window' "
                           "does not give",
                           i);
    sliding->attention.window = window;
    return family_set_layers(c, windowed, full, sliding, err);
}

static int read_phi3(struct model_config *c, const cJSON *json, struct err *err) {
    return family_read_window(json, 0, &c->kinds[0].attention.window, err);
}

static int read_olmo3(struct model_config *c, const cJSON *json, struct err *err) {
    struct rope_request r = {.head_dim = c->kinds[0].attention.head_dim,
                             .theta = 500000,
                             .theta_key = "rope_theta",
                             .layers = "full_attention"};
    TRY(family_read_attention_bias(c, json, err));
    TRY(rope_read(c, &c->ropes[0], &r, json, NULL, err));
    r.layers = "sliding_attention";
    r.unscaled = true;
    TRY(rope_read(c, &c->ropes[1], &r, json, NULL, err));
    struct layer_config full = c->kinds[0], sliding = full;
    c->n_ropes = 2;
    sliding.attention.rope = 2;
    return read_two_kinds(c, json, 4, &full, &sliding, err);
}

// Layers without a window have no positions, if there are windows at all. The pattern may be a word, "LLLG", and is 0 in
// what transformers saves of a model without windows.
static int read_exaone4(struct model_config *c, const cJSON *json, struct err *err) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, "sliding_window_pattern");
    struct layer_config full = c->kinds[0], sliding = full;
    int64_t pattern = 4;
    int32_t window;
    if (cJSON_IsString(item)) {
        const char *word = item->valuestring;
        pattern = (int64_t)strlen(word);
        if (pattern < 1 || strspn(word, "L") != (size_t)pattern - 1 || word[pattern - 1] != 'G')
            return err_set(err, E_UNSUPPORTED, "'sliding_window_pattern' is '%.40s'", word);
    } else {
        TRY(json_get_int(json, "sliding_window_pattern", 0, MODEL_MAX_LAYERS, &pattern, err));
    }
    TRY(family_read_window(json, 4096, &window, err));
    if (window && pattern == 0 && !cJSON_GetObjectItemCaseSensitive(json, "layer_types"))
        return err_set(err, E_FORMAT, "'sliding_window_pattern' is 0 beside a 'sliding_window'");
    if (window) full.attention.rope = 0;
    return read_two_kinds(c, json, pattern, &full, &sliding, err);
}

// no_rope_layers: 1 where a layer has positions, 0 where it has none.
static int read_rope_layers(const struct model_config *c, const cJSON *json, bool *with,
                            struct err *err) {
    const cJSON *list = NULL, *item;
    int64_t interval = 4;
    int32_t n = 0;
    TRY(json_get_int(json, "no_rope_layer_interval", 1, MODEL_MAX_LAYERS, &interval, err));
    TRY(json_get_array(json, "no_rope_layers", &list, err));
    if (list && cJSON_GetArraySize(list) != c->n_layers)
        return err_set(err, E_FORMAT, "'no_rope_layers' lists %d layers of %d",
                       cJSON_GetArraySize(list), c->n_layers);
    cJSON_ArrayForEach(item, list) {
        if (!cJSON_IsNumber(item) || (item->valuedouble != 0 && item->valuedouble != 1))
            return err_set(err, E_FORMAT, "'no_rope_layers' is neither 0 nor 1 in layer %d", n);
        with[n++] = item->valuedouble == 1;
    }
    for (; n < c->n_layers; n++) with[n] = (n + 1) % interval != 0;
    return 0;
}

// Layers without positions have the window, if there is one and layer_types does not say otherwise.
static int read_smollm3(struct model_config *c, const cJSON *json, struct err *err) {
    bool with[MODEL_MAX_LAYERS], windowed[MODEL_MAX_LAYERS], use = false;
    int32_t window = 0;
    TRY(family_read_attention_bias(c, json, err));
    TRY(json_get_bool(json, "mlp_bias", &c->kinds[0].feed.bias, err));
    TRY(json_get_bool(json, "use_sliding_window", &use, err));
    TRY(read_rope_layers(c, json, with, err));
    if (use) TRY(family_read_window(json, 0, &window, err));
    if (!window) TRY(check_layer_types(c, json, err));
    int rc = family_read_layer_types(json, c->n_layers, windowed, err);
    if (rc < 0) return rc;
    for (int32_t i = 0; i < c->n_layers; i++) {
        struct layer_config row = c->kinds[0];
        if (!with[i]) row.attention.rope = 0;
        if (rc == JSON_PRESENT ? windowed[i] : !with[i]) row.attention.window = window;
        TRY(model_config_set_layer(c, i, &row, err));
    }
    return 0;
}

static int read_granite(struct model_config *c, const cJSON *json, struct err *err) {
    struct layer_config *row = &c->kinds[0];
    double embed = 1, scale = 1, residual = 1, logits = 1;
    TRY(family_read_attention_bias(c, json, err));
    TRY(json_get_bool(json, "mlp_bias", &row->feed.bias, err));
    TRY(json_get_double(json, "embedding_multiplier", 1e-6, 1e6, &embed, err));
    TRY(json_get_double(json, "attention_multiplier", 1e-6, 1e6, &scale, err));
    TRY(json_get_double(json, "residual_multiplier", 1e-6, 1e6, &residual, err));
    TRY(json_get_double(json, "logits_scaling", 1e-6, 1e6, &logits, err));
    c->embed_scale = (float)embed;
    row->attention.scale = (float)scale;
    row->residual_scale = residual == 1 ? 0 : (float)residual;
    c->logit_scale = logits == 1 ? 0 : (float)(1 / logits);
    return 0;
}

// Granite 4 as far as it has neither Mamba's layers nor experts: the feed-forward is what other models of the family
// have beside their experts.
static int read_granite_hybrid(struct model_config *c, const cJSON *json, struct err *err) {
    const cJSON *types = NULL, *item;
    const char *positions = "nope";
    int64_t experts = 8; // as the class
    int32_t n = 0;
    TRY(json_get_array(json, "layer_types", &types, err));
    if (!types)
        return err_set(err, E_UNSUPPORTED, "no 'layer_types': layers of Mamba are not supported");
    cJSON_ArrayForEach(item, types) {
        const char *type = cJSON_IsString(item) ? item->valuestring : "?";
        if (strcmp(type, "attention") != 0 && strcmp(type, "full_attention") != 0)
            return err_set(err, E_UNSUPPORTED, "'layer_types' asks for '%.60s' in layer %d", type,
                           n);
        n++;
    }
    if (n != c->n_layers)
        return err_set(err, E_FORMAT, "'layer_types' lists %d layers of %d", n, c->n_layers);
    TRY(json_get_int(json, "num_local_experts", 0, INT32_MAX, &experts, err));
    if (experts > 0)
        return err_set(err, E_UNSUPPORTED, "'num_local_experts' is %lld; known is 0 here",
                       (long long)experts);
    TRY(json_get_string(json, "position_embedding_type", &positions, err));
    if (strcmp(positions, "rope") != 0) c->kinds[0].attention.rope = 0;
    return read_granite(c, json, err);
}

static int read_glm4(struct model_config *c, const cJSON *json, struct err *err) {
    return json_get_bool(json, "attention_bias", &c->kinds[0].attention.qkv_bias, err);
}

static int read_seed_oss(struct model_config *c, const cJSON *json, struct err *err) {
    struct layer_config *row = &c->kinds[0];
    TRY(json_get_bool(json, "attention_bias", &row->attention.qkv_bias, err));
    TRY(json_get_bool(json, "attention_out_bias", &row->attention.o_bias, err));
    return json_get_bool(json, "mlp_bias", &row->feed.bias, err);
}

static int read_ernie(struct model_config *c, const cJSON *json, struct err *err) {
    struct layer_config *row = &c->kinds[0];
    TRY(json_get_bool(json, "use_bias", &row->feed.bias, err));
    row->attention.qkv_bias = row->attention.o_bias = row->feed.bias;
    return 0;
}

// Cohere's first models (Command R, Aya): every layer sees all, with positions.
static int read_cohere(struct model_config *c, const cJSON *json, struct err *err) {
    static const char *const unknown[] = {"use_qk_norm",
                                          NULL}; // Command R+: a weight for each head
    double logits = 0.0625;
    TRY(family_refuse(json, unknown, err));
    TRY(family_read_attention_bias(c, json, err));
    TRY(json_get_double(json, "logit_scale", 1e-6, 1e6, &logits, err));
    c->logit_scale = logits == 1 ? 0 : (float)logits;
    return 0;
}

// Windowed layers have positions, the others have none.
static int read_cohere2(struct model_config *c, const cJSON *json, struct err *err) {
    int64_t pattern = 4;
    TRY(read_cohere(c, json, err));
    TRY(json_get_int(json, "sliding_window_pattern", 1, MODEL_MAX_LAYERS, &pattern, err));
    struct layer_config full = c->kinds[0], sliding = full;
    full.attention.rope = 0;
    return read_two_kinds(c, json, pattern, &full, &sliding, err);
}

// --- the tables ---

static const struct family_keys llama_keys = {LLAMA_KEYS};
static const struct family_keys first_llama_keys = {
    LLAMA_KEYS, .nested = NESTED("32000", "4096", "11008", "32", "32", "32", "2048")};
static const struct family_keys mistral_keys = {
    LLAMA_KEYS, .nested = NESTED("32000", "4096", "14336", "32", "32", "8", "131072")};
static const struct family_keys qwen_keys = {
    LLAMA_KEYS, .nested = NESTED("151936", "4096", "22016", "32", "32", "32", "32768")};

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

// Phi-3 and 4: q, k, v and gate, up are each one tensor.
#define TRUNK_TENSORS_OF(DOWN)                                                                     \
    .embed = "model.embed_tokens", .final_norm = "model.norm", .head = "lm_head",                  \
    .layers = "model.layers", .o = "self_attn.o_proj", .down = (DOWN)
#define TRUNK_TENSORS TRUNK_TENSORS_OF("mlp.down_proj")
// Norms before the sub-layers, and q, k, v each a tensor.
#define PRE_NORM_TENSORS                                                                           \
    .attn_norm = "input_layernorm", .ffn_norm = "post_attention_layernorm",                        \
    .q = "self_attn.q_proj", .k = "self_attn.k_proj", .v = "self_attn.v_proj"
static const struct family_keys phi3_keys = {LLAMA_KEYS, .rotary_part = 1};
static const struct family_tensors phi3_tensors = {
    TRUNK_TENSORS,
    .attn_norm = "input_layernorm",
    .ffn_norm = "post_attention_layernorm",
    .qkv = "self_attn.qkv_proj",
    .gate_up = "mlp.gate_up_proj",
};

// OLMo 2 and 3, EXAONE 4: norms of what the sub-layers add, and no others.
static const struct family_tensors out_norm_tensors = {
    LLAMA_TENSORS,
    .attn_out_norm = "post_attention_layernorm",
    .ffn_out_norm = "post_feedforward_layernorm",
};
static const struct family_keys olmo3_keys = {LLAMA_KEYS, .reads_ropes = true};
static const struct model_config olmo_base = {LLAMA_SWITCHES_AS(NORM_RMS, 1e-5f, NORM_OUT),
                                              .kinds[0].attention.qk_norm = QK_NORM_WIDTH};
static const struct model_config exaone4_base = {LLAMA_SWITCHES_AS(NORM_RMS, 1e-5f, NORM_OUT),
                                                 .kinds[0].attention.qk_norm = QK_NORM_HEADS};

static const struct family_keys smollm3_keys = {LLAMA_KEYS, .theta = 2000000};
static const struct model_config smollm3_base = {LLAMA_SWITCHES, .tied_head = true};

static const struct family_keys granite_hybrid_keys = {LLAMA_KEYS_OF("shared_intermediate_size")};
static const struct family_tensors granite_hybrid_tensors = {
    TRUNK_TENSORS_OF("shared_mlp.output_linear"),
    PRE_NORM_TENSORS,
    .gate_up = "shared_mlp.input_linear",
};

static const struct family_keys glm4_keys = {LLAMA_KEYS, .rotary_part = 0.5};
static const struct family_tensors glm4_tensors = {
    TRUNK_TENSORS,
    .attn_norm = "input_layernorm",
    .attn_out_norm = "post_self_attn_layernorm",
    .ffn_norm = "post_attention_layernorm",
    .ffn_out_norm = "post_mlp_layernorm",
    .q = "self_attn.q_proj",
    .k = "self_attn.k_proj",
    .v = "self_attn.v_proj",
    .gate_up = "mlp.gate_up_proj",
};
// GLM-4 as first published (glm-4-9b, glm-edge): without the norms of GLM-4-0414 behind the sub-layers.
static const struct family_tensors glm_tensors = {
    TRUNK_TENSORS,
    PRE_NORM_TENSORS,
    .gate_up = "mlp.gate_up_proj",
};
static const struct model_config glm_base = {
    LLAMA_SWITCHES_AS(NORM_RMS, 1.5625e-07f, NORM_PRE), .kinds[0].attention.head_dim = 128,
    .kinds[0].attention.qkv_bias = true, .ropes[0].style = ROPE_INTERLEAVED};
static const struct model_config glm4_base = {
    LLAMA_SWITCHES_AS(NORM_RMS, 1.5625e-07f, NORM_PRE | NORM_OUT),
    .kinds[0].attention.head_dim = 128, .ropes[0].style = ROPE_INTERLEAVED};

static const struct family_keys ministral3_keys = {
    LLAMA_KEYS, .query_scale = true, .theta = 1e6,
    .ropes = "{\"rope_type\":\"yarn\",\"factor\":16,\"original_max_position_embeddings\":16384,"
             "\"mscale\":1,"
             "\"mscale_all_dim\":1,\"llama_4_scaling_beta\":0.1}"};
static const struct model_config ministral3_base = {LLAMA_SWITCHES,
                                                    .kinds[0].attention.head_dim = 128};
static const struct model_config seed_oss_base = {
    LLAMA_SWITCHES, .kinds[0].attention.head_dim = 128, .kinds[0].attention.qkv_bias = true};

static const struct family_tensors hunyuan_tensors = {
    TRUNK_TENSORS,
    .attn_norm = "input_layernorm",
    .ffn_norm = "post_attention_layernorm",
    .q = "self_attn.q_proj",
    .k = "self_attn.k_proj",
    .v = "self_attn.v_proj",
    .q_norm = "self_attn.query_layernorm",
    .k_norm = "self_attn.key_layernorm",
    .gate = "mlp.gate_proj",
    .up = "mlp.up_proj",
};
static const struct model_config hunyuan_base = {LLAMA_SWITCHES_AS(NORM_RMS, 1e-5f, NORM_PRE),
                                                 .kinds[0].attention.qk_norm = QK_NORM_HEADS,
                                                 .kinds[0].attention.qk_norm_after_rope = true};

static const struct family_keys ernie_keys = {LLAMA_KEYS, .theta = 500000};
static const struct model_config ernie_base = {
    LLAMA_SWITCHES_AS(NORM_RMS, 1e-5f, NORM_PRE), .tied_head = true,
    .kinds[0].attention.head_dim = 128, .ropes[0].style = ROPE_INTERLEAVED};

static const struct family_keys cohere2_keys = {LLAMA_SHAPE_KEYS, .norm_eps = "layer_norm_eps",
                                                .activation = "hidden_act"};
static const struct model_config cohere2_base = {
    LLAMA_SWITCHES_AS(NORM_LAYER, 1e-5f, NORM_PRE), .tied_head = true, .kinds[0].parallel = true,
    .kinds[0].shared_norm = true, .ropes[0].style = ROPE_INTERLEAVED};

static const struct family_keys apertus_keys = {
    LLAMA_KEYS, .theta = 12000000,
    .ropes = "{\"rope_type\":\"llama3\",\"factor\":8,\"original_max_position_embeddings\":8192,"
             "\"low_freq_factor\":1,\"high_freq_factor\":4}"};
static const struct family_tensors apertus_tensors = {
    LLAMA_TENSORS,
    .attn_norm = "attention_layernorm",
    .ffn_norm = "feedforward_layernorm",
    .xielu = "mlp.act_fn",
};
static const struct model_config apertus_base = {
    .norm = NORM_RMS,
    .norm_eps = 1e-5f,
    .final_norm = true,
    .positions = POSITION_ROTARY,
    .embed_scale = 1,
    .n_ropes = 1,
    .ropes[0].scale = 1,
    .kinds[0] = {
        .attention = {.rope = 1, .qk_norm = QK_NORM_HEADS}, .feed.xielu = true, .norms = NORM_PRE}};

// clang-format off
static const struct family rows[] = {
    {"llama", "LlamaForCausalLM", &first_llama_keys, &llama_tensors, &llama_base, false, read_llama},
    {"mistral", "MistralForCausalLM", &mistral_keys, &llama_tensors, &llama_base, true, read_mistral},
    {"qwen2", "Qwen2ForCausalLM", &qwen_keys, &llama_tensors, &qwen2_base, true, read_qwen_window},
    {"qwen3", "Qwen3ForCausalLM", &qwen_keys, &llama_tensors, &qwen3_base, true, read_qwen3},
    // The text of Qwen's models that also see; its tokens have one position in all of mrope's dimensions.
    {"qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", &llama_keys, &llama_tensors, &qwen2_base, true, read_qwen_window},
    {"qwen2_5_vl_text", "Qwen2_5_VLForConditionalGeneration", &llama_keys, &llama_tensors, &qwen2_base, true,
     read_qwen_window},
    {"qwen3_vl_text", "Qwen3VLForConditionalGeneration", &llama_keys, &llama_tensors, &qwen3_base, true, read_qwen3},
    {"phi3", "Phi3ForCausalLM", &phi3_keys, &phi3_tensors, &llama_base, false, read_phi3},
    {"olmo2", "Olmo2ForCausalLM", &llama_keys, &out_norm_tensors, &olmo_base, false, family_read_attention_bias},
    {"olmo3", "Olmo3ForCausalLM", &olmo3_keys, &out_norm_tensors, &olmo_base, false, read_olmo3},
    {"exaone4", "Exaone4ForCausalLM", &llama_keys, &out_norm_tensors, &exaone4_base, true, read_exaone4},
    {"smollm3", "SmolLM3ForCausalLM", &smollm3_keys, &llama_tensors, &smollm3_base, true, read_smollm3},
    {"granite", "GraniteForCausalLM", &llama_keys, &llama_tensors, &llama_base, false, read_granite},
    {"granitemoehybrid", "GraniteMoeHybridForCausalLM", &granite_hybrid_keys, &granite_hybrid_tensors, &llama_base, false,
     read_granite_hybrid},
    {"glm", "GlmForCausalLM", &glm4_keys, &glm_tensors, &glm_base, true, read_glm4},
    {"glm4", "Glm4ForCausalLM", &glm4_keys, &glm4_tensors, &glm4_base, true, read_glm4},
    {"ministral3", "Ministral3ForCausalLM", &ministral3_keys, &llama_tensors, &ministral3_base, true, read_phi3},
    {"seed_oss", "SeedOssForCausalLM", &llama_keys, &llama_tensors, &seed_oss_base, true, read_seed_oss},
    {"hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", &llama_keys, &hunyuan_tensors, &hunyuan_base, false, family_read_attention_bias},
    {"ernie4_5", "Ernie4_5ForCausalLM", &ernie_keys, &llama_tensors, &ernie_base, true, read_ernie},
    {"cohere", "CohereForCausalLM", &cohere2_keys, &llama_tensors, &cohere2_base, false, read_cohere},
    {"cohere2", "Cohere2ForCausalLM", &cohere2_keys, &llama_tensors, &cohere2_base, false, read_cohere2},
    {"apertus", "ApertusForCausalLM", &apertus_keys, &apertus_tensors, &apertus_base, false, family_read_attention_bias},
};
// clang-format on
const struct family_list families_llama = {rows, sizeof rows / sizeof *rows};
