// Experts of one row: up, down and the sum in one launch, whose blocks stay, one on each multiprocessor. 16-bit
// weights.
//
// A block's items are some rows of a matrix, first of `up`, then of `down`. Eight warps divide an item's K and
// multiply; a ninth finishes items: it adds their sums and activates, or adds to y, while these are at the next item
// (gemv_items.cuh). The warps' queues go from one item to the next, and also from the last item of `up` to
// the first of `down`, whose bytes arrive while the last hidden values are on their way: all blocks meet at a counter
// before any reads hidden values. So all of them must be on the chip at the same time. They are: a launch
// in front of this one ends without it, one behind it starts when all blocks here have, and on a device one backend
// alone has such launches (cuda_claim_device).
//
//   up       16 rows of one expert (gated: 8 gates and the 8 others that go with them), 64 columns a step
//   down     8 rows of y and K of all chosen experts one after the other, 128 columns a step; the end sums the
//            experts in ascending order
//
// W is A of the tensor cores' product and x is every column of B, 16 bytes a lane (mma.cuh). In a step of
// down, A's rows 8 to 15 are the same 8 rows of W, 64 columns on; odd columns of B are x there.
//
// Which warp takes which step of an item depends on the items before, so y's bits depend on the number of
// multiprocessors, and calls of more rows have other kernels: not for `deterministic`.
#include "kernels/cuda/experts.cuh"
#include "kernels/cuda/gemv_items.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/stay_meeting.cuh"
#include <algorithm>

namespace {

constexpr int WARPS = MULTIPLYING / 32, COPIES = 4, COPY_BYTES = MULTIPLYING * 16;
constexpr int STAGE_BYTES = COPIES * COPY_BYTES; // a step of each warp
constexpr int TALL = 16, FLAT = 8;               // rows of W in an item of up, of down
constexpr int TALL_STEP = 64, FLAT_STEP = 128;   // columns of a step
constexpr int CHOSEN_MOST = 16;
constexpr unsigned ALL = 0xffffffffu;

template <int MOST> struct tables { const void *up[MOST], *down[MOST]; };

struct stay_job {
    struct experts_product up, down;
    const float *weights;
    void *y;
    bool add;
    uint32_t *meeting; // stay_meeting.cuh
    int32_t up_tiles, down_tiles, stages;
    int32_t sum_floats;            // of a buffer
    int32_t x_pitch, hidden_pitch; // in shared memory
};

template <typename T>
__device__ __forceinline__ void multiply(float (&sum)[4], uint4 c, uint4 d, uint4 b) {
    const uint32_t low[4] = {c.x, d.x, c.y, d.y}, high[4] = {c.z, d.z, c.w, d.w};
    mma(sum, low, b.x, b.y, T());
    mma(sum, high, b.z, b.w, T());
}

// The ends of items, by the ninth warp.
template <typename T> struct finisher {
    const struct stay_job &j;
    const float *sums;
    int lane, chosen; // this lane's id
    float weight;     // and weight

    __device__ __forceinline__ float bias_of(const struct experts_product &p, int expert,
                                             int row) const {
        return p.bias && row < p.rows ? p.bias[(int64_t)expert * p.rows + row] : 0.0f;
    }
    // 16 rows of one expert, by half the warp.
    __device__ __forceinline__ void up(int item, int c) const {
        const struct experts_product &p = j.up;
        const int pair = item / j.up_tiles, tile = item % j.up_tiles, r = lane % TALL;
        const int row = p.gated ? tile * FLAT + r % FLAT + r / FLAT * p.width : tile * TALL + r;
        const float bias = bias_of(p, __shfl_sync(ALL, chosen, pair), row);
        mbarrier_wait(FULL + c % BUFFERS);
        const float *here = sums + c % BUFFERS * j.sum_floats;
        float v = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++) v += here[w * TALL + r];
        v += bias;
        const float other = __shfl_down_sync(ALL, v, FLAT);
        const int o = tile * (p.gated ? FLAT : TALL) + r;
        if (lane < (p.gated ? FLAT : TALL) && o < p.width)
            ((T *)p.hidden)[(int64_t)pair * p.width + o] =
                from_float<T>(p.gated ? gated_value(p, v, other) : activated(p.act, v));
    }
    // 8 rows of y; a quarter of the warp takes an expert.
    __device__ __forceinline__ void down(int tile, int c) const {
        const struct experts_product &p = j.down;
        const int r = lane % FLAT, quarter = lane / FLAT, row = tile * FLAT + r;
        float bias[CHOSEN_MOST / 4];
#pragma unroll
        for (int i = 0; i < CHOSEN_MOST / 4; i++)
            bias[i] =
                bias_of(p, __shfl_sync(ALL, chosen, min(i * 4 + quarter, p.n_chosen - 1)), row);
        T *y = (T *)j.y + min(row, p.rows - 1);
        float sum = j.add ? to_float(*y) : 0.0f;
        mbarrier_wait(FULL + c % BUFFERS);
        const float *here = sums + c % BUFFERS * j.sum_floats;
#pragma unroll
        for (int i = 0; i < CHOSEN_MOST / 4; i++) {
            if (i * 4 >= p.n_chosen) break;
            const int mine = min(i * 4 + quarter, p.n_chosen - 1);
            float v = 0.0f;
#pragma unroll
            for (int w = 0; w < WARPS; w++) v += here[(mine * WARPS + w) * FLAT + r];
            v += bias[i];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const float theirs = __shfl_sync(ALL, v, k * FLAT + r);
                const float by = __shfl_sync(ALL, weight, i * 4 + k);
                if (i * 4 + k < p.n_chosen) sum = fmaf(by, theirs, sum);
            }
        }
        if (lane < FLAT && row < p.rows) *y = from_float<T>(sum);
    }
};

