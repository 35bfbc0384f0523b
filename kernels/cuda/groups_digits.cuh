// One row of x times integer codes of few bits, as integers: no code becomes a floating-point number.
//
//   x of a unit (columns that share a scale)  = v * 2^(E - 22), v an integer below 2^22: exact where x is at least 2^-14 of
//                                               the unit's largest, else rounded at 2^-23 of that
//   v                                         = 65536 d0 + 256 d1 + d2, signed bytes: columns of B in the tensor cores'
//                                               products of bytes; the others are of no use
//   A                                         codes: four of a word by one logical operation, `word & 0x0f0f0f0f`, and 16
//                                               times the other four by `word & 0xf0f0f0f0`; of 8 bits the word itself
//
// Sums of a unit are exact; they become F32 with its scale, like sums of other kernels.
#pragma once
#include "kernels/cuda/groups.cuh"

namespace {

// x in shared memory, 64 columns after another: [digit][t][word % 2][h] words of the four columns that a word of codes has
// in one h (groups.h: h 0 are its even nibbles), of 8 bits [digit][t][word] of a word's. 16 bytes more, so that stores of a warp meet no bank twice.
constexpr int DIGITS_COLUMNS = 64, DIGITS_BYTES = 3 * 64 + 16;

// Of lanes t 0 with digits d0 and d1, and t 1 with d2 in both places.
struct digits_unit {
    float2 of
        [2]; // 2^(E - 22) / 16 for what digits_sums::end adds up; what a scale (or an offset) is multiplied by besides;
             // both / GROUPS_SCALED
};

// The first of a lane's two vectors of 8 columns, among the 32 of half a warp's 256 columns, and how much further the other
// one is: 16 columns, of 8 bits 8.
template <bool BYTES> __device__ __forceinline__ int digits_vector(void) {
    const int lane = (int)threadIdx.x % 16;
    return BYTES ? 2 * lane : lane / 2 * 4 + lane % 2;
}
__host__ __device__ constexpr int digits_next(bool bytes) {
    return bytes ? 1 : 2;
}

// By half a warp: 256 columns, 16 of each lane. even, odd: columns 32 w + 8 h .. + 7 and 16 further, lane % 16 = 2 w + h; of
// 8 bits columns 16 (lane % 16) .. + 7 and 8 further. Units begin at a multiple of 2 lanes, of 8 bits at any. OFFSET: the sum
// of x goes to units as it is, else times -zero.
template <typename T, bool OFFSET, bool BYTES>
__device__ __forceinline__ void put_digits(char *to, struct digits_unit *units, uint4 even,
                                           uint4 odd, int unit_shift, float zero, bool inside) {
    constexpr float magic =
        12582912.0f; // 1.5 * 2^23: a sum's low bits are the other summand as an integer
    const int lane = (int)threadIdx.x % 16, lanes = 1 << unit_shift;
    float2 x[2][4];
    float sum = 0.0f;
    uint32_t largest = 0; // as bits, so that a NaN is larger than all
#pragma unroll
    for (int t = 0; t < 4; t++) {
        x[0][t] = unpack2(word_at(even, t), T()), x[1][t] = unpack2(word_at(odd, t), T());
#pragma unroll
        for (int j = 0; j < 2; j++) {
            sum += x[j][t].x + x[j][t].y;
            largest = max(largest, max(__float_as_uint(x[j][t].x) & 0x7fffffffu,
                                       __float_as_uint(x[j][t].y) & 0x7fffffffu));
        }
    }
    for (int other = 1; other < lanes; other *= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, other);
        largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, other));
    }
    // |x| < 2^E, E = exponent - 126. Below 2^-92 digits are lost: the factors' exponents end there.
    const uint32_t exponent = max(largest >> 23, 34u);
    const float factor = __uint_as_float((275u - exponent) << 23); // 2^(22 - E)
    char *here = to + lane / 4 * DIGITS_BYTES + lane % 4 * 4;
