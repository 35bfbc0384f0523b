// Normally distributed numbers for synthetic weights, fast and reproducible.
#pragma once
#include "base/dtype.h"
#include <stddef.h>

// The sum of four random bytes picks each value from a table of 1,021, made once for each tensor in its
// dtype. So the sum is the only arithmetic for a value. The distribution is close to normal out to 3.4
// standard deviations.
struct synth_values {
    uint64_t key; // of the generator: seed and tensor
    enum dtype dtype;
    union {
        float f32[1024];
        uint16_t half[1024];
    } table;
};

// dtype: f32, f16 or bf16. The same seed and name give the same values, in any order of tensors.
void synth_values_init(struct synth_values *v, uint64_t seed, const char *tensor_name,
                       enum dtype dtype, float mean, float deviation);
// Writes values [first, first + n) of the tensor; first is a multiple of 4.
void synth_values_fill(const struct synth_values *v, void *out, uint64_t first, size_t n);
