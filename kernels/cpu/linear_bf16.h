// linear for bf16 weights with x rounded to bf16 (compute_dtype bf16), for AVX512-BF16; see
// linear_bf16.c.
#pragma once
#include "kernels/cpu/cpu.h"

// For struct cpu_kernels.
size_t bf16_linear_row_bytes(const struct weight *w);
void bf16_linear_split(const struct linear_args *a, int32_t row, int32_t n_rows);
void bf16_linear_item(const struct linear_args *a, const struct linear_item *item, void *scratch);
