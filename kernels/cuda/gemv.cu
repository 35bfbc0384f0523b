// linear for few rows: y (n, rows) =|+= x (n, cols) W^T + bias, n <= 32, W row-major (rows, ld) in
// bf16, f16, or int8 or e4m3 with a scale for each row, or e4m3 with one for each 128 columns of a
// row.
//
// Bound by reading W once: bytes = rows * ld * sizeof(W). README.md has the rates reached.
//
//   - A block takes 8 rows of W, or 16 or 32, whole. Its 8 warps split K: warp w takes the steps w,
//     w + 8, ... of 128 bytes of each row.
//   - Each thread has its own queue of 16-byte copies into shared memory (cp.async), so 200 KB in
//     flight on a multiprocessor take neither registers nor barriers. The queue is filled before
//     the predecessor in the stream has ended (pdl.cuh).
//   - The products run on the tensor cores (mma.cuh), x as A, W as B. For one row most of the tensor
//     cores' work is wasted, at no cost, because the kernel waits for memory. Reading 8-bit weights
//     takes half as long, so their products must take half as long too: up to 8 rows of x are B and 16
//     rows of W are A, in half as many products. A lane copies exactly the words that it
//     multiplies.
//   - An output's sum: within a warp its steps in ascending order, then the 8 warps in ascending
//     order. The order depends on cols and W's dtype only, so a row's bits are the same for any n
//     and beside any rows. A step of e4m3 is 128 columns: a block with a scale of its own is summed
//     apart, and its scaled sum is added to the warp's. The scales go through the queue too. When
//     the kernel requested the scales only one step ahead, they arrived too late: all of Llama-8B's
//     matrices took 3.4 ms instead of 2.6 ms.
#include "kernels/cuda/gemv.cuh"

