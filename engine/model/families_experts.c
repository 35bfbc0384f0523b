// Families whose layers have experts. See families.h.
//
// The defaults of missing keys are those of the classes in transformers; the number of experts and of those that a
// token goes to have none here, since a wrong one would give another model.
#include "base/json.h"
#include "engine/model/family_rows.h"
#include "engine/model/rope.h"
#include <math.h>
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

// The class always makes the chosen experts' weights sum up to 1.
static int read_qwen3_vl_moe(struct model_config *c, const cJSON *json, struct err *err) {
    struct experts_config x = {.router = ROUTER_SOFTMAX_TOPK};
    bool unused;
    bool dense[MODEL_MAX_LAYERS];
    TRY(family_read_attention_bias(c, json, err));
    TRY(json_get_bool(json, "norm_topk_prob", &unused, err));
    TRY(read_counts(&x, json, "num_experts", "moe_intermediate_size", err));
    TRY(read_sparse_layers(c, json, dense, err));
    x.normalised = true;
    return set_experts(c, dense, &x, err);
}

// By the list of layers; without one every second layer below max_window_layers has the window.
static int read_qwen2_windows(struct model_config *c, const cJSON *json, struct err *err) {
    bool use = false, windowed[MODEL_MAX_LAYERS];
    struct layer_config full = c->kinds[0], sliding = full;
    int64_t below = 28;
    TRY(json_get_bool(json, "use_sliding_window", &use, err));
    if (use) TRY(family_read_window(json, 4096, &sliding.attention.window, err));
    TRY(json_get_int(json, "max_window_layers", 0, INT32_MAX, &below, err));
    int rc = family_read_layer_types(json, c->n_layers, windowed, err);
    if (rc < 0) return rc;
    for (int32_t i = 0; i < c->n_layers; i++) {
        if (rc == JSON_ABSENT) windowed[i] = use && i % 2 == 0 && i < below;
        if (windowed[i] && (!use || !sliding.attention.window))
            return err_set(err, E_FORMAT,
                           "layer %d has a window that 'sliding_window' and 'use_sliding_window' "
                           "do not give",
                           i);
    }
    return family_set_layers(c, windowed, &full, &sliding, err);
}

