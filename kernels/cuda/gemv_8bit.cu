// linear for one row: y (rows) =|+= W x + bias, W row-major (rows, ld) in int8 or e4m3 with a scale
// for each row, or e4m3 with one for each 128 columns of a row.
//
// Bound by reading W once and built like gemv.cu: a block takes whole rows of W, its warps split K,
// and each thread copies the words that it multiplies into its own queue in shared memory. But a
// matrix of 8 bits takes 4 to 13 microseconds, so a block's work before and after its bytes counts
// as much as the bytes. So:
//
//   - W is hardly widened. int8 is multiplied as it is, by the tensor cores' integer product: x is
//     cut into three signed digits of base 256 (a fixed-point number), each digit a column of B. The
//     sums are exact. e4m3 becomes f16 in one instruction for two, and x f16 times a power of two.
//     Both are relative to the largest of a row's 128 columns (a step of a warp): x keeps 21 and 11
//     bits of it, in bf16's range; and a step's sum goes back to the row's scale by one fmaf, which
//     also takes the scale of a block of W.
//   - Each warp prepares the part of x that it multiplies by, so there is one barrier, at the end.
//   - Blocks of 16 rows, and a queue that leaves room on the multiprocessor for blocks of the next
//     launch, which fetch while this one ends (how many: fit_of).
//   - Loads for the end (scale, bias, y) are issued at the beginning.
//
// An output's sum: within a warp its steps ascending, digit by digit; then the warps ascending.
#include "kernels/cuda/gemv_8bit.cuh"

