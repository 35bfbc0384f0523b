// The formats in which a model's matrices are loaded.
#pragma once

// WEIGHTS_OWN: unchanged. Else 8 bits with scales: integers (kernels/int8.h) or e4m3 numbers
// (kernels/fp8.h). Matrices that are already stored in 8 bits stay unchanged; requesting the other
// 8-bit format is an error.
// WEIGHTS_INT4 (kernels/int4.h) is only written (quantize.h), and read as the folder that it is then.
enum weight_format { WEIGHTS_OWN, WEIGHTS_INT8, WEIGHTS_FP8, WEIGHTS_INT4 };
#define WEIGHT_FORMATS "model|int8|fp8" // names of those that loading makes, in that order
