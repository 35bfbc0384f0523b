// Parts of the linears for one row and weights of 8 bits, gemv_8bit.cu and gemv_8bit_stay.cu: x as
// they multiply it, and the products.
#pragma once
#include "kernels/cuda/linear_finish.cuh"
#include "kernels/cuda/pdl.cuh"
#include "kernels/cuda/widen.cuh"

namespace {

constexpr int STEP = 128; // k of a step of a warp, and bytes of it in a row of W

// --- x -------------------------------------------------------------------------------------------

// A step of x in shared memory: for each of the `reads` words of 16 bytes that a lane wants, `parts`
// columns of B (digits, the lowest first) of 64 bytes, a word for each of t = 0 .. 3. Such a word is a
// lane's registers of B for two products, one after the other. The largest of a step's numbers
// becomes 2^top or more, and less than twice that.
template <typename W> struct x_of { // as f16
    static constexpr int parts = 1, reads = 4, step_bytes = parts * reads * 64;
    static constexpr int top = 13;
};
template <> struct x_of<int8_t> { // in digits
    static constexpr int parts = 3, reads = 2, step_bytes = parts * reads * 64;
    static constexpr int top = 20;
};

__device__ __forceinline__ void store_word(uint32_t to, uint32_t v) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(v) : "memory");
}

// Four k of each lane as f16.
__device__ __forceinline__ void store_x(uint32_t to, int lane, const float (&v)[4], e4m3) {
    uint32_t at = to + (uint32_t)(lane / 16 * 128 + lane % 4 / 2 * 64 + lane % 16 / 4 * 16);
    store_word(at + lane % 2 * 8, pack2<__half>(v[0], v[1]));
    store_word(at + lane % 2 * 8 + 4, pack2<__half>(v[2], v[3]));
}
// As digits, v = d0 + 256 d1 + 65536 d2, all of them -128 .. 127. F32's own addition rounds v to an
// integer, in the low bits of the sum, and 0x8080 more makes the lower two digits' bytes positive.
__device__ __forceinline__ void store_x(uint32_t to, int lane, const float (&v)[4], int8_t) {
    constexpr float magic = 12582912.0f + 32896.0f; // 1.5 2^23 + 0x8080: 0x4b40'8080 + v
    uint32_t u[4];
#pragma unroll
    for (int i = 0; i < 4; i++) u[i] = __float_as_uint(v[i] + magic);
    uint32_t low01 = __byte_perm(u[0], u[1], 0x5140), low23 = __byte_perm(u[2], u[3], 0x5140);
    uint32_t top01 = __byte_perm(u[0], u[1], 0x0062), top23 = __byte_perm(u[2], u[3], 0x0062);
    uint32_t at =
        to + (uint32_t)(lane / 16 * x_of<int8_t>::parts * 64 + lane % 16 / 4 * 16 + lane % 4 * 4);
    store_word(at, __byte_perm(low01, low23, 0x5410) ^ 0x80808080u);
    store_word(at + 64, __byte_perm(low01, low23, 0x7632) ^ 0x80808080u);
    // Its bytes are 64 more than the digit: 64 again makes it 128, whose bit is the sign's.
    store_word(at + 128, (__byte_perm(top01, top23, 0x5410) + 0x40404040u) ^ 0x80808080u);
}

// Four k of each lane, a step of x, to shared memory, times a power of two. Returns its inverse; of
// digits, which cannot say that x holds an infinity or a NaN, then a NaN.
template <typename T, typename W>
__device__ __forceinline__ float prepare(uint32_t to, int lane, uint2 four) {
    uint32_t most = __vmaxu2(four.x & 0x7fff7fffu, four.y & 0x7fff7fffu); // T's order is its bits'
    most = __reduce_max_sync(0xffffffffu, max(most >> 16, most & 0xffffu));
    int exponent = (int)(__float_as_uint(unpack2(most, T()).x) >> 23);
    int e = max(exponent, 24); // so that 2^(top - e) is a number; smaller ones come to nothing
    float up = __uint_as_float((uint32_t)(254 + x_of<W>::top - e) << 23);
    float2 a = unpack2(four.x, T()), b = unpack2(four.y, T());
    float v[4] = {a.x * up, a.y * up, b.x * up, b.y * up};
    store_x(to, lane, v, W());
    bool unsaid = x_of<W>::parts > 1 && exponent == 255;
    return __uint_as_float(unsaid ? 0x7fffffffu : (uint32_t)(e - x_of<W>::top) << 23);
}

