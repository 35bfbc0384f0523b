// Experts with weights of few bits, of one row: results of both products in one launch (groups.h). sm_90a.
//
// As experts_stay.cu: blocks stay on their multiprocessors, here two on each, and take items; eight warps multiply, a ninth
// finishes their items. The queues go from the last item of `up` to the first of `down`, whose bytes arrive while the last
// hidden values are on their way: all blocks meet at a counter before any reads hidden values. So all of them must be on the
// chip at the same time. They are: a launch in front of this one ends without it, one behind it starts when all blocks
// here have, and on a device one backend alone has such launches (cuda_claim_device).
//
//   up       16 gates of one expert and the 16 others that go with them
//   down     16 results of one expert; experts_combine adds them up
//
// Steps of all items (groups_one_row.cuh) go to the warps in turn, so that items of a few steps leave no warp idle. Which warp
// takes which step of an item depends on the items before, so bits depend on the number of multiprocessors: not for
// `deterministic`.
#include "kernels/cuda/experts.cuh"
#include "kernels/cuda/gemv_items.cuh"
#include "kernels/cuda/groups_one_row.cuh"
#include "kernels/cuda/stay_meeting.cuh"
#include <algorithm>

namespace {

constexpr int WARPS = MULTIPLYING / 32, BLOCKS = 2, STAGES = 8, TILE = 16;
constexpr int CHOSEN_MOST = 16, SUM_FLOATS = WARPS * 2 * TILE; // of a buffer

template <int MOST> struct tables { struct experts_table<MOST> up, down; };

struct side { // up or down
    struct experts_product p;
    struct groups_matrix w;
    struct groups_steps m;
    int32_t tiles;                      // of an expert
    int32_t x, next, units, units_next; // bytes: in shared memory; from a row to the next
};

struct groups_stay_job {
    struct side up, down;
    uint32_t *meeting;
    int32_t stages, stage_bytes, bars, sums;
};

template <typename T> struct finisher { // the ends of items, by the ninth warp
    const struct groups_stay_job &j;
    const float *sums;
    int lane, chosen; // this lane's id

    __device__ __forceinline__ float sum_of(int c, int half, float bias) const {
        const float *here = sums + c % BUFFERS * SUM_FLOATS + half * TILE + lane % TILE;
        float v = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++) v += here[w * 2 * TILE];
        return v + bias;
    }
    __device__ __forceinline__ float bias_of(const struct experts_product &p, int expert,
                                             int row) const {
        return p.bias && row < p.rows ? p.bias[(int64_t)expert * p.rows + row] : 0.0f;
    }
    __device__ __forceinline__ void up(int item, int c) const {
        const struct experts_product &p = j.up.p;
        const int pair = item / j.up.tiles, row = item % j.up.tiles * TILE + lane % TILE;
        const int expert = __shfl_sync(0xffffffffu, chosen, pair);
        const float gate_bias = bias_of(p, expert, row), bias = bias_of(p, expert, row + p.width);
        mbarrier_wait(FULL + c % BUFFERS);
        const float gate = sum_of(c, 0, gate_bias), other = sum_of(c, 1, bias);
        if (lane < TILE)
            ((T *)p.hidden)[(int64_t)pair * p.width + row] =
                from_float<T>(gated_value(p, gate, other));
    }
    __device__ __forceinline__ void down(int item, int c) const {
        const struct experts_product &p = j.down.p;
        const int pair = item / j.down.tiles, row = item % j.down.tiles * TILE + lane % TILE;
        const float bias = bias_of(p, __shfl_sync(0xffffffffu, chosen, pair), row);
        mbarrier_wait(FULL + c % BUFFERS);
        const float v = sum_of(c, 0, bias);
        if (lane < TILE && row < p.rows) p.result[(int64_t)pair * p.rows + row] = v;
    }
};

// A row of x to shared memory, by the eight warps.
template <typename T, int KIND, typename Load>
__device__ __forceinline__ void put_row(char *shared, const struct side &s, int row, Load load) {
    put_steps<T, KIND>(shared + s.x + row * s.next,
                       (struct digits_unit *)(shared + s.units + row * s.units_next),
                       (int)threadIdx.x / 32, WARPS, s.m,
                       [&](int v) { return v < s.p.cols / 8 ? load(v) : make_uint4(0, 0, 0, 0); });
}

