// What llama.cpp's converters call the parts of a model ("architectures"), and what they changed in the weights.
#pragma once
#include "engine/gguf/gguf.h"

enum gguf_change {
    GGUF_AS_IS,
    // Rows of a head lie in pairs (0, half, 1, half + 1 ...) instead of halves: the converter's form of the rotation.
    GGUF_PAIRED_ROWS,
    GGUF_PLUS_ONE, // norms that multiply by 1 + w are stored as 1 + w
    GGUF_ONE_ROW,  // a matrix of one row, which files also hold as a vector
    // Each expert's rows of the gate, then those that the next row names: of the matrix beside the gate.
    GGUF_GATE_UP,
    // Rows of queries, then of keys and of values, which the two next rows name.
    GGUF_QKV,
    // Latent attention's matrix of keys and values: "attn_v_b" (heads, v, rank) has the rows of values, and what the
    // row names GGUF_LATENT_KEYS, "attn_k_b" (heads, rank, keys), those of keys, turned.
    GGUF_LATENT_VALUES,
    GGUF_LATENT_KEYS
};

struct gguf_tensor_name {
    // Of a layer: behind "blk.N." and "model.layers.N.", without ".weight" and ".bias". A name in `gguf` with such an
    // ending is the whole of both. '#' in `hf`: the tensor holds a matrix of each expert, whose number it stands for.
    const char *gguf, *hf;
    enum gguf_change change; // of weights and biases
    bool by_kv_head;         // GGUF_PAIRED_ROWS: the heads are those of keys
};

struct gguf_key {
    const char *gguf, *hf; // a number or a truth value; of the metadata, behind "ARCHITECTURE."
};

// A value of each layer that is metadata in the file and a tensor (1) in a folder.
struct gguf_layer_value {
    const char *gguf; // the key, without "ARCHITECTURE."
    // The name behind "model.layers.N."; or NULL: no tensor, but a constant of our ops.
    const char *hf;
    double constant; // the file's may differ from it by the rounding of bf16
};

struct gguf_arch {
    const char *name; // general.architecture
    // A key, behind "ARCHITECTURE.", that such a file has with a number above 0; or NULL.
    const char *needs;
    const char *needs_tensor; // likewise a tensor of the last layer, behind "blk.N."; or NULL
    const char *model_type;   // Hugging Face's
    // Tensors that belong to no layer (NULL: gguf_outer_names), and a layer's. Both end with a NULL.
    const struct gguf_tensor_name *outer, *layer;
    const struct gguf_layer_value *values; // ends with a NULL; or NULL
    const struct gguf_key *keys;           // besides those that all have; ends with a NULL; or NULL
    const char *switches; // JSON: what the architecture has without saying so; or NULL
    // Windowed layers have a rotation of their own, unscaled, by rope.freq_base_swa. local_theta: where the key is
    // absent; 0: the other rotation's.
    bool two_ropes;
    double local_theta;
    bool unrounded_yarn; // yarn's limits are not rounded to whole dimensions
    // Queries are scaled by the width of a head, in the size of wide_query_layers layers by the model's width for
    // each head.
    bool scaled_queries;
    int wide_query_layers;
    // Shapes by layer: heads of windowed layers are attention.key_length_swa wide, those of keys and the feed-forward
    // may be lists, and rope_freqs says which pairs of full layers turn (Gemma 4).
    bool layer_shapes;
    // Yarn's, times rope.scaling.yarn_log_multiplier. 0: the architecture has no such key.
    double mscale;
    bool latent;  // latent attention: its heads' sizes have keys of their own
    bool sigmoid; // experts are chosen by sigmoids, not by a softmax
    bool written; // `parley quantize --format gguf` writes such files (engine/convert)
    // Names with a space between, as in `gguf` of the rows: those whose biases llama.cpp loads, besides the biases of
    // queries, keys and values and those that a row names in full. It refuses a file with any other. NULL: none.
    const char *biases;
};

// The name of the ith architecture, each once; NULL past the last.
const char *gguf_arch_name(size_t i);
// E_UNSUPPORTED names an unknown architecture and those like it, E_FORMAT a file without one.
int gguf_arch_of(const struct gguf *g, const struct gguf_arch **out, struct err *err);
// The row that a model of Hugging Face's model_type is written as; NULL: none.
const struct gguf_arch *gguf_arch_written(const char *model_type);
// The model types that are written, separated by ", ".
void gguf_arch_written_names(char *out, size_t size);
// All layers that the file has, and those of the model itself, without the ones that predict further tokens. 0: unknown.
int gguf_n_blocks(const struct gguf *g, const struct gguf_arch *arch);
int gguf_n_layers(const struct gguf *g, const struct gguf_arch *arch);
extern const struct gguf_tensor_name gguf_outer_names[]; // of tensors that belong to no layer
extern const struct gguf_key gguf_common_keys[];
