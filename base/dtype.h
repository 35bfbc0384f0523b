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
