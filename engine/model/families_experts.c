// Families whose layers have experts. See families.h.
//
// The defaults of missing keys are those of the classes in transformers; the number of experts and of those that a
// token goes to have none here, since a wrong one would give another model.
#include "base/json.h"
#include "engine/model/family_rows.h"
#include <string.h>

// --- reading ---

// LLAMA_SWITCHES has 1e-6.
static void default_eps(struct model_config *c, const cJSON *json) {
    if (!cJSON_GetObjectItemCaseSensitive(json, "rms_norm_eps")) c->norm_eps = 1e-5f;
}

// count: one of two names that classes accept.
static int read_counts(struct experts_config *x, const cJSON *json, const char *count,
                       const char *width, struct err *err) {
    const char *other = strcmp(count, "num_experts") == 0 ? "num_local_experts" : "num_experts";
    if (!cJSON_GetObjectItemCaseSensitive(json, count) &&
        cJSON_GetObjectItemCaseSensitive(json, other))
        count = other;
    const struct family_expert_keys keys = {count, "num_experts_per_tok", width};
    return family_read_experts(x, json, &keys, err);
}

// Layers on the list, and those that the step leaves out, are dense.
static int read_sparse_layers(const struct model_config *c, const cJSON *json, bool *dense,
                              struct err *err) {
    const cJSON *list = NULL, *item;
    int64_t step = 1;
    TRY(json_get_int(json, "decoder_sparse_step", 1, INT32_MAX, &step, err));
    for (int32_t i = 0; i < c->n_layers; i++) dense[i] = (i + 1) % step != 0;
    int rc = json_get_array(json, "mlp_only_layers", &list, err);
    if (rc != JSON_PRESENT) return rc < 0 ? rc : 0;
    cJSON_ArrayForEach(item, list) {
        double v = cJSON_IsNumber(item) ? item->valuedouble : -1;
        if (!(v >= 0 && v < c->n_layers) || v != (int32_t)v)
            return err_set(err, E_FORMAT, "'mlp_only_layers' names a layer that there is not");
        dense[(int32_t)v] = true;
    }
    return 0;
}

// Gives the layers that are not dense these experts in place of their feed-forward.
static int set_experts(struct model_config *c, const bool *dense, const struct experts_config *x,
                       struct err *err) {
    for (int32_t i = 0; i < c->n_layers; i++) {
        struct layer_config row = *model_layer(c, i);
        if (dense && dense[i]) continue;
        row.feed.width = 0;
        row.feed.experts = *x;
        TRY(model_config_set_layer(c, i, &row, err));
    }
    return 0;
}

// --- by family ---

static int read_qwen_moe(struct model_config *c, const cJSON *json, struct experts_config *x,
                         struct err *err) {
    bool dense[MODEL_MAX_LAYERS];
    TRY(read_counts(x, json, "num_experts", "moe_intermediate_size", err));
    TRY(json_get_bool(json, "norm_topk_prob", &x->normalised, err));
    TRY(read_sparse_layers(c, json, dense, err));
    return set_experts(c, dense, x, err);
}

// The class takes a window for all layers, where there is one.
static int read_qwen3_moe(struct model_config *c, const cJSON *json, struct err *err) {
    struct experts_config x = {.router = ROUTER_SOFTMAX_TOPK};
    bool use = false;
    TRY(family_read_attention_bias(c, json, err));
    TRY(json_get_bool(json, "use_sliding_window", &use, err));
    if (use) TRY(family_read_window(json, 4096, &c->kinds[0].attention.window, err));
    return read_qwen_moe(c, json, &x, err);
}

static int read_qwen2_moe(struct model_config *c, const cJSON *json, struct err *err) {
    struct experts_config x = {.router = ROUTER_SOFTMAX_TOPK, .shared_gate = true};
    bool use = false;
    TRY(json_get_bool(json, "qkv_bias", &c->kinds[0].attention.qkv_bias, err));
    TRY(json_get_bool(json, "use_sliding_window", &use, err));
    if (use)
        return err_set(err, E_UNSUPPORTED, "'use_sliding_window' is not supported in this family");
    TRY(family_require_count(json, "shared_expert_intermediate_size", MODEL_MAX_FFN / 2,
                             &x.shared_width, err));
    return read_qwen_moe(c, json, &x, err);
}

static int read_mixtral(struct model_config *c, const cJSON *json, struct err *err) {
    struct experts_config x = {.router = ROUTER_SOFTMAX_TOPK, .normalised = true};
    default_eps(c, json);
    TRY(family_read_window(json, 0, &c->kinds[0].attention.window, err));
    TRY(read_counts(&x, json, "num_local_experts", "intermediate_size", err));
    return set_experts(c, NULL, &x, err);
}

