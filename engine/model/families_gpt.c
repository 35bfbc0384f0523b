// The families before Llama: GPT-2, GPT-J, GPT-NeoX, BLOOM, OPT, XGLM. See families.h.
#include "base/json.h"
#include "engine/model/family_rows.h"
#include <math.h>

static int read_gpt2(struct model_config *c, const cJSON *json, struct err *err) {
    bool scaled = true;
    TRY(json_get_bool(json, "scale_attn_weights", &scaled, err));
    if (!scaled) c->kinds[0].attention.scale = 1;
    TRY(json_get_bool(json, "scale_attn_by_inverse_layer_idx",
                      &c->kinds[0].attention.scale_by_layer, err));
    return 0;
}

static int read_gpt_neox(struct model_config *c, const cJSON *json, struct err *err) {
    TRY(json_get_bool(json, "use_parallel_residual", &c->kinds[0].parallel, err));
    TRY(json_get_bool(json, "attention_bias", &c->kinds[0].attention.qkv_bias, err));
    c->kinds[0].attention.o_bias = c->kinds[0].attention.qkv_bias;
    return 0;
}

static int read_bloom(struct model_config *c, const cJSON *json, struct err *err) {
    TRY(json_get_bool(json, "apply_residual_connection_post_layernorm",
                      &c->kinds[0].normed_residual, err));
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
    c->kinds[0].norms = before ? NORM_PRE : NORM_POST;
    c->final_norm = before && !removed;
    c->kinds[0].attention.qkv_bias = c->kinds[0].attention.o_bias = c->kinds[0].feed.bias = bias;
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
    .norm = NORM_LAYER, .norm_bias = true, .kinds[0].norms = NORM_PRE, .norm_eps = 1e-5f,          \
    .final_norm = true, .kinds[0].feed.bias = true, .ropes[0].scale = 1, .embed_scale = 1

static const struct model_config gpt2_base = {GPT_SWITCHES,
                                              .positions = POSITION_LEARNED,
                                              .kinds[0].feed.activation = ACT_GELU_TANH,
                                              .kinds[0].attention.qkv_bias = true,
                                              .kinds[0].attention.o_bias = true,
                                              .tied_head = true};
static const struct model_config gptj_base = {GPT_SWITCHES,
                                              .positions = POSITION_ROTARY,
                                              .n_ropes = 1,
                                              .kinds[0].attention.rope = 1,
                                              .ropes[0].style = ROPE_INTERLEAVED,
                                              .ropes[0].rot_dim = 64,
                                              .kinds[0].feed.activation = ACT_GELU_TANH,
                                              .kinds[0].parallel = true,
                                              .kinds[0].shared_norm = true,
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
                                                  .n_ropes = 1,
                                                  .kinds[0].attention.rope = 1,
                                                  .ropes[0].style = ROPE_HALF,
                                                  .kinds[0].feed.activation = ACT_GELU,
                                                  .kinds[0].attention.qkv_bias = true,
                                                  .kinds[0].attention.o_bias = true,
                                                  .kinds[0].parallel = true};

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
                                               .kinds[0].feed.activation = ACT_GELU_TANH,
                                               .kinds[0].attention.qkv_bias = true,
                                               .kinds[0].attention.o_bias = true,
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
    GPT_SWITCHES, .position_offset = 2, .kinds[0].attention.qkv_bias = true,                       \
                  .kinds[0].attention.o_bias = true, .tied_head = true

static const struct model_config opt_base = {FAIRSEQ_SWITCHES, .positions = POSITION_LEARNED,
                                             .kinds[0].feed.activation = ACT_RELU};
static const struct model_config xglm_base = {FAIRSEQ_SWITCHES, .positions = POSITION_SINUSOIDAL,
                                              .kinds[0].feed.activation = ACT_GELU};

// clang-format off
static const struct family rows[] = {
    {"gpt2", "GPT2LMHeadModel", &gpt2_keys, &gpt2_tensors, &gpt2_base, false, read_gpt2},
    {"gptj", "GPTJForCausalLM", &gptj_keys, &gptj_tensors, &gptj_base, false, NULL},
    {"gpt_neox", "GPTNeoXForCausalLM", &gpt_neox_keys, &gpt_neox_tensors, &gpt_neox_base, false, read_gpt_neox},
    {"bloom", "BloomForCausalLM", &bloom_keys, &bloom_tensors, &bloom_base, false, read_bloom},
    {"opt", "OPTForCausalLM", &opt_keys, &opt_tensors, &opt_base, false, read_opt},
    {"xglm", "XGLMForCausalLM", &xglm_keys, &xglm_tensors, &xglm_base, false, read_xglm},
};
// clang-format on
const struct family_list families_gpt = {rows, sizeof rows / sizeof *rows};
