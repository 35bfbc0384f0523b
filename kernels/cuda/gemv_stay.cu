// linear with a norm before it, for one row and a matrix of more blocks than the chip has places
// for: y (rows) = round(norm(x)) W^T + bias, with activation. W row-major (rows, ld) in bf16 or f16.
//
// gemv.cu gives each block 8 to 32 rows of W, so each of some thousand blocks starts, norms x, waits
// for its first bytes and ends alone. Here two blocks stay on each multiprocessor. They norm x once,
// and take items of 8 GROUPS rows of W until none is left:
//
//   - Eight warps multiply, as in gemv.cu. Their queues go from one item to the next without a pause.
//   - A ninth warp finishes items: it adds the eight warps' sums and activates, while these are at
//     the next item. Finished by one of the eight, whose queue stands still meanwhile, Llama-8B was
//     10 % slower than with gemv.cu.
//   - The ninth warp also draws the next items from a counter (a ticket), because multiprocessors
//     are not equally near to memory: in equal shares, Llama-8B was 4 % slower.
//
// Sums have the order of gemv.cu, and so its bits.
#include "kernels/cuda/gemv.cuh"
#include "kernels/cuda/gemv_items.cuh"

namespace {

constexpr int GROUPS = 2, BLOCKS = 2; // of an item; on a multiprocessor
// Of a block, at least. With 1.2 to 1.5, the qkv of Llama-3B and 8B and GPT-2 XL's fc1 were slower (by
// 4 to 10 % of a step); with 2.9, GPT-J's qkv and fc1 were faster (by 8 %).
constexpr int ITEMS_LEAST = 2;

struct gemv_stay {
    struct cuda_linear a;
    struct items items;
    int32_t stages; // of the queue
};

template <typename T, bool GATED, int VECTORS>
__global__ void __launch_bounds__(STAY_THREADS, BLOCKS)
    gemv_stay_kernel(const __grid_constant__ struct gemv_stay j) {
    using S = shape<T, T, GROUPS, 1, false>;
    extern __shared__ __align__(16) char shared[];
    __shared__ volatile uint64_t known[KNOWN];
    const struct cuda_linear &a = j.a;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4,
              t = lane % 4;
    constexpr int sum_floats = S::row_sum_bytes / (int)sizeof(float);
    float *sums = (float *)(shared + j.stages * S::stage_bytes);
    T *x_here = (T *)(sums + BUFFERS * sum_floats);
    pdl_trigger();
    if (warp == WARPS) know_first(known, lane);
    __syncthreads();
    if (warp == WARPS) {
        finish_items(
            j.items, known, lane, [](int) { return 0; },
            [&](int item, int buffer, int) {
                finish<T, GROUPS, GATED>(sums + buffer * sum_floats, a, item * GROUPS, lane, 32);
            });
        return;
    }

    const int k0 = warp * S::step + t * S::chunk;
    const int n_steps =
        ((a.cols + S::step - 1) / S::step - warp + WARPS - 1) / WARPS; // this warp's
    const uint32_t queue = shared_address(shared) + threadIdx.x * 16;
    // What is requested next: step `step_asked` of item `asked`, from `ahead` on.
    int step_asked = 0, asked = (int)blockIdx.x, ahead = k0;
    uint32_t n_asked = 0; // items before it
    bool inside = true;   // it exists
    const T *row[GROUPS];
#pragma unroll
    for (int group = 0; group < GROUPS; group++)
        row[group] =
            (const T *)a.w + (int64_t)row_of<GATED>(a, asked * GROUPS + group, g) * a.ld + k0;
    auto request = [&](int stage) {
        if (step_asked == n_steps) {
            int next = inside ? item_of(known, ++n_asked) : asked;
            inside = inside && next < j.items.n;
            if (!inside) next = asked; // the addresses stay good
            int64_t on = (int64_t)(next - asked) * (GROUPS * (GATED ? 4 : 8)) * a.ld -
                         (int64_t)n_steps * (WARPS * S::step);
#pragma unroll
            for (int group = 0; group < GROUPS; group++) row[group] += on;
            step_asked = 0, asked = next, ahead = k0;
        }
#pragma unroll
        for (int group = 0; group < GROUPS; group++) {
            uint32_t to = queue + (uint32_t)((stage * GROUPS + group) * STAGE_BYTES);
            copy_once(to, row[group], inside && ahead < a.cols);
            copy_once(to + THREADS * 16, row[group] + 4 * S::chunk,
                      inside && ahead + 4 * S::chunk < a.cols);
            row[group] += WARPS * S::step;
        }
        ahead += WARPS * S::step;
        step_asked++;
        copy_commit();
    };
    for (int stage = 0; stage < j.stages; stage++) request(stage);
    struct norm_constants<VECTORS> constants;
    norm_constants_load<VECTORS, THREADS>(constants, a);
    pdl_wait();
    norm_row<T, VECTORS, THREADS>(x_here, (const T *)a.x, a, constants, barrier_of_eight);
    barrier_of_eight();

    uint32_t x[2][1][S::words], next[2][1][S::words];
    load_x<T>(next, a, (const T *)x_here, k0, g);
    int stage = 0;
    for (uint32_t c = 0; item_of(known, c) < j.items.n; c++) {
        float sum[GROUPS][1][4] = {};
        for (int step = 0; step < n_steps; step++) {
            memcpy(x, next, sizeof x);
            load_x<T>(next, a, (const T *)x_here,
                      step + 1 == n_steps ? k0 : k0 + (step + 1) * WARPS * S::step, g);
            copy_wait_oldest(j.stages);
#pragma unroll
            for (int i = 0; i < 2; i++) {
#pragma unroll
                for (int group = 0; group < GROUPS; group++)
                    multiply_copy<T, T, 1>(
                        sum[group],
                        load_shared(queue + (uint32_t)((stage * GROUPS + group) * STAGE_BYTES +
                                                       i * THREADS * 16)),
                        x[i]);
            }
            request(stage);
            if (++stage == j.stages) stage = 0;
        }
        if (c >= BUFFERS) mbarrier_wait(EMPTY + c % BUFFERS);
        float *here = sums + c % BUFFERS * sum_floats;
#pragma unroll
        for (int group = 0; group < GROUPS && g == 0; group++)
            *(float2 *)(here + (warp * GROUPS + group) * 8 + 2 * t) =
                make_float2(sum[group][0][0], sum[group][0][1]);
        mbarrier_arrive(FULL + c % BUFFERS);
    }
}

template <typename T, bool GATED>
int launch_stay(const struct cuda_linear &a, uint32_t *ticket, cudaStream_t stream) {
    using S = shape<T, T, GROUPS, 1, false>;
    const struct cuda_device device = cuda_current_device();
    const int grid = device.multiprocessors * BLOCKS;
    const int n_steps = (a.cols + S::step - 1) / S::step / WARPS; // of a warp, at least
    const int rest = BUFFERS * S::row_sum_bytes + a.cols * (int)sizeof(T);
    const int room = min(device.shared_per_multiprocessor / BLOCKS - 2048, device.shared_per_block);
    struct gemv_stay j = {a, {a.rows / (8 * GROUPS), ticket}, 0};
    static const int counts[] = {6, 4, 3, 2}; // that copy_wait_oldest knows
    for (int n : counts)
        if (!j.stages && n <= 2 * n_steps && n * S::stage_bytes + rest <= room) j.stages = n;
    if (!j.stages || j.items.n < ITEMS_LEAST * grid || a.rows % (8 * GROUPS) != 0)
        return CUDA_UNSUPPORTED;
    const size_t bytes = (size_t)(j.stages * S::stage_bytes + rest);
    auto kernel =
        a.cols <= THREADS * 8 ? gemv_stay_kernel<T, GATED, 1> : gemv_stay_kernel<T, GATED, 2>;
    cuda_allow_shared((const void *)kernel, bytes);
    pdl_launch(kernel, dim3((unsigned)grid), dim3(STAY_THREADS), bytes, stream, j);
    return cuda_launched("gemv_stay");
}

} // namespace

int cuda_gemv_stay(const struct cuda_linear *a, uint32_t *ticket, cudaStream_t stream) {
    bool half = a->dtype == DTYPE_BF16 || a->dtype == DTYPE_F16;
    bool gated = a->activate && a->gated;
    if (!half || a->w_dtype != a->dtype || a->n != 1 || !a->norm_weight || a->cols % 8 != 0 ||
        a->cols > NORM_VECTORS * THREADS * 8)
        return CUDA_UNSUPPORTED;
    if (a->dtype == DTYPE_BF16)
        return gated ? launch_stay<__nv_bfloat16, true>(*a, ticket, stream)
                     : launch_stay<__nv_bfloat16, false>(*a, ticket, stream);
    return gated ? launch_stay<__half, true>(*a, ticket, stream)
                 : launch_stay<__half, false>(*a, ticket, stream);
}
