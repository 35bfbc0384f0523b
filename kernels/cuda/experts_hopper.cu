// Experts of two rows and more on sm_90a: both products by those of a warpgroup (hopper.cuh). 16-bit weights.
//
//   prepare   rows of x in the pairs' order, so that an expert's are neighbours; a tensor map of each matrix
//   up        hidden values, in that order, activated
//   down      results, by pair
//
// A tile has up to 256 pairs of one expert and 128 rows of its matrix, 64 for each of two warpgroups: a gated `up` takes
// 64 gates and the 64 others that go with them, in turns of eight, so a gate and its other are the same thread's. An
// expert that has no more than 256 pairs has its matrix read once. The pairs of a tile are computed as the next multiple of 32.
//
// As in linear_tiles.cu a block stays and takes tiles in turn, a thread of a third warpgroup requests what they read, and
// blocks come in pairs (a cluster) that take the same pairs and neighbouring rows: each fetches half of x's tile for both.
#include "kernels/cuda/experts.cuh"
#include "kernels/cuda/hopper.cuh"

namespace {

constexpr int WARPS = 8, THREADS = (WARPS + 4) * 32, CLUSTER = 2;
constexpr int PAIRS = 256, BOX = 32;                 // pairs of a tile; of a copy of x
constexpr int ROWS = 64, HALF = ROWS * SWIZZLED_ROW; // of W, of a warpgroup in a stage; their bytes
constexpr int STEP = SWIZZLED_ROW / 2;               // columns of a stage
// Hidden values pass through shared memory in rounds of 32 pairs, so that neighbours are stored together: sums, or what is
// already activated.
constexpr int ROUND = 32, ROUNDS = PAIRS / ROUND, PITCH = ROWS + 4, HIDDEN_PITCH = ROWS / 2 + 8;
constexpr int STAGING = ROUND * PITCH * (int)sizeof(float);
constexpr int ROOM = 227 * 1024; // of shared memory

// What a tile's sums become. A gated SiLU without biases and limit has code of its own, which activates sums in registers.
enum kind { RESULTS, HIDDEN, HIDDEN_SILU };

struct wide {
    struct experts_product p;
    const CUtensorMap *maps; // of each expert's matrix, in device memory
    int32_t row_tiles;       // pairs of tiles along a matrix's rows
    int32_t pairs;           // of a tile at most: a multiple of BOX, PAIRS or fewer
    int32_t stages;          // how many the ring has
    __host__ __device__ int stage_bytes(void) const { return 2 * HALF + pairs * SWIZZLED_ROW; }
};
struct layout {
    size_t sorted, maps, end;
};
struct layout layout_of(int32_t pairs, int32_t cols, int32_t n_experts) {
    struct layout l = {};
    l.maps = ((size_t)pairs * (size_t)cols * 2 + 255) & ~(size_t)255;
    l.end = l.maps + 2 * (size_t)n_experts * sizeof(CUtensorMap);
    return l;
}
// Bytes of shared memory behind the ring.
int behind_ring(int n_experts) {
    return 2 * STAGING + (2 * PAIRS + 2 * (n_experts + 1)) * (int)sizeof(int);
}

// --- prepare -------------------------------------------------------------------------------------

constexpr int PREPARE_THREADS = 256, PREPARE_ROWS = PREPARE_THREADS / 32;

template <int MOST> struct addresses {
    const void *of[2][MOST]; // up's matrices, down's
};

// A warp copies a row of x. A block makes a tensor map: `maps` (2, n_experts) are copies of up_map and down_map, each with the
// address of its expert's matrix.
template <int MOST>
__global__ void __launch_bounds__(PREPARE_THREADS)
    prepare_kernel(const __grid_constant__ CUtensorMap up_map,
                   const __grid_constant__ CUtensorMap down_map,
                   const __grid_constant__ struct addresses<MOST> w, CUtensorMap *maps,
                   uint4 *sorted, const __grid_constant__ struct experts_product p) {
#ifdef PARLEY_SM90A
    __shared__ __align__(128) CUtensorMap map;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int kind = (int)blockIdx.x / p.n_experts, words = p.cols / 8;
    pdl_trigger();
    pdl_wait();
    if (warp == 0 && kind < 2) {
        const uint32_t at = shared_address(&map);
        ((uint32_t *)&map)[lane] = ((const uint32_t *)(kind ? &down_map : &up_map))[lane];
        __syncwarp();
        if (lane == 0)
            asm volatile(
                "tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(at),
                "l"(w.of[kind][(int)blockIdx.x % p.n_experts])
                : "memory");
        __syncwarp();
        asm volatile(
            "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync"
            ".aligned [%0], [%1], 128;" ::"l"(maps + blockIdx.x),
            "r"(at)
            : "memory");
    }
    const int place = (int)blockIdx.x * PREPARE_ROWS + warp;
    if (place >= p.pairs) return;
    const uint4 *from = (const uint4 *)p.x + row_of_pair(p, p.order[place]) * words;
#pragma unroll 4
    for (int i = lane; i < words; i += 32) sorted[(int64_t)place * words + i] = from[i];
#endif
}

// --- products ------------------------------------------------------------------------------------

#ifdef PARLEY_SM90A

// The pairs of tile q. tiles (n_experts + 1): how many tiles the experts before each expert have; first (n_experts + 1): how
// many pairs.
__device__ __forceinline__ struct expert_tile tile_of(const struct wide &j, const int *first,
                                                      const int *tiles, int q) {
    int low = 0, high = j.p.n_experts; // tiles[low] <= q < tiles[high]
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (tiles[middle] <= q)
            low = middle;
        else
            high = middle;
    }
    struct expert_tile t = {low, first[low] + (q - tiles[low]) * j.pairs, 0};
    t.n = min(j.pairs, first[low + 1] - t.first);
    return t;
}