// --- products ------------------------------------------------------------------------------------
__device__ __forceinline__ void mma_int8(int (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// A step: this lane's two copies of each of two groups' rows against x. W is A, its rows 0 to 7 the
// first group's and 8 to 15 the second's, so both share a product; x is B, a digit in each column. To
// v[group]: the sums of the group's row g, of digits 2t and 2t + 1 (e4m3 has one: .y is unset). Two chains
// of products.
__device__ __forceinline__ void multiply_step(float2 (&v)[2], const uint4 (&w)[2][2],
                                              const uint4 (&x)[2], int8_t) {
    int first[4] = {}, second[4] = {};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t one[4] = {w[0][i].x, w[1][i].x, w[0][i].y, w[1][i].y};
        const uint32_t other[4] = {w[0][i].z, w[1][i].z, w[0][i].w, w[1][i].w};
        mma_int8(first, one, x[i].x, x[i].y);
        mma_int8(second, other, x[i].z, x[i].w);
    }
    // Less than 2^22: added to the bits of 1.5 2^23 it is that number and the sum.
#pragma unroll
    for (int i = 0; i < 2; i++)
        v[i] = make_float2(__int_as_float(first[2 * i] + second[2 * i] + 0x4b400000) - 12582912.0f,
                           __int_as_float(first[2 * i + 1] + second[2 * i + 1] + 0x4b400000) -
                               12582912.0f);
}
__device__ __forceinline__ void multiply_step(float2 (&v)[2], const uint4 (&w)[2][2],
                                              const uint4 (&x)[4], e4m3) {
    auto low = [](uint32_t four) { return widen_low(four, __half(), e4m3()); };
    auto high = [](uint32_t four) { return widen_high(four, __half(), e4m3()); };
    float first[4] = {}, second[4] = {};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint4 w0 = w[0][i / 2], w1 = w[1][i / 2];
        const uint32_t a = word_at(w0, i % 2 * 2), b = word_at(w1, i % 2 * 2);
        const uint32_t c = word_at(w0, i % 2 * 2 + 1), d = word_at(w1, i % 2 * 2 + 1);
        const uint32_t one[4] = {low(a), low(b), high(a), high(b)};
        const uint32_t other[4] = {low(c), low(d), high(c), high(d)};
        mma(first, one, x[i].x, x[i].y, __half());
        mma(second, other, x[i].z, x[i].w, __half());
    }
#pragma unroll
    for (int i = 0; i < 2; i++) v[i].x = first[2 * i] + second[2 * i];
}

// What digits 2t and 2t + 1 are worth; those beyond the last one nothing.
template <typename W> __device__ __forceinline__ float2 worth_of(int t) {
    if (x_of<W>::parts == 1) return make_float2(1.0f, 0.0f);
    return t == 0 ? make_float2(1.0f, 256.0f) : make_float2(t == 1 ? 65536.0f : 0.0f, 0.0f);
}

// A warp's sums of a group, to (parts, 8 rows).
template <typename W>
__device__ __forceinline__ void put_sums(float *to, float2 sum, int g, int t) {
    constexpr int parts = x_of<W>::parts;
    if (2 * t < parts) to[2 * t * 8 + g] = sum.x;
    if (2 * t + 1 < parts) to[(2 * t + 1) * 8 + g] = sum.y;
}

} // namespace
