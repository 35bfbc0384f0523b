// Experts of many rows: a tile of 128 pairs of one expert times 128 rows of its matrix, by the tensor cores
// (mma.sync). 16-bit weights. A prompt of 2,048 rows has 128 pairs for each of 128 experts, so both
// the matrices' bytes and the products count: 1.2 GB and 154 GFLOP a layer of Qwen3-30B-A3B.
//
//   - Both operands come in steps of 64 columns through three stages of shared memory; 16-byte words are
//     swizzled by the row's number.
//   - A gated `up` takes 64 gates and the 64 others that go with them: of a warp's 32 columns 16 are gates.
//     So the activation happens here.
//   - Rows of x are read where they lie; hidden values and results lie by pair.
#include "kernels/cuda/experts.cuh"
#include "kernels/cuda/mma.cuh"

namespace {

constexpr int THREADS = 256, PAIRS = 128, ROWS = 128, STEP = 64, STAGES = 3;
constexpr int ROW_BYTES = STEP * 2, TILE_BYTES = PAIRS * ROW_BYTES; // of one operand
constexpr size_t SHARED = (size_t)STAGES * 2 * TILE_BYTES;          // the sums take less
constexpr int PITCH = ROWS + 4;                                     // floats of a pair's sums
constexpr int WARP_PAIRS = 64, WARP_ROWS = 32;                      // of a warp's tile; 2 x 4 warps

__device__ __forceinline__ uint32_t place_of(int r, int word) {
    return (uint32_t)(r * ROW_BYTES + ((word ^ (r & 7)) * 16));
}

template <typename T, int MOST>
__global__ void __launch_bounds__(THREADS, 2)
    many_kernel(const __grid_constant__ struct experts_table<MOST> t,
                const __grid_constant__ struct experts_product p) {
    extern __shared__ __align__(128) char shared[];
    __shared__ int pairs[PAIRS];
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4,
              q = lane % 4;
    pdl_trigger();
    pdl_wait();
    const struct expert_tile tile = find_tile(p.first, p.n_experts, (int)blockIdx.y, PAIRS);
    if (tile.n == 0) return;
    if (threadIdx.x < PAIRS)
        pairs[threadIdx.x] = p.order[tile.first + min((int)threadIdx.x, tile.n - 1)];
    __syncthreads();
    const int outputs = p.gated ? p.width : p.rows;
    const int first = (int)blockIdx.x * (p.gated ? ROWS / 2 : ROWS);
    const T *w = (const T *)t.w[tile.expert];
    // A thread copies words `word` of rows r0, r0 + 32, .. of both operands. Rows past the end are read as
    // the last one; their results are dropped.
    const int word = (int)threadIdx.x % 8, r0 = (int)threadIdx.x / 8;
    const T *x_from[4], *w_from[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int r = r0 + i * 32, pair = pairs[r];
        x_from[i] =
            (const T *)p.x + (int64_t)(p.down ? pair : pair / p.n_chosen) * p.cols + word * 8;
        int row = first + r;
        if (p.gated) row = first + r / WARP_ROWS * 16 + r % 16;
        row = min(row, outputs - 1);
        if (p.gated && r % WARP_ROWS >= 16) row += p.width;
        w_from[i] = w + (int64_t)row * p.ld + word * 8;
    }
    const uint32_t base = shared_address(shared);
    auto request = [&](int k, int stage) {
        const uint32_t to = base + (uint32_t)(stage * 2 * TILE_BYTES);
        const bool held = k + word * 8 < p.cols;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int r = r0 + i * 32;
            copy_async(to + place_of(r, word), held ? x_from[i] + k : x_from[i], held);
            copy_async(to + TILE_BYTES + place_of(r, word), held ? w_from[i] + k : w_from[i], held);
        }
        copy_commit();
    };
    const int steps = (p.cols + STEP - 1) / STEP;
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps)
            request(s * STEP, s);
        else
            copy_commit();
    }
    const int pair0 = warp % 2 * WARP_PAIRS, row0 = warp / 2 * WARP_ROWS;
    float sum[WARP_PAIRS / 16][WARP_ROWS / 8][4] = {};
    for (int s = 0; s < steps; s++) {
        copy_wait<STAGES - 2>();
        __syncthreads(); // the step has come, and the stage before is free
        if (s + STAGES - 1 < steps)
            request((s + STAGES - 1) * STEP, (s + STAGES - 1) % STAGES);
        else
            copy_commit();
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
    }

    // The sums to shared memory, so that the activation's code is there once and neighbours are stored together.
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
    for (int i = (int)threadIdx.x; i < tile.n * each; i += THREADS) {
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

template <typename T, int MOST>
void launch_many(const struct experts_product *p, const struct weight *w, cudaStream_t stream) {
    auto kernel = many_kernel<T, MOST>;
    struct experts_table<MOST> t;
    experts_fill(&t, w, p->n_experts);
    const int outputs = p->gated ? p->width : p->rows, each = p->gated ? ROWS / 2 : ROWS;
    const int tiles = (p->pairs < p->n_experts ? p->pairs : p->n_experts) + p->pairs / PAIRS;
    cuda_allow_shared((const void *)kernel, SHARED);
    pdl_launch(kernel, dim3((unsigned)((outputs + each - 1) / each), (unsigned)tiles),
               dim3(THREADS), SHARED, stream, t, *p);
}

} // namespace

int experts_many(const struct experts_product *p, const struct weight *w, cudaStream_t stream) {
    if (p->dtype == DTYPE_BF16)
        EXPERTS_SIZED(p->n_experts, launch_many<__nv_bfloat16, MOST>(p, w, stream));
    else
        EXPERTS_SIZED(p->n_experts, launch_many<__half, MOST>(p, w, stream));
    return cuda_launched("experts_many");
}
