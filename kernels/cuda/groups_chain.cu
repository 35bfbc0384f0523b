// Linears of one row with weights of few bits (groups.h) that follow each other, each of which may read what those before
// it wrote, in one launch. sm_90a.
//
// Each launch of groups_stay.cu begins with a norm, the row's digits and its first item, some 6 microseconds in which its
// queues are full and memory rests. Here the queues go from one linear's last bytes to the next one's first. That pays where a
// step has many bytes (README.md, "Linears that follow each other"): of 8 bits, and of 4 with offsets.
//
//   a block       stays on its multiprocessor, with a run of neighbouring tiles (16 rows) of each matrix; gated: a run of gates,
//                 and of the rows that go with them
//   a piece       128 or 256 columns of a tile (groups_one_row.cuh): what one of sixteen warps multiplies. Pieces of a run
//                 follow each other in memory, so sixteen of them are a stage, which comes by one copy of codes and one of scales
//   other warps   one asks for stages, one finishes tiles
//   a mailbox     has a linear's row for those behind it: two numbers and the launch's number in 8 bytes, which are written
//                 and read as one. So a reader needs no fence, no counter and no second trip: it looks until the number is the
//                 launch's. All blocks must be on the chip at the same time, as in experts_groups_stay.cu
//
// No block waits for all others anywhere else. What a linear writes to memory may be what an earlier one reads (the stream), if it
// needs that one's results: a block has them when all blocks have read (linear.c, may_follow).
//
// Which warp has which piece depends on the number of blocks, and so do bits: not for `deterministic`.
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/groups_one_row.cuh"
#include <algorithm>

namespace {

constexpr int WARPS = 16, FETCHES = WARPS, FINISHES = WARPS + 1, THREADS = (WARPS + 2) * 32;
constexpr int AHEAD = 1;                                  // stages on their way
constexpr int TILE = 16, STAGES = 8, BUFFERS_OF_SUMS = 4; // at most; of tiles that end
constexpr int SUM_FLOATS = WARPS * 2 * TILE;              // of a buffer
constexpr int MOST_TILES = 64;                            // of a gated run

struct chain_link {
    struct cuda_linear a;
    struct groups_matrix w;
    struct groups_steps m;
    int32_t tiles;  // of the matrix, gated: of its gates
    int32_t runs;   // 1; gated: 2
    int32_t source; // the earlier link whose mailbox has x; -1: x is in memory
    bool y_early;   // what is added to is in memory before the link begins
    bool posts;     // a later link reads y
};

struct groups_chain {
    struct chain_link link[GROUPS_CHAIN];
    int32_t n;
    int32_t stages, stage_bytes;
    int32_t x, units, sums, gates, bars; // bytes: where they lie behind the stages
    struct cuda_chain_work *work;
};

#ifdef PARLEY_SM90A
__device__ __forceinline__ void barrier_of_all() { // of the sixteen warps
    named_barrier(1, WARPS * 32);
}

// Two numbers of a mailbox and the launch's: one access of 64 bits, so that they are seen together.
__device__ __forceinline__ void post(uint64_t *to, uint32_t two, uint32_t launch) {
    asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(to), "l"((uint64_t)launch << 32 | two)
                 : "memory");
}
__device__ __forceinline__ uint4 look(const uint64_t *at) { // two of them
    uint64_t a, b;
    asm volatile("ld.relaxed.gpu.global.v2.b64 {%0,%1}, [%2];"
                 : "=l"(a), "=l"(b)
                 : "l"(at)
                 : "memory");
    return make_uint4((uint32_t)a, (uint32_t)(a >> 32), (uint32_t)b, (uint32_t)(b >> 32));
}
// A launch's number is never 0. The last block of a launch to leave it makes the next one's.
__device__ __forceinline__ uint32_t launch_number(const struct cuda_chain_work *work) {
    return *(const volatile uint32_t *)&work->launch + 1;
}
__device__ __forceinline__ void leave_launch(struct cuda_chain_work *work, uint32_t launch) {
    if (atomicAdd(&work->left, 1) != gridDim.x - 1) return;
    *(volatile uint32_t *)&work->left = 0;
    *(volatile uint32_t *)&work->launch = launch + 1 == 0 ? 0 : launch;
}

