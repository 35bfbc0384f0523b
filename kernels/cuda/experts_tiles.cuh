// Experts of many rows: a tile of 128 pairs of one expert times 128 rows of its matrix (experts_many.cu,
// experts_8bit.cu, experts_groups.cu). Pairs are sorted by expert.
//
// Operands come in steps of 64 columns through shared memory; 16-byte words are swizzled by the row's number. A gated
// `up` takes 64 gates and the 64 others that go with them: of a warp's 32 columns 16 are gates. So the activation
// happens here. Rows of x are read where they lie; hidden values and results lie by pair.
#pragma once
#include "kernels/cuda/experts.cuh"
#include "kernels/cuda/mma.cuh"

namespace {

constexpr int MANY_THREADS = 256, PAIRS = 128, ROWS = 128, STEP = 64, STAGES = 3;
constexpr int ROW_BYTES = STEP * 2, TILE_BYTES = PAIRS * ROW_BYTES; // of an operand of 16 bits
constexpr int PITCH = ROWS + 4;                                     // floats of a pair's sums
constexpr size_t MANY_SUM_BYTES = (size_t)PAIRS * PITCH * sizeof(float);
constexpr int WARP_PAIRS = 64, WARP_ROWS = 32; // of a warp's tile; 2 x 4 warps
using many_sums = float[WARP_PAIRS / 16][WARP_ROWS / 8][4];

// Where word `word` of row r of an operand lies in its stage.
__device__ __forceinline__ uint32_t place_of(int r, int word) {
    return (uint32_t)(r * ROW_BYTES + ((word ^ (r & 7)) * 16));
}
// The first row of the matrix that the block takes, and the row that is row r of its tile. Rows past the end are read as
// the last one; their results are dropped.
__device__ __forceinline__ int many_first(const struct experts_product &p) {
    return (int)blockIdx.x * (p.gated ? ROWS / 2 : ROWS);
}
__device__ __forceinline__ int many_row(const struct experts_product &p, int r) {
    const int row = many_first(p) + (p.gated ? r / WARP_ROWS * 16 + r % 16 : r);
    return min(row, (p.gated ? p.width : p.rows) - 1) +
           (p.gated && r % WARP_ROWS >= 16 ? p.width : 0);
}
inline dim3 many_grid(const struct experts_product *p) {
    const int outputs = p->gated ? p->width : p->rows, each = p->gated ? ROWS / 2 : ROWS;
    const int tiles = (p->pairs < p->n_experts ? p->pairs : p->n_experts) + p->pairs / PAIRS;
    return dim3((unsigned)((outputs + each - 1) / each), (unsigned)tiles);
}
// The block's tile, and its pairs; the last one again where it has fewer. By all threads; false: there is no such tile.
__device__ __forceinline__ bool many_pairs(const struct experts_product &p,
                                           struct expert_tile &tile, int *pairs) {
    tile = find_tile(p.first, p.n_experts, (int)blockIdx.y, PAIRS);
    if (tile.n > 0 && threadIdx.x < PAIRS)
        pairs[threadIdx.x] = p.order[tile.first + min((int)threadIdx.x, tile.n - 1)];
    return tile.n > 0;
}
// What a thread copies of x: word `word` of rows r0, r0 + 32, .. of a step.
template <typename T> struct many_x {
    const T *from[PAIRS / 32];
    int word, r0;

    __device__ __forceinline__ many_x(const struct experts_product &p, const int *pairs)
        : word((int)threadIdx.x % 8), r0((int)threadIdx.x / 8) {
#pragma unroll
        for (int i = 0; i < PAIRS / 32; i++)
            from[i] = (const T *)p.x + row_of_pair(p, pairs[r0 + i * 32]) * p.cols + word * 8;
    }
    // The step whose first column is k; zeros behind the last column.
    __device__ __forceinline__ void request(uint32_t to, int k, int cols) const {
        const bool held = k + word * 8 < cols;
#pragma unroll
        for (int i = 0; i < PAIRS / 32; i++)
            copy_async(to + place_of(r0 + i * 32, word), held ? from[i] + k : from[i], held);
    }
};

// All steps of `cols` columns in turn, of which STAGES are in shared memory or on their way. request(s) asks for step s, which
// goes to stage s % STAGES; use(s) finds it there. By all threads.
template <typename Request, typename Use>
__device__ __forceinline__ void many_steps(int cols, Request request, Use use) {
    const int steps = (cols + STEP - 1) / STEP;
    auto ask = [&](int s) {
        if (s < steps) request(s);
        copy_commit();
    };
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) ask(s);
    for (int s = 0; s < steps; s++) {
        copy_wait<STAGES - 2>();
        __syncthreads(); // the step has come, and the stage before is free
        ask(s + STAGES - 1);
        use(s);
    }
}

// The sums to shared memory, so that the activation's code is there once and neighbours are stored together. By all
// threads; `shared` has room for MANY_SUM_BYTES.
template <typename T>
__device__ __forceinline__ void finish_many(const struct experts_product &p,
                                            const struct expert_tile &tile, const int *pairs,
                                            const many_sums &sum, char *shared) {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4,
              q = lane % 4;
    const int pair0 = warp % 2 * WARP_PAIRS, row0 = warp / 2 * WARP_ROWS;
    const int outputs = p.gated ? p.width : p.rows, first = many_first(p);
    copy_wait<0>();
    __syncthreads();
    float *sums = (float *)shared;
#pragma unroll
    for (int m = 0; m < WARP_PAIRS / 16; m++)
#pragma unroll
        for (int n = 0; n < WARP_ROWS / 8; n++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                *(float2 *)(sums + (pair0 + m * 16 + h * 8 + g) * PITCH + row0 + n * 8 + 2 * q) =
                    make_float2(sum[m][n][h * 2], sum[m][n][h * 2 + 1]);
    __syncthreads();
    const float *bias = p.bias ? p.bias + (int64_t)tile.expert * p.rows : NULL;
    const int each = p.gated ? ROWS / 2 : ROWS;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < tile.n * each; i += MANY_THREADS) {
        const int at = i / each, in_block = i % each, o = first + in_block;
        if (o >= outputs) continue;
        const int64_t pair = pairs[at];
        const int column = p.gated ? in_block / 16 * WARP_ROWS + in_block % 16 : in_block;
        float v = sums[at * PITCH + column];
        if (bias) v += bias[o];
        if (p.down) {
            p.result[pair * p.rows + o] = v;
            continue;
        }
        float other = 1.0f;
        if (p.gated) {
            other = sums[at * PITCH + column + 16];
            if (bias) other += bias[o + p.width];
        }
        ((T *)p.hidden)[pair * p.width + o] =
            from_float<T>(p.gated ? gated_value(p, v, other) : activated(p.act, v));
    }
}

} // namespace
