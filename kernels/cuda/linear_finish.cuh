// The end of a linear: scale and bias, activation or gate, the addition to y, the one rounding. For
// kernels in which a thread holds neighbouring outputs of one row of x.
#pragma once
#include "kernels/cuda/activation.cuh"

// W's scales and the bias of outputs row ... row + N - 1. Scales of blocks of columns are in the sums already.
template <int N> struct output_terms { float scale[N], bias[N]; };
template <int N>
__device__ __forceinline__ void load_terms(struct output_terms<N> &t, const struct cuda_linear &a,
                                           int row) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        if (row + i >= a.rows) break;
        if (a.scale && !a.block_k) t.scale[i] = a.scale[row + i];
        if (a.bias) t.bias[i] = a.bias[row + i];
    }
}
// v: sums of those outputs.
template <int N>
__device__ __forceinline__ void add_terms(float (&v)[N], const struct cuda_linear &a,
                                          const struct output_terms<N> &t, float x_scale) {
    const bool scaled = a.scale && !a.block_k;
#pragma unroll
    for (int i = 0; i < N; i++) {
        v[i] *= x_scale;
        if (scaled) v[i] *= t.scale[i];
        if (a.bias) v[i] += t.bias[i];
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
    const int width = GATED ? a.rows / 2 : a.rows;
    const float x_scale = a.x_scale ? a.x_scale[i] : 1.0f;
    struct output_terms<N> terms, up_terms;
    if (row >= width) return;
    load_terms(terms, a, row);
    if (GATED) load_terms(up_terms, a, row + width);
    add_terms(v, a, terms, x_scale);
    if (GATED) add_terms(up, a, up_terms, x_scale);
    if (GATED || a.activate) {
#pragma unroll
        for (int c = 0; c < N; c++)
            v[c] = activated(a.act, rounded<T>(v[c])) * (GATED ? rounded<T>(up[c]) : 1.0f);
    }
    store_outputs<T>(a, (int64_t)i * width + row, (int64_t)(i + 1) * width, v, before,
                     width % N == 0);
}
