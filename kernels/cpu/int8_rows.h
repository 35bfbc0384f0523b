// Rows of x as integers, shared by the variants of linear for 8-bit weights (linear_int8.inc).
#pragma once
#include "kernels/cpu/cpu.h"

// x[k] = unit * X[k] with integers X. Weights are stored as q + 128, so every sum is too large by
// `offset`, 128 times the sum of X.
struct int8_row {
    double unit;
    int64_t offset;
};

enum {
    INT8_HEADER_BYTES = LINEAR_BLOCK_ROWS * sizeof(struct int8_row), // at the front of split_x
    INT8_BLOCK_TILES = 32, // tiles of K in a block; a 32-bit sum could hold twice as many
    INT8_BLOCK_ROWS = 32,  // rows in a block, where there are many
};

// Used instead of the set's own functions on processors with these instructions; the bits are the
// same.
#if defined(__x86_64__)
void int8_vnni256_item(const struct linear_args *a, const struct linear_item *item, void *scratch);
void int8_vnni256_split(const struct linear_args *a, int32_t row, int32_t n_rows);
void int8_vnni512_item(const struct linear_args *a, const struct linear_item *item, void *scratch);
void int8_vnni512_split(const struct linear_args *a, int32_t row, int32_t n_rows);
void groups_vnni256_item(const struct linear_args *a, const struct linear_item *item,
                         void *scratch);
void groups_vnni256_split(const struct linear_args *a, int32_t row, int32_t n_rows);
void groups_vnni512_item(const struct linear_args *a, const struct linear_item *item,
                         void *scratch);
void groups_vnni512_split(const struct linear_args *a, int32_t row, int32_t n_rows);
// With x in 8 bits (linear_groups8.inc).
void groups8_vnni512_item(const struct linear_args *a, const struct linear_item *item,
                          void *scratch);
void groups8_vnni512_split(const struct linear_args *a, int32_t row, int32_t n_rows);
void int8_amx_split(const struct linear_args *a, int32_t row, int32_t n_rows);
void int8_amx_item(const struct linear_args *a, const struct linear_item *item, void *scratch);
#endif
