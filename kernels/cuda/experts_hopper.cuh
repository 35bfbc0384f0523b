// Experts of two rows and more on sm_90a: both products by those of a warpgroup (hopper.cuh), whatever the format of the
// weights (experts_hopper.cu: 16 bits; experts_hopper_groups.cu: few).
//
//   prepare   rows of x in the pairs' order, so that an expert's are neighbours; tensor maps of each matrix
//   up        hidden values, in that order, activated
//   down      results, by pair
//
// A tile has up to W::PAIRS pairs of one expert and 64 rows of its matrix for each of W::WARPGROUPS warpgroups: half of the rows
// of a gated `up` are gates and half the others that go with them, in turns of eight, so a gate and its other are the same
// thread's. An expert that has no more pairs than a tile has its matrix read once. The pairs of a tile are computed as the next
// multiple of 32, or as W::LEAST.
//
// As in linear_tiles.cu a block stays and takes tiles in turn, a thread of one more warpgroup requests what they read, and
// blocks come in pairs (a cluster) that take the same pairs and neighbouring rows: each fetches half of x's tile for both.
//
// W, how weights come and are multiplied:
//   W::type, W::STEP             T; columns of a stage, 64 or 128
//   W::WARPGROUPS                that multiply: 2, or 4, which hide more latency and have registers for 64 pairs
//   W::PAIRS, W::LEAST           pairs of a tile: how many at most; how many are computed at least, 16 or 32
//   W::FACTOR                    what sums are multiplied by in the end
//   W::MAPS                      tensor maps of a matrix
//   W::matrix                    what else the kernel must know of a matrix
//   W::bytes(m)                  how many bytes the weights of a stage take
//   W::request(..)               asks for a stage's weights; called by the requesting thread
//   W::lane(m, gated)            what a thread keeps for all stages of a tile
//   W::lane.multiply<N>(..)      adds a stage's products with N pairs to the sums; called by a warpgroup. When it returns, the
//                                products of the stage before are done, so that its buffers may be filled again
//   W::lane.finish()             behind the last stage's products
#pragma once
#include "kernels/cuda/experts.cuh"
#include "kernels/cuda/hopper.cuh"

