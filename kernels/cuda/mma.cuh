// The tensor cores' m16n8k16 product and the asynchronous copies, as PTX names them.
//
// Who holds what in a warp, with g = lane / 4 and t = lane % 4:
//     A (16 rows, 16 k)   a[0]: row g, k 2t and 2t+1       a[1]: row g + 8, the same k
//                         a[2]: row g, k 2t+8 and 2t+9     a[3]: row g + 8, the same k
//     B (16 k, 8 columns) b[0]: k 2t and 2t+1, column g    b[1]: k 2t+8 and 2t+9, column g
//     C (16 rows, 8)      c[0], c[1]: row g, columns 2t and 2t+1      c[2], c[3]: row g + 8
// The order of k does not matter, as long as A and B agree: a lane that holds 8 k in a row (16
// bytes) of A's row g and of B's column g may call the first four of them k 2t, 2t+1, 2t+8, 2t+9 of
// one product and the last four those of the next. So fragments are loaded straight from row-major
// memory, 16 bytes a lane. Rows are independent: a row's sum has the same bits whatever the other rows
// hold.
#pragma once
#include "kernels/cuda/device.cuh"

// 16 bytes of a weight, which L1 does not keep.
__device__ __forceinline__ uint4 load_weight(const void *from) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
}

__device__ __forceinline__ uint32_t word_at(const uint4 &v, int i) {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// c += A B, summed in F32. The last argument only chooses the type of A and B.
__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                    __nv_bfloat16) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                    __half) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ uint32_t shared_address(const void *p) { // for the PTX below
    return (uint32_t)__cvta_generic_to_shared(p);
}
// 16 bytes into shared memory, or zeros (and nothing read) where !valid. Past L1.
__device__ __forceinline__ void copy_async(uint32_t to, const void *from, bool valid) {
    int bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(bytes)
                 : "memory");
}
// As copy_async, for data that the step reads once: L2 evicts it first and keeps x, the cache's last
// blocks and the kernels' code. Without the hint a decode step of Llama-1B took 3 % longer.
// Where `to` has a part that all lanes share, nvcc 13.0 may keep it in the uniform registers that
// hold the rank, and the instruction is an illegal one (op tests of long rows show it). Measured on
// sm_90 alone.
__device__ __forceinline__ void copy_once(uint32_t to, const void *from, bool valid) {
#if __CUDA_ARCH__ == 900
    const uint64_t evict_first = 0x12f0000000000000ull;
    asm volatile(
        "cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"r"(to),
        "l"(from), "r"(valid ? 16 : 0), "l"(evict_first)
        : "memory");
#else
    copy_async(to, from, valid);
#endif
}
// This thread's copies since the last call are a group.
__device__ __forceinline__ void copy_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most `pending` of this thread's groups are under way.
template <int pending> __device__ __forceinline__ void copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}
// Waits for the oldest of `stages` groups; `stages` is one of the lengths that a queue may have.
__device__ __forceinline__ void copy_wait_oldest(int stages) {
    switch (stages) {
    case 12:
        copy_wait<11>();
        break;
    case 8:
        copy_wait<7>();
        break;
    case 6:
        copy_wait<5>();
        break;
    case 4:
        copy_wait<3>();
        break;
    case 3:
        copy_wait<2>();
        break;
    case 2:
        copy_wait<1>();
        break;
    default:
        copy_wait<0>();
    }
}
// Addresses by shared_address, aligned to the size.
__device__ __forceinline__ float load_shared_float(uint32_t from) {
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(from) : "memory");
    return v;
}
__device__ __forceinline__ float2 load_shared_pair(uint32_t from) {
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(from) : "memory");
    return v;
}
__device__ __forceinline__ uint32_t load_shared_word(uint32_t from) {
    uint32_t v;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(from) : "memory");
    return v;
}
__device__ __forceinline__ uint2 load_shared_8(uint32_t from) { // 8 bytes
    uint2 v;
    asm volatile("ld.shared.v2.b32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(from) : "memory");
    return v;
}
__device__ __forceinline__ uint4 load_shared(uint32_t from) {
    uint4 v;
    asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(from)
                 : "memory");
    return v;
}
__device__ __forceinline__ void store_shared(uint32_t to, uint4 v) {
    asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z),
                 "r"(v.w)
                 : "memory");
}
// Four 8x8 matrices of 16-bit elements; lanes 8i .. 8i+7 give the addresses of the rows of matrix
// i. A lane gets row g, elements 2t and 2t+1 of each; transposed: rows 2t and 2t+1, element g.
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from)
                 : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&r)[4], uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from)
                 : "memory");
}
// The other way, to rows of 16 bytes that the lanes name.
__device__ __forceinline__ void store_matrices_transposed(uint32_t to, const uint32_t (&r)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(to),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

// Two F32 as a register of two T, the first in the low half.
template <typename T> __device__ __forceinline__ uint32_t pack2(float a, float b);
template <> __device__ __forceinline__ uint32_t pack2<__nv_bfloat16>(float a, float b) {
    __nv_bfloat162 v = __floats2bfloat162_rn(a, b);
    return *(uint32_t *)&v;
}
template <> __device__ __forceinline__ uint32_t pack2<__half>(float a, float b) {
    __half2 v = __floats2half2_rn(a, b);
    return *(uint32_t *)&v;
}
// Exact. The last argument only chooses the type.
__device__ __forceinline__ float2 unpack2(uint32_t v, __nv_bfloat16) {
    return __bfloat1622float2(*(__nv_bfloat162 *)&v);
}
__device__ __forceinline__ float2 unpack2(uint32_t v, __half) {
    return __half22float2(*(__half2 *)&v);
}

// int8 to T, exactly, two at a time in two to three operations. bf16 holds integers up to 256:
// 0x4300 with a byte's low 7 bits as mantissa is 128 + those bits, and 0x4300 with its sign bit is
// 128 or 256; their difference is the byte. f16 holds 1024 + byte as 0x6400 with the byte.
template <int selector> __device__ __forceinline__ uint32_t widened(uint32_t four, __nv_bfloat16) {
    uint32_t v = __byte_perm(four, 0x43434343u, selector), low = v & 0xff7fff7fu,
             high = v & 0xff80ff80u;
    __nv_bfloat162 d = __hsub2(*(__nv_bfloat162 *)&low, *(__nv_bfloat162 *)&high);
    return *(uint32_t *)&d;
}
template <int selector> __device__ __forceinline__ uint32_t widened(uint32_t four, __half) {
    uint32_t v = __byte_perm(four ^ 0x80808080u, 0x64646464u, selector), bias = 0x64806480u;
    __half2 d = __hsub2(*(__half2 *)&v, *(__half2 *)&bias);
    return *(uint32_t *)&d;
}
template <typename T> __device__ __forceinline__ uint32_t widen_low(uint32_t four, T t) {
    return widened<0x4140>(four, t);
}
template <typename T> __device__ __forceinline__ uint32_t widen_high(uint32_t four, T t) {
    return widened<0x4342>(four, t);
}
// cap * tanh(x / cap), 1e-6 of the cap off at most; inverse is 1 / cap.
__device__ __forceinline__ float power_of_two(float x);
__device__ __forceinline__ float soft_capped(float x, float cap, float inverse) {
    return cap - __fdividef(2.0f * cap, 1.0f + power_of_two(x * inverse * 2.8853900817779268f));
}

// 2^x, two units in the last place off at most, no special case for tiny results.
__device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