namespace {

constexpr int BLOCKS_MOST = 4;
// Every block norms x again, so a block must have at least this many bytes of W. With the norm inside, Llama-8B (128 KB a
// block) took 2 % less time. NARROW: the bound where each thread holds x in one vector, because that norm is shorter and
// leaves registers free: Llama-1B (32 KB) took 1 % less time with one vector and 4 % more with two, GPT-2 XL (51 KB) 3 %
// less. Rows of up to SHORT columns (latent attention's q) are normed by a warp or a few.
constexpr int NORM_BYTES = 64 << 10;
constexpr int NORM_BYTES_NARROW = 32 << 10;
constexpr int NORM_BYTES_SHORT = 16 << 10, SHORT = 1024;
// A smaller W has a short queue, which leaves shared memory for blocks of the next launch. Llama-1B
// and GPT-2 XL gained 4 to 6 %; Llama-8B's qkv, which is larger, lost 1 %.
constexpr int64_t SMALL_BYTES = 24 << 20;

struct gemv {
    struct cuda_linear a;
    int32_t n_groups; // of 8 rows of W; gated: of 4 rows and the 4 that they gate
    int32_t stages;   // of the queue
    bool x_shared;    // x is copied to shared memory first
};

// Blocks with a scale each: a step of a warp is one block of GROUPS * 8 rows of W, whose scales go
// through the queue as well. A lane copies four scales, of half a group's four consecutive rows, to
// `offset` among the step's scales. cuda_gemv checks that the rows are a multiple of four.
struct scales {
    const float *from;
    int offset;
    bool held;
};
template <int GROUPS, bool GATED>
__device__ __forceinline__ struct scales scales_of(const struct cuda_linear &a, int first_group,
                                                   int block, int lane) {
    int group = GATED ? lane % GROUPS : lane / 2, half = GATED ? lane / GROUPS : lane % 2;
    int width = GATED ? a.rows / 2 : a.rows;
    int row = GATED ? (first_group + group) * 4 : (first_group + group) * 8 + half * 4;
    const float *from = a.scale + (int64_t)block * a.rows + (row < width ? row : 0);
    return {from + (GATED && half ? width : 0), group * 8 + half * 4, row < width};
}

// NORM: vectors of a thread that x is normed in; 0: it is not normed.
template <typename T, typename W, int GROUPS, int HALVES, bool GATED, bool BLOCKS, int NORM>
__global__ void __launch_bounds__(THREADS, HALVES > 2    ? 1
                                           : HALVES == 2 ? (GROUPS == 1 ? 3 : 2)
                                           : BLOCKS      ? 2
                                                         : BLOCKS_MOST / GROUPS + (GROUPS == 2))
    gemv_kernel(const __grid_constant__ struct gemv j) {
    using S = shape<T, W, GROUPS, HALVES, BLOCKS>;
    constexpr bool TURNED = sizeof(W) == 1 && HALVES == 1; // W is A, x is B (multiply_two)
    extern __shared__ __align__(16) char shared[];
    const struct cuda_linear &a = j.a;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4,
              t = lane % 4;
    pdl_trigger();

    const int first_group = (int)blockIdx.x * GROUPS;
    const int k0 = warp * S::step + t * S::chunk;
    int n_steps = ((a.cols + S::step - 1) / S::step - warp + WARPS - 1) / WARPS; // this warp's
    uint32_t queue = shared_address(shared) + threadIdx.x * 16;
    uint32_t scale_queue = shared_address(shared) + j.stages * GROUPS * STAGE_BYTES;
    float *sums = (float *)(shared + j.stages * S::stage_bytes);

    // The rows, at this lane's next k to be fetched.
    const W *row[GROUPS];
    int ahead = k0;
#pragma unroll
    for (int group = 0; group < GROUPS; group++)
        row[group] = (const W *)a.w + (int64_t)row_of<GATED>(a, first_group + group, g) * a.ld + k0;
    struct scales s = {};
    if (BLOCKS) s = scales_of<GROUPS, GATED>(a, first_group, warp, lane);
    auto request = [&](int stage) {
#pragma unroll
        for (int group = 0; group < GROUPS; group++) {
            uint32_t to = queue + (uint32_t)((stage * GROUPS + group) * STAGE_BYTES);
            bool held = first_group + group < j.n_groups;
            copy_once(to, row[group], held && ahead < a.cols);
            copy_once(to + THREADS * 16, row[group] + 4 * S::chunk,
                      held && ahead + 4 * S::chunk < a.cols);
            row[group] += WARPS * S::step;
        }
        if (BLOCKS) {
            uint32_t to = scale_queue + (uint32_t)((stage * WARPS + warp) * S::scale_bytes);
            if (lane < 2 * GROUPS)
                copy_async(to + s.offset * 4, s.from, s.held && ahead - t * S::chunk < a.cols);
            s.from += (int64_t)WARPS * a.rows;
        }
        ahead += WARPS * S::step;
        copy_commit();
    };
    for (int stage = 0; stage < j.stages; stage++) request(stage);
    struct norm_constants<NORM ? NORM : 1> constants;
    if constexpr (NORM > 0) norm_constants_load<NORM, THREADS>(constants, a);
    pdl_wait();
    const T *x_from = (const T *)a.x;
    if constexpr (NORM > 0) {
        T *to = (T *)((char *)sums + S::row_sum_bytes);
        norm_row<T, NORM, THREADS>(to, x_from, a, constants, [] { __syncthreads(); });
        __syncthreads();
        x_from = to;
    } else if (j.x_shared) {
        T *to = (T *)((char *)sums + a.n * S::row_sum_bytes);
        constexpr int AHEAD = 4, STRIDE = THREADS * 8;
        for (int i = (int)threadIdx.x * 8; i < a.n * a.cols; i += AHEAD * STRIDE) {
            uint4 v[AHEAD];
#pragma unroll
            for (int c = 0; c < AHEAD; c++)
                if (i + c * STRIDE < a.n * a.cols) v[c] = *(const uint4 *)(x_from + i + c * STRIDE);
#pragma unroll
            for (int c = 0; c < AHEAD; c++)
                if (i + c * STRIDE < a.n * a.cols) *(uint4 *)(to + i + c * STRIDE) = v[c];
        }
        __syncthreads();
        x_from = to;
    }

    uint32_t x[2][HALVES][S::words], next[2][HALVES][S::words];
    load_x<T>(next, a, x_from, k0, g);
    float sum[GROUPS][S::tiles][4] = {};
    int stage = 0;
    for (int step = 0; step < n_steps; step++) {
        memcpy(x, next, sizeof x);
        load_x<T>(next, a, x_from, k0 + (step + 1) * WARPS * S::step, g);
        copy_wait_oldest(j.stages);
        if (BLOCKS) __syncwarp(); // scales are another lane's copies
        auto copied = [&](int group, int c) {
            return load_shared(
                queue + (uint32_t)((stage * GROUPS + group) * STAGE_BYTES + c * THREADS * 16));
        };
#pragma unroll
        for (int pair = 0; pair < GROUPS / 2 && TURNED; pair++) {
            float two[4] = {};
#pragma unroll
            for (int c = 0; c < 2 && TURNED; c++)
                multiply_two<T, W>(BLOCKS ? two : sum[pair][0], copied(2 * pair, c),
                                   copied(2 * pair + 1, c), x[c][0]);
#pragma unroll
            for (int i = 0; i < 4 && BLOCKS; i++) {
                const float scale = load_shared_float(
                    scale_queue + (uint32_t)((stage * WARPS + warp) * S::scale_bytes) +
                    (uint32_t)((2 * pair + i / 2) * 8 + g) * 4);
                sum[pair][0][i] = fmaf(two[i], scale, sum[pair][0][i]);
            }
        }
#pragma unroll
        for (int c = 0; c < 2 && !BLOCKS && !TURNED; c++) {
#pragma unroll
            for (int group = 0; group < GROUPS; group++)
                multiply_copy<T, W, HALVES>(sum[group], copied(group, c), x[c]);
        }
#pragma unroll
        for (int group = 0; group < GROUPS && BLOCKS && !TURNED; group++) {
            float block[S::tiles][4] = {};
            multiply_copy<T, W, HALVES>(block, copied(group, 0), x[0]);
            multiply_copy<T, W, HALVES>(block, copied(group, 1), x[1]);
            float2 scale =
                load_shared_pair(scale_queue + (uint32_t)((stage * WARPS + warp) * S::scale_bytes) +
                                 (uint32_t)(group * 8 + 2 * t) * 4);
#pragma unroll
            for (int i = 0; i < S::tiles * 4; i++)
                sum[group][i / 4][i % 4] =
                    fmaf(block[i / 4][i % 4], i % 2 ? scale.y : scale.x, sum[group][i / 4][i % 4]);
        }
        if (BLOCKS) __syncwarp();
        request(stage);
        if (++stage == j.stages) stage = 0;
    }
#pragma unroll
    for (int group = 0; group < GROUPS && TURNED; group++) {
        float *to = sums + ((warp * GROUPS + group) * a.n + 2 * t) * 8 + g;
        if (2 * t < a.n) to[0] = sum[group / 2][0][group % 2 * 2];
        if (2 * t + 1 < a.n) to[8] = sum[group / 2][0][group % 2 * 2 + 1];
    }
#pragma unroll
    for (int group = 0; group < GROUPS && !TURNED; group++) {
#pragma unroll
        for (int h = 0; h < HALVES; h++) {
            float *to = sums + ((warp * GROUPS + group) * a.n + h * 8 + g) * 8 + 2 * t;
            if (h * 8 + g < a.n)
                *(float2 *)to =
                    make_float2(sum[group][h / 2][h % 2 * 2], sum[group][h / 2][h % 2 * 2 + 1]);
        }
    }
    __syncthreads();
    finish<T, GROUPS, GATED>(sums, a, first_group, (int)threadIdx.x, THREADS);
}

// How a launch is cut: groups for each block, and blocks that fit on a multiprocessor together.
struct cut {
    int groups, blocks;
};

// Best is one wave that fills the chip, because a few large blocks would be distributed unevenly;
// next best are many waves. With more rows of W, a block reads x less often and widens more 8-bit
// values at once. The weights of the score were found by measuring.
struct cut cut_of(const struct gemv &j, bool in_8bit) {
    static const struct cut cuts[] = {{4, 2}, {2, 2}, {2, 3}, {1, 3}, {1, 4}};
    struct cut best = cuts[0];
    float most = 0.0f;
    const int n_multiprocessors = cuda_current_device().multiprocessors;
    int n_cuts = in_8bit || j.a.n > 16 ? 1 : j.a.n > 8 ? 2 : 5; // the rest lacks registers
    for (int i = 0; i < n_cuts; i++) {
        struct cut c = cuts[i];
        int blocks = (j.n_groups + c.groups - 1) / c.groups;
        float waves = (float)blocks / (float)(n_multiprocessors * c.blocks);
        if (waves > 1.0f && c.groups == 1) continue;
        float score = waves <= 1.0f ? waves : waves / (waves + 0.5f);
        score /= 1.0f + 0.15f * (float)j.a.n / (float)c.groups;
        if (score > most) most = score, best = c;
    }
    return best;
}

template <typename T, typename W, int GROUPS, int HALVES, bool GATED, bool BLOCKS, int NORM>
bool launch_gemv(struct gemv j, int blocks, cudaStream_t stream) {
    using S = shape<T, W, GROUPS, HALVES, BLOCKS>;
    auto kernel = gemv_kernel<T, W, GROUPS, HALVES, GATED, BLOCKS, NORM>;
    // Limits: the shared memory of a multiprocessor, less the system's part for each block; and the
    // most of one block, which on graphics devices is less than some cuts need.
    const struct cuda_device device = cuda_current_device();
    const int shared = device.shared_per_multiprocessor, most = device.shared_per_block;
    int room = shared / blocks - 1024;
    j.stages = (blocks == 4 ? 6 : blocks == 3 ? 8 : 12) / GROUPS;
    const int64_t w_row = (int64_t)j.a.ld * (int64_t)sizeof(W);
    if (sizeof(W) == 2 && HALVES == 1 && j.a.rows * w_row < SMALL_BYTES) j.stages = 2;
    const int least = j.a.cols <= SHORT ? NORM_BYTES_SHORT
                      : NORM == 1       ? NORM_BYTES_NARROW
                                        : NORM_BYTES;
    if (NORM && GROUPS * 8 * w_row < least) return false;
    const int sum_bytes = j.a.n * S::row_sum_bytes;
    while (j.stages > 2 && j.stages * S::stage_bytes + sum_bytes > most)
        j.stages = j.stages > 3 ? j.stages / 2 : 2;
    int bytes = j.stages * S::stage_bytes + sum_bytes;
    int64_t x_bytes = (int64_t)j.a.n * j.a.cols * (int)sizeof(T);
    j.x_shared = x_bytes <= room - bytes;
    if (NORM && !j.x_shared) return false;
    if (j.x_shared) bytes += (int)x_bytes;
    cuda_allow_shared((const void *)kernel, (size_t)bytes);
    pdl_launch(kernel, dim3((unsigned)((j.n_groups + GROUPS - 1) / GROUPS)), dim3(THREADS),
               (size_t)bytes, stream, j);
    return true;
}

// False: no norm on the way in for this shape.
template <typename T, typename W, int GROUPS, bool BLOCKS>
bool launch_for_rows(const struct gemv &j, int blocks, cudaStream_t stream) {
    bool gated = j.a.activate && j.a.gated;
    constexpr int G = GROUPS;
    if constexpr (sizeof(W) == 2)
        if (j.a.norm_weight)
            return j.a.cols <= THREADS * 8
                       ? (gated ? launch_gemv<T, W, G, 1, true, BLOCKS, 1>(j, blocks, stream)
                                : launch_gemv<T, W, G, 1, false, BLOCKS, 1>(j, blocks, stream))
                       : (gated ? launch_gemv<T, W, G, 1, true, BLOCKS, 2>(j, blocks, stream)
                                : launch_gemv<T, W, G, 1, false, BLOCKS, 2>(j, blocks, stream));
    if (j.a.n <= 8)
        return gated ? launch_gemv<T, W, G, 1, true, BLOCKS, 0>(j, blocks, stream)
                     : launch_gemv<T, W, G, 1, false, BLOCKS, 0>(j, blocks, stream);
    if (j.a.n <= 16)
        return gated ? launch_gemv<T, W, G, 2, true, BLOCKS, 0>(j, blocks, stream)
                     : launch_gemv<T, W, G, 2, false, BLOCKS, 0>(j, blocks, stream);
    return gated ? launch_gemv<T, W, G, 4, true, BLOCKS, 0>(j, blocks, stream)
                 : launch_gemv<T, W, G, 4, false, BLOCKS, 0>(j, blocks, stream);
}

template <typename T> bool launch_gemv_typed(const struct gemv &j, cudaStream_t stream) {
    bool in_8bit = j.a.w_dtype != j.a.dtype;
    struct cut c = cut_of(j, in_8bit);
    if (j.a.w_dtype == DTYPE_I8) return launch_for_rows<T, int8_t, 4, false>(j, c.blocks, stream);
    if (in_8bit && j.a.block_k) return launch_for_rows<T, e4m3, 4, true>(j, c.blocks, stream);
    if (in_8bit) return launch_for_rows<T, e4m3, 4, false>(j, c.blocks, stream);
    if (c.groups == 4) return launch_for_rows<T, T, 4, false>(j, c.blocks, stream);
    if (c.groups == 2) return launch_for_rows<T, T, 2, false>(j, c.blocks, stream);
    return launch_for_rows<T, T, 1, false>(j, c.blocks, stream);
}

} // namespace

