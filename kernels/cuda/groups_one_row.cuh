// One row of x times weights of few bits, by blocks that stay (groups_stay.cu, experts_groups_stay.cu): x in shared memory,
// and a step of a warp, 256 columns of a tile of 16 rows or of two such tiles. A step's codes come in one piece, of 8 bits in
// two.
//
// W is A of the tensor cores' products. Not bytes but instructions are the bound (README.md, "Weights of few bits"):
//   integer codes   multiplied as integers by the digits of x (groups_digits.cuh): one logical operation for four codes
//   e2m1            multiplied as numbers of T
//
// Units, the columns that share a scale, have columns of B for themselves: e2m1 up to eight of them, and integer codes of less
// than a chunk two. So their sums are ended together, by different lanes.
#pragma once
#include "kernels/cuda/groups_digits.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/norm_row.cuh"

namespace {

// e2m1's bits where they lie are half the code times 2^-126 in bf16, times 2^-14 in f16; the least of them have no
// leading one. So x is multiplied by x_factor, which is exact, and the sum by `factor`.
template <typename T> struct e2m1_codes {
    static constexpr bool bf16 = std::is_same<T, __nv_bfloat16>::value;
    static constexpr float x_factor = bf16 ? 0x1p100f : 1.0f,
                           factor = (bf16 ? 0x1p27f : 0x1p15f) / GROUPS_SCALED;
    static __device__ __forceinline__ void pairs(uint32_t (&v)[4], uint32_t word) {
        constexpr uint32_t e2m1 = 0x81c081c0u;
        v[0] = word & e2m1;
        v[1] = (word << 3) & e2m1;
        v[2] = (word << 6) & e2m1;
        v[3] =
            ((word << 1) & 0x80008000u) | ((word >> 5) & 0x01000100u) | ((word >> 4) & 0x00c000c0u);
        if (!bf16)
#pragma unroll
            for (int m = 0; m < 4; m++) v[m] = (v[m] & 0x80008000u) | (v[m] & 0x01c001c0u) << 3;
    }
};

constexpr int STEP_COLUMNS = 256;
constexpr int NORM_VECTORS = 2;                                         // of a thread that norms x
constexpr int PIECE = 2;                                                // chunks
constexpr int PIECE_CODES = PIECE * GROUPS_CHUNK_BYTES;                 // of a tile
template <int KIND> __host__ __device__ constexpr int groups_pieces() { // of a step
    return STEP_COLUMNS / (PIECE * groups_chunk_of(KIND));
}

template <int KIND>
__host__ __device__ constexpr int groups_scale_row() { // bytes of a tile's and group's scales
    return 16 * scale_bytes(groups_with_offsets(KIND));
}
constexpr int NUMBERS_ZEROS = STEP_COLUMNS * 2; // where 16 bytes of zeros lie behind a step's x
template <int KIND> __host__ __device__ constexpr int groups_x_step() { // bytes of a step's x
    return KIND == GROUPS_NUMBERS ? NUMBERS_ZEROS + 16
                                  : STEP_COLUMNS / DIGITS_COLUMNS * DIGITS_BYTES;
}

// A matrix in steps.
struct groups_steps {
    int32_t chunks, pieces, steps;
    int32_t unit_shift;  // columns that share a scale within a piece: 16 << unit_shift
    int32_t scale_bytes; // of a tile and piece
    float zero;          // of all codes
};
template <int KIND> struct groups_steps groups_steps_of(const struct groups_matrix &w) {
    constexpr int columns = PIECE * groups_chunk_of(KIND);
    const int unit = w.group < columns ? w.group : columns;
    struct groups_steps m = {};
    m.chunks = w.chunks, m.zero = (float)w.zero;
    m.pieces = (w.chunks + PIECE - 1) / PIECE;
    m.steps = (m.pieces + groups_pieces<KIND>() - 1) / groups_pieces<KIND>();
    while (16 << m.unit_shift < unit) m.unit_shift++;
    m.scale_bytes = columns / unit * groups_scale_row<KIND>();
    return m;
}
// A row of x in shared memory, zeros behind its last column: bytes of its columns, and of what its units have in common.
template <int KIND> int groups_x_bytes(const struct groups_steps &m) {
    return m.steps * groups_x_step<KIND>();
}
template <int KIND> int groups_units_bytes(const struct groups_steps &m) {
    return KIND == GROUPS_NUMBERS
               ? 0
               : m.steps * (16 >> m.unit_shift) * (int)sizeof(struct digits_unit);
}

// By a warp: steps `first`, first + stride ... of a row of x to x_here and `units`. load(v) has columns 8v .. 8v + 7, zeros
// behind the last.
template <typename T, int KIND, typename Load>
__device__ __forceinline__ void put_steps(char *x_here, struct digits_unit *units, int first,
                                          int stride, const struct groups_steps &m, Load load) {
    const int lane = (int)threadIdx.x % 32;
    if constexpr (KIND == GROUPS_NUMBERS) {
        // A lane of a product finds its columns of a chunk side by side: for each t, j after j, columns 16 j + 2t, + 1, + 8,
        // + 9.
        const uint32_t factor = pack2<T>(e2m1_codes<T>::x_factor, e2m1_codes<T>::x_factor);
        for (int step = first; step < m.steps; step += stride) {
            const uint4 raw = load(step * 32 + lane);
            char *here = x_here + step * groups_x_step<KIND>();
            char *to = here + lane / 16 * (128 * 2) + lane % 16 / 2 * 8 + lane % 2 * 4;
            if (lane == 0) *(uint4 *)(here + NUMBERS_ZEROS) = make_uint4(0, 0, 0, 0);
#pragma unroll
            for (int t = 0; t < 4; t++) {
                uint32_t word = word_at(raw, t);
                if (e2m1_codes<T>::x_factor != 1.0f) word = multiplied(word, factor, T());
                *(uint32_t *)(to + t * (128 * 2 / 4)) = word;
            }
        }
    } else {
        // Half a warp has a step: 16 columns a lane. All that a lane reads is on its way at once.
        constexpr int AT_ONCE = 4;
        constexpr bool BYTES = groups_of_bytes(KIND);
        const int v = digits_vector<BYTES>();
        for (int begin = first + lane / 16 * stride; begin - lane / 16 * stride < m.steps;
             begin += AT_ONCE * 2 * stride) {
            uint4 even[AT_ONCE], odd[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                const int step = begin + i * 2 * stride;
                even[i] = odd[i] = make_uint4(0, 0, 0, 0);
                if (step >= m.steps) continue;
                even[i] = load(step * 32 + v);
                odd[i] = load(step * 32 + v + digits_next(BYTES));
            }
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                const int step = begin + i * 2 * stride;
                if (step - lane / 16 * stride >= m.steps) break; // the whole warp
                put_digits<T, groups_with_offsets(KIND), BYTES>(
                    x_here + step * groups_x_step<KIND>(), units + step * (16 >> m.unit_shift),
                    even[i], odd[i], m.unit_shift, m.zero, step < m.steps);
            }
        }
    }
}

