// The vector of one instruction set, so that every kernel is written once (*.inc) and compiled once
// for each set (kernels_*.c): VL floats in a `vf`, with GCC's operators (+ - * / and comparisons)
// and the few functions below. Only for files that are compiled with one set's flags.
//
// A lane never sees another lane's values except in the v_h* functions, which reduce in one fixed
// order.
#pragma once
#include "base/dtype.h"
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define VEC_INLINE static inline __attribute__((always_inline))

// Prefetches a line of weights into L2. A core can have about twice as many outstanding lines there
// as in L1, and their number limits its share of the memory bandwidth (README.md, "Rates").
VEC_INLINE void prefetch_l2(const void *line) {
    __builtin_prefetch(line, 0, 2);
}

#if defined(__AVX512F__)
#include <immintrin.h>
enum { VL = 16 };
typedef __m512 vf;
#elif defined(__AVX2__)
#include <immintrin.h>
enum { VL = 8 };
typedef __m256 vf;
#else
#if defined(__SSE2__)
#include <emmintrin.h>
#endif
enum { VL = 4 };
typedef float vf __attribute__((vector_size(16)));
#endif
typedef int32_t vmask __attribute__((vector_size(sizeof(vf)))); // a comparison's result: 0 or -1
// Unaligned, and may alias the buffers' own types.
typedef vf vf_unaligned __attribute__((aligned(4), may_alias));
typedef vmask vi_unaligned __attribute__((aligned(4), may_alias));

// Pointers need no alignment beyond their type's. Loads and stores below take VL elements.
VEC_INLINE vf v_load(const float *p) {
    return *(const vf_unaligned *)p;
}
VEC_INLINE void v_store(float *p, vf v) {
    *(vf_unaligned *)p = v;
}
VEC_INLINE vf v_set1(float x) {
    return x - (vf){0};
}
VEC_INLINE vf v_zero(void) {
    return (vf){0};
}
VEC_INLINE vmask v_bits(vf v) {
    return (vmask)v;
}
// A lane of `yes` where m is -1, of `no` where it is 0.
VEC_INLINE vf v_select(vmask m, vf yes, vf no) {
    return (vf)((m & (vmask)yes) | (~m & (vmask)no));
}
VEC_INLINE vf v_abs(vf v) {
    return (vf)((vmask)v & 0x7fffffff);
}
VEC_INLINE vf v_iota(void) {
    vf v;
    for (int i = 0; i < VL; i++) v[i] = (float)i;
    return v;
}

// a * b + c. Fused where the set has it; twice rounded in the portable build.
VEC_INLINE vf v_fma(vf a, vf b, vf c) {
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
    return _mm256_fmadd_ps(a, b, c);
#else
    return a * b + c;
#endif
}

// Where one lane is NaN, v_max and v_min give b.
VEC_INLINE vf v_max(vf a, vf b) {
#if defined(__AVX512F__)
    return _mm512_max_ps(a, b);
#elif defined(__AVX2__)
    return _mm256_max_ps(a, b);
#else
    return v_select(a > b, a, b);
#endif
}

VEC_INLINE vf v_min(vf a, vf b) {
#if defined(__AVX512F__)
    return _mm512_min_ps(a, b);
#elif defined(__AVX2__)
    return _mm256_min_ps(a, b);
#else
    return v_select(a < b, a, b);
#endif
}

// Makes the compiler read through p again, where that is cheaper than a register.
#define v_reload(p) __asm__("" : "+r"(p))

// Sum and maximum over the lanes, by halves.
VEC_INLINE float v_hsum(vf v) {
    float t[VL];
    v_store(t, v);
    for (int w = VL / 2; w > 0; w /= 2)
        for (int i = 0; i < w; i++) t[i] += t[i + w];
    return t[0];
}
VEC_INLINE float v_hmax(vf v) {
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps(v);
#else
    float t[VL];
    v_store(t, v);
    for (int w = VL / 2; w > 0; w /= 2)
        for (int i = 0; i < w; i++) t[i] = t[i] > t[i + w] ? t[i] : t[i + w];
    return t[0];
#endif
}

// The first n < VL elements; the others read as 0 and are not touched.
VEC_INLINE vf v_load_n(const float *p, int n) {
#if defined(__AVX512F__)
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
#else
    float t[VL] = {0};
    for (int i = 0; i < n; i++) t[i] = p[i];
    return v_load(t);
#endif
}
VEC_INLINE void v_store_n(float *p, vf v, int n) {
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), v);
#else
    float t[VL];
    v_store(t, v);
    for (int i = 0; i < n; i++) p[i] = t[i];
#endif
}