template <typename T, int KIND, int MOST>
__global__ void __launch_bounds__(STAY_THREADS, BLOCKS)
    groups_stay_kernel(const __grid_constant__ struct tables<MOST> t,
                       const __grid_constant__ struct groups_stay_job j) {
#ifdef PARLEY_SM90A
    extern __shared__ __align__(16) char shared[];
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4,
              grid = (int)gridDim.x;
    const int n_up = j.up.p.n_chosen * j.up.tiles,
              n_items = n_up + j.down.p.n_chosen * j.down.tiles;
    float *sums = (float *)(shared + j.sums);
    pdl_trigger();
    pdl_wait();
    int chosen = 0;
    if (lane < j.up.p.n_chosen) chosen = chosen_expert(j.up.p, lane);

    if (warp == WARPS) {
        const struct finisher<T> f = { j, sums, lane, chosen };
        meeting_finish(
            j.meeting, lane, n_up, n_items, [&](int item, int c) { f.up(item, c); },
            [&](int item, int c) { f.down(item, c); });
        return;
    }

    const uint32_t queue = shared_address(shared) + (uint32_t)(warp * j.stages * j.stage_bytes);
    const uint32_t bars = shared_address(shared + j.bars) + (uint32_t)(warp * j.stages * 8);
    if (lane < j.stages) mbarrier_init(bars + (uint32_t)(lane * 8), 1);
    mbarrier_init_done();
    __syncwarp();
    constexpr int PIECES = groups_pieces<KIND>();
    // What is requested next: piece `ask_piece` of step `ask_step` of item `asked`, whose tiles begin here.
    int asked = (int)blockIdx.x, ask_step = warp, ask_piece = 0;
    bool inside = asked < n_items;
    const char *codes[2] = {NULL, NULL}, *scales[2] = {NULL, NULL};
    auto find = [&]() {
        const bool down = asked >= n_up;
        const struct side &s = down ? j.down : j.up;
        const int item = down ? asked - n_up : asked, pair = item / s.tiles;
        const int expert = __shfl_sync(0xffffffffu, chosen, pair);
        const void *w = down ? t.down.w[expert] : t.up.w[expert];
        const float *scale = down ? t.down.scale[expert] : t.up.scale[expert];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int64_t tile = item % s.tiles + i * s.tiles; // the second: of up alone
            codes[i] = (const char *)w + GROUPS_HEAD + tile * s.w.chunks * GROUPS_CHUNK_BYTES;
            scales[i] = (const char *)scale + tile * s.w.n_groups * groups_scale_row<KIND>();
        }
    };
    auto settle = [&]() {
        while (inside) {
            const int steps = asked >= n_up ? j.down.m.steps : j.up.m.steps;
            if (ask_step < steps) return;
            ask_step -= steps, asked += grid;
            inside = asked < n_items;
            if (inside) find();
        }
    };
    auto request = [&](int stage) {
        if (inside && lane == 0) {
            const bool down = asked >= n_up;
            const struct groups_steps &m = down ? j.down.m : j.up.m;
            const uint32_t to = queue + (uint32_t)(stage * j.stage_bytes),
                           bar = bars + (uint32_t)(stage * 8);
            const int piece = ask_step * PIECES + ask_piece, left = m.chunks - piece * PIECE;
            const char *c[2], *s[2];
#pragma unroll
            for (int i = 0; i < 2; i++)
                c[i] = codes[i] + piece * PIECE_CODES, s[i] = scales[i] + piece * m.scale_bytes;
            if (down) {
                const char *const one[1] = {c[0]}, *const its[1] = {s[0]};
                request_piece<KIND, 1>(to, bar, one, its, left, m);
            } else {
                request_piece<KIND, 2>(to, bar, c, s, left, m);
            }
        }
        if constexpr (PIECES > 1) {
            const int pieces = asked >= n_up ? j.down.m.pieces : j.up.m.pieces;
            if (++ask_piece < PIECES && ask_step * PIECES + ask_piece < pieces) return;
            ask_piece = 0;
        }
        ask_step += WARPS;
        settle();
    };
    if (inside) find();
    settle();
    for (int stage = 0; stage < j.stages; stage++) request(stage);
    put_row<T, KIND>(shared, j.up, 0, [&](int v) { return ((const uint4 *)j.up.p.x)[v]; });
    barrier_of_eight();

    int stage = 0, phase = 0, step = warp, c = 0;
    bool met = false;
    for (int item = (int)blockIdx.x; item < n_items; item += grid, c++) {
        const bool down = item >= n_up;
        if (down && !met) {
            barrier_of_eight(); // hidden values go where x has been
            meeting_wait(j.meeting, lane);
            for (int row = 0; row < j.down.p.n_chosen; row++)
                put_row<T, KIND>(shared, j.down, row, [&](int v) {
                    return load_fresh((const T *)j.down.p.x + (int64_t)row * j.down.p.cols + v * 8);
                });
            barrier_of_eight();
            met = true;
        }
        const struct side &s = down ? j.down : j.up;
        const int row = down ? (item - n_up) / s.tiles : 0;
        const char *x = shared + s.x + row * s.next;
        const struct digits_unit *units =
            (const struct digits_unit *)(shared + s.units + row * s.units_next);
        float sum[2][2] = {}, one[1][2] = {};
        for (; step < s.m.steps; step += WARPS) {
#pragma unroll 1
            for (int piece = step * PIECES; piece < min((step + 1) * PIECES, s.m.pieces); piece++) {
                const uint32_t from = queue + (uint32_t)(stage * j.stage_bytes);
                ::mbarrier_wait(bars + (uint32_t)(stage * 8), phase);
                if (down)
                    groups_piece<T, KIND, 1>(one, from, from + PIECE_CODES, x, units, piece, s.m);
                else
                    groups_piece<T, KIND, 2>(sum, from, from + 2 * PIECE_CODES, x, units, piece,
                                             s.m);
                __syncwarp(); // all lanes have read
                request(stage);
                if (++stage == j.stages) stage = 0, phase ^= 1;
            }
        }
        step -= s.m.steps;
        if (down) sum[0][0] = one[0][0], sum[0][1] = one[0][1];
        if (c >= BUFFERS) mbarrier_wait(EMPTY + c % BUFFERS);
        float *here = sums + c % BUFFERS * SUM_FLOATS + warp * 2 * TILE;
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const float of_row = groups_sum<T, KIND>(sum[i][r], s.m);
                if (lane % 4 == 0) here[i * TILE + r * 8 + g] = of_row;
            }
        mbarrier_arrive(FULL + c % BUFFERS);
    }