// Fills both tables. All threads call it.
__device__ __forceinline__ void count_tiles(const struct wide &j, int *first, int *tiles) {
    const struct experts_product &p = j.p;
    for (int e = (int)threadIdx.x; e <= p.n_experts; e += THREADS) first[e] = p.first[e];
    __syncthreads();
    const int lane = (int)threadIdx.x;
    for (int e0 = 0, before = 0; lane < 32 && e0 <= p.n_experts; e0 += 32) {
        const int e = e0 + lane;
        const int mine = e < p.n_experts ? (first[e + 1] - first[e] + j.pairs - 1) / j.pairs : 0;
        int sum = mine;
        for (int step = 1; step < 32; step *= 2) {
            const int other = __shfl_up_sync(~0u, sum, step);
            if (lane >= step) sum += other;
        }
        if (e <= p.n_experts) tiles[e] = before + sum - mine;
        before += __shfl_sync(~0u, sum, 31);
    }
    __syncthreads();
}

// What becomes of a warpgroup's sums: 64 rows of W, from row 64 `half` of the matrix on. All threads of the warpgroup call it. A
// lane holds two of each 8 pairs, and of these pairs the rows g and g + 8 of its warp's 16.
template <typename T> struct epilogue {
    const struct experts_product &p;
    const struct expert_tile &t;
    int half;
    char *staging; // the warpgroup's
    const int *pairs;

    __device__ __forceinline__ static int warp(void) { return (int)threadIdx.x / 32 % 4; }
    __device__ __forceinline__ static int g(void) { return (int)threadIdx.x % 32 / 4; }
    __device__ __forceinline__ static int t2(void) { return (int)threadIdx.x % 4 * 2; }
    __device__ __forceinline__ static void meet(void) {
        named_barrier(1 + (int)threadIdx.x / 128, 128);
    }

    __device__ __forceinline__ void results(const float (&sum)[PAIRS / 2]) const {
        const int o = half * ROWS + warp() * 16 + g();
        const float *bias = p.bias ? p.bias + (int64_t)t.expert * p.rows : NULL;
        float add[2];
#pragma unroll
        for (int r = 0; r < 2; r++) add[r] = bias && o + 8 * r < p.rows ? bias[o + 8 * r] : 0;
        meet(); // the pairs
#pragma unroll
        for (int i = 0; i < PAIRS / 8; i++) {
            if (i * 8 >= t.n) break;
            const int2 pair = *(const int2 *)(pairs + i * 8 + t2());
#pragma unroll
            for (int v = 0; v < 4; v++) {
                const int of = v % 2 ? pair.y : pair.x;
                if (of >= 0 && o + v / 2 * 8 < p.rows)
                    p.result[(int64_t)of * p.rows + o + v / 2 * 8] = sum[i * 4 + v] + add[v / 2];
            }
        }
        meet(); // the next tile's pairs may be written
    }

    __device__ __forceinline__ void hidden_silu(const float (&sum)[PAIRS / 2]) const {
        const int thread = (int)threadIdx.x % 128, row = thread / 4, word = thread % 4;
        T *to = (T *)staging + t2() * HIDDEN_PITCH + warp() * 8 + g();
        const uint4 *from = (const uint4 *)((const T *)staging + row * HIDDEN_PITCH + word * 8);
        const int o = half * (ROWS / 2) + word * 8;
#pragma unroll
        for (int r = 0; r < ROUNDS; r++) {
            if (r * ROUND >= t.n) break;
#pragma unroll
            for (int i = 0; i < 8; i++) { // 8 pairs, pair
                const float gate = sum[r * 16 + i / 2 * 4 + i % 2],
                            other = sum[r * 16 + i / 2 * 4 + i % 2 + 2];
                to[(i / 2 * 8 + i % 2) * HIDDEN_PITCH] =
                    from_float<T>(__fdividef(gate, 1.0f + __expf(-gate)) * other);
            }
            meet();
            if (r * ROUND + row < t.n && o < p.width)
                *(uint4 *)((T *)p.hidden + (int64_t)(t.first + r * ROUND + row) * p.width + o) =
                    *from;
            meet();
        }
    }

    // Sums (ROUND pairs) of a round of n pairs from first_pair on, in shared memory.
    __device__ __forceinline__ void hidden_round(const float *sums, int first_pair, int n) const {
        const int each = p.gated ? ROWS / 2 : ROWS; // hidden values of a pair
        const float *bias = p.bias ? p.bias + (int64_t)t.expert * p.rows : NULL;
#pragma unroll 1
        for (int i = (int)threadIdx.x % 128; i < n * each; i += 128) {
            const int pair = i / each, in_half = i % each, o = half * each + in_half;
            if (o >= p.width) continue;
            const float *from = sums + pair * PITCH;
            float v = from[p.gated ? in_half / 8 * 16 + in_half % 8 : in_half];
            if (bias) v += bias[o];
            if (p.gated) {
                float other = from[in_half / 8 * 16 + in_half % 8 + 8];
                if (bias) other += bias[o + p.width];
                v = gated_value(p, v, other);
            } else {
                v = activated(p.act, v);
            }
            ((T *)p.hidden)[(int64_t)(t.first + first_pair + pair) * p.width + o] =
                from_float<T>(v);
        }
    }
    __device__ __forceinline__ void hidden(const float (&sum)[PAIRS / 2]) const {
        float *to = (float *)staging + t2() * PITCH + warp() * 16 + g();
#pragma unroll 1
        for (int r = 0; r * ROUND < t.n; r++) { // the activation's code is there once
#pragma unroll
            for (int i = 0; i < ROUNDS; i++) {
                if (i != r) continue;
#pragma unroll
                for (int j = 0; j < 16; j++) // 8 pairs, row, pair
                    to[(j / 4 * 8 + j % 2) * PITCH + j / 2 % 2 * 8] = sum[i * 16 + j];
            }
            meet();
            hidden_round((const float *)staging, r * ROUND, min(ROUND, t.n - r * ROUND));
            meet();
        }
    }
};

