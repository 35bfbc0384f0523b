// Quantises rows to integers of 4 bits with one scale for each group of 128 columns, as compressed-tensors' W4A16
// stores them (`parley quantize --weight-dtype int4`):
//
//   x = scale * (code - 8), code 0 .. 15, eight codes in 32 bits, the first in the low ones
//
// A group's scale is the one with the least squared error among those that put its largest value at 4 to 9 steps,
// each then fitted to the integers that it gives. It is rounded to the type in which it is stored before the codes
// are chosen.
#pragma once
#include "kernels/backend.h"

enum { INT4_GROUP = 128 };

// Row `row` of v (F32, F16 or BF16), whose columns INT4_GROUP divides: codes (cols / 8), scales (cols / INT4_GROUP),
// each a value of scale_dtype (F32, F16 or BF16). work: (cols). weights (cols, not negative): how much each column's
// squared error counts; NULL: all the same. E_INVAL if a value is infinite or NaN, or a scale too large for its type.
int int4_quantize_row(const struct tensor_view *v, int64_t row, enum dtype scale_dtype,
                      const float *weights, uint32_t *codes, float *scales, float *work);
// The same for inputs that are known (int4_calibrated.c), where `factors` has int4_factors' results of all blocks of
// columns, INT4_BLOCK numbers for each column.
int int4_quantize_row_calibrated(const struct tensor_view *v, int64_t row, enum dtype scale_dtype,
                                 const float *factors, uint32_t *codes, float *scales, float *work);
// What is known of a matrix's inputs: the arguments of the two. Both NULL: nothing.
struct int4_inputs {
    const float *factors, *weights;
};
enum { INT4_BLOCK = 512 }; // columns that take up each other's rounding errors
// h: (n, n) the sum of x^T x of n columns, its upper half is read. It becomes U with (H + damping)^-1 = U^T U, U upper
// triangular. E_INVAL: h holds a value that is infinite or NaN.
int int4_factors(float *h, int64_t n, struct err *err);
// The scale, a value of scale_dtype, with the least weighted squared error of a group x (INT4_GROUP) with weights
// (INT4_GROUP, not negative); and the integer of a value, given 1 / scale.
float int4_best_scale(const float *x, const float *weights, enum dtype scale_dtype);
float int4_integer(float x, float inverse);
