// The table of architectures. Sources: ggml's docs/gguf.md and the names in llama.cpp's converters.
#include "engine/gguf/gguf_arch.h"
#include "base/json.h"
#include "base/near_name.h"
#include <stdio.h>
#include <string.h>

const struct gguf_tensor_name gguf_outer_names[] = {
    {"token_embd", "model.embed_tokens", GGUF_AS_IS, false},
    {"output_norm", "model.norm", GGUF_AS_IS, false},
    {"output", "lm_head", GGUF_AS_IS, false},
    {NULL, NULL, GGUF_AS_IS, false},
};
static const struct gguf_tensor_name gemma_outer[] = {
    {"token_embd", "model.embed_tokens", GGUF_AS_IS, false},
    {"output_norm", "model.norm", GGUF_PLUS_ONE, false},
    {"output", "lm_head", GGUF_AS_IS, false},
    {NULL, NULL, GGUF_AS_IS, false},
};
static const struct gguf_tensor_name gemma4_outer[] = {
    {"token_embd", "model.embed_tokens", GGUF_AS_IS, false},
    {"output_norm", "model.norm", GGUF_AS_IS, false},
    {"output", "lm_head", GGUF_AS_IS, false},
    {"per_layer_token_embd", "model.embed_tokens_per_layer", GGUF_AS_IS, false},
    {"per_layer_model_proj", "model.per_layer_model_projection", GGUF_AS_IS, false},
    {"per_layer_proj_norm", "model.per_layer_projection_norm", GGUF_AS_IS, false},
    {NULL, NULL, GGUF_AS_IS, false},
};

