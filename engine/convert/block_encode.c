// See block_encode.h.
#include "engine/convert/block_encode.h"
#include "base/dtype.h"
#include <math.h>
#include <string.h>

enum { BLOCK = 32, CANDIDATES = 24 };

static void put_half(uint8_t *out, uint16_t half) {
    out[0] = (uint8_t)half;
    out[1] = (uint8_t)(half >> 8);
}

// To the nearest integer, ties to even: the sum has no room for a fraction.
static float nearest(float v) {
    const float magic = 12582912; // 1.5 * 2^23
    return (v + magic) - magic;
}

// --- Q8_0: the largest magnitude is 127 ---

static int encode_q8_0(uint8_t *out, const float *x) {
    float most = 0;
    for (int k = 0; k < BLOCK; k++) most = fmaxf(most, fabsf(x[k]));
    const float scale = most / 127, inverse = scale > 0 ? 1 / scale : 0;
    const uint16_t half = f16_from_f32(scale);
    if (!isfinite(f16_to_f32(half))) return E_INVAL;
    put_half(out, half);
    for (int k = 0; k < BLOCK; k++)
        out[2 + k] = (uint8_t)(int8_t)(isfinite(inverse) ? nearest(x[k] * inverse) : 0);
    return 0;
}

// --- Q4_0: integers of -8 to 7 ---

static float integer_of(float x, float inverse) {
    const float q = nearest(x * inverse);
    return q < -8 ? -8 : q > 7 ? 7 : q;
}

// The scale that fits x best, given the integers that `inverse` makes of it.
static float fitted(const float *x, float inverse) {
    float above = 0, below = 0;
    for (int k = 0; k < BLOCK; k++) {
        const float q = integer_of(x[k], inverse);
        above += x[k] * q;
        below += q * q;
    }
    return below > 0 ? above / below : 0;
}

static float squared_error(const float *x, float scale) {
    const float inverse = scale != 0 ? 1 / scale : 0;
    float sum = 0;
    for (int k = 0; k < BLOCK; k++) {
        const float off = x[k] - scale * integer_of(x[k], inverse);
        sum += off * off;
    }
    return sum;
}

// -8 has no counterpart, so the scale has the sign that gives -8 to the largest magnitude. Blocks of magnitudes whose
// squares F32 does not hold get that value's scale, without a search.
static float best_scale(const float *x) {
    float largest = 0;
    for (int k = 0; k < BLOCK; k++)
        if (fabsf(x[k]) > fabsf(largest)) largest = x[k];
    float best = f16_to_f32(f16_from_f32(largest / -8)), least = INFINITY;
    if (fabsf(largest) < 0x1p-60f || fabsf(largest) > 0x1p60f) return best;
    for (int i = 0; i < CANDIDATES; i++) {
        const float step = -(6.5f + 3.0f * (float)i / (CANDIDATES - 1)) / largest;
        const float scale = f16_to_f32(f16_from_f32(fitted(x, step)));
        const float off = squared_error(x, scale);
        if (!(off < least)) continue;
        least = off;
        best = scale;
    }
    return best;
}

static int encode_q4_0(uint8_t *out, const float *x) {
    const float scale = best_scale(x), inverse = scale != 0 ? 1 / scale : 0;
    if (!isfinite(scale)) return E_INVAL;
    put_half(out, f16_from_f32(scale));
    for (int k = 0; k < BLOCK / 2; k++) {
        const int low = (int)integer_of(x[k], inverse) + 8;
        const int high = (int)integer_of(x[k + BLOCK / 2], inverse) + 8;
        out[2 + k] = (uint8_t)(low | high << 4);
    }
    return 0;
}

// --- MXFP4: e2m1 numbers times a power of two ---

static uint8_t e2m1_of(float x) {
    static const float numbers[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    const float size = fabsf(x);
    uint8_t code = 0;
    while (code < 7 && size > (numbers[code] + numbers[code + 1]) / 2) code++;
    return (uint8_t)(code | (x < 0 ? 8 : 0));
}

// The largest magnitude becomes 4 to 6, or a number that rounds to 6. Values that e2m1 numbers times another power give
// are exact so too: where that power is smaller than theirs, none of them was more than 3, and all double.
static int encode_mxfp4(uint8_t *out, const float *x) {
    float most = 0;
    int power = -127;
    for (int k = 0; k < BLOCK; k++) most = fmaxf(most, fabsf(x[k]));
    if (!isfinite(most)) return E_INVAL;
    if (most > 0) frexpf(most, &power), power -= 3;
    power = power < -127 ? -127 : power;
    out[0] = (uint8_t)(power + 127);
    for (int k = 0; k < BLOCK / 2; k++)
        out[1 + k] = (uint8_t)(e2m1_of(ldexpf(x[k], -power)) |
                               e2m1_of(ldexpf(x[k + BLOCK / 2], -power)) << 4);
    return 0;
}

// --- floats ---

static int encode_f16(uint8_t *out, const float *x) {
    const uint16_t half = f16_from_f32(*x);
    put_half(out, half);
    return isfinite(f16_to_f32(half)) ? 0 : E_INVAL;
}

static int encode_bf16(uint8_t *out, const float *x) {
    const uint16_t half = bf16_from_f32(*x);
    put_half(out, half);
    return isfinite(bf16_to_f32(half)) ? 0 : E_INVAL;
}

static int encode_f32(uint8_t *out, const float *x) {
    uint32_t bits;
    memcpy(&bits, x, sizeof bits);
    put_half(out, (uint16_t)bits);
    put_half(out + 2, (uint16_t)(bits >> 16));
    return 0;
}

int block_encode_row(const struct block_type *type, const float *row, int64_t n, uint8_t *out) {
    static const struct {
        enum block_id id;
        int (*encode)(uint8_t *out, const float *x);
    } encoders[] = {{BLOCK_F32, encode_f32},   {BLOCK_F16, encode_f16},
                    {BLOCK_BF16, encode_bf16}, {BLOCK_Q8_0, encode_q8_0},
                    {BLOCK_Q4_0, encode_q4_0}, {BLOCK_MXFP4, encode_mxfp4}};
    for (size_t i = 0; i < sizeof encoders / sizeof *encoders; i++) {
        if (encoders[i].id != (enum block_id)type->id) continue;
        for (int64_t k = 0; k < n; k += type->values, out += type->bytes)
            TRY(encoders[i].encode(out, row + k));
        return 0;
    }
    return E_UNSUPPORTED;
}
