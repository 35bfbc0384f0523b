// linear for up to 64 rows of x and weights of few bits (groups.h). sm_90a.
//
// As linear_stream.cu, and in its order of sums: a block takes 128 rows of W and a part of K, the parts of one tile are a
// cluster. One warp asks for chunks (128 columns, of 8 bits 64): codes and scales of W as they lie in memory, and x, each by a tensor map (a
// copy of bytes for each tile of 16 rows kept that warp busy for longer than the bytes took). Eight warps make the codes
// of 16 rows each numbers of T in registers, which are the products' A. Each group's sum is multiplied by its scale in
// F32; with offsets, a product with ones beside it gives the sum of x.
//
// Products are a warp's (mma) for few rows of x, where those of a warpgroup (wgmma) would be waited for more than
// computed, and a warpgroup's for more, or for all if `same`: then a row's bits do not depend on the number of rows.
#include "kernels/cuda/groups.cuh"
#include "kernels/cuda/linear_parts.cuh"
#include "kernels/cuda/pdl.cuh"

namespace {

constexpr int WARPS = LINEAR_WARPS, THREADS = (WARPS + 1) * 32;
constexpr int STAGES = 10, ROOM = 108 * 1024; // of a ring, and of a block
constexpr int CODES = WARPS * GROUPS_CHUNK_BYTES;

struct groups_stream {
    struct cuda_linear a;
    struct groups_matrix w;
    struct linear_cut cut;
    int32_t stages, stage_bytes;
    bool gated;
};

template <int KIND, int N> constexpr int blocks_of() { // on a multiprocessor, by registers
    return groups_with_offsets(KIND) && N == 64 ? 1 : 2;
}

// --- products ------------------------------------------------------------------------------------

#ifdef PARLEY_SM90A
// Of a chunk: x (tiles of 64 columns), and this warp's codes and scales.
struct chunk_place {
    uint32_t x, codes, scales;
};

template <typename T> __device__ __forceinline__ void set_ones(uint32_t (&a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) a[i] = pack2<T>(1.0f, 1.0f);
}

// Codes of 32 columns and the warp's 16 rows as two products' A.
template <typename T, int KIND>
__device__ __forceinline__ void operands_of(uint32_t (&a)[2][4], const uint4 &top,
                                            const uint4 &bottom, int word,
                                            const struct code_constants &constants) {
    uint32_t first[4], second[4];
    code_pairs_at<T, KIND>(first, top, word, constants, nullptr);
    code_pairs_at<T, KIND>(second, bottom, word, constants, nullptr);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        a[h][0] = first[2 * h], a[h][1] = second[2 * h];
        a[h][2] = first[2 * h + 1], a[h][3] = second[2 * h + 1];
    }
}

// Ends unit u of a chunk: its sums times its scale, and the sums of x times its offset, go to `sum`, without SCALE_FACTOR.
template <bool OFFSET, int COUNT, int X_COUNT>
__device__ __forceinline__ void end_unit(float (&sum)[COUNT], const float (&of_unit)[COUNT],
                                         const float (&of_x)[X_COUNT], uint32_t scales, int u) {
    const int g = (int)threadIdx.x % 32 / 4;
    float2 by[2]; // of rows g and g + 8
#pragma unroll
    for (int r = 0; r < 2; r++) {
        typename scale_words<OFFSET>::type v;
        load_raw(v, scales + (uint32_t)((u * 16 + g + 8 * r) * scale_bytes(OFFSET)));
        by[r] = plain(v);
    }
#pragma unroll
    for (int e = 0; e < COUNT; e++) {
        sum[e] = fmaf(by[e / 2 % 2].x, of_unit[e], sum[e]);
        if constexpr (OFFSET) sum[e] = fmaf(by[e / 2 % 2].y, of_x[e], sum[e]);
    }
}