// A block's tiles of a link: of each run, `first` .. + n.
struct chain_run {
    int first, n;
    __device__ __forceinline__ explicit chain_run(const struct chain_link &k)
        : first((int)blockIdx.x * k.tiles / (int)gridDim.x),
          n(((int)blockIdx.x + 1) * k.tiles / (int)gridDim.x - first) {}
};

// Buffers in turn, with a barrier for those that fill one and for those that empty it.
struct chain_turn {
    uint32_t full, empty; // barriers
    int n, at = 0, round = 0;
    __device__ __forceinline__ uint32_t filled() const { return full + (uint32_t)(8 * at); }
    __device__ __forceinline__ uint32_t emptied() const { return empty + (uint32_t)(8 * at); }
    __device__ __forceinline__ void wait_full() const { ::mbarrier_wait(filled(), round & 1); }
    __device__ __forceinline__ void wait_empty() const {
        if (round > 0) ::mbarrier_wait(emptied(), (round - 1) & 1);
    }
    __device__ __forceinline__ void next() {
        if (++at == n) at = 0, round++;
    }
};
__device__ __forceinline__ struct chain_turn turn_of_stages(const struct groups_chain &j,
                                                            const char *shared) {
    const uint32_t bars = shared_address(shared + j.bars);
    return {bars, bars + (uint32_t)(8 * j.stages), j.stages};
}
__device__ __forceinline__ struct chain_turn turn_of_sums(const struct groups_chain &j,
                                                          const char *shared) {
    const uint32_t bars = shared_address(shared + j.bars) + (uint32_t)(16 * j.stages);
    return {bars, bars + 8 * BUFFERS_OF_SUMS, BUFFERS_OF_SUMS};
}

// By one thread: all stages of the block, as they become free.
__device__ __forceinline__ void fetch_links(const struct groups_chain &j, const char *shared) {
    struct chain_turn turn = turn_of_stages(j, shared);
    const uint32_t stages = shared_address(shared);
    // Not more than memory's latency asks for is on its way: rows of x would wait behind it.
    int stage = 0;
    auto wait_arrived = [&](int s) {
        ::mbarrier_wait(turn.full + (uint32_t)(8 * (s % j.stages)), s / j.stages & 1);
    };
    for (int l = 0; l < j.n; l++) {
        const struct chain_link &k = j.link[l];
        const struct chain_run run(k);
        const int pieces = run.n * k.m.pieces;
        for (int half = 0; half < k.runs; half++) {
            const int64_t before = (int64_t)(run.first + half * k.tiles) * k.m.pieces;
            const char *codes = (const char *)k.w.codes + before * PIECE_CODES,
                       *scales = (const char *)k.w.scales + before * k.m.scale_bytes;
            for (int p = 0; p < pieces; p += WARPS, turn.next()) {
                const int n = min(WARPS, pieces - p);
                const uint32_t to = stages + (uint32_t)(turn.at * j.stage_bytes);
                turn.wait_empty();
                if (stage >= AHEAD) wait_arrived(stage - AHEAD);
                stage++;
                mbarrier_expect(turn.filled(), n * (PIECE_CODES + k.m.scale_bytes));
                tma_load_bytes(to, codes, n * PIECE_CODES, turn.filled(), READ_ONCE);
                tma_load_bytes(to + WARPS * PIECE_CODES, scales, n * k.m.scale_bytes, turn.filled(),
                               READ_ONCE);
                codes += n * PIECE_CODES, scales += n * k.m.scale_bytes;
            }
        }
    }
}

