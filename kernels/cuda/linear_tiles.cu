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
//   - Results leave by copies of shared memory that go on while the next tile is multiplied; what y held comes the same
//     way before the tile's end.
#include "kernels/cuda/linear_parts.cuh"
#include "kernels/cuda/pdl.cuh"

namespace {

constexpr int ROWS = LINEAR_TILE, WARPS = 8, THREADS = (WARPS + 4) * 32, PAIR = 2;
constexpr int HALF = ROWS / 2 * SWIZZLED_ROW; // bytes of a warpgroup's rows of a tile of W
// Each warpgroup's results are staged in PIECES pieces of PIECE_ROWS rows of x by its 64 rows of W.
constexpr int PIECE_ROWS = 32, PIECE = PIECE_ROWS * SWIZZLED_ROW, PIECES = 4,
              STAGING = PIECES * PIECE;
constexpr int STAGING_BARRIERS = 2 * PIECES * 8; // bytes
constexpr int ROOM = 227 * 1024;                 // of shared memory

struct tiles {
    struct cuda_linear a;
    struct linear_cut cut;
    int32_t n_pairs, x_tiles; // pairs of tiles in all; tiles along x
    bool by_copies;           // results leave by copies: y has T and rows of whole 16 bytes
};

template <typename W, typename X, int N> struct shape {
    static constexpr int k = SWIZZLED_ROW / (int)sizeof(W), // of a stage; of a tile of x
        x_k = SWIZZLED_ROW / (int)sizeof(X), x_tiles = k / x_k;
    static constexpr int x_tile = N * SWIZZLED_ROW, bytes = 2 * HALF + x_tiles * x_tile;
    static constexpr int scales = sizeof(W) == 1 ? STEP_SCALES : 0; // of a stage
    static constexpr int barriers = 2 * STAGING_BARRIERS, stage = bytes + scales + 16;
    static constexpr int stages = (ROOM - 2 * STAGING - barriers) / stage;
    static constexpr int shared = stages * stage + 2 * STAGING + barriers;
    static_assert(stages >= 3, "a ring");
};

#ifdef PARLEY_SM90A

// Where a warpgroup's results wait for their copies to y: piece q at place q % PIECES. The warpgroup may write it once
// `free` has ended its q / PIECES-th phase, and finds there what y held if results are added; it is copied behind `full`.
struct staging {
    uint32_t pieces, free, full; // shared
    __device__ __forceinline__ uint32_t piece(int q) const {
        return pieces + (uint32_t)(q % PIECES * PIECE);
    }
    __device__ __forceinline__ static uint32_t bar(uint32_t of, int q) {
        return of + (uint32_t)(q % PIECES * 8);
    }
    __device__ __forceinline__ static void wait(uint32_t of, int q) {
        mbarrier_wait(bar(of, q), q / PIECES & 1);
    }
};

// The end of a warpgroup's part of a tile: 64 rows of W from `row`, N rows of x from x_row. A lane holds of the sums those
// of two rows of W, g and g + 8 of its warp's 16. The code of a tile's end runs once a tile, so it must be short: a
// microsecond for each 8 KB.
template <typename T, int N, bool X_SCALED> struct epilogue {
    static constexpr int ROUNDS = N / PIECE_ROWS;
    const struct cuda_linear &a;
    const struct staging staged;
    int q = 0; // the next piece
    int x_row = 0, row = 0;
    float scale[2] = {}, bias[2] = {}, x_scale[ROUNDS] = {}; // x_scale: a lane's row of each round

    // Ahead of the tile's products: loads what its end needs.
    __device__ __forceinline__ void begin(int first_x_row, int first_row) {
        const int lane = (int)threadIdx.x % 32, at = (int)threadIdx.x / 32 % 4 * 16 + lane / 4;
        x_row = first_x_row, row = first_row;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int i = min(row + at + 8 * r, a.rows - 1);
            if (a.scale && !a.block_k) scale[r] = a.scale[i];
            if (a.bias) bias[r] = a.bias[i];
        }
#pragma unroll
        for (int r = 0; r < ROUNDS; r++)
            if (X_SCALED) x_scale[r] = a.x_scale[min(x_row + r * PIECE_ROWS + lane, a.n - 1)];
    }
    // Scales and bias of a round's sums.
    template <int COUNT>
    __device__ __forceinline__ void finish(float (&v)[COUNT], int round) const {
        const int t = (int)threadIdx.x % 4;
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (X_SCALED) v[i] *= __shfl_sync(~0u, x_scale[round], i / 4 * 8 + 2 * t + i % 2);
        if (a.scale && !a.block_k) {
#pragma unroll
            for (int i = 0; i < COUNT; i++) v[i] *= scale[i / 2 % 2];
        }
        if (a.bias) {
#pragma unroll
            for (int i = 0; i < COUNT; i++) v[i] += bias[i / 2 % 2];
        }
    }
    __device__ __forceinline__ void by_copies(const float (&sum)[N / 2]) {
        const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32 % 4;
        const int matrix = lane / 8, in_matrix = lane % 8;
        // Matrices of 8 rows of x by 8 rows of W: rows g, rows g + 8 of W, the same of the next 8 rows of x.
        const uint32_t in_piece = (uint32_t)((matrix / 2 * 8 + in_matrix) * SWIZZLED_ROW +
                                             ((2 * warp + matrix % 2) ^ in_matrix) * 16);
#pragma unroll
        for (int round = 0; round < ROUNDS; round++, q++) {
            constexpr int COUNT = PIECE_ROWS / 2, QUADS = COUNT / 8;
            if (x_row + round * PIECE_ROWS >= a.n) break;
            float v[COUNT];
#pragma unroll
            for (int i = 0; i < COUNT; i++) v[i] = sum[round * COUNT + i];
            finish(v, round);
            staging::wait(staged.free, q);
            const uint32_t to = staged.piece(q) + in_piece;
            if (a.add) {
#pragma unroll
                for (int c = 0; c < QUADS; c++) {
                    uint32_t before[4];
                    load_matrices_transposed(before, to + (uint32_t)(c * 16 * SWIZZLED_ROW));
#pragma unroll
                    for (int m = 0; m < 4; m++) {
                        const float2 was = unpack2(before[m], T());
                        v[8 * c + 2 * m] += was.x, v[8 * c + 2 * m + 1] += was.y;
                    }
                }
            }
#pragma unroll
            for (int c = 0; c < QUADS; c++) {
                uint32_t out[4];
#pragma unroll
                for (int m = 0; m < 4; m++)
                    out[m] = pack2<T>(v[8 * c + 2 * m], v[8 * c + 2 * m + 1]);
                store_matrices_transposed(to + (uint32_t)(c * 16 * SWIZZLED_ROW), out);
            }
            copies_see_writes();
            __syncwarp();
            if (lane == 0) mbarrier_arrive(staging::bar(staged.full, q));
        }
    }
    // The sums go through local memory, so that the way that few matrices take is short.
    __device__ __forceinline__ void by_stores(const float (&sum)[N / 2]) {
        const int lane = (int)threadIdx.x % 32, at = (int)threadIdx.x / 32 % 4 * 16 + lane / 4;
        float of[N / 2];
#pragma unroll
        for (int i = 0; i < N / 2; i++) of[i] = sum[i];
#pragma unroll 1
        for (int i = 0; i < N / 2; i++) {
            const int r = i / 2 % 2, x_at = x_row + i / 4 * 8 + lane % 4 * 2 + i % 2,
                      w_at = row + at + 8 * r;
            if (x_at >= a.n || w_at >= a.rows) continue;
            float v = of[i];
            if (X_SCALED) v *= a.x_scale[x_at];
            if (a.scale && !a.block_k) v *= r ? scale[1] : scale[0];
            if (a.bias) v += r ? bias[1] : bias[0];
            const int64_t to = (int64_t)x_at * a.rows + w_at;
            if (a.y_f32)
                ((float *)a.y)[to] = a.add ? v + ((float *)a.y)[to] : v;
            else
                ((T *)a.y)[to] = from_float<T>(a.add ? v + to_float(((T *)a.y)[to]) : v);
        }
    }
};

