// Experts with weights of 8 bits (int8, e4m3), as experts_few.cu and experts_many.cu have them of 16 bits. Numbers become T in
// registers (widen.cuh), exactly; scales are multiplied in F32.
//
//   few    W is A and pairs are B of the tensor cores' products. A lane has 16 bytes of a row of W, 16 columns, and the same
//          columns of x: four products. A block of 128 columns is summed by itself, then multiplied by its rows' scales.
//   many   pairs are A and W is B, both through shared memory, 16 bytes a lane. Sums stay in units of the current block's
//          scale: before the next block they are multiplied by the quotient of both, which spares a second set of sums.
#include "kernels/cuda/experts_pairs.cuh"
#include "kernels/cuda/experts_tiles.cuh"
#include "kernels/cuda/widen.cuh"
#include "kernels/fp8.h"
#include <type_traits>

namespace {

constexpr int LANE = 16;     // columns of a lane in a step of 64
constexpr int FEW_AHEAD = 2; // blocks of 128 columns that are requested together
constexpr int W_BYTES = ROWS * STEP, STAGE_BYTES = TILE_BYTES + W_BYTES; // of many
constexpr size_t MANY_SHARED = (size_t)STAGES * STAGE_BYTES > MANY_SUM_BYTES
                                   ? (size_t)STAGES *STAGE_BYTES
                                   : MANY_SUM_BYTES;
// A smaller scale counts as this one, so that quotients are numbers: what it adds is nothing in T.
constexpr float LEAST_SCALE = 1e-20f;

// Scales of a row from one block to the next; one block has all columns where a row has one scale.
__device__ __forceinline__ const float *scale_of(const struct experts_product &p,
                                                 const float *scale, int k) {
    return scale + (p.block_k ? (int64_t)(k / FP8_BLOCK) * p.rows : 0);
}

template <typename T, typename W, int TILES, int MOST>
__global__ void __launch_bounds__(FEW_THREADS, 3)
    few_kernel(const __grid_constant__ struct experts_table<MOST> t,
               const __grid_constant__ struct experts_product p) {
    extern __shared__ int list[]; // (rows of the call)
    __shared__ int n_pairs;
    __shared__ struct few_sums<TILES> sums;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4,
              q = lane % 4;
    pdl_trigger();
    pdl_wait();
    const int expert = find_pairs(p, list, &n_pairs);
    if (expert < 0) return;
    const int n = n_pairs;
    const struct few_rows rows = few_rows_of(p);
    constexpr int ALL = FEW_WARPS * FP8_BLOCK;
    const int part = (p.cols + ALL - 1) / ALL * FP8_BLOCK, begin = warp * part,
              stop = min(begin + part, p.cols);
    const uint8_t *row[FEW_SETS][2];
    int number[FEW_SETS][2];
#pragma unroll
    for (int s = 0; s < FEW_SETS; s++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            number[s][h] = few_row(p, rows, s, h * 8 + g);
            row[s][h] = (const uint8_t *)t.w[expert] + (int64_t)number[s][h] * p.ld + q * LANE;
        }
    for (int from = 0; from < n; from += 8 * TILES) {
        const int tiles = min((n - from + 7) / 8, TILES);
        const T *x[TILES];
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            const int pair = list[min(from + i * 8 + g, n - 1)];
            x[i] = (const T *)p.x + row_of_pair(p, pair) * p.cols;
        }
        float sum[FEW_SETS][TILES][4] = {};
        for (int k = begin; k < stop; k += FEW_AHEAD * FP8_BLOCK) {
            uint4 a[FEW_AHEAD * 2][FEW_SETS][2];
#pragma unroll
            for (int u = 0; u < FEW_AHEAD * 2; u++)
#pragma unroll
                for (int s = 0; s < FEW_SETS; s++)
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        a[u][s][h] = make_uint4(0, 0, 0, 0);
                        if (k + u * STEP + q * LANE < stop)
                            a[u][s][h] = load_weight(row[s][h] + k + u * STEP);
                    }
#pragma unroll
            for (int block = 0; block < FEW_AHEAD; block++) {
                const int k0 = k + block * FP8_BLOCK;
                if (k0 >= stop) break;
                const float *scale = scale_of(p, t.scale[expert], k0);
                float by[FEW_SETS][2], of_block[FEW_SETS][TILES][4] = {};
#pragma unroll
                for (int s = 0; s < FEW_SETS; s++)
#pragma unroll
                    for (int h = 0; h < 2; h++) by[s][h] = __ldg(scale + number[s][h]);
#pragma unroll
                for (int u = 0; u < 2; u++) {
                    uint4 b[TILES][2];
#pragma unroll
                    for (int i = 0; i < TILES; i++)
#pragma unroll
                        for (int h = 0; h < 2; h++) {
                            const int at = k0 + u * STEP + q * LANE + h * 8;
                            b[i][h] = make_uint4(0, 0, 0, 0);
                            if (i < tiles && at < stop) b[i][h] = *(const uint4 *)(x[i] + at);
                        }
#pragma unroll
                    for (int s = 0; s < FEW_SETS; s++)
#pragma unroll
                        for (int w = 0; w < 4; w++) {
                            const uint32_t top = word_at(a[block * 2 + u][s][0], w),
                                           bottom = word_at(a[block * 2 + u][s][1], w);
                            const uint32_t operand[4] = {
                                widen_low(top, T(), W()), widen_low(bottom, T(), W()),
                                widen_high(top, T(), W()), widen_high(bottom, T(), W())};
#pragma unroll
                            for (int i = 0; i < TILES; i++)
                                if (i < tiles)
                                    mma(of_block[s][i], operand, word_at(b[i][w / 2], w % 2 * 2),
                                        word_at(b[i][w / 2], w % 2 * 2 + 1), T());
                        }
                }
#pragma unroll
                for (int s = 0; s < FEW_SETS; s++)
#pragma unroll
                    for (int i = 0; i < TILES; i++)
#pragma unroll
                        for (int c = 0; c < 4; c++)
                            sum[s][i][c] = fmaf(by[s][c / 2], of_block[s][i][c], sum[s][i][c]);
            }
        }
        put_few<TILES>(sums, sum, warp, lane);
        __syncthreads();
        finish_few<T, TILES>(p, expert, rows, list, from, n, tiles, sums);
        __syncthreads();
    }
}

