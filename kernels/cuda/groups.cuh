// Weights of few bits in the kernels: where a matrix's codes and scales lie (groups.h), and codes as operands of the
// tensor cores' products.
#pragma once
#include "kernels/cuda/groups.h"
#include "kernels/cuda/mma.cuh"

namespace {

enum groups_kind {
    GROUPS_INTEGERS,     // code - zero
    GROUPS_OFFSETS,      // code; an offset for each group is added to the sum
    GROUPS_NUMBERS,      // e2m1, twice the number
    GROUPS_BOOKS,        // any 16 numbers
    GROUPS_WIDE,         // 8 bits: code
    GROUPS_WIDE_OFFSETS, // 8 bits: code, and an offset for each group
};
__host__ __device__ constexpr bool groups_of_bytes(int kind) {
    return kind == GROUPS_WIDE || kind == GROUPS_WIDE_OFFSETS;
}
__host__ __device__ constexpr bool groups_with_offsets(int kind) {
    return kind == GROUPS_OFFSETS || kind == GROUPS_WIDE_OFFSETS;
}
// Columns of a chunk; how many times 32 that is.
__host__ __device__ constexpr int groups_chunk_of(int kind) {
    return groups_of_bytes(kind) ? 64 : 128;
}
__host__ __device__ constexpr int groups_words(int kind) {
    return groups_chunk_of(kind) / 32;
}

// A row's scale of a group as it lies, or its scale and offset; and what they stand for.
template <bool OFFSET> struct scale_words { using type = __half; };
template <> struct scale_words<true> { using type = __half2; };
constexpr float SCALE_FACTOR = 1.0f / GROUPS_SCALED;
// Without SCALE_FACTOR.
__device__ __forceinline__ float2 plain(__half v) {
    return make_float2(__half2float(v), 0.0f);
}
__device__ __forceinline__ float2 plain(__half2 v) {
    return __half22float2(v);
}
// Not __ldg of a half: the compiler moves that out of an `if`, and then it reads past the end.
__device__ __forceinline__ __half ask_scale(const __half *from) {
    return __ushort_as_half(__ldg((const unsigned short *)from));
}
__device__ __forceinline__ __half2 ask_scale(const __half2 *from) {
    const unsigned int word = __ldg((const unsigned int *)from);
    return *(const __half2 *)&word;
}
template <typename W> __device__ __forceinline__ float2 scale_of(W v) {
    const float2 two = plain(v);
    return make_float2(two.x * SCALE_FACTOR, two.y * SCALE_FACTOR);
}
__device__ __forceinline__ void load_raw(__half &to, uint32_t from) { // of shared memory
    unsigned short bits;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(bits) : "r"(from));
    to = __ushort_as_half(bits);
}
__device__ __forceinline__ void load_raw(__half2 &to, uint32_t from) {
    const uint32_t word = load_shared_word(from);
    to = *(const __half2 *)&word;
}
__device__ __forceinline__ float load_shared_half(uint32_t from) {
    __half v;
    load_raw(v, from);
    return __half2float(v);
}
template <bool OFFSET> __device__ __forceinline__ float2 load_scale(uint32_t from) {
    typename scale_words<OFFSET>::type v;
    load_raw(v, from);
    return scale_of(v);
}
__host__ __device__ constexpr int scale_bytes(bool offset) {
    return offset ? 4 : 2;
}

struct groups_matrix {
    const uint4 *codes;
    const void *scales; // of scale_words
    const float *book;
    int32_t chunks, group, n_groups, zero;
    int32_t unit;                    // columns that share a scale within a chunk: 16 << unit_shift
    int32_t unit_shift, group_shift; // group = 1 << group_shift
    int32_t chunk_scale;             // bytes of a chunk's scales, of a tile
    enum groups_kind kind;
};

