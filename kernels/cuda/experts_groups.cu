// Experts with weights of few bits (groups.h), as experts_few.cu and experts_many.cu have them of 16 bits.
//
//   few    W is A and pairs are B of the tensor cores' products A times B, eight pairs a product, from rows of x in the
//          order of the codes. A lane asks for whole chunks ahead, 16 bytes of codes for each half of a
//          set and the scales of its rows. A group's sum is multiplied by its scale in F32; with offsets a product with
//          ones beside it gives the sum of x.
//   many   pairs are A, through shared memory, and W is B, whose codes come there as they are. They become numbers of T
//          in registers: code times scale plus offset in F32, rounded once, as the loader widens them; e2m1 times a scale that
//          is rounded too.
//
// A lane's 16 bytes of codes are both, a row of A's and a column of B's (groups.h).
#include "kernels/cuda/experts_pairs.cuh"
#include "kernels/cuda/experts_tiles.cuh"
#include "kernels/cuda/groups.cuh"
#include <type_traits>

namespace {

constexpr int AHEAD = 2; // chunks of a warp that are requested together
constexpr int LANE_WORDS =
    GROUPS_CHUNK_BYTES / 16; // from a chunk of a tile to its next, in 16 bytes
// Many: a tile's codes, by chunk, and how many steps of 64 columns a chunk has. A slot is free with the last of its steps.
constexpr int SLOT_BYTES = ROWS * GROUPS_CHUNK_BYTES / 16;
__host__ __device__ constexpr int chunk_steps(int kind) {
    return groups_chunk_of(kind) / STEP;
}
__host__ __device__ constexpr int slots_of(int kind) {
    return chunk_steps(kind) == 1 ? STAGES : 2;
}
constexpr size_t groups_shared(int kind) {
    const size_t operands = (STAGES * TILE_BYTES) + (slots_of(kind) * SLOT_BYTES);
    return operands > MANY_SUM_BYTES ? operands : MANY_SUM_BYTES;
}
constexpr unsigned ALL = 0xffffffffu;

// A row's codes in chunk 0, of lane part t; and its scale of group 0.
__device__ __forceinline__ int64_t codes_of_row(const struct groups_matrix &m, int row, int t) {
    return (int64_t)(row / 16) * m.chunks * LANE_WORDS + row % 16 / 8 * 32 + row % 8 * 4 + t;
}
__device__ __forceinline__ int64_t scale_of_row(const struct groups_matrix &m, int row) {
    return (int64_t)(row / 16) * m.n_groups * 16 + row % 16;
}
__device__ __forceinline__ const uint4 *codes_of(const void *w) {
    return (const uint4 *)((const char *)w + GROUPS_HEAD);
}

// A chunk as a lane asks for it: of each half of each set the codes, and the scales of unit q and, where groups have 16
// columns (never with offsets: groups.c), of unit q + 4.
template <bool OFFSET> struct asked_chunk {
    uint4 codes[FEW_SETS][2];
    typename scale_words<OFFSET>::type scales[FEW_SETS][2], last[OFFSET ? 1 : FEW_SETS][2];
};

template <typename T, int TILES, int KIND, int MOST>
__global__ void __launch_bounds__(FEW_THREADS, 4)
    few_kernel(const __grid_constant__ struct experts_table<MOST> t,
               const __grid_constant__ struct experts_product p,
               const __grid_constant__ struct groups_matrix m) {
    constexpr bool OFFSET = groups_with_offsets(KIND);
    constexpr int CHUNK = groups_chunk_of(KIND), WORDS = groups_words(KIND);
    using scale = typename scale_words<OFFSET>::type;
    extern __shared__ int list[]; // (rows of the call)
    __shared__ int n_pairs;
    __shared__ struct few_sums<TILES> sums;
    __shared__ uint32_t table[KIND == GROUPS_BOOKS ? 256 : 1];
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4,
              q = lane % 4;
    pdl_trigger();
    pdl_wait();
    const int expert = find_pairs(p, list, &n_pairs);
    if (expert < 0) return;
    if (KIND == GROUPS_BOOKS) {
        fill_table<T>(table, (const float *)t.w[expert]);
        __syncthreads();
    }
    const int n = n_pairs;
    const struct few_rows rows = few_rows_of(p);
    const uint4 *codes[FEW_SETS][2];
    const scale *scales[FEW_SETS][2];
#pragma unroll
    for (int s = 0; s < FEW_SETS; s++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int row = few_row(p, rows, s, h * 8 + g);
            codes[s][h] = codes_of(t.w[expert]) + codes_of_row(m, row, q);
            scales[s][h] = (const scale *)t.scale[expert] + scale_of_row(m, row);
        }
    const int in_unit = 1 << m.unit_shift,
              units = CHUNK / 16 >> m.unit_shift; // steps of 16 columns; of a chunk
    const int pitch = (m.chunks * CHUNK + 127) / 128 * 128;
    const struct code_constants constants = code_constants_of<T, KIND>(m.zero);
    const uint32_t one = pack2<T>(1.0f, 1.0f), ones[4] = {one, one, one, one};
    for (int from = 0; from < n; from += 8 * TILES) {
        const int tiles = min((n - from + 7) / 8, TILES);
        const T *x[TILES]; // in the order of the codes
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            const int pair = list[min(from + i * 8 + g, n - 1)];
            x[i] = (const T *)p.x + row_of_pair(p, pair) * pitch + q * 32;
        }
        float sum[FEW_SETS][TILES][4] = {};
        struct asked_chunk<OFFSET> asked[AHEAD];
        auto request = [&](int u, int c) {
            if (c >= m.chunks) return;
            const int group = (c * CHUNK >> m.group_shift);
#pragma unroll
            for (int s = 0; s < FEW_SETS; s++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    asked[u].codes[s][h] = load_weight(codes[s][h] + (int64_t)c * LANE_WORDS);
                    asked[u].scales[s][h] =
                        ask_scale(scales[s][h] + (int64_t)(group + min(q, units - 1)) * 16);
                    if (!OFFSET && units == 8)
                        asked[u].last[OFFSET ? 0 : s][h] =
                            ask_scale(scales[s][h] + (int64_t)(group + q + 4) * 16);
                }
        };
#pragma unroll
        for (int u = 0; u < AHEAD; u++) request(u, warp + u * FEW_WARPS);
        for (int c0 = warp; c0 < m.chunks; c0 += AHEAD * FEW_WARPS) {
#pragma unroll
            for (int u = 0; u < AHEAD; u++) {
                const int c = c0 + u * FEW_WARPS;
                if (c >= m.chunks) break;
                const struct asked_chunk<OFFSET> &here = asked[u];
                float of_group[FEW_SETS][TILES][4] = {}, of_x[OFFSET ? TILES : 1][4] = {};
#pragma unroll
                for (int word = 0; word < WORDS; word++) {
                    uint32_t v[FEW_SETS][2][4];
#pragma unroll
                    for (int s = 0; s < FEW_SETS; s++)
#pragma unroll
                        for (int h = 0; h < 2; h++)
                            code_pairs_at<T, KIND>(v[s][h], here.codes[s][h], word, constants,
                                                   table);
                    const int at = c * CHUNK / 128 * 128 + c % (128 / CHUNK) * 16 + word * 8;
                    uint4 columns[TILES];
#pragma unroll
                    for (int i = 0; i < TILES; i++)
                        columns[i] =
                            i < tiles ? *(const uint4 *)(x[i] + at) : make_uint4(0, 0, 0, 0);
#pragma unroll
                    for (int half = 0; half < 2; half++) {
                        const int step = 2 * word + half;
#pragma unroll
                        for (int i = 0; i < TILES; i++) {
                            if (i >= tiles) break;
                            const uint32_t b0 = half ? columns[i].z : columns[i].x,
                                           b1 = half ? columns[i].w : columns[i].y;
#pragma unroll
                            for (int s = 0; s < FEW_SETS; s++) {
                                const uint32_t a[4] = {v[s][0][2 * half], v[s][1][2 * half],
                                                       v[s][0][2 * half + 1],
                                                       v[s][1][2 * half + 1]};
                                mma(of_group[s][i], a, b0, b1, T());
                            }
                            if (OFFSET) mma(of_x[OFFSET ? i : 0], ones, b0, b1, T());
                        }
                        if ((step + 1) & (in_unit - 1)) continue;
                        const int unit = step >> m.unit_shift, owner = (lane & ~3) | (unit & 3);
#pragma unroll
                        for (int s = 0; s < FEW_SETS; s++) {
                            float2 by[2];
#pragma unroll
                            for (int h = 0; h < 2; h++) {
                                by[h] = scale_of(__shfl_sync(ALL,
                                                             OFFSET || unit < 4
                                                                 ? here.scales[s][h]
                                                                 : here.last[OFFSET ? 0 : s][h],
                                                             owner));
                            }
#pragma unroll
                            for (int i = 0; i < TILES; i++)
#pragma unroll
                                for (int e = 0; e < 4; e++) {
                                    float &to = sum[s][i][e];
                                    to = fmaf(by[e / 2].x, of_group[s][i][e], to);
                                    if (OFFSET) to = fmaf(by[e / 2].y, of_x[OFFSET ? i : 0][e], to);
                                    of_group[s][i][e] = 0.0f;
                                }
                        }
                        if (OFFSET)
#pragma unroll
                            for (int i = 0; i < TILES; i++)
#pragma unroll
                                for (int e = 0; e < 4; e++) of_x[OFFSET ? i : 0][e] = 0.0f;
                    }
                }
                request(u, c + AHEAD * FEW_WARPS);
            }
        }
        put_few<TILES>(sums, sum, warp, lane);
        __syncthreads();
        finish_few<T, TILES>(p, expert, rows, list, from, n, tiles, sums);
        __syncthreads();
    }
}