template <typename T, typename W, int MOST>
__global__ void __launch_bounds__(MANY_THREADS, 2)
    many_kernel(const __grid_constant__ struct experts_table<MOST> t,
                const __grid_constant__ struct experts_product p) {
    extern __shared__ __align__(128) char shared[];
    __shared__ int pairs[PAIRS];
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4,
              q = lane % 4;
    pdl_trigger();
    pdl_wait();
    struct expert_tile tile;
    if (!many_pairs(p, tile, pairs)) return;
    __syncthreads();
    const struct many_x<T> x(p, pairs);
    // A thread copies words `word` of rows w0 and w0 + 64 of W.
    const int word = (int)threadIdx.x % 4, w0 = (int)threadIdx.x / 4;
    const uint8_t *w_from[2];
#pragma unroll
    for (int i = 0; i < 2; i++)
        w_from[i] = (const uint8_t *)t.w[tile.expert] + (int64_t)many_row(p, w0 + i * 64) * p.ld +
                    word * LANE;
    const uint32_t base = shared_address(shared);
    auto request = [&](int s) {
        const int k = s * STEP;
        const uint32_t to = base + (uint32_t)(s % STAGES * STAGE_BYTES);
        const bool held = k + word * LANE < p.cols;
        x.request(to, k, p.cols);
#pragma unroll
        for (int i = 0; i < 2; i++)
            copy_async(to + (uint32_t)(TILE_BYTES + (w0 + i * 64) * STEP + word * LANE),
                       held ? w_from[i] + k : w_from[i], held);
    };
    const int pair0 = warp % 2 * WARP_PAIRS, row0 = warp / 2 * WARP_ROWS;
    // Of the rows of W whose sums this lane has.
    constexpr int COLUMNS = WARP_ROWS / 8;
    auto scale_at = [&](int n, int c, int k) {
        const float v =
            __ldg(scale_of(p, t.scale[tile.expert], k) + many_row(p, row0 + n * 8 + 2 * q + c));
        return fabsf(v) < LEAST_SCALE ? LEAST_SCALE : v;
    };
    many_sums sum = {};
    auto multiply_sums = [&](int n, int c, float factor) {
#pragma unroll
        for (int m = 0; m < WARP_PAIRS / 16; m++)
            sum[m][n][c] *= factor, sum[m][n][c + 2] *= factor;
    };
    many_steps(p.cols, request, [&](int s) {
        const uint32_t xs = base + (uint32_t)(s % STAGES * STAGE_BYTES), ws = xs + TILE_BYTES;
        uint4 codes[COLUMNS];
#pragma unroll
        for (int n = 0; n < COLUMNS; n++)
            codes[n] = load_shared(ws + (uint32_t)((row0 + n * 8 + g) * STEP + q * LANE));
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t b[COLUMNS][4];
#pragma unroll
            for (int n = 0; n < COLUMNS; n++)
#pragma unroll
                for (int w = 0; w < 2; w++) {
                    const uint32_t four = word_at(codes[n], half * 2 + w);
                    b[n][w * 2] = widen_low(four, T(), W());
                    b[n][w * 2 + 1] = widen_high(four, T(), W());
                }
#pragma unroll
            for (int m = 0; m < WARP_PAIRS / 16; m++) {
                const int r = pair0 + m * 16 + g;
                const uint4 top = load_shared(xs + place_of(r, q * 2 + half)),
                            bottom = load_shared(xs + place_of(r + 8, q * 2 + half));
                const uint32_t first[4] = {top.x, bottom.x, top.y, bottom.y},
                               last[4] = {top.z, bottom.z, top.w, bottom.w};
#pragma unroll
                for (int n = 0; n < COLUMNS; n++) {
                    mma(sum[m][n], first, b[n][0], b[n][1], T());
                    mma(sum[m][n], last, b[n][2], b[n][3], T());
                }
            }
        }
        const int next = (s + 1) * STEP;
        if (!p.block_k || next % FP8_BLOCK != 0 || next >= p.cols) return;
#pragma unroll
        for (int n = 0; n < COLUMNS; n++)
#pragma unroll
            for (int c = 0; c < 2; c++)
                multiply_sums(n, c, __fdiv_rn(scale_at(n, c, next - STEP), scale_at(n, c, next)));
    });