namespace {

constexpr int CLUSTER = 2;
constexpr int BOX = 32;  // pairs of a copy of x
constexpr int ROWS = 64; // of W, of a warpgroup
// Hidden values pass through shared memory in rounds of 32 pairs, so that neighbours are stored together: sums, or what is
// already activated.
constexpr int ROUND = 32, PITCH = ROWS + 4, HIDDEN_PITCH = ROWS / 2 + 8;
constexpr int STAGING = ROUND * PITCH * (int)sizeof(float);
constexpr int ROOM = 227 * 1024; // of shared memory

// What a tile's sums become. A gate times its sigmoid (SiLU, quick GELU) has code of its own, which activates sums in registers.
enum kind { RESULTS, HIDDEN, HIDDEN_SIGMOID };

template <typename W> struct wide {
    struct experts_product p;
    typename W::matrix w;
    const CUtensorMap *maps; // (n_experts, W::MAPS), in device memory
    int32_t row_tiles;       // pairs of tiles along a matrix's rows
    int32_t pairs;           // of a tile at most: a multiple of BOX, W::PAIRS or fewer
    int32_t stages;          // how many the ring has
    // Warps that multiply; registers of their threads, and of those of the warpgroup that requests. A block has what the
    // launch gave its threads, multiples of 8 of a multiprocessor's 65,536.
    static constexpr int WARPS = W::WARPGROUPS * 4, THREADS = (WARPS + 4) * 32;
    static constexpr int REGISTERS = W::WARPGROUPS == 2 ? 232 : 112,
                         REQUESTING = W::WARPGROUPS == 2 ? 40 : 32;
    static_assert(W::WARPGROUPS * REGISTERS + REQUESTING <=
                      65536 / THREADS / 8 * 8 * (W::WARPGROUPS + 1),
                  "setmaxnreg would wait for ever");
    __host__ __device__ int w_bytes(void) const { return (W::bytes(w) + 1023) / 1024 * 1024; }
    __host__ __device__ int stage_bytes(void) const {
        return w_bytes() + W::STEP / 64 * pairs * SWIZZLED_ROW;
    }
};

struct wide_work { // where things lie in the work space
    size_t maps, end;
};
inline struct wide_work wide_work_of(int32_t pairs, int32_t cols, int32_t n_maps) {
    struct wide_work l = {};
    l.maps = ((size_t)pairs * (size_t)cols * 2 + 255) & ~(size_t)255;
    l.end = l.maps + (size_t)n_maps * sizeof(CUtensorMap);
    return l;
}

// --- prepare -------------------------------------------------------------------------------------

constexpr int PREPARE_THREADS = 256, PREPARE_ROWS = PREPARE_THREADS / 32;

// Maps of an expert's matrices, alike for all but for the address.
template <int MAPS, int MOST> struct expert_maps {
    CUtensorMap map[MAPS];
    const void *at[MAPS][MOST];
};

// A warp copies a row of x to `sorted`; a block makes a tensor map, a copy of its kind's with the address of its expert's
// matrix. maps: (n_experts, EACH) of `up`, then of `down`; map m of both
// matrices' is w.map[m].
template <int MAPS, int MOST>
__global__ void __launch_bounds__(PREPARE_THREADS)
    prepare_kernel(const __grid_constant__ struct expert_maps<MAPS, MOST> w, CUtensorMap *maps,
                   uint4 *sorted, const __grid_constant__ struct experts_product p) {
#ifdef PARLEY_SM90A
    constexpr int EACH = MAPS / 2;
    __shared__ __align__(128) CUtensorMap map;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int of = (int)blockIdx.x / p.n_experts, expert = (int)blockIdx.x % p.n_experts;
    const int words = p.cols / 8;
    pdl_trigger();
    pdl_wait();
    if (warp == 0 && of < MAPS) {
        const uint32_t at = shared_address(&map);
        ((uint32_t *)&map)[lane] = ((const uint32_t *)&w.map[of])[lane];
        __syncwarp();
        if (lane == 0)
            asm volatile(
                "tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(at),
                "l"(w.at[of][expert])
                : "memory");
        __syncwarp();
        CUtensorMap *to = maps + (of / EACH * p.n_experts + expert) * EACH + of % EACH;
        asm volatile(
            "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync"
            ".aligned [%0], [%1], 128;" ::"l"(to),
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

template <int MAPS, int MOST>
int launch_prepare(const struct expert_maps<MAPS, MOST> &w, CUtensorMap *maps, void *sorted,
                   const struct experts_product *up, cudaStream_t stream) {
    const int for_rows = (up->pairs + PREPARE_ROWS - 1) / PREPARE_ROWS,
              for_maps = MAPS * up->n_experts;
    pdl_launch(prepare_kernel<MAPS, MOST>,
               dim3((unsigned)(for_rows > for_maps ? for_rows : for_maps)), dim3(PREPARE_THREADS),
               0, stream, w, maps, (uint4 *)sorted, *up);
    return cuda_launched("experts_prepare");
}

// --- products ------------------------------------------------------------------------------------

#ifdef PARLEY_SM90A

// The pairs of tile q. tiles (n_experts + 1): how many tiles the experts before each expert have; first (n_experts + 1): how
// many pairs.
__device__ __forceinline__ struct expert_tile tile_of(int n_experts, int most, const int *first,
                                                      const int *tiles, int q) {
    int low = 0, high = n_experts; // tiles[low] <= q < tiles[high]
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (tiles[middle] <= q)
            low = middle;
        else
            high = middle;
    }
    struct expert_tile t = {low, first[low] + (q - tiles[low]) * most, 0};
    t.n = min(most, first[low + 1] - t.first);
    return t;
}

// Fills both tables. All threads call it. most: pairs of a tile.
__device__ __forceinline__ void count_tiles(const struct experts_product &p, int most, int *first,
                                            int *tiles) {
    for (int e = (int)threadIdx.x; e <= p.n_experts; e += (int)blockDim.x) first[e] = p.first[e];
    __syncthreads();
    const int lane = (int)threadIdx.x;
    for (int e0 = 0, before = 0; lane < 32 && e0 <= p.n_experts; e0 += 32) {
        const int e = e0 + lane;
        const int mine = e < p.n_experts ? (first[e + 1] - first[e] + most - 1) / most : 0;
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

// What becomes of a warpgroup's sums: 64 rows of W, number `part` of the matrix. All threads of the warpgroup call it. A lane
// holds two of each 8 pairs, and of these pairs the rows g and g + 8 of its warp's 16.
template <typename W> struct epilogue {
    using T = typename W::type;
    static constexpr int MOST = W::PAIRS, ROUNDS = MOST / ROUND;
    const struct experts_product &p;
    const struct expert_tile &t;
    int part;
    char *staging; // the warpgroup's
    const int *pairs;

    __device__ __forceinline__ static int warp(void) { return (int)threadIdx.x / 32 % 4; }
    __device__ __forceinline__ static int g(void) { return (int)threadIdx.x % 32 / 4; }
    __device__ __forceinline__ static int t2(void) { return (int)threadIdx.x % 4 * 2; }
    __device__ __forceinline__ static void meet(void) {
        named_barrier(1 + (int)threadIdx.x / 128, 128);
    }
    // The bias of a row of the matrix.
    __device__ __forceinline__ float bias_of(int row, bool held) const {
        return p.bias && held ? p.bias[(int64_t)t.expert * p.rows + row] : 0.0f;
    }
    __device__ __forceinline__ static float added(float sum, float bias) {
        return fmaf(sum, W::FACTOR, bias);
    }

    __device__ __forceinline__ void results(const float (&sum)[MOST / 2]) const {
        const int o = part * ROWS + warp() * 16 + g();
        const float add[2] = {bias_of(o, o < p.rows), bias_of(o + 8, o + 8 < p.rows)};
        meet(); // the pairs
#pragma unroll
        for (int i = 0; i < MOST / 8; i++) {
            if (i * 8 >= t.n) break;
            const int2 pair = *(const int2 *)(pairs + i * 8 + t2());
#pragma unroll
            for (int v = 0; v < 4; v++) {
                const int of = v % 2 ? pair.y : pair.x;
                if (of >= 0 && o + v / 2 * 8 < p.rows)
                    p.result[(int64_t)of * p.rows + o + v / 2 * 8] =
                        added(sum[i * 4 + v], add[v / 2]);
            }
        }
        meet(); // the next tile's pairs may be written
    }

    __device__ __forceinline__ void hidden_sigmoid(const float (&sum)[MOST / 2]) const {
        const int thread = (int)threadIdx.x % 128, row = thread / 4, word = thread % 4;
        T *to = (T *)staging + t2() * HIDDEN_PITCH + warp() * 8 + g();
        const uint4 *from = (const uint4 *)((const T *)staging + row * HIDDEN_PITCH + word * 8);
        const int o = part * (ROWS / 2) + word * 8, mine = part * (ROWS / 2) + warp() * 8 + g();
        const float factor = p.act == ACT_SILU ? -1.0f : -1.702f,
                    add = bias_of(mine, mine < p.width),
                    add_other = bias_of(mine + p.width, mine < p.width);
        const bool limited = p.limit > 0.0f;
#pragma unroll
        for (int r = 0; r < ROUNDS; r++) {
            if (r * ROUND >= t.n) break;
#pragma unroll
            for (int i = 0; i < 8; i++) { // 8 pairs, pair
                float gate = added(sum[r * 16 + i / 2 * 4 + i % 2], add),
                      other = added(sum[r * 16 + i / 2 * 4 + i % 2 + 2], add_other);
                if (limited) {
                    gate = fminf(gate, p.limit);
                    other = fminf(fmaxf(other, -p.limit), p.limit) + 1.0f;
                }
                to[(i / 2 * 8 + i % 2) * HIDDEN_PITCH] =
                    from_float<T>(__fdividef(gate, 1.0f + __expf(gate * factor)) * other);
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
#pragma unroll 1
        for (int i = (int)threadIdx.x % 128; i < n * each; i += 128) {
            const int pair = i / each, at = i % each, o = part * each + at;
            if (o >= p.width) continue;
            const float *from = sums + pair * PITCH + (p.gated ? at / 8 * 16 + at % 8 : at);
            float v = added(*from, bias_of(o, true));
            if (p.gated)
                v = gated_value(p, v, added(from[8], bias_of(o + p.width, true)));
            else
                v = activated(p.act, v);
            ((T *)p.hidden)[(int64_t)(t.first + first_pair + pair) * p.width + o] =
                from_float<T>(v);
        }
    }
    __device__ __forceinline__ void hidden(const float (&sum)[MOST / 2]) const {
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

// A warpgroup's part of a tile of n pairs.
template <typename W>
__device__ __forceinline__ void multiply_tile(float (&sum)[W::PAIRS / 2], const struct wide<W> &j,
                                              int n, struct ring &ring) {
    const int lane = (int)threadIdx.x % 32, w_bytes = j.w_bytes();
    const int steps = (j.p.cols + W::STEP - 1) / W::STEP, n32 = (n + 31) / 32;
    auto release = [&](int stage) { // each warp tells both blocks
        if (lane < CLUSTER)
            cluster_arrive(cluster_address(ring.empty + (uint32_t)(8 * stage), lane));
    };
    typename W::lane w(j.w, j.p.gated);
    int before = -1;
    for (int step = 0; step < steps; step++, ring.next()) {
        mbarrier_wait(ring.full + (uint32_t)(8 * ring.stage), ring.round & 1);
        const uint32_t at = ring.here(), x = at + (uint32_t)w_bytes,
                       x_tile = (uint32_t)(j.pairs * SWIZZLED_ROW);
        switch (n32) {
#define CASE(i)                                                                                    \
    case i:                                                                                        \
        if constexpr (32 * i <= W::PAIRS)                                                          \
            w.template multiply<32 * i>(sum, at, x, x_tile, step > 0);                             \
        break
        case 1:
            if constexpr (W::LEAST == 16) {
                if (n <= 16) {
                    w.template multiply<16>(sum, at, x, x_tile, step > 0);
                    break;
                }
            }
            w.template multiply<32>(sum, at, x, x_tile, step > 0);
            break;
            CASE(2);
            CASE(3);
            CASE(4);
            CASE(5);
            CASE(6);
            CASE(7);
            CASE(8);
#undef CASE
        }
        if (before >= 0) release(before);
        before = ring.stage;
    }
    wgmma_wait<0>();
    w.finish();
    wgmma_fence_results(sum);
    release(before);
}

#endif

template <typename W, enum kind KIND>
__global__ void __launch_bounds__(wide<W>::THREADS, 1)
    wide_kernel(const __grid_constant__ CUtensorMap x_map,
                const __grid_constant__ struct wide<W> j) {
#ifdef PARLEY_SM90A
    extern __shared__ __align__(1024) char shared[];
    constexpr int WARPS = wide<W>::WARPS;
    const struct experts_product &p = j.p;
    const int warp = (int)threadIdx.x / 32, rank = (int)blockIdx.x % CLUSTER;
    const int stage_bytes = j.stage_bytes(), w_bytes = j.w_bytes();
    char *behind = shared + j.stages * (stage_bytes + 16);
    struct ring ring = {shared_address(shared), 0, 0, stage_bytes, j.stages};
    ring.full = ring.first + (uint32_t)(j.stages * stage_bytes);
    ring.empty = ring.full + (uint32_t)(8 * j.stages);
    int *pairs = (int *)(behind + W::WARPGROUPS * STAGING),
        *first = pairs + W::WARPGROUPS * W::PAIRS, *tiles = first + p.n_experts + 1;
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
    count_tiles(p, j.pairs, first, tiles);
    const int all = tiles[p.n_experts] * j.row_tiles;
    int at = (int)blockIdx.x / CLUSTER;
    const int clusters = (int)gridDim.x / CLUSTER;
    auto tile = [&] { return tile_of(p.n_experts, j.pairs, first, tiles, at / j.row_tiles); };
    auto row_tile = [&] { return at % j.row_tiles * CLUSTER + rank; };
    if (warp >= WARPS) {
        setmaxnreg_dec<wide<W>::REQUESTING>();
        for (; threadIdx.x == WARPS * 32 && at < all; at += clusters) {
            const struct expert_tile t = tile();
            const CUtensorMap *w_maps = j.maps + t.expert * W::MAPS;
#pragma unroll
            for (int m = 0; m < W::MAPS; m++)
                asm volatile(
                    "fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(w_maps + m)
                    : "memory");
            const int boxes = (t.n + BOX - 1) / BOX, row = row_tile();
            for (int k = 0; k < p.cols; k += W::STEP, ring.next()) {
                const uint32_t bar = ring.full + (uint32_t)(8 * ring.stage), to = ring.here();
                if (ring.round > 0)
                    mbarrier_wait(ring.empty + (uint32_t)(8 * ring.stage), (ring.round - 1) & 1);
                mbarrier_expect(bar, W::bytes(j.w) + W::STEP / 64 * boxes * BOX * SWIZZLED_ROW);
                W::request(j, to, w_maps, k, row, bar);
                for (int i = rank; i < boxes; i += CLUSTER)
#pragma unroll
                    for (int tile64 = 0; tile64 < W::STEP / 64; tile64++)
                        tma_load_multicast(
                            to + (uint32_t)(w_bytes + (tile64 * j.pairs + i * BOX) * SWIZZLED_ROW),
                            &x_map, k + tile64 * 64, t.first + i * BOX, bar, (1 << CLUSTER) - 1,
                            READ_PLAIN);
            }
        }
        __syncwarp();
    } else {
        setmaxnreg_inc<wide<W>::REGISTERS>();
        char *staging = behind + warp / 4 * STAGING;
        pairs += warp / 4 * W::PAIRS;
        for (; at < all; at += clusters) {
            const struct expert_tile t = tile();
            constexpr int EACH = (W::PAIRS + 127) / 128; // pairs of a thread
            int pair[EACH];
            for (int i = 0; KIND == RESULTS && i < EACH; i++) {
                const int of = (int)threadIdx.x % 128 + 128 * i;
                pair[i] = of < t.n ? p.order[t.first + of] : -1;
            }
            float sum[W::PAIRS / 2];
            multiply_tile<W>(sum, j, t.n, ring);
            const struct epilogue<W> end = {
                p, t, row_tile() * W::WARPGROUPS + warp / 4, staging, pairs
            };
            if constexpr (KIND == RESULTS) {
                for (int i = 0; i < EACH; i++) {
                    const int of = (int)threadIdx.x % 128 + 128 * i;
                    if (of < W::PAIRS) pairs[of] = pair[i];
                }
                end.results(sum);
            } else if constexpr (KIND == HIDDEN_SIGMOID) {
                end.hidden_sigmoid(sum);
            } else {
                end.hidden(sum);
            }
        }
    }
    cluster_sync(); // no block exits while the other's copies and arrivals may still come
#endif
}

// --- launches ------------------------------------------------------------------------------------

// x: (pairs, p->cols) in the pairs' order. maps: of p's matrix, (n_experts, W::MAPS).
template <typename W, enum kind KIND>
int launch_wide(const struct experts_product *p, const typename W::matrix &w, const void *x,
                const CUtensorMap *maps, cudaStream_t stream) {
    auto kernel = wide_kernel<W, KIND>;
    constexpr int THREADS = wide<W>::THREADS;
    const int rows = p->gated ? p->width : p->rows,
              each = (p->gated ? ROWS / 2 : ROWS) * W::WARPGROUPS * CLUSTER;
    struct wide<W> j = {
        *p, w, maps, (rows + each - 1) / each
    };
    // An expert has no more pairs than there are rows, so few rows leave room for more stages.
    const int boxes = (p->pairs / p->n_chosen + BOX - 1) / BOX;
    const int behind = W::WARPGROUPS * STAGING +
                       (W::WARPGROUPS * W::PAIRS + 2 * (p->n_experts + 1)) * (int)sizeof(int);
    j.pairs = boxes * BOX < W::PAIRS ? boxes * BOX : W::PAIRS;
    j.stages = (ROOM - behind) / (j.stage_bytes() + 16);
    const int bytes = j.stages * (j.stage_bytes() + 16) + behind;
    CUtensorMap x_map;
    if (j.stages < 2 || !tensor_map_of(&x_map, x, p->dtype, p->pairs, p->cols, p->cols, BOX))
        return CUDA_UNSUPPORTED;
    cuda_allow_shared((const void *)kernel, (size_t)bytes);
    const int tiles = (p->pairs < p->n_experts ? p->pairs : p->n_experts) + p->pairs / j.pairs;
    int clusters = clusters_at_once((const void *)kernel, THREADS, bytes, CLUSTER);
    if (clusters > tiles * j.row_tiles) clusters = tiles * j.row_tiles;
    pdl_launch_cluster(kernel, dim3((unsigned)(clusters * CLUSTER)), dim3(THREADS), (size_t)bytes,
                       CLUSTER, stream, x_map, j);
    return cuda_launched("experts_hopper");
}

template <typename W>
int launch_up(const struct experts_product *up, const typename W::matrix &w, const void *sorted,
              const CUtensorMap *maps, cudaStream_t stream) {
    return up->gated && (up->act == ACT_SILU || up->act == ACT_QUICK_GELU)
               ? launch_wide<W, HIDDEN_SIGMOID>(up, w, sorted, maps, stream)
               : launch_wide<W, HIDDEN>(up, w, sorted, maps, stream);
}

} // namespace
