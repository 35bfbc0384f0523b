// Parts of the narrow linears for weights of 16 bits, gemv.cu and gemv_stay.cu: how a block's warps
// split W and x, the products, and the end of an output.
#pragma once
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/norm_row.cuh"
#include "kernels/cuda/pdl.cuh"
#include "kernels/cuda/widen.cuh"

namespace {

constexpr int WARPS = 8, THREADS = WARPS * 32, STEP_BYTES = 128;
constexpr int STAGE_BYTES = THREADS * 2 * 16; // of one group
constexpr int NORM_VECTORS = 2;               // of a thread: x is normed up to 4,096 columns

template <typename T, typename W, int GROUPS, int HALVES, bool BLOCKS> struct shape {
    static constexpr int chunk = 16 / (int)sizeof(W);        // elements of a 16-byte copy
    static constexpr int step = STEP_BYTES / (int)sizeof(W); // k of a step
    static constexpr int words = chunk / 2;                  // of x that face a copy of W
    static constexpr int tiles = (HALVES + 1) / 2;           // of 16 rows of x
    static constexpr int row_sum_bytes = WARPS * GROUPS * 8 * (int)sizeof(float); // of a row of x
    static constexpr int scale_bytes = BLOCKS ? GROUPS * 8 * (int)sizeof(float) : 0; // of a warp
    static constexpr int stage_bytes = GROUPS * STAGE_BYTES + WARPS * scale_bytes;
};

// The row of W that column g of group `group` stands for.
template <bool GATED>
__device__ __forceinline__ int row_of(const struct cuda_linear &a, int group, int g) {
    if (!GATED) return min(group * 8 + g, a.rows - 1);
    int half = a.rows / 2, row = min(group * 4 + g % 4, half - 1);
    return g < 4 ? row : half + row;
}

// x's words that face this lane's copies of one step: rows g, g + 8, ..., k from `k` on.
template <typename T, int HALVES, int WORDS>
__device__ __forceinline__ void load_x(uint32_t (&x)[2][HALVES][WORDS], const struct cuda_linear &a,
                                       const T *from, int k, int g) {
#pragma unroll
    for (int c = 0; c < 2; c++) {
#pragma unroll
        for (int h = 0; h < HALVES; h++) {
#pragma unroll
            for (int w = 0; w < WORDS; w += 4) {
                int at = k + c * 4 * WORDS * 2 + w * 2, row = h * 8 + g;
                uint4 v = make_uint4(0, 0, 0, 0);
                if (row < a.n && at < a.cols) v = *(const uint4 *)(from + row * a.cols + at);
                x[c][h][w] = v.x, x[c][h][w + 1] = v.y, x[c][h][w + 2] = v.z, x[c][h][w + 3] = v.w;
            }
        }
    }
}

// One copy of W (this lane's 16 bytes) against the words of x that face it.
template <typename T, typename W, int HALVES, int WORDS>
__device__ __forceinline__ void multiply_copy(float (&sum)[(HALVES + 1) / 2][4], uint4 w,
                                              const uint32_t (&x)[HALVES][WORDS]) {
#pragma unroll
    for (int m = 0; m < WORDS / 2; m++) { // products of 16 k
        uint32_t b0, b1;
        if (sizeof(W) == 1) {
            b0 = widen_low(word_at(w, m), T(), W());
            b1 = widen_high(word_at(w, m), T(), W());
        } else {
            b0 = word_at(w, 2 * m);
            b1 = word_at(w, 2 * m + 1);
        }
#pragma unroll
        for (int tile = 0; tile < (HALVES + 1) / 2; tile++) {
            constexpr bool whole = HALVES > 1;
            uint32_t a[4] = {x[2 * tile][2 * m], whole ? x[whole ? 2 * tile + 1 : 0][2 * m] : 0,
                             x[2 * tile][2 * m + 1],
                             whole ? x[whole ? 2 * tile + 1 : 0][2 * m + 1] : 0};
            mma(sum[tile], a, b0, b1, T());
        }
    }
}

// The same for up to 8 rows of x and two groups' copies, in half as many products: W is A, its rows 0 to
// 7 the first group's and 8 to 15 the second's; x is B. sum: row g of each, columns 2t and 2t + 1 of x.
template <typename T, typename W, int WORDS>
__device__ __forceinline__ void multiply_two(float (&sum)[4], uint4 first, uint4 second,
                                             const uint32_t (&x)[WORDS]) {
#pragma unroll
    for (int m = 0; m < WORDS / 2; m++) {
        const uint32_t one = word_at(first, m), other = word_at(second, m);
        const uint32_t a[4] = {widen_low(one, T(), W()), widen_low(other, T(), W()),
                               widen_high(one, T(), W()), widen_high(other, T(), W())};
        mma(sum, a, x[2 * m], x[2 * m + 1], T());
    }
}

// Adds the 8 warps' sums of output `row` (column `col` of the pass) for row i of x, then applies
// scale and bias.
template <int GROUPS>
__device__ __forceinline__ float sum_of_warps(const float *sums, const struct cuda_linear &a,
                                              int group, int col, int i, int row) {
    float v = 0.0f;
#pragma unroll
    for (int w = 0; w < WARPS; w++) v += sums[((w * GROUPS + group) * a.n + i) * 8 + col];
    if (a.scale && !a.block_k) v *= a.scale[row];
    if (a.bias) v += a.bias[row];
    return v;
}

// The block's outputs, by n_threads threads.
template <typename T, int GROUPS, bool GATED>
__device__ __forceinline__ void finish(const float *sums, const struct cuda_linear &a,
                                       int first_group, int thread, int n_threads) {
    constexpr int each = GATED ? 4 : 8, cols = GROUPS * each; // outputs of a group, of the block
    int width = GATED ? a.rows / 2 : a.rows;
    for (int o = thread; o < a.n * cols; o += n_threads) {
        int i = o / cols, group = o % cols / each, col = o % each;
        int row = (first_group + group) * each + col;
        if (row >= width) continue;
        int64_t at = (int64_t)i * width + row;
        float v = sum_of_warps<GROUPS>(sums, a, group, col, i, row);
        if (GATED) {
            float up = sum_of_warps<GROUPS>(sums, a, group, col + 4, i, row + width);
            v = activated(a.act, rounded<T>(v)) * rounded<T>(up);
        } else if (a.activate) {
            v = activated(a.act, rounded<T>(v));
        }
        if (a.y_f32)
            ((float *)a.y)[at] = a.add ? ((float *)a.y)[at] + v : v;
        else
            ((T *)a.y)[at] = from_float<T>(a.add ? to_float(((T *)a.y)[at]) + v : v);
    }
}

} // namespace
