// linear for many rows of x: y (n, rows) =|+= x (n, cols) W^T + bias, W in bf16, f16, int8 or e4m3,
// bound by the tensor cores. Its bits are those of linear_stream.cu for any n, which no library promises:
// `deterministic` computes prompts with it. sm_90a.
//
//   - A block stays on its multiprocessor and takes tiles of 128 rows of W by 128 or 256 rows of x
//     in turn, two warpgroups 64 rows of W each. A thread of a third warpgroup requests the tiles
//     of 128 bytes of k, into a ring in shared memory, and runs ahead into the next tile while the
//     last one is written.
//   - Blocks come in pairs (a cluster) that take the same rows of W and neighbouring rows of x:
//     each fetches half of W's tile for both, because L2 cannot deliver a whole tile to every
//     multiprocessor as fast as the tensor cores consume it.
//   - If the matrix is cut into parts of K (linear_parts.cuh), each part's sum starts from zero and is
//     added to those before. This takes twice the registers, so tiles have 128 rows of x; uncut, 256.
//   - Results leave through shared memory, 32 rows of x at a time, so that y is written by whole
//     sectors.
#include "kernels/cuda/linear_parts.cuh"
#include "kernels/cuda/pdl.cuh"

namespace {

constexpr int ROWS = LINEAR_TILE, WARPS = 8, THREADS = (WARPS + 4) * 32, PAIR = 2;
constexpr int HALF = ROWS / 2 * SWIZZLED_ROW; // bytes of a warpgroup's rows of a tile of W
constexpr int LEAVING = 32, PITCH = 64 + 4;   // rows of x that leave together; floats of one
constexpr int DESK = LEAVING * PITCH * 4;     // bytes where a warpgroup's results leave from
constexpr int ROOM = 227 * 1024 - 1024 - 256; // of shared memory, less alignment and barriers

struct tiles {
    struct cuda_linear a;
    struct linear_cut cut;
    int32_t n_pairs, x_pairs; // pairs of tiles in all; along x
};

template <typename W, int N> struct shape {
    static constexpr int k = SWIZZLED_ROW / (int)sizeof(W), x_tiles = k / 64; // of a stage
    static constexpr int x_tile = N * SWIZZLED_ROW, bytes = 2 * HALF + x_tiles * x_tile;
    static constexpr int stages = (ROOM - 2 * DESK) / bytes;
    static constexpr int shared = stages * (bytes + 16) + 2 * DESK + 1024;
    static_assert(stages >= 3, "a ring");
};

#ifdef PARLEY_SM90A

// A warpgroup's sums of the tile to y, through its desk. `row`: the tile's first output of this
// warpgroup.
template <typename T, int N, bool GATED>
__device__ __forceinline__ void leave(const struct cuda_linear &a, const float (&sum)[N / 2],
                                      float *desk, int x_row, int row, int id) {
    const int thread = (int)threadIdx.x % 128, lane = thread % 32;
    const int at = thread / 32 * 16 + lane / 4, column = lane % 4 * 2;
    for (int first = 0; first < N && x_row + first < a.n; first += LEAVING) {
        named_barrier(id, 128); // those before have been read
#pragma unroll
        for (int c = 0; c < N / 8; c++) {
            if (c * 8 / LEAVING * LEAVING != first) continue;
#pragma unroll
            for (int e = 0; e < 4; e++)
                desk[(c * 8 % LEAVING + column + e % 2) * PITCH + at + e / 2 * 8] = sum[4 * c + e];
        }
        named_barrier(id, 128);
        constexpr int each = 8, across = (GATED ? 32 : 64) /
                                         each; // outputs of a thread; threads of a row of x
#pragma unroll
        for (int r = 0; r < LEAVING * across / 128; r++) {
            int i = (thread + r * 128) / across, to = (thread + r * 128) % across * each;
            if (x_row + first + i >= a.n) continue;
            float v[each], up[each], before[each] = {};
            load_outputs<T, each, GATED>(before, a, x_row + first + i, row + to);
#pragma unroll
            for (int e = 0; e < each; e += 4) {
                *(float4 *)(v + e) = *(const float4 *)(desk + i * PITCH + to + e);
                if (GATED) *(float4 *)(up + e) = *(const float4 *)(desk + i * PITCH + 32 + to + e);
            }
            finish_outputs<T, each, GATED>(a, x_row + first + i, row + to, v, up, before);
        }
    }
}

#endif

template <typename T, typename W, int N, bool GATED>
__global__ void __launch_bounds__(THREADS, 1)
    tiles_kernel(const __grid_constant__ CUtensorMap w_map,
                 const __grid_constant__ CUtensorMap x_map,
                 const __grid_constant__ struct tiles j) {
#ifdef PARLEY_SM90A
    using S = shape<W, N>;
    constexpr bool PARTS = N < 256; // room for the sums of the parts before
    extern __shared__ char shared[];
    const struct cuda_linear &a = j.a;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int rank = (int)blockIdx.x % PAIR, cluster = (int)blockIdx.x / PAIR,
              clusters = (int)gridDim.x / PAIR;
    const uint32_t ring = (shared_address(shared) + 1023) & ~1023u;
    const uint32_t full = ring + S::stages * S::bytes + 2 * DESK, empty = full + 8 * S::stages;
    pdl_trigger();
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::stages; i++) {
            mbarrier_init(full + (uint32_t)(8 * i), 1);
            mbarrier_init(empty + (uint32_t)(8 * i), PAIR * WARPS);
        }
        mbarrier_init_done();
    }
    __syncthreads();
    cluster_sync();
    pdl_wait();

    int stage = 0, round = 0;
    auto next_stage = [&] {
        if (++stage == S::stages) stage = 0, round++;
    };
    if (warp >= WARPS) {
        setmaxnreg_dec<40>();
        for (int at = cluster; warp == WARPS && lane == 0 && at < j.n_pairs; at += clusters) {
            const int x_row = (at % j.x_pairs * PAIR + rank) * N, tile = at / j.x_pairs;
            for (int step = 0; step < j.cut.steps; step++, next_stage()) {
                if (round > 0) mbarrier_wait(empty + (uint32_t)(8 * stage), (round - 1) & 1);
                uint32_t to = ring + (uint32_t)(stage * S::bytes),
                         bar = full + (uint32_t)(8 * stage);
                int k = step * S::k;
                mbarrier_expect(bar, S::bytes);
                // This block's half of W's tile, for both: the rows of warpgroup `rank`.
                uint32_t half = to + (uint32_t)(rank * HALF);
                constexpr int all = (1 << PAIR) - 1;
                if (GATED) {
                    int gate = tile * ROWS / 2 + rank * 32;
                    tma_load_multicast(half, &w_map, k, gate, bar, all, READ_PLAIN);
                    tma_load_multicast(half + HALF / 2, &w_map, k, a.rows / 2 + gate, bar, all,
                                       READ_PLAIN);
                } else {
                    tma_load_multicast(half, &w_map, k, tile * ROWS + rank * 64, bar, all,
                                       READ_PLAIN);
                }
#pragma unroll
                for (int i = 0; i < S::x_tiles; i++)
                    tma_load(to + (uint32_t)(2 * HALF + i * S::x_tile), &x_map, k + i * 64, x_row,
                             bar, READ_PLAIN);
            }
        }
        __syncwarp();
    } else {
        setmaxnreg_inc<232>();
        const int group = warp / 4;
        float *desk = (float *)(shared + (ring - shared_address(shared)) + S::stages * S::bytes +
                                group * DESK);
        // Each warp tells both blocks that it has read a stage.
        auto release = [&](int s) {
            if (lane < PAIR) cluster_arrive(cluster_address(empty + (uint32_t)(8 * s), lane));
        };
        for (int at = cluster; at < j.n_pairs; at += clusters) {
            const int x_row = (at % j.x_pairs * PAIR + rank) * N, tile = at / j.x_pairs;
            float sum[N / 2] = {}, total[PARTS ? N / 2 : 1] = {};
            for (int part = 0; part < j.cut.parts; part++) {
                const struct linear_part steps = linear_part_of(j.cut, part);
                int before = -1;
                for (int step = steps.begin; step < steps.end; step++, next_stage()) {
                    uint32_t from = ring + (uint32_t)(stage * S::bytes);
                    mbarrier_wait(full + (uint32_t)(8 * stage), round & 1);
                    stage_products<T, W, N>::run(sum, from + (uint32_t)(group * HALF),
                                                 from + 2 * HALF, step > steps.begin);
                    wgmma_wait<1>();
                    if (before >= 0) release(before);
                    before = stage;
                }
                wgmma_wait<0>();
                release(before);
                if (PARTS && part > 0) {
#pragma unroll
                    for (int i = 0; i < N / 2; i++) sum[i] += total[PARTS ? i : 0];
                }
                if (PARTS && part + 1 < j.cut.parts) {
#pragma unroll
                    for (int i = 0; i < N / 2; i++) total[PARTS ? i : 0] = sum[i];
                }
            }
            leave<T, N, GATED>(a, sum, desk, x_row,
                               GATED ? tile * ROWS / 2 + group * 32 : tile * ROWS + group * 64,
                               1 + group);
        }
    }
    cluster_sync(); // no block exits while the other's copies and arrivals may still come
