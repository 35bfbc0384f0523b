// Rows of x as integers, shared by the variants of linear for 8-bit weights (linear_int8.inc).
#pragma once
#include "kernels/cpu/cpu.h"

// x[k] = unit * X[k]; offset: 128 times the sum of X, which the weights' + 128 puts into every sum.
struct int8_row {
    double unit;
    int64_t offset;
};

enum {
    INT8_HEADER_BYTES = LINEAR_BLOCK_ROWS * sizeof(struct int8_row), // at the front of split_x
    INT8_BLOCK_TILES = 32, // K goes in blocks of so many tiles: 32-bit sums hold twice that
    INT8_BLOCK_ROWS = 32,  // and many rows in blocks of so many
};

// Used instead of the set's own functions on processors with these instructions; the bits are the
// same.
#if defined(__x86_64__)
void int8_vnni256_item(const struct linear_args *a, const struct linear_item *item, void *scratch);
void int8_vnni256_split(const struct linear_args *a, int32_t row, int32_t n_rows);
void int8_vnni512_item(const struct linear_args *a, const struct linear_item *item, void *scratch);
void int8_vnni512_split(const struct linear_args *a, int32_t row, int32_t n_rows);
void int8_amx_split(const struct linear_args *a, int32_t row, int32_t n_rows);
void int8_amx_item(const struct linear_args *a, const struct linear_item *item, void *scratch);
#endif
