// Experts of many rows, by the tensor cores (mma.sync): experts_tiles.cuh. 16-bit weights. A prompt of 2,048 rows has
// 128 pairs for each of 128 experts, so both the matrices' bytes and the products count: 1.2 GB and 154 GFLOP a layer
// of Qwen3-30B-A3B.
#include "kernels/cuda/experts_tiles.cuh"

namespace {

constexpr size_t SHARED = (size_t)STAGES * 2 * TILE_BYTES; // the sums take less

template <typename T, int MOST>
__global__ void __launch_bounds__(MANY_THREADS, 2)
    many_kernel(const __grid_constant__ struct experts_table<MOST> t,
                const __grid_constant__ struct experts_product p) {
    extern __shared__ __align__(128) char shared[];
    __shared__ int pairs[PAIRS];
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    pdl_trigger();
    pdl_wait();
    struct expert_tile tile;
    if (!many_pairs(p, tile, pairs)) return;
    __syncthreads();
    const T *w = (const T *)t.w[tile.expert];
    const struct many_x<T> x(p, pairs);
    const T *w_from[4]; // W's words likewise
#pragma unroll
    for (int i = 0; i < 4; i++)
        w_from[i] = w + (int64_t)many_row(p, x.r0 + i * 32) * p.ld + x.word * 8;
    const uint32_t base = shared_address(shared);
    auto request = [&](int s) {
        const int k = s * STEP;
        const uint32_t to = base + (uint32_t)(s % STAGES * 2 * TILE_BYTES);
        const bool held = k + x.word * 8 < p.cols;
        x.request(to, k, p.cols);
#pragma unroll
        for (int i = 0; i < 4; i++)
            copy_async(to + TILE_BYTES + place_of(x.r0 + i * 32, x.word),
                       held ? w_from[i] + k : w_from[i], held);
    };
    const int pair0 = warp % 2 * WARP_PAIRS, row0 = warp / 2 * WARP_ROWS;
    many_sums sum = {};
    many_steps(p.cols, request, [&](int s) {
        const uint32_t xs = base + (uint32_t)(s % STAGES * 2 * TILE_BYTES), ws = xs + TILE_BYTES;
#pragma unroll
        for (int k = 0; k < STEP / 16; k++) {
            uint32_t a[WARP_PAIRS / 16][4], b[WARP_ROWS / 16][4];
#pragma unroll
            for (int m = 0; m < WARP_PAIRS / 16; m++)
                load_matrices(a[m], xs + place_of(pair0 + m * 16 + lane % 16, k * 2 + lane / 16));
#pragma unroll
            for (int n = 0; n < WARP_ROWS / 16; n++)
                load_matrices(b[n], ws + place_of(row0 + n * 16 + lane / 16 * 8 + lane % 8,
                                                  k * 2 + lane / 8 % 2));
#pragma unroll
            for (int m = 0; m < WARP_PAIRS / 16; m++)
#pragma unroll
                for (int n = 0; n < WARP_ROWS / 8; n++)
                    mma(sum[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1], T());
        }
    });
    finish_many<T>(p, tile, pairs, sum, shared);
}

template <typename T, int MOST>
void launch_many(const struct experts_product *p, const struct weight *w, cudaStream_t stream) {
    auto kernel = many_kernel<T, MOST>;
    struct experts_table<MOST> t;
    experts_fill(&t, w, p->n_experts);
    cuda_allow_shared((const void *)kernel, SHARED);
    pdl_launch(kernel, many_grid(p), dim3(MANY_THREADS), SHARED, stream, t, *p);
}

} // namespace

int experts_many(const struct experts_product *p, const struct weight *w, cudaStream_t stream) {
    if (p->dtype == DTYPE_BF16)
        EXPERTS_SIZED(p->n_experts, launch_many<__nv_bfloat16, MOST>(p, w, stream));
    else
        EXPERTS_SIZED(p->n_experts, launch_many<__half, MOST>(p, w, stream));
    return cuda_launched("experts_many");
}
