// How linear_stream.cu and linear_tiles.cu cut a matrix: the same way for every n, so that both
// give the same bits.
#pragma once
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/linear_finish.cuh"
#include "kernels/cuda/widen.cuh"
#include "kernels/fp8.h"

enum { LINEAR_TILE = 128 }; // rows of W in a tile; gated: half of them gates
enum { LINEAR_WARPS = LINEAR_TILE / 16 };
enum {
    LINEAR_PITCH = LINEAR_TILE + 4
};                         // floats of a row of x in a tile of sums: no two lanes in one bank
enum { LINEAR_STEP = 64 }; // k of a step
enum { STEP_SCALES = LINEAR_TILE * 4 }; // bytes of the scales of a step of 128 columns
enum { LINEAR_PARTS = 8 };              // at most: a cluster's blocks
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

// Whether both cover the linear: activations whose rows a tensor map can describe, of 16 bits or, for weights of e4m3,
// of e4m3 too; of 8-bit weights those with one scale for a row or, of e4m3, for FP8_BLOCK columns.
static inline bool linear_parts_cover(const struct cuda_linear *a) {
    bool half = a->dtype == DTYPE_BF16 || a->dtype == DTYPE_F16;
    bool aligned = (((uintptr_t)a->x | (uintptr_t)a->w) & 15) == 0 && a->cols % 8 == 0;
    return half && aligned && !a->norm_weight && (!linear_is_gated(a) || a->rows % 2 == 0) &&
           (a->w_dtype == a->dtype ||
            (dtype_size(a->w_dtype) == 1 && a->ld % 16 == 0 &&
             (a->block_k == 0 || (a->block_k == FP8_BLOCK && a->rows % 8 == 0)))) &&
           (!a->x_8bit || (a->w_dtype == DTYPE_F8_E4M3 && a->cols % 16 == 0)) && hopper_here();
}

#ifdef PARLEY_SM90A

// The products of a stage: 128 bytes of k of a warpgroup's 64 rows of W at `w`, and of N rows of x
// at `x` (for W of fewer bits two tiles of 64 k, one behind the other). W of x's type X comes straight from shared
// memory; on return the products are under way.
template <typename W, typename X, int N, bool WIDENED = (sizeof(W) < sizeof(X))>
struct stage_products {
    __device__ __forceinline__ static void run(float (&sum)[N / 2], uint32_t w, uint32_t x,
                                               bool keep) {
        wgmma_fence();
        uint64_t a = tile_descriptor(w), b = tile_descriptor(x);
#pragma unroll
        for (int i = 0; i < 4; i++) wgmma<N>::ss(sum, a + 2 * i, b + 2 * i, keep || i > 0, X());
        wgmma_commit();
    }
};
// W of 8 bits: a lane fetches the pairs of k that the product wants of it and widens them
// (widen.cuh). On return the products are done.
template <typename W, typename T, int N> struct stage_products<W, T, N, true> {
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
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < 4; i++)
                wgmma<N>::rs(sum, a[i], b + half * (N * SWIZZLED_ROW >> 4) + 2 * i,
                             keep || half + i > 0, T());
            wgmma_commit();
            wgmma_wait<0>();
#pragma unroll
            for (int i = 0; i < 4; i++) // the products have read them until here
                asm volatile("" ::"r"(a[i][0]), "r"(a[i][1]), "r"(a[i][2]), "r"(a[i][3]));
        }
    }
};

// Where W has a scale for each FP8_BLOCK columns, a step's: those of a tile's rows come to shared memory with the step's
// codes. Between two steps the sums are multiplied by this step's scale over the next one's, so that they stay where they
// are. No scale is nearer to zero than 1e-20: a block of zeros may have a scale of zero.

// Bytes of the scales of rows [row, row + n) of W, those beyond its end left out.
__device__ __forceinline__ int step_scales_bytes(const struct cuda_linear &a, int row, int n) {
    return max(min(n, a.rows - row), 0) * (int)sizeof(float);
}
__device__ __forceinline__ void request_scales(const struct cuda_linear &a, uint32_t to, int step,
                                               int row, int n, uint32_t bar) {
    const int bytes = step_scales_bytes(a, row, n);
    if (bytes) tma_load_bytes(to, a.scale + (int64_t)step * a.rows + row, bytes, bar, READ_PLAIN);
}

