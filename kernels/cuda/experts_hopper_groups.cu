// Experts of many rows on sm_90a with weights of few bits (groups.h): experts_hopper.cuh.
//
// Codes come to shared memory as they lie, a chunk (128 columns, of 8 bits 64) of eight tiles of 16 rows, with its scales. A lane's codes
// are its part of the products' A: they become numbers of T in registers while the products of the columns before are under
// way. Code times scale plus offset in F32, rounded once, as the loader widens them; e2m1 times a scale that is rounded too
// (MXFP4's are powers of two). A chunk's products are done before its stage is left; the other warpgroup's fill the gap.
//
// A gated `up`: a warp takes eight rows of a tile of gates and the same of the tile of others.
#include "kernels/cuda/experts_hopper.cuh"
#include "kernels/cuda/groups.cuh"

namespace {

constexpr int TILES = 8, OF_BOX = TILES / 2; // tiles of 16 rows in a stage; in a copy
constexpr int CODES = TILES * GROUPS_CHUNK_BYTES;
int scale_words(enum groups_kind kind) { // of a tile and group
    return groups_with_offsets(kind) ? 32 : 16;
}

template <typename T, int KIND> struct codes {
    using type = T;
    static constexpr int PAIRS = 128, MAPS = 2; // maps of the codes, of the scales
    static constexpr int STEP = groups_chunk_of(KIND), WORDS = groups_words(KIND);
    static constexpr bool OFFSET = groups_with_offsets(KIND);
    static constexpr int SCALE_WORDS = OFFSET ? 32 : 16;
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

    // What a lane reads of a stage: codes and scales of its two rows.
    struct lane {
        uint32_t codes_at[2], scales_at[2];
        int unit_shift;
        struct code_constants constants;

        __device__ __forceinline__ lane(const matrix &m, bool gated)
            : unit_shift(m.unit_shift), constants(code_constants_of<T, KIND>(m.zero)) {
            const int group = (int)threadIdx.x / 128, warp = (int)threadIdx.x / 32 % 4,
                      l = (int)threadIdx.x % 32;
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const int tile = gated ? group * 2 + warp / 2 + r * OF_BOX : group * 4 + warp,
                          eight = gated ? warp % 2 : r;
                codes_at[r] = (uint32_t)(tile * GROUPS_CHUNK_BYTES + eight * 512 + l * 16);
                scales_at[r] = (uint32_t)(CODES + tile * m.chunk_scale +
                                          (eight * 8 + l / 4) * (OFFSET ? 8 : 4));
            }
        }
        // A row's operands of 16 columns, from `v`, times the scale of their unit.
        __device__ __forceinline__ void scale(uint32_t &a, uint32_t &b, uint32_t w, int r,
                                              int step16) const {
            const uint32_t from =
                w + scales_at[r] + (uint32_t)((step16 >> unit_shift) * SCALE_WORDS * 4);
            if constexpr (KIND == GROUPS_NUMBERS) {
                const float s = load_shared_float(from);
                const uint32_t by = pack2<T>(s, s);
                a = multiplied(a, by, T()), b = multiplied(b, by, T());
            } else {
                const float2 by =
                    OFFSET ? load_shared_pair(from) : make_float2(load_shared_float(from), 0);
                const float2 x = unpack2(a, T()), y = unpack2(b, T());
                a = pack2<T>(fmaf(by.x, x.x, by.y), fmaf(by.x, x.y, by.y));
                b = pack2<T>(fmaf(by.x, y.x, by.y), fmaf(by.x, y.y, by.y));
            }
        }
        template <int N>
        __device__ __forceinline__ void multiply(float (&sum)[PAIRS / 2], uint32_t w, uint32_t x,
                                                 uint32_t x_tile, bool keep) const {
            const uint4 top = load_shared(w + codes_at[0]), bottom = load_shared(w + codes_at[1]);
            uint32_t a[2][2][4]; // of this word and of the one before
#pragma unroll
            for (int word = 0; word < WORDS; word++) { // 32 columns
                const uint64_t b =
                    tile_descriptor(x + (uint32_t)(word / 2) * x_tile) + word % 2 * 4;
                uint32_t(&now)[2][4] = a[word % 2];
                uint32_t first[4], second[4];
                code_pairs_at<T, KIND>(first, top, word, constants, nullptr);
                code_pairs_at<T, KIND>(second, bottom, word, constants, nullptr);
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    scale(first[2 * h], first[2 * h + 1], w, 0, 2 * word + h);
                    scale(second[2 * h], second[2 * h + 1], w, 1, 2 * word + h);
                    now[h][0] = first[2 * h], now[h][1] = second[2 * h];
                    now[h][2] = first[2 * h + 1], now[h][3] = second[2 * h + 1];
                }
                wgmma_fence();
#pragma unroll
                for (int h = 0; h < 2; h++)
                    wgmma<N>::rs(*(float(*)[N / 2]) sum, now[h], b + 2 * h, keep || word + h > 0,
                                 T());
                wgmma_commit();
                if (word == 0) continue;
                if (word < WORDS - 1)
                    wgmma_wait<1>();
                else
                    wgmma_wait<0>();
                wgmma_fence_operand(a[(word + 1) % 2]);
            }
            wgmma_fence_operand(a[1]);
        }
    };
#endif
};

template <typename T, int KIND, enum kind RESULT>
int launch_codes(const struct experts_product *p, const void *x, const CUtensorMap *maps,
                 cudaStream_t stream) {
    const struct groups_matrix m = groups_matrix_by(p->ld, p->cols);
    if constexpr (RESULT == RESULTS)
        return launch_wide<codes<T, KIND>, RESULTS>(p, m, x, maps, stream);
    else
        return launch_up<codes<T, KIND>>(p, m, x, maps, stream);
}

template <typename T, enum kind RESULT>
int launch_kind(const struct experts_product *p, const void *x, const CUtensorMap *maps,
                cudaStream_t stream) {
    GROUPS_KINDS(groups_matrix_by(p->ld, p->cols).kind,
                 return (launch_codes<T, KIND, RESULT>(p, x, maps, stream)));
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
           tensor_map_words(&maps[1], w->scales, tiles, (int64_t)m.n_groups * scale_words(m.kind),
                            OF_BOX, m.chunk_scale / 4);
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
