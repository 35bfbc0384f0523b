// RMS norm, clipping and rotation of one head, for kv_write.cu and for fused attention (attention_own.cuh). By
// one warp, the head in shared memory as F32. Values are rounded to T where the separate ops would
// store them, and contractions are explicit, so fused and separate ops give the same bits.
#pragma once
#include "kernels/cuda/device.cuh"

template <typename T>
__device__ __forceinline__ void norm_head(float *head, int32_t dim, const float *weight, float eps,
                                          int32_t lane) {
    float sum = 0.0f;
    for (int32_t i = lane; i < dim; i += 32) sum = __fmaf_rn(head[i], head[i], sum);
    float scale = 1.0f / sqrtf(__fadd_rn(warp_sum(sum) / (float)dim, eps));
    for (int32_t i = lane; i < dim; i += 32)
        head[i] = rounded<T>(__fmul_rn(__fmul_rn(head[i], scale), weight[i]));
    __syncwarp();
}

template <typename T>
__device__ __forceinline__ void clip_head(float *head, int32_t dim, float clip, int32_t lane) {
    for (int32_t i = lane; i < dim; i += 32)
        head[i] = head[i] > clip ? rounded<T>(clip) : head[i] < -clip ? rounded<T>(-clip) : head[i];
    __syncwarp();
}

// q by its position (kernels/backend.h, query_beta).
template <typename T>
__device__ __forceinline__ void scale_head(float *head, int32_t dim, float beta, float length,
                                           int32_t position, int32_t lane) {
    const float by = 1.0f + beta * logf(1.0f + floorf((float)position / length));
    for (int32_t i = lane; i < dim; i += 32) head[i] = rounded<T>(__fmul_rn(head[i], by));
    __syncwarp();
}

// cos_sin: the row's rot_dim / 2 cosines, then sines.
template <typename T>
__device__ __forceinline__ void rotate_head(float *head, enum rope_style style, int32_t rot_dim,
                                            const float *cos_sin, int32_t lane) {
    int32_t half = rot_dim / 2;
    for (int32_t i = lane; i < half; i += 32) {
        int32_t at = style == ROPE_INTERLEAVED ? 2 * i : i;
        int32_t to = style == ROPE_INTERLEAVED ? 2 * i + 1 : i + half;
        float a = head[at], b = head[to], c = cos_sin[i], s = cos_sin[half + i];
        head[at] = rounded<T>(__fmaf_rn(a, c, -__fmul_rn(b, s)));
        head[to] = rounded<T>(__fmaf_rn(b, c, __fmul_rn(a, s)));
    }
    __syncwarp();
}
