// Weights in 8 bits, one scale for each output (FasterTransformer's int8_mode 1, "weight-only"):
// how a row of a matrix becomes integers. Shared by loading and by `parley quantize`, so that a
// matrix quantised at load and one read from a file are the same bits; every backend gets DTYPE_I8
// views.
//
//   scale = max |x| / 127, q = x / scale to the nearest integer, ties to even: -127 .. 127.
//
// Symmetric and without -128, so that a sum needs no zero point. The error of a weight is at most
// half a scale. A row of zeros (or of values whose scale is below F32's smallest) has scale 0.
#pragma once
#include "kernels/backend.h"

enum { INT8_LARGEST = 127 };

// Row `row` of v (F32, F16 or BF16) as integers, q[c * q_stride], and its scale. work: (v->cols).
// E_INVAL where a value is infinite or no number: no scale says that.
int int8_quantize_row(const struct tensor_view *v, int64_t row, int8_t *q, int64_t q_stride,
                      float *work, float *scale);