#endif
}

template <typename T, typename W, int N, bool GATED>
int launch_tiles(struct tiles j, cudaStream_t stream) {
    auto kernel = tiles_kernel<T, W, N, GATED>;
    constexpr int bytes = shape<W, N>::shared;
    const struct cuda_linear &a = j.a;
    CUtensorMap w_map, x_map;
    if (!tensor_map_of(&w_map, a.w, a.w_dtype, a.rows, a.cols, a.ld, GATED ? 32 : 64) ||
        !tensor_map_of(&x_map, a.x, a.dtype, a.n, a.cols, a.cols, N))
        return CUDA_UNSUPPORTED;
    cuda_allow_shared((const void *)kernel, bytes);
    j.x_pairs = (a.n + PAIR * N - 1) / (PAIR * N);
    j.n_pairs = j.x_pairs * j.cut.tiles;
    int clusters = cuda_current_device().multiprocessors / PAIR;
    if (clusters > j.n_pairs) clusters = j.n_pairs;
    pdl_launch_cluster(kernel, dim3((unsigned)(clusters * PAIR)), dim3(THREADS), (size_t)bytes,
                       PAIR, stream, w_map, x_map, j);
    return cuda_launched("linear_tiles");
}

template <typename T, typename W, int N>
int launch_tiles_gated(const struct tiles &j, cudaStream_t stream) {
    return linear_is_gated(&j.a) ? launch_tiles<T, W, N, true>(j, stream)
                                 : launch_tiles<T, W, N, false>(j, stream);
}

template <typename T> int launch_tiles_typed(const struct tiles &j, cudaStream_t stream) {
    if (j.a.w_dtype == DTYPE_I8) return launch_tiles_gated<T, int8_t, 128>(j, stream);
    if (j.a.w_dtype == DTYPE_F8_E4M3) return launch_tiles_gated<T, e4m3, 128>(j, stream);
    return j.cut.parts == 1 && j.a.n > 256 ? launch_tiles_gated<T, T, 256>(j, stream)
                                           : launch_tiles_gated<T, T, 128>(j, stream);
}

} // namespace

int cuda_linear_tiles(const struct cuda_linear *a, cudaStream_t stream) {
    if (a->n < 1 || !linear_parts_cover(a)) return CUDA_UNSUPPORTED;
    struct tiles j = {*a, linear_cut_of(a), 0, 0};
    return a->dtype == DTYPE_BF16 ? launch_tiles_typed<__nv_bfloat16>(j, stream)
                                  : launch_tiles_typed<__half>(j, stream);
}
