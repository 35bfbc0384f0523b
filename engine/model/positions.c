// Slopes and sinusoids. See positions.h. Both repeat transformers' arithmetic: tensors are F32, and a
// scalar is a double that is rounded to F32 when it is combined with a tensor.
#include "engine/model/positions.h"
#include <math.h>

// k-th power, from 1, of the base that makes the n-th one 2^-8; n is a power of two.
static float slope(int32_t n, int32_t k) {
    return (float)pow((float)exp2(-8.0 / n), k);
}

void alibi_slopes(float *out, int32_t n_heads) {
    int32_t n = 1;
    while (n <= n_heads / 2) n *= 2;
    for (int32_t i = 0; i < n; i++) out[i] = slope(n, i + 1);
    for (int32_t i = n; i < n_heads; i++) out[i] = slope(2 * n, 2 * (i - n) + 1);
}

void sinusoidal_table(float *out, int64_t n_rows, int32_t width) {
    int32_t half = width / 2;
    float step = (float)-(log(10000) / (half - 1));
    for (int64_t p = 0; p < n_rows; p++, out += width) {
        for (int32_t i = 0; i < half; i++) {
            float angle = (float)p * (float)exp((float)i * step);
            out[i] = sinf(angle);
            out[half + i] = cosf(angle);
        }
        if (width % 2 != 0) out[width - 1] = 0;
    }
}
