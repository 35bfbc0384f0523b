// A run of 16 keys and values of 8 bits (kernels/kv_quant.h) in the decode kernel: its copies to
// shared memory, and its products.
//
// They are multiplied as f16 for any dtype of activations: f16 holds int8 and e4m3 exactly, and
// widening two of them takes two or three operations, half as many as with bf16. Numbers that f16
// might not hold are first scaled by a power of two, which is exact: a head's query by its largest
// value, the values' scales by the largest one so far in the warp (struct unit). The scores are
// multiplied by the keys' scales and the probabilities by the values' scales, both in F32.
#pragma once
#include "kernels/cuda/kv_8bit.cuh"
#include "kernels/cuda/mma.cuh"
#include <cuda_fp8.h>

struct kv_i8 {}; // the cache's types as templates see them
struct kv_e4m3 {};

// Two of four bytes as f16.
__device__ __forceinline__ uint32_t low_pair(uint32_t four, kv_i8) {
    return widen_low(four, __half());
}
__device__ __forceinline__ uint32_t high_pair(uint32_t four, kv_i8) {
    return widen_high(four, __half());
}
__device__ __forceinline__ uint32_t low_pair(uint32_t four, kv_e4m3) {
    __half2_raw h = __nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)four, __NV_E4M3);
    return (uint32_t)h.y << 16 | h.x;
}
__device__ __forceinline__ uint32_t high_pair(uint32_t four, kv_e4m3 c) {
    return low_pair(four >> 16, c);
}

// 4 bytes into shared memory, or zero (and nothing read) where !valid.
__device__ __forceinline__ void copy_async_4(uint32_t to, const void *from, bool valid) {
    int bytes = valid ? 4 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes)
                 : "memory");
}

// A run in shared memory: keys, values, 16 scales of keys, 16 of values. A score's lanes take 16
// bytes of key g, a sum's lanes 8 bytes of values 2t and its neighbours: odd keys have the halves
// of each 128 bytes exchanged, and values' rows are 16 bytes longer than need be, so that both are
// free of bank conflicts for every width.
template <int WIDE> struct run_8bit { // WIDE: head_dim / 64, rounded up
    static constexpr int keys = 16;
    static constexpr int key_row = WIDE * 64, value_row = WIDE * 64 + 16;
    static constexpr int flip = WIDE % 2 ? 0 : 64;
    static constexpr int values = keys * key_row, scales = values + keys * value_row;
    static constexpr int bytes = (scales + 2 * keys * 4 + 127) / 128 * 128;
};

// Queues the copies of a run: `keys` and `scales` are its first key and that key's scale, values
// and their scales lie `to_values` and `to_value_scales` bytes further. sees(i): key i is visible.
// Other keys become zeros, since their memory may hold any bytes.
template <int WIDE, typename Sees>
__device__ __forceinline__ void request_8bit(const char *keys, int64_t to_values,
                                             const char *scales, int64_t to_value_scales, int dim,
                                             uint32_t to, Sees sees) {
    using R = run_8bit<WIDE>;
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2 * WIDE; i++) {
        const int n = i * 32 + lane, r = n / (4 * WIDE), at = n % (4 * WIDE) * 16;
        const bool in_row = at < dim;
        const char *from = keys + r * dim + at;
        copy_async(to + (uint32_t)(r * R::key_row + (at ^ (r & 1 ? R::flip : 0))), from, in_row);
        copy_async(to + (uint32_t)(R::values + r * R::value_row + at), from + to_values,
                   in_row && sees(r));
    }
    const int key = lane % 16;
    copy_async_4(to + (uint32_t)(R::scales + lane * 4),
                 scales + (lane < 16 ? 0 : to_value_scales) + key * 4, sees(key));
}

// A lane's four keys (as the products leave scores): their scales, or their values'.
template <int WIDE>
__device__ __forceinline__ void scales_of_run(float (&scale)[2][2], uint32_t from, bool of_values) {
    const uint32_t at =
        from + (uint32_t)(run_8bit<WIDE>::scales + (of_values ? 64 : 0)) + threadIdx.x % 4 * 8;
#pragma unroll
    for (int o = 0; o < 2; o++) {
        uint2 two = load_shared_8(at + (uint32_t)o * 32);
        scale[o][0] = __uint_as_float(two.x), scale[o][1] = __uint_as_float(two.y);
    }
}

// A head's query of either 16-bit type as f16: q[c][i] are dimensions (t + 4c) * 16 + 2i, + 1,
// times 1 / unit.
template <int WIDE>
__device__ __forceinline__ void load_query(uint32_t (&q)[WIDE][8], const void *from,
                                           enum dtype dtype, int dim, bool valid, float &unit) {
    const int t = (int)threadIdx.x % 4;
    auto two = [&](uint32_t v) {
        return dtype == DTYPE_BF16 ? unpack2(v, __nv_bfloat16()) : unpack2(v, __half());
    };
    float2 x[WIDE][8];
    uint32_t largest = 0;
#pragma unroll
    for (int c = 0; c < WIDE; c++) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int at = (t + 4 * c) * 16 + i * 8;
            uint4 v = make_uint4(0, 0, 0, 0);
            if (valid && at < dim) v = *(const uint4 *)((const uint16_t *)from + at);
            x[c][4 * i] = two(v.x), x[c][4 * i + 1] = two(v.y);
            x[c][4 * i + 2] = two(v.z), x[c][4 * i + 3] = two(v.w);
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            largest = max(largest, __float_as_uint(x[c][i].x) & 0x7fffffff);
            largest = max(largest, __float_as_uint(x[c][i].y) & 0x7fffffff);
        }
    }
    largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
    largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
    // The largest becomes 2^14 and more, below 2^15.
    const int exponent = max((int)(largest >> 23), 15);
    const float factor = __int_as_float((268 - exponent) << 23);
    unit = __int_as_float((exponent - 14) << 23);
