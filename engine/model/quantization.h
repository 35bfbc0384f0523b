// `quantization_config` of config.json: which numbers and scales a folder's matrices are stored as.
#pragma once
#include "base/json.h"
#include "engine/model/model_config.h"

// Sets c's int8 or fp8 and what belongs to them. Known are
//   parley_int8          `parley quantize`: integers, in panels or in rows
//   fp8                  e4m3, "STEM.weight_scale_inv" for blocks of 128 x 128 (weight_block_size;
//                        DeepSeek, Qwen3), or "STEM.weight_scale" for the tensor or for each output
//   compressed-tensors   e4m3 (float, 8 bits) likewise: strategy tensor, channel or block; also
//                        what `parley quantize --weight-dtype fp8` writes
// Others, and what these have that is not known here, are E_UNSUPPORTED by name. Which modules are
// left out (modules_to_not_convert, ignored_layers, ignore) is not read: a tensor's own dtype says
// it. How activations were meant to be quantised (activation_scheme, input_activations) changes
// nothing here: they are not.
int quantization_read(struct model_config *c, const cJSON *json, struct err *err);