// By one thread, for all tiles of a warpgroup: copies its pieces to y, and fills those that are free with what y held.
// x_row_of, row_of: the first row of x, of W, of the pairs' at-th tile.
template <int N, typename XRow, typename Row>
__device__ __forceinline__ void store_pieces(const struct cuda_linear &a, const CUtensorMap *y_map,
                                             const struct staging staged, int tiles, int first,
                                             int each, XRow x_row_of, Row row_of) {
    struct cursor {
        int q, at, round;
    };
    auto x_row = [&](const cursor &c) { return x_row_of(c.at) + c.round * PIECE_ROWS; };
    auto skip = [&](cursor &c) { // what is no piece
        while (c.at < tiles && (c.round == N / PIECE_ROWS || x_row(c) >= a.n))
            c.at += each, c.round = 0;
    };
    auto next = [&](cursor &c) {
        c.q++, c.round++;
        skip(c);
    };
    cursor freed = {0, first, 0}, copied = freed;
    skip(freed), skip(copied);
    auto free_one = [&] {
        if (freed.at >= tiles) return;
        const uint32_t bar = staging::bar(staged.free, freed.q);
        if (a.add) {
            mbarrier_expect(bar, PIECE);
            tma_load(staged.piece(freed.q), y_map, row_of(freed.at), x_row(freed), bar, READ_PLAIN);
        } else {
            mbarrier_arrive(bar);
        }
        next(freed);
    };
    for (int i = 0; i < PIECES; i++) free_one();
    for (; copied.at < tiles; next(copied)) {
        staging::wait(staged.full, copied.q);
        tma_store(y_map, row_of(copied.at), x_row(copied), staged.piece(copied.q));
        copies_commit();
        copies_read<1>();
        if (copied.q > 0) free_one(); // the place of the piece before
    }
    copies_written(); // the block's shared memory is its own until then
}

