// linear for many rows of x: y (n, rows) =|+= x (n, cols) W^T + bias, W and x as linear_stream.cu takes them,
// bound by the tensor cores. With x of 16 bits its bits are those of linear_stream.cu for any n, which no library promises:
// `deterministic` computes prompts with it. sm_90a.
//
//   - A block stays on its multiprocessor and takes tiles of 128 rows of W by 128 or 256 rows of x
//     in turn, two warpgroups 64 rows of W each. A thread of a third warpgroup requests the tiles
//     of 128 bytes of k, into a ring in shared memory, and runs ahead into the next tile while the
//     last one is written.
//   - Blocks come in pairs (a cluster) that take the same rows of x and neighbouring rows of W:
//     each fetches half of x's tile for both, because L2 cannot deliver all tiles to every
//     multiprocessor as fast as the tensor cores consume them.
//   - If the matrix is cut into parts of K (linear_parts.cuh), each part's sum starts from zero and is
//     added to those before. This takes twice the registers, so tiles have 128 rows of x; uncut, 256. With x of e4m3
//     K is not cut: nothing asks for the bits of linear_stream.cu.
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
    int32_t n_pairs, x_tiles; // pairs of tiles in all; tiles along x
};

template <typename W, typename X, int N> struct shape {
    static constexpr int k = SWIZZLED_ROW / (int)sizeof(W), // of a stage; of a tile of x
        x_k = SWIZZLED_ROW / (int)sizeof(X), x_tiles = k / x_k;
    static constexpr int x_tile = N * SWIZZLED_ROW, bytes = 2 * HALF + x_tiles * x_tile;
    static constexpr int stages = (ROOM - 2 * DESK) / (bytes + STEP_SCALES + 16);
    static constexpr int scales = sizeof(W) == 1 ? STEP_SCALES : 0; // of a stage
    static constexpr int shared = stages * (bytes + scales + 16) + 2 * DESK + 1024;
    static_assert(stages >= 3, "a ring");
};

#ifdef PARLEY_SM90A

// A warpgroup's sums of the tile to y, through its desk. `row`: the tile's first output of this
// warpgroup. What y held is loaded while a round's sums go through the desk.
template <typename T, int N, bool GATED>
__device__ __forceinline__ void leave(const struct cuda_linear &a, const float (&sum)[N / 2],
                                      float *desk, int x_row, int row, int id) {
    constexpr int each = 8,
                  across = (GATED ? 32 : 64) / each; // outputs of a thread; threads of a row of x
    constexpr int AT_ONCE = LEAVING * across / 128, ROUNDS = N / LEAVING;
    const int thread = (int)threadIdx.x % 128, lane = thread % 32;
    const int at = thread / 32 * 16 + lane / 4, column = lane % 4 * 2;
    const int to = thread % across * each, width = GATED ? a.rows / 2 : a.rows;
    struct output_terms<each> terms, up_terms;
    if (row + to < width) {
        load_terms(terms, a, row + to);
        if (GATED) load_terms(up_terms, a, row + to + width);
    }
#pragma unroll
    for (int round = 0; round < ROUNDS; round++) {
        if (x_row + round * LEAVING >= a.n) break;
        float before[AT_ONCE][each], x_scale[AT_ONCE];
#pragma unroll
        for (int r = 0; r < AT_ONCE; r++) { // on their way while the sums go through shared memory
            const int i = x_row + round * LEAVING + (thread + r * 128) / across;
            if (i >= a.n) continue;
            load_outputs<T, each, GATED>(before[r], a, i, row + to);
            x_scale[r] = x_scale_of(a, i);
        }
        named_barrier(id, 128); // those before have been read
#pragma unroll
        for (int c = 0; c < LEAVING / 8; c++) {
#pragma unroll
            for (int e = 0; e < 4; e++)
                desk[(c * 8 + column + e % 2) * PITCH + at + e / 2 * 8] =
                    sum[round * LEAVING / 2 + 4 * c + e];
        }
        named_barrier(id, 128);
#pragma unroll
        for (int r = 0; r < AT_ONCE; r++) {
            const int i = x_row + round * LEAVING + (thread + r * 128) / across;
            const float *from = desk + (thread + r * 128) / across * PITCH + to;
            float v[each], up[each];
            if (i >= a.n) continue;
#pragma unroll
            for (int e = 0; e < each; e += 4) {
                *(float4 *)(v + e) = *(const float4 *)(from + e);
                if (GATED) *(float4 *)(up + e) = *(const float4 *)(from + 32 + e);
            }
            finish_outputs_by<T, each, GATED>(a, i, row + to, v, up, before[r], terms, up_terms,
                                              x_scale[r]);
        }
    }
}

