// The table of architectures. Sources: ggml's docs/gguf.md and the names in llama.cpp's converters.
#include "engine/gguf/gguf_arch.h"
#include "base/json.h"
#include <string.h>

const struct gguf_tensor_name gguf_outer_names[] = {
    {"token_embd", "model.embed_tokens", GGUF_AS_IS, false},
    {"output_norm", "model.norm", GGUF_AS_IS, false},
    {"output", "lm_head", GGUF_AS_IS, false},
    {NULL, NULL, GGUF_AS_IS, false},
};

const struct gguf_key gguf_common_keys[] = {
    {"context_length", "max_position_embeddings"},
    {"embedding_length", "hidden_size"},
    {"block_count", "num_hidden_layers"},
    {"feed_forward_length", "intermediate_size"},
    {"attention.head_count", "num_attention_heads"},
    {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.key_length", "head_dim"},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"attention.layer_norm_epsilon", "layer_norm_eps"},
    {"rope.freq_base", "rope_theta"},
    {"attention.sliding_window", "sliding_window"},
    {NULL, NULL},
};

// q and k of Llama's converter, and all others.
#define LLAMA_LAYER                                                                                \
    {"attn_norm", "input_layernorm", GGUF_AS_IS, false},                                           \
        {"ffn_norm", "post_attention_layernorm", GGUF_AS_IS, false},                               \
        {"attn_v", "self_attn.v_proj", GGUF_AS_IS, false},                                         \
        {"attn_output", "self_attn.o_proj", GGUF_AS_IS, false},                                    \
        {"attn_q_norm", "self_attn.q_norm", GGUF_AS_IS, false},                                    \
        {"attn_k_norm", "self_attn.k_norm", GGUF_AS_IS, false},                                    \
        {"ffn_gate", "mlp.gate_proj", GGUF_AS_IS, false},                                          \
        {"ffn_up", "mlp.up_proj", GGUF_AS_IS, false}, {                                            \
        "ffn_down", "mlp.down_proj", GGUF_AS_IS, false                                             \
    }

static const struct gguf_tensor_name llama_layer[] = {
    LLAMA_LAYER,
    {"attn_q", "self_attn.q_proj", GGUF_PAIRED_ROWS, false},
    {"attn_k", "self_attn.k_proj", GGUF_PAIRED_ROWS, true},
    {NULL, NULL, GGUF_AS_IS, false},
};

static const struct gguf_tensor_name qwen_layer[] = {
    LLAMA_LAYER,
    {"attn_q", "self_attn.q_proj", GGUF_AS_IS, false},
    {"attn_k", "self_attn.k_proj", GGUF_AS_IS, false},
    {NULL, NULL, GGUF_AS_IS, false},
};

static const struct gguf_arch archs[] = {
    {"llama", "llama", llama_layer, NULL},
    {"qwen2", "qwen2", qwen_layer, NULL},
    {"qwen3", "qwen3", qwen_layer, NULL},
};
#define N_ARCHS (sizeof archs / sizeof *archs)

int gguf_arch_of(const struct gguf *g, const struct gguf_arch **out, struct err *err) {
    char known[256] = "";
    const char *name = json_string(gguf_metadata(g), "general.architecture");
    if (!name) return err_set(err, E_FORMAT, "the file names no general.architecture");
    for (size_t i = 0; i < N_ARCHS; i++) {
        if (strcmp(archs[i].name, name) == 0) {
            *out = &archs[i];
            return 0;
        }
        if (i > 0) strncat(known, ", ", sizeof known - strlen(known) - 1);
        strncat(known, archs[i].name, sizeof known - strlen(known) - 1);
    }
    return err_set(err, E_UNSUPPORTED, "general.architecture is '%.60s'; known are %s", name,
                   known);
}
