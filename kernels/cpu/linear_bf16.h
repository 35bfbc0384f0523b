// linear for bf16 weights with x rounded to bf16 (compute_dtype bf16), for AVX512-BF16; see
// linear_bf16.c.
#pragma once
#include "kernels/cpu/cpu.h"

// For struct cpu_kernels.
size_t bf16_linear_row_bytes(const struct weight *w);
void bf16_linear_split(const struct linear_args *a, int32_t row, int32_t n_rows);
void bf16_linear_item(const struct linear_args *a, const struct linear_item *item, void *scratch);

// A gated matrix: its first half of outputs, activated, times its second. The item's panels are of
// the first half and an even number of them, its rows few and all of x. What comes out is x of
// `next`, rounded where bf16_linear_split would have put it. Scratch: 2 x rows x outputs floats.
struct bf16_gated {
    enum activation act;
    void (*activate_row)(enum activation act, float *y, const float *x, const float *gate,
                         int32_t width);
    const struct linear_args *next;
};
void bf16_gated_item(const struct linear_args *a, const struct linear_item *item,
                     const struct bf16_gated *gated, void *scratch);
