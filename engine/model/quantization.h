// `quantization_config` of config.json: the number formats and scales of a folder's matrices.
#pragma once
#include "base/json.h"
#include "engine/model/model_config.h"

// Sets c->int8 or c->fp8, and the fields that depend on it. Supported methods:
//   parley_int8          `parley quantize`: integers, in panels or in rows
//   fp8                  e4m3, "STEM.weight_scale_inv" for blocks of 128 x 128 (weight_block_size;
//                        DeepSeek, Qwen3), or "STEM.weight_scale" for the tensor or for each output
//   fbgemm_fp8           the latter, for each output (Meta's Llama 3.1)
//   compressed-tensors   e4m3 (float, 8 bits) likewise: strategy tensor, channel or block; also
//                        what `parley quantize --weight-dtype fp8` writes
// Other methods, and unknown keys of these, are E_UNSUPPORTED by name. Lists of excluded modules
// (modules_to_not_convert, ignored_layers, ignore) are ignored, because a tensor's own dtype decides.
// Schemes for activations (activation_scheme, input_activations) are ignored too.
int quantization_read(struct model_config *c, const cJSON *json, struct err *err);