template <typename T, int MOST>
__global__ void __launch_bounds__(STAY_THREADS, 1)
    stay_kernel(const __grid_constant__ struct tables<MOST> t,
                const __grid_constant__ struct stay_job j) {
    extern __shared__ __align__(16) char shared[];
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4,
              q = lane % 4, grid = (int)gridDim.x;
    const int n_up = j.up.n_chosen * j.up_tiles, n_items = n_up + j.down_tiles;
    float *sums = (float *)(shared + j.stages * STAGE_BYTES);
    T *x_here = (T *)(sums + BUFFERS * j.sum_floats), *hidden_here = x_here + j.x_pitch;
    pdl_trigger();
    pdl_wait();
    int chosen = 0;
    if (lane < j.up.n_chosen) chosen = chosen_expert(j.up, lane);

    if (warp == WARPS) {
        const float weight = lane < j.up.n_chosen ? chosen_weight(j.up, j.weights, lane) : 0.0f;
        const struct finisher<T> f = { j, sums, lane, chosen, weight };
        meeting_finish(
            j.meeting, lane, n_up, n_items, [&](int item, int c) { f.up(item, c); },
            [&](int item, int c) { f.down(item, c); });
        return;
    }

    // What is requested next: step `ask_step` of expert `ask_seg` (of down; else 0) of item `asked`.
    const uint32_t queue = shared_address(shared) + threadIdx.x * 16;
    int asked = (int)blockIdx.x, ask_seg = 0, ask_step = warp;
    int ask_steps = 1, ask_cols = 0, ask_width = 0;
    int second = 0;       // columns from a lane's first two copies to its last two
    int64_t apart = 0;    // elements likewise
    const T *from = NULL; // this lane's row, at its first column
    bool inside = asked < n_items;
    auto find = [&]() { // rows past the end are read as the last one; their results are dropped
        const bool down = asked >= n_up;
        const struct experts_product &p = down ? j.down : j.up;
        const int width = down ? FLAT_STEP : TALL_STEP;
        ask_width = width, ask_cols = p.cols - q * 8, ask_steps = (p.cols + width - 1) / width;
        int row;
        const void *w;
        if (down) {
            row = min((asked - n_up) * FLAT + g, p.rows - 1);
            w = t.down[__shfl_sync(ALL, chosen, ask_seg)];
            apart = second = TALL_STEP;
        } else {
            const int tile = asked % j.up_tiles, end = (p.gated ? p.width : p.rows) - 1;
            row = min(tile * (p.gated ? FLAT : TALL) + g, end);
            w = t.up[__shfl_sync(ALL, chosen, asked / j.up_tiles)];
            apart = (int64_t)(p.gated ? p.width : min(row + FLAT, end) - row) * p.ld, second = 0;
        }
        from = (const T *)w + (int64_t)row * p.ld + q * 8;
    };
    auto settle = [&]() {
        while (inside && ask_step >= ask_steps) {
            ask_step -= ask_steps;
            if (asked < n_up || ++ask_seg == j.down.n_chosen) ask_seg = 0, asked += grid;
            inside = asked < n_items;
            if (inside) find();
        }
    };
    auto request = [&](int stage) {
        const uint32_t to = queue + (uint32_t)(stage * STAGE_BYTES);
        const int at = ask_step * ask_width;
        const T *here = from + at, *last = here + apart;
        copy_once(to, here, inside && at < ask_cols);
        copy_once(to + COPY_BYTES, here + 32, inside && at + 32 < ask_cols);
        copy_once(to + 2 * COPY_BYTES, last, inside && at + second < ask_cols);
        copy_once(to + 3 * COPY_BYTES, last + 32, inside && at + second + 32 < ask_cols);
        copy_commit();
        ask_step += WARPS;
        settle();
    };
    if (inside) find();
    settle();
    for (int stage = 0; stage < j.stages; stage++) request(stage);
    // Zeros behind the last column: what a step finds there is multiplied by zeros of W.
    for (int i = (int)threadIdx.x * 8; i < j.x_pitch; i += MULTIPLYING * 8)
        *(uint4 *)(x_here + i) =
            i < j.up.cols ? *(const uint4 *)((const T *)j.up.x + i) : make_uint4(0, 0, 0, 0);
    barrier_of_eight();

    int stage = 0, step = warp, c = 0;
    bool met = false;
    for (int item = (int)blockIdx.x; item < n_items; item += grid, c++) {
        const bool down = item >= n_up;
        if (down && !met) {
            meeting_wait(j.meeting, lane);
            const int row = j.hidden_pitch, all = j.down.n_chosen * row;
            for (int i = (int)threadIdx.x * 8; i < all; i += MULTIPLYING * 8) {
                const int pair = i / row, k = i % row;
                uint4 v = make_uint4(0, 0, 0, 0);
                if (k < j.down.cols)
                    v = load_fresh((const T *)j.down.x + (int64_t)pair * j.down.cols + k);
                *(uint4 *)(hidden_here + i) = v;
            }
            barrier_of_eight();
            met = true;
        }
        const struct experts_product &p = down ? j.down : j.up;
        const int segments = down ? p.n_chosen : 1, width = down ? FLAT_STEP : TALL_STEP;
        const int steps = (p.cols + width - 1) / width;
        for (int seg = 0; seg < segments; seg++) {
            float sum[4] = {};
            const uint32_t x =
                shared_address(down ? hidden_here + seg * j.hidden_pitch + g % 2 * TALL_STEP
                                    : x_here) +
                (uint32_t)q * 16;
            for (; step < steps; step += WARPS) {
                const uint32_t x_at = x + (uint32_t)(step * width * (int)sizeof(T)),
                               at = queue + (uint32_t)(stage * STAGE_BYTES);
                const uint4 b = load_shared(x_at), d = load_shared(x_at + 32 * sizeof(T));
                copy_wait_oldest(j.stages);
                multiply<T>(sum, load_shared(at), load_shared(at + 2 * COPY_BYTES), b);
                multiply<T>(sum, load_shared(at + COPY_BYTES), load_shared(at + 3 * COPY_BYTES), d);
                request(stage);
                if (++stage == j.stages) stage = 0;
            }
            step -= steps;
            if (seg == 0 && c >= BUFFERS) mbarrier_wait(EMPTY + c % BUFFERS);
            float *here = sums + c % BUFFERS * j.sum_floats;
            if (q > 0) continue;
            if (down)
                here[(seg * WARPS + warp) * FLAT + g] = sum[0] + sum[3];
            else
                here[warp * TALL + g] = sum[0], here[warp * TALL + FLAT + g] = sum[2];
        }
        mbarrier_arrive(FULL + c % BUFFERS);
    }
}

