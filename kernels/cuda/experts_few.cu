// Experts of few rows: bound by reading the matrices of the chosen experts once, up to 9.4 MB each of
// Qwen3-30B-A3B. 16-bit weights.
//
//   - A block takes 32 rows of one matrix: of a gated `up` 16 gates and the 16 others that go with them, so
//     that the activation happens here. Its four warps divide K. Their sums meet in shared memory and are
//     added in order, so a pair's bits do not depend on the other pairs.
//   - W is A of the tensor cores' product and the pairs' rows are B, eight a product; 16 bytes a lane of
//     both straight from memory (mma.cuh). Up to 32 pairs share a read of W.
//   - With fewer pairs than experts, a block is for a pair, and the first of an expert's pairs takes all of
//     them; else it is for an expert.
#include "kernels/cuda/experts.cuh"
#include "kernels/cuda/mma.cuh"
#include <algorithm>

namespace {

constexpr int WARPS = 4, THREADS = WARPS * 32, TILE = 16, SETS = 2;
constexpr int STEP = 32, AHEAD = 4; // columns of a step; steps requested together

// 16 bytes of a weight, which L1 does not keep.
__device__ __forceinline__ uint4 load_weight(const void *from) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
}

// The pairs of this block's expert, in any order, in `list`; -1: another block has them.
__device__ __forceinline__ int find_pairs(const struct experts_product &p, int *list, int *n) {
    __shared__ bool elsewhere;
    const bool by_pair = p.pairs <= p.n_experts;
    const int at = (int)blockIdx.y, expert = by_pair ? p.ids[at] : at;
    if (threadIdx.x == 0) *n = 0, elsewhere = false;
    __syncthreads();
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < p.pairs; i += THREADS) {
        if (p.ids[i] != expert) continue;
        list[atomicAdd(n, 1)] = i;
        if (by_pair && i < at) elsewhere = true;
    }
    __syncthreads();
    return elsewhere || *n == 0 ? -1 : expert;
}

template <typename T, int TILES, int MOST>
__global__ void __launch_bounds__(THREADS)
    few_kernel(const __grid_constant__ struct experts_table<MOST> t,
               const __grid_constant__ struct experts_product p) {
    extern __shared__ int list[]; // (rows of the call)
    __shared__ int n_pairs;
    __shared__ float sums[WARPS][SETS][TILES][TILE][8 + 1];
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4,
              q = lane % 4;
    pdl_trigger();
    pdl_wait();
    const int expert = find_pairs(p, list, &n_pairs);
    if (expert < 0) return;
    const int n = n_pairs, first = (int)blockIdx.x * (p.gated ? TILE : SETS * TILE);
    const int apart = p.gated ? p.width : TILE; // of the two sets of rows
    const int end = p.gated ? p.width : p.rows; // of the first set's, or of all rows
    const int part = (p.cols + WARPS * STEP - 1) / (WARPS * STEP) * STEP;
    const int begin = warp * part, stop = min(begin + part, p.cols);
    const T *w = (const T *)t.w[expert];
    const T *row[SETS][2];
#pragma unroll
    for (int s = 0; s < SETS; s++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            // A row past the end is read as the last one; its results are dropped.
            const int r = first + h * 8 + g + (p.gated ? 0 : s * TILE);
            row[s][h] = w + (int64_t)(min(r, end - 1) + (p.gated ? s * apart : 0)) * p.ld + q * 8;
        }
    for (int from = 0; from < n; from += 8 * TILES) {
        const int tiles = min((n - from + 7) / 8, TILES);
        const T *x[TILES];
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            const int pair = list[min(from + i * 8 + g, n - 1)];
            x[i] = (const T *)p.x + (int64_t)(p.down ? pair : pair / p.n_chosen) * p.cols + q * 8;
        }
        float sum[SETS][TILES][4] = {};
        for (int k = begin; k < stop; k += STEP * AHEAD) {
            uint4 a[AHEAD][SETS][2];
#pragma unroll
            for (int u = 0; u < AHEAD; u++)
#pragma unroll
                for (int s = 0; s < SETS; s++)
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        const int at = k + u * STEP;
                        a[u][s][h] = make_uint4(0, 0, 0, 0);
                        if (at + q * 8 < stop) a[u][s][h] = load_weight(row[s][h] + at);
                    }
#pragma unroll
            for (int u = 0; u < AHEAD; u++) {
                const int at = k + u * STEP;
#pragma unroll
                for (int i = 0; i < TILES; i++) {
                    if (i >= tiles) break;
                    uint4 b = make_uint4(0, 0, 0, 0);
                    if (at + q * 8 < stop) b = *(const uint4 *)(x[i] + at);
#pragma unroll
                    for (int s = 0; s < SETS; s++) {
                        const uint4 c = a[u][s][0], d = a[u][s][1];
                        const uint32_t low[4] = {c.x, d.x, c.y, d.y};
                        const uint32_t high[4] = {c.z, d.z, c.w, d.w};
                        mma(sum[s][i], low, b.x, b.y, T());
                        mma(sum[s][i], high, b.z, b.w, T());
                    }
                }
            }
        }
        if (from) __syncthreads(); // the sums before have been read
