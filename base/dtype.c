// Names and sizes of number formats; half precision by integer arithmetic. See dtype.h.
#include "base/dtype.h"
#include "base/err.h"

static const struct {
    const char *name;
    size_t size;
} dtypes[DTYPE_COUNT] = {
    [DTYPE_F32] = {"f32", 4}, [DTYPE_F16] = {"f16", 2},   [DTYPE_BF16] = {"bf16", 2},
    [DTYPE_I8] = {"i8", 1},   [DTYPE_I32] = {"i32", 4},   [DTYPE_I64] = {"i64", 8},
    [DTYPE_U8] = {"u8", 1},   [DTYPE_BOOL] = {"bool", 1}, [DTYPE_F8_E4M3] = {"f8_e4m3", 1},
};

size_t dtype_size(enum dtype t) {
    return dtypes[t].size;
}

const char *dtype_name(enum dtype t) {
    return dtypes[t].name;
}

int dtype_parse(const char *name, enum dtype *out) {
    for (int t = 0; t < DTYPE_COUNT; t++) {
        if (strcmp(name, dtypes[t].name) != 0) continue;
        *out = (enum dtype)t;
        return 0;
    }
    return E_INVAL;
}

// IEEE 754 binary16: 1 sign, 5 exponent (bias 15), 10 fraction bits; binary32: 1, 8 (bias 127), 23.
// NaNs come out quiet with their payload, as F16C's vcvtph2ps and vcvtps2ph give them, so that the
// portable path and the vector path agree in every bit.
float f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, fraction = h & 0x3ff;
    uint32_t u;
    if (exponent == 31) {
        u = sign | 0x7f800000u | (fraction ? 0x400000u | fraction << 13 : 0);
    } else if (exponent > 0) {
        u = sign | (exponent + 112) << 23 | fraction << 13;
    } else if (fraction == 0) {
        u = sign;
    } else {
        // Subnormal: fraction * 2^-24. Shift the leading one up to the place of the implicit bit.
        int shift = __builtin_clz(fraction) - 21;
        u = sign | (uint32_t)(113 - shift) << 23 | ((fraction << shift) & 0x3ff) << 13;
    }
    float f;
    memcpy(&f, &u, 4);
    return f;
}

// value >> shift, rounded to nearest, ties to even.
static uint32_t shift_round(uint32_t value, int shift) {
    uint32_t half = 1u << (shift - 1), odd = (value >> shift) & 1;
    return (value + half - 1 + odd) >> shift;
}

uint16_t f16_from_f32(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    uint32_t sign = (u >> 16) & 0x8000, magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
    if (magnitude >= 0x47800000u) return (uint16_t)(sign | 0x7c00); // 65536 and up: infinity
    if (magnitude >= 0x38800000u) // 2^-14 and up: a carry out of the fraction is right, to infinity
        return (uint16_t)(sign | (shift_round(magnitude, 13) - (112u << 10)));
    if (magnitude < 0x33000000u) return (uint16_t)sign; // below 2^-25: zero
    int shift = 126 - (int)(magnitude >> 23);           // subnormal: in units of 2^-24
    return (uint16_t)(sign | shift_round((magnitude & 0x7fffff) | 0x800000, shift));
}