// A row of x, n vectors of eight columns, in memory or in a mailbox.
template <typename T> struct chain_row {
    const uint64_t *box; // NULL: x is in memory
    const T *x;
    uint32_t launch;
    int n;

    // Vectors v[0], v[1] and those `further`, zeros behind the last. All loads are on their way at once: a trip to L2 beside
    // the weights' takes a microsecond.
    __device__ __forceinline__ void load(uint4 (&to)[2][NORM_VECTORS], const int (&v)[NORM_VECTORS],
                                         int further) const {
        bool there;
        do {
            uint4 next[2][NORM_VECTORS];
            there = true;
#pragma unroll
            for (int r = 0; r < 2; r++)
#pragma unroll
                for (int i = 0; i < NORM_VECTORS; i++) {
                    const int at = v[i] + r * further;
                    to[r][i] = next[r][i] = make_uint4(0, launch, 0, launch);
                    if (at >= n) continue;
                    if (box)
                        to[r][i] = look(box + at * 4), next[r][i] = look(box + at * 4 + 2);
                    else
                        to[r][i] = *(const uint4 *)(x + at * 8);
                }
#pragma unroll
            for (int r = 0; r < 2; r++)
#pragma unroll
                for (int i = 0; i < NORM_VECTORS; i++) {
                    if (!box && v[i] + r * further < n) continue;
                    const uint4 a = to[r][i], b = next[r][i];
                    there &= a.y == launch && a.w == launch && b.y == launch && b.w == launch;
                    to[r][i] = make_uint4(a.x, a.z, b.x, b.z);
                }
            if (!there) __nanosleep(100); // looking takes time of others' looking
        } while (!there);
    }
};

// By the sixteen warps: link l's row of x to shared memory, normed where it says so. Returns the launch's number, which link 0
// reads. A function of its own, so that what it holds does not push the walk out of registers. Its code is there once for both
// ways to x, because code that runs for the first time in a launch comes from memory.
template <typename T, int KIND>
__device__ __noinline__ uint32_t put_row(const struct groups_chain &j, int l, uint32_t launch,
                                         char *x_here, struct digits_unit *units) {
    constexpr bool BYTES = groups_of_bytes(KIND);
    constexpr int ROUNDS = 4;
    static_assert(GROUPS_CHAIN_COLS <= ROUNDS * 32 * STEP_COLUMNS, "half a warp has a step");
    __shared__ float parts[2][2 * WARPS];
    const struct chain_link &k = j.link[l];
    const struct cuda_linear &a = k.a;
    const struct step_norm<WARPS, BYTES> norm(a, a.norm_weight != NULL);
    if (l == 0) pdl_wait(), launch = launch_number(j.work);
    const struct chain_row<T> row = {
        k.source < 0 ? NULL : j.work->box[k.source], (const T *)a.x, launch, a.cols / 8
    };
    uint4 raw[ROUNDS][NORM_VECTORS] = {}; // of steps norm.step, + 32 ..
#pragma unroll
    for (int r = 0; r < ROUNDS; r += 2) {
        const int v[NORM_VECTORS] = {norm.vector[0] + r * 1024, norm.vector[1] + r * 1024};
        uint4 two[2][NORM_VECTORS];
        if (r * 32 >= k.m.steps) break;
        row.load(two, v, 1024);
#pragma unroll
        for (int i = 0; i < NORM_VECTORS; i++) raw[r][i] = two[0][i], raw[r + 1][i] = two[1][i];
    }
    if (a.norm_weight)
        norm.template run<T>(raw[0], a, parts, barrier_of_all);
    else
        barrier_of_all(); // all have read the row before
#pragma unroll 1
    for (int step = norm.step; step - (int)threadIdx.x % 32 / 16 * WARPS < k.m.steps; step += 32) {
        put_digits<T, groups_with_offsets(KIND), BYTES>(
            x_here + step * groups_x_step<KIND>(), units + step * (16 >> k.m.unit_shift), raw[0][0],
            raw[0][1], k.m.unit_shift, k.m.zero, step < k.m.steps);
#pragma unroll
        for (int r = 0; r + 1 < ROUNDS; r++)
#pragma unroll
            for (int i = 0; i < NORM_VECTORS; i++) raw[r][i] = raw[r + 1][i];
    }
    barrier_of_all();
    return launch;
}

