// linear for up to 128 rows of x: y (n, rows) =|+= x (n, cols) W^T + bias, W row-major in bf16, f16
// or, with a scale for each row, int8 or e4m3; e4m3 also with a scale for each 128 columns (step_scales), and with x in
// e4m3 too. sm_90a.
//
// Bound by reading W once, like gemv.cu. But each warp of gemv.cu loads x, which costs more than W
// beyond 8 rows. Here x and W are in shared memory (hopper.cuh):
//
//   - A block takes up to 128 rows of W (two warpgroups, up to 64 each; gated: gates and the rows
//     that they gate) and a part of K: where tiles of 128 are too few to keep the memory busy, K is
//     cut into 2, 4 or 8 parts, a block each, the parts of one tile a cluster. Tiles have fewer
//     rows where that fills the multiprocessors more evenly.
//   - One thread requests tiles of 128 bytes of k, W's and x's, as far ahead as the ring in shared
//     memory allows; W's first ones before the predecessor in the stream has ended (pdl.cuh). Two
//     blocks fit on a multiprocessor, so that one block's start and end overlap the other's reads.
//   - W is the product's A, from shared memory; 8 bits beside an x of 16 through registers, where they are
//     widened. x is B.
//   - The parts' sums meet in shared memory: each block of the cluster takes every parts-th row of
//     x, adds its parts in ascending order and finishes it.
//   - An output's sum: within a part ascending k, sixteen at a time; then the parts in ascending
//     order. Parts depend on the matrix's shape only, so a row's bits are the same for any n and
//     beside any rows, and the same as those of linear_tiles.cu, which sums in this order.
#include "kernels/cuda/linear_parts.cuh"
#include "kernels/cuda/pdl.cuh"