// By a weight's layout and columns alone, without its addresses.
inline struct groups_matrix groups_matrix_by(int32_t layout, int32_t cols) {
    struct groups_matrix m = {};
    const bool offset = layout & GROUPS_OFFSET;
    m.group = layout & GROUPS_SIZE;
    m.zero = layout / GROUPS_ZERO;
    m.chunks = groups_chunks(layout, cols);
    m.n_groups = groups_count(layout, cols);
    m.unit = m.group < groups_chunk(layout) ? m.group : groups_chunk(layout);
    while (16 << m.unit_shift < m.unit) m.unit_shift++;
    while (1 << m.group_shift < m.group) m.group_shift++;
    m.chunk_scale = groups_chunk(layout) / m.unit * 16 * scale_bytes(offset);
    m.kind = layout & GROUPS_E2M1    ? GROUPS_NUMBERS
             : layout & GROUPS_BOOK  ? GROUPS_BOOKS
             : layout & GROUPS_BYTES ? (offset ? GROUPS_WIDE_OFFSETS : GROUPS_WIDE)
             : offset                ? GROUPS_OFFSETS
                                     : GROUPS_INTEGERS;
    return m;
}

inline struct groups_matrix groups_matrix_of(const struct cuda_linear *a) {
    struct groups_matrix m = groups_matrix_by(a->ld, a->cols);
    m.book = (const float *)a->w;
    m.codes = (const uint4 *)((const char *)a->w + GROUPS_HEAD);
    m.scales = a->scale;
    return m;
}

// What code_pairs takes off the codes, or multiplies their bits by, and what it puts above integer codes: as two T.
struct code_constants {
    uint32_t by, above;
};
template <typename T> struct code_bits;
template <> struct code_bits<__nv_bfloat16> {
    // 128 + code, exactly (of 8 bits by byte_pair); 2^127, which makes twice the number of e2m1's bits
    static constexpr uint32_t above = 0x43004300u, factor = 0x7f007f00u;
    static constexpr float base = 128.0f;
};
template <> struct code_bits<__half> {
    // 1024 + code; 2^15
    static constexpr uint32_t above = 0x64006400u, factor = 0x78007800u;
    static constexpr float base = 1024.0f;
};
template <typename T, int KIND>
__device__ __forceinline__ struct code_constants code_constants_of(int zero) {
    struct code_constants c;
    const float v = code_bits<T>::base + (float)zero;
    c.by = KIND == GROUPS_NUMBERS ? code_bits<T>::factor : pack2<T>(v, v);
    // Zeros are not negative, which the compiler does not know: so this is a register. With two constants a logical
    // operation becomes two instructions.
    c.above = code_bits<T>::above | (uint32_t)(zero >> 31);
    return c;
}

__device__ __forceinline__ uint32_t minus(uint32_t a, uint32_t b, __nv_bfloat16) {
    const __nv_bfloat162 d = __hsub2(*(__nv_bfloat162 *)&a, *(__nv_bfloat162 *)&b);
    return *(uint32_t *)&d;
}
__device__ __forceinline__ uint32_t minus(uint32_t a, uint32_t b, __half) {
    const __half2 d = __hsub2(*(__half2 *)&a, *(__half2 *)&b);
    return *(uint32_t *)&d;
}
__device__ __forceinline__ uint32_t multiplied(uint32_t a, uint32_t b, __nv_bfloat16) {
    const __nv_bfloat162 d = __hmul2(*(__nv_bfloat162 *)&a, *(__nv_bfloat162 *)&b);
    return *(uint32_t *)&d;
}
__device__ __forceinline__ uint32_t multiplied(uint32_t a, uint32_t b, __half) {
    const __half2 d = __hmul2(*(__half2 *)&a, *(__half2 *)&b);
    return *(uint32_t *)&d;
}
__device__ __forceinline__ uint32_t times(uint32_t a, uint32_t b, __nv_bfloat16) {
    return multiplied(a, b, __nv_bfloat16());
}
// e2m1's exponent and fraction lie three bits higher in f16.
__device__ __forceinline__ uint32_t times(uint32_t a, uint32_t b, __half) {
    return multiplied((a & 0x80008000u) | (a & 0x01c001c0u) << 3, b, __half());
}

