// Quantises the rows of a matrix to 8-bit integers with one scale for each output
// (FasterTransformer's int8_mode 1, "weight-only"). Loading and `parley quantize` share this code,
// so that a matrix quantised at load and one read from a file have the same bits. Every backend
// gets DTYPE_I8 views.
//
//   scale = max |x| / 127, q = x / scale to the nearest integer, ties to even: -127 .. 127.
//
// Symmetric and without -128, so that a sum needs no zero point. The error of a weight is at most
// half a scale. A row of zeros (or of values whose scale is below F32's smallest) has scale 0.
//
// Panels are the layout of such a matrix (rows, cols) on the CPU and in the files of `parley
// quantize`, which are mapped (engine/model/README.md):
//
//   [panel][k / 4][16][4] bytes: a panel has 16 rows; it stores four columns of all of them, then
//   the next four columns. Each byte is q + 128 (kernels/cpu/linear_int8.inc says why)
//
// Rows are padded to a whole panel and columns to a tile of 64, with q = 0. Panels begin at a
// multiple of 64 bytes. The layout is the same for all instruction sets.
#pragma once
#include "kernels/backend.h"

enum {
    INT8_LARGEST = 127,
    INT8_PANEL_ROWS = 16,
    INT8_TILE_K = 64,
    INT8_TILE_BYTES = INT8_TILE_K * INT8_PANEL_ROWS,
    INT8_PANEL_ALIGNMENT = 64,
};

static inline int64_t int8_panels(int64_t rows) { // the last may have rows to spare
    return (rows + INT8_PANEL_ROWS - 1) / INT8_PANEL_ROWS;
}
static inline int64_t int8_panel_bytes(int64_t cols) { // whole tiles
    return (cols + INT8_TILE_K - 1) / INT8_TILE_K * INT8_TILE_BYTES;
}

// Row `row` of v (F32, F16 or BF16) as integers, q[c * q_stride], and its scale. work: (v->cols).
// E_INVAL if a value is infinite or NaN, which no scale can express.
int int8_quantize_row(const struct tensor_view *v, int64_t row, int8_t *q, int64_t q_stride,
                      float *work, float *scale);

// Writes row `lane` (0 .. 15) of a panel from n integers, padded with zeros to n_k, a multiple of
// 64.
void int8_panel_put(uint8_t *panel, int lane, const int8_t *q, int64_t n, int64_t n_k);
// Reads the first n integers of row `lane`.
void int8_panel_get(const uint8_t *panel, int lane, int8_t *q, int64_t n);
