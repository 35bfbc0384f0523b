// Experts of more than a few rows on sm_90a with weights of few bits (groups.h): experts_hopper.cuh.
//
// Codes come to shared memory as they lie, a chunk (128 columns, of 8 bits 64) of sixteen tiles of 16 rows, with its scales. A
// lane's codes are its part of the products' A: they become numbers of T in registers while the products of the columns before are under
// way, also across stages. Code times scale plus offset in F32, rounded once, as the loader widens them; e2m1 times a scale
// that is rounded too (MXFP4's are powers of two).
//
// Instructions are the bound, then the warps that hide their latency: four warpgroups, no product of more pairs than it
// needs, a scale loaded by one lane of the four that have the row and made T once, e2m1 without a multiplication of its own
// (FACTOR), descriptors in 32 bits.
//
// A gated `up`: a warp takes eight rows of a tile of gates and the same of the tile of others.
#include "kernels/cuda/experts_hopper.cuh"
#include "kernels/cuda/groups.cuh"
#include <type_traits>

namespace {

constexpr int TILES = 16, OF_BOX = TILES / 2; // tiles of 16 rows in a stage; in a copy
constexpr int CODES = TILES * GROUPS_CHUNK_BYTES;
int words_of_scales(enum groups_kind kind) { // of a tile and group
    return 4 * scale_bytes(groups_with_offsets(kind));
}

// SIXTEENS: groups of 16 columns, so a word of codes, 32 columns, has two scales of a row.
template <typename T, int KIND, bool SIXTEENS> struct codes {
    using type = T;
    static constexpr int WARPGROUPS = 4, PAIRS = 64, LEAST = 16, STEP = groups_chunk_of(KIND),
                         MAPS = 2;                   // of the codes, of the scales
    static constexpr int WORDS = groups_words(KIND); // of 32 columns
    static constexpr bool OFFSET = groups_with_offsets(KIND);
    static constexpr int SCALE_WORDS = 4 * scale_bytes(OFFSET);
    // In bf16 e2m1's bits are twice the number times 2^-127 (groups.cuh). The multiplication by the scale takes 2^95 of that
    // off, and the end of the sums 2^32, so that scales below 2^32 stay finite. f16 has no exponents for that.
    static constexpr bool FOLDED = KIND == GROUPS_NUMBERS && std::is_same<T, __nv_bfloat16>::value;
    static constexpr float FACTOR = FOLDED ? 0x1p32f : 1.0f;
    using matrix = struct groups_matrix;
    __host__ __device__ static int bytes(const matrix &m) { return CODES + TILES * m.chunk_scale; }

#ifdef PARLEY_SM90A
    __device__ __forceinline__ static void request(const struct wide<codes> &j, uint32_t to,
                                                   const CUtensorMap *maps, int k, int row_tile,
                                                   uint32_t bar) {
        const int first = row_tile * (j.p.gated ? OF_BOX : TILES),
                  other = j.p.gated ? j.p.width / 16 + first : first + OF_BOX;
        const int word = k / STEP * (GROUPS_CHUNK_BYTES / 4),
                  scale = (k >> j.w.group_shift) * SCALE_WORDS;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int tile = half ? other : first;
            tma_load(to + (uint32_t)(half * OF_BOX * GROUPS_CHUNK_BYTES), maps, word, tile, bar,
                     READ_PLAIN);
            tma_load(to + (uint32_t)(CODES + half * OF_BOX * j.w.chunk_scale), maps + 1, scale,
                     tile, bar, READ_PLAIN);
        }
    }

    // What a lane reads of a stage: codes of its two rows, and of the scales those that are first used in words t of a chunk
    // (t = lane % 4; SIXTEENS: in half t of its words, and in half t + 4), which the four lanes of the rows exchange.
    struct lane {
        static constexpr int HALVES = SIXTEENS && WORDS == 4 ? 2 : 1;
        // A scale and an offset, a scale, or a scale twice as T.
        using scale =
            typename std::conditional<KIND == GROUPS_NUMBERS, uint32_t,
                                      typename std::conditional<OFFSET, float2, float>::type>::type;
        uint32_t codes_at[2], scales_at[2];
        struct code_constants constants;
        uint32_t a[2][2][4]; // of this word and of the one before, whose products are under way

