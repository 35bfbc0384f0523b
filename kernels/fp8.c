// Rows of e4m3 weights. See fp8.h.
#include "kernels/fp8.h"
#include "kernels/wide_row.h"
#include <math.h>

int fp8_quantize_row(const struct tensor_view *v, int64_t row, uint8_t *q, int64_t q_stride,
                     float *work, float *scale) {
    float largest;
    TRY(wide_row(v, row, work, &largest));
    *scale = largest / E4M3_LARGEST;
    const float divisor = *scale > 0 ? *scale : INFINITY; // scale 0: everything becomes 0
    if (q_stride == 1)
        for (int64_t c = 0; c < v->cols; c++) q[c] = e4m3_from_f32(work[c] / divisor);
    else
        for (int64_t c = 0; c < v->cols; c++) q[c * q_stride] = e4m3_from_f32(work[c] / divisor);
    return 0;
}

bool fp8_has_nan(const uint8_t *q, size_t n) {
    for (size_t i = 0; i < n;) {
        uint8_t found = 0;
        size_t end = n - i < 4096 ? n : i + 4096;
        for (; i < end; i++) found |= (q[i] & 0x7f) == 0x7f;
        if (found) return true;
    }
    return false;
}