namespace {

constexpr int BLOCK_GROUPS = 2; // of 8 rows of W, in a block
constexpr int LONG = 8192;      // columns, from which on 16 warps share them
template <int WARPS> constexpr int PREPARED = WARPS == 16 ? 8 : 4; // steps of x asked for together

struct gemv_8bit {
    struct cuda_linear a;
    int32_t n_groups; // of 8 rows of W; gated: of 4 rows and the 4 that they gate
    int32_t stages;   // of the queue
};

// --- the kernel ----------------------------------------------------------------------------------

// Where things lie in a block's shared memory. The queue: stages of 2 copies a group and thread,
// then stages of the scales of blocks of W, warp by warp. (One behind the other, since a stage of
// both is too far from the next for an instruction's own offset: copy_once, mma.cuh.)
template <typename W, int WARPS, bool GATED, bool BLOCKS> struct layout {
    static constexpr int threads = WARPS * 32, copies = threads * 32 * BLOCK_GROUPS;
    static constexpr int scale_bytes =
        BLOCKS ? BLOCK_GROUPS * 8 * (int)sizeof(float) : 0; // of a warp
    static constexpr int scales = WARPS * scale_bytes, stage = copies + scales;
    static constexpr int each = GATED ? 4 : 8,
                         outputs = BLOCK_GROUPS * each; // of a group, of the block
    int steps;                                          // of a warp, at most
    int x, inverses, ends, sums, bytes;                 // offsets, and of all of it
    __host__ __device__ layout(int cols, int stages) {
        steps = ((cols + STEP - 1) / STEP + WARPS - 1) / WARPS;
        x = stages * stage;
        inverses = x + WARPS * steps * x_of<W>::step_bytes;
        ends = inverses + WARPS * steps * 4;
        sums = ends + 4 * outputs * 4;
        bytes = sums + WARPS * BLOCK_GROUPS * x_of<W>::parts * 8 * (int)sizeof(float);
    }
};

// 4 bytes into shared memory.
__device__ __forceinline__ void copy_word(uint32_t to, const float *from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}

template <typename T, typename W, int WARPS, bool GATED, bool BLOCKS>
__global__ void __launch_bounds__(WARPS * 32, 32 / WARPS)
    gemv_8bit_kernel(const __grid_constant__ struct gemv_8bit j) {
    using L = layout<W, WARPS, GATED, BLOCKS>;
    using X = x_of<W>;
    constexpr int each = L::each;
    extern __shared__ __align__(16) char shared[];
    const struct cuda_linear &a = j.a;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4,
              t = lane % 4;
    pdl_trigger();

    const int first_group = (int)blockIdx.x * BLOCK_GROUPS, width = GATED ? a.rows / 2 : a.rows;
    const int n_steps = ((a.cols + STEP - 1) / STEP - warp + WARPS - 1) / WARPS; // this warp's
    const L l(a.cols, j.stages);
    const uint32_t base = shared_address(shared), queue = base + threadIdx.x * 16;
    const uint32_t scale_queue =
        base + (uint32_t)(j.stages * L::copies + warp * L::scale_bytes); // stages L::scales apart

    // The rows of W, at this lane's next k to be fetched.
    int asked = 0, ahead = warp * STEP + t * 16;
    const char *row[BLOCK_GROUPS];
#pragma unroll
    for (int i = 0; i < BLOCK_GROUPS; i++) {
        int r = (first_group + i) * each + (GATED ? g % 4 : g);
        row[i] = (const char *)a.w + (int64_t)(min(r, width - 1) + (g >= each ? width : 0)) * a.ld +
                 ahead;
    }
    // Scales of blocks, four a lane: those of half a group, of rows that lie together.
    const int s_group = GATED ? lane % BLOCK_GROUPS : lane / 2,
              s_half = GATED ? lane / BLOCK_GROUPS : lane % 2;
    const int s_row = (first_group + s_group) * each + (GATED ? 0 : s_half * 4);
    const bool s_held = s_row < width;
    const uint32_t s_to = scale_queue + (uint32_t)((s_group * 8 + s_half * 4) * 4);
    const float *s_from =
        a.scale + (int64_t)warp * a.rows + (s_held ? s_row : 0) + (GATED && s_half ? width : 0);
    auto request = [&](int stage) {
        if (asked < n_steps) {
            const uint32_t to = queue + (uint32_t)(stage * L::copies);
#pragma unroll
            for (int i = 0; i < BLOCK_GROUPS; i++) {
                bool held = first_group + i < j.n_groups;
                copy_once(to + i * L::threads * 32, row[i], held && ahead < a.cols);
                copy_once(to + i * L::threads * 32 + L::threads * 16, row[i] + 64,
                          held && ahead + 64 < a.cols);
                row[i] += WARPS * STEP;
            }
            if (BLOCKS && lane < 2 * BLOCK_GROUPS) {
                copy_async(s_to + (uint32_t)(stage * L::scales), s_from, s_held);
                s_from += (int64_t)WARPS * a.rows;
            }
            ahead += WARPS * STEP;
            asked++;
        }
        copy_commit();
    };
    // The scales and biases of this thread's output (gated: of two), with the first stage.
    const int column = (int)threadIdx.x % each, out = first_group * each + (int)threadIdx.x;
    const bool finishes = threadIdx.x < L::outputs && out < width;
    const uint32_t ends = base + (uint32_t)l.ends + threadIdx.x * 4;
    for (int i = 0; i < (GATED ? 2 : 1) && finishes; i++) {
        if (!BLOCKS) copy_word(ends + i * L::outputs * 4, a.scale + out + i * width);
        if (a.bias) copy_word(ends + (2 + i) * L::outputs * 4, a.bias + out + i * width);
    }
    for (int stage = 0; stage < j.stages; stage++) request(stage);

    pdl_wait();
    const uint32_t x_here = base + (uint32_t)(l.x + warp * l.steps * X::step_bytes);
    const uint32_t inverses = base + (uint32_t)(l.inverses + warp * l.steps * 4);
    const T *x_from = (const T *)a.x + warp * STEP + lane * 4;
    for (int first = 0; first < n_steps; first += PREPARED<WARPS>) {
        uint2 four[PREPARED<WARPS>];
#pragma unroll
        for (int s = 0; s < PREPARED<WARPS>; s++) {
            int k = (first + s) * WARPS * STEP;
            bool inside = warp * STEP + lane * 4 + k < a.cols;
            four[s] = inside ? *(const uint2 *)(x_from + k) : make_uint2(0, 0);
        }
#pragma unroll
        for (int s = 0; s < PREPARED<WARPS>; s++) {
            if (first + s >= n_steps) break;
            float inverse =
                prepare<T, W>(x_here + (uint32_t)((first + s) * X::step_bytes), lane, four[s]);
            if (lane == 0)
                store_word(inverses + (uint32_t)((first + s) * 4), __float_as_uint(inverse));
        }
    }
    float before = 0.0f;
    if (finishes && a.add)
        before = a.y_f32 ? ((const float *)a.y)[out] : to_float(((const T *)a.y)[out]);
    __syncwarp();

    // Column g of B; lanes beyond the last digit repeat it, and their results are unused.
    const float2 worth = worth_of<W>(t);
    const uint32_t x_digit_at = x_here + (uint32_t)(min(g, X::parts - 1) * 64 + t * 16);
    float2 sum[BLOCK_GROUPS] = {};
    for (int step = 0, stage = 0; step < n_steps; step++) {
        uint4 x[X::reads], w[BLOCK_GROUPS][2];
#pragma unroll
        for (int i = 0; i < X::reads; i++)
            x[i] = load_shared(x_digit_at + (uint32_t)(step * X::step_bytes + i * X::parts * 64));
        const float inverse = load_shared_float(inverses + (uint32_t)(step * 4));
        copy_wait_oldest(j.stages);
        if (BLOCKS) __syncwarp(); // scales are another lane's copies
        const uint32_t from = queue + (uint32_t)(stage * L::copies);
#pragma unroll
        for (int i = 0; i < 2 * BLOCK_GROUPS; i++)
            w[i / 2][i % 2] = load_shared(from + i * L::threads * 16);
        float2 v[BLOCK_GROUPS];
        multiply_step(v, w, x, W());
#pragma unroll
        for (int i = 0; i < BLOCK_GROUPS; i++) {
            float2 factor = make_float2(inverse * worth.x, inverse * worth.y);
            if (BLOCKS) {
                float s = load_shared_float(scale_queue +
                                            (uint32_t)(stage * L::scales + (i * 8 + g) * 4));
                factor.x *= s, factor.y *= s;
            }
            sum[i].x = fmaf(v[i].x, factor.x, sum[i].x);
            if (X::parts > 1) sum[i].y = fmaf(v[i].y, factor.y, sum[i].y);
        }
        if (BLOCKS) __syncwarp();
        request(stage);
        if (++stage == j.stages) stage = 0;
    }

    float *sums = (float *)(shared + l.sums);
#pragma unroll
    for (int i = 0; i < BLOCK_GROUPS; i++)
        put_sums<W>(sums + (warp * BLOCK_GROUPS + i) * X::parts * 8, sum[i], g, t);
    copy_wait<0>(); // a warp without steps has waited for nothing yet
    __syncthreads();
    if (!finishes) return;
    auto total = [&](int half) { // 1: of what is gated
        const float *of = sums + (int)threadIdx.x / each * X::parts * 8 + column + half * each;
        float v = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++, of += BLOCK_GROUPS * X::parts * 8) {
            float part = of[(X::parts - 1) * 8];
#pragma unroll
            for (int d = X::parts - 2; d >= 0; d--) part += of[d * 8];
            v += part;
        }
        if (!BLOCKS) v *= load_shared_float(ends + half * L::outputs * 4);
        if (a.bias) v += load_shared_float(ends + (2 + half) * L::outputs * 4);
        return v;
    };
    float v = total(0);
    if (GATED)
        v = activated(a.act, rounded<T>(v)) * rounded<T>(total(1));
    else if (a.activate)
        v = activated(a.act, rounded<T>(v));
    if (a.add) v += before;
    if (a.y_f32)
        ((float *)a.y)[out] = v;
    else
        ((T *)a.y)[out] = from_float<T>(v);
}