static int read_olmoe(struct model_config *c, const cJSON *json, struct err *err) {
    static const char *const refused[] = {"clip_qkv", NULL};
    struct experts_config x = {.router = ROUTER_SOFTMAX_TOPK};
    default_eps(c, json);
    TRY(family_refuse(json, refused, err));
    TRY(family_read_attention_bias(c, json, err));
    TRY(read_counts(&x, json, "num_experts", "intermediate_size", err));
    TRY(json_get_bool(json, "norm_topk_prob", &x.normalised, err));
    return set_experts(c, NULL, &x, err);
}

static int read_granitemoe(struct model_config *c, const cJSON *json, struct err *err) {
    struct experts_config x = {.router = ROUTER_TOPK_SOFTMAX};
    double embedding = 1, attention = 1, residual = 1, logits = 1;
    TRY(family_read_attention_bias(c, json, err));
    TRY(json_get_double(json, "embedding_multiplier", 1e-6, 1e6, &embedding, err));
    TRY(json_get_double(json, "attention_multiplier", 1e-6, 1e6, &attention, err));
    TRY(json_get_double(json, "residual_multiplier", 1e-6, 1e6, &residual, err));
    TRY(json_get_double(json, "logits_scaling", 1e-6, 1e6, &logits, err));
    c->embed_scale = (float)embedding;
    c->kinds[0].attention.scale = (float)attention;
    c->kinds[0].residual_scale = residual == 1 ? 0 : (float)residual;
    c->logit_scale = logits == 1 ? 0 : (float)(1 / logits);
    TRY(read_counts(&x, json, "num_local_experts", "intermediate_size", err));
    return set_experts(c, NULL, &x, err);
}

// DeepSeek's router and the keys of its layers. shared: experts that all tokens go to.
static int read_deepseek_experts(struct model_config *c, const cJSON *json, struct err *err) {
    struct experts_config x = {.router = ROUTER_SIGMOID, .choice_bias = true, .group_best = 2};
    bool dense[MODEL_MAX_LAYERS];
    int64_t leading = 1, shared = 1, groups = 1, chosen = 1;
    double factor = 1;
    x.normalised = true;
    TRY(read_counts(&x, json, "n_routed_experts", "moe_intermediate_size", err));
    TRY(json_get_int(json, "first_k_dense_replace", 0, INT32_MAX, &leading, err));
    TRY(json_get_int(json, "n_shared_experts", 0, 1024, &shared, err));
    TRY(json_get_int(json, "n_group", 1, x.n_experts, &groups, err));
    TRY(json_get_int(json, "topk_group", 1, groups, &chosen, err));
    TRY(json_get_bool(json, "norm_topk_prob", &x.normalised, err));
    TRY(json_get_double(json, "routed_scaling_factor", 1e-6, 1e6, &factor, err));
    if (x.n_experts % groups != 0 || (groups > 1 && x.n_experts / groups < 2))
        return err_set(err, E_FORMAT, "'n_group' is %d of %d experts", (int)groups, x.n_experts);
    if (shared * x.width > MODEL_MAX_FFN / 2)
        return err_set(err, E_LIMIT, "'n_shared_experts' is %d, of width %d", (int)shared, x.width);
    x.shared_width = (int32_t)shared * x.width;
    x.factor = (float)factor;
    x.n_groups = (int32_t)groups;
    x.n_chosen_groups = (int32_t)chosen;
    for (int32_t i = 0; i < c->n_layers; i++) dense[i] = i < leading;
    return set_experts(c, dense, &x, err);
}

static int read_glm4_moe(struct model_config *c, const cJSON *json, struct err *err) {
    bool norm = false;
    default_eps(c, json);
    TRY(json_get_bool(json, "attention_bias", &c->kinds[0].attention.qkv_bias, err));
    TRY(json_get_bool(json, "use_qk_norm", &norm, err));
    c->kinds[0].attention.qk_norm = norm ? QK_NORM_HEADS : QK_NORM_NONE;
    return read_deepseek_experts(c, json, err);
}

// Windows in every second layer, the first one's among them, unless the layers are listed.
static int read_gpt_oss(struct model_config *c, const cJSON *json, struct err *err) {
    struct experts_config x = {
        .router = ROUTER_TOPK_SOFTMAX, .router_bias = true, .bias = true, .limit = 7};
    struct layer_config full = c->kinds[0], sliding;
    bool windowed[MODEL_MAX_LAYERS];
    int32_t window;
    double limit = 7;
    default_eps(c, json);
    full.attention.qkv_bias = true;
    TRY(json_get_bool(json, "attention_bias", &full.attention.qkv_bias, err));
    full.attention.o_bias = full.attention.qkv_bias;
    TRY(family_read_window(json, 128, &window, err));
    TRY(json_get_double(json, "swiglu_limit", 1e-3, 1e6, &limit, err));
    x.limit = (float)limit;
    int rc = family_read_layer_types(json, c->n_layers, windowed, err);
    if (rc < 0) return rc;
    for (int32_t i = 0; rc == JSON_ABSENT && i < c->n_layers; i++) windowed[i] = i % 2 == 0;
    // The key says silu; the experts' formula is fixed.
    full.feed.activation = ACT_QUICK_GELU;
    sliding = full;
    sliding.attention.window = window;
    TRY(family_set_layers(c, windowed, &full, &sliding, err));
    TRY(read_counts(&x, json, "num_local_experts", "intermediate_size", err));
    return set_experts(c, NULL, &x, err);
}

