// linear for up to 64 rows of x and weights of few bits (groups.h). sm_90a.
//
// As linear_stream.cu, and in its order of sums: a block takes 128 rows of W and a part of K, the parts of one tile are a
// cluster. One warp asks for chunks of 128 columns, codes and scales of W as they lie in memory and x by a tensor map;
// two warpgroups make the codes numbers of T in registers, which are the products' A. Each group's sum is multiplied by
// its scale in F32; with offsets, a product with ones beside it gives the sum of x.
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
};

template <int KIND, int N> constexpr int blocks_of() { // on a multiprocessor, by registers
    return KIND == GROUPS_OFFSETS && N == 64 ? 1 : 2;
}

template <typename T, int KIND, int N>
__global__ void __launch_bounds__(THREADS, blocks_of<KIND, N>())
    groups_stream_kernel(const __grid_constant__ CUtensorMap x_map,
                         const __grid_constant__ struct groups_stream j) {
#ifdef PARLEY_SM90A
    constexpr bool OFFSET = KIND == GROUPS_OFFSETS;
    constexpr int X_TILE = N * SWIZZLED_ROW, SCALE_ROW = OFFSET ? 128 : 64;
    extern __shared__ char shared[];
    const struct cuda_linear &a = j.a;
    const struct groups_matrix &w = j.w;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4;
    const uint32_t ring = (shared_address(shared) + 1023) & ~1023u;
    const uint32_t full = ring + (uint32_t)(j.stages * j.stage_bytes),
                   empty = full + (uint32_t)(8 * j.stages);
    const int parts = j.cut.parts, part = (int)blockIdx.x % parts, tile = (int)blockIdx.x / parts;
    const struct linear_part steps = linear_part_of(j.cut, part);
    const int n_steps = steps.end - steps.begin;
    const int n_tiles = min(WARPS, (a.rows + 15) / 16 - tile * WARPS); // of 16 rows
    pdl_trigger();

    // By the fetching warp: a lane for each tile of 16 rows.
    auto request_w = [&](int step, int stage) {
        const uint32_t to = ring + (uint32_t)(stage * j.stage_bytes + 2 * X_TILE),
                       bar = full + (uint32_t)(8 * stage);
        const int64_t of = tile * WARPS + lane, chunk = steps.begin + step;
        if (lane == 0)
            mbarrier_expect(bar, n_tiles * (GROUPS_CHUNK_BYTES + w.chunk_scale) + 2 * X_TILE);
        __syncwarp();
        if (lane >= n_tiles) return;
        tma_load_bytes(to + (uint32_t)(lane * GROUPS_CHUNK_BYTES),
                       (const char *)w.codes + (of * w.chunks + chunk) * GROUPS_CHUNK_BYTES,
                       GROUPS_CHUNK_BYTES, bar, READ_ONCE);
        tma_load_bytes(to + (uint32_t)(CODES + lane * w.chunk_scale),
                       (const char *)w.scales +
                           (of * w.n_groups + (chunk * GROUPS_CHUNK >> w.group_shift)) * SCALE_ROW,
                       w.chunk_scale, bar, READ_ONCE);
    };
    auto request_x = [&](int step, int stage) {
        const uint32_t to = ring + (uint32_t)(stage * j.stage_bytes),
                       bar = full + (uint32_t)(8 * stage);
        for (int i = 0; i < 2 && lane == 0; i++)
            tma_load(to + (uint32_t)(i * X_TILE), &x_map,
                     (steps.begin + step) * GROUPS_CHUNK + i * 64, 0, bar, READ_AGAIN);
    };
    const bool fetches = warp == WARPS;
    const int ahead = min(j.stages, n_steps);
    if (fetches) {
        if (lane == 0) {
            for (int i = 0; i < j.stages; i++) {
                mbarrier_init(full + (uint32_t)(8 * i), 1);
                mbarrier_init(empty + (uint32_t)(8 * i), WARPS);
            }
            mbarrier_init_done();
        }
        __syncwarp();
        for (int i = 0; i < ahead; i++) request_w(i, i);
    }
    __syncthreads();
    pdl_wait();

    if (fetches) {
        for (int i = 0; i < ahead; i++) request_x(i, i);
        for (int i = ahead; i < n_steps; i++) {
            const int stage = i % j.stages;
            mbarrier_wait(empty + (uint32_t)(8 * stage), (i / j.stages - 1) & 1);
            request_w(i, stage);
            request_x(i, stage);
        }
    } else {
        const uint32_t constant = code_constant<T, KIND>(w.zero);
        const uint32_t one = pack2<T>(1.0f, 1.0f), ones[4] = {one, one, one, one};
        const int in_unit = 1 << w.unit_shift; // steps of 16 columns
        float sum[N / 2] = {}, of_group[N / 2], of_x[OFFSET ? N / 2 : 4];
        for (int i = 0, stage = 0, round = 0; i < n_steps; i++) {
            const uint32_t at = ring + (uint32_t)(stage * j.stage_bytes),
                           codes =
                               at + 2 * X_TILE + (uint32_t)(warp * GROUPS_CHUNK_BYTES + lane * 16),
                           scales = at + 2 * X_TILE + CODES + (uint32_t)(warp * w.chunk_scale);
            mbarrier_wait(full + (uint32_t)(8 * stage), round & 1);
            const uint4 top = load_shared(codes), bottom = load_shared(codes + 512);
#pragma unroll
            for (int word = 0; word < 4; word++) { // 32 columns
                const uint64_t b =
                    tile_descriptor(at + (uint32_t)(word / 2 * X_TILE)) + word % 2 * 4;
                uint32_t first[4], second[4];
                code_pairs<T, KIND>(first, word_at(top, word), constant, nullptr);
                code_pairs<T, KIND>(second, word_at(bottom, word), constant, nullptr);
                const uint32_t operand[2][4] = {{first[0], second[0], first[1], second[1]},
                                                {first[2], second[2], first[3], second[3]}};
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int step16 = 2 * word + h, keep = (step16 & (in_unit - 1)) != 0;
                    const bool ends = ((step16 + 1) & (in_unit - 1)) == 0;
                    wgmma_fence();
                    wgmma<N>::rs(of_group, operand[h], b + 2 * h, keep, T());
                    if constexpr (OFFSET) wgmma<N>::rs(of_x, ones, b + 2 * h, keep, T());
                    wgmma_commit();
                    if (!ends && h == 0) continue;
                    wgmma_wait<0>();
                    wgmma_fence_results(of_group);
                    if constexpr (OFFSET) wgmma_fence_results(of_x);
                    if (!ends) continue;
                    const int u = step16 >> w.unit_shift;
                    float2 by[2]; // scale and offset of rows g and g + 8
#pragma unroll
                    for (int r = 0; r < 2; r++) {
                        const uint32_t from =
                            scales + (uint32_t)(u * SCALE_ROW + (g + 8 * r) * (SCALE_ROW / 16));
                        by[r] = OFFSET ? load_shared_pair(from)
                                       : make_float2(load_shared_float(from), 0.0f);
                    }
#pragma unroll
                    for (int e = 0; e < N / 2; e++) {
                        sum[e] = fmaf(by[e / 2 % 2].x, of_group[e], sum[e]);
                        if constexpr (OFFSET) sum[e] = fmaf(by[e / 2 % 2].y, of_x[e], sum[e]);
                    }
                }
                wgmma_fence_operand(operand);
            }
            __syncwarp();
            if (lane == 0) mbarrier_arrive(empty + (uint32_t)(8 * stage));
            if (++stage == j.stages) stage = 0, round++;
        }
        named_barrier(1, WARPS * 32); // all have read the ring
        put_sums(sum, ring, a.n, warp, lane);
    }
    __syncwarp();
    finish_tile<T, false>(a, ring, tile, part, parts, LINEAR_TILE / 2, warp, lane);