// By a warp: adds a chunk to its sums. WHOLE: the chunk is one unit, or a part of one.
template <typename T, int KIND, int N, bool WHOLE>
__device__ __forceinline__ void add_by_warp(float (&sum)[N / 2], const struct chunk_place &c,
                                            int unit_shift,
                                            const struct code_constants &constants) {
    constexpr bool OFFSET = groups_with_offsets(KIND);
    constexpr int TILES = N / 8; // of x
    constexpr int WORDS = groups_words(KIND);
    const int lane = (int)threadIdx.x % 32, in_unit = WHOLE ? 2 * WORDS : 1 << unit_shift;
    const uint4 top = load_shared(c.codes), bottom = load_shared(c.codes + 512);
    // Two sums of each, so that a product need not wait for the one before.
    float of_unit[2][TILES][4] = {}, of_x[2][OFFSET ? TILES : 1][4] = {};
    uint32_t ones[4];
    set_ones<T>(ones);
#pragma unroll
    for (int word = 0; word < WORDS; word++) { // 32 columns
        uint32_t a[2][4], b[TILES][4];
#pragma unroll
        for (int i = 0; i < TILES; i++)
            load_matrices(b[i], c.x + (uint32_t)(word / 2 * N * SWIZZLED_ROW +
                                                 (i * 8 + lane % 8) * SWIZZLED_ROW +
                                                 ((word % 2 * 4 + lane / 8) ^ lane % 8) * 16));
        operands_of<T, KIND>(a, top, bottom, word, constants);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int step16 = 2 * word + h;
#pragma unroll
            for (int i = 0; i < TILES; i++) {
                mma(of_unit[h][i], a[h], b[i][2 * h], b[i][2 * h + 1], T());
                if constexpr (OFFSET) mma(of_x[h][i], ones, b[i][2 * h], b[i][2 * h + 1], T());
            }
            if (((step16 + 1) & (in_unit - 1)) != 0) continue;
            float both[N / 2], x[OFFSET ? N / 2 : 1];
#pragma unroll
            for (int e = 0; e < N / 2; e++) {
                float(&p)[4] = of_unit[0][e / 4], (&q)[4] = of_unit[1][e / 4];
                both[e] = p[e % 4] + q[e % 4], p[e % 4] = q[e % 4] = 0.0f;
                if constexpr (OFFSET) {
                    float(&y)[4] = of_x[0][e / 4], (&z)[4] = of_x[1][e / 4];
                    x[e] = y[e % 4] + z[e % 4], y[e % 4] = z[e % 4] = 0.0f;
                }
            }
            end_unit<OFFSET>(sum, both, x, c.scales, step16 >> unit_shift);
        }
    }
}

// By a warpgroup, likewise. WHOLE: codes of the next columns become numbers while products are under way.
template <typename T, int KIND, int N, bool WHOLE>
__device__ __forceinline__ void add_by_warpgroup(float (&sum)[N / 2], const struct chunk_place &c,
                                                 int unit_shift,
                                                 const struct code_constants &constants) {
    constexpr bool OFFSET = groups_with_offsets(KIND);
    constexpr int WORDS = groups_words(KIND);
    const int in_unit = WHOLE ? 2 * WORDS : 1 << unit_shift; // steps of 16 columns
    const uint4 top = load_shared(c.codes), bottom = load_shared(c.codes + 512);
    float of_unit[N / 2], of_x[OFFSET ? N / 2 : 4];
    uint32_t ones[4], a[2][2][4]; // of this word and of the one before
    set_ones<T>(ones);
#pragma unroll
    for (int word = 0; word < WORDS; word++) { // 32 columns
        const uint64_t b =
            tile_descriptor(c.x + (uint32_t)(word / 2 * N * SWIZZLED_ROW)) + word % 2 * 4;
        uint32_t(&now)[2][4] = a[word % 2];
        operands_of<T, KIND>(now, top, bottom, word, constants);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int step16 = 2 * word + h, keep = (step16 & (in_unit - 1)) != 0;
            const bool ends = ((step16 + 1) & (in_unit - 1)) == 0;
            wgmma_fence();
            wgmma<N>::rs(of_unit, now[h], b + 2 * h, keep, T());
            if constexpr (OFFSET) wgmma<N>::rs(of_x, ones, b + 2 * h, keep, T());
            wgmma_commit();
            if (WHOLE ? step16 < 2 * WORDS - 1 : !ends && h == 0) continue;
            wgmma_wait<0>();
            wgmma_fence_results(of_unit);
            if constexpr (OFFSET) wgmma_fence_results(of_x);
            if (ends) end_unit<OFFSET>(sum, of_unit, of_x, c.scales, step16 >> unit_shift);
        }
        if (WHOLE && word > 0) {
            if (word < WORDS - 1) wgmma_wait<2>();
            wgmma_fence_operand(a[(word + 1) % 2]);
        }
        if (!WHOLE || word == WORDS - 1) wgmma_fence_operand(now);
    }
}

template <typename T, int KIND, int N, bool BY_WARP, bool WHOLE>
__device__ __forceinline__ void add_chunk(float (&sum)[N / 2], const struct chunk_place &c,
                                          int unit_shift, const struct code_constants &constants) {
    if constexpr (BY_WARP)
        add_by_warp<T, KIND, N, WHOLE>(sum, c, unit_shift, constants);
    else
        add_by_warpgroup<T, KIND, N, WHOLE>(sum, c, unit_shift, constants);
}
#endif

// --- the kernel ----------------------------------------------------------------------------------