#endif

template <typename T, typename W, typename X, int N>
__global__ void __launch_bounds__(THREADS, 1)
    tiles_kernel(const __grid_constant__ CUtensorMap w_map,
                 const __grid_constant__ CUtensorMap x_map,
                 const __grid_constant__ CUtensorMap y_map,
                 const __grid_constant__ struct tiles j) {
#ifdef PARLEY_SM90A
    using S = shape<W, X, N>;
    constexpr bool EIGHT_BITS = sizeof(X) == 1;
    constexpr bool PARTS = N < 256 && !EIGHT_BITS;   // room for the sums of the parts before
    extern __shared__ __align__(1024) char shared[]; // where the swizzle begins
    const struct cuda_linear &a = j.a;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int rank = (int)blockIdx.x % PAIR, cluster = (int)blockIdx.x / PAIR,
              clusters = (int)gridDim.x / PAIR;
    const uint32_t ring = shared_address(shared), stagings = ring + S::stages * S::bytes,
                   full = stagings + 2 * STAGING, empty = full + 8 * S::stages,
                   staging_barriers = empty + 8 * S::stages,
                   step_scales = staging_barriers + S::barriers;
    const bool blocks = S::k == FP8_BLOCK && a.block_k;
    pdl_trigger();
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::stages; i++) {
            mbarrier_init(full + (uint32_t)(8 * i), 1);
            mbarrier_init(empty + (uint32_t)(8 * i), PAIR * WARPS);
        }
        for (int i = 0; i < 2 * PIECES; i++) { // of each warpgroup
            const uint32_t of = staging_barriers + (uint32_t)(i / PIECES * STAGING_BARRIERS);
            mbarrier_init(staging::bar(of, i), 1);
            mbarrier_init(staging::bar(of + PIECES * 8, i), WARPS / 2);
        }
        mbarrier_init_done();
    }
    __syncthreads();
    cluster_sync();
    pdl_wait();

    auto x_row_of = [&](int at) { return at % j.x_tiles * N; };
    auto tile_of = [&](int at) { return at / j.x_tiles * PAIR + rank; };
    auto staging_of = [&](int group) {
        const uint32_t of = staging_barriers + (uint32_t)(group * STAGING_BARRIERS);
        return staging{stagings + (uint32_t)(group * STAGING), of, of + PIECES * 8};
    };
    int stage = 0, round = 0;
    auto next_stage = [&] {
        if (++stage == S::stages) stage = 0, round++;
    };
    if (warp >= WARPS) {
        setmaxnreg_dec<40>();
        const int of_group = warp - WARPS - 1; // whose results this warp copies
        if (of_group >= 0 && of_group < 2 && lane == 0 && j.by_copies)
            store_pieces<N>(a, &y_map, staging_of(of_group), j.n_pairs, cluster, clusters, x_row_of,
                            [&](int at) { return tile_of(at) * ROWS + of_group * 64; });
        for (int at = cluster; warp == WARPS && lane == 0 && at < j.n_pairs; at += clusters) {
            const int x_row = x_row_of(at), w_row = tile_of(at) * ROWS;
            for (int step = 0; step < j.cut.steps; step++, next_stage()) {
                if (round > 0) mbarrier_wait(empty + (uint32_t)(8 * stage), (round - 1) & 1);
                uint32_t to = ring + (uint32_t)(stage * S::bytes),
                         bar = full + (uint32_t)(8 * stage);
                const int k = step * S::k;
                mbarrier_expect(bar, S::bytes + (blocks ? step_scales_bytes(a, w_row, ROWS) : 0));
                tma_load(to, &w_map, k, w_row, bar, READ_PLAIN);
                if (blocks)
                    request_scales(a, step_scales + (uint32_t)(stage * STEP_SCALES), step, w_row,
                                   ROWS, bar);
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
        struct epilogue<T, N, EIGHT_BITS> end = {
            a, staging_of(group)
        };
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
            end.begin(x_row_of(at), tile_of(at) * ROWS + group * 64);
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
            if (j.by_copies)
                end.by_copies(sum);
            else
                end.by_stores(sum);
        }
    }
    cluster_sync(); // no block exits while the other's copies and arrivals may still come
#endif
}

