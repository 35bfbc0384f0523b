// What a model's config.json says, as metadata of a GGUF file. engine/gguf/gguf_config.h takes the way back.
#pragma once
#include "engine/convert/gguf_writer.h"
#include "engine/gguf/gguf_arch.h"
#include "engine/model/model_config.h"
#include <cjson/cJSON.h>

// Factors that divide the rotation's frequencies: a tensor of F32 (n).
struct gguf_factors {
    const char *name; // of the tensor
    int32_t n;
    float values[MODEL_MAX_ROT / 2];
};
#define GGUF_MAX_FACTORS 2

struct gguf_shape {
    const struct gguf_arch *arch;
    const struct model_config *c;
    const cJSON *config; // config.json, or its text_config
    // Filled in by gguf_shape_put.
    struct gguf_factors factors[GGUF_MAX_FACTORS];
    int n_factors;
};

// E_UNSUPPORTED names what the metadata of this architecture cannot say.
int gguf_shape_put(struct gguf_shape *s, struct gguf_writer *w, struct err *err);
// Whether the model that was read back is the one that was written: E_UNSUPPORTED names the difference.
int gguf_shape_compare(const struct model_config *source, const struct model_config *read,
                       struct err *err);