#pragma unroll
    for (int n = 0; n < COLUMNS; n++)
#pragma unroll
        for (int c = 0; c < 2; c++) multiply_sums(n, c, scale_at(n, c, p.cols - 1));
    finish_many<T>(p, tile, pairs, sum, shared);
}

template <typename T, typename W, int MOST>
void launch(const struct experts_product *p, const struct weight *w, bool few,
            cudaStream_t stream) {
    struct experts_table<MOST> t;
    experts_fill(&t, w, p->n_experts);
    if (!few) {
        cuda_allow_shared((const void *)many_kernel<T, W, MOST>, MANY_SHARED);
        pdl_launch(many_kernel<T, W, MOST>, many_grid(p), dim3(MANY_THREADS), MANY_SHARED, stream,
                   t, *p);
    } else if (p->pairs / p->n_chosen <= 8) {
        pdl_launch(few_kernel<T, W, 1, MOST>, few_grid(p), dim3(FEW_THREADS), few_list_bytes(p),
                   stream, t, *p);
    } else {
        pdl_launch(few_kernel<T, W, 2, MOST>, few_grid(p), dim3(FEW_THREADS), few_list_bytes(p),
                   stream, t, *p);
    }
}

template <typename W>
void launch_typed(const struct experts_product *p, const struct weight *w, bool few,
                  cudaStream_t stream) {
    if (p->dtype == DTYPE_F16)
        launch<__half, W, ROUTE_MAX_EXPERTS>(p, w, few, stream);
    else if (p->n_experts <= 128)
        launch<__nv_bfloat16, W, 128>(p, w, few, stream);
    else
        launch<__nv_bfloat16, W, ROUTE_MAX_EXPERTS>(p, w, few, stream);
}

} // namespace

bool experts_covered_8bit(const struct experts_product *p) {
    return (p->dtype == DTYPE_BF16 || p->dtype == DTYPE_F16) &&
           (p->w_dtype == DTYPE_I8 || p->w_dtype == DTYPE_F8_E4M3) && p->cols % 8 == 0 &&
           (uintptr_t)p->x % 16 == 0;
}

int experts_8bit(const struct experts_product *p, const struct weight *w, bool few,
                 cudaStream_t stream) {
    if (p->w_dtype == DTYPE_I8)
        launch_typed<int8_t>(p, w, few, stream);
    else
        launch_typed<e4m3>(p, w, few, stream);
    return cuda_launched("experts_8bit");
}