template <typename T, typename W, typename X, int N>
int launch_tiles(struct tiles j, cudaStream_t stream) {
    auto kernel = tiles_kernel<T, W, X, N>;
    constexpr int bytes = shape<W, X, N>::shared;
    const struct cuda_linear &a = j.a;
    CUtensorMap w_map, x_map, y_map = {};
    if (!tensor_map_of(&w_map, a.w, a.w_dtype, a.rows, a.cols, a.ld, ROWS) ||
        !tensor_map_of(&x_map, a.x, a.x_8bit ? DTYPE_F8_E4M3 : a.dtype, a.n, a.cols, a.cols,
                       N / PAIR))
        return CUDA_UNSUPPORTED;
    j.by_copies = !a.y_f32 && a.rows % 8 == 0 && ((uintptr_t)a.y & 15) == 0 &&
                  tensor_map_of(&y_map, a.y, a.dtype, a.n, a.rows, a.rows, PIECE_ROWS);
    cuda_allow_shared((const void *)kernel, bytes);
    j.x_tiles = (a.n + N - 1) / N;
    j.n_pairs = j.x_tiles * ((j.cut.tiles + PAIR - 1) / PAIR);
    int clusters = clusters_at_once((const void *)kernel, THREADS, bytes, PAIR);
    if (clusters > j.n_pairs) clusters = j.n_pairs;
    pdl_launch_cluster(kernel, dim3((unsigned)(clusters * PAIR)), dim3(THREADS), (size_t)bytes,
                       PAIR, stream, w_map, x_map, y_map, j);
    return cuda_launched("linear_tiles");
}

template <typename T> int launch_tiles_typed(struct tiles j, cudaStream_t stream) {
    if (j.a.x_8bit) {
        if (!j.a.block_k) return CUDA_UNSUPPORTED; // cuBLASLt is faster
        j.cut.parts = 1;
        const int wide = (j.a.n + 255) / 256 * j.cut.tiles; // tiles of 256 rows of x
        return wide * 4 >= cuda_current_device().multiprocessors * 3
                   ? launch_tiles<T, e4m3, e4m3, 256>(j, stream)
                   : launch_tiles<T, e4m3, e4m3, 128>(j, stream);
    }
    if (j.a.w_dtype == DTYPE_I8) return launch_tiles<T, int8_t, T, 128>(j, stream);
    if (j.a.w_dtype == DTYPE_F8_E4M3) return launch_tiles<T, e4m3, T, 128>(j, stream);
    return j.cut.parts == 1 && j.a.n > 256 ? launch_tiles<T, T, T, 256>(j, stream)
                                           : launch_tiles<T, T, T, 128>(j, stream);
}

} // namespace

int cuda_linear_tiles(const struct cuda_linear *a, cudaStream_t stream) {
    // An activation takes as long inside as in a launch of its own.
    if (a->n < 1 || a->activate || !linear_parts_cover(a)) return CUDA_UNSUPPORTED;
    struct tiles j = {*a, linear_cut_of(a)};
    return a->dtype == DTYPE_BF16 ? launch_tiles_typed<__nv_bfloat16>(j, stream)
                                  : launch_tiles_typed<__half>(j, stream);
}