// The largest magnitude of n values; infinity if one is a NaN.
VEC_INLINE float v_largest(const float *x, int32_t n) {
    vf most = v_zero();
    vmask odd = {0}; // lanes that hold a NaN, which a maximum may ignore
    int32_t i = 0;
    for (; i + VL <= n; i += VL) {
        vf v = v_abs(v_load(x + i));
        most = v_max(most, v);
        odd |= v != v;
    }
    if (i < n) {
        vf v = v_abs(v_load_n(x + i, n - i));
        most = v_max(most, v);
        odd |= v != v;
    }
    return v_hmax(v_select(odd, v_set1(INFINITY), most));
}

// VL f16 values widened.
VEC_INLINE vf v_load_f16(const uint16_t *p) {
#if defined(__AVX512F__)
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
#elif defined(__AVX2__)
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
#else
    vf v;
    for (int i = 0; i < VL; i++) v[i] = f16_to_f32(p[i]);
    return v;
#endif
}
VEC_INLINE void v_store_f16(uint16_t *p, vf v) {
#if defined(__AVX512F__)
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__AVX2__)
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
#else
    for (int i = 0; i < VL; i++) p[i] = f16_from_f32(v[i]);
#endif
}
// VL bf16 values widened.
VEC_INLINE vf v_load_bf16(const uint16_t *p) {
#if defined(__AVX512F__)
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16);
#elif defined(__AVX2__)
    return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16);
#else
    vf v;
    for (int i = 0; i < VL; i++) v[i] = bf16_to_f32(p[i]);
    return v;
#endif
}
VEC_INLINE void v_store_bf16(uint16_t *p, vf v) {
    float t[VL];
    v_store(t, v);
    for (int i = 0; i < VL; i++) p[i] = bf16_from_f32(t[i]);
}
// VL e4m3 values, no NaN among them, times 2^-8: f16 has the same fields with one exponent bit
// more, and its bias is larger by 8. So two operations and f16's own widening do, and denormals
// need no case of their own.
VEC_INLINE vf v_load_e4m3(const uint8_t *p) {
#if defined(__AVX512F__)
    __m256i b = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p));
    return _mm512_cvtph_ps(
        _mm256_and_si256(_mm256_slli_epi16(b, 7), _mm256_set1_epi16((short)0xbfff)));
#elif defined(__AVX2__)
    __m128i b = _mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i *)p));
    return _mm256_cvtph_ps(_mm_and_si128(_mm_slli_epi16(b, 7), _mm_set1_epi16((short)0xbfff)));
#else
    vf v;
    for (int i = 0; i < VL; i++) v[i] = e4m3_to_f32(p[i]) * 0.00390625f;
    return v;
#endif
}
// VL pairs of bf16 of a weight's panel: the first and the second of each pair, widened.
VEC_INLINE vf v_pair_even(vmask raw) {
    return (vf)(raw << 16);
}
VEC_INLINE vf v_pair_odd(vmask raw) {
    return (vf)(raw & (int32_t)0xffff0000);
}
VEC_INLINE vmask v_load_pairs(const void *p) { // bf16, for the two above
    return *(const vi_unaligned *)p;
}

// --- integers: 4 bytes a lane
typedef uint16_t vu16 __attribute__((vector_size(sizeof(vf)))); // the same register by halves
typedef uint32_t vu32 __attribute__((vector_size(sizeof(vf))));
VEC_INLINE void v_store_i32(int32_t *p, vmask v) {
    *(vi_unaligned *)p = v;
}
// The same four bytes in every lane.
VEC_INLINE vmask v_set1_quad(const void *p) {
    int32_t quad;
    memcpy(&quad, p, sizeof quad);
    return quad - (vmask){0};
}
// To the nearest integer, ties to even. A value out of range, or NaN, gives an arbitrary integer.
VEC_INLINE vmask v_nearest(vf v) {
#if defined(__AVX512F__)
    return (vmask)_mm512_cvtps_epi32(v);
#elif defined(__AVX2__)
    return (vmask)_mm256_cvtps_epi32(v);
#elif defined(__SSE2__)
    return (vmask)_mm_cvtps_epi32((__m128)v);
#else
    vmask out;
    for (int i = 0; i < VL; i++)
        out[i] = v[i] >= -2147483648.0f && v[i] < 2147483648.0f ? (int32_t)rintf(v[i]) : INT32_MIN;
    return out;
#endif
}
// VL integers of 8 bits widened.
VEC_INLINE vf v_load_i8(const void *p) {
#if defined(__AVX512F__)
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
#elif defined(__AVX2__)
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
#else
    vf v;
    for (int i = 0; i < VL; i++) v[i] = (float)((const int8_t *)p)[i];
    return v;
#endif
}
VEC_INLINE vf v_load_u8(const void *p) {
#if defined(__AVX512F__)
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)));
#elif defined(__AVX2__)
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)));
#else
    vf v;
    for (int i = 0; i < VL; i++) v[i] = (float)((const uint8_t *)p)[i];
    return v;
