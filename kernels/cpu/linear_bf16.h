// linear for bf16 weights with x rounded to bf16 (compute_dtype bf16), for AVX512-BF16; see
// linear_bf16.c.
#pragma once
#include "kernels/cpu/cpu.h"

// For struct cpu_kernels.
size_t bf16_linear_row_bytes(const struct weight *w);
void bf16_linear_split(const struct linear_args *a, int32_t row, int32_t n_rows);
void bf16_linear_item(const struct linear_args *a, const struct linear_item *item, void *scratch);

// A gated matrix: multiplies the activated first half of its outputs by the second half, and writes
// the product as x of the matrix `next`: rounded to bf16, where bf16_linear_split would have put it.
// The item's panels are an even number of the first half's; its rows are all rows of x, which are
// few. Scratch: 2 x rows x outputs floats.
struct bf16_gated {
    enum activation act;
    void (*activate_row)(enum activation act, float *y, const float *x, const float *gate,
                         int32_t width);
    const struct linear_args *next;
};
void bf16_gated_item(const struct linear_args *a, const struct linear_item *item,
                     const struct bf16_gated *gated, void *scratch);
