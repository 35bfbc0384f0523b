// Shared by the tests of config.json: a folder to write it into, and a small model of each family.
#pragma once
#include "engine/model/model_config.h"
#include "tests/unit/tmp_dir.h"
#include <math.h>

static struct tmp_dir dir;

static inline int setup(void **state) {
    tmp_dir_open(&dir);
    return 0;
}
static inline int teardown(void **state) {
    tmp_dir_close(&dir);
    return 0;
}

// A small model of a family. `more` adds keys; a repeated key comes last in the file and must be
// refused.
#define SHAPE                                                                                      \
    "\"vocab_size\":320,\"hidden_size\":64,\"intermediate_size\":160,\"num_hidden_layers\":4,"     \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"max_position_embeddings\":512"

static inline int load(struct model_config *c, const char *text, struct err *err) {
    memset(err, 0, sizeof *err);
    tmp_text(&dir, "config.json", text);
    return model_config_load(c, dir.path, err);
}

static inline void load_ok(struct model_config *c, const char *text) {
    struct err err;
    int rc = load(c, text, &err);
    if (rc != 0) fail_msg("%s\n%s", text, err.text);
}

#define LLAMA(more) "{\"model_type\":\"llama\"," SHAPE more "}"
#define MISTRAL(more) "{\"model_type\":\"mistral\"," SHAPE more "}"
#define QWEN2(more) "{\"model_type\":\"qwen2\"," SHAPE more "}"
#define QWEN3(more) "{\"model_type\":\"qwen3\"," SHAPE more "}"
#define GEMMA4(more)                                                                               \
    "{\"model_type\":\"gemma4_text\"," SHAPE                                                       \
    ",\"head_dim\":16,\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"proportional\"},"   \
    "\"sliding_attention\":{}}" more "}"
#define LATENT(more)                                                                               \
    "{\"model_type\":\"deepseek_v3\"," SHAPE                                                       \
    ",\"n_routed_experts\":8,\"num_experts_per_tok\":4,\"moe_intermediate_size\":16" more "}"

#define GPT2(more)                                                                                 \
    "{\"model_type\":\"gpt2\",\"vocab_size\":320,\"n_embd\":60,\"n_layer\":2,\"n_head\":5,"        \
    "\"n_positions\":64" more "}"
#define GPTJ(more)                                                                                 \
    "{\"model_type\":\"gptj\",\"vocab_size\":320,\"n_embd\":64,\"n_layer\":2,\"n_head\":4,"        \
    "\"n_positions\":64" more "}"
#define NEOX(more)                                                                                 \
    "{\"model_type\":\"gpt_neox\",\"vocab_size\":320,\"hidden_size\":64,\"num_hidden_layers\":2,"  \
    "\"num_attention_heads\":4,\"intermediate_size\":96,\"max_position_embeddings\":64" more "}"
#define BLOOM(more)                                                                                \
    "{\"model_type\":\"bloom\",\"vocab_size\":320,\"hidden_size\":60,\"n_layer\":2,\"n_head\":"    \
    "12" more "}"
#define OPT(more)                                                                                  \
    "{\"model_type\":\"opt\",\"vocab_size\":320,\"hidden_size\":64,\"num_hidden_layers\":2,"       \
    "\"num_attention_heads\":4,\"ffn_dim\":96,\"max_position_embeddings\":64" more "}"
#define XGLM(more)                                                                                 \
    "{\"model_type\":\"xglm\",\"vocab_size\":320,\"d_model\":64,\"num_layers\":2,"                 \
    "\"attention_heads\":4,\"ffn_dim\":96,\"max_position_embeddings\":64" more "}"
