// The families of decoders as a table: for each model_type, how config.json sets the switches of
// model_config, and the names of the tensors. A new family is a new row (see README.md).
#pragma once
#include "engine/model/model_config.h"
#include <cjson/cJSON.h>

// Another name that the class in transformers accepts for a key.
struct family_alias {
    const char *alias, *key;
};

// The keys of config.json for the shape. All but the first three may be NULL if the family has no
// such key: then the switch has the value in `base`, and the feed-forward is four times the width.
struct family_keys {
    const char *n_layers, *width, *n_heads, *n_kv_heads, *head_dim, *ffn_width, *max_positions;
    const char *norm_eps, *activation;
    bool ffn_width_optional; // absent or null: four times the width
    // Rotary positions. rotary_dim: the key of the rotated width, if that is the only parameter. NULL:
    // rope_read reads the parameters, and rotary_part is the default of the rotated part of a head (0:
    // the family always rotates whole heads).
    const char *rotary_dim;
    double rotary_part;
    double theta;                       // the default of rope_theta; 0: 10000
    const char *ropes;                  // the default of rope_parameters, as JSON; NULL: no scaling
    bool query_scale;                   // the family knows llama_4_scaling_beta
    bool reads_ropes;                   // the family's `read` fills the ropes
    const struct family_alias *aliases; // ends with a NULL; may be NULL
    // JSON: the keys of the shape with the values of the class. transformers leaves a key with such a value out of a
    // text_config, never out of a whole config.json, which may lack the length alone. NULL: such a key must be there.
    const char *nested;
};

// Names of tensors without ".weight" and ".bias". Those of a layer follow "LAYERS.NUMBER.".
struct family_tensors {
    const char *embed, *final_norm, *head, *layers;
    const char *positions, *embed_norm, *embed_in, *embed_out;
    // The norms before and after each sub-layer's sum (NORM_PRE or NORM_POST), and those of what the sub-layer
    // adds (NORM_OUT).
    const char *attn_norm, *ffn_norm, *attn_out_norm, *ffn_out_norm;
    const char *q, *k, *v, *q_norm, *k_norm, *o;
    // Latent attention: q in two steps (or `q`), the latents, what each head makes of them
    const char *q_a, *q_a_norm, *q_b, *kv_a, *kv_a_norm, *kv_b;
    const char *qkv;  // q, k and v in one tensor; then q, k and v are NULL
    bool qkv_by_head; // its rows: q, k, v of the first head, then of the second ...; false: all
                      // rows of q, then of k, then of v
    bool conv1d;      // the layers' matrices are stored (inputs, outputs)
    const char *gate, *up, *down;
    const char *gate_up; // gate and up in one tensor, all rows of gate first; then both are NULL
    // Experts. The router: "ROUTER.weight" and, with a bias, "ROUTER.bias"; choice_bias is a whole name. An expert's
    // matrices are "EXPERTS.NUMBER.STEM.weight", or those of all are in one tensor each: gate and up (experts,
    // 2 * width, H), the gate's rows first, and down (experts, H, width); NULL: the family has no such form. With
    // experts_turned the two are stored the other way round, rows of gate and up alternate, and biases
    // are in "NAME_bias" (gpt-oss). With experts_halves they may lie either way, which their shape tells: as published
    // (experts, H, 2 * width) and (experts, width, H), the gate's columns first (Qwen3-VL).
    const char *router, *choice_bias;
    const char *experts, *expert_gate, *expert_up, *expert_down;
    const char *experts_up, *experts_down;
    // Of experts beside a dense feed-forward: the norm of what the latter adds, those around the experts, and two
    // whole names: the weight of the norm before the router, and each expert's number.
    const char *dense_out_norm, *experts_norm, *experts_out_norm, *router_norm, *expert_scale;
    bool experts_turned, experts_halves;
    bool experts_bare; // their names have no ".weight"
    const char *shared_gate, *shared_up, *shared_down;
    const char *shared_switch; // (1, H) gates the shared experts
    const char *sinks;         // a whole name
    const char *xielu;         // "STEM.alpha_p" and "STEM.alpha_n" (Apertus)
    const char *output_scalar;
    // Embeddings for each layer (Gemma 4 E): the table, the stream's projection and its norm; in a layer the two
    // matrices and the norm behind them.
    const char *layer_embed, *layer_project, *layer_project_norm;
    const char *layer_gate, *layer_out, *layer_out_norm;
};

struct family {
    const char *model_type, *class; // of transformers: "llama", "LlamaForCausalLM"
    const struct family_keys *keys;
    const struct family_tensors *tensors;
    // The switches of every model of the family, and the defaults of the class in transformers for
    // numbers that config.json may omit (norm_eps; head_dim, where 0 means width / n_heads).
    const struct model_config *base;
    bool kv_heads_required; // false: the default is one for each query head
    // Reads the switches that config.json decides; shape and activation are already read. The
    // message in err names the key; the caller adds the file's name. NULL: no such switches.
    int (*read)(struct model_config *c, const cJSON *json, struct err *err);
};

const struct family *family_find(const char *model_type); // NULL if unknown
// The names of a model's tensors in its folder, of Hugging Face or of FasterTransformer.
const struct family_tensors *family_tensors_of(const struct model_config *c);
const char *family_name(size_t i); // model_type of the ith family; NULL past the last
// "LAYERS.LAYER.STEM.SUFFIX", or "STEM.SUFFIX" if layer is negative; without a dot before an empty suffix.
// Returns out.
#define TENSOR_NAME_MAX 256
char *family_tensor_name(char out[TENSOR_NAME_MAX], const struct family_tensors *t, int32_t layer,
                         const char *stem, const char *suffix);