#endif
}

template <typename T, int KIND, int MOST>
int launch(struct groups_stay_job j, const struct experts_args *a, cudaStream_t stream) {
    const struct cuda_device device = cuda_current_device();
    struct tables<MOST> t = {};
    experts_fill(&t.up, a->up, j.up.p.n_experts);
    experts_fill(&t.down, a->down, j.up.p.n_experts);
    int at = 0;
    auto take = [&](int bytes) {
        const int here = at;
        at += (bytes + 15) / 16 * 16;
        return here;
    };
    auto place = [&](struct side &s, int rows) {
        s.m = groups_steps_of<KIND>(s.w);
        s.next = groups_x_bytes<KIND>(s.m), s.units_next = groups_units_bytes<KIND>(s.m);
        s.x = take(rows * s.next);
        s.units = take(rows * s.units_next);
    };
    place(j.up, 1);
    const int behind_x = at;
    at = 0; // hidden values go where x has been
    place(j.down, j.down.p.n_chosen);
    at = std::max(at, behind_x);
    j.sums = take(BUFFERS * SUM_FLOATS * (int)sizeof(float));
    j.bars = take(STAGES * WARPS * 8);
    // The queues come first, where stages are aligned to 128 bytes.
    j.stage_bytes =
        std::max(2 * (PIECE_CODES + j.up.m.scale_bytes), PIECE_CODES + j.down.m.scale_bytes);
    const int room =
        std::min(device.shared_per_multiprocessor / BLOCKS - 2048, device.shared_per_block);
    j.stages = std::min(STAGES, (room - at) / (WARPS * j.stage_bytes));
    if (j.stages < 2) return CUDA_UNSUPPORTED;
    const int queues = j.stages * WARPS * j.stage_bytes;
    for (int32_t *of : {&j.up.x, &j.up.units, &j.down.x, &j.down.units, &j.sums, &j.bars})
        *of += queues;
    const size_t bytes = (size_t)(queues + at);
    auto kernel = groups_stay_kernel<T, KIND, MOST>;
    cuda_allow_shared((const void *)kernel, bytes);
    pdl_launch(kernel, dim3((unsigned)(device.multiprocessors * BLOCKS)), dim3(STAY_THREADS), bytes,
               stream, t, j);
    return cuda_launched("experts_groups_stay");
}

template <typename T>
int launch_typed(const struct groups_stay_job &j, const struct experts_args *a,
                 cudaStream_t stream) {
    GROUPS_KINDS(j.up.w.kind,
                 if (j.up.p.n_experts <= 128) return launch<T, KIND, 128>(j, a, stream);
                 return launch<T, KIND, ROUTE_MAX_EXPERTS / 2>(j, a, stream));
    return CUDA_UNSUPPORTED;
}

} // namespace

int experts_groups_stay(const struct experts_product *up, const struct experts_product *down,
                        const struct cuda_experts *a, cudaStream_t stream) {
    if (a->n != 1 || up->n_chosen > CHOSEN_MOST || up->n_experts > ROUTE_MAX_EXPERTS / 2 ||
        !a->meeting || !up->gated || up->width % TILE != 0 || !hopper_here() ||
        (uintptr_t)up->x % 16 != 0 || (uintptr_t)down->x % 16 != 0)
        return CUDA_UNSUPPORTED;
    struct groups_stay_job j = {};
    j.meeting = a->meeting;
    j.up.p = *up, j.down.p = *down;
    j.up.w = groups_matrix_by(up->ld, up->cols), j.down.w = groups_matrix_by(down->ld, down->cols);
    j.up.tiles = up->width / TILE, j.down.tiles = (down->rows + TILE - 1) / TILE;
    const enum groups_kind kind = j.up.w.kind;
    if (kind != j.down.w.kind || kind == GROUPS_BOOKS ||
        ((kind == GROUPS_INTEGERS || kind == GROUPS_OFFSETS) &&
         std::min(j.up.w.group, j.down.w.group) < 32))
        return CUDA_UNSUPPORTED;
    return a->dtype == DTYPE_BF16 ? launch_typed<__nv_bfloat16>(j, &a->args, stream)
                                  : launch_typed<__half>(j, &a->args, stream);
}