int32_t whole(int32_t n, int32_t unit) {
    return (n + unit - 1) / unit * unit;
}

template <typename T, int MOST>
int launch_stay(struct stay_job j, const struct experts_args *a, cudaStream_t stream) {
    const struct cuda_device device = cuda_current_device();
    struct tables<MOST> t = {};
    for (int32_t e = 0; e < j.up.n_experts; e++)
        t.up[e] = a->up[e].data, t.down[e] = a->down[e].data;
    j.up_tiles = j.up.gated ? whole(j.up.width, FLAT) / FLAT : whole(j.up.rows, TALL) / TALL;
    j.down_tiles = whole(j.down.rows, FLAT) / FLAT;
    j.sum_floats = WARPS * std::max(TALL, j.down.n_chosen * FLAT);
    j.x_pitch = whole(j.up.cols, TALL_STEP);
    j.hidden_pitch = whole(j.down.cols, FLAT_STEP);
    const int rest = BUFFERS * j.sum_floats * (int)sizeof(float) +
                     (j.x_pitch + j.down.n_chosen * j.hidden_pitch) * (int)sizeof(T);
    static const int counts[] = {8, 6, 4}; // that copy_wait_oldest knows
    for (int n : counts)
        if (!j.stages && n * STAGE_BYTES + rest <= device.shared_per_block - 1024) j.stages = n;
    if (!j.stages) return CUDA_UNSUPPORTED;
    const size_t bytes = (size_t)(j.stages * STAGE_BYTES + rest);
    auto kernel = stay_kernel<T, MOST>;
    cuda_allow_shared((const void *)kernel, bytes);
    pdl_launch(kernel, dim3((unsigned)device.multiprocessors), dim3(STAY_THREADS), bytes, stream, t,
               j);
    return cuda_launched("experts_stay");
}

} // namespace

int experts_stay(const struct experts_product *up, const struct experts_product *down,
                 const struct cuda_experts *a, cudaStream_t stream) {
    if (a->n != 1 || up->n_chosen > CHOSEN_MOST || !a->meeting) return CUDA_UNSUPPORTED;
    struct stay_job j = {};
    j.up = *up, j.down = *down;
    j.weights = a->weights, j.y = a->y, j.add = a->mode == LINEAR_ADD;
    j.meeting = a->meeting;
    if (a->dtype == DTYPE_BF16)
        EXPERTS_SIZED(up->n_experts,
                      return (launch_stay<__nv_bfloat16, MOST>(j, &a->args, stream)));
    EXPERTS_SIZED(up->n_experts, return (launch_stay<__half, MOST>(j, &a->args, stream)));
}