// By one of the sixteen warps: its pieces of the block's tiles of link l.
template <typename T, int KIND>
__device__ __forceinline__ void multiply_link(const struct groups_chain &j, int l, uint32_t &launch,
                                              char *shared, struct chain_turn &stage,
                                              struct chain_turn &ends) {
    const struct chain_link &k = j.link[l];
    const struct groups_steps &m = k.m;
    const struct chain_run run(k);
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4,
              t = lane % 4;
    const int pieces = run.n * m.pieces;
    char *x_here = shared + j.x;
    struct digits_unit *units = (struct digits_unit *)(shared + j.units);
    float *sums = (float *)(shared + j.sums) + (warp * 2 + t / 2) * TILE + g;
    const uint32_t codes = shared_address(shared) + (uint32_t)(warp * PIECE_CODES),
                   scales = shared_address(shared) +
                            (uint32_t)(WARPS * PIECE_CODES + warp * m.scale_bytes);
    const bool doubled = m.unit_shift >= 3 && t >= 2; // what other lanes have too
    launch = put_row<T, KIND>(j, l, launch, x_here, units);
    float sum[1][2] = {};
    auto end_tile = [&]() {
        ends.wait_empty();
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float two = sum[0][r] + __shfl_xor_sync(0xffffffffu, sum[0][r], 1);
            if (t % 2 == 0) sums[ends.at * SUM_FLOATS + r * 8] = doubled ? 0.0f : two;
            sum[0][r] = 0.0f;
        }
        __syncwarp();
        if (lane == 0) ::mbarrier_arrive(ends.filled());
        ends.next();
    };
    for (int half = 0; half < k.runs; half++) {
        int tile = 0, piece = warp; // the warp's next piece, of tile `tile`
        auto end_tiles = [&]() {
            for (; piece >= m.pieces && tile < run.n; tile++, piece -= m.pieces) end_tile();
        };
        end_tiles();
#pragma unroll 1
        for (int p = warp; p < pieces + warp; p += WARPS, stage.next()) {
            const uint32_t at = (uint32_t)(stage.at * j.stage_bytes);
            stage.wait_full();
            if (p < pieces)
                groups_piece<T, KIND, 1>(sum, codes + at, scales + at, x_here, units, piece, m);
            __syncwarp(); // all lanes have read
            if (lane == 0) ::mbarrier_arrive(stage.emptied());
            piece += WARPS;
            end_tiles();
        }
    }
}