int cuda_gemv(const struct cuda_linear *a, cudaStream_t stream) {
    bool half = a->dtype == DTYPE_BF16 || a->dtype == DTYPE_F16;
    bool gated = a->activate && a->gated;
    bool in_8bit = a->w_dtype == DTYPE_I8 || a->w_dtype == DTYPE_F8_E4M3;
    bool normed =
        !a->norm_weight || (!in_8bit && a->n == 1 && a->cols <= NORM_VECTORS * THREADS * 8);
    if (!half || a->n < 1 || a->n > 32 || a->cols % 8 != 0 || !normed ||
        (a->w_dtype != a->dtype && !in_8bit) || (in_8bit && a->ld % 16 != 0) ||
        (gated && a->rows % 2 != 0) ||
        (a->block_k && (a->block_k != STEP_BYTES || a->rows % (gated ? 8 : 4) != 0)))
        return CUDA_UNSUPPORTED;
    struct gemv j = {*a, gated ? (a->rows / 2 + 3) / 4 : (a->rows + 7) / 8, 0, false};
    bool taken = a->dtype == DTYPE_BF16 ? launch_gemv_typed<__nv_bfloat16>(j, stream)
                                        : launch_gemv_typed<__half>(j, stream);
    return taken ? cuda_launched("gemv") : CUDA_UNSUPPORTED;
}