// Two codes' numbers times scale, plus offset. e2m1's have two bits of fraction, so that a scale of MXFP4, a power of two, or
// of few bits keeps them exact in T.
template <typename T, int KIND>
__device__ __forceinline__ void scale_codes(uint32_t &codes, float2 by) {
    if (KIND == GROUPS_NUMBERS) {
        codes = multiplied(codes, pack2<T>(by.x, by.x), T());
        return;
    }
    const float2 v = unpack2(codes, T());
    codes = pack2<T>(fmaf(by.x, v.x, by.y), fmaf(by.x, v.y, by.y));
}

template <typename T, int KIND, int MOST>
__global__ void __launch_bounds__(MANY_THREADS, 2)
    many_kernel(const __grid_constant__ struct experts_table<MOST> t,
                const __grid_constant__ struct experts_product p,
                const __grid_constant__ struct groups_matrix m) {
    using scale = typename scale_words<groups_with_offsets(KIND)>::type;
    constexpr int EACH = chunk_steps(KIND), SLOTS = slots_of(KIND);
    extern __shared__ __align__(128) char shared[];
    __shared__ int pairs[PAIRS];
    __shared__ uint32_t table[KIND == GROUPS_BOOKS ? 256 : 1];
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4;
    pdl_trigger();
    pdl_wait();
    struct expert_tile tile;
    if (!many_pairs(p, tile, pairs)) return;
    if (KIND == GROUPS_BOOKS) fill_table<T>(table, (const float *)t.w[tile.expert]);
    __syncthreads();
    const struct many_x<T> x(p, pairs);
    // A thread copies part `q` of rows q0 and q0 + 64 of a chunk of W.
    const int q = (int)threadIdx.x % 4, q0 = (int)threadIdx.x / 4;
    const uint4 *w_from[2];
#pragma unroll
    for (int i = 0; i < 2; i++)
        w_from[i] = codes_of(t.w[tile.expert]) + codes_of_row(m, many_row(p, q0 + i * 64), q);
    const uint32_t base = shared_address(shared), slots = base + STAGES * TILE_BYTES;
    auto request = [&](int s) { // a chunk's first step brings its codes
        const int chunk = s / EACH;
        const uint32_t slot = slots + (uint32_t)(chunk % SLOTS * SLOT_BYTES);
        x.request(base + (uint32_t)(s % STAGES * TILE_BYTES), s * STEP, p.cols);
#pragma unroll
        for (int i = 0; i < 2 && s % EACH == 0; i++)
            copy_async(slot + (uint32_t)(((q0 + i * 64) * 4 + q) * 16),
                       w_from[i] + (int64_t)chunk * LANE_WORDS, true);
    };
    const int pair0 = warp % 2 * WARP_PAIRS, row0 = warp / 2 * WARP_ROWS;
    const scale *scales[WARP_ROWS / 8];
#pragma unroll
    for (int n = 0; n < WARP_ROWS / 8; n++)
        scales[n] =
            (const scale *)t.scale[tile.expert] + scale_of_row(m, many_row(p, row0 + n * 8 + g));
    const struct code_constants constants = code_constants_of<T, KIND>(m.zero);
    many_sums sum = {};
    many_steps(p.cols, request, [&](int s) {
        const uint32_t xs = base + (uint32_t)(s % STAGES * TILE_BYTES),
                       ws = slots + (uint32_t)(s / EACH % SLOTS * SLOT_BYTES + s % EACH * 8);
#pragma unroll
        for (int w = 0; w < STEP / 32; w++) { // a word of codes: 32 columns
            uint32_t b[WARP_ROWS / 8][4];
#pragma unroll
            for (int n = 0; n < WARP_ROWS / 8; n++) {
                const uint32_t at = ws + (uint32_t)(((row0 + n * 8) * 4 + lane) * 16);
                if constexpr (groups_of_bytes(KIND)) {
                    const uint2 codes = load_shared_8(at + (uint32_t)(w * 8));
                    code_pairs_at<T, KIND>(b[n], make_uint4(codes.x, codes.y, 0, 0), 0, constants,
                                           table);
                } else {
                    code_pairs<T, KIND>(b[n], load_shared_word(at + (uint32_t)(w * 4)), constants,
                                        table);
                }
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int k = s * STEP + w * 32 + half * 16;
                    const float2 by =
                        scale_of(ask_scale(scales[n] + (int64_t)(k >> m.group_shift) * 16));
                    scale_codes<T, KIND>(b[n][half * 2], by);
                    scale_codes<T, KIND>(b[n][half * 2 + 1], by);
                }
            }
#pragma unroll
            for (int half = 0; half < 2; half++) {
                uint32_t a[WARP_PAIRS / 16][4];
#pragma unroll
                for (int i = 0; i < WARP_PAIRS / 16; i++)
                    load_matrices(a[i], xs + place_of(pair0 + i * 16 + lane % 16,
                                                      (w * 2 + half) * 2 + lane / 16));
#pragma unroll
                for (int i = 0; i < WARP_PAIRS / 16; i++)
#pragma unroll
                    for (int n = 0; n < WARP_ROWS / 8; n++)
                        mma(sum[i][n], a[i], b[n][half * 2], b[n][half * 2 + 1], T());
            }
        }
    });
    finish_many<T>(p, tile, pairs, sum, shared);
}

