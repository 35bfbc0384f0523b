// linear with a norm before it, for one row and W of 8 bits (int8 or e4m3 with a scale for each row):
// y (rows) = round(norm(x)) W^T + bias, with activation. W row-major (rows, ld).
//
// gemv_stay.cu's blocks with gemv_8bit.cu's products: two blocks stay on each multiprocessor, norm x
// and prepare it once, and take items of 16 rows of W. Eight warps multiply, a ninth finishes items
// and draws the next ones (gemv_items.cuh). An item's scales are on their way while it is multiplied.
//
// Sums have the order of gemv_8bit.cu, and so its bits.
#include "kernels/cuda/gemv_8bit.cuh"
#include "kernels/cuda/gemv_8bit_stay.h"
#include "kernels/cuda/gemv_items.cuh"
#include "kernels/cuda/norm_row.cuh"

namespace {

constexpr int WARPS = 8, THREADS = WARPS * 32;
constexpr int GROUPS = 2, OUTPUTS = GROUPS * 8; // of an item: groups of 8 rows of W, and its rows
constexpr int BLOCKS = 2;                       // on a multiprocessor
constexpr int ITEMS_LEAST = 2;                  // of a block
// Columns, at most, and vectors of a thread that x is normed in. Llama-1B gained 5 %, Llama-3B half a
// percent; Llama-8B, with 4,096 columns, gained nothing.
constexpr int COLS_MOST = 3072, VECTORS_MOST = 2;
constexpr int STAGE_BYTES = GROUPS * THREADS * 32;

struct gemv_8bit_stay {
    struct cuda_linear a;
    struct items items;
    int32_t stages; // of the queue
};

// Where things lie in a block's shared memory, behind the queue.
template <typename T, typename W> struct layout {
    static constexpr int sum_floats = WARPS * GROUPS * x_of<W>::parts * 8; // of a buffer
    int steps;                                                             // of a warp, at most
    int x, inverses, sums, normed, bytes;
    __host__ __device__ layout(int cols, int stages) {
        steps = ((cols + STEP - 1) / STEP + WARPS - 1) / WARPS;
        x = stages * STAGE_BYTES;
        inverses = x + WARPS * steps * x_of<W>::step_bytes;
        sums = inverses + WARPS * steps * 4;
        normed = sums + BUFFERS * sum_floats * (int)sizeof(float);
        bytes = normed + cols * (int)sizeof(T);
    }
};

// --- the ninth warp ------------------------------------------------------------------------------

// Lane l < OUTPUTS has row l of the item's; gated: lanes 0 to 7 the gates, 8 to 15 what they gate.
template <bool GATED>
__device__ __forceinline__ int row_of(const struct cuda_linear &a, int item, int lane) {
    return GATED ? item * 8 + lane % 8 + lane / 8 * (a.rows / 2) : item * OUTPUTS + lane;
}

template <typename T, typename W, bool GATED>
__device__ __forceinline__ void finish(const float *sums, const struct cuda_linear &a, int item,
                                       int lane, float2 scale_and_bias) {
    constexpr int parts = x_of<W>::parts;
    const int group = GATED ? lane % 8 / 4 : lane / 8;
    const int column = GATED ? lane % 4 + lane / 8 * 4 : lane % 8;
    float v = 0.0f;
    if (lane < OUTPUTS) {
        const float *of = sums + group * parts * 8 + column;
#pragma unroll
        for (int w = 0; w < WARPS; w++, of += GROUPS * parts * 8) {
            float part = of[(parts - 1) * 8];
#pragma unroll
            for (int d = parts - 2; d >= 0; d--) part += of[d * 8];
            v += part;
        }
    }
    v *= scale_and_bias.x;
    if (a.bias) v += scale_and_bias.y;
    const float up = __shfl_down_sync(0xffffffffu, v, 8);
    const int n = GATED ? 8 : OUTPUTS, at = item * n + lane;
    if (lane >= n) return;
    if (GATED)
        v = activated(a.act, rounded<T>(v)) * rounded<T>(up);
    else if (a.activate)
        v = activated(a.act, rounded<T>(v));
    if (a.y_f32)
        ((float *)a.y)[at] = v;
    else
        ((T *)a.y)[at] = from_float<T>(v);
}

// --- the kernel ----------------------------------------------------------------------------------

template <typename T, typename W, bool GATED, int VECTORS>
__global__ void __launch_bounds__(STAY_THREADS, BLOCKS)
    gemv_8bit_stay_kernel(const __grid_constant__ struct gemv_8bit_stay j) {
    using X = x_of<W>;
    using L = layout<T, W>;
    constexpr int each = GATED ? 4 : 8;
    extern __shared__ __align__(16) char shared[];
    __shared__ volatile uint64_t known[KNOWN];
    const struct cuda_linear &a = j.a;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4,
              t = lane % 4;
    const L l(a.cols, j.stages);
    float *sums = (float *)(shared + l.sums);
    T *normed = (T *)(shared + l.normed);
    pdl_trigger();
    if (warp == WARPS) know_first(known, lane);
    __syncthreads();
    if (warp == WARPS) {
        finish_items(
            j.items, known, lane,
            [&](int item) {
                float2 v = make_float2(0.0f, 0.0f);
                if (lane < OUTPUTS) {
                    const int row = row_of<GATED>(a, item, lane);
                    v.x = a.scale[row];
                    if (a.bias) v.y = a.bias[row];
                }
                return v;
            },
            [&](int item, int buffer, float2 v) {
                finish<T, W, GATED>(sums + buffer * L::sum_floats, a, item, lane, v);
            });
        return;
    }

    const int n_steps = ((a.cols + STEP - 1) / STEP - warp + WARPS - 1) / WARPS; // this warp's
    const uint32_t base = shared_address(shared), queue = base + threadIdx.x * 16;
    // What is requested next: step `step_asked` of item `asked`, from `ahead` on.
    const int k0 = warp * STEP + t * 16;
    int step_asked = 0, asked = (int)blockIdx.x, ahead = k0;
    uint32_t n_asked = 0; // items before it
    bool inside = true;   // it exists
    const char *row[GROUPS];
#pragma unroll
    for (int i = 0; i < GROUPS; i++) {
        const int r = (asked * GROUPS + i) * each + (GATED ? g % 4 + (g >= 4 ? a.rows / 2 : 0) : g);
        row[i] = (const char *)a.w + (int64_t)r * a.ld + k0;
    }
    auto request = [&](int stage) {
        if (step_asked == n_steps) {
            int next = inside ? item_of(known, ++n_asked) : asked;
            inside = inside && next < j.items.n;
            if (!inside) next = asked; // the addresses stay good
            int64_t on = (int64_t)(next - asked) * (GROUPS * each) * a.ld -
                         (int64_t)n_steps * (WARPS * STEP);
#pragma unroll
            for (int i = 0; i < GROUPS; i++) row[i] += on;
            step_asked = 0, asked = next, ahead = k0;
        }
        const uint32_t to = queue + (uint32_t)(stage * STAGE_BYTES);
#pragma unroll
        for (int i = 0; i < GROUPS; i++) {
            copy_once(to + i * THREADS * 32, row[i], inside && ahead < a.cols);
            copy_once(to + i * THREADS * 32 + THREADS * 16, row[i] + 64,
                      inside && ahead + 64 < a.cols);
            row[i] += WARPS * STEP;
        }
        ahead += WARPS * STEP;
        step_asked++;
        copy_commit();
    };
    for (int stage = 0; stage < j.stages; stage++) request(stage);
    {
        struct norm_constants<VECTORS> constants;
        norm_constants_load<VECTORS, THREADS>(constants, a);
        pdl_wait();
        norm_row<T, VECTORS, THREADS>(normed, (const T *)a.x, a, constants, barrier_of_eight);
    }
    barrier_of_eight();

    const uint32_t x_here = base + (uint32_t)(l.x + warp * l.steps * X::step_bytes);
    const uint32_t inverses = base + (uint32_t)(l.inverses + warp * l.steps * 4);
    for (int step = 0; step < n_steps; step++) {
        const int k = (step * WARPS + warp) * STEP + lane * 4;
        uint2 four = k < a.cols ? *(const uint2 *)(normed + k) : make_uint2(0, 0);
        float inverse = prepare<T, W>(x_here + (uint32_t)(step * X::step_bytes), lane, four);
        if (lane == 0) store_word(inverses + (uint32_t)(step * 4), __float_as_uint(inverse));
    }
    __syncwarp();

    // Column g of B; lanes beyond the last digit repeat it, and their results are unused.
    const float2 worth = worth_of<W>(t);
    const uint32_t x_digit_at = x_here + (uint32_t)(min(g, X::parts - 1) * 64 + t * 16);
    int stage = 0;
    for (uint32_t c = 0; item_of(known, c) < j.items.n; c++) {
        float2 sum[GROUPS] = {};
        for (int step = 0; step < n_steps; step++) {
            uint4 x[X::reads], w[GROUPS][2];
#pragma unroll
            for (int i = 0; i < X::reads; i++)
                x[i] =
                    load_shared(x_digit_at + (uint32_t)(step * X::step_bytes + i * X::parts * 64));
            const float inverse = load_shared_float(inverses + (uint32_t)(step * 4));
            copy_wait_oldest(j.stages);
            const uint32_t from = queue + (uint32_t)(stage * STAGE_BYTES);
#pragma unroll
            for (int i = 0; i < 2 * GROUPS; i++)
                w[i / 2][i % 2] = load_shared(from + i * THREADS * 16);
            float2 v[GROUPS];
            multiply_step(v, w, x, W());
#pragma unroll
            for (int i = 0; i < GROUPS; i++) {
                sum[i].x = fmaf(v[i].x, inverse * worth.x, sum[i].x);
                if (X::parts > 1) sum[i].y = fmaf(v[i].y, inverse * worth.y, sum[i].y);
            }
            request(stage);
            if (++stage == j.stages) stage = 0;
        }
        if (c >= BUFFERS) mbarrier_wait(EMPTY + (int)(c % BUFFERS));
        float *here = sums + c % BUFFERS * L::sum_floats;
#pragma unroll
        for (int i = 0; i < GROUPS; i++)
            put_sums<W>(here + (warp * GROUPS + i) * X::parts * 8, sum[i], g, t);
        mbarrier_arrive(FULL + (int)(c % BUFFERS));
    }
}

// --- launching -----------------------------------------------------------------------------------

template <typename T, typename W, bool GATED>
int launch_stay(const struct cuda_linear &a, uint32_t *ticket, cudaStream_t stream) {
    using L = layout<T, W>;
    const struct cuda_device device = cuda_current_device();
    const int grid = device.multiprocessors * BLOCKS;
    const int n_steps = (a.cols + STEP - 1) / STEP / WARPS; // of a warp, at least
    const int room = min(device.shared_per_multiprocessor / BLOCKS - 2048, device.shared_per_block);
    struct gemv_8bit_stay j = {a, {a.rows / OUTPUTS, ticket}, 0};
    static const int counts[] = {6, 4, 3, 2}; // that copy_wait_oldest knows
    for (int n : counts)
        if (!j.stages && n <= 2 * n_steps && L(a.cols, n).bytes <= room) j.stages = n;
    if (!j.stages || j.items.n < ITEMS_LEAST * grid) return CUDA_UNSUPPORTED;
    const size_t bytes = (size_t)L(a.cols, j.stages).bytes;
    auto kernel = a.cols <= THREADS * 8 ? gemv_8bit_stay_kernel<T, W, GATED, 1>
                                        : gemv_8bit_stay_kernel<T, W, GATED, VECTORS_MOST>;
    cuda_allow_shared((const void *)kernel, bytes);
    pdl_launch(kernel, dim3((unsigned)grid), dim3(STAY_THREADS), bytes, stream, j);
    return cuda_launched("gemv_8bit_stay");
}

template <typename T>
int launch_typed(const struct cuda_linear &a, uint32_t *ticket, cudaStream_t stream) {
    const bool gated = a.activate && a.gated;
    if (a.w_dtype == DTYPE_I8)
        return gated ? launch_stay<T, int8_t, true>(a, ticket, stream)
                     : launch_stay<T, int8_t, false>(a, ticket, stream);
    return gated ? launch_stay<T, e4m3, true>(a, ticket, stream)
                 : launch_stay<T, e4m3, false>(a, ticket, stream);
}

} // namespace

int cuda_gemv_8bit_stay(const struct cuda_linear *a, uint32_t *ticket, cudaStream_t stream) {
    const bool half = a->dtype == DTYPE_BF16 || a->dtype == DTYPE_F16;
    const bool in_8bit = a->w_dtype == DTYPE_I8 || a->w_dtype == DTYPE_F8_E4M3;
    if (!half || !in_8bit || a->n != 1 || !a->norm_weight || a->add || a->block_k ||
        a->cols % 8 != 0 || a->ld % 16 != 0 || a->rows % OUTPUTS != 0 || a->cols > COLS_MOST)
        return CUDA_UNSUPPORTED;
    return a->dtype == DTYPE_BF16 ? launch_typed<__nv_bfloat16>(*a, ticket, stream)
                                  : launch_typed<__half>(*a, ticket, stream);
}