#ifdef PARLEY_SM90A
// By one lane: TILES tiles' codes and scales of a piece of which `left` chunks exist, to `to`.
template <int KIND, int TILES>
__device__ __forceinline__ void request_piece(uint32_t to, uint32_t bar,
                                              const char *const (&codes)[TILES],
                                              const char *const (&scales)[TILES], int left,
                                              const struct groups_steps &m) {
    const int code_bytes = left > 1 ? PIECE_CODES : PIECE_CODES / 2,
              scale_bytes = groups_of_bytes(KIND) || left > 1
                                ? m.scale_bytes
                                : max(m.scale_bytes / 2, groups_scale_row<KIND>());
    mbarrier_expect(bar, TILES * (code_bytes + scale_bytes));
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        tma_load_bytes(to + (uint32_t)(i * PIECE_CODES), codes[i], code_bytes, bar, READ_ONCE);
        tma_load_bytes(to + (uint32_t)(TILES * PIECE_CODES + i * m.scale_bytes), scales[i],
                       scale_bytes, bar, READ_ONCE);
    }
}

// By a warp: a lane's codes of chunk `part` of the tiles of a piece, of rows g and of rows g + 8.
template <int TILES>
__device__ __forceinline__ void load_codes(uint4 (&top)[TILES], uint4 (&bottom)[TILES],
                                           uint32_t from, int part) {
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        const uint32_t here = from + (uint32_t)(i * PIECE_CODES + part * GROUPS_CHUNK_BYTES +
                                                (int)threadIdx.x % 32 * 16);
        top[i] = load_shared(here), bottom[i] = load_shared(here + 512);
    }
}

