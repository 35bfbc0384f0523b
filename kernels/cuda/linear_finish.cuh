// The end of a linear: scale and bias, activation or gate, the addition to y, the one rounding. For
// kernels in which a thread holds neighbouring outputs of one row of x.
#pragma once
#include "kernels/cuda/activation.cuh"

// v[i] is the sum of output row + i.
template <int N>
__device__ __forceinline__ void add_scale_and_bias(float (&v)[N], const struct cuda_linear &a,
                                                   int row) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        if (row + i >= a.rows) break;
        if (a.scale) v[i] *= a.scale[row + i];
        if (a.bias) v[i] += a.bias[row + i];
    }
}

// Loads y[at .. at + N), up to `end`, if the linear adds to y. Call it while the sums are still
// computed. aligned: y's rows are multiples of N.
template <typename T, int N>
__device__ __forceinline__ void load_before(float (&before)[N], const struct cuda_linear &a,
                                            int64_t at, int64_t end, bool aligned) {
    if (!a.add) return;
    struct alignas(N * sizeof(T)) piece {
        T of[N];
    } p;
    bool whole = aligned && !a.y_f32 && at + N <= end;
    if (whole) p = *(const struct piece *)((const T *)a.y + at);
#pragma unroll
    for (int i = 0; i < N; i++) {
        if (whole)
            before[i] = to_float(p.of[i]);
        else if (at + i < end)
            before[i] = a.y_f32 ? ((const float *)a.y)[at + i] : to_float(((const T *)a.y)[at + i]);
    }
}

template <typename T, int N>
__device__ __forceinline__ void store_outputs(const struct cuda_linear &a, int64_t at, int64_t end,
                                              float (&v)[N], const float (&before)[N],
                                              bool aligned) {
    if (a.add) {
#pragma unroll
        for (int i = 0; i < N; i++) v[i] += before[i];
    }
    if (!a.y_f32 && aligned && at + N <= end) {
        struct alignas(N * sizeof(T)) piece {
            T of[N];
        } p;
#pragma unroll
        for (int i = 0; i < N; i++) p.of[i] = from_float<T>(v[i]);
        *(struct piece *)((T *)a.y + at) = p;
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        if (at + i >= end) break;
        if (a.y_f32)
            ((float *)a.y)[at + i] = v[i];
        else
            ((T *)a.y)[at + i] = from_float<T>(v[i]);
    }
}

// Outputs `row` ... of row i of x; gated: gates `row` ... and the rows that they gate. load_outputs
// reads the present y if the results are added to it; finish_outputs computes and stores.
template <typename T, int N, bool GATED>
__device__ __forceinline__ void load_outputs(float (&before)[N], const struct cuda_linear &a, int i,
                                             int row) {
    int width = GATED ? a.rows / 2 : a.rows;
    if (row < width)
        load_before<T>(before, a, (int64_t)i * width + row, (int64_t)(i + 1) * width,
                       width % N == 0);
}
template <typename T, int N, bool GATED>
__device__ __forceinline__ void finish_outputs(const struct cuda_linear &a, int i, int row,
                                               float (&v)[N], float (&up)[N],
                                               const float (&before)[N]) {
    int width = GATED ? a.rows / 2 : a.rows;
    if (row >= width) return;
    add_scale_and_bias(v, a, row);
    if (GATED) add_scale_and_bias(up, a, row + width);
    if (GATED || a.activate) {
#pragma unroll
        for (int c = 0; c < N; c++)
            v[c] = activated(a.act, rounded<T>(v[c])) * (GATED ? rounded<T>(up[c]) : 1.0f);
    }
    store_outputs<T>(a, (int64_t)i * width + row, (int64_t)(i + 1) * width, v, before,
                     width % N == 0);
}