#endif
}

template <typename T, int KIND, int N>
int launch_stream(struct groups_stream j, cudaStream_t stream) {
    auto kernel = groups_stream_kernel<T, KIND, N>;
    const struct cuda_linear &a = j.a;
    CUtensorMap x_map;
    if (!tensor_map_of(&x_map, a.x, a.dtype, a.n, a.cols, a.cols, N)) return CUDA_UNSUPPORTED;
    const int bytes = 2 * N * SWIZZLED_ROW + CODES + WARPS * j.w.chunk_scale;
    j.stage_bytes = (bytes + 1023) / 1024 * 1024;
    j.stages = min(STAGES, (ROOM - 1024 - 16 * STAGES) / j.stage_bytes);
    const int ring = max(j.stages * j.stage_bytes, N * LINEAR_PITCH * 4);
    if (j.stages < 2) return CUDA_UNSUPPORTED;
    cuda_allow_shared((const void *)kernel, ROOM);
    pdl_launch_cluster(kernel, dim3((unsigned)(j.cut.tiles * j.cut.parts)), dim3(THREADS),
                       (size_t)(ring + 1024 + 16 * j.stages), (unsigned)j.cut.parts, stream, x_map,
                       j);
    return cuda_launched("groups_stream");
}

template <typename T, int KIND>
int launch_rows(const struct groups_stream &j, cudaStream_t stream) {
    const int n = j.a.n;
    return n <= 8    ? launch_stream<T, KIND, 8>(j, stream)
           : n <= 16 ? launch_stream<T, KIND, 16>(j, stream)
           : n <= 32 ? launch_stream<T, KIND, 32>(j, stream)
                     : launch_stream<T, KIND, 64>(j, stream);
}

} // namespace

int cuda_groups_stream(const struct cuda_linear *a, cudaStream_t stream) {
    const bool half = a->dtype == DTYPE_BF16 || a->dtype == DTYPE_F16;
    if (a->n < 1 || a->n > GROUPS_STREAM_ROWS || !half || a->cols % 8 != 0 ||
        (uintptr_t)a->x % 16 != 0 || a->norm_weight || a->activate || !hopper_here())
        return CUDA_UNSUPPORTED;
    struct groups_stream j = {*a, groups_matrix_of(a), linear_cut_of(a), 0, 0};
    if (j.w.kind == GROUPS_BOOKS) return CUDA_UNSUPPORTED;
    j.a.scale = NULL; // groups' scales are the matrix's
    if (a->dtype == DTYPE_BF16)
        GROUPS_KINDS(j.w.kind, return (launch_rows<__nv_bfloat16, KIND>(j, stream)));
    GROUPS_KINDS(j.w.kind, return (launch_rows<__half, KIND>(j, stream)));
    return CUDA_UNSUPPORTED;
}
