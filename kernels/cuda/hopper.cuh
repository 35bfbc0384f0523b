// Instructions of sm_90a: barriers in shared memory that count bytes (mbarrier), copies of tiles by
// one thread (TMA), clusters of blocks that read each other's shared memory, and products of a
// warpgroup, four warps, with operands in shared memory (wgmma).
//
// A product of a warpgroup: sums (64 rows, N columns) += A (64 rows, 16 k) B (16 k, N columns); of e4m3 numbers 32 k.
// Warp w of the four, g = lane / 4, t = lane % 4 hold of the sums
//     d[4 j], d[4 j + 1]: row 16 w + g, columns 8 j + 2 t and 8 j + 2 t + 1
//     d[4 j + 2], d[4 j + 3]: row 16 w + g + 8, the same columns
// and, where A comes from registers, of A what mma.cuh says. In shared memory both operands lie row
// by row (A's rows; B's columns), 128 bytes of k each, the 16-byte words of row r swizzled by r %
// 8, from an address that is a multiple of 1024: what a tensor map with CU_TENSOR_MAP_SWIZZLE_128B
// leaves there.
//
// An element's bits follow from its row of A, its column of B and the order of the products alone:
// neither its place in the tile nor N changes them. The ops' tests compare them.
#pragma once
#include "kernels/cuda/linear_wide.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/pdl.cuh"
#include <cuda.h>

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define PARLEY_SM90A 1 // this pass of the compiler makes code for sm_90a
#endif

enum { SWIZZLED_ROW = 128 }; // bytes of a tile's row in shared memory

// --- host: a tensor map --------------------------------------------------------------------------

// Of a row-major matrix (rows, cols) whose rows are ld elements apart, fetched in boxes of box_rows
// rows and 128 bytes; beyond its edges there are zeros. False where the driver takes it not
// (alignment).
bool tensor_map_of(CUtensorMap *map, const void *data, enum dtype dtype, int64_t rows, int64_t cols,
                   int64_t ld, int32_t box_rows);
// Of a matrix (rows, words) of 32 bits, whose rows are multiples of 16 bytes, in boxes (box_rows, box_words) of at most 256
// words, which lie in shared memory as they are.
bool tensor_map_words(CUtensorMap *map, const void *data, int64_t rows, int64_t words,
                      int32_t box_rows, int32_t box_words);
// Of a row-major matrix (rows, cols) of 16 bits whose rows are ld elements apart, seen as `parts` parts of rows / parts rows,
// each part as eights of rows. A box has 64 columns of 64 rows: an eight of each part in turn. parts is 1 or 2, rows / parts a
// multiple of 8. False as tensor_map_of.
bool tensor_map_eights(CUtensorMap *map, const void *data, enum dtype dtype, int64_t rows,
                       int64_t cols, int64_t ld, int32_t parts);
// Whether the current device runs sm_90a's code and the driver makes tensor maps.
bool hopper_here(void);

// How many clusters of so many blocks the current device has room for at once, 1 or more. Its multiprocessors come in
// groups, and a cluster lies in one of them, so that some may stay without.
int clusters_at_once(const void *kernel, int threads, int shared, int blocks);

// kernel<<<grid, block, shared, stream>>>(args...) in clusters of so many blocks, allowed to start
// early. The launcher still ends with cuda_launched().
template <typename... Params, typename... Args>
static inline void pdl_launch_cluster(void (*kernel)(Params...), dim3 grid, dim3 block,
                                      size_t shared, unsigned cluster, cudaStream_t stream,
                                      Args &&...args) {
    cudaLaunchAttribute attrs[2] = {};
    attrs[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attrs[0].val.programmaticStreamSerializationAllowed = 1;
    attrs[1].id = cudaLaunchAttributeClusterDimension;
    attrs[1].val.clusterDim.x = cluster;
    attrs[1].val.clusterDim.y = attrs[1].val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = attrs;
    config.numAttrs = cluster > 1 ? 2 : 1;
    cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...);
}

#ifdef PARLEY_SM90A

// --- barriers ------------------------------------------------------------------------------------