static int read_qwen2_moe(struct model_config *c, const cJSON *json, struct err *err) {
    struct experts_config x = {.router = ROUTER_SOFTMAX_TOPK, .shared_gate = true};
    TRY(json_get_bool(json, "qkv_bias", &c->kinds[0].attention.qkv_bias, err));
    TRY(read_qwen2_windows(c, json, err));
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
    struct experts_config x = {.router = ROUTER_SOFTMAX_TOPK};
    double clip = 0;
    default_eps(c, json);
    TRY(json_get_double(json, "clip_qkv", 1e-6, 1e6, &clip, err));
    c->kinds[0].attention.clip = (float)clip;
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

// Which layers are dense: the leading ones, or by a list.
static int read_dense_layers(const struct model_config *c, const cJSON *json, int64_t leading,
                             bool *dense, struct err *err) {
    const cJSON *list = NULL, *item;
    int64_t every = 1;
    int32_t n = 0;
    TRY(json_get_int(json, "first_k_dense_replace", 0, INT32_MAX, &leading, err));
    TRY(json_get_int(json, "moe_layer_freq", 1, INT32_MAX, &every, err));
    if (every != 1) return err_set(err, E_UNSUPPORTED, "'moe_layer_freq' is %d", (int)every);
    for (int32_t i = 0; i < c->n_layers; i++) dense[i] = i < leading;
    int rc = json_get_array(json, "mlp_layer_types", &list, err);
    if (rc != JSON_PRESENT) return rc < 0 ? rc : 0;
    cJSON_ArrayForEach(item, list) {
        const char *type = cJSON_IsString(item) ? item->valuestring : "?";
        const bool is_dense = strcmp(type, "dense") == 0;
        if (!is_dense && strcmp(type, "sparse") != 0)
            return err_set(err, E_UNSUPPORTED, "'mlp_layer_types' asks for '%.40s' in layer %d",
                           type, n);
        if (n < c->n_layers) dense[n] = is_dense;
        n++;
    }
    return n == c->n_layers
               ? 0
               : err_set(err, E_FORMAT, "'mlp_layer_types' lists %d layers of %d", n, c->n_layers);
}

// DeepSeek's router and the keys of its layers. x has what the family fixes; leading: the class's dense layers.
static int read_deepseek_experts(struct model_config *c, const cJSON *json, struct experts_config x,
                                 int64_t leading, struct err *err) {
    bool dense[MODEL_MAX_LAYERS];
    int64_t shared = 1, groups = 1, chosen = 1;
    double factor = 1;
    TRY(read_counts(&x, json, "n_routed_experts", "moe_intermediate_size", err));
    TRY(json_get_int(json, "n_shared_experts", 0, 1024, &shared, err));
    TRY(json_get_int(json, "n_group", 1, x.n_experts, &groups, err));
    TRY(json_get_int(json, "topk_group", 1, groups, &chosen, err));
    TRY(json_get_double(json, "routed_scaling_factor", 1e-6, 1e6, &factor, err));
    if (x.n_experts % groups != 0 || (groups > 1 && x.n_experts / groups < x.group_best))
        return err_set(err, E_FORMAT, "'n_group' is %d of %d experts", (int)groups, x.n_experts);
    if (x.n_chosen > x.n_experts / groups * chosen)
        return err_set(err, E_FORMAT, "'num_experts_per_tok' is %d of %d in the chosen groups",
                       x.n_chosen, (int)(x.n_experts / groups * chosen));
    if (shared * x.width > MODEL_MAX_FFN / 2)
        return err_set(err, E_LIMIT, "'n_shared_experts' is %d, of width %d", (int)shared, x.width);
    x.shared_width = (int32_t)shared * x.width;
    x.factor = (float)factor;
    x.n_groups = (int32_t)groups;
    x.n_chosen_groups = (int32_t)chosen;
    TRY(read_dense_layers(c, json, leading, dense, err));
    return set_experts(c, dense, &x, err);
}

// The router of DeepSeek-V3: chosen with a bias that does not weigh.
static int read_biased_experts(struct model_config *c, const cJSON *json, int64_t leading,
                               struct err *err) {
    struct experts_config x = {
        .router = ROUTER_SIGMOID, .choice_bias = true, .group_best = 2, .normalised = true};
    TRY(json_get_bool(json, "norm_topk_prob", &x.normalised, err));
    return read_deepseek_experts(c, json, x, leading, err);
}

static int read_glm4_moe(struct model_config *c, const cJSON *json, struct err *err) {
    bool norm = false;
    default_eps(c, json);
    TRY(json_get_bool(json, "attention_bias", &c->kinds[0].attention.qkv_bias, err));
    TRY(json_get_bool(json, "use_qk_norm", &norm, err));
    c->kinds[0].attention.qk_norm = norm ? QK_NORM_HEADS : QK_NORM_NONE;
    return read_biased_experts(c, json, 1, err);
}

// --- latent attention ---

struct latent_defaults {
    int32_t q_rank, kv_rank, nope, rope, v;
};

static int read_dim(const cJSON *json, const char *key, int32_t max, int32_t fallback, int32_t *out,
                    struct err *err) {
    int64_t v = fallback;
    TRY(json_get_int(json, key, 1, max, &v, err));
    *out = (int32_t)v;
    return 0;
}

// DeepSeek multiplies the scale by the square of yarn's factor on cos and sin, by its own count of dimensions.
static int read_latent_scale(struct attention_config *a, const cJSON *json, struct err *err) {
    const cJSON *dict = cJSON_GetObjectItemCaseSensitive(json, "rope_parameters");
    double factor = 1, all = 0;
    a->scale = (float)(1 / sqrt(a->nope_dim + a->rope_dim));
    if (!cJSON_IsObject(dict)) dict = cJSON_GetObjectItemCaseSensitive(json, "rope_scaling");
    if (!cJSON_IsObject(dict)) return 0;
    TRY(json_get_double(dict, "factor", 1e-6, 1e6, &factor, err));
    TRY(json_get_double(dict, "mscale_all_dim", 0, 1e6, &all, err));
    if (all == 0 || factor <= 1) return 0;
    const double by = 0.1 * all * log(factor) + 1;
    a->scale = (float)((double)a->scale * by * by);
    return 0;
}

static int read_latent(struct model_config *c, const cJSON *json, const struct latent_defaults *d,
                       struct err *err) {
    struct attention_config *a = &c->kinds[0].attention;
    const cJSON *rank = cJSON_GetObjectItemCaseSensitive(json, "q_lora_rank");
    bool pairs = true;
    TRY(family_read_attention_bias(c, json, err));
    TRY(json_get_bool(json, "rope_interleave", &pairs, err));
    TRY(read_dim(json, "q_lora_rank", MODEL_MAX_WIDTH, d->q_rank, &a->q_rank, err));
    if (rank && cJSON_IsNull(rank)) a->q_rank = 0;
    TRY(read_dim(json, "kv_lora_rank", MODEL_MAX_HEAD_DIM, d->kv_rank, &a->kv_rank, err));
    TRY(read_dim(json, "qk_nope_head_dim", MODEL_MAX_HEAD_DIM, d->nope, &a->nope_dim, err));
    TRY(read_dim(json, "qk_rope_head_dim", MODEL_MAX_HEAD_DIM, d->rope, &a->rope_dim, err));
    TRY(read_dim(json, "v_head_dim", MODEL_MAX_HEAD_DIM, d->v, &a->v_head_dim, err));
    a->n_kv_heads = 1;
    a->head_dim = a->kv_rank + a->rope_dim;
    if (a->head_dim > MODEL_MAX_HEAD_DIM)
        return err_set(err, E_UNSUPPORTED, "latents of %d and %d; the limit is %d", a->kv_rank,
                       a->rope_dim, MODEL_MAX_HEAD_DIM);
    if ((int64_t)a->n_heads * (a->nope_dim + a->rope_dim + a->v_head_dim + a->head_dim) >
        MODEL_MAX_QKV_ROWS)
        return err_set(err, E_LIMIT, "%d heads of %d are more than a matrix may have rows",
                       a->n_heads, a->head_dim);
    TRY(read_latent_scale(a, json, err));
    const struct rope_request r = {
        .head_dim = a->rope_dim, .theta = 10000, .theta_key = "rope_theta"};
    c->ropes[0].style = pairs ? ROPE_INTERLEAVED : ROPE_HALF;
    return rope_read(c, &c->ropes[0], &r, json, NULL, err);
}

// The softmax is over all experts; a group counts as its largest.
static int read_deepseek_v2(struct model_config *c, const cJSON *json, struct err *err) {
    const struct latent_defaults d = {1536, 512, 128, 64, 128};
    struct experts_config x = {.router = ROUTER_SOFTMAX_TOPK, .group_best = 1};
    const char *method = "greedy", *scoring = "softmax";
    bool norm = false;
    TRY(json_get_string(json, "topk_method", &method, err));
    TRY(json_get_string(json, "scoring_func", &scoring, err));
    TRY(json_get_bool(json, "norm_topk_prob", &norm, err));
    const bool limited = strcmp(method, "group_limited_greedy") == 0;
    if (!limited && strcmp(method, "greedy") != 0)
        return err_set(err, E_UNSUPPORTED, "'topk_method' is '%.40s'", method);
    if (strcmp(scoring, "softmax") != 0)
        return err_set(err, E_UNSUPPORTED, "'scoring_func' is '%.40s'", scoring);
    if (norm) return err_set(err, E_UNSUPPORTED, "'norm_topk_prob' true in this family");
    TRY(read_latent(c, json, &d, err));
    TRY(read_deepseek_experts(c, json, x, 0, err));
    for (int32_t i = 0; i < c->n_kinds && !limited; i++) // greedy: whatever groups there are
        c->kinds[i].feed.experts.n_groups = 1;
    return 0;
}

static int read_deepseek_v3(struct model_config *c, const cJSON *json, struct err *err) {
    const struct latent_defaults d = {1536, 512, 128, 64, 128};
    TRY(read_latent(c, json, &d, err));
    return read_biased_experts(c, json, 3, err);
}

static int read_glm4_moe_lite(struct model_config *c, const cJSON *json, struct err *err) {
    const struct latent_defaults d = {768, 512, 192, 64, 256};
    default_eps(c, json);
    TRY(read_latent(c, json, &d, err));
    return read_biased_experts(c, json, 1, err);
}

// Windows in every second layer, the first one's among them, unless the layers are listed.
static int read_gpt_oss(struct model_config *c, const cJSON *json, struct err *err) {
    struct experts_config x = {
        .router = ROUTER_TOPK_SOFTMAX, .router_bias = true, .bias = true, .limit = 7};
    struct layer_config full = c->kinds[0], sliding;
    bool windowed[MODEL_MAX_LAYERS];
    int32_t window;
    double limit = 7, alpha = 1.702;
    default_eps(c, json);
    full.attention.qkv_bias = true;
    TRY(json_get_double(json, "swiglu_alpha", 0, 1e6, &alpha, err));
    if (fabs(alpha - 1.702) > 1e-6) // that of ACT_QUICK_GELU
        return err_set(err, E_UNSUPPORTED, "'swiglu_alpha' is %g; 1.702 alone is supported", alpha);
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

static const struct family_tensors qwen3_vl_tensors = {
    LLAMA_TENSORS, NORMS, MLP_EXPERTS, .router = "mlp.gate", .experts_halves = true,
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
    .experts = "block_sparse_moe.experts",
    .expert_gate = "w1",
    .expert_up = "w3",
    .expert_down = "w2",
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
    .experts = "mlp.experts",
    .expert_gate = "gate_proj",
    .expert_up = "up_proj",
    .expert_down = "down_proj",
    .experts_up = "mlp.experts.gate_up_proj",
    .experts_down = "mlp.experts.down_proj",
    .experts_bare = true,
    .experts_turned = true,
};

static const struct family_tensors latent_tensors = {
    .embed = "model.embed_tokens",
    .final_norm = "model.norm",
    .head = "lm_head",
    .layers = "model.layers",
    NORMS,
    MLP_EXPERTS,
    .q = "self_attn.q_proj",
    .q_a = "self_attn.q_a_proj",
    .q_a_norm = "self_attn.q_a_layernorm",
    .q_b = "self_attn.q_b_proj",
    .kv_a = "self_attn.kv_a_proj_with_mqa",
    .kv_a_norm = "self_attn.kv_a_layernorm",
    .kv_b = "self_attn.kv_b_proj",
    .o = "self_attn.o_proj",
    .gate = "mlp.gate_proj",
    .up = "mlp.up_proj",
    .down = "mlp.down_proj",
    .router = "mlp.gate",
    .choice_bias = "mlp.gate.e_score_correction_bias",
    .shared_gate = "mlp.shared_experts.gate_proj",
    .shared_up = "mlp.shared_experts.up_proj",
    .shared_down = "mlp.shared_experts.down_proj",
};

// The heads' sizes have keys of their own.
static const struct family_keys latent_keys = {
    .n_layers = "num_hidden_layers",
    .width = "hidden_size",
    .n_heads = "num_attention_heads",
    .ffn_width = "intermediate_size",
    .max_positions = "max_position_embeddings",
    .norm_eps = "rms_norm_eps",
    .activation = "hidden_act",
    .reads_ropes = true,
};
static const struct model_config latent_base = {LLAMA_SWITCHES, .kinds[0].attention.head_dim = 1,
                                                .kinds[0].attention.latent_eps = 1e-6f};

static const struct family_keys llama_keys = {LLAMA_KEYS};
static const struct family_keys mixtral_keys = {LLAMA_KEYS, .theta = 1000000};
static const struct family_keys gpt_oss_keys = {
    LLAMA_KEYS, .theta = 150000,
    .ropes = "{\"rope_type\":\"yarn\",\"factor\":32,\"original_max_position_embeddings\":4096,"
             "\"truncate\":false}"};
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
    {"qwen3_vl_moe_text", "Qwen3VLMoeForConditionalGeneration", &llama_keys, &qwen3_vl_tensors, &qwen3_base, true, read_qwen3_vl_moe},
    {"qwen2_moe", "Qwen2MoeForCausalLM", &llama_keys, &qwen_tensors, &qwen2_base, true, read_qwen2_moe},
    {"mixtral", "MixtralForCausalLM", &mixtral_keys, &mixtral_tensors, &plain_base, true, read_mixtral},
    {"olmoe", "OlmoeForCausalLM", &llama_keys, &qwen_tensors, &olmoe_base, false, read_olmoe},
    {"granitemoe", "GraniteMoeForCausalLM", &llama_keys, &granite_tensors, &plain_base, false, read_granitemoe},
    {"glm4_moe", "Glm4MoeForCausalLM", &glm_keys, &glm_tensors, &plain_base, true, read_glm4_moe},
    {"deepseek_v2", "DeepseekV2ForCausalLM", &latent_keys, &latent_tensors, &latent_base, false, read_deepseek_v2},
    {"deepseek_v3", "DeepseekV3ForCausalLM", &latent_keys, &latent_tensors, &latent_base, false, read_deepseek_v3},
    {"glm4_moe_lite", "Glm4MoeLiteForCausalLM", &latent_keys, &latent_tensors, &latent_base, false, read_glm4_moe_lite},
    {"gpt_oss", "GptOssForCausalLM", &gpt_oss_keys, &gpt_oss_tensors, &gpt_oss_base, true, read_gpt_oss},
};
// clang-format on
const struct family_list families_experts = {rows, sizeof rows / sizeof *rows};
