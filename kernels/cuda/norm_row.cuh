// The arithmetic of a norm, for norm.cu and for linears that norm x on its way in: both give the
// same bits. A row of 16-bit T is cut into vectors of 16 bytes; a sum runs over a vector's
// elements, then over 32 neighbouring vectors by halves (warp_sum), then over these likewise: up to
// 8,192 elements.
#pragma once
#include "kernels/cuda/device.cuh"

enum { NORM_VECTORS_MOST = 1024 };

// Contractions are explicit, so that the compiler gives the same bits in every kernel.
__device__ __forceinline__ float norm_square_added(float sum, float v, float mean) {
    float d = __fsub_rn(v, mean);
    return __fmaf_rn(d, d, sum);
}
// squares: their sum over the row. The roundings are spelled out: the compiler must not fuse them differently.
__device__ __forceinline__ float norm_scale(float squares, int32_t width, float eps) {
    return 1.0f / sqrtf(__fadd_rn(squares / (float)width, eps));
}
__device__ __forceinline__ float norm_result(float v, float mean, float scale, float weight) {
    return __fmul_rn(__fmul_rn(__fsub_rn(v, mean), scale), weight);
}

// A norm's constants for the vectors threadIdx.x, threadIdx.x + THREADS, ... of a row, of 8
// elements each. Loaded before the wait for x (pdl.cuh).
template <int VECTORS> struct norm_constants { float weight[VECTORS][8], bias[VECTORS][8]; };
// from: aligned to 16 bytes.
__device__ __forceinline__ void load_eight(float (&to)[8], const float *from) {
    float4 a = *(const float4 *)from, b = *(const float4 *)(from + 4);
    to[0] = a.x, to[1] = a.y, to[2] = a.z, to[3] = a.w;
    to[4] = b.x, to[5] = b.y, to[6] = b.z, to[7] = b.w;
}
template <int VECTORS, int THREADS>
__device__ __forceinline__ void norm_constants_load(struct norm_constants<VECTORS> &c,
                                                    const struct cuda_linear &a) {
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        int at = ((int)threadIdx.x + i * THREADS) * 8;
        if (at >= a.cols) continue;
        load_eight(c.weight[i], a.norm_weight + at);
        if (a.norm_bias) load_eight(c.bias[i], a.norm_bias + at);
    }
}

// One row, normed, to `to`; by the block's first THREADS threads. sync() is their barrier, of all
// threads if the block has no others. None after the last store.
template <typename T, int VECTORS, int THREADS, typename Sync>
__device__ __forceinline__ void norm_row(T *to, const T *x, const struct cuda_linear &a,
                                         const struct norm_constants<VECTORS> &c, Sync sync) {
    __shared__ float parts[2][NORM_VECTORS_MOST / 32];
    constexpr int WARPS = THREADS / 32;
    static_assert(VECTORS * WARPS <= NORM_VECTORS_MOST / 32, "more parts than there is room for");
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, n = a.cols / 8;
    const int warps = (n + 31) / 32; // with 32 vectors each
    float v[VECTORS][8], mean = 0.0f, sum;
    uint4 raw[VECTORS];
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        int at = (int)threadIdx.x + i * THREADS;
        raw[i] = at < n ? *(const uint4 *)(x + at * 8) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
#pragma unroll
        for (int e = 0; e < 8; e++) v[i][e] = to_float(((const T *)&raw[i])[e]);
    }
    if (a.norm == NORM_LAYER) {
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            sum = 0.0f;
#pragma unroll
            for (int e = 0; e < 8; e++) sum += v[i][e];
            sum = warp_sum(sum);
            if (lane == 0) parts[0][warp + i * WARPS] = sum;
        }
        sync();
        mean = warp_sum(lane < warps ? parts[0][lane] : 0.0f) / (float)a.cols;
    }
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        sum = 0.0f;
#pragma unroll
        for (int e = 0; e < 8; e++) sum = norm_square_added(sum, v[i][e], mean);
        sum = warp_sum((int)threadIdx.x + i * THREADS < n ? sum : 0.0f);
        if (lane == 0) parts[1][warp + i * WARPS] = sum;
    }
    sync();
    float scale = norm_scale(warp_sum(lane < warps ? parts[1][lane] : 0.0f), a.cols, a.norm_eps);
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        int at = (int)threadIdx.x + i * THREADS;
        if (at >= n) break;
#pragma unroll
        for (int e = 0; e < 8; e++) {
            float r = norm_result(v[i][e], mean, scale, c.weight[i][e]);
            ((T *)&raw[i])[e] = from_float<T>(a.norm_bias ? __fadd_rn(r, c.bias[i][e]) : r);
        }
        *(uint4 *)(to + at * 8) = raw[i];
    }
}