// By a warp: the ends of the block's tiles. Lanes 0 to 15 have a row each.
template <typename T>
__device__ __forceinline__ void finish_links(const struct groups_chain &j, char *shared,
                                             uint32_t launch) {
    const int lane = (int)threadIdx.x % 32;
    const float *sums = (const float *)(shared + j.sums);
    float *gates = (float *)(shared + j.gates);
    struct chain_turn ends = turn_of_sums(j, shared);
    for (int l = 0; l < j.n; l++) {
        const struct chain_link &k = j.link[l];
        const struct cuda_linear &a = k.a;
        const struct chain_run run(k);
        const int width = a.rows / k.runs;
        const T *y = (const T *)a.y;
        // What is added to: of the tile after the present one where it is there already.
        auto hold = [&](int tile) {
            const int row = (run.first + tile) * TILE + lane;
            return a.add && lane < TILE && tile < run.n && row < width ? __ldcg(y + row)
                                                                       : from_float<T>(0.0f);
        };
        T held = hold(k.y_early ? 0 : run.n), next_held = held;
        for (int half = 0; half < k.runs; half++)
            for (int tile = 0; tile < run.n; tile++, ends.next()) {
                const int row = (run.first + tile) * TILE + lane % TILE;
                const bool mine = row < width && lane < TILE;
                float v = a.bias && mine ? a.bias[row + half * width] : 0.0f, sum = 0.0f;
                if (k.y_early) held = next_held, next_held = hold(tile + 1);
                ends.wait_full();
                if (!k.y_early) held = hold(tile);
                const float *from = sums + ends.at * SUM_FLOATS + lane;
#pragma unroll
                for (int w = 0; w < WARPS; w++) sum += from[w * 2 * TILE];
                v += sum + __shfl_down_sync(0xffffffffu, sum, TILE);
                __syncwarp();
                if (lane == 0) ::mbarrier_arrive(ends.emptied());
                if (half + 1 < k.runs) {
                    if (mine) gates[tile * TILE + lane] = activated(a.act, rounded<T>(v));
                    continue;
                }
                if (k.runs > 1)
                    v = gates[tile * TILE + lane % TILE] * rounded<T>(v);
                else if (a.activate)
                    v = activated(a.act, rounded<T>(v));
                if (a.add) v += to_float(held);
                const float next = __shfl_down_sync(0xffffffffu, v, 1);
                if (!mine) continue;
                if (k.posts && lane % 2 == 0)
                    post(j.work->box[l] + row / 2, pack2<T>(v, next), launch);
                ((T *)a.y)[row] = from_float<T>(v);
            }
    }
}
#endif

template <typename T>
__global__ void __launch_bounds__(THREADS, 1)
    groups_chain_kernel(const __grid_constant__ struct groups_chain j) {
#ifdef PARLEY_SM90A
    extern __shared__ __align__(128) char shared[];
    const int warp = (int)threadIdx.x / 32;
    struct chain_turn stage = turn_of_stages(j, shared), ends = turn_of_sums(j, shared);
    pdl_trigger();
    if (threadIdx.x == FETCHES * 32) {
        for (int i = 0; i < j.stages; i++) {
            mbarrier_init(stage.full + (uint32_t)(8 * i), 1);
            mbarrier_init(stage.empty + (uint32_t)(8 * i), WARPS);
        }
        for (int i = 0; i < BUFFERS_OF_SUMS; i++) {
            mbarrier_init(ends.full + (uint32_t)(8 * i), WARPS);
            mbarrier_init(ends.empty + (uint32_t)(8 * i), 1);
        }
        mbarrier_init_done();
    }
    __syncthreads();
    if (warp == FETCHES) {
        if (threadIdx.x == FETCHES * 32) fetch_links(j, shared);
        return;
    }
    if (warp == FINISHES) {
        pdl_wait();
        const uint32_t launch = launch_number(j.work);
        finish_links<T>(j, shared, launch);
        named_barrier(2, (WARPS + 1) * 32); // all warps know the launch's number
        if (threadIdx.x % 32 == 0) leave_launch(j.work, launch);
        return;
    }
    uint32_t launch = 0;
    for (int l = 0; l < j.n; l++) switch (j.link[l].w.kind) {
        case GROUPS_OFFSETS:
            multiply_link<T, GROUPS_OFFSETS>(j, l, launch, shared, stage, ends);
            break;
        case GROUPS_WIDE:
            multiply_link<T, GROUPS_WIDE>(j, l, launch, shared, stage, ends);
            break;
        default:
            multiply_link<T, GROUPS_WIDE_OFFSETS>(j, l, launch, shared, stage, ends);
        }
    named_barrier(2, (WARPS + 1) * 32);
#endif
}

template <int KIND> void plan_link(struct chain_link &k, int *x_bytes, int *unit_bytes) {
    k.m = groups_steps_of<KIND>(k.w);
    *x_bytes = std::max(*x_bytes, groups_x_bytes<KIND>(k.m));
    *unit_bytes = std::max(*unit_bytes, groups_units_bytes<KIND>(k.m));
}