namespace {

constexpr int ROWS = LINEAR_TILE, WARPS = LINEAR_WARPS, THREADS = (WARPS + 1) * 32;
constexpr int ROOM = 110 * 1024; // of shared memory for a block's ring
// Shared memory of a block that is to be the only one of its launch on a multiprocessor: more than half, and what it
// leaves suffices for a block of the launch before or after.
constexpr int ALONE = 116 * 1024;
constexpr int BOX =
    ROWS / 2 * SWIZZLED_ROW; // bytes of half a tile of W: the gates, or the gated rows

struct stream {
    struct cuda_linear a;
    struct linear_cut cut;
    int32_t half;  // rows of W that a warpgroup takes, at most 64
    int32_t tiles; // of two halves
};

template <typename W, typename X, int N> struct shape {
    static constexpr int k = SWIZZLED_ROW / (int)sizeof(W), // of a stage; of a tile of x
        x_k = SWIZZLED_ROW / (int)sizeof(X), x_tiles = k / x_k;
    static constexpr int x_tile = N * SWIZZLED_ROW, w_bytes = 2 * BOX,
                         bytes = w_bytes + x_tiles * x_tile;
    static constexpr int stages = ROOM / bytes < 8 ? ROOM / bytes : 8;
    static constexpr int ring = stages * bytes;
    static constexpr int shared = ring + 1024 +
                                  stages * ((sizeof(W) == 1 ? STEP_SCALES : 0) +
                                            2 * 8); // the ring's start is aligned by hand
    static_assert(N * LINEAR_PITCH * 4 <= ring, "the sums lie where the ring was");
};

template <typename T, typename W, typename X, int N, bool GATED>
__global__ void __launch_bounds__(THREADS,
                                  sizeof(W) < sizeof(X) && N == 128 ? 1 : 2) // registers
    stream_kernel(const __grid_constant__ CUtensorMap w_map,
                  const __grid_constant__ CUtensorMap x_map,
                  const __grid_constant__ struct stream j) {
#ifdef PARLEY_SM90A
    using S = shape<W, X, N>;
    extern __shared__ char shared[];
    const struct cuda_linear &a = j.a;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const uint32_t ring = (shared_address(shared) + 1023) & ~1023u;
    const uint32_t full = ring + S::ring, empty = full + 8 * S::stages,
                   step_scales = empty + 8 * S::stages;
    const bool blocks = S::k == FP8_BLOCK && a.block_k;
    const int parts = j.cut.parts, part = (int)blockIdx.x % parts, tile = (int)blockIdx.x / parts;
    const struct linear_part steps = linear_part_of(j.cut, part);
    const int n_steps = steps.end - steps.begin;
    pdl_trigger();

    auto request_w = [&](int step, int stage) {
        uint32_t to = ring + (uint32_t)(stage * S::bytes), bar = full + (uint32_t)(8 * stage);
        int k = (steps.begin + step) * S::k;
        const int first = (GATED ? tile : 2 * tile) * j.half,
                  second = first + (GATED ? a.rows / 2 : j.half);
        const int scales =
            !blocks ? 0
                    : step_scales_bytes(a, first, j.half) + step_scales_bytes(a, second, j.half);
        mbarrier_expect(bar, 2 * j.half * SWIZZLED_ROW + S::x_tiles * S::x_tile + scales);
        tma_load(to, &w_map, k, first, bar, READ_ONCE);
        tma_load(to + BOX, &w_map, k, second, bar, READ_ONCE);
        if (!blocks) return;
        to = step_scales + (uint32_t)(stage * STEP_SCALES);
        request_scales(a, to, steps.begin + step, first, j.half, bar);
        request_scales(a, to + STEP_SCALES / 2, steps.begin + step, second, j.half, bar);
    };
    auto request_x = [&](int step, int stage) {
        uint32_t to = ring + (uint32_t)(stage * S::bytes + S::w_bytes);
        uint32_t bar = full + (uint32_t)(8 * stage);
#pragma unroll
        for (int i = 0; i < S::x_tiles; i++)
            tma_load(to + (uint32_t)(i * S::x_tile), &x_map,
                     (steps.begin + step) * S::k + i * S::x_k, 0, bar, READ_AGAIN);
    };
    const bool asks = warp == WARPS && lane == 0;
    const int ahead = min(S::stages, n_steps);
    if (asks) {
        for (int i = 0; i < S::stages; i++) {
            mbarrier_init(full + (uint32_t)(8 * i), 1);
            mbarrier_init(empty + (uint32_t)(8 * i), WARPS);
        }
        mbarrier_init_done();
        for (int i = 0; i < ahead; i++) request_w(i, i);
    }
    __syncthreads();
    pdl_wait();

    float sum[N / 2];
    if (asks) {
        for (int i = 0; i < ahead; i++) request_x(i, i);
        for (int i = ahead; i < n_steps; i++) {
            int stage = i % S::stages;
            mbarrier_wait(empty + (uint32_t)(8 * stage), (i / S::stages - 1) & 1);
            request_w(i, stage);
            request_x(i, stage);
        }
    } else if (warp < WARPS) {
        const uint32_t scales_at = step_scales + (uint32_t)((warp * 16 + lane / 4) * 4);
        struct step_scales scale = {{1, 1}};
        for (int i = 0, stage = 0, round = 0; i < n_steps; i++) {
            uint32_t at = ring + (uint32_t)(stage * S::bytes);
            mbarrier_wait(full + (uint32_t)(8 * stage), round & 1);
            if (blocks) {
                const struct step_scales here =
                    step_scales_at(scales_at + (uint32_t)(stage * STEP_SCALES));
                if (i > 0) multiply_sums(sum, scale / here);
                scale = here;
            }
            stage_products<W, X, N>::run(sum, at + (uint32_t)(warp / 4 * BOX), at + S::w_bytes,
                                         i > 0);
            wgmma_wait<0>(); // releases the stage as early as possible: memory is the bottleneck
            wgmma_fence_results(sum);
            if (lane == 0) mbarrier_arrive(empty + (uint32_t)(8 * stage));
            if (++stage == S::stages) stage = 0, round++;
        }
        if (blocks) multiply_sums(sum, scale);
        named_barrier(1, WARPS * 32); // all have read the ring
        put_sums(sum, ring, a.n, warp, lane);
    }
    __syncwarp();
    finish_tile<T, GATED>(a, ring, tile, part, parts, j.half, warp, lane);
#endif
}

// Where all tiles of 64 rows a half run at once, and some multiprocessors have two and others one,
// smaller tiles are dealt out evenly. (Four rows are written at a time.) Each tile fetches x, so
// with many rows of x that is for those that take all of K, which are many.
int half_of(int rows, int at_once, bool wide) {
    int tiles = (rows + ROWS / 2 - 1) / (ROWS / 2);
    if (tiles > at_once || 2 * tiles < at_once || wide) return ROWS / 2;
    return ((rows + at_once - 1) / at_once + 3) / 4 * 4;
}

// A launch of pairs that has no more blocks than multiprocessors has one on each. Blocks start early, where the
// predecessor's have ended, and two would go to one multiprocessor: down of Llama-70B's half took 82 microseconds in a
// step, and where each block had a multiprocessor 58. Clusters of four and more are not spread: they would start
// late, when so many multiprocessors of a group have room (64 rows of Llama-8B's half: 7 % fewer tokens/s).
// Launches without clusters, such as gate + up of Llama-1B, were not measured.
int shared_of(int blocks, int parts, int ring) {
    return parts == 2 && blocks <= cuda_current_device().multiprocessors ? ALONE : ring;
}

template <typename T, typename W, typename X, int N, bool GATED>
int launch_stream(struct stream j, cudaStream_t stream) {
    auto kernel = stream_kernel<T, W, X, N, GATED>;
    constexpr int bytes = shape<W, X, N>::shared;
    const struct cuda_linear &a = j.a;
    CUtensorMap w_map, x_map;
    static_assert(bytes <= ALONE);
    cuda_allow_shared((const void *)kernel, ALONE);
    const int at_once = clusters_at_once((const void *)kernel, THREADS, bytes, j.cut.parts);
    const int halves = GATED ? a.rows / 2 : (a.rows + 1) / 2; // rows
    j.half = half_of(halves, at_once, N > 32 && j.cut.parts > 1);
    j.tiles = (halves + j.half - 1) / j.half;
    if (!tensor_map_of(&w_map, a.w, a.w_dtype, a.rows, a.cols, a.ld, j.half) ||
        !tensor_map_of(&x_map, a.x, a.x_8bit ? DTYPE_F8_E4M3 : a.dtype, a.n, a.cols, a.cols, N))
        return CUDA_UNSUPPORTED;
    const int blocks = j.tiles * j.cut.parts;
    pdl_launch_cluster(kernel, dim3((unsigned)blocks), dim3(THREADS),
                       (size_t)shared_of(blocks, j.cut.parts, bytes), (unsigned)j.cut.parts, stream,
                       w_map, x_map, j);
    return cuda_launched("linear_stream");
}

template <typename T, typename W, typename X, int N>
int launch_stream_gated(const struct stream &j, cudaStream_t stream) {
    return j.a.activate && j.a.gated ? launch_stream<T, W, X, N, true>(j, stream)
                                     : launch_stream<T, W, X, N, false>(j, stream);
}

template <typename T, typename W, typename X>
int launch_stream_typed(const struct stream &j, cudaStream_t stream) {
    int n = j.a.n;
    return n <= 8    ? launch_stream_gated<T, W, X, 8>(j, stream)
           : n <= 16 ? launch_stream_gated<T, W, X, 16>(j, stream)
           : n <= 32 ? launch_stream_gated<T, W, X, 32>(j, stream)
           : n <= 64 ? launch_stream_gated<T, W, X, 64>(j, stream)
                     : launch_stream_gated<T, W, X, 128>(j, stream);
}

template <typename T> int launch_stream_by(const struct stream &j, cudaStream_t stream) {
    if (j.a.x_8bit) return launch_stream_typed<T, e4m3, e4m3>(j, stream);
    if (j.a.w_dtype == DTYPE_I8) return launch_stream_typed<T, int8_t, T>(j, stream);
    if (j.a.w_dtype == DTYPE_F8_E4M3) return launch_stream_typed<T, e4m3, T>(j, stream);
    return launch_stream_typed<T, T, T>(j, stream);
}

} // namespace

int cuda_linear_stream(const struct cuda_linear *a, cudaStream_t stream) {
    if (a->n < 1 || a->n > CUDA_STREAM_ROWS || !linear_parts_cover(a)) return CUDA_UNSUPPORTED;
    struct stream j = {*a, linear_cut_of(a), 0, 0};
    return a->dtype == DTYPE_BF16 ? launch_stream_by<__nv_bfloat16>(j, stream)
                                  : launch_stream_by<__half>(j, stream);
}