// A walk through the stages of the ring: of a warpgroup's threads, or of the thread that requests them.
struct ring {
    uint32_t first, full, empty; // shared
    int bytes, stages;           // of a stage; how many
    int stage = 0, round = 0;
    __device__ __forceinline__ uint32_t here() const { return first + (uint32_t)(stage * bytes); }
    __device__ __forceinline__ void next() {
        if (++stage == stages) stage = 0, round++;
    }
};

// Adds a stage's products with N pairs to the first N / 2 sums.
template <typename T, int N>
__device__ __forceinline__ void multiply_stage(float (&sum)[PAIRS / 2], uint32_t w, uint32_t x,
                                               bool keep) {
    const uint64_t a = tile_descriptor(w), b = tile_descriptor(x);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; i++)
        wgmma<N>::ss(*(float(*)[N / 2]) sum, a + 2 * i, b + 2 * i, keep || i > 0, T());
    wgmma_commit();
}

// A warpgroup's part of a tile.
template <typename T>
__device__ __forceinline__ void multiply_tile(float (&sum)[PAIRS / 2],
                                              const struct experts_product &p, int n,
                                              struct ring &ring) {
    const int group = (int)threadIdx.x / 128, lane = (int)threadIdx.x % 32;
    const int steps = (p.cols + STEP - 1) / STEP, n32 = (n + 31) / 32;
    auto release = [&](int stage) { // each warp tells both blocks
        if (lane < CLUSTER)
            cluster_arrive(cluster_address(ring.empty + (uint32_t)(8 * stage), lane));
    };
    int before = -1;
    for (int step = 0; step < steps; step++, ring.next()) {
        mbarrier_wait(ring.full + (uint32_t)(8 * ring.stage), ring.round & 1);
        const uint32_t w = ring.here() + (uint32_t)(group * HALF), x = ring.here() + 2 * HALF;
        switch (n32) {
#define CASE(i)                                                                                    \
    case i:                                                                                        \
        multiply_stage<T, 32 * i>(sum, w, x, step > 0);                                            \
        break
            CASE(1);
            CASE(2);
            CASE(3);
            CASE(4);
            CASE(5);
            CASE(6);
            CASE(7);
            CASE(8);
#undef CASE
        }
        wgmma_wait<1>();
        if (before >= 0) release(before);
        before = ring.stage;
    }
    wgmma_wait<0>();
    wgmma_fence_results(sum);
    release(before);
}