// bar: a shared address of 8 bytes. A phase ends after so many arrivals and all bytes that were expected.
__device__ __forceinline__ void mbarrier_init(uint32_t bar, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}
// After all mbarrier_init of a thread: copies and other blocks see them.
__device__ __forceinline__ void mbarrier_init_done(void) {
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async;" ::: "memory");
}
__device__ __forceinline__ void mbarrier_arrive(uint32_t bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void mbarrier_expect(uint32_t bar, int bytes) { // arrives too
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
                 : "memory");
}
// Until the phase of this parity has ended.
__device__ __forceinline__ void mbarrier_wait(uint32_t bar, int parity) {
    asm volatile("{\n.reg .pred done;\n"
                 "again:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra passed;\nbra again;\npassed:\n}" ::"r"(bar),
                 "r"(parity)
                 : "memory");
}
// More registers for the warpgroups that multiply, fewer for the one that loads (all its warps
// say it).
template <int registers> __device__ __forceinline__ void setmaxnreg_inc(void) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers> __device__ __forceinline__ void setmaxnreg_dec(void) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
// Some of the block's warps: n threads.
__device__ __forceinline__ void named_barrier(int id, int n) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory");
}

// --- tiles ---------------------------------------------------------------------------------------
constexpr uint64_t READ_ONCE = 0x12f0000000000000ull, READ_AGAIN = 0x14f0000000000000ull,
                   READ_PLAIN =
                       0x1000000000000000ull; // L2's policies: first to go, last to go, neither

// A box of `map` whose first element is (row, k), to shared memory; its bytes count at `bar`.
__device__ __forceinline__ void tma_load(uint32_t to, const CUtensorMap *map, int k, int row,
                                         uint32_t bar, uint64_t policy) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
                 "l"(map), "r"(k), "r"(row), "r"(bar), "l"(policy)
                 : "memory");
}
// Likewise of a map by tensor_map_eights: the box begins with eight number `eight` of each part.
__device__ __forceinline__ void tma_load_eights(uint32_t to, const CUtensorMap *map, int k,
                                                int eight, uint32_t bar, uint64_t policy) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".L2::cache_hint [%0], [%1, {%2, %3, %3, %4}], [%5], %6;" ::"r"(to),
                 "l"(map), "r"(k), "r"(0), "r"(eight), "r"(bar), "l"(policy)
                 : "memory");
}
// The same to the same place in the blocks of `mask` of the cluster, counting at each one's own
// barrier.
__device__ __forceinline__ void tma_load_multicast(uint32_t to, const CUtensorMap *map, int k,
                                                   int row, uint32_t bar, int mask,
                                                   uint64_t policy) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".multicast::cluster.L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5, %6;" ::"r"(to),
                 "l"(map), "r"(k), "r"(row), "r"(bar), "h"((uint16_t)mask), "l"(policy)
                 : "memory");
}

// `bytes` bytes, a multiple of 16, likewise.
__device__ __forceinline__ void tma_load_bytes(uint32_t to, const void *from, int bytes,
                                               uint32_t bar, uint64_t policy) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(bar), "l"(policy)
                 : "memory");
}

// --- copies from shared memory -------------------------------------------------------------------

// What this thread has written to shared memory is seen by copies that are requested behind the next barrier.
__device__ __forceinline__ void copies_see_writes(void) {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// From shared memory to the box of `map` whose first element is (row, k), as tma_load the other way.
__device__ __forceinline__ void tma_store(const CUtensorMap *map, int k, int row, uint32_t from) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
            map),
        "r"(k), "r"(row), "r"(from)
        : "memory");
}
// A group of the thread's copies since the last one.
__device__ __forceinline__ void copies_commit(void) {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Until all but so many of the thread's last groups have been read from shared memory.
template <int pending> __device__ __forceinline__ void copies_read(void) {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}
// Until all of them are where they go.
__device__ __forceinline__ void copies_written(void) {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// --- clusters ------------------------------------------------------------------------------------

// The two halves of cluster_sync. Between them the cluster's other blocks may not have begun yet, so that their shared
// memory is not theirs to write to.
__device__ __forceinline__ void cluster_meet(void) {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait(void) {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_sync(void) { // all threads of all its blocks
    cluster_meet();
    cluster_wait();
}
// The same place in the shared memory of block `rank` of the cluster.
__device__ __forceinline__ uint32_t cluster_address(uint32_t address, int rank) {
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}
// At another block's barrier: an address by cluster_address.
__device__ __forceinline__ void cluster_arrive(uint32_t bar) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(bar) : "memory");
}
// To an address by cluster_address, in a block that has begun (a cluster_wait); it reads it behind a cluster_sync.
__device__ __forceinline__ void cluster_store(uint32_t to, float v) {
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(to), "f"(v) : "memory");
}
// From an address by cluster_address, aligned to the size. The other block has written it before a cluster_sync.
__device__ __forceinline__ float4 cluster_load(uint32_t from) {
    float4 v;
    asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(from)
                 : "memory");
    return v;
}

