// What the files of families share: the readers of switches that several families have, and the lists of
// rows that family_rows.c joins.
#pragma once
#include "engine/model/families.h"

struct family_list {
    const struct family *rows;
    size_t n;
};
extern const struct family_list families_llama, families_gpt, families_gemma, families_experts;

// Keys and tensors of Llama, which most later families share.
#define LLAMA_SHAPE_KEYS_OF(FFN_WIDTH)                                                             \
    .n_layers = "num_hidden_layers", .width = "hidden_size", .n_heads = "num_attention_heads",     \
    .n_kv_heads = "num_key_value_heads", .head_dim = "head_dim", .ffn_width = (FFN_WIDTH),         \
    .max_positions = "max_position_embeddings"
#define LLAMA_KEYS_OF(FFN_WIDTH)                                                                   \
    LLAMA_SHAPE_KEYS_OF(FFN_WIDTH), .norm_eps = "rms_norm_eps", .activation = "hidden_act"
#define LLAMA_SHAPE_KEYS LLAMA_SHAPE_KEYS_OF("intermediate_size")
#define LLAMA_KEYS LLAMA_KEYS_OF("intermediate_size")
// What a text_config of such keys leaves out where it has the value of the class, as numbers.
#define NESTED(VOCAB, WIDTH, FFN_WIDTH, LAYERS, HEADS, KV_HEADS, POSITIONS)                        \
    "{\"vocab_size\":" VOCAB ",\"hidden_size\":" WIDTH ",\"intermediate_size\":" FFN_WIDTH         \
    ",\"num_hidden_layers\":" LAYERS ",\"num_attention_heads\":" HEADS                             \
    ",\"num_key_value_heads\":" KV_HEADS ",\"max_position_embeddings\":" POSITIONS "}"
#define LLAMA_TENSORS                                                                              \
    .embed = "model.embed_tokens", .final_norm = "model.norm", .head = "lm_head",                  \
    .layers = "model.layers", .q = "self_attn.q_proj", .k = "self_attn.k_proj",                    \
    .v = "self_attn.v_proj", .q_norm = "self_attn.q_norm", .k_norm = "self_attn.k_norm",           \
    .o = "self_attn.o_proj", .gate = "mlp.gate_proj", .up = "mlp.up_proj", .down = "mlp.down_proj"
#define LLAMA_SWITCHES_AS(NORM, EPS, NORMS)                                                        \
    .norm = NORM, .norm_eps = EPS, .final_norm = true, .positions = POSITION_ROTARY,               \
    .embed_scale = 1, .kinds[0].feed.gated = true, .n_ropes = 1, .kinds[0].attention.rope = 1,     \
    .ropes[0].scale = 1, .kinds[0].norms = (NORMS)
#define LLAMA_SWITCHES_OF(NORMS) LLAMA_SWITCHES_AS(NORM_RMS, 1e-6f, NORMS)
#define LLAMA_SWITCHES LLAMA_SWITCHES_OF(NORM_PRE)

// Reads the window: a key with the value null means none; an absent key, `fallback` (the class's default).
int family_read_window(const cJSON *json, int32_t fallback, int32_t *window, struct err *err);
// Reads layer_types into windowed (n_layers). JSON_PRESENT, JSON_ABSENT or an error that names the layer.
int family_read_layer_types(const cJSON *json, int32_t n_layers, bool *windowed, struct err *err);
// layer_types, or where the key is absent every layer but each pattern-th is windowed (0: none is).
int family_read_pattern(const cJSON *json, int32_t n_layers, int64_t pattern, bool *windowed,
                        struct err *err);
// Gives each layer one of two rows, which must not be in c->kinds: these are written anew.
int family_set_layers(struct model_config *c, const bool *windowed, const struct layer_config *full,
                      const struct layer_config *sliding, struct err *err);
// Reads a number from 1 to max that must be there.
int family_require_count(const cJSON *json, const char *key, int64_t max, int32_t *out,
                         struct err *err);
// Reads the number of experts, of those that a token goes to, and the width of one, by these keys.
struct family_expert_keys {
    const char *count, *chosen, *width;
};
int family_read_experts(struct experts_config *x, const cJSON *json,
                        const struct family_expert_keys *keys, struct err *err);
// attention_bias, of q, k, v and o.
int family_read_attention_bias(struct model_config *c, const cJSON *json, struct err *err);
// A soft cap: a key with the value null means none, which is 0; an absent key, `fallback` (the class's default).
int family_read_cap(const cJSON *json, const char *key, double fallback, float *cap,
                    struct err *err);
// Refuses a key whose value would change the result: present, and neither null nor false nor 0 nor 1. 1 passes because
// these keys are factors and switches; a size needs a check of its own.
int family_refuse(const cJSON *json, const char *const *keys, struct err *err);
