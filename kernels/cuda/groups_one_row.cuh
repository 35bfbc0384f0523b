// One row of x times weights of few bits, by blocks that stay (groups_stay.cu, experts_groups_stay.cu): x in shared memory,
// and a step of a warp, 256 columns of a tile of 16 rows or of two such tiles.
//
// W is A of the tensor cores' products, x each of B's eight columns. Not bytes but instructions are the bound
// (README.md, "Weights of few bits"). So codes become operands by one shift and one logical operation for two of them,
// without the last operation of code_pairs (groups.cuh): with x times x_factor, a group's sum is
// factor * (theirs - (base + zero) * the sum of x). It is multiplied by its scale in F32.
#pragma once
#include "kernels/cuda/groups.cuh"
#include "kernels/cuda/hopper.cuh"
#include <type_traits>

namespace {

// 16 + code: 16 is a power of two that leaves four bits of fraction for the code. above: two of it, in a register, because
// a logical operation takes one immediate at most, and the integer unit is the first to be busy.
template <typename T, int KIND> struct raw_codes {
    static constexpr bool bf16 = std::is_same<T, __nv_bfloat16>::value;
    static constexpr float base = 16.0f, x_factor = 1.0f, factor = 1.0f;
    static constexpr uint32_t sixteen = bf16 ? 0x41804180u : 0x4c004c00u;
    static __device__ __forceinline__ void pairs(uint32_t (&v)[4], uint32_t word, uint32_t above) {
        constexpr uint32_t mask = bf16 ? 0x00780078u : 0x03c003c0u;
        constexpr int up = bf16 ? 3 : 6; // where the code's bits belong
        v[0] = ((word << up) & mask) | above;
        v[1] = ((bf16 ? word >> 1 : word << 2) & mask) | above;
        v[2] = ((word >> (8 - up)) & mask) | above;
        v[3] = ((word >> (12 - up)) & mask) | above;
    }
};

// e2m1's bits where they lie are half the code times 2^-126 in bf16, times 2^-14 in f16; the least of them have no
// leading one.
template <typename T> struct raw_codes<T, GROUPS_NUMBERS> {
    static constexpr bool bf16 = std::is_same<T, __nv_bfloat16>::value;
    static constexpr float base = 0.0f, x_factor = bf16 ? 0x1p100f : 1.0f,
                           factor = bf16 ? 0x1p27f : 0x1p15f;
    static constexpr uint32_t sixteen = 0;
    static __device__ __forceinline__ void pairs(uint32_t (&v)[4], uint32_t word, uint32_t) {
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

constexpr int STEP = 2;                               // chunks
constexpr int X_CHUNK = GROUPS_CHUNK * 2;             // bytes of x
constexpr int STEP_CODES = STEP * GROUPS_CHUNK_BYTES; // of a tile

template <int KIND>
__host__ __device__ constexpr int groups_scale_row() { // bytes of a tile's and group's scales
    return 16 * (KIND == GROUPS_OFFSETS ? 8 : 4);
}

// A matrix in steps.
struct groups_steps {
    int32_t chunks, steps;
    int32_t unit_shift;  // columns that share a scale within a step: 16 << unit_shift
    int32_t scale_bytes; // of a tile and step
    float base;
    uint32_t above; // raw_codes
};
template <typename T, int KIND> struct groups_steps groups_steps_of(const struct groups_matrix &w) {
    const int unit = w.group < STEP * GROUPS_CHUNK ? w.group : STEP * GROUPS_CHUNK;
    struct groups_steps m = {w.chunks, (w.chunks + STEP - 1) / STEP, 0, 0,
                             0,        raw_codes<T, KIND>::sixteen};
    while (16 << m.unit_shift < unit) m.unit_shift++;
    m.scale_bytes = STEP * GROUPS_CHUNK / unit * groups_scale_row<KIND>();
    m.base = raw_codes<T, KIND>::base + (float)w.zero;
    return m;
}
// Bytes of x in shared memory, with zeros behind its last column; sums of x's units.
inline int groups_x_bytes(const struct groups_steps &m) {
    return m.steps * STEP * X_CHUNK;
}
inline int groups_x_units(const struct groups_steps &m) {
    return m.steps * (16 >> m.unit_shift);
}

// Eight columns of x from 8 v on, to the place where lanes find them: for each chunk and t, j after j, columns
// 16 j + 2t, + 1, + 8, + 9.
template <typename T, int KIND>
__device__ __forceinline__ void put_eight(char *x, int v, uint4 raw) {
    char *to = x + v / 16 * X_CHUNK + v % 16 / 2 * 8 + v % 2 * 4;
    using raw_of = raw_codes<T, KIND>;
    const uint32_t factor = pack2<T>(raw_of::x_factor, raw_of::x_factor);
#pragma unroll
    for (int t = 0; t < 4; t++) {
        uint32_t word = word_at(raw, t);
        // Exact: bf16's exponents reach far enough, and f16 has no factor.
        if (raw_of::x_factor != 1.0f) word = multiplied(word, factor, T());
        *(uint32_t *)(to + t * (X_CHUNK / 4)) = word;
    }
}

// The sums of x over units of columns, by whole warps whose lanes have eight columns each.
template <typename T>
__device__ __forceinline__ void put_sums(float *x_sums, int v, uint4 raw, int unit_shift) {
    float sum = 0.0f;
#pragma unroll
    for (int t = 0; t < 4; t++) {
        const float2 two = unpack2(word_at(raw, t), T());
        sum += two.x + two.y;
    }
    for (int other = 1; other < 2 << unit_shift; other *= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, other);
    if ((v & ((2 << unit_shift) - 1)) == 0) x_sums[v >> (unit_shift + 1)] = sum;
}

#ifdef PARLEY_SM90A
// By one lane: TILES tiles' codes and scales of a step of which `left` chunks exist, to `to`.
template <int KIND, int TILES>
__device__ __forceinline__ void request_step(uint32_t to, uint32_t bar,
                                             const char *const (&codes)[TILES],
                                             const char *const (&scales)[TILES], int left,
                                             const struct groups_steps &m) {
    const int code_bytes = left > 1 ? STEP_CODES : STEP_CODES / 2,
              scale_bytes =
                  left > 1 ? m.scale_bytes : max(m.scale_bytes / 2, groups_scale_row<KIND>());
    mbarrier_expect(bar, TILES * (code_bytes + scale_bytes));
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        tma_load_bytes(to + (uint32_t)(i * STEP_CODES), codes[i], code_bytes, bar, READ_ONCE);
        tma_load_bytes(to + (uint32_t)(TILES * STEP_CODES + i * m.scale_bytes), scales[i],
                       scale_bytes, bar, READ_ONCE);
    }
}

// By a warp: sum (rows g and g + 8 of each tile) += step `step` of the tiles that request_step left at `from`.
template <typename T, int KIND, int TILES>
__device__ __forceinline__ void groups_step(float (&sum)[TILES][2], uint32_t from,
                                            const char *x_here, const float *x_sums, int step,
                                            const struct groups_steps &m) {
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    // Two sums of a tile's group, so that a product need not wait for the one before. Only those of the first column are
    // used and reset.
    float of_group[TILES][2][4] = {};
#pragma unroll
    for (int part = 0; part < STEP; part++) {
        const int chunk = step * STEP + part;
        if (part && chunk == m.chunks) break;
        uint4 x[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[i] = *(const uint4 *)(x_here + chunk * X_CHUNK + t * (X_CHUNK / 4) + i * 16);
        uint4 top[TILES], bottom[TILES];
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            const uint32_t here =
                from + (uint32_t)(i * STEP_CODES + part * GROUPS_CHUNK_BYTES + lane * 16);
            top[i] = load_shared(here), bottom[i] = load_shared(here + 512);
        }
#pragma unroll
        for (int word = 0; word < 4; word++) {
            uint32_t first[TILES][4], second[TILES][4];
#pragma unroll
            for (int i = 0; i < TILES; i++) {
                raw_codes<T, KIND>::pairs(first[i], word_at(top[i], word), m.above);
                raw_codes<T, KIND>::pairs(second[i], word_at(bottom[i], word), m.above);
            }
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int step16 = part * 8 + 2 * word + h;
#pragma unroll
                for (int i = 0; i < TILES; i++) {
                    const uint32_t operand[4] = {first[i][2 * h], second[i][2 * h],
                                                 first[i][2 * h + 1], second[i][2 * h + 1]};
                    mma(of_group[i][h], operand, h ? x[word].z : x[word].x,
                        h ? x[word].w : x[word].y, T());
                }
                // Only e2m1 has groups of 16 columns here.
                if (KIND != GROUPS_NUMBERS && h == 0) continue;
                // A unit ends with its last column, and with the last chunk.
                const bool last = step16 == 7 && chunk + 1 == m.chunks;
                if (((step16 + 1) & ((1 << m.unit_shift) - 1)) && !last) continue;
                const int u = step16 >> m.unit_shift;
                const float of_x = raw_codes<T, KIND>::base != 0.0f
                                       ? x_sums[(step * 16 >> m.unit_shift) + u]
                                       : 0.0f;
#pragma unroll
                for (int i = 0; i < TILES; i++) {
                    const uint32_t at = from + (uint32_t)(TILES * STEP_CODES + i * m.scale_bytes +
                                                          u * groups_scale_row<KIND>() +
                                                          g * (groups_scale_row<KIND>() / 16));
                    float one = of_group[i][0][0] + of_group[i][1][0],
                          other = of_group[i][0][2] + of_group[i][1][2];
                    of_group[i][0][0] = of_group[i][1][0] = 0.0f;
                    of_group[i][0][2] = of_group[i][1][2] = 0.0f;
                    if (raw_codes<T, KIND>::base != 0.0f)
                        one = fmaf(-m.base, of_x, one), other = fmaf(-m.base, of_x, other);
                    if (KIND == GROUPS_OFFSETS) {
                        const float2 r = load_shared_pair(at), s = load_shared_pair(at + 64);
                        sum[i][0] = fmaf(r.y, of_x, fmaf(r.x, one, sum[i][0]));
                        sum[i][1] = fmaf(s.y, of_x, fmaf(s.x, other, sum[i][1]));
                    } else {
                        sum[i][0] = fmaf(load_shared_float(at), one, sum[i][0]);
                        sum[i][1] = fmaf(load_shared_float(at + 32), other, sum[i][1]);
                    }
                }
            }
        }
    }
}
#endif // PARLEY_SM90A

} // namespace
