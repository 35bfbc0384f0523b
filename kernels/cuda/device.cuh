// Shared by kernels: loads and stores of T as F32, sums over a warp or a block in one fixed order,
// and the switch from a dtype to a template's T.
#pragma once
#include "kernels/cuda/cuda.h"
#include <cuda_bf16.h>
#include <cuda_fp16.h>

// Exact; from_float rounds to nearest even.
__device__ __forceinline__ float to_float(float v) {
    return v;
}
__device__ __forceinline__ float to_float(__half v) {
    return __half2float(v);
}
__device__ __forceinline__ float to_float(__nv_bfloat16 v) {
    return __bfloat162float(v);
}
template <typename T> __device__ __forceinline__ T from_float(float v);
template <> __device__ __forceinline__ float from_float<float>(float v) {
    return v;
}
template <> __device__ __forceinline__ __half from_float<__half>(float v) {
    return __float2half_rn(v);
}
template <> __device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float v) {
    return __float2bfloat16_rn(v);
}

// Rounded to T, as if stored and loaded.
template <typename T> __device__ __forceinline__ float rounded(float v) {
    return to_float(from_float<T>(v));
}

struct e4m3 { // names the type of a number; its bits are never a number to C++
    uint8_t code;
};

// An e4m3 number that is no NaN: its bits, put where F32 has exponent and fraction, are it times
// 2^-120.
__device__ __forceinline__ float e4m3_as_float(uint8_t b) {
    return __uint_as_float((uint32_t)(b & 0x80) << 24 | (uint32_t)(b & 0x7f) << 20) *
           1.329227995784916e36f;
}

// One element of a buffer whose dtype is known at run time only: for kernels where that is cheap.
__device__ __forceinline__ float load_as_float(const void *p, enum dtype t, int64_t i) {
    if (t == DTYPE_BF16) return to_float(((const __nv_bfloat16 *)p)[i]);
    if (t == DTYPE_F16) return to_float(((const __half *)p)[i]);
    if (t == DTYPE_I8) return (float)((const int8_t *)p)[i];
    if (t == DTYPE_F8_E4M3) return e4m3_as_float(((const uint8_t *)p)[i]);
    return ((const float *)p)[i];
}
// No 8-bit types.
__device__ __forceinline__ void store_from_float(void *p, enum dtype t, int64_t i, float v) {
    if (t == DTYPE_BF16)
        ((__nv_bfloat16 *)p)[i] = from_float<__nv_bfloat16>(v);
    else if (t == DTYPE_F16)
        ((__half *)p)[i] = from_float<__half>(v);
    else
        ((float *)p)[i] = v;
}

// The sum over a warp, in every lane, in one fixed order.
__device__ __forceinline__ float warp_sum(float v) {
    for (int step = 16; step > 0; step >>= 1) v += __shfl_xor_sync(0xffffffffu, v, step);
    return v;
}
__device__ __forceinline__ float warp_max(float v) { // a NaN loses
    for (int step = 16; step > 0; step >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, step));
    return v;
}

// The sum over a block of up to 1024 threads (a multiple of 32), in every thread. Ends with all
// threads past their reads of the shared words, so that it may be called again at once.
__device__ __forceinline__ float block_sum(float v) {
    __shared__ float part[32];
    int warps = (int)blockDim.x / 32, lane = (int)threadIdx.x % 32;
    v = warp_sum(v);
    if (lane == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = warp_sum(lane < warps ? part[lane] : 0.0f);
    __syncthreads();
    return v;
}

// Where a position's cache block begins its layer: its K for head 0. -1 blocks are never asked for.
__device__ __forceinline__ int32_t kv_block(const struct cuda_batch &b, const struct cuda_seq &s,
                                            int32_t position) {
    int32_t logical = position / s.block_tokens;
    int32_t slot = logical < s.n_sink_blocks
                       ? logical
                       : s.n_sink_blocks + (logical - s.n_sink_blocks) % s.n_ring_blocks;
    return b.maps[s.map + slot];
}

// T by dtype, one line for each kind at the bottom of a file:
//     DISPATCH(dtype, launch<T>(...));
#define DISPATCH(dtype_, ...)                                                                      \
    do {                                                                                           \
        if ((dtype_) == DTYPE_BF16) {                                                              \
            using T = __nv_bfloat16;                                                               \
            __VA_ARGS__;                                                                           \
        } else if ((dtype_) == DTYPE_F16) {                                                        \
            using T = __half;                                                                      \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            using T = float;                                                                       \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)