#endif

template <typename T, enum kind KIND>
__global__ void __launch_bounds__(THREADS, 1)
    wide_kernel(const __grid_constant__ CUtensorMap x_map, const __grid_constant__ struct wide j) {
#ifdef PARLEY_SM90A
    extern __shared__ __align__(1024) char shared[];
    const struct experts_product &p = j.p;
    const int warp = (int)threadIdx.x / 32, rank = (int)blockIdx.x % CLUSTER;
    const int stage_bytes = j.stage_bytes();
    char *behind = shared + j.stages * (stage_bytes + 16);
    struct ring ring = {shared_address(shared), 0, 0, stage_bytes, j.stages};
    ring.full = ring.first + (uint32_t)(j.stages * stage_bytes);
    ring.empty = ring.full + (uint32_t)(8 * j.stages);
    int *pairs = (int *)(behind + 2 * STAGING), *first = pairs + 2 * PAIRS,
        *tiles = first + p.n_experts + 1;
    pdl_trigger();
    if (threadIdx.x == 0) {
        for (int i = 0; i < j.stages; i++) {
            mbarrier_init(ring.full + (uint32_t)(8 * i), 1);
            mbarrier_init(ring.empty + (uint32_t)(8 * i), CLUSTER * WARPS);
        }
        mbarrier_init_done();
    }
    __syncthreads();
    cluster_sync();
    pdl_wait();
    count_tiles(j, first, tiles);
    const int all = tiles[p.n_experts] * j.row_tiles;
    int at = (int)blockIdx.x / CLUSTER;
    const int clusters = (int)gridDim.x / CLUSTER;
    auto tile = [&] { return tile_of(j, first, tiles, at / j.row_tiles); };
    auto row_tile = [&] { return at % j.row_tiles * CLUSTER + rank; };
    if (warp >= WARPS) {
        setmaxnreg_dec<40>();
        for (; threadIdx.x == WARPS * 32 && at < all; at += clusters) {
            const struct expert_tile t = tile();
            const CUtensorMap *w_map = j.maps + t.expert;
            asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(w_map)
                         : "memory");
            const int boxes = (t.n + BOX - 1) / BOX;
            const int each = p.gated ? 4 : 8,
                      eight = row_tile() * 2 * each; // of a warpgroup; the first
            for (int k = 0; k < p.cols; k += STEP, ring.next()) {
                const uint32_t bar = ring.full + (uint32_t)(8 * ring.stage), to = ring.here();
                if (ring.round > 0)
                    mbarrier_wait(ring.empty + (uint32_t)(8 * ring.stage), (ring.round - 1) & 1);
                mbarrier_expect(bar, 2 * HALF + boxes * BOX * SWIZZLED_ROW);
                tma_load_eights(to, w_map, k, eight, bar, READ_PLAIN);
                tma_load_eights(to + HALF, w_map, k, eight + each, bar, READ_PLAIN);
                for (int i = rank; i < boxes; i += CLUSTER)
                    tma_load_multicast(to + (uint32_t)(2 * HALF + i * BOX * SWIZZLED_ROW), &x_map,
                                       k, t.first + i * BOX, bar, (1 << CLUSTER) - 1, READ_PLAIN);
            }
        }
        __syncwarp();
    } else {
        setmaxnreg_inc<232>();
        char *staging = behind + warp / 4 * STAGING;
        pairs += warp / 4 * PAIRS;
        for (; at < all; at += clusters) {
            const struct expert_tile t = tile();
            int pair[2] = {-1, -1};
            for (int i = 0; KIND == RESULTS && i < 2; i++) {
                const int of = (int)threadIdx.x % 128 + 128 * i;
                if (of < t.n) pair[i] = p.order[t.first + of];
            }
            float sum[PAIRS / 2];
            multiply_tile<T>(sum, p, t.n, ring);
            const struct epilogue<T> end = { p, t, row_tile() * 2 + warp / 4, staging, pairs };
            if constexpr (KIND == RESULTS) {
                for (int i = 0; i < 2; i++) pairs[(int)threadIdx.x % 128 + 128 * i] = pair[i];
                end.results(sum);
            } else if constexpr (KIND == HIDDEN_SILU) {
                end.hidden_silu(sum);
            } else {
                end.hidden(sum);
            }
        }
    }
    cluster_sync(); // no block exits while the other's copies and arrivals may still come
