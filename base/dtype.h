// Number formats of tensors, and the scalar conversions. Shared by .c and .cu.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum dtype {
    DTYPE_F32,
    DTYPE_F16,
    DTYPE_BF16,
    DTYPE_I8,
    DTYPE_I32,
    DTYPE_I64,
    DTYPE_U8,
    DTYPE_BOOL,
    DTYPE_F8_E4M3, // one sign, 4 exponent, 3 fraction bits; below
    DTYPE_COUNT
};

#ifdef __cplusplus // a .cu file is C++
extern "C" {
#endif
size_t dtype_size(enum dtype t);      // bytes of one element
const char *dtype_name(enum dtype t); // "f32", "bf16", ... as in configuration and JSON
int dtype_parse(const char *name, enum dtype *out); // the names above; E_INVAL
float f16_to_f32(uint16_t h);
uint16_t f16_from_f32(float f); // round to nearest even, overflow to infinity
#ifdef __cplusplus
}
#endif

// Exact: a bf16 is the upper half of an F32.
static inline float bf16_to_f32(uint16_t h) {
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}
// Round to nearest even; NaN stays NaN.
static inline uint16_t bf16_from_f32(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((u >> 16) | 0x40);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}

// e4m3 as neural networks have it (OCP 8-bit floating point, E4M3; torch's float8_e4m3fn): bias 7,
// denormals, no infinities, one NaN of each sign (0x7f, 0xff), so that 0x7e is 448, the largest.
// Neither conversion has a branch that a compiler cannot turn into a selection, so loops over them
// are vectorised.
#define E4M3_LARGEST 448.0f

// Exact; 0x7f and 0xff give NaN.
static inline float e4m3_to_f32(uint8_t b) {
    // Shifted into F32's exponent and fraction, the bits stand for the value times 2^-120, also
    // those of denormals.
    uint32_t u = (uint32_t)(b & 0x7f) << 20, sign = (uint32_t)(b & 0x80) << 24;
    float f;
    memcpy(&f, &u, 4);
    f *= 1.329227995784916e36f; // 2^120
    memcpy(&u, &f, 4);
    u = ((b & 0x7f) == 0x7f ? 0x7fc00000u : u) | sign;
    memcpy(&f, &u, 4);
    return f;
}
// Round to nearest even; values above 448, infinities included, become 448; NaN stays NaN.
static inline uint8_t e4m3_from_f32(float f) {
    uint32_t u, small_bits;
    memcpy(&u, &f, 4);
    uint32_t sign = (u >> 24) & 0x80, magnitude = u & 0x7fffffffu;
    uint32_t capped = magnitude < 0x43e00000u ? magnitude : 0x43e00000u; // 448
    uint32_t normal = ((capped + 0x7ffffu + ((capped >> 20) & 1)) >> 20) - (120u << 3);
    // Values below 2^-6 are multiples of 2^-9. After adding 2^14 they are in an F32's low bits.
    float small;
    memcpy(&small, &capped, 4);
    small += 16384.0f;
    memcpy(&small_bits, &small, 4);
    uint32_t code = capped >= 0x3c800000u ? normal : small_bits - 0x46800000u;
    return (uint8_t)(sign | (magnitude > 0x7f800000u ? 0x7f : code));
}
