// Experts of few rows: bound by reading the matrices of the chosen experts once, up to 9.4 MB each of
// Qwen3-30B-A3B. 16-bit weights. experts_pairs.cuh says which block takes what.
//
// W is A of the tensor cores' product and the pairs' rows are B, eight a product; 16 bytes a lane of both straight
// from memory (mma.cuh). Up to 32 pairs share a read of W.
#include "kernels/cuda/experts_pairs.cuh"
#include "kernels/cuda/mma.cuh"

namespace {

constexpr int STEP = 32, AHEAD = 4; // columns of a step; steps requested together

template <typename T, int TILES, int MOST>
__global__ void __launch_bounds__(FEW_THREADS)
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
    const int part = (p.cols + FEW_WARPS * STEP - 1) / (FEW_WARPS * STEP) * STEP;
    const int begin = warp * part, stop = min(begin + part, p.cols);
    const T *w = (const T *)t.w[expert];
    const T *row[FEW_SETS][2];
#pragma unroll
    for (int s = 0; s < FEW_SETS; s++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            row[s][h] = w + (int64_t)few_row(p, rows, s, h * 8 + g) * p.ld + q * 8;
    for (int from = 0; from < n; from += 8 * TILES) {
        const int tiles = min((n - from + 7) / 8, TILES);
        const T *x[TILES];
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            const int pair = list[min(from + i * 8 + g, n - 1)];
            x[i] = (const T *)p.x + (int64_t)(p.down ? pair : pair / p.n_chosen) * p.cols + q * 8;
        }
        float sum[FEW_SETS][TILES][4] = {};
        for (int k = begin; k < stop; k += STEP * AHEAD) {
            uint4 a[AHEAD][FEW_SETS][2];
#pragma unroll
            for (int u = 0; u < AHEAD; u++)
#pragma unroll
                for (int s = 0; s < FEW_SETS; s++)
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
                    for (int s = 0; s < FEW_SETS; s++) {
                        const uint4 c = a[u][s][0], d = a[u][s][1];
                        const uint32_t low[4] = {c.x, d.x, c.y, d.y};
                        const uint32_t high[4] = {c.z, d.z, c.w, d.w};
                        mma(sum[s][i], low, b.x, b.y, T());
                        mma(sum[s][i], high, b.z, b.w, T());
                    }
                }
            }
        }
        put_few<TILES>(sums, sum, warp, lane);
        __syncthreads();
        finish_few<T, TILES>(p, expert, rows, list, from, n, tiles, sums);
        __syncthreads();
    }
}

template <typename T, int TILES, int MOST>
void launch_few(const struct experts_product *p, const struct weight *w, cudaStream_t stream) {
    struct experts_table<MOST> t;
    experts_fill(&t, w, p->n_experts);
    pdl_launch(few_kernel<T, TILES, MOST>, few_grid(p), dim3(FEW_THREADS), few_list_bytes(p),
               stream, t, *p);
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