struct step_scales { // of the rows that a lane's sums belong to: g and g + 8 of its warp
    float of[2];
};
// at: the scale of its row g.
__device__ __forceinline__ struct step_scales step_scales_at(uint32_t at) {
    struct step_scales s;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float v;
        asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(at + 32 * r) : "memory");
        s.of[r] = fabsf(v) < 1e-20f ? 1e-20f : v;
    }
    return s;
}
__device__ __forceinline__ struct step_scales operator/(const struct step_scales &a,
                                                        const struct step_scales &b) {
    return {{__fdividef(a.of[0], b.of[0]), __fdividef(a.of[1], b.of[1])}};
}
template <int COUNT>
__device__ __forceinline__ void multiply_sums(float (&sum)[COUNT], const struct step_scales &by) {
#pragma unroll
    for (int e = 0; e < COUNT; e++) sum[e] *= by.of[e / 2 % 2];
}

// The end of a block that has multiplied a tile of LINEAR_TILE rows of W by LINEAR_WARPS warps, 16 rows each, in one of
// `parts` parts of K: sums meet in the cluster's shared memory, and each of its blocks finishes every parts-th row of x.

// A warp's sums to shared memory at `to`, a row for each of n rows of x.
template <int COUNT>
__device__ __forceinline__ void put_sums(const float (&sum)[COUNT], uint32_t to, int n, int warp,
                                         int lane) {
    const int row = warp * 16 + lane / 4, column = lane % 4 * 2;
#pragma unroll
    for (int c = 0; c < COUNT / 4; c++) {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int i = c * 8 + column + e % 2;
            if (i < n)
                asm volatile("st.shared.f32 [%0], %1;" ::"r"(
                                 to + (uint32_t)((i * LINEAR_PITCH + row + e / 2 * 8) * 4)),
                             "f"(sum[4 * c + e])
                             : "memory");
        }
    }
}

// By all threads of the block, after put_sums; warps from LINEAR_WARPS on only wait. half: rows of half a tile.
template <typename T, bool GATED>
__device__ __forceinline__ void finish_tile(const struct cuda_linear &a, uint32_t sums, int tile,
                                            int part, int parts, int half, int warp, int lane) {
    if (parts > 1)
        cluster_sync();
    else
        __syncthreads();
    for (int i = part + warp * parts; warp < LINEAR_WARPS && i < a.n; i += LINEAR_WARPS * parts) {
        // A lane's outputs: four rows, or two gates and the two rows that they gate. The parts'
        // sums are all asked for at once.
        constexpr int each = GATED ? 2 : 4;
        const int in_half = GATED ? lane * each : lane % 16 * each;
        if (in_half >= half) continue; // unused
        const int row = (GATED ? tile : 2 * tile + lane / 16) * half + in_half;
        const uint32_t from = sums + (uint32_t)((i * LINEAR_PITCH + lane * each) * 4);
        float before[each] = {}, v[each], up[each];
        load_outputs<T, each, GATED>(before, a, i, row);
        float4 got[LINEAR_PARTS];
#pragma unroll
        for (int p = 0; p < LINEAR_PARTS; p++) {
            if (p >= parts) break;
            uint32_t at = parts > 1 ? cluster_address(from, p) : from;
            if (GATED) {
                float2 g = cluster_load_pair(at), u = cluster_load_pair(at + LINEAR_TILE / 2 * 4);
                got[p] = make_float4(g.x, g.y, u.x, u.y);
            } else {
                got[p] = cluster_load(at);
            }
        }
        float4 sum = got[0];
#pragma unroll
        for (int p = 1; p < LINEAR_PARTS; p++) {
            if (p >= parts) break;
            sum.x += got[p].x, sum.y += got[p].y, sum.z += got[p].z, sum.w += got[p].w;
        }
        v[0] = sum.x, v[1] = sum.y;
        if (GATED)
            up[0] = sum.z, up[1] = sum.w;
        else
            v[each - 2] = sum.z, v[each - 1] = sum.w;
        finish_outputs<T, each, GATED>(a, i, row, v, up, before);
    }
    __syncwarp();
    if (parts > 1) cluster_sync(); // no block exits while others read its sums
}

#endif
