// The number types of GGUF files. A type stores values in blocks of fixed size along a row: small
// integers with one or two scales. Layouts: ggml's ggml-common.h; decoding is exact in F32, with the
// products in the order that ggml has them, so both read the same bits.
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define BLOCK_MAX_VALUES 256

struct block_type {
    uint32_t id; // as GGUF files say it
    const char *name;
    int32_t values; // of a block
    int32_t bytes;
    void (*decode)(float *out, const uint8_t *block); // out (values)
};

// Half of the scale of the group of 16 values g of a block of NVFP4: a number of e4m3 without a sign. As in ggml, the
// code of no number is 0.
float nvfp4_half_scale(const uint8_t *block, int g);
// The code 0, 1 or 2 of value i of a block of TQ1_0: -1, 0 or 1 times its scale.
int tq1_0_code(const uint8_t *block, int i);
bool block_values_finite(const float *values, int64_t n);
// NULL: unknown, or known to hold nothing that weights are.
const struct block_type *block_type_find(uint32_t id);
// What ggml calls a type that block_type_find does not know; NULL: ggml does not know it either.
const char *block_type_foreign_name(uint32_t id);
// The names of all types, for sentences.
const char *block_type_names(void);