// --- launching -----------------------------------------------------------------------------------

// Blocks for which there is to be room on a multiprocessor: with more of them the next launch's
// come early, with fewer each has more bytes on their way. Measured: four, and three where all
// blocks find a place at once and some are left over.
int fit_of(int warps, int blocks) {
    if (warps == 16) return 2;
    return blocks <= 2 * cuda_current_device().multiprocessors ? 3 : 4;
}

// The stages that so many blocks have room for, and that a warp has steps for.
template <typename L> int stages_of(int cols, int fit) {
    static const int counts[] = {8, 6, 4, 3, 2, 1}; // that copy_wait_oldest knows
    const struct cuda_device d = cuda_current_device();
    const L empty(cols, 0);
    for (int stages : counts) {
        int bytes = empty.bytes + stages * L::stage;
        if (stages <= empty.steps && bytes <= d.shared_per_multiprocessor / fit - 1024 &&
            bytes <= d.shared_per_block)
            return stages;
    }
    return 0;
}

template <typename T, typename W, int WARPS, bool GATED, bool BLOCKS>
int launch_8bit(struct gemv_8bit j, cudaStream_t stream) {
    using L = layout<W, WARPS, GATED, BLOCKS>;
    auto kernel = gemv_8bit_kernel<T, W, WARPS, GATED, BLOCKS>;
    const int blocks = (j.n_groups + BLOCK_GROUPS - 1) / BLOCK_GROUPS;
    const int least = L(j.a.cols, 0).steps > 1 ? 2 : 1;
    j.stages = 0;
    for (int fit = fit_of(WARPS, blocks); fit > 0 && j.stages < least; fit--)
        j.stages = stages_of<L>(j.a.cols, fit);
    if (j.stages < least) return CUDA_UNSUPPORTED;
    cuda_allow_shared((const void *)kernel, (size_t)L(j.a.cols, j.stages).bytes);
    pdl_launch(kernel, dim3((unsigned)blocks), dim3(WARPS * 32),
               (size_t)L(j.a.cols, j.stages).bytes, stream, j);
    return cuda_launched("gemv_8bit");
}