#pragma unroll
        for (int s = 0; s < SETS; s++)
#pragma unroll
            for (int i = 0; i < TILES; i++)
#pragma unroll
                for (int c = 0; c < 4; c++)
                    sums[warp][s][i][g + c / 2 * 8][2 * q + c % 2] = sum[s][i][c];
        __syncthreads();
        // A thread takes a row and a pair; neighbours are neighbouring rows.
        for (int i = (int)threadIdx.x; i < tiles * 8 * TILE; i += THREADS) {
            const int r = i % TILE, column = i / TILE, o = first + r;
            if (from + column >= n) continue;
            const int pair = list[from + column];
            float v[SETS];
#pragma unroll
            for (int s = 0; s < SETS; s++) {
                v[s] = 0.0f;
                for (int k = 0; k < WARPS; k++) v[s] += sums[k][s][column / 8][r][column % 8];
                const int at = o + s * apart;
                if (p.bias && at < p.rows) v[s] += p.bias[(int64_t)expert * p.rows + at];
            }
            if (p.gated) {
                if (o < end)
                    ((T *)p.hidden)[(int64_t)pair * p.width + o] =
                        from_float<T>(gated_value(p, v[0], v[1]));
                continue;
            }
#pragma unroll
            for (int s = 0; s < SETS; s++) {
                const int at = o + s * TILE;
                if (at >= end) continue;
                if (p.down)
                    p.result[(int64_t)pair * p.rows + at] = v[s];
                else
                    ((T *)p.hidden)[(int64_t)pair * p.width + at] =
                        from_float<T>(activated(p.act, v[s]));
            }
        }
        __syncthreads();
    }
}

template <typename T, int TILES, int MOST>
void launch_few(const struct experts_product *p, const struct weight *w, cudaStream_t stream) {
    struct experts_table<MOST> t;
    experts_fill(&t, w, p->n_experts);
    const int rows = p->gated ? p->width : p->rows, each = p->gated ? TILE : SETS * TILE;
    const dim3 grid((unsigned)((rows + each - 1) / each),
                    (unsigned)std::min(p->pairs, p->n_experts));
    const size_t shared = (size_t)(p->pairs / p->n_chosen) * sizeof(int);
    pdl_launch(few_kernel<T, TILES, MOST>, grid, dim3(THREADS), shared, stream, t, *p);
}

template <typename T, int MOST>
void launch_tiles(const struct experts_product *p, const struct weight *w, cudaStream_t stream) {
    if (p->pairs / p->n_chosen <= 8)
        launch_few<T, 1, MOST>(p, w, stream);
    else
        launch_few<T, 4, MOST>(p, w, stream);
}

} // namespace

bool experts_covered(const struct experts_product *p) {
    return (p->dtype == DTYPE_BF16 || p->dtype == DTYPE_F16) && p->w_dtype == p->dtype &&
           p->cols % 8 == 0 && (uintptr_t)p->x % 16 == 0;
}

int experts_few(const struct experts_product *p, const struct weight *w, cudaStream_t stream) {
    if (p->dtype == DTYPE_BF16)
        EXPERTS_SIZED(p->n_experts, launch_tiles<__nv_bfloat16, MOST>(p, w, stream));
    else
        EXPERTS_SIZED(p->n_experts, launch_tiles<__half, MOST>(p, w, stream));
    return cuda_launched("experts_few");
}