// By a warp, as groups_step: e2m1 codes. A step's units are up to eight columns of B, a chunk's where there are more: the
// lanes of column g have x where the unit is its own, else zeros. So lane (g, t) ends with rows g and g + 8 of units 2t and
// 2t + 1.
template <typename T, int TILES>
__device__ __forceinline__ void numbers_step(float (&sum)[TILES][2], uint32_t from, uint32_t scales,
                                             const char *x_here, int step,
                                             const struct groups_steps &m) {
    constexpr int row = groups_scale_row<GROUPS_NUMBERS>();
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4, shift = m.unit_shift;
    const char *x_step = x_here + step * groups_x_step<GROUPS_NUMBERS>();
    const int chunks = min(PIECE, m.chunks - step * PIECE); // that exist
    float of_units[TILES][2][4] =
        {}; // two of each, so that a product need not wait for the one before
#pragma unroll
    for (int part = 0; part < PIECE; part++) {
        if (part == chunks) break;
        uint4 top[TILES], bottom[TILES];
        load_codes<TILES>(top, bottom, from, part);
#pragma unroll
        for (int word = 0; word < 4; word++) {
            const int step16 = part * 8 + 2 * word;
            const bool first_mine = g == (step16 >> shift) % 8,
                       second_mine = g == ((step16 + 1) >> shift) % 8;
            uint4 x =
                *(const uint4 *)(x_step + (first_mine || second_mine
                                               ? part * (128 * 2) + t * (128 * 2 / 4) + word * 16
                                               : NUMBERS_ZEROS));
            if (shift == 0) { // units of 16 columns
                if (!first_mine) x.x = x.y = 0;
                if (!second_mine) x.z = x.w = 0;
            }
#pragma unroll
            for (int i = 0; i < TILES; i++) {
                uint32_t first[4], second[4];
                e2m1_codes<T>::pairs(first, word_at(top[i], word));
                e2m1_codes<T>::pairs(second, word_at(bottom[i], word));
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const uint32_t operand[4] = {first[2 * h], second[2 * h], first[2 * h + 1],
                                                 second[2 * h + 1]};
                    mma(of_units[i][h], operand, h ? x.z : x.x, h ? x.w : x.y, T());
                }
            }
        }
        if (shift > 0 && part + 1 < chunks) continue;
        const int units = shift > 0 ? max(chunks * 8 >> shift, 1) : 8; // that end here
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            float(&of)[2][4] = of_units[i];
            const uint32_t at = scales + (uint32_t)(i * m.scale_bytes + g * 2 +
                                                    ((shift > 0 ? 0 : part * 8) + 2 * t) * row);
#pragma unroll
            for (int u = 0; u < 2; u++)
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    const float scale = 2 * t + u < units
                                            ? load_shared_half(at + (uint32_t)(u * row + r * 16))
                                            : 0.0f;
                    sum[i][r] = fmaf(scale, of[0][2 * r + u] + of[1][2 * r + u], sum[i][r]);
                    of[0][2 * r + u] = of[1][2 * r + u] = 0.0f;
                }
        }
    }
}

// Ends units of a piece of the tiles, u of this lane: their sums times its scale go to the rows' sums. units: of the
// piece's x. end(i, r): tile i's sum, of row g (r 0) or g + 8.
template <int KIND, int TILES, typename End>
__device__ __forceinline__ void end_units(float (&sum)[TILES][2], uint32_t scales,
                                          const struct digits_unit *units, int u,
                                          const struct groups_steps &m, End end) {
    constexpr int row = groups_scale_row<KIND>();
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const float2 of = units[u].of[t % 2];
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        const uint32_t at = scales + (uint32_t)(i * m.scale_bytes + u * row + g * (row / 16));
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float of_codes = end(i, r);
            if (groups_with_offsets(KIND)) {
                const float2 scale = unpack2(load_shared_word(at + r * 32), __half());
                sum[i][r] = fmaf(scale.y, of.y, fmaf(scale.x, of_codes * of.x, sum[i][r]));
            } else {
                sum[i][r] =
                    fmaf(load_shared_half(at + r * 16), fmaf(of_codes, of.x, of.y), sum[i][r]);
            }
        }
    }
}