// --- the tables ---

// A layer without a dense feed-forward has no width of one.
static const struct family_keys glm_keys = {
    .n_layers = "num_hidden_layers",
    .width = "hidden_size",
    .n_heads = "num_attention_heads",
    .n_kv_heads = "num_key_value_heads",
    .head_dim = "head_dim",
    .ffn_width = "intermediate_size",
    .max_positions = "max_position_embeddings",
    .norm_eps = "rms_norm_eps",
    .activation = "hidden_act",
    .rotary_part = 0.5,
};

#define NORMS .attn_norm = "input_layernorm", .ffn_norm = "post_attention_layernorm"
#define MLP_EXPERTS                                                                                \
    .experts = "mlp.experts", .expert_gate = "gate_proj", .expert_up = "up_proj",                  \
    .expert_down = "down_proj", .experts_up = "mlp.experts.gate_up_proj",                          \
    .experts_down = "mlp.experts.down_proj", .experts_bare = true

static const struct family_tensors qwen_tensors = {
    LLAMA_TENSORS,
    NORMS,
    MLP_EXPERTS,
    .router = "mlp.gate",
    .shared_gate = "mlp.shared_expert.gate_proj",
    .shared_up = "mlp.shared_expert.up_proj",
    .shared_down = "mlp.shared_expert.down_proj",
    .shared_switch = "mlp.shared_expert_gate",
};

static const struct family_tensors mixtral_tensors = {
    LLAMA_TENSORS,
    NORMS,
    .router = "block_sparse_moe.gate",
    .experts = "block_sparse_moe.experts",
    .expert_gate = "w1",
    .expert_up = "w3",
    .expert_down = "w2",
    .experts_up = "block_sparse_moe.experts.gate_up_proj",
    .experts_down = "block_sparse_moe.experts.down_proj",
    .experts_bare = true,
};

static const struct family_tensors granite_tensors = {
    LLAMA_TENSORS,
    NORMS,
    .router = "block_sparse_moe.router.layer",
    .experts_up = "block_sparse_moe.input_linear",
    .experts_down = "block_sparse_moe.output_linear",
};

static const struct family_tensors glm_tensors = {
    LLAMA_TENSORS,
    NORMS,
    MLP_EXPERTS,
    .router = "mlp.gate",
    .choice_bias = "mlp.gate.e_score_correction_bias",
    .shared_gate = "mlp.shared_experts.gate_proj",
    .shared_up = "mlp.shared_experts.up_proj",
    .shared_down = "mlp.shared_experts.down_proj",
};

static const struct family_tensors gpt_oss_tensors = {
    LLAMA_TENSORS,
    NORMS,
    .sinks = "self_attn.sinks",
    .router = "mlp.router",
    .experts_up = "mlp.experts.gate_up_proj",
    .experts_down = "mlp.experts.down_proj",
    .experts_bare = true,
    .experts_turned = true,
};

static const struct family_keys llama_keys = {LLAMA_KEYS};
static const struct model_config plain_base = {LLAMA_SWITCHES};
static const struct model_config qwen2_base = {LLAMA_SWITCHES, .kinds[0].attention.qkv_bias = true};
static const struct model_config qwen3_base = {LLAMA_SWITCHES,
                                               .kinds[0].attention.qk_norm = QK_NORM_HEADS};
static const struct model_config olmoe_base = {LLAMA_SWITCHES,
                                               .kinds[0].attention.qk_norm = QK_NORM_WIDTH};
static const struct model_config gpt_oss_base = {LLAMA_SWITCHES, .kinds[0].attention.head_dim = 64,
                                                 .kinds[0].attention.sinks = true};

// clang-format off
static const struct family rows[] = {
    {"qwen3_moe", "Qwen3MoeForCausalLM", &llama_keys, &qwen_tensors, &qwen3_base, true, read_qwen3_moe},
    {"qwen2_moe", "Qwen2MoeForCausalLM", &llama_keys, &qwen_tensors, &qwen2_base, true, read_qwen2_moe},
    {"mixtral", "MixtralForCausalLM", &llama_keys, &mixtral_tensors, &plain_base, true, read_mixtral},
    {"olmoe", "OlmoeForCausalLM", &llama_keys, &qwen_tensors, &olmoe_base, false, read_olmoe},
    {"granitemoe", "GraniteMoeForCausalLM", &llama_keys, &granite_tensors, &plain_base, false, read_granitemoe},
    {"glm4_moe", "Glm4MoeForCausalLM", &glm_keys, &glm_tensors, &plain_base, true, read_glm4_moe},
    {"gpt_oss", "GptOssForCausalLM", &llama_keys, &gpt_oss_tensors, &gpt_oss_base, true, read_gpt_oss},
};
// clang-format on
const struct family_list families_experts = {rows, sizeof rows / sizeof *rows};