__device__ __forceinline__ float2 cluster_load_pair(uint32_t from) {
    float2 v;
    asm volatile("ld.shared::cluster.v2.f32 {%0,%1}, [%2];"
                 : "=f"(v.x), "=f"(v.y)
                 : "r"(from)
                 : "memory");
    return v;
}

// --- wgmma ---------------------------------------------------------------------------------------

// Of a tile at `address`; + 2 for each further 32 bytes of k.
__device__ __forceinline__ uint64_t tile_descriptor(uint32_t address) {
    return (uint64_t)((address & 0x3ffff) >> 4) | 1ull << 16 |
           (uint64_t)(8 * SWIZZLED_ROW >> 4) << 32 | 1ull << 62;
}
// A descriptor that lies `words` words of 16 bytes behind, in 32 bits: the high half has no part of the address.
__device__ __forceinline__ uint64_t tile_behind(uint64_t descriptor, uint32_t words) {
    return (descriptor >> 32 << 32) | ((uint32_t)descriptor + words);
}
// The whole warpgroup calls fence, wgmma, commit. The fence orders them behind its writes of registers.
__device__ __forceinline__ void wgmma_fence(void) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit(void) {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until at most `pending` groups are under way. The sums are the caller's again after <0>.
template <int pending> __device__ __forceinline__ void wgmma_wait(void) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// The compiler neither reads sums before the wgmma_wait above it, nor reuses A's registers.
template <int N> __device__ __forceinline__ void wgmma_fence_results(float (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}
template <int N> __device__ __forceinline__ void wgmma_fence_operand(const uint32_t (&a)[N][4]) {
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" ::"r"(a[i][0]), "r"(a[i][1]), "r"(a[i][2]), "r"(a[i][3]));
}

// wgmma<N>::ss(d, a, b, keep, T()): d = (keep ? d : 0) + A B, descriptors; ::rs
// likewise with A's words, which must stay as they are until wgmma_wait; ::rs_transposed: B
// lies k by k, 64 columns in 128 bytes (attention_hopper.cu).
template <int N> struct wgmma;

#define REGISTERS_4 "%0,%1,%2,%3"
#define REGISTERS_8 REGISTERS_4 ",%4,%5,%6,%7"
#define REGISTERS_16 REGISTERS_8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define REGISTERS_32 REGISTERS_16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define REGISTERS_48 REGISTERS_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define REGISTERS_64                                                                               \
    REGISTERS_32                                                                                   \
    ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%"           \
    "52,%53,%54,%55,"                                                                              \
    "%56,%57,%58,%59,%60,%61,%62,%63"
#define REGISTERS_80 REGISTERS_64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define REGISTERS_96 REGISTERS_80 ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define REGISTERS_112                                                                              \
    REGISTERS_96                                                                                   \
    ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"
#define REGISTERS_128                                                                              \
    REGISTERS_112                                                                                  \
    ",%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define ACCUMULATORS_4(i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define ACCUMULATORS_8(i) ACCUMULATORS_4(i), ACCUMULATORS_4((i) + 4)
#define ACCUMULATORS_16(i) ACCUMULATORS_8(i), ACCUMULATORS_8((i) + 8)
#define ACCUMULATORS_32(i) ACCUMULATORS_16(i), ACCUMULATORS_16((i) + 16)
#define ACCUMULATORS_48(i) ACCUMULATORS_32(i), ACCUMULATORS_16((i) + 32)
#define ACCUMULATORS_64(i) ACCUMULATORS_32(i), ACCUMULATORS_32((i) + 32)
#define ACCUMULATORS_80(i) ACCUMULATORS_64(i), ACCUMULATORS_16((i) + 64)
#define ACCUMULATORS_96(i) ACCUMULATORS_64(i), ACCUMULATORS_32((i) + 64)
#define ACCUMULATORS_112(i) ACCUMULATORS_64(i), ACCUMULATORS_48((i) + 64)
#define ACCUMULATORS_128(i) ACCUMULATORS_64(i), ACCUMULATORS_64((i) + 64)

#define WGMMA_SS(N, COUNT, A, B, KEEP, TYPE)                                                       \
    asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, %" KEEP ", 0;\n"                          \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE                   \
                 " {" REGISTERS_##COUNT "}, %" A ", %" B ", keep, 1, 1, 0, 0;\n}"                  \
                 : ACCUMULATORS_##COUNT(0)                                                         \
                 : "l"(a), "l"(b), "r"(keep))
#define WGMMA_SS_E4M3(N, COUNT, A, B, KEEP)                                                        \
    asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, %" KEEP ", 0;\n"                          \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3"                        \
                 " {" REGISTERS_##COUNT "}, %" A ", %" B ", keep, 1, 1;\n}"                        \
                 : ACCUMULATORS_##COUNT(0)                                                         \
                 : "l"(a), "l"(b), "r"(keep))