template <typename T, typename W, bool BLOCKS>
int launch_cut(const struct gemv_8bit &j, cudaStream_t stream) {
    bool gated = j.a.activate && j.a.gated;
    if (j.a.cols >= LONG)
        return gated ? launch_8bit<T, W, 16, true, BLOCKS>(j, stream)
                     : launch_8bit<T, W, 16, false, BLOCKS>(j, stream);
    return gated ? launch_8bit<T, W, 8, true, BLOCKS>(j, stream)
                 : launch_8bit<T, W, 8, false, BLOCKS>(j, stream);
}

template <typename T> int launch_8bit_typed(const struct gemv_8bit &j, cudaStream_t stream) {
    if (j.a.w_dtype == DTYPE_I8) return launch_cut<T, int8_t, false>(j, stream);
    return j.a.block_k ? launch_cut<T, e4m3, true>(j, stream)
                       : launch_cut<T, e4m3, false>(j, stream);
}

} // namespace

int cuda_gemv_8bit(const struct cuda_linear *a, cudaStream_t stream) {
    bool half = a->dtype == DTYPE_BF16 || a->dtype == DTYPE_F16;
    bool int8 = a->w_dtype == DTYPE_I8, fp8 = a->w_dtype == DTYPE_F8_E4M3;
    bool gated = a->activate && a->gated;
    if (!half || (!int8 && !fp8) || a->n != 1 || a->cols % 8 != 0 || a->ld % 16 != 0 ||
        a->norm_weight || (gated && a->rows % 2 != 0) ||
        (a->block_k && (a->block_k != STEP || a->rows % (gated ? 8 : 4) != 0)))
        return CUDA_UNSUPPORTED;
    struct gemv_8bit j = {*a, gated ? (a->rows / 2 + 3) / 4 : (a->rows + 7) / 8, 0};
    return a->dtype == DTYPE_BF16 ? launch_8bit_typed<__nv_bfloat16>(j, stream)
                                  : launch_8bit_typed<__half>(j, stream);
}