#endif
}

// --- launches ------------------------------------------------------------------------------------

template <typename T, enum kind KIND>
int launch_wide(const struct experts_product *p, const void *x, const CUtensorMap *maps,
                cudaStream_t stream) {
    auto kernel = wide_kernel<T, KIND>;
    const int rows = p->gated ? p->width : p->rows, each = (p->gated ? 64 : 128) * CLUSTER;
    struct wide j = {*p, maps, (rows + each - 1) / each};
    // An expert has no more pairs than there are rows, so few rows leave room for more stages.
    const int boxes = (p->pairs / p->n_chosen + BOX - 1) / BOX, behind = behind_ring(p->n_experts);
    j.pairs = boxes * BOX < PAIRS ? boxes * BOX : PAIRS;
    j.stages = (ROOM - behind) / (j.stage_bytes() + 16);
    const int bytes = j.stages * (j.stage_bytes() + 16) + behind;
    CUtensorMap x_map;
    if (!tensor_map_of(&x_map, x, p->dtype, p->pairs, p->cols, p->cols, BOX))
        return CUDA_UNSUPPORTED;
    cuda_allow_shared((const void *)kernel, (size_t)bytes);
    const int tiles = (p->pairs < p->n_experts ? p->pairs : p->n_experts) + p->pairs / j.pairs;
    int clusters = clusters_at_once((const void *)kernel, THREADS, bytes, CLUSTER);
    if (clusters > tiles * j.row_tiles) clusters = tiles * j.row_tiles;
    pdl_launch_cluster(kernel, dim3((unsigned)(clusters * CLUSTER)), dim3(THREADS), (size_t)bytes,
                       CLUSTER, stream, x_map, j);
    return cuda_launched("experts_hopper");
}