#pragma unroll
    for (int t = 0; t < 4; t++) {
        uint32_t v[4]; // + 0x8080: then bytes 0 and 1, less 128, are signed digits
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 two = x[i % 2][t];
            v[i] = __float_as_uint(fmaf(i < 2 ? two.x : two.y, factor, magic)) -
                   (0x4b400000u - 0x8080u);
        }
        const uint32_t low = __byte_perm(v[0], v[1], 0x5140),
                       more = __byte_perm(v[2], v[3], 0x5140),
                       top = __byte_perm(v[0], v[1], 0x0062),
                       tops = __byte_perm(v[2], v[3], 0x0062);
        if (!inside) continue;
        uint32_t *word = (uint32_t *)(here + t * 16);
        word[0] = __byte_perm(top, tops, 0x5410);
        word[16] = __byte_perm(low, more, 0x7632) ^ 0x80808080u;
        word[32] = __byte_perm(low, more, 0x5410) ^ 0x80808080u;
    }
    if (!inside || lane % lanes != 0) return;
    const float besides = (OFFSET ? sum : -zero * sum) / GROUPS_SCALED;
    const bool finite = exponent < 255;
    // 2^(E - 22) times 256, which end() leaves out, and without GROUPS_SCALED
    constexpr uint32_t less = (BYTES ? 13 : 17) + 8;
    static_assert(GROUPS_SCALED == 1 << 8, "less");
    units[lane / lanes] = {
        {make_float2(finite ? __uint_as_float((exponent - less) << 23) : NAN, besides),
         // d2 counts 257 times
         make_float2(__uint_as_float((exponent - less - 8) << 23) / 257.0f, 0.0f)}};
}

// c += A B. A of signed bytes or of unsigned ones, B of signed ones.
template <bool SIGNED>
__device__ __forceinline__ void mma_bytes(int32_t (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                          uint32_t a3, uint32_t b0, uint32_t b1) {
    if constexpr (SIGNED)
        asm volatile(
            "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
            "{%8,%9}, {%0,%1,%2,%3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    else
        asm volatile(
            "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
            "{%8,%9}, {%0,%1,%2,%3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Sums of a unit by a lane: rows g and g + 8, digits 2t and 2t + 1.
struct digits_sums {
    int32_t low[4] = {}, high[4] = {};

    // 64 columns of a tile: two words of rows g and g + 8, and x of both h.
    __device__ __forceinline__ void add(uint32_t top, uint32_t bottom, uint32_t next_top,
                                        uint32_t next_bottom, uint4 x) {
        constexpr uint32_t odd = 0xf0f0f0f0u, even = 0x0f0f0f0fu;
        mma_bytes<false>(low, top & even, bottom & even, next_top & even, next_bottom & even, x.x,
                         x.z);
        mma_bytes<false>(high, top & odd, bottom & odd, next_top & odd, next_bottom & odd, x.y,
                         x.w);
    }
    // Of row g (r 0) or g + 8 (r 1). Below 2^31 in 256 columns: 257 * 16 * 15 * 128 * 256.
    __device__ __forceinline__ float end(int r) {
        const int32_t first = low[2 * r] * 16 + high[2 * r],
                      second = low[2 * r + 1] * 16 + high[2 * r + 1];
        low[2 * r] = high[2 * r] = low[2 * r + 1] = high[2 * r + 1] = 0;
        return (float)(first * 256 + second);
    }
};

// Likewise of codes of 8 bits: low for two blocks of 16 columns, high for the next two.
struct byte_sums {
    int32_t low[4] = {}, high[4] = {};

    // Words j = 0 .. 3 of rows g and g + 8, and of x.
    __device__ __forceinline__ void add(const uint4 &top, const uint4 &bottom, const uint4 &x) {
        mma_bytes<true>(low, top.x, bottom.x, top.y, bottom.y, x.x, x.y);
        mma_bytes<true>(high, top.z, bottom.z, top.w, bottom.w, x.z, x.w);
    }
    // Below 2^31 in 128 columns: 257 * 128 * 128 * 128.
    __device__ __forceinline__ float end(int r) {
        const int32_t first = low[2 * r] + high[2 * r], second = low[2 * r + 1] + high[2 * r + 1];
        low[2 * r] = high[2 * r] = low[2 * r + 1] = high[2 * r + 1] = 0;
        return (float)(first * 256 + second);
    }
    // The same of what was added to `high` alone, or to `low` alone.
    __device__ __forceinline__ float end_of(int32_t (&part)[4], int r) {
        const int32_t sum = part[2 * r] * 256 + part[2 * r + 1];
        part[2 * r] = part[2 * r + 1] = 0;
        return (float)sum;
    }
};

} // namespace
