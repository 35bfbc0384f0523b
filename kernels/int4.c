// See int4.h.
#include "kernels/int4.h"
#include "kernels/wide_row.h"
#include <math.h>

enum { CANDIDATES = 40 };

static float rounded(float scale, enum dtype t) {
    return t == DTYPE_F16    ? f16_to_f32(f16_from_f32(scale))
           : t == DTYPE_BF16 ? bf16_to_f32(bf16_from_f32(scale))
                             : scale;
}

// To the nearest integer, ties to even, without a call that would keep the loops below from being vectorised: the sum
// has no room for a fraction.
static float nearest(float v) {
    const float magic = 12582912; // 1.5 * 2^23
    return (v + magic) - magic;
}

float int4_integer(float x, float inverse) {
    const float q = nearest(x * inverse);
    return q < -8 ? -8 : q > 7 ? 7 : q;
}

// The scale that fits x best, given the integers that `inverse` makes of it.
static float fitted(const float *x, const float *weights, float inverse) {
    float xq[8] = {0}, qq[8] = {0}; // by column modulo 8, in an order of their own
    for (int k = 0; k < INT4_GROUP; k += 8)
        for (int i = 0; i < 8; i++) {
            const float q = int4_integer(x[k + i], inverse);
            xq[i] += weights[k + i] * (x[k + i] * q);
            qq[i] += weights[k + i] * (q * q);
        }
    float above = 0, below = 0;
    for (int i = 0; i < 8; i++) {
        above += xq[i];
        below += qq[i];
    }
    return below > 0 ? above / below : 0;
}

static float squared_error(const float *x, const float *weights, float scale) {
    const float inverse = scale > 0 ? 1 / scale : 0;
    float sum[8] = {0}, all = 0;
    for (int k = 0; k < INT4_GROUP; k += 8)
        for (int i = 0; i < 8; i++) {
            const float off = x[k + i] - scale * int4_integer(x[k + i], inverse);
            sum[i] += weights[k + i] * (off * off);
        }
    for (int i = 0; i < 8; i++) all += sum[i];
    return all;
}

// Squares of values beyond 2^60 would pass F32's range, those of values below 2^-60 would vanish, and so the errors
// could not be compared: such a group gets a plain scale, or becomes zeros.
float int4_best_scale(const float *x, const float *weights, enum dtype t) {
    float most = 0, best = 0, least = INFINITY;
    for (int k = 0; k < INT4_GROUP; k++) most = fmaxf(most, fabsf(x[k]));
    if (most < 0x1p-60f) return 0;
    if (most > 0x1p60f) return rounded(most / 7, t);
    for (int i = 0; i < CANDIDATES; i++) {
        const float scale =
            rounded(fitted(x, weights, (4 + 5.0f * (float)i / (CANDIDATES - 1)) / most), t);
        const float off = squared_error(x, weights, scale);
        if (off >= least) continue;
        least = off;
        best = scale;
    }
    return best;
}

int int4_quantize_row(const struct tensor_view *v, int64_t row, enum dtype scale_dtype,
                      const float *weights, uint32_t *codes, float *scales, float *work) {
    float largest, ones[INT4_GROUP];
    for (int k = 0; k < INT4_GROUP; k++) ones[k] = 1;
    TRY(wide_row(v, row, work, &largest));
    for (int64_t g = 0; g < v->cols / INT4_GROUP; g++) {
        const float *x = work + g * INT4_GROUP;
        const float scale = scales[g] =
            int4_best_scale(x, weights ? weights + g * INT4_GROUP : ones, scale_dtype);
        if (!isfinite(scale)) return E_INVAL;
        const float inverse = scale > 0 ? 1 / scale : 0;
        for (int k = 0; k < INT4_GROUP; k++) {
            uint32_t *word = &codes[(g * INT4_GROUP + k) / 8];
            if (k % 8 == 0) *word = 0;
            *word |= (uint32_t)((int)int4_integer(x[k], inverse) + 8) << 4 * (k % 8);
        }
    }
    return 0;
}