        __device__ __forceinline__ lane(const matrix &m, bool gated)
            : constants(code_constants_of<T, KIND>(m.zero)), a() {
            const int group = (int)threadIdx.x / 128, warp = (int)threadIdx.x / 32 % 4,
                      l = (int)threadIdx.x % 32;
            const int unit = SIXTEENS ? l % 4 : min(l % 4, WORDS - 1) * 2 >> m.unit_shift;
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const int tile = gated ? group * 2 + warp / 2 + r * OF_BOX : group * 4 + warp,
                          eight = gated ? warp % 2 : r;
                codes_at[r] = (uint32_t)(tile * GROUPS_CHUNK_BYTES + eight * 512 + l * 16);
                scales_at[r] = (uint32_t)(CODES + tile * m.chunk_scale + unit * SCALE_WORDS * 4 +
                                          (eight * 8 + l / 4) * scale_bytes(OFFSET));
            }
        }
        __device__ __forceinline__ static void load(uint32_t &to, uint32_t from) {
            const float by = load_shared_half(from) * ((FOLDED ? 0x1p95f : 1.0f) * SCALE_FACTOR);
            to = pack2<T>(by, by);
        }
        __device__ __forceinline__ static void load(float &to, uint32_t from) {
            to = load_scale<false>(from).x;
        }
        __device__ __forceinline__ static void load(float2 &to, uint32_t from) {
            to = load_scale<true>(from);
        }
        // Lane t's of the four.
        template <typename V> __device__ __forceinline__ static V of_lane(V v, int t) {
            return __shfl_sync(~0u, v, t, 4);
        }
        __device__ __forceinline__ static float2 of_lane(float2 v, int t) {
            return make_float2(of_lane(v.x, t), of_lane(v.y, t));
        }
        __device__ __forceinline__ static void multiply_pair(uint32_t &v, uint32_t by) {
            v = multiplied(v, by, T());
        }
        __device__ __forceinline__ static void multiply_pair(uint32_t &v, float2 by) {
            const float2 x = unpack2(v, T());
            v = pack2<T>(fmaf(by.x, x.x, by.y), fmaf(by.x, x.y, by.y));
        }
        __device__ __forceinline__ static void multiply_pair(uint32_t &v, float by) {
            multiply_pair(v, make_float2(by, 0.0f));
        }
        // A row's operands of a word: its numbers times the scales of its halves.
        __device__ __forceinline__ void operands(uint32_t (&v)[4], const uint4 &codes, int word,
                                                 scale first, scale second) const {
            if constexpr (FOLDED) {
                uint32_t of_second[4];
                code_pairs_at<T, KIND>(v, codes, word, {first, 0}, nullptr);
                code_pairs_at<T, KIND>(of_second, codes, word, {second, 0}, nullptr);
                v[2] = of_second[2], v[3] = of_second[3];
            } else {
                code_pairs_at<T, KIND>(v, codes, word, constants, nullptr);
                multiply_pair(v[0], first), multiply_pair(v[1], first);
                multiply_pair(v[2], second), multiply_pair(v[3], second);
            }
        }
        template <int N>
        __device__ __forceinline__ void multiply(float (&sum)[PAIRS / 2], uint32_t w, uint32_t x,
                                                 uint32_t x_tile, bool keep) {
            uint4 codes[2];
            scale mine[2][HALVES];
#pragma unroll
            for (int r = 0; r < 2; r++) {
                codes[r] = load_shared(w + codes_at[r]);
#pragma unroll
                for (int i = 0; i < HALVES; i++)
                    load(mine[r][i], w + scales_at[r] + (uint32_t)(i * 4 * SCALE_WORDS * 4));
            }
            const uint64_t tile = tile_descriptor(x);
#pragma unroll
            for (int word = 0; word < WORDS; word++) { // 32 columns
                uint32_t(&now)[2][4] = a[word % 2];
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    uint32_t v[4];
                    scale by[2];
#pragma unroll
                    for (int h = 0; h < 2; h++)
                        by[h] = SIXTEENS ? of_lane(mine[r][word / 2], word % 2 * 2 + h)
                                : h      ? by[0]
                                         : of_lane(mine[r][0], word);
                    operands(v, codes[r], word, by[0], by[1]);
#pragma unroll
                    for (int m = 0; m < 4; m++) now[m / 2][m % 2 * 2 + r] = v[m];
                }
                wgmma_fence();
#pragma unroll
                for (int h = 0; h < 2; h++)
                    wgmma<N>::rs(*(float(*)[N / 2]) sum, now[h],
                                 tile_behind(tile, word / 2 * (x_tile >> 4) + word % 2 * 4 + 2 * h),
                                 keep || word + h > 0, T());
                wgmma_commit();
                wgmma_wait<1>(); // at word 0 for the last of the stage before
                wgmma_fence_operand(a[(word + 1) % 2]);
            }
        }
        __device__ __forceinline__ void finish(void) const {
            wgmma_fence_operand(a[1]);
        }
    };