#pragma unroll
    for (int c = 0; c < WIDE; c++) {
#pragma unroll
        for (int i = 0; i < 8; i++) q[c][i] = pack2<__half>(x[c][i].x * factor, x[c][i].y * factor);
    }
}

// The scores of 16 keys for this lane's heads g (+ 8), without scales.
template <typename C, int WIDE, int HALVES>
__device__ __forceinline__ void score_run_8bit(float (&score)[2][4],
                                               const uint32_t (&q)[HALVES][WIDE][8],
                                               uint32_t from) {
    using R = run_8bit<WIDE>;
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4, flip = g & 1 ? R::flip : 0;
    from += (uint32_t)(g * R::key_row + t * 16);
#pragma unroll
    for (int o = 0; o < 2; o++) {
#pragma unroll
        for (int c = 0; c < WIDE; c++) {
            const uint4 k = load_shared(from + (uint32_t)(o * 8 * R::key_row + (c * 64 ^ flip)));
            const uint32_t word[4] = {k.x, k.y, k.z, k.w};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const uint32_t a[4] = {q[0][c][2 * i], HALVES > 1 ? q[HALVES - 1][c][2 * i] : 0,
                                       q[0][c][2 * i + 1],
                                       HALVES > 1 ? q[HALVES - 1][c][2 * i + 1] : 0};
                mma(score[o], a, low_pair(word[i], C()), high_pair(word[i], C()), __half());
            }
        }
    }
}

// A power of two above the values' scales that the warp has met: weights are probabilities times
// scales over it, at most 2. As an exponent field; it only grows, and earlier sums are then scaled.
struct unit {
    int exponent; // 0: nothing met

    __device__ __forceinline__ float factor() const { return __int_as_float(exponent << 23); }
    __device__ __forceinline__ float inverse() const {
        return __int_as_float((254 - exponent) << 23);
    }
};

template <int WIDE, int HALVES>
__device__ __forceinline__ void scale_sums(float (&out)[WIDE][8][4], float factor) {
#pragma unroll
    for (int c = 0; c < WIDE; c++) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
#pragma unroll
            for (int e = 0; e < 2 * HALVES; e++) out[c][i][e] *= factor;
        }
    }
}

// Probabilities to weights, and the sums to the unit that they need.
template <int WIDE, int HALVES>
__device__ __forceinline__ void weigh_run(float (&p)[2][4], float (&out)[WIDE][8][4],
                                          struct unit &unit, uint32_t from) {
    float scale[2][2];
    scales_of_run<WIDE>(scale, from, true);
    float largest = fmaxf(fmaxf(scale[0][0], scale[0][1]), fmaxf(scale[1][0], scale[1][1]));
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
    const int exponent = max((int)(__float_as_uint(largest) >> 23), 1);
    if (exponent > unit.exponent) { // the same in all lanes
        const float shrink = __int_as_float(max(127 + unit.exponent - exponent, 0) << 23);
        unit.exponent = exponent;
        scale_sums<WIDE, HALVES>(out, shrink);
    }
    const float inverse = unit.inverse();
#pragma unroll
    for (int o = 0; o < 2; o++) {
#pragma unroll
        for (int e = 0; e < 4; e++) p[o][e] *= scale[o][e % 2] * inverse;
    }
}

// Adds the 16 keys' values, weighted; a lane's columns as in add_values. One f16 a weight: values
// of 8 bits are not worth two.
template <typename C, int WIDE, int HALVES>
__device__ __forceinline__ void add_values_8bit(float (&out)[WIDE][8][4], const float (&p)[2][4],
                                                uint32_t from) {
    using R = run_8bit<WIDE>;
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    from += (uint32_t)(R::values + 2 * t * R::value_row + g * 8);
    uint32_t weight[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        weight[i] = HALVES == 1 && i % 2 == 1
                        ? 0
                        : pack2<__half>(p[i / 2][i % 2 * 2], p[i / 2][i % 2 * 2 + 1]);
#pragma unroll
    for (int c = 0; c < WIDE; c++) {
        uint2 v[4]; // keys 2t, 2t + 1, 2t + 8, 2t + 9
#pragma unroll
        for (int o = 0; o < 4; o++)
            v[o] = load_shared_8(from + (uint32_t)((o / 2 * 8 + o % 2) * R::value_row + c * 64));
#pragma unroll
        for (int i = 0; i < 4; i++) { // dimensions 2i, 2i + 1 of eight
            const uint32_t bytes = i % 2 ? 0x7362 : 0x5140;
            const uint32_t a = __byte_perm(i < 2 ? v[0].x : v[0].y, i < 2 ? v[1].x : v[1].y, bytes);
            const uint32_t b = __byte_perm(i < 2 ? v[2].x : v[2].y, i < 2 ? v[3].x : v[3].y, bytes);
            mma(out[c][2 * i], weight, low_pair(a, C()), low_pair(b, C()), __half());
            mma(out[c][2 * i + 1], weight, high_pair(a, C()), high_pair(b, C()), __half());
        }
    }
}