#endif

template <typename T, typename W, typename X, int N, bool GATED>
__global__ void __launch_bounds__(THREADS, 1)
    tiles_kernel(const __grid_constant__ CUtensorMap w_map,
                 const __grid_constant__ CUtensorMap x_map,
                 const __grid_constant__ struct tiles j) {
#ifdef PARLEY_SM90A
    using S = shape<W, X, N>;
    constexpr bool EIGHT_BITS = sizeof(X) == 1;
    constexpr bool PARTS = N < 256 && !EIGHT_BITS; // room for the sums of the parts before
    extern __shared__ char shared[];
    const struct cuda_linear &a = j.a;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int rank = (int)blockIdx.x % PAIR, cluster = (int)blockIdx.x / PAIR,
              clusters = (int)gridDim.x / PAIR;
    const uint32_t ring = (shared_address(shared) + 1023) & ~1023u;
    const uint32_t full = ring + S::stages * S::bytes + 2 * DESK, empty = full + 8 * S::stages,
                   step_scales = empty + 8 * S::stages;
    const bool blocks = S::k == FP8_BLOCK && a.block_k;
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

    // Of a warpgroup's rows: each(bytes behind a stage's first scale, first row, rows), summed.
    auto scales_of = [&](int tile, int group, auto each) {
        const int at = group * STEP_SCALES / 2;
        if (!GATED) return each(at, tile * ROWS + group * 64, 64);
        const int gate = tile * ROWS / 2 + group * 32;
        return each(at, gate, 32) + each(at + STEP_SCALES / 4, a.rows / 2 + gate, 32);
    };
    int stage = 0, round = 0;
    auto next_stage = [&] {
        if (++stage == S::stages) stage = 0, round++;
    };
    if (warp >= WARPS) {
        setmaxnreg_dec<40>();
        for (int at = cluster; warp == WARPS && lane == 0 && at < j.n_pairs; at += clusters) {
            const int x_row = at % j.x_tiles * N, tile = at / j.x_tiles * PAIR + rank;
            for (int step = 0; step < j.cut.steps; step++, next_stage()) {
                if (round > 0) mbarrier_wait(empty + (uint32_t)(8 * stage), (round - 1) & 1);
                uint32_t to = ring + (uint32_t)(stage * S::bytes),
                         bar = full + (uint32_t)(8 * stage);
                int k = step * S::k;
                int scales = 0;
                if (blocks) {
#pragma unroll
                    for (int group = 0; group < 2; group++)
                        scales += scales_of(tile, group, [&](int, int row, int n) {
                            return step_scales_bytes(a, row, n);
                        });
                }
                mbarrier_expect(bar, S::bytes + scales);
#pragma unroll
                for (int group = 0; group < 2; group++) { // rows of W of a warpgroup
                    const uint32_t half = to + (uint32_t)(group * HALF);
                    if (GATED) {
                        const int gate = tile * ROWS / 2 + group * 32;
                        tma_load(half, &w_map, k, gate, bar, READ_PLAIN);
                        tma_load(half + HALF / 2, &w_map, k, a.rows / 2 + gate, bar, READ_PLAIN);
                    } else {
                        tma_load(half, &w_map, k, tile * ROWS + group * 64, bar, READ_PLAIN);
                    }
                }
                if (blocks) {
#pragma unroll
                    for (int group = 0; group < 2; group++)
                        scales_of(tile, group, [&](int at, int row, int n) {
                            request_scales(
                                a, step_scales + (uint32_t)(stage * STEP_SCALES) + (uint32_t)at,
                                step, row, n, bar);
                            return 0;
                        });
                }
                to += (uint32_t)(2 * HALF + rank * S::x_tile / PAIR);
#pragma unroll
                for (int i = 0; i < S::x_tiles; i++) // this block's half of x's tile, for both
                    tma_load_multicast(to + (uint32_t)(i * S::x_tile), &x_map, k + i * S::x_k,
                                       x_row + rank * N / PAIR, bar, (1 << PAIR) - 1, READ_PLAIN);
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
        const uint32_t scales_at = step_scales + (uint32_t)((warp * 16 + lane / 4) * 4);
        auto arrived = [&] { // the stage's scales, once it is there
            mbarrier_wait(full + (uint32_t)(8 * stage), round & 1);
            return step_scales_at(scales_at + (uint32_t)(stage * STEP_SCALES));
        };
        for (int at = cluster; at < j.n_pairs; at += clusters) {
            const int x_row = at % j.x_tiles * N, tile = at / j.x_tiles * PAIR + rank;
            const int row = GATED ? tile * ROWS / 2 + group * 32 : tile * ROWS + group * 64;
            float sum[N / 2], total[PARTS ? N / 2 : 1] = {};
            for (int part = 0; part < j.cut.parts; part++) {
                const struct linear_part steps = linear_part_of(j.cut, part);
                if constexpr (EIGHT_BITS) {
                    float low[N / 4], high[N / 4]; // sums of the two halves of x's rows
                    struct step_scales now = arrived();
                    auto half = [&](float(&d)[N / 4], int i, bool keep) {
                        const uint32_t from = ring + (uint32_t)(stage * S::bytes);
                        stage_products<W, X, N / 2>::run(
                            d, from + (uint32_t)(group * HALF),
                            from + 2 * HALF + (uint32_t)(i * S::x_tile / 2), keep);
                    };
                    auto done = [&] {
                        wgmma_wait<0>();
                        wgmma_fence_results(low);
                        wgmma_fence_results(high);
                        release(stage);
                        next_stage();
                    };
                    half(low, 0, false);
                    half(high, 1, false);
                    done();
                    for (int step = steps.begin + 1; step < steps.end; step++) {
                        const struct step_scales here = arrived(), by = now / here;
                        now = here;
                        multiply_sums(low, by);
                        half(low, 0, true);
                        multiply_sums(high, by);
                        half(high, 1, true);
                        done();
                    }
                    multiply_sums(low, now);
                    multiply_sums(high, now);
#pragma unroll
                    for (int i = 0; i < N / 4; i++) sum[i] = low[i], sum[i + N / 4] = high[i];
                } else {
                    struct step_scales now = {{1, 1}};
                    int before = -1;
                    for (int step = steps.begin; step < steps.end; step++, next_stage()) {
                        const uint32_t from = ring + (uint32_t)(stage * S::bytes);
                        mbarrier_wait(full + (uint32_t)(8 * stage), round & 1);
                        if (S::k == FP8_BLOCK &&
                            blocks) { // products of widened codes are done when they return
                            const struct step_scales here = arrived();
                            if (step > steps.begin) multiply_sums(sum, now / here);
                            now = here;
                        }
                        stage_products<W, X, N>::run(sum, from + (uint32_t)(group * HALF),
                                                     from + 2 * HALF, step > steps.begin);
                        wgmma_wait<1>();
                        if (before >= 0) release(before);
                        before = stage;
                    }
                    wgmma_wait<0>();
                    release(before);
                    if (S::k == FP8_BLOCK && blocks) multiply_sums(sum, now);
                }
                if (PARTS && part > 0) {
#pragma unroll
                    for (int i = 0; i < N / 2; i++) sum[i] += total[PARTS ? i : 0];
                }
                if (PARTS && part + 1 < j.cut.parts) {
#pragma unroll
                    for (int i = 0; i < N / 2; i++) total[PARTS ? i : 0] = sum[i];
                }
            }
            leave<T, N, GATED>(a, sum, desk, x_row, row, 1 + group);
        }
    }
    cluster_sync(); // no block exits while the other's copies and arrivals may still come
#endif
}

template <typename T, typename W, typename X, int N, bool GATED>
int launch_tiles(struct tiles j, cudaStream_t stream) {
    auto kernel = tiles_kernel<T, W, X, N, GATED>;
    constexpr int bytes = shape<W, X, N>::shared;
    const struct cuda_linear &a = j.a;
    CUtensorMap w_map, x_map;
    if (!tensor_map_of(&w_map, a.w, a.w_dtype, a.rows, a.cols, a.ld, GATED ? 32 : 64) ||
        !tensor_map_of(&x_map, a.x, a.x_8bit ? DTYPE_F8_E4M3 : a.dtype, a.n, a.cols, a.cols,
                       N / PAIR))
        return CUDA_UNSUPPORTED;
    cuda_allow_shared((const void *)kernel, bytes);
    j.x_tiles = (a.n + N - 1) / N;
    j.n_pairs = j.x_tiles * ((j.cut.tiles + PAIR - 1) / PAIR);
    int clusters = cuda_current_device().multiprocessors / PAIR;
    if (clusters > j.n_pairs) clusters = j.n_pairs;
    pdl_launch_cluster(kernel, dim3((unsigned)(clusters * PAIR)), dim3(THREADS), (size_t)bytes,
                       PAIR, stream, w_map, x_map, j);
    return cuda_launched("linear_tiles");
}

template <typename T, typename W, typename X, int N>
int launch_tiles_gated(const struct tiles &j, cudaStream_t stream) {
    return linear_is_gated(&j.a) ? launch_tiles<T, W, X, N, true>(j, stream)
                                 : launch_tiles<T, W, X, N, false>(j, stream);
}

template <typename T> int launch_tiles_typed(struct tiles j, cudaStream_t stream) {
    if (j.a.x_8bit) {
        // Without blocks cuBLASLt is faster; a gated activation takes longer here than in a launch of its own.
        if (!j.a.block_k || linear_is_gated(&j.a)) return CUDA_UNSUPPORTED;
        j.cut.parts = 1;
        const int wide = (j.a.n + 255) / 256 * j.cut.tiles; // tiles of 256 rows of x
        return wide * 4 >= cuda_current_device().multiprocessors * 3
                   ? launch_tiles<T, e4m3, e4m3, 256, false>(j, stream)
                   : launch_tiles<T, e4m3, e4m3, 128, false>(j, stream);
    }
    if (j.a.w_dtype == DTYPE_I8) return launch_tiles_gated<T, int8_t, T, 128>(j, stream);
    if (j.a.w_dtype == DTYPE_F8_E4M3) return launch_tiles_gated<T, e4m3, T, 128>(j, stream);
    return j.cut.parts == 1 && j.a.n > 256 ? launch_tiles_gated<T, T, T, 256>(j, stream)
                                           : launch_tiles_gated<T, T, T, 128>(j, stream);
}

} // namespace

int cuda_linear_tiles(const struct cuda_linear *a, cudaStream_t stream) {
    if (a->n < 1 || !linear_parts_cover(a)) return CUDA_UNSUPPORTED;
    struct tiles j = {*a, linear_cut_of(a), 0, 0};
    return a->dtype == DTYPE_BF16 ? launch_tiles_typed<__nv_bfloat16>(j, stream)
                                  : launch_tiles_typed<__half>(j, stream);
}