// By a warp, as groups_piece: integer codes. WIDE: units of a chunk or more. Else columns 0 to 3 of B are an even unit's digits
// and 4 to 7 the next one's: lanes t 0 and 1 end with the one, t 2 and 3 with the other.
template <int KIND, int TILES, bool WIDE>
__device__ __forceinline__ void digits_step(float (&sum)[TILES][2], uint32_t from, uint32_t scales,
                                            const char *x_here, const struct digits_unit *units,
                                            int step, const struct groups_steps &m) {
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const char *digit = x_here + step * groups_x_step<KIND>() + min(g % 4, 2) * 64 + t * 16;
    const bool words = m.unit_shift == 1; // units of 32 columns, else of 64
    units += step * 16 >> m.unit_shift;
    struct digits_sums of_unit[TILES];
    auto end = [&](int i, int r) { return of_unit[i].end(r); };
#pragma unroll
    for (int part = 0; part < PIECE; part++) {
        const int chunk = step * PIECE + part;
        if (part && chunk == m.chunks) break;
        uint4 top[TILES], bottom[TILES];
        load_codes<TILES>(top, bottom, from, part);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint4 x = *(const uint4 *)(digit + (part * 2 + half) * DIGITS_BYTES);
            if constexpr (!WIDE) {
                if (g / 4 != (words ? 0 : half)) x.x = x.y = 0;
                if (g / 4 != (words ? 1 : half)) x.z = x.w = 0;
            }
#pragma unroll
            for (int i = 0; i < TILES; i++)
                of_unit[i].add(word_at(top[i], half * 2), word_at(bottom[i], half * 2),
                               word_at(top[i], half * 2 + 1), word_at(bottom[i], half * 2 + 1), x);
            if (!WIDE && (words || half))
                end_units<KIND, TILES>(sum, scales, units,
                                       (words ? part * 4 + half * 2 : part * 2) + t / 2, m, end);
        }
        // A wide unit ends with its last column, and with the last chunk.
        if (WIDE && (part || m.unit_shift == 3 || chunk + 1 == m.chunks))
            end_units<KIND, TILES>(sum, scales, units, m.unit_shift == 3 ? part : 0, m, end);
    }
}

// The same of codes of 8 bits, of piece `piece`. WIDE: units of all its 128 columns.
template <int KIND, int TILES, bool WIDE>
__device__ __forceinline__ void bytes_piece(float (&sum)[TILES][2], uint32_t from, uint32_t scales,
                                            const char *x_here, const struct digits_unit *units,
                                            int piece, const struct groups_steps &m) {
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4, shift = m.unit_shift;
    const char *digit = x_here + piece / 2 * groups_x_step<KIND>() +
                        piece % 2 * PIECE * DIGITS_BYTES + min(g % 4, 2) * 64 + t * 16;
    units += piece * 8 >> shift;
    struct byte_sums of_unit[TILES];
    auto end = [&](int i, int r) { return of_unit[i].end(r); };
#pragma unroll
    for (int part = 0; part < PIECE; part++) {
        const bool last = part == 1 || piece * PIECE + 1 == m.chunks;
        uint4 top[TILES], bottom[TILES];
        load_codes<TILES>(top, bottom, from, part);
        uint4 x = *(const uint4 *)(digit + part * DIGITS_BYTES);
        if constexpr (!WIDE) {
            const bool odd = g >= 4; // of units
            if (odd != (bool)(shift == 2 && part)) x.x = 0;
            if (odd != (bool)(shift == 2 ? part : shift == 0)) x.y = 0;
            if (odd != (bool)(shift == 2 ? part : shift == 1)) x.z = 0;
            if (odd != (bool)(shift == 2 ? part : 1)) x.w = 0;
        }
#pragma unroll
        for (int i = 0; i < TILES; i++) of_unit[i].add(top[i], bottom[i], x);
        if (!WIDE && shift == 0) { // of 16 columns: one pair in `low`, one in `high`
            end_units<KIND, TILES>(sum, scales, units, part * 4 + t / 2, m, [&](int i, int r) {
                return of_unit[i].end_of(of_unit[i].low, r);
            });
            end_units<KIND, TILES>(sum, scales, units, part * 4 + 2 + t / 2, m, [&](int i, int r) {
                return of_unit[i].end_of(of_unit[i].high, r);
            });
        } else if (!WIDE && shift == 1) {
            end_units<KIND, TILES>(sum, scales, units, part * 2 + t / 2, m, end);
        } else if (last) {
            end_units<KIND, TILES>(sum, scales, units, WIDE ? 0 : t / 2, m, end);
        }
        if (last) break;
    }
}

