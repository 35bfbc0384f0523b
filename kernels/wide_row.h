// Converts a row of a matrix to F32 before quantisation. The loops have no branches, so that the
// compiler vectorises them.
#pragma once
#include "kernels/backend.h"

// Writes row `row` of v (F32, F16 or BF16) to out (v->cols), and its largest magnitude. E_INVAL if
// a value is infinite or NaN, which no scale can express.
static inline int wide_row(const struct tensor_view *v, int64_t row, float *out, float *largest) {
    const uint16_t *half = (const uint16_t *)v->data + row * v->row_stride;
    const float *full = (const float *)v->data + row * v->row_stride;
    const int64_t step = v->col_stride;
    if (v->dtype == DTYPE_BF16)
        for (int64_t c = 0; c < v->cols; c++) out[c] = bf16_to_f32(half[c * step]);
    else if (v->dtype == DTYPE_F16)
        for (int64_t c = 0; c < v->cols; c++) out[c] = f16_to_f32(half[c * step]);
    else
        for (int64_t c = 0; c < v->cols; c++) out[c] = full[c * step];
    // Compared as integers, the bits of magnitudes are in the order of the values, and an infinity
    // or NaN is larger than all.
    int32_t most = 0;
    for (int64_t c = 0; c < v->cols; c++) {
        int32_t bits;
        memcpy(&bits, &out[c], sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    memcpy(largest, &most, sizeof *largest);
    return most >= 0x7f800000 ? E_INVAL : 0;
}