#define WGMMA_RS(N, COUNT, A0, A1, A2, A3, B, KEEP, TYPE, TRANSPOSED)                              \
    asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, %" KEEP ", 0;\n"                          \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE                   \
                 " {" REGISTERS_##COUNT "}, {%" A0 ",%" A1 ",%" A2 ",%" A3 "}, %" B                \
                                        ", keep, 1, 1, " TRANSPOSED ";\n}"                         \
                 : ACCUMULATORS_##COUNT(0)                                                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep))
// P0 ...: the operands after the COUNT sums, by number.
#define WGMMA(N, COUNT, P0, P1, P2, P3, P4, P5)                                                    \
    template <> struct wgmma<N> {                                                                  \
        static __device__ __forceinline__ void ss(float (&d)[COUNT], uint64_t a, uint64_t b,       \
                                                  int keep, __nv_bfloat16) {                       \
            WGMMA_SS(N, COUNT, P0, P1, P2, "bf16");                                                \
        }                                                                                          \
        static __device__ __forceinline__ void ss(float (&d)[COUNT], uint64_t a, uint64_t b,       \
                                                  int keep, __half) {                              \
            WGMMA_SS(N, COUNT, P0, P1, P2, "f16");                                                 \
        }                                                                                          \
        static __device__ __forceinline__ void ss(float (&d)[COUNT], uint64_t a, uint64_t b,       \
                                                  int keep, e4m3) {                                \
            WGMMA_SS_E4M3(N, COUNT, P0, P1, P2);                                                   \
        }                                                                                          \
        static __device__ __forceinline__ void rs(float (&d)[COUNT], const uint32_t (&a)[4],       \
                                                  uint64_t b, int keep, __nv_bfloat16) {           \
            WGMMA_RS(N, COUNT, P0, P1, P2, P3, P4, P5, "bf16", "0");                               \
        }                                                                                          \
        static __device__ __forceinline__ void rs(float (&d)[COUNT], const uint32_t (&a)[4],       \
                                                  uint64_t b, int keep, __half) {                  \
            WGMMA_RS(N, COUNT, P0, P1, P2, P3, P4, P5, "f16", "0");                                \
        }                                                                                          \
        static __device__ __forceinline__ void rs_transposed(float (&d)[COUNT],                    \
                                                             const uint32_t (&a)[4], uint64_t b,   \
                                                             int keep, __nv_bfloat16) {            \
            WGMMA_RS(N, COUNT, P0, P1, P2, P3, P4, P5, "bf16", "1");                               \
        }                                                                                          \
        static __device__ __forceinline__ void rs_transposed(float (&d)[COUNT],                    \
                                                             const uint32_t (&a)[4], uint64_t b,   \
                                                             int keep, __half) {                   \
            WGMMA_RS(N, COUNT, P0, P1, P2, P3, P4, P5, "f16", "1");                                \
        }                                                                                          \
    }
WGMMA(8, 4, "4", "5", "6", "7", "8", "9");
WGMMA(16, 8, "8", "9", "10", "11", "12", "13");
WGMMA(32, 16, "16", "17", "18", "19", "20", "21");
WGMMA(64, 32, "32", "33", "34", "35", "36", "37");
WGMMA(96, 48, "48", "49", "50", "51", "52", "53");
WGMMA(128, 64, "64", "65", "66", "67", "68", "69");
WGMMA(160, 80, "80", "81", "82", "83", "84", "85");
WGMMA(192, 96, "96", "97", "98", "99", "100", "101");
WGMMA(224, 112, "112", "113", "114", "115", "116", "117");
WGMMA(256, 128, "128", "129", "130", "131", "132", "133");

#endif // PARLEY_SM90A
