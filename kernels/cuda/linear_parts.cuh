// How linear_stream.cu and linear_tiles.cu cut a matrix: the same way for every n, so that both
// give the same bits.
#pragma once
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/linear_finish.cuh"
#include "kernels/cuda/widen.cuh"

enum { LINEAR_TILE = 128 }; // rows of W in a tile; gated: half of them gates
enum { LINEAR_STEP = 64 };  // k of a step
enum { LINEAR_PARTS = 8 };  // at most: a cluster's blocks
// Tiles times parts: so many at least that the memory is kept busy. Eight parts come of fewer than
// 30 tiles alone, which an H200 has room for at once (30 clusters of eight, two blocks on a
// multiprocessor): with 32 the last two waited for all others, and down of Llama-8B took a sixth
// longer than in four parts.
enum { LINEAR_BLOCKS_LEAST = 120 };

struct linear_cut {
    int32_t tiles, parts;
    int32_t steps; // of all parts, of `step` k each
    int32_t step;
};
struct linear_part { // steps [begin, end)
    int32_t begin, end;
};

static inline bool linear_is_gated(const struct cuda_linear *a) { // its outputs come in pairs
    return a->activate && a->gated;
}

// By the matrix alone, not by the device or the batch: so the order of a sum never changes.
static inline struct linear_cut linear_cut_of(const struct cuda_linear *a) {
    struct linear_cut c;
    int outputs = linear_is_gated(a) ? LINEAR_TILE / 2 : LINEAR_TILE;
    int width = linear_is_gated(a) ? a->rows / 2 : a->rows;
    // 8-bit weights come 128 at a time; their parts end where those of the widened ones do.
    c.step = a->w_dtype == a->dtype && !a->scale ? LINEAR_STEP : 2 * LINEAR_STEP;
    c.tiles = (width + outputs - 1) / outputs;
    c.steps = (a->cols + c.step - 1) / c.step;
    c.parts = 1;
    while (c.parts < LINEAR_PARTS && c.parts * 4 <= c.steps &&
           c.tiles * c.parts < LINEAR_BLOCKS_LEAST)
        c.parts *= 2;
    return c;
}

__device__ __forceinline__ struct linear_part linear_part_of(const struct linear_cut &c, int part) {
    return {part * c.steps / c.parts, (part + 1) * c.steps / c.parts};
}

// Whether both cover the linear: 16-bit activations whose rows a tensor map can describe; of 8-bit
// weights those with one scale for a row.
static inline bool linear_parts_cover(const struct cuda_linear *a) {
    bool half = a->dtype == DTYPE_BF16 || a->dtype == DTYPE_F16;
    bool aligned = (((uintptr_t)a->x | (uintptr_t)a->w) & 15) == 0 && a->cols % 8 == 0;
    return half && aligned && !a->norm_weight && (!linear_is_gated(a) || a->rows % 2 == 0) &&
           (a->w_dtype == a->dtype ||
            (dtype_size(a->w_dtype) == 1 && a->block_k == 0 && a->ld % 16 == 0)) &&
           hopper_here();
}

#ifdef PARLEY_SM90A

// The products of a stage: 128 bytes of k of a warpgroup's 64 rows of W at `w`, and of N rows of x
// at `x` (for 8-bit W two tiles of 64 k, one behind the other). W in T comes straight from shared
// memory; on return the products are under way.
template <typename T, typename W, int N, int BYTES = (int)sizeof(W)> struct stage_products {
    __device__ __forceinline__ static void run(float (&sum)[N / 2], uint32_t w, uint32_t x,
                                               bool keep) {
        products_begin();
        uint64_t a = tile_descriptor(w), b = tile_descriptor(x);
#pragma unroll
        for (int i = 0; i < 4; i++)
            product<N>::shared(sum, a + 2 * i, b + 2 * i, keep || i > 0, T());
        products_commit();
    }
};
// W of 8 bits: a lane fetches the pairs of k that the product wants of it and widens them
// (widen.cuh). On return the products are done.
template <typename T, typename W, int N> struct stage_products<T, W, N, 1> {
    __device__ __forceinline__ static uint32_t pairs(
        uint32_t from) { // k 2t, 2t + 1, 2t + 8, 2t + 9
        uint16_t low, high;
        asm volatile("ld.shared.u16 %0, [%1];" : "=h"(low) : "r"(from) : "memory");
        asm volatile("ld.shared.u16 %0, [%1 + 8];" : "=h"(high) : "r"(from) : "memory");
        return (uint32_t)high << 16 | low;
    }
    __device__ __forceinline__ static void run(float (&sum)[N / 2], uint32_t w, uint32_t x,
                                               bool keep) {
        const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
        w += (uint32_t)((((int)threadIdx.x / 32 % 4) * 16 + g) * SWIZZLED_ROW + 2 * t);
        const uint64_t b = tile_descriptor(x);
#pragma unroll
        for (int half = 0; half < 2; half++) { // 64 k, a tile of x
            uint32_t a[4][4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint32_t at = w + (uint32_t)(((half * 4 + i) ^ g) * 16);
                uint32_t top = pairs(at), bottom = pairs(at + 8 * SWIZZLED_ROW);
                a[i][0] = widen_low(top, T(), W()), a[i][1] = widen_low(bottom, T(), W());
                a[i][2] = widen_high(top, T(), W()), a[i][3] = widen_high(bottom, T(), W());
            }
            products_begin();
#pragma unroll
            for (int i = 0; i < 4; i++)
                product<N>::registers(sum, a[i], b + half * (N * SWIZZLED_ROW >> 4) + 2 * i,
                                      keep || half + i > 0, T());
            products_commit();
            products_wait<0>();
#pragma unroll
            for (int i = 0; i < 4; i++) // the products have read them until here
                asm volatile("" ::"r"(a[i][0]), "r"(a[i][1]), "r"(a[i][2]), "r"(a[i][3]));
        }
    }
};

#endif
