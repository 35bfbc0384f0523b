// Weights as e4m3 numbers (base/dtype.h) with scales: W[r][k] = scale * e4m3. Activations are not
// quantised, except on a GPU with fp8_activations (kernels/cuda/linear_fp8.c). DTYPE_F8_E4M3 views come in
// two kinds (struct tensor_view):
//
//   one scale for each output   weights that Parley quantises itself, and folders with a scale for
//                               each channel or one for the whole tensor
//   one for each block of 128   columns of an output: folders whose scales belong to blocks of
//                               128 x 128 weights, as DeepSeek's and Qwen3's. Each row stores the
//                               scale of its block, so a view may take any rows.
//
// linear sums the products with unscaled numbers in F32 and multiplies the sum by the scale. With
// blocks it does so for each block, and adds the blocks' results in ascending order.
//
// How Parley quantises: scale = max |x| / 448; the stored number is x / scale, to the nearest, ties
// to even. A row of zeros (or of values whose scale is below F32's smallest) has scale 0. Loading and
// `parley quantize` share this code, so both give the same bits.
//
// No view holds a NaN (0x7f, 0xff): the loader refuses such a tensor. The kernels can therefore
// widen with a shift, which is exact for all other codes.
#pragma once
#include "kernels/backend.h"

enum { FP8_BLOCK = 128 }; // columns that share a scale, where a row has several
// Larger scales are refused, so that kernels may multiply a scale by a power of two.
#define FP8_LARGEST_SCALE 1e30f

// Scales of a row of a view or weight with this block_k.
static inline int32_t fp8_blocks(int64_t cols, int32_t block_k) {
    return block_k ? (int32_t)((cols + block_k - 1) / block_k) : 1;
}

// Row `row` of v (F32, F16 or BF16) as e4m3, q[c * q_stride], and its scale. work: (v->cols).
// E_INVAL if a value is infinite or NaN.
int fp8_quantize_row(const struct tensor_view *v, int64_t row, uint8_t *q, int64_t q_stride,
                     float *work, float *scale);

// Whether any of n codes is a NaN.
bool fp8_has_nan(const uint8_t *q, size_t n);
