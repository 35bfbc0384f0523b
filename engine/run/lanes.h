// Four floats at a time, and the exponential that the sampler uses. Written with the compilers'
// vector types, so the same source gives SSE2, NEON or scalar code, and the same bits from each:
// every step is one IEEE operation.
#pragma once
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef float f32x4 __attribute__((vector_size(16)));
typedef int32_t i32x4 __attribute__((vector_size(16)));
typedef uint32_t u32x4 __attribute__((vector_size(16)));
typedef int64_t i64x2 __attribute__((vector_size(16)));

// Loops walk the logits in chunks of four vectors.
enum { CHUNK = 16 };
struct chunk {
    f32x4 v[4];
};

static inline f32x4 f32x4_splat(float x) {
    return (f32x4){x, x, x, x};
}

static inline f32x4 f32x4_select(i32x4 mask, f32x4 a, f32x4 b) {
    return (f32x4)((mask & (i32x4)a) | (~mask & (i32x4)b));
}
static inline f32x4 f32x4_max(f32x4 a, f32x4 b) {
    return f32x4_select(a > b, a, b);
}
static inline f32x4 f32x4_min(f32x4 a, f32x4 b) {
    return f32x4_select(a < b, a, b);
}
static inline bool i32x4_any(i32x4 mask) {
    return ((i64x2)mask)[0] | ((i64x2)mask)[1];
}

// x[0 .. left), at most CHUNK values; missing values read as -inf, a token of probability 0.
static inline struct chunk chunk_load(const float *x, int32_t left) {
    struct chunk c;
    if (left < CHUNK) {
        for (int k = 0; k < 4; k++) c.v[k] = f32x4_splat(-INFINITY);
        memcpy(&c, x, (size_t)left * sizeof *x);
    } else {
        memcpy(&c, x, sizeof c);
    }
    return c;
}

// e^x for x <= 0, within 2 units in the last place; 0 below EXP_MIN, where the result would leave
// the normal floats; NaN for NaN. x = n ln2 + r with |r| <= ln2/2, then Taylor's series of e^r to
// r^7 (its remainder is under 1e-8) times 2^n.
#define EXP_MIN (-87.0f)
static inline f32x4 exp_nonpositive(f32x4 x) {
    // 1.5 * 2^23: adding it leaves n in the mantissa's low bits
    const float to_integer = 12582912.0f;
    f32x4 shifted = x * 1.44269504f + to_integer;
    f32x4 n = shifted - to_integer;
    // ln2 in two parts; the first has few bits, so n times it is exact
    f32x4 r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    f32x4 y = f32x4_splat(1.0f / 5040);
    y = y * r + 1.0f / 720;
    y = y * r + 1.0f / 120;
    y = y * r + 1.0f / 24;
    y = y * r + 1.0f / 6;
    y = y * r + 0.5f;
    y = y * r + 1.0f;
    y = y * r + 1.0f;
    u32x4 exponent = ((u32x4)shifted - (u32x4)f32x4_splat(to_integer) + 127) << 23;
    return f32x4_select(x < EXP_MIN, f32x4_splat(0), y * (f32x4)exponent);
}