template <typename T, int KIND, int N, bool BY_WARP>
__global__ void __launch_bounds__(THREADS, blocks_of<KIND, N>())
    groups_stream_kernel(const __grid_constant__ CUtensorMap x_map,
                         const __grid_constant__ CUtensorMap codes_map,
                         const __grid_constant__ CUtensorMap scales_map,
                         const __grid_constant__ struct groups_stream j) {
#ifdef PARLEY_SM90A
    constexpr int X_TILE = N * SWIZZLED_ROW,
                  SCALE_ROW = 16 * scale_bytes(groups_with_offsets(KIND));
    constexpr int CHUNK = groups_chunk_of(KIND), X_TILES = CHUNK / 64, X_BYTES = X_TILES * X_TILE;
    extern __shared__ char shared[];
    const struct cuda_linear &a = j.a;
    const struct groups_matrix &w = j.w;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const uint32_t ring = (shared_address(shared) + 1023) & ~1023u;
    const uint32_t full = ring + (uint32_t)(j.stages * j.stage_bytes),
                   empty = full + (uint32_t)(8 * j.stages);
    const int parts = j.cut.parts, part = (int)blockIdx.x % parts, tile = (int)blockIdx.x / parts;
    const struct linear_part steps = linear_part_of(j.cut, part); // of 128 columns
    const int begin = steps.begin * (128 / CHUNK),
              n_steps = min(steps.end * (128 / CHUNK), w.chunks) - begin;
    // Tiles of 16 rows; gated: half of them of gates, and those that go with them.
    const int halves = j.gated ? 2 : 1, of_half = WARPS / halves;
    pdl_trigger();

    // By the fetching warp's first lane.
    auto request_w = [&](int step, int stage) {
        const uint32_t to = ring + (uint32_t)(stage * j.stage_bytes + X_BYTES),
                       bar = full + (uint32_t)(8 * stage);
        const int chunk = begin + step;
        mbarrier_expect(bar, CODES + WARPS * w.chunk_scale + X_BYTES);
        for (int half = 0; half < halves; half++) {
            const int from = tile * of_half + half * (a.rows / 32), place = half * of_half;
            tma_load(to + (uint32_t)(place * GROUPS_CHUNK_BYTES), &codes_map,
                     chunk * (GROUPS_CHUNK_BYTES / 4), from, bar, READ_ONCE);
            tma_load(to + (uint32_t)(CODES + place * w.chunk_scale), &scales_map,
                     (chunk * CHUNK >> w.group_shift) * (SCALE_ROW / 4), from, bar, READ_ONCE);
        }
    };
    auto request_x = [&](int step, int stage) {
        const uint32_t to = ring + (uint32_t)(stage * j.stage_bytes),
                       bar = full + (uint32_t)(8 * stage);
        for (int i = 0; i < X_TILES; i++)
            tma_load(to + (uint32_t)(i * X_TILE), &x_map, (begin + step) * CHUNK + i * 64, 0, bar,
                     READ_AGAIN);
    };
    const bool fetches = warp == WARPS && lane == 0;
    const int ahead = min(j.stages, n_steps);
    if (fetches) {
        for (int i = 0; i < j.stages; i++) {
            mbarrier_init(full + (uint32_t)(8 * i), 1);
            mbarrier_init(empty + (uint32_t)(8 * i), WARPS);
        }
        mbarrier_init_done();
        for (int i = 0; i < ahead; i++) request_w(i, i);
    }
    __syncthreads();
    pdl_wait();

    if (warp == WARPS) {
        for (int i = 0; i < ahead && fetches; i++) request_x(i, i);
        for (int i = ahead; i < n_steps && fetches; i++) {
            const int stage = i % j.stages;
            mbarrier_wait(empty + (uint32_t)(8 * stage), (i / j.stages - 1) & 1);
            request_w(i, stage);
            request_x(i, stage);
        }
    } else {
        const struct code_constants constants = code_constants_of<T, KIND>(w.zero);
        float sum[N / 2] = {};
        for (int i = 0, stage = 0, round = 0; i < n_steps; i++) {
            const uint32_t at = ring + (uint32_t)(stage * j.stage_bytes), in_w = at + X_BYTES;
            const struct chunk_place c = {at,
                                          in_w + (uint32_t)(warp * GROUPS_CHUNK_BYTES + lane * 16),
                                          in_w + (uint32_t)(CODES + warp * w.chunk_scale)};
            mbarrier_wait(full + (uint32_t)(8 * stage), round & 1);
            constexpr int whole = CHUNK == 128 ? 3 : 2;
            if (w.unit_shift == whole)
                add_chunk<T, KIND, N, BY_WARP, true>(sum, c, whole, constants);
            else
                add_chunk<T, KIND, N, BY_WARP, false>(sum, c, w.unit_shift, constants);
            __syncwarp();
            if (lane == 0) mbarrier_arrive(empty + (uint32_t)(8 * stage));
            if (++stage == j.stages) stage = 0, round++;
        }
        named_barrier(1, WARPS * 32); // all have read the ring
#pragma unroll
        for (int e = 0; e < N / 2; e++) sum[e] *= SCALE_FACTOR;
        put_sums(sum, ring, a.n, warp, lane);
    }
    __syncwarp();
    if (j.gated)
        finish_tile<T, true>(a, ring, tile, part, parts, LINEAR_TILE / 2, warp, lane);
    else
        finish_tile<T, false>(a, ring, tile, part, parts, LINEAR_TILE / 2, warp, lane);
#endif
}

