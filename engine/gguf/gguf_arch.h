// What llama.cpp's converters call the parts of a model ("architectures"), and what they changed in the weights.
#pragma once
#include "engine/gguf/gguf.h"

enum gguf_change {
    GGUF_AS_IS,
    // Rows of a head lie in pairs (0, half, 1, half + 1 ...) instead of halves: the converter's form of the rotation.
    GGUF_PAIRED_ROWS,
    GGUF_PLUS_ONE // norms that multiply by 1 + w are stored as 1 + w
};

struct gguf_tensor_name {
    const char *gguf,
        *hf; // of a layer: behind "blk.N." and "model.layers.N.", without ".weight" and ".bias"
    enum gguf_change change; // of weights and biases
    bool by_kv_head;         // GGUF_PAIRED_ROWS: the heads are those of keys
};

struct gguf_key {
    const char *gguf, *hf; // a number; of the metadata, behind "ARCHITECTURE."
};

struct gguf_arch {
    const char *name;                     // general.architecture
    const char *model_type;               // Hugging Face's
    const struct gguf_tensor_name *layer; // ends with a NULL
    const struct gguf_key *keys;          // besides those that all have; ends with a NULL; or NULL
};

// E_UNSUPPORTED names an unknown architecture, E_FORMAT a file without one.
int gguf_arch_of(const struct gguf *g, const struct gguf_arch **out, struct err *err);
extern const struct gguf_tensor_name gguf_outer_names[]; // of tensors that belong to no layer
extern const struct gguf_key gguf_common_keys[];
