// Prepares a decode row's own q, k and v for attention (attention_fresh.cu): norm, rotation, cache
// write.
#pragma once
#include "kernels/cuda/attention_rows.cuh"
#include "kernels/cuda/qkv_head.cuh"

namespace {

// Writes the item's query heads, then the row's own k and v, normed, rotated and rounded, to `to`
// (heads + 2, dim). A warp takes a head; its F32 and the row's cosines are at `scratch`. All loads
// are issued together, and the code is short, because code that runs once a layer is often not in
// the caches.
template <typename T>
__device__ __forceinline__ void prepare(const struct decode &j, const struct item &it,
                                        int first_head, int n_heads, T *to, float *scratch) {
    constexpr int EACH = 8; // elements of a lane
    const struct cuda_kv_write &w = j.fresh;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, dim = w.kv.head_dim;
    const int n_kv = w.kv.n_kv_heads;
    const T *row = (const T *)w.qkv + (int64_t)it.v.row * (w.n_heads + 2 * n_kv) * dim + lane;
    const float *cos_sin = w.cos_sin + (int64_t)it.v.row * w.rot_dim + lane;
    float *head = scratch + warp * (dim + w.rot_dim), *turn = head + dim, angles[EACH];
    T raw[EACH];
    auto load = [&](int h) {
        const T *from =
            row + (h < n_heads ? first_head + h : w.n_heads + (h - n_heads) * n_kv + it.kv_head) *
                      (int64_t)dim;
#pragma unroll
        for (int e = 0; e < EACH; e++)
            if (h < n_heads + 2 && e * 32 + lane < dim) raw[e] = from[e * 32];
    };
    load(warp);
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (e * 32 + lane < w.rot_dim) angles[e] = cos_sin[e * 32];
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (e * 32 + lane < w.rot_dim) turn[e * 32 + lane] = angles[e];
#pragma unroll 1
    for (int h = warp; h < n_heads + 2; h += WARPS) {
#pragma unroll
        for (int e = 0; e < EACH; e++)
            if (e * 32 + lane < dim) head[e * 32 + lane] = to_float(raw[e]);
        load(h + WARPS);
        __syncwarp();
        const float *weight = h < n_heads ? w.q_weight : h == n_heads ? w.k_weight : w.v_weight;
        if (weight) norm_head<T>(head, dim, weight, w.eps, lane);
        if (h <= n_heads && w.rot_dim > 0) rotate_head<T>(head, w.style, w.rot_dim, turn, lane);
        if (h < n_heads && w.query_beta != 0.0f)
            scale_head<T>(head, dim, w.query_beta, w.query_length, it.v.position, lane);
        for (int i = lane; i < dim; i += 32) to[h * dim + i] = from_float<T>(head[i]);
        __syncwarp();
    }
    __syncthreads();
}

// Stores the row's own key and value in the run at `from`, which begins at position p and holds the
// cache's stale contents there, and in the cache. Only one item of each kv head writes the cache:
// the one with this run and the first heads.
template <typename T, int WIDE>
__device__ __forceinline__ void put_fresh(const struct decode &j, const struct item &it, int p,
                                          uint32_t from, const T *key, char *place,
                                          int64_t values) {
    using S = shape<T, WIDE, 1>;
    const int lane = (int)threadIdx.x % 32, dim = j.a.kv.head_dim, r = it.v.position - p;
    if (lane * 8 < dim) {
        uint4 k = *(const uint4 *)(key + lane * 8), v = *(const uint4 *)(key + dim + lane * 8);
        from += (uint32_t)(r * S::row + lane / 8 * 128);
        store_shared(from + (uint32_t)((lane % 8 ^ (r & 1) << 2) * 16), k);
        store_shared(from + (uint32_t)(S::values + (lane % 8 ^ (r & 6)) * 16), v);
        if (it.chunk == 0) {
            *(uint4 *)(place + lane * 16) = k;
            *(uint4 *)(place + values + lane * 16) = v;
        }
    }
    __syncwarp();
}

} // namespace