#endif
};

template <typename W, enum kind RESULT>
int launch_codes(const struct experts_product *p, const void *x, const CUtensorMap *maps,
                 cudaStream_t stream) {
    const struct groups_matrix m = groups_matrix_by(p->ld, p->cols);
    if constexpr (RESULT == RESULTS)
        return launch_wide<W, RESULTS>(p, m, x, maps, stream);
    else
        return launch_up<W>(p, m, x, maps, stream);
}

template <typename T, enum kind RESULT>
int launch_kind(const struct experts_product *p, const void *x, const CUtensorMap *maps,
                cudaStream_t stream) {
    const struct groups_matrix m = groups_matrix_by(p->ld, p->cols);
    GROUPS_KINDS(
        m.kind, if constexpr (!groups_with_offsets(KIND)) { // which have 32 columns or more
            if (m.unit == 16)
                return (launch_codes<codes<T, KIND, true>, RESULT>(p, x, maps, stream));
        } return (launch_codes<codes<T, KIND, false>, RESULT>(p, x, maps, stream)));
}

template <typename T>
int launch_both(const struct experts_product *up, const struct experts_product *down,
                const void *sorted, const CUtensorMap *maps, cudaStream_t stream) {
    const int rc = launch_kind<T, HIDDEN>(up, sorted, maps, stream);
    return rc != 0 ? rc : launch_kind<T, RESULTS>(down, down->x, maps + 2 * up->n_experts, stream);
}

// The maps of a matrix's codes and scales.
bool maps_of(CUtensorMap *maps, const struct experts_product *p, const struct weight *w) {
    const struct groups_matrix m = groups_matrix_by(p->ld, p->cols);
    const int64_t tiles = (p->rows + 15) / 16;
    return tensor_map_words(&maps[0], (const char *)w->data + GROUPS_HEAD, tiles,
                            (int64_t)m.chunks * (GROUPS_CHUNK_BYTES / 4), OF_BOX,
                            GROUPS_CHUNK_BYTES / 4) &&
           tensor_map_words(&maps[1], w->scales, tiles,
                            (int64_t)m.n_groups * words_of_scales(m.kind), OF_BOX,
                            m.chunk_scale / 4);
}

constexpr int MOST = 512; // experts: their maps' addresses are a launch's arguments

int prepare(const struct experts_product *up, const struct experts_product *down,
            const struct weight *up_w, const struct weight *down_w, CUtensorMap *maps, void *sorted,
            cudaStream_t stream) {
    struct expert_maps<4, MOST> w;
    for (int32_t e = 0; e < up->n_experts; e++) {
        w.at[0][e] = (const char *)up_w[e].data + GROUPS_HEAD, w.at[1][e] = up_w[e].scales;
        w.at[2][e] = (const char *)down_w[e].data + GROUPS_HEAD, w.at[3][e] = down_w[e].scales;
    }
    if (!maps_of(w.map, up, up_w) || !maps_of(w.map + 2, down, down_w)) return CUDA_UNSUPPORTED;
    return launch_prepare(w, maps, sorted, up, stream);
}

bool covers(const struct experts_product *p) {
    return p->w_dtype == DTYPE_U8 && (p->dtype == DTYPE_BF16 || p->dtype == DTYPE_F16) &&
           p->cols % 8 == 0 && (uintptr_t)p->x % 16 == 0 &&
           groups_matrix_by(p->ld, p->cols).kind != GROUPS_BOOKS &&
           (!p->gated || p->width % 16 == 0);
}

} // namespace

bool experts_hopper_groups_covers(const struct experts_product *up,
                                  const struct experts_product *down) {
    return covers(up) && covers(down) && up->n_experts <= MOST && hopper_here();
}

int experts_hopper_groups(const struct experts_product *up, const struct experts_product *down,
                          const struct weight *up_w, const struct weight *down_w, void *work,
                          cudaStream_t stream) {
    const struct wide_work l = wide_work_of(up->pairs, up->cols, 4 * up->n_experts);
    CUtensorMap *maps = (CUtensorMap *)((char *)work + l.maps);
    const int rc = prepare(up, down, up_w, down_w, maps, work, stream);
    if (rc != 0) return rc;
    return up->dtype == DTYPE_BF16 ? launch_both<__nv_bfloat16>(up, down, work, maps, stream)
                                   : launch_both<__half>(up, down, work, maps, stream);
}
