// The named shapes of `parley synth`: those of public models, and two small ones.
#pragma once
#include "base/buf.h"
#include <stdbool.h>
#include <stdint.h>

struct synth_shape {
    const char *name, *family;
    // 0: the family derives the value from the others
    int32_t n_layers, width, n_heads, n_kv_heads, head_dim, ffn_width, vocab_size, max_positions;
    bool tied_head;
    double norm_eps, rope_theta; // 0: the family has none
    double llama3_factor;        // of rotary scaling llama3, 0 for none
    int32_t bos_id, eos_id;
    const char *more; // members of config.json that only this family has; or NULL
};

const struct synth_shape *synth_shape_find(const char *name); // NULL if unknown
// Writes config.json for the shape, in the spelling of transformers 4, which version 5 and other tools
// read too. dtype is transformers' name ("bfloat16").
void synth_shape_config(const struct synth_shape *s, const char *dtype, struct buf *out);
