// Every switch in which decoder families differ, as plain data: what a model has once, and its layers
// (layer_config.h). A family is a row in family_rows.c: the names of its tensors, and the rules that set
// the switches from config.json. forward reads only this struct.
#pragma once
#include "base/dtype.h"
#include "base/err.h"
#include "engine/model/layer_config.h"
#include "engine/model/weight_format.h"
#include "kernels/backend.h"
#include <stdbool.h>
#include <stdint.h>

#define MODEL_MAX_EOS 8
#define FINGERPRINT_LEN 32 // lower-case hexadecimal digits (fingerprint.h)
// Larger than in any model, and small enough that products do not overflow: rows * width * layers is
// at most 2^(26 + 20 + 12).
#define MODEL_MAX_WIDTH (1 << 20)
#define MODEL_MAX_LAYERS 4096
#define MODEL_MAX_HEADS 65536
#define MODEL_MAX_HEAD_DIM 1024
#define MODEL_MAX_FFN (1 << 24)
#define MODEL_MAX_QKV_ROWS (1 << 26)
#define MODEL_MAX_VOCAB (1 << 26)
// Keys that `parley quantize` writes into config.json (quantization.h). For int8,
// quantization_config holds quant_method, the layout of matrices (a missing key means rows of I8, as
// in earlier versions) and two fingerprints. For fp8 the fingerprints are beside it, under
// MODEL_FP8_KEY, since other programs read a quantization_config of that method.
#define MODEL_INT8_METHOD "parley_int8"
#define MODEL_INT8_LAYOUT "panels16x4"
#define MODEL_INT8_LAYOUT_VERSION 1
#define MODEL_FP8_METHOD "compressed-tensors"
#define MODEL_FP8_KEY "parley_fp8"
#define MODEL_QUANTIZED_OF "fingerprint"
#define MODEL_QUANTIZED_OWN "folder_fingerprint"

enum model_format { // of the folder: names and layout of its tensors
    FORMAT_HUGGING_FACE,
    FORMAT_FASTERTRANSFORMER
};
enum position_kind { POSITION_LEARNED, POSITION_SINUSOIDAL, POSITION_ROTARY, POSITION_ALIBI };

// How a text's hidden states become its embedding (embedding_files.h).
enum embedding_pooling { EMBEDDING_MEAN, EMBEDDING_LAST, EMBEDDING_FIRST };
struct embedding_config {
    enum embedding_pooling pooling;
    bool unit_length;
};

struct model_config {
    char family[32]; // model_type: "llama", "qwen3" ...; for config.ini the section: "gpt", "gptj"
    enum model_format format;
    enum dtype dtype; // of the stored weights, as the config says (tensors may differ)
    bool int8;        // matrices as 8-bit integers with a scale for each output (kernels/int8.h)
    bool int8_panels; // such matrices are stored in panels (kernels/int8.h)
    bool fp8;         // matrices as e4m3 numbers with scales (kernels/fp8.h)
    // For stored e4m3 matrices: the suffix of the scales' tensors ("STEM.SUFFIX"), with one scale for
    // each block of fp8_block_k x fp8_block_k weights; 0: one for each output or for the whole tensor.
    const char *fp8_scale;
    int32_t fp8_block_k;
    // Recorded by `parley quantize`: the fingerprint of its source loaded in 8 bits, and the folder's
    // own fingerprint. "" for other folders.
    char quantized_of[FINGERPRINT_LEN + 1], quantized_own[FINGERPRINT_LEN + 1];
    int32_t n_layers, width, vocab_size;
    int32_t max_positions; // trained length; a hard bound for learned and sinusoidal positions

    struct layer_config kinds[MODEL_MAX_KINDS]; // the distinct layers, each once
    int32_t n_kinds;
    uint8_t kind_of[MODEL_MAX_LAYERS]; // (n_layers)
    struct rope ropes[MODEL_MAX_ROPES];
    int32_t n_ropes;

    enum norm_kind norm;
    float norm_eps;
    bool norm_bias;
    bool norm_plus_one; // norms multiply by 1 + w, w the stored weight (Gemma 2 and 3)
    bool embed_norm;    // a norm directly after the embedding (BLOOM)
    bool final_norm;    // a norm before the head

    enum position_kind positions;
    // added to the index in the log before the table look-up (OPT, XGLM: 2)
    int32_t position_offset;

    float embed_scale;
    // width of the embedding; differs from width if it is projected (OPT-350m)
    int32_t embed_width;
    // Width of each layer's own embedding of a token (Gemma 4 E), which enters behind the layer's feed-forward;
    // 0: none. per_layer_vocab: rows of their table; per_layer_scale: on its values.
    int32_t per_layer_width, per_layer_vocab;
    float per_layer_scale;
    bool tied_head, head_bias;
    // An embedding model: hidden states alone. Its head, where the file has none, is the embedding's matrix.
    bool no_head;
    struct embedding_config embeddings;
    float logit_scale;    // on the logits; 0: 1 (Granite, Cohere)
    float logit_soft_cap; // logits become cap * tanh(logit / cap); 0: none (Gemma 2 and 4)

    int32_t bos_id; // -1: none
    int32_t eos_ids[MODEL_MAX_EOS];
    int32_t n_eos;
    // generation_config.json's suggestions; negative if it has none
    float temperature, top_p, repetition_penalty;
    int32_t top_k;
};

// Reads DIR/config.json (transformers 4 and 5: torch_dtype|dtype,
// rope_theta+rope_scaling|rope_parameters), or DIR/N-gpu/config.ini (ft_folder.h), and
// generation_config.json beside it; or a GGUF file (engine/gguf). Every number is range-checked and cross-checked (heads divide,
// sizes multiply without overflow); an unsupported value that would change the result is
// E_UNSUPPORTED by name.
int model_config_load(struct model_config *c, const char *model_dir, struct err *err);
// The same from a config.json alone, without suggestions.
int model_config_load_file(struct model_config *c, const char *config_path, struct err *err);
static inline const struct layer_config *model_layer(const struct model_config *c, int32_t layer) {
    return &c->kinds[c->kind_of[layer]];
}
// On q.k.
float model_config_attention_scale(const struct model_config *c, int32_t layer);
// Gives layer `layer` a copy of *row, which may be in kinds. E_UNSUPPORTED: too many distinct rows.
int model_config_set_layer(struct model_config *c, int32_t layer, const struct layer_config *row,
                           struct err *err);
// Numbers the rows by their first layers, and drops those that no layer has.
void model_config_settle_layers(struct model_config *c);
// What a backend must have beyond the ops of the first families (enum op_feature).
uint32_t model_config_features(const struct model_config *c);
// The layer whose keys and values a layer reads: its own, or kv_from's.
static inline int32_t model_config_kv_layer(const struct model_config *c, int32_t layer) {
    int32_t from = model_layer(c, layer)->attention.kv_from;
    return from ? from - 1 : layer;
}
// Whether a session that may grow to session_len tokens turns by the frequencies for short texts (struct rope).
static inline bool model_config_short_rope(const struct model_config *c, int64_t session_len) {
    bool is_short = false;
    for (int32_t i = 0; i < c->n_ropes; i++)
        is_short = is_short || session_len <= c->ropes[i].short_len;
    return is_short;
}
int64_t model_config_n_params(const struct model_config *c);
const char *model_config_weight_dtype(const struct model_config *c); // "int8", "fp8", "bf16" ...