// A word's codes as two products' operands of one row: v[0] and v[1] are k 2t, 2t + 1 and 2t + 8, 2t + 9 of
// the first 16 columns, v[2] and v[3] of the next. table (256): pairs of a book's numbers, by two codes.
template <typename T, int KIND>
__device__ __forceinline__ void code_pairs(uint32_t (&v)[4], uint32_t word,
                                           const struct code_constants &c, const uint32_t *table) {
    constexpr uint32_t e2m1 = 0x81c081c0u;
    if (KIND == GROUPS_BOOKS) {
#pragma unroll
        for (int m = 0; m < 4; m++) v[m] = table[(word >> (8 * m)) & 0xff];
    } else if (KIND == GROUPS_NUMBERS) {
        v[0] = times(word & e2m1, c.by, T());
        v[1] = times((word << 3) & e2m1, c.by, T());
        v[2] = times((word << 6) & e2m1, c.by, T());
        v[3] = times(((word << 1) & 0x80008000u) | ((word >> 5) & 0x01000100u) |
                         ((word >> 4) & 0x00c000c0u),
                     c.by, T());
    } else {
#pragma unroll
        for (int m = 0; m < 4; m++)
            v[m] = minus(((word >> (4 * m)) & 0x000f000fu) | c.above, c.by, T());
    }
}

// Two signed bytes, the low ones of the halves of `word`, as two T. bf16: 128 and seven bits, less 128 or, where the eighth
// is set, 256. f16: 1,024 + 128 + code, less that.
__device__ __forceinline__ uint32_t byte_pair(uint32_t word, uint32_t above, __nv_bfloat16 t) {
    return minus((word & 0x007f007fu) | above, (word & 0x00800080u) | above, t);
}
__device__ __forceinline__ uint32_t byte_pair(uint32_t word, uint32_t above, __half t) {
    return minus((word & 0x00ff00ffu) ^ (above | 0x00800080u), above | 0x00800080u, t);
}

// 32 columns, block `i` of a lane's 16 bytes of codes, as code_pairs.
template <typename T, int KIND>
__device__ __forceinline__ void code_pairs_at(uint32_t (&v)[4], const uint4 &codes, int i,
                                              const struct code_constants &c,
                                              const uint32_t *table) {
    if constexpr (groups_of_bytes(KIND)) {
#pragma unroll
        for (int m = 0; m < 2; m++) {
            const uint32_t word = word_at(codes, 2 * i + m);
            v[2 * m] = byte_pair(word, c.above, T());
            v[2 * m + 1] = byte_pair(word >> 8, c.above, T());
        }
    } else {
        code_pairs<T, KIND>(v, word_at(codes, i), c, table);
    }
}

template <typename T>
__device__ __forceinline__ void fill_table(uint32_t *table, const float *book) {
    for (int i = (int)threadIdx.x; i < 256; i += (int)blockDim.x)
        table[i] = pack2<T>(book[i % 16], book[i / 16]);
}

} // namespace

// KIND a constant of the matrix's kind; GROUPS_KINDS without books.
#define GROUPS_KINDS(kind_, ...)                                                                   \
    do {                                                                                           \
        if ((kind_) == GROUPS_INTEGERS) {                                                          \
            constexpr int KIND = GROUPS_INTEGERS;                                                  \
            __VA_ARGS__;                                                                           \
        } else if ((kind_) == GROUPS_OFFSETS) {                                                    \
            constexpr int KIND = GROUPS_OFFSETS;                                                   \
            __VA_ARGS__;                                                                           \
        } else if ((kind_) == GROUPS_WIDE) {                                                       \
            constexpr int KIND = GROUPS_WIDE;                                                      \
            __VA_ARGS__;                                                                           \
        } else if ((kind_) == GROUPS_WIDE_OFFSETS) {                                               \
            constexpr int KIND = GROUPS_WIDE_OFFSETS;                                              \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            constexpr int KIND = GROUPS_NUMBERS;                                                   \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)
#define GROUPS_ALL_KINDS(kind_, ...)                                                               \
    do {                                                                                           \
        if ((kind_) == GROUPS_BOOKS) {                                                             \
            constexpr int KIND = GROUPS_BOOKS;                                                     \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            GROUPS_KINDS(kind_, __VA_ARGS__);                                                      \
        }                                                                                          \
    } while (0)