template <typename T>
int launch_both(const struct experts_product *up, const struct experts_product *down,
                const void *sorted, const CUtensorMap *maps, cudaStream_t stream) {
    const bool silu = up->gated && up->act == ACT_SILU && !up->bias && up->limit <= 0.0f;
    const int rc = silu ? launch_wide<T, HIDDEN_SILU>(up, sorted, maps, stream)
                        : launch_wide<T, HIDDEN>(up, sorted, maps, stream);
    return rc != 0 ? rc : launch_wide<T, RESULTS>(down, down->x, maps + up->n_experts, stream);
}

template <int MOST>
int prepare(const struct experts_product *up, const struct experts_product *down,
            const struct weight *up_w, const struct weight *down_w, CUtensorMap *maps, void *sorted,
            cudaStream_t stream) {
    struct addresses<MOST> w;
    for (int32_t e = 0; e < up->n_experts; e++)
        w.of[0][e] = up_w[e].data, w.of[1][e] = down_w[e].data;
    CUtensorMap up_map, down_map;
    if (!tensor_map_eights(&up_map, w.of[0][0], up->dtype, up->rows, up->cols, up->ld,
                           up->gated ? 2 : 1) ||
        !tensor_map_eights(&down_map, w.of[1][0], down->dtype, down->rows, down->cols, down->ld, 1))
        return CUDA_UNSUPPORTED;
    const int for_rows = (up->pairs + PREPARE_ROWS - 1) / PREPARE_ROWS,
              for_maps = 2 * up->n_experts;
    pdl_launch(prepare_kernel<MOST>, dim3((unsigned)(for_rows > for_maps ? for_rows : for_maps)),
               dim3(PREPARE_THREADS), 0, stream, up_map, down_map, w, maps, (uint4 *)sorted, *up);
    return cuda_launched("experts_prepare");
}

} // namespace

size_t experts_hopper_bytes(int32_t pairs, const struct experts_args *args, enum dtype dtype) {
    const bool covered = args->up->dtype == dtype && args->down->dtype == dtype && hopper_here();
    return covered ? layout_of(pairs, args->up->cols, args->n_experts).end : 0;
}

bool experts_hopper_covers(const struct experts_product *up, const struct experts_product *down) {
    return experts_covered(up) && experts_covered(down) && down->rows % 8 == 0 &&
           up->n_experts <= 1024 && hopper_here();
}

int experts_hopper(const struct experts_product *up, const struct experts_product *down,
                   const struct weight *up_w, const struct weight *down_w, void *work,
                   cudaStream_t stream) {
    const struct layout l = layout_of(up->pairs, up->cols, up->n_experts);
    CUtensorMap *maps = (CUtensorMap *)((char *)work + l.maps);
    int rc = CUDA_UNSUPPORTED;
    EXPERTS_SIZED(up->n_experts, rc = prepare<MOST>(up, down, up_w, down_w, maps, work, stream));
    if (rc != 0) return rc;
    return up->dtype == DTYPE_BF16 ? launch_both<__nv_bfloat16>(up, down, work, maps, stream)
                                   : launch_both<__half>(up, down, work, maps, stream);
}
