// Experts of few rows: which pairs a block takes, and what becomes of their sums (experts_few.cu, experts_groups.cu).
//
// A block of FEW_THREADS takes 32 rows of one expert's matrix as two sets of 16: of a gated `up` 16 gates and the 16
// others that go with them, so that the activation happens here. Its warps divide K. Their sums meet in shared memory
// and are added in order, so a pair's bits do not depend on the other pairs. With fewer pairs than experts a block is
// for a pair, and the first of an expert's pairs takes all of them; else it is for an expert.
#pragma once
#include "kernels/cuda/experts.cuh"
#include <algorithm>

namespace {

constexpr int FEW_WARPS = 4, FEW_THREADS = FEW_WARPS * 32;
constexpr int FEW_TILE = 16, FEW_SETS = 2;

// Sums of TILES times eight pairs, of each warp.
template <int TILES> struct few_sums { float of[FEW_WARPS][FEW_SETS][TILES][FEW_TILE][8 + 1]; };

// The pairs of this block's expert, in any order, in `list`; -1: another block has them.
__device__ __forceinline__ int find_pairs(const struct experts_product &p, int *list, int *n) {
    __shared__ bool elsewhere;
    const bool by_pair = p.pairs <= p.n_experts;
    const int at = (int)blockIdx.y, expert = by_pair ? p.ids[at] : at;
    if (threadIdx.x == 0) *n = 0, elsewhere = false;
    __syncthreads();
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < p.pairs; i += FEW_THREADS) {
        if (p.ids[i] != expert) continue;
        list[atomicAdd(n, 1)] = i;
        if (by_pair && i < at) elsewhere = true;
    }
    __syncthreads();
    return elsewhere || *n == 0 ? -1 : expert;
}

// First row of the block in its first set; rows from there to the second set's; end of the first set's, or of all rows.
struct few_rows {
    int first, apart, end;
};
__device__ __forceinline__ struct few_rows few_rows_of(const struct experts_product &p) {
    return {(int)blockIdx.x * (p.gated ? FEW_TILE : FEW_SETS * FEW_TILE),
            p.gated ? p.width : FEW_TILE, p.gated ? p.width : p.rows};
}
// The row of the matrix that is row r of set s. A row past the end is read as the last one; its results are dropped.
__device__ __forceinline__ int few_row(const struct experts_product &p, const struct few_rows &rows,
                                       int s, int r) {
    const int row = rows.first + r + (p.gated ? 0 : s * FEW_TILE);
    return min(row, rows.end - 1) + (p.gated ? s * rows.apart : 0);
}

// A warp's sums as m16n8k16 leaves them, to shared memory.
template <int TILES>
__device__ __forceinline__ void put_few(struct few_sums<TILES> &to,
                                        const float (&sum)[FEW_SETS][TILES][4], int warp,
                                        int lane) {
    const int g = lane / 4, q = lane % 4;
#pragma unroll
    for (int s = 0; s < FEW_SETS; s++)
#pragma unroll
        for (int i = 0; i < TILES; i++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                to.of[warp][s][i][g + c / 2 * 8][2 * q + c % 2] = sum[s][i][c];
}

// Column k of a row that is as long as whole chunks of 128 columns (groups.h).
__device__ __forceinline__ int place_in_codes(int k) {
    const int in = k % 128;
    return k - in + in % 8 / 2 * 32 + in / 16 * 4 + in % 16 / 8 * 2 + in % 2;
}
__device__ __forceinline__ int64_t hidden_place(const struct experts_product &p, int pair, int k) {
    if (!p.hidden_in_codes) return (int64_t)pair * p.width + k;
    return (int64_t)pair * ((p.width + 127) / 128 * 128) + place_in_codes(k);
}

// By all threads, behind a barrier: pairs list[from ..], at most n in all and 8 `tiles` of them here. A thread takes a
// row and a pair; neighbours are neighbouring rows.
template <typename T, int TILES>
__device__ __forceinline__ void finish_few(const struct experts_product &p, int expert,
                                           const struct few_rows &rows, const int *list, int from,
                                           int n, int tiles, const struct few_sums<TILES> &sums) {
    for (int i = (int)threadIdx.x; i < tiles * 8 * FEW_TILE; i += FEW_THREADS) {
        const int r = i % FEW_TILE, column = i / FEW_TILE, o = rows.first + r;
        if (from + column >= n) continue;
        const int pair = list[from + column];
        float v[FEW_SETS];
#pragma unroll
        for (int s = 0; s < FEW_SETS; s++) {
            v[s] = 0.0f;
            for (int k = 0; k < FEW_WARPS; k++) v[s] += sums.of[k][s][column / 8][r][column % 8];
            const int at = o + s * rows.apart;
            if (p.bias && at < p.rows) v[s] += p.bias[(int64_t)expert * p.rows + at];
        }
        if (p.gated) {
            if (o < rows.end)
                ((T *)p.hidden)[hidden_place(p, pair, o)] =
                    from_float<T>(gated_value(p, v[0], v[1]));
            continue;
        }
#pragma unroll
        for (int s = 0; s < FEW_SETS; s++) {
            const int at = o + s * FEW_TILE;
            if (at >= rows.end) continue;
            if (p.down)
                p.result[(int64_t)pair * p.rows + at] = v[s];
            else
                ((T *)p.hidden)[hidden_place(p, pair, at)] = from_float<T>(activated(p.act, v[s]));
        }
    }
}

inline dim3 few_grid(const struct experts_product *p) {
    const int rows = p->gated ? p->width : p->rows,
              each = p->gated ? FEW_TILE : FEW_SETS * FEW_TILE;
    return dim3((unsigned)((rows + each - 1) / each), (unsigned)std::min(p->pairs, p->n_experts));
}
// Bytes of `list`: an expert has at most one pair of a row.
inline size_t few_list_bytes(const struct experts_product *p) {
    return (size_t)(p->pairs / p->n_chosen) * sizeof(int);
}

} // namespace
