// Normally distributed numbers for synthetic weights, fast and reproducible.
#pragma once
#include "base/dtype.h"
#include <stddef.h>

// Each value is one of 1,021, picked by the sum of four random bytes: close to normal out to 3.4
// standard deviations, and no arithmetic for each value but that sum. The values come from a table
// made once for each tensor, already in its dtype.
struct synth_values {
    uint64_t key; // of the generator: seed and tensor
    enum dtype dtype;
    union {
        float f32[1024];
        uint16_t half[1024];
    } table;
};

// dtype: f32, f16 or bf16. Same seed and name: the same values, whatever the order of tensors.
void synth_values_init(struct synth_values *v, uint64_t seed, const char *tensor_name,
                       enum dtype dtype, float mean, float deviation);
// Writes values [first, first + n) of the tensor; first is a multiple of 4.
void synth_values_fill(const struct synth_values *v, void *out, uint64_t first, size_t n);
