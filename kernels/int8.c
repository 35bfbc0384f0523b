// Rows of 8-bit weights. See int8.h.
#include "kernels/int8.h"
#include "kernels/wide_row.h"
#include <math.h>

// v in about -127 .. 127 to the nearest integer: adding 1.5 * 2^23 rounds into the low bits.
static int8_t nearest(float v) {
    const float magic = 12582912.0f;
    float shifted = (v > INT8_LARGEST ? INT8_LARGEST : v < -INT8_LARGEST ? -INT8_LARGEST : v);
    int32_t bits;
    shifted += magic;
    memcpy(&bits, &shifted, sizeof bits);
    return (int8_t)(bits & 0xff);
}

int int8_quantize_row(const struct tensor_view *v, int64_t row, int8_t *q, int64_t q_stride,
                      float *work, float *scale) {
    float largest;
    TRY(wide_row(v, row, work, &largest));
    *scale = largest / INT8_LARGEST;
    const float divisor = *scale > 0 ? *scale : INFINITY; // scale 0: everything becomes 0
    if (q_stride == 1)
        for (int64_t c = 0; c < v->cols; c++) q[c] = nearest(work[c] / divisor);
    else
        for (int64_t c = 0; c < v->cols; c++) q[c * q_stride] = nearest(work[c] / divisor);
    return 0;
}

void int8_panel_put(uint8_t *panel, int lane, const int8_t *q, int64_t n, int64_t n_k) {
    for (int64_t k = 0; k < n_k; k += 4) {
        uint8_t quad[4] = {0x80, 0x80, 0x80, 0x80};
        for (int64_t i = 0; i < 4 && k + i < n; i++) quad[i] = (uint8_t)q[k + i] ^ 0x80;
        memcpy(panel + (k * INT8_PANEL_ROWS + lane * 4), quad, sizeof quad);
    }
}

void int8_panel_get(const uint8_t *panel, int lane, int8_t *q, int64_t n) {
    for (int64_t k = 0; k < n; k++)
        q[k] = (int8_t)(panel[k / 4 * 4 * INT8_PANEL_ROWS + lane * 4 + k % 4] ^ 0x80);
}