// By a warp: adds piece `piece` of the tiles, whose codes lie at `from`, to this lane's part of their rows g and g + 8.
template <typename T, int KIND, int TILES>
__device__ __forceinline__ void groups_piece(float (&sum)[TILES][2], uint32_t from, uint32_t scales,
                                             const char *x_here, const struct digits_unit *units,
                                             int piece, const struct groups_steps &m) {
    if constexpr (KIND == GROUPS_NUMBERS) {
        numbers_step<T, TILES>(sum, from, scales, x_here, piece, m);
    } else if constexpr (groups_of_bytes(KIND)) {
        if (m.unit_shift >= 3)
            bytes_piece<KIND, TILES, true>(sum, from, scales, x_here, units, piece, m);
        else
            bytes_piece<KIND, TILES, false>(sum, from, scales, x_here, units, piece, m);
    } else if (m.unit_shift >= 3) {
        digits_step<KIND, TILES, true>(sum, from, scales, x_here, units, piece, m);
    } else {
        digits_step<KIND, TILES, false>(sum, from, scales, x_here, units, piece, m);
    }
}
// By all lanes: the row's sum from their parts, of use in lanes t 0.
template <typename T, int KIND>
__device__ __forceinline__ float groups_sum(float part, const struct groups_steps &m) {
    part += __shfl_xor_sync(0xffffffffu, part, 1);
    if (KIND == GROUPS_NUMBERS || m.unit_shift < 3) part += __shfl_xor_sync(0xffffffffu, part, 2);
    return KIND == GROUPS_NUMBERS ? part * e2m1_codes<T>::factor : part;
}
// A row's norm with norm_row's arithmetic, where half a warp has a step of x: a lane's two vectors of 8 columns are those of
// put_digits. So x need not go through shared memory. Of WARPS warps, two steps each.
template <int WARPS, bool BYTES> struct step_norm {
    float weight[NORM_VECTORS][8], bias[NORM_VECTORS][8];
    int vector[NORM_VECTORS], n; // 8 columns each; of the row
    int step;

    __device__ __forceinline__ step_norm(const struct cuda_linear &a, bool wanted) : n(a.cols / 8) {
        step = (int)threadIdx.x / 32 + (int)threadIdx.x % 32 / 16 * WARPS;
#pragma unroll
        for (int i = 0; i < NORM_VECTORS; i++) {
            vector[i] = step * 32 + digits_vector<BYTES>() + digits_next(BYTES) * i;
            if (!wanted || vector[i] >= n) continue;
            load_eight(weight[i], a.norm_weight + vector[i] * 8);
            if (a.norm_bias) load_eight(bias[i], a.norm_bias + vector[i] * 8);
        }
    }
    // The row's sum of what each of a lane's vectors has. parts (steps): shared memory.
    template <typename Sync>
    __device__ __forceinline__ float row_sum(float (&part)[NORM_VECTORS], float *parts,
                                             Sync sync) const {
        const int lane = (int)threadIdx.x % 32;
#pragma unroll
        for (int i = 0; i < NORM_VECTORS; i++) {
            if (vector[i] >= n) part[i] = 0.0f;
#pragma unroll
            for (int other = 8; other > (BYTES ? 0 : 1);
                 other /= 2) // vectors 16, 8, 4 (and 2) apart
                part[i] += __shfl_xor_sync(0xffffffffu, part[i], other);
        }
        float sum = part[0] + part[1]; // 2 apart, or 1
        if (!BYTES) sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        if (lane % 16 == 0) parts[step] = sum;
        sync();
        return warp_sum(lane < (n + 31) / 32 ? parts[lane] : 0.0f);
    }
    // raw: x, then normed. sync: the warps' barrier.
    template <typename T, typename Sync>
    __device__ __forceinline__ void run(uint4 (&raw)[NORM_VECTORS], const struct cuda_linear &a,
                                        float (*parts)[2 * WARPS], Sync sync) const {
        float v[NORM_VECTORS][8], part[NORM_VECTORS] = {}, mean = 0.0f;
#pragma unroll
        for (int i = 0; i < NORM_VECTORS; i++)
#pragma unroll
            for (int e = 0; e < 8; e++) v[i][e] = to_float(((const T *)&raw[i])[e]);
        if (a.norm == NORM_LAYER) {
#pragma unroll
            for (int i = 0; i < NORM_VECTORS; i++)
#pragma unroll
                for (int e = 0; e < 8; e++) part[i] += v[i][e];
            mean = row_sum(part, parts[0], sync) / (float)a.cols;
        }
#pragma unroll
        for (int i = 0; i < NORM_VECTORS; i++) {
            part[i] = 0.0f;
#pragma unroll
            for (int e = 0; e < 8; e++) part[i] = norm_square_added(part[i], v[i][e], mean);
        }
        const float scale = norm_scale(row_sum(part, parts[1], sync), a.cols, a.norm_eps);
#pragma unroll
        for (int i = 0; i < NORM_VECTORS; i++) {
            if (vector[i] >= n) continue;
#pragma unroll
            for (int e = 0; e < 8; e++) {
                const float r = norm_result(v[i][e], mean, scale, weight[i][e]);
                ((T *)&raw[i])[e] = from_float<T>(a.norm_bias ? __fadd_rn(r, bias[i][e]) : r);
            }
        }
    }
};
#endif // PARLEY_SM90A

} // namespace