template <typename T, int KIND, int N, bool BY_WARP>
int launch_stream(struct groups_stream j, cudaStream_t stream) {
    auto kernel = groups_stream_kernel<T, KIND, N, BY_WARP>;
    const struct cuda_linear &a = j.a;
    CUtensorMap x_map, codes_map, scales_map;
    const int32_t tiles = (a.rows + 15) / 16, of_half = j.gated ? WARPS / 2 : WARPS,
                  scale_words = 4 * scale_bytes(groups_with_offsets(KIND)); // of a group
    if (!tensor_map_of(&x_map, a.x, a.dtype, a.n, a.cols, a.cols, N) ||
        !tensor_map_words(&codes_map, j.w.codes, tiles, j.w.chunks * (GROUPS_CHUNK_BYTES / 4),
                          of_half, GROUPS_CHUNK_BYTES / 4) ||
        !tensor_map_words(&scales_map, j.w.scales, tiles, (int64_t)j.w.n_groups * scale_words,
                          of_half, j.w.chunk_scale / 4))
        return CUDA_UNSUPPORTED;
    const int bytes =
        groups_chunk_of(KIND) / 64 * N * SWIZZLED_ROW + CODES + WARPS * j.w.chunk_scale;
    j.stage_bytes = (bytes + 1023) / 1024 * 1024;
    j.stages = min(STAGES, (ROOM - 1024 - 16 * STAGES) / j.stage_bytes);
    const int ring = max(j.stages * j.stage_bytes, N * LINEAR_PITCH * 4);
    if (j.stages < 2) return CUDA_UNSUPPORTED;
    cuda_allow_shared((const void *)kernel, ROOM);
    pdl_launch_cluster(kernel, dim3((unsigned)(j.cut.tiles * j.cut.parts)), dim3(THREADS),
                       (size_t)(ring + 1024 + 16 * j.stages), (unsigned)j.cut.parts, stream, x_map,
                       codes_map, scales_map, j);
    return cuda_launched("groups_stream");
}

template <typename T, int KIND, int N>
int launch_few(const struct groups_stream &j, bool same, cudaStream_t stream) {
    return same ? launch_stream<T, KIND, N, false>(j, stream)
                : launch_stream<T, KIND, N, true>(j, stream);
}

template <typename T, int KIND>
int launch_rows(const struct groups_stream &j, bool same, cudaStream_t stream) {
    const int n = j.a.n;
    return n <= 8    ? launch_few<T, KIND, 8>(j, same, stream)
           : n <= 16 ? launch_few<T, KIND, 16>(j, same, stream)
           : n <= 32 ? launch_stream<T, KIND, 32, false>(j, stream)
                     : launch_stream<T, KIND, 64, false>(j, stream);
}

} // namespace

int cuda_groups_stream(const struct cuda_linear *a, bool same, cudaStream_t stream) {
    const bool half = a->dtype == DTYPE_BF16 || a->dtype == DTYPE_F16;
    const bool gated = linear_is_gated(a);
    if (a->n < 1 || a->n > GROUPS_STREAM_ROWS || !half || a->cols % 8 != 0 ||
        (uintptr_t)a->x % 16 != 0 || a->norm_weight || (gated && a->rows % 32 != 0) ||
        !hopper_here())
        return CUDA_UNSUPPORTED;
    struct groups_stream j = {*a, groups_matrix_of(a), linear_cut_of(a), 0, 0, gated};
    if (j.w.kind == GROUPS_BOOKS) return CUDA_UNSUPPORTED;
    j.a.scale = NULL; // groups' scales are the matrix's
    if (a->dtype == DTYPE_BF16)
        GROUPS_KINDS(j.w.kind, return (launch_rows<__nv_bfloat16, KIND>(j, same, stream)));
    GROUPS_KINDS(j.w.kind, return (launch_rows<__half, KIND>(j, same, stream)));
    return CUDA_UNSUPPORTED;
}