#endif
}
// Each byte, 0 .. 15, replaced by that number of the table.
VEC_INLINE vmask v_choose_bytes(const uint8_t table[16], vmask index) {
#if defined(__AVX512F__)
    __m128i t = _mm_loadu_si128((const __m128i *)table);
    return (vmask)_mm512_shuffle_epi8(_mm512_broadcast_i32x4(t), (__m512i)index);
#elif defined(__AVX2__)
    __m128i t = _mm_loadu_si128((const __m128i *)table);
    return (vmask)_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(t), (__m256i)index);
#else
    uint8_t b[sizeof index];
    memcpy(b, &index, sizeof b);
    for (size_t i = 0; i < sizeof b; i++) b[i] = table[b[i] & 15];
    memcpy(&index, b, sizeof b);
    return index;
#endif
}
// The low byte of each lane.
VEC_INLINE void v_store_low_bytes(void *p, vmask v) {
#if defined(__AVX512F__)
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8((__m512i)v));
#else
    for (int i = 0; i < VL; i++) ((uint8_t *)p)[i] = (uint8_t)v[i];
#endif
}
// To e4m3, as e4m3_from_f32 does, in the low byte of each lane; NaN gives an arbitrary byte.
VEC_INLINE vmask v_to_e4m3(vf v) {
    vmask magnitude = v_bits(v) & 0x7fffffff, sign = (v_bits(v) >> 24) & 0x80;
    vmask code = ((magnitude + 0x7ffff + ((magnitude >> 20) & 1)) >> 20) - (120 << 3);
    vmask fine = v_nearest(v_abs(v) * v_set1(512.0f)), few = magnitude < 0x3c800000; // below 2^-6
    code = (few & fine) | (~few & code);
    vmask most = code > 0x7e;
    return sign | (most & 0x7e) | (~most & code);
}
// In each 16 bits the upper byte.
VEC_INLINE vmask v_shift_right16_8(vmask v) {
    return (vmask)((vu16)v >> 8);
}
// The sum of a lane's two products of signed 16-bit halves.
VEC_INLINE vmask v_madd16(vmask a, vmask b) {
#if defined(__AVX512F__)
    return (vmask)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (vmask)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (vmask)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
    return ((a << 16) >> 16) * ((b << 16) >> 16) + (a >> 16) * (b >> 16);
#endif
}
// sum + a lane's four products of unsigned bytes (a) and signed bytes (b).
#if defined(__AVX512VNNI__)
VEC_INLINE vmask v_dot8(vmask sum, vmask a, vmask b) {
    return (vmask)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
}
#elif defined(__AVXVNNI__)
VEC_INLINE vmask v_dot8(vmask sum, vmask a, vmask b) {
    return (vmask)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)a, (__m256i)b);
}
#endif

// Elements [i, i + VL) of F32, F16 or BF16, widened.
VEC_INLINE vf v_load_as(enum dtype t, const void *p, int64_t i) {
    if (t == DTYPE_F16) return v_load_f16((const uint16_t *)p + i);
    if (t == DTYPE_BF16) return v_load_bf16((const uint16_t *)p + i);
    return v_load((const float *)p + i);
}

// e^x to about 1 ulp; e^0 is exactly 1, e^-inf exactly 0, NaN stays NaN. Results below 2^-126
// become 0. x = n ln 2 + r with |r| <= ln 2 / 2; ln 2 in two parts so that r is exact; e^r by its
// Taylor polynomial of degree 7, whose remainder there (r^8 / 8! < 5.2e-9) is below an F32
// rounding.
VEC_INLINE vf v_exp(vf x) {
    // 1.5 * 2^23: adding it rounds to an integer in the low mantissa bits
    const float magic = 12582912.0f;
    vf clamped = v_min(v_max(x, v_set1(-104.0f)), v_set1(89.0f));
    vf shifted = v_fma(clamped, v_set1(1.44269504088896341f), v_set1(magic));
    vf n = shifted - v_set1(magic);
    vf r = v_fma(n, v_set1(-0.693145751953125f), clamped); // 0x3f317200: 15 bits, exact times n
    r = v_fma(n, v_set1(-1.42860682030941723e-6f), r);
    vf p = v_set1(1.0f / 5040);
    p = v_fma(p, r, v_set1(1.0f / 720));
    p = v_fma(p, r, v_set1(1.0f / 120));
    p = v_fma(p, r, v_set1(1.0f / 24));
    p = v_fma(p, r, v_set1(1.0f / 6));
    p = v_fma(p, r, v_set1(0.5f));
    p = v_fma(p * r, r, r) + v_set1(1.0f);
    // 2^n by adding n to the exponent, in two halves so that n = 128 (e^88.5) does not overflow
    // early.
    vmask e = v_bits(shifted) - v_bits(v_set1(magic));
    vmask half = e >> 1;
    p = p * (vf)((half + 127) << 23) * (vf)((e - half + 127) << 23);
    p = v_select(x < v_set1(-87.33654f), v_zero(), p);
    p = v_select(x > v_set1(88.72283f), v_set1(INFINITY), p);
    return v_select(x == x, p, x);
}
