// Experts of few rows: bound by reading the matrices of the chosen experts once, up to 9.4 MB each of
// Qwen3-30B-A3B. 16-bit weights. experts_pairs.cuh says which block takes what.
//
// W is A of the tensor cores' product and the pairs' rows are B, eight a product; 16 bytes a lane of both straight
// from memory (mma.cuh). Up to 32 pairs share a read of W.
#include "kernels/cuda/experts_pairs.cuh"
#include "kernels/cuda/mma.cuh"

namespace {

constexpr int STEP = 32; // columns
// W's bytes on their way, in steps. More than 8 pairs: AHEAD steps come to registers together. Up to 8 pairs: a queue of
// STAGES steps in shared memory, one of which is requested whenever one was used.
constexpr int AHEAD = 4, STAGES = 6;
constexpr size_t QUEUE_BYTES = (size_t)STAGES * FEW_SETS * 2 * FEW_THREADS * 16;

template <typename T, int TILES> struct few_operands { // of a lane
    const T *row[FEW_SETS][2], *x[TILES];
    int tiles, begin, stop; // columns of the warp

    __device__ __forceinline__ bool has(int at) const {
        return at + (int)threadIdx.x % 4 * 8 < stop;
    }
    __device__ __forceinline__ void load_x(uint4 (&b)[TILES], int at) const {
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            b[i] = make_uint4(0, 0, 0, 0);
            if (i < tiles && has(at)) b[i] = *(const uint4 *)(x[i] + at);
        }
    }
    __device__ __forceinline__ void add(float (&sum)[FEW_SETS][TILES][4],
                                        const uint4 (&a)[FEW_SETS][2],
                                        const uint4 (&b)[TILES]) const {
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            if (i >= tiles) break;
#pragma unroll
            for (int s = 0; s < FEW_SETS; s++) {
                const uint4 c = a[s][0], d = a[s][1];
                const uint32_t low[4] = {c.x, d.x, c.y, d.y};
                const uint32_t high[4] = {c.z, d.z, c.w, d.w};
                mma(sum[s][i], low, b[i].x, b[i].y, T());
                mma(sum[s][i], high, b[i].z, b[i].w, T());
            }
        }
    }
};

template <typename T, int TILES>
__device__ __forceinline__ void multiply_ahead(float (&sum)[FEW_SETS][TILES][4],
                                               const struct few_operands<T, TILES> &o) {
    for (int k = o.begin; k < o.stop; k += STEP * AHEAD) {
        uint4 a[AHEAD][FEW_SETS][2];
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
#pragma unroll
            for (int s = 0; s < FEW_SETS; s++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int at = k + u * STEP;
                    a[u][s][h] = make_uint4(0, 0, 0, 0);
                    if (o.has(at)) a[u][s][h] = load_weight(o.row[s][h] + at);
                }
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            uint4 b[TILES];
            o.load_x(b, k + u * STEP);
            o.add(sum, a[u], b);
        }
    }
}

// A lane copies and reads words of its own: no lane waits for another.
template <typename T, int TILES>
__device__ __forceinline__ void multiply_queued(float (&sum)[FEW_SETS][TILES][4],
                                                const struct few_operands<T, TILES> &o,
                                                uint32_t queue) {
    auto place = [&](int stage, int s, int h) {
        return queue +
               (uint32_t)((((stage * FEW_SETS + s) * 2 + h) * FEW_THREADS + (int)threadIdx.x) * 16);
    };
    auto request = [&](int stage, int at) {
#pragma unroll
        for (int s = 0; s < FEW_SETS; s++)
#pragma unroll
            for (int h = 0; h < 2; h++) copy_async(place(stage, s, h), o.row[s][h] + at, o.has(at));
        copy_commit();
    };
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) request(i, o.begin + i * STEP);
    int stage = 0;
    for (int k = o.begin; k < o.stop; k += STEP) {
        uint4 a[FEW_SETS][2], b[TILES];
        o.load_x(b, k); // comes while W does
        copy_wait<STAGES - 2>();
#pragma unroll
        for (int s = 0; s < FEW_SETS; s++)
#pragma unroll
            for (int h = 0; h < 2; h++) a[s][h] = load_shared(place(stage, s, h));
        o.add(sum, a, b);
        request(stage == 0 ? STAGES - 1 : stage - 1, k + (STAGES - 1) * STEP);
        if (++stage == STAGES) stage = 0;
    }
    copy_wait<0>();
}

template <typename T, int TILES, int MOST>
__global__ void __launch_bounds__(FEW_THREADS, TILES == 1 ? 4 : 1)
    few_kernel(const __grid_constant__ struct experts_table<MOST> t,
               const __grid_constant__ struct experts_product p) {
    constexpr bool QUEUED = TILES == 1;
    extern __shared__ __align__(16) char shared[];
    int *list = (int *)(shared + (QUEUED ? QUEUE_BYTES : 0)); // (rows of the call)
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
    const T *w = (const T *)t.w[expert];
    struct few_operands<T, TILES> o;
    o.begin = warp * part, o.stop = min(o.begin + part, p.cols);
#pragma unroll
    for (int s = 0; s < FEW_SETS; s++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            o.row[s][h] = w + (int64_t)few_row(p, rows, s, h * 8 + g) * p.ld + q * 8;
    for (int from = 0; from < n; from += 8 * TILES) {
        const int tiles = min((n - from + 7) / 8, TILES);
        o.tiles = tiles;
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            const int pair = list[min(from + i * 8 + g, n - 1)];
            o.x[i] = (const T *)p.x + row_of_pair(p, pair) * p.cols + q * 8;
        }
        float sum[FEW_SETS][TILES][4] = {};
        if constexpr (QUEUED)
            multiply_queued<T, TILES>(sum, o, shared_address(shared));
        else
            multiply_ahead<T, TILES>(sum, o);
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
    const size_t bytes = (TILES == 1 ? QUEUE_BYTES : 0) + few_list_bytes(p);
    cuda_allow_shared((const void *)few_kernel<T, TILES, MOST>, bytes);
    pdl_launch(few_kernel<T, TILES, MOST>, few_grid(p), dim3(FEW_THREADS), bytes, stream, t, *p);
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