template <typename T, int TILES, int KIND, int MOST>
void launch_few(const struct experts_product *p, const struct experts_table<MOST> &t,
                cudaStream_t stream) {
    pdl_launch(few_kernel<T, TILES, KIND, MOST>, few_grid(p), dim3(FEW_THREADS), few_list_bytes(p),
               stream, t, *p, groups_matrix_by(p->ld, p->cols));
}

template <typename T, int KIND, int MOST>
void launch_many(const struct experts_product *p, const struct experts_table<MOST> &t,
                 cudaStream_t stream) {
    auto kernel = many_kernel<T, KIND, MOST>;
    cuda_allow_shared((const void *)kernel, groups_shared(KIND));
    pdl_launch(kernel, many_grid(p), dim3(MANY_THREADS), groups_shared(KIND), stream, t, *p,
               groups_matrix_by(p->ld, p->cols));
}

template <typename T, int KIND, int MOST>
void launch(const struct experts_product *p, const struct weight *w, bool few,
            cudaStream_t stream) {
    // A kernel of one tile for what is usual alone: each takes a while to compile.
    constexpr bool usual = MOST == 128 && std::is_same<T, __nv_bfloat16>::value;
    struct experts_table<MOST> t;
    experts_fill(&t, w, p->n_experts);
    if (!few) return launch_many<T, KIND, MOST>(p, t, stream);
    if constexpr (usual) {
        if (p->pairs / p->n_chosen <= 8) return launch_few<T, 1, KIND, MOST>(p, t, stream);
    }
    launch_few<T, 2, KIND, MOST>(p, t, stream);
}