const struct gguf_key gguf_common_keys[] = {
    {"context_length", "max_position_embeddings"},
    {"embedding_length", "hidden_size"},
    {"feed_forward_length", "intermediate_size"},
    {"attention.head_count", "num_attention_heads"},
    {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.key_length", "head_dim"},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"attention.layer_norm_epsilon", "layer_norm_eps"},
    {"rope.freq_base", "rope_theta"},
    {NULL, NULL},
};

// The rows of most layers.
#define PLUS_ONE GGUF_PLUS_ONE, false
#define AS_IS GGUF_AS_IS, false
#define OUTPUT                                                                                     \
    {"attn_output", "self_attn.o_proj", AS_IS}, {                                                  \
        "attn_v", "self_attn.v_proj", AS_IS                                                        \
    }
#define QK                                                                                         \
    {"attn_q", "self_attn.q_proj", AS_IS}, {                                                       \
        "attn_k", "self_attn.k_proj", AS_IS                                                        \
    }
#define PAIRED_QK                                                                                  \
    {"attn_q", "self_attn.q_proj", GGUF_PAIRED_ROWS, false}, {                                     \
        "attn_k", "self_attn.k_proj", GGUF_PAIRED_ROWS, true                                       \
    }
#define QK_NORM(CHANGE)                                                                            \
    {"attn_q_norm", "self_attn.q_norm", CHANGE}, {                                                 \
        "attn_k_norm", "self_attn.k_norm", CHANGE                                                  \
    }
#define MLP                                                                                        \
    {"ffn_gate", "mlp.gate_proj", AS_IS}, {"ffn_up", "mlp.up_proj", AS_IS}, {                      \
        "ffn_down", "mlp.down_proj", AS_IS                                                         \
    }
#define FUSED_MLP                                                                                  \
    {"ffn_up", "mlp.gate_up_proj", AS_IS}, {                                                       \
        "ffn_down", "mlp.down_proj", AS_IS                                                         \
    }
#define TWO_NORMS                                                                                  \
    {"attn_norm", "input_layernorm", AS_IS}, {                                                     \
        "ffn_norm", "post_attention_layernorm", AS_IS                                              \
    }
// The norm before the feed-forward has the name of the one behind attention.
#define TWO_NORMS_AS_POST                                                                          \
    {"attn_norm", "input_layernorm", AS_IS}, {                                                     \
        "post_attention_norm", "post_attention_layernorm", AS_IS                                   \
    }
#define EXPERTS(AT, GATE, UP, DOWN)                                                                \
    {"ffn_gate_exps", AT ".#." GATE, AS_IS}, {"ffn_up_exps", AT ".#." UP, AS_IS},                  \
        {"ffn_down_exps", AT ".#." DOWN, AS_IS},                                                   \
        {"ffn_gate_up_exps", AT ".#." GATE, GGUF_GATE_UP, false}, {                                \
        "", AT ".#." UP, GGUF_GATE_UP, false                                                       \
    }
#define MLP_EXPERTS EXPERTS("mlp.experts", "gate_proj", "up_proj", "down_proj")
#define SHARED_EXPERTS(AT)                                                                         \
    {"ffn_gate_shexp", AT ".gate_proj", AS_IS}, {"ffn_up_shexp", AT ".up_proj", AS_IS}, {          \
        "ffn_down_shexp", AT ".down_proj", AS_IS                                                   \
    }
#define END                                                                                        \
    { NULL, NULL, AS_IS }

// clang-format off
static const struct gguf_tensor_name llama_layer[] = {
    TWO_NORMS, PAIRED_QK, OUTPUT, QK_NORM(AS_IS), MLP, END};
static const struct gguf_tensor_name mixtral_layer[] = {
    TWO_NORMS, PAIRED_QK, OUTPUT, {"ffn_gate_inp", "block_sparse_moe.gate", AS_IS},
    EXPERTS("block_sparse_moe.experts", "w1", "w3", "w2"), END};
static const struct gguf_tensor_name granite_experts_layer[] = {
    TWO_NORMS, PAIRED_QK, OUTPUT, {"ffn_gate_inp", "block_sparse_moe.router.layer", AS_IS},
    EXPERTS("block_sparse_moe.experts", "w1", "w3", "w2"), END};
static const struct gguf_tensor_name qwen_layer[] = {
    TWO_NORMS, QK, OUTPUT, QK_NORM(AS_IS), MLP, END};
static const struct gguf_tensor_name qwen_experts_layer[] = {
    TWO_NORMS, QK, OUTPUT, QK_NORM(AS_IS), MLP, MLP_EXPERTS, SHARED_EXPERTS("mlp.shared_expert"),
    {"ffn_gate_inp", "mlp.gate", AS_IS},
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate", GGUF_ONE_ROW, false}, END};
static const struct gguf_tensor_name first_gemma_layer[] = {
    {"attn_norm", "input_layernorm", PLUS_ONE}, {"ffn_norm", "post_attention_layernorm", PLUS_ONE},
    QK, OUTPUT, MLP, END};
static const struct gguf_tensor_name gemma_layer[] = {
    {"attn_norm", "input_layernorm", PLUS_ONE},
    {"post_attention_norm", "post_attention_layernorm", PLUS_ONE},
    {"ffn_norm", "pre_feedforward_layernorm", PLUS_ONE},
    {"post_ffw_norm", "post_feedforward_layernorm", PLUS_ONE},
    QK, OUTPUT, QK_NORM(PLUS_ONE), MLP, END};
static const struct gguf_tensor_name gemma4_layer[] = {
    {"attn_norm", "input_layernorm", AS_IS}, {"post_attention_norm", "post_attention_layernorm", AS_IS},
    {"ffn_norm", "pre_feedforward_layernorm", AS_IS}, {"post_ffw_norm", "post_feedforward_layernorm", AS_IS},
    {"post_ffw_norm_1", "post_feedforward_layernorm_1", AS_IS},
    {"pre_ffw_norm_2", "pre_feedforward_layernorm_2", AS_IS},
    {"post_ffw_norm_2", "post_feedforward_layernorm_2", AS_IS},
    {"layer_output_scale.weight", "layer_scalar", AS_IS}, {"inp_gate", "per_layer_input_gate", AS_IS},
    {"proj", "per_layer_projection", AS_IS}, {"post_norm", "post_per_layer_input_norm", AS_IS},
    {"ffn_gate_inp.scale", "router.scale", AS_IS}, {"ffn_gate_inp", "router.proj", AS_IS},
    {"ffn_down_exps.scale", "router.per_expert_scale", AS_IS},
    {"ffn_gate_up_exps.weight", "experts.gate_up_proj", AS_IS},
    {"ffn_down_exps.weight", "experts.down_proj", AS_IS}, QK, OUTPUT, QK_NORM(AS_IS), MLP, END};
static const struct gguf_tensor_name phi_layer[] = {
    TWO_NORMS, {"attn_qkv", "self_attn.qkv_proj", AS_IS}, OUTPUT, FUSED_MLP, END};
static const struct gguf_tensor_name out_norm_layer[] = { // OLMo 2 and 3, EXAONE 4
    {"post_attention_norm", "post_attention_layernorm", AS_IS},
    {"post_ffw_norm", "post_feedforward_layernorm", AS_IS}, QK, OUTPUT, QK_NORM(AS_IS), MLP, END};
static const struct gguf_tensor_name glm_layer[] = {
    TWO_NORMS, {"post_attention_norm", "post_self_attn_layernorm", AS_IS},
    {"post_ffw_norm", "post_mlp_layernorm", AS_IS}, QK, OUTPUT, FUSED_MLP, END};
static const struct gguf_tensor_name chatglm_layer[] = { // with q, k and v in one tensor or in three
    TWO_NORMS, QK, OUTPUT, FUSED_MLP, {"attn_qkv", "self_attn.q_proj", GGUF_QKV, false},
    {"", "self_attn.k_proj", GGUF_QKV, true}, {"", "self_attn.v_proj", GGUF_QKV, true}, END};
static const struct gguf_tensor_name glm_experts_layer[] = {
    TWO_NORMS_AS_POST, QK, OUTPUT, QK_NORM(AS_IS), MLP, MLP_EXPERTS, SHARED_EXPERTS("mlp.shared_experts"),
    {"ffn_gate_inp", "mlp.gate", AS_IS}, {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias", AS_IS}, END};
static const struct gguf_tensor_name latent_layer[] = {
    TWO_NORMS, {"attn_q", "self_attn.q_proj", AS_IS}, {"attn_output", "self_attn.o_proj", AS_IS},
    {"attn_q_a", "self_attn.q_a_proj", AS_IS}, {"attn_q_a_norm", "self_attn.q_a_layernorm", AS_IS},
    {"attn_q_b", "self_attn.q_b_proj", AS_IS}, {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa", AS_IS},
    {"attn_kv_a_norm", "self_attn.kv_a_layernorm", AS_IS}, {"attn_kv_b", "self_attn.kv_b_proj", AS_IS},
    {"attn_v_b", "self_attn.kv_b_proj", GGUF_LATENT_VALUES, false},
    {"attn_k_b", "self_attn.kv_b_proj", GGUF_LATENT_KEYS, false}, MLP, MLP_EXPERTS,
    SHARED_EXPERTS("mlp.shared_experts"), {"ffn_gate_inp", "mlp.gate", AS_IS},
    {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias", AS_IS}, END};
static const struct gguf_tensor_name cohere_layer[] = {
    {"attn_norm", "input_layernorm", AS_IS}, QK, OUTPUT, MLP, END};
static const struct gguf_tensor_name hunyuan_layer[] = {
    TWO_NORMS, QK, OUTPUT, {"attn_q_norm", "self_attn.query_layernorm", AS_IS},
    {"attn_k_norm", "self_attn.key_layernorm", AS_IS}, MLP, END};
static const struct gguf_tensor_name apertus_layer[] = {
    {"attn_norm", "attention_layernorm", AS_IS}, {"ffn_norm", "feedforward_layernorm", AS_IS},
    QK, OUTPUT, QK_NORM(AS_IS), {"ffn_up", "mlp.up_proj", AS_IS}, {"ffn_down", "mlp.down_proj", AS_IS}, END};
static const struct gguf_layer_value apertus_values[] = {
    {"xielu.alpha_p", "mlp.act_fn.alpha_p", 0}, {"xielu.alpha_n", "mlp.act_fn.alpha_n", 0},
    {"xielu.beta", NULL, 0.5}, {"xielu.eps", NULL, -1e-6}, {NULL, NULL, 0}};
static const struct gguf_tensor_name seed_layer[] = {TWO_NORMS_AS_POST, QK, OUTPUT, MLP, END};
static const struct gguf_tensor_name gpt_oss_layer[] = {
    TWO_NORMS_AS_POST, QK, OUTPUT, {"attn_sinks.weight", "self_attn.sinks", AS_IS},
    {"ffn_gate_inp", "mlp.router", AS_IS}, {"ffn_gate_exps.bias", "mlp.experts.gate_proj_bias", AS_IS},
    {"ffn_up_exps.bias", "mlp.experts.up_proj_bias", AS_IS},
    {"ffn_down_exps.bias", "mlp.experts.down_proj_bias", AS_IS}, MLP_EXPERTS, END};

#define LLAMA_BIASES "attn_output ffn_gate ffn_up ffn_down"
#define EXPERT_COUNT(HF) {"expert_count", HF}, {"expert_used_count", "num_experts_per_tok"}
static const struct gguf_key mixtral_keys[] = {EXPERT_COUNT("num_local_experts"), {NULL, NULL}};
static const struct gguf_key qwen_experts_keys[] = {
    EXPERT_COUNT("num_experts"), {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
    {"expert_weights_norm", "norm_topk_prob"}, {NULL, NULL}};
static const struct gguf_key gemma_keys[] = {
    {"attn_logit_softcapping", "attn_logit_softcapping"},
    {"final_logit_softcapping", "final_logit_softcapping"}, {NULL, NULL}};
static const struct gguf_key gemma4_keys[] = {
    {"final_logit_softcapping", "final_logit_softcapping"}, {"attention.shared_kv_layers", "num_kv_shared_layers"},
    {"embedding_length_per_layer_input", "hidden_size_per_layer_input"}, {"expert_count", "num_experts"},
    {"expert_used_count", "top_k_experts"}, {"expert_feed_forward_length", "moe_intermediate_size"}, {NULL, NULL}};
static const struct gguf_key granite_keys[] = {
    {"attention.scale", "attention_multiplier"}, {"embedding_scale", "embedding_multiplier"},
    {"residual_scale", "residual_multiplier"}, {"logit_scale", "logits_scaling"},
    EXPERT_COUNT("num_local_experts"), {NULL, NULL}};
static const struct gguf_key glm_experts_keys[] = {
    EXPERT_COUNT("n_routed_experts"), {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_shared_count", "n_shared_experts"}, {"expert_group_count", "n_group"},
    {"expert_group_used_count", "topk_group"}, {"expert_weights_scale", "routed_scaling_factor"},
    {"expert_weights_norm", "norm_topk_prob"}, {"leading_dense_block_count", "first_k_dense_replace"},
    {"attention.q_lora_rank", "q_lora_rank"}, {"attention.kv_lora_rank", "kv_lora_rank"}, {NULL, NULL}};
static const struct gguf_key cohere_keys[] = {{"logit_scale", "logit_scale"}, {NULL, NULL}};
static const struct gguf_key gpt_oss_keys[] = {
    EXPERT_COUNT("num_local_experts"), {"expert_feed_forward_length", "intermediate_size"}, {NULL, NULL}};

static const struct gguf_arch archs[] = {
    {.name = "llama", .needs = "expert_count", .model_type = "mixtral", .written = true, .biases = LLAMA_BIASES, .layer = mixtral_layer, .keys = mixtral_keys},
    {.name = "llama", .model_type = "llama", .written = true, .biases = LLAMA_BIASES, .layer = llama_layer},
    {.name = "mistral3", .needs = "attention.temperature_scale", .model_type = "ministral3", .layer = llama_layer,
     .mscale = 1},
    {.name = "mistral3", .model_type = "mistral", .layer = llama_layer},
    {.name = "internlm2", .model_type = "llama", .layer = llama_layer},
    {.name = "exaone", .model_type = "llama", .layer = qwen_layer},
    {.name = "qwen2", .model_type = "qwen2", .written = true, .layer = qwen_layer},
    {.name = "qwen3", .model_type = "qwen3", .written = true, .layer = qwen_layer},
    // The text of models that also see. A token's positions are equal in all sections of the rotation.
    {.name = "qwen2vl", .model_type = "qwen2", .layer = qwen_layer},
    {.name = "qwen3vl", .model_type = "qwen3", .layer = qwen_layer},
    {.name = "qwen3vlmoe", .model_type = "qwen3_moe", .layer = qwen_experts_layer, .keys = qwen_experts_keys,
     .switches = "{\"norm_topk_prob\": true}"},
    {.name = "qwen2moe", .model_type = "qwen2_moe", .written = true, .layer = qwen_experts_layer, .keys = qwen_experts_keys},
    {.name = "qwen3moe", .model_type = "qwen3_moe", .written = true, .layer = qwen_experts_layer, .keys = qwen_experts_keys,
     .switches = "{\"norm_topk_prob\": true}"},
    {.name = "gemma", .model_type = "gemma", .written = true, .outer = gemma_outer, .layer = first_gemma_layer},
    {.name = "gemma2", .model_type = "gemma2", .written = true, .outer = gemma_outer, .layer = gemma_layer, .keys = gemma_keys,
     .scaled_queries = true, .wide_query_layers = 46},
    {.name = "gemma3", .model_type = "gemma3_text", .written = true, .outer = gemma_outer, .layer = gemma_layer, .keys = gemma_keys,
     .two_ropes = true, .local_theta = 10000, .scaled_queries = true, .wide_query_layers = 62},
    {.name = "gemma4", .model_type = "gemma4_text", .written = true, .outer = gemma4_outer, .layer = gemma4_layer, .keys = gemma4_keys,
     .two_ropes = true, .local_theta = 10000, .layer_shapes = true},
    {.name = "phi3", .model_type = "phi3", .written = true, .layer = phi_layer},
    {.name = "gpt-oss", .model_type = "gpt_oss", .written = true, .biases = "attn_output ffn_gate_inp", .layer = gpt_oss_layer, .keys = gpt_oss_keys, .unrounded_yarn = true},
    {.name = "olmo2", .needs = "attention.sliding_window", .model_type = "olmo3", .written = true, .layer = out_norm_layer,
     .two_ropes = true},
    {.name = "olmo2", .model_type = "olmo2", .written = true, .layer = out_norm_layer},
    {.name = "olmoe", .model_type = "olmoe", .written = true, .layer = qwen_experts_layer, .keys = qwen_experts_keys},
    {.name = "exaone4", .model_type = "exaone4", .written = true, .layer = out_norm_layer,
     .switches = "{\"sliding_window\": null}"},
    {.name = "smollm3", .model_type = "smollm3", .written = true, .layer = llama_layer},
    {.name = "granite", .model_type = "granite", .written = true, .biases = LLAMA_BIASES, .layer = llama_layer, .keys = granite_keys},
    {.name = "granitemoe", .model_type = "granitemoe", .written = true, .biases = LLAMA_BIASES, .layer = granite_experts_layer, .keys = granite_keys},
    {.name = "glm4", .model_type = "glm4", .written = true, .layer = glm_layer},
    {.name = "chatglm", .model_type = "glm", .written = true, .layer = chatglm_layer},
    {.name = "glm4moe", .model_type = "glm4_moe", .written = true, .layer = glm_experts_layer, .keys = glm_experts_keys,
     .sigmoid = true},
    {.name = "deepseek2", .needs_tensor = "exp_probs_b.bias", .model_type = "deepseek_v3", .written = true, .layer = latent_layer,
     .keys = glm_experts_keys, .mscale = 10, .latent = true, .sigmoid = true},
    {.name = "deepseek2", .model_type = "deepseek_v2", .written = true, .layer = latent_layer, .keys = glm_experts_keys, .mscale = 10, .latent = true},
    {.name = "command-r", .model_type = "cohere", .written = true, .layer = cohere_layer, .keys = cohere_keys},
    {.name = "cohere2", .model_type = "cohere2", .written = true, .layer = cohere_layer, .keys = cohere_keys},
    {.name = "seed_oss", .model_type = "seed_oss", .written = true, .layer = seed_layer},
    {.name = "hunyuan-dense", .model_type = "hunyuan_v1_dense", .written = true, .layer = hunyuan_layer},
    {.name = "apertus", .model_type = "apertus", .written = true, .biases = "attn_output", .layer = apertus_layer, .values = apertus_values,
     .switches = "{\"hidden_act\": \"xielu\"}"},
    {.name = "ernie4_5", .model_type = "ernie4_5", .written = true, .biases = "attn_output", .layer = qwen_layer},
};
// clang-format on
#define N_ARCHS (sizeof archs / sizeof *archs)

const struct gguf_arch *gguf_arch_written(const char *model_type) {
    for (size_t i = 0; i < N_ARCHS; i++)
        if (archs[i].written && strcmp(archs[i].model_type, model_type) == 0) return &archs[i];
    return NULL;
}

void gguf_arch_written_names(char *out, size_t size) {
    size_t len = 0;
    out[0] = '\0';
    for (size_t i = 0; i < N_ARCHS; i++) {
        if (!archs[i].written || len >= size) continue;
        len += (size_t)snprintf(out + len, size - len, "%s%s", len > 0 ? ", " : "",
                                archs[i].model_type);
    }
}

const char *gguf_arch_name(size_t i) {
    for (size_t k = 0; k < N_ARCHS; k++)
        if (!archs[k].needs && !archs[k].needs_tensor && i-- == 0) return archs[k].name;
    return NULL;
}

static double number_of(const struct gguf *g, const char *arch, const char *key) {
    char name[128];
    snprintf(name, sizeof name, "%s.%s", arch, key);
    const cJSON *value = json_member(gguf_metadata(g), name);
    return cJSON_IsNumber(value) ? value->valuedouble : 0;
}

static bool is_arch(const struct gguf *g, const struct gguf_arch *a, const char *name) {
    char tensor[128];
    if (strcmp(a->name, name) != 0) return false;
    if (a->needs && !(number_of(g, name, a->needs) > 0)) return false;
    if (!a->needs_tensor) return true;
    snprintf(tensor, sizeof tensor, "blk.%d.%s", gguf_n_layers(g, a) - 1, a->needs_tensor);
    return gguf_find(g, tensor) != NULL;
}

int gguf_arch_of(const struct gguf *g, const struct gguf_arch **out, struct err *err) {
    struct near_names near = {0};
    char text[NEAR_NAMES_TEXT];
    const char *name = json_string(gguf_metadata(g), "general.architecture");
    if (!name) return err_set(err, E_FORMAT, "the file names no general.architecture");
    for (size_t i = 0; i < N_ARCHS; i++) {
        if (!is_arch(g, &archs[i], name)) continue;
        *out = &archs[i];
        return 0;
    }
    near.name = name;
    for (size_t i = 0; gguf_arch_name(i); i++) near_names_look(&near, gguf_arch_name(i));
    return err_set(err, E_UNSUPPORTED,
                   "general.architecture is '%.60s', which is unknown%s (`parley inspect "
                   "--architectures` lists the known)",
                   name, near_names_text(text, &near));
}

int gguf_n_blocks(const struct gguf *g, const struct gguf_arch *arch) {
    const double all = number_of(g, arch->name, "block_count");
    return all > 0 && all < 1e6 ? (int)all : 0;
}

int gguf_n_layers(const struct gguf *g, const struct gguf_arch *arch) {
    const double all = number_of(g, arch->name, "block_count");
    const double predict = number_of(g, arch->name, "nextn_predict_layers");
    return all > predict && all < 1e6 ? (int)(all - predict) : 0;
}
