// What a model's matrices become while they are loaded.
#pragma once

// Their own form, or 8 bits with scales: integers (kernels/int8.h) or e4m3 numbers (kernels/fp8.h).
// Those that a folder has in 8 bits already stay as they are; asking for the other kind is an
// error.
enum weight_format { WEIGHTS_OWN, WEIGHTS_INT8, WEIGHTS_FP8 };
#define WEIGHT_FORMATS "model|int8|fp8" // their names, in that order