template <typename T>
void launch_typed(const struct experts_product *p, const struct weight *w, bool few,
                  cudaStream_t stream) {
    GROUPS_ALL_KINDS(groups_matrix_by(p->ld, p->cols).kind,
                     if (p->n_experts <= 128) launch<T, KIND, 128>(p, w, few, stream);
                     else launch<T, KIND, ROUTE_MAX_EXPERTS>(p, w, few, stream));
}

// Rows of x (n, cols) in the order of the codes, with zeros behind the last column; zeros also behind the last column of
// `pairs` rows of `hidden`, which come in that order.
template <typename T>
__global__ void __launch_bounds__(FEW_THREADS)
    permute_kernel(T *permuted, const T *x, int32_t cols, T *hidden, int32_t pairs, int32_t width) {
    const int row = (int)blockIdx.x, pitch = (cols + 127) / 128 * 128;
    const int hidden_pitch = (width + 127) / 128 * 128;
    pdl_trigger();
    pdl_wait();
    for (int k = (int)threadIdx.x; permuted && k < pitch; k += FEW_THREADS)
        permuted[(int64_t)row * pitch + place_in_codes(k)] =
            k < cols ? x[(int64_t)row * cols + k] : from_float<T>(0.0f);
    for (int pair = row; hidden && pair < pairs; pair += (int)gridDim.x)
        for (int k = width + (int)threadIdx.x; k < hidden_pitch; k += FEW_THREADS)
            hidden[(int64_t)pair * hidden_pitch + place_in_codes(k)] = from_float<T>(0.0f);
}

} // namespace

int experts_permute(void *permuted, const struct experts_product *up, int32_t n,
                    cudaStream_t stream) {
    auto launch = [&](auto t) {
        using T = decltype(t);
        pdl_launch(permute_kernel<T>, dim3((unsigned)n), dim3(FEW_THREADS), 0, stream,
                   (T *)permuted, (const T *)up->x, up->cols,
                   up->hidden_in_codes ? (T *)up->hidden : (T *)NULL, up->pairs, up->width);
    };
    if (up->dtype == DTYPE_BF16)
        launch(__nv_bfloat16());
    else
        launch(__half());
    return cuda_launched("experts_permute");
}

int experts_groups(const struct experts_product *p, const struct weight *w, bool few,
                   cudaStream_t stream) {
    if (p->dtype == DTYPE_BF16)
        launch_typed<__nv_bfloat16>(p, w, few, stream);
    else
        launch_typed<__half>(p, w, few, stream);
    return cuda_launched("experts_groups");
}
