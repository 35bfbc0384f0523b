// Widens 8-bit weights to T (f16 or bf16) in registers, exactly, for the tensor cores. Of a word
// with four values, widen_low gives the first two as a register of two T (the first in the low
// half), widen_high the last two. W is the word's type, int8_t or e4m3. T holds every e4m3 number:
// bf16 and f16 have more exponent and more fraction bits. No code is a NaN (kernels/fp8.h).
#pragma once
#include "kernels/cuda/mma.cuh"

template <typename T> __device__ __forceinline__ uint32_t widen_low(uint32_t four, T t, int8_t) {
    return widen_low(four, t);
}
template <typename T> __device__ __forceinline__ uint32_t widen_high(uint32_t four, T t, int8_t) {
    return widen_high(four, t);
}

// Two numbers, in the low half of `pair`, as f16: one instruction from Ada on. Before, by their
// bits: f16 has the same fields with one exponent bit more, and its bias is larger by 8.
__device__ __forceinline__ uint32_t e4m3_pair(uint32_t pair, __half) {
    uint32_t v;
#if __CUDA_ARCH__ >= 890
    asm("{.reg .b16 two; cvt.u16.u32 two, %1; cvt.rn.f16x2.e4m3x2 %0, two;}" : "=r"(v) : "r"(pair));
#else
    uint32_t bits = __byte_perm(pair, 0, 0x1404), factor = 0x5c005c00u; // 256, 256
    bits = (bits & 0x80008000u) | (bits >> 1 & 0x3f803f80u);
    __half2 wide = __hmul2(*(__half2 *)&bits, *(__half2 *)&factor);
    v = *(uint32_t *)&wide;
#endif
    return v;
}

// As bf16 over f16 and F32, four instructions for two. Moved by bits and multiplied by 2^120 it is
// five, most of them for the integer unit, which the address arithmetic wants too: a decode step's
// matrices took 13 % longer (Llama-8B on one H200).
__device__ __forceinline__ uint32_t e4m3_pair(uint32_t pair, __nv_bfloat16) {
    uint32_t half = e4m3_pair(pair, __half());
    float2 wide = __half22float2(*(__half2 *)&half);
    return pack2<__nv_bfloat16>(wide.x, wide.y);
}

template <typename T> __device__ __forceinline__ uint32_t widen_low(uint32_t four, T t, e4m3) {
    return e4m3_pair(four, t);
}
template <typename T> __device__ __forceinline__ uint32_t widen_high(uint32_t four, T t, e4m3) {
    return e4m3_pair(four >> 16, t);
}