template <typename T> int launch(struct groups_chain j, cudaStream_t stream) {
    const struct cuda_device device = cuda_current_device();
    int x_bytes = 0, unit_bytes = 0;
    for (int l = 0; l < j.n; l++) {
        struct chain_link &k = j.link[l];
        GROUPS_KINDS(k.w.kind, (plan_link<KIND>(k, &x_bytes, &unit_bytes)));
        j.stage_bytes = std::max(j.stage_bytes, WARPS * (PIECE_CODES + k.m.scale_bytes));
    }
    int at = 0;
    auto take = [&](int bytes) {
        const int here = at;
        at += (bytes + 15) / 16 * 16;
        return here;
    };
    j.x = take(x_bytes), j.units = take(unit_bytes);
    j.sums = take(BUFFERS_OF_SUMS * SUM_FLOATS * (int)sizeof(float));
    j.gates = take(MOST_TILES * TILE * (int)sizeof(float));
    j.bars = take(16 * (STAGES + BUFFERS_OF_SUMS));
    j.stages = std::min(STAGES, (device.shared_per_block - 1024 - at) / j.stage_bytes);
    if (j.stages < 2) return CUDA_UNSUPPORTED;
    for (int32_t *of : {&j.x, &j.units, &j.sums, &j.gates, &j.bars})
        *of += j.stages * j.stage_bytes;
    const size_t bytes = (size_t)(at + j.stages * j.stage_bytes);
    auto kernel = groups_chain_kernel<T>;
    cuda_allow_shared((const void *)kernel, bytes);
    pdl_launch(kernel, dim3((unsigned)device.multiprocessors), dim3(THREADS), bytes, stream, j);
    return cuda_launched("groups_chain");
}

} // namespace

bool cuda_groups_chains(const struct cuda_linear *a) {
    if (a->w_dtype != DTYPE_U8 || a->n != 1 || a->x == a->y || !hopper_here()) return false;
    const struct groups_matrix w = groups_matrix_of(a);
    const bool gated = a->activate && a->gated;
    const int grid = cuda_current_device().multiprocessors;
    return (a->dtype == DTYPE_BF16 || a->dtype == DTYPE_F16) && w.chunks % PIECE == 0 &&
           !a->y_f32 && a->rows % 2 == 0 && a->rows <= (gated ? 2 : 1) * GROUPS_CHAIN_COLS &&
           a->cols % 8 == 0 && a->cols <= GROUPS_CHAIN_COLS && (uintptr_t)a->x % 16 == 0 &&
           (!gated || (!a->add && a->rows % 32 == 0 && a->rows / 32 <= (MOST_TILES - 1) * grid)) &&
           (!a->norm_weight || a->cols <= NORM_VECTORS * WARPS * 32 * 8) &&
           (groups_with_offsets(w.kind) || groups_of_bytes(w.kind));
}

int cuda_groups_chain(const struct cuda_linear *a, int n, struct cuda_chain_work *work,
                      cudaStream_t stream) {
    struct groups_chain j = {};
    j.n = n, j.work = work;
    for (int l = 0; l < n; l++) {
        struct chain_link &k = j.link[l];
        k.a = a[l], k.w = groups_matrix_of(&a[l]);
        k.runs = a[l].activate && a[l].gated ? 2 : 1;
        k.tiles = (a[l].rows / k.runs + TILE - 1) / TILE;
        k.source = -1, k.y_early = true;
        for (int from = 0; from < l; from++)
            if (a[from].y == a[l].x) k.source = from;
        if (k.source >= 0) j.link[k.source].posts = true;
        if (l > 0 && a[l - 1].y == a[l].y) k.y_early = false;
    }
    return a->dtype == DTYPE_BF16 ? launch<__nv_bfloat16>(j, stream) : launch<__half>(j, stream);
}
