// The AMX form of linear for bf16 weights in PANEL_BF12 (linear_amx.c); everything else of the
// "amx" set is AVX-512's.
#pragma once
#include "kernels/cpu/cpu.h"

// As in struct cpu_kernels. Rows of an item start at a multiple of 16 from split_row.
void amx_linear_item(const struct linear_args *a, const struct linear_item *item, void *scratch);
void amx_linear_split(const struct linear_args *a, int32_t row, int32_t n_rows);
size_t amx_linear_row_bytes(const struct weight *w);
// The same with x rounded to bf16.
void amx_bf16_linear_item(const struct linear_args *a, const struct linear_item *item,
                          void *scratch);
void amx_bf16_linear_split(const struct linear_args *a, int32_t row, int32_t n_rows);
size_t amx_bf16_linear_row_bytes(const struct weight *w);
