// See peers.h. The small way sends data twice (data and epochs), and takes one store to a peer and the poll that
// sees it: some 2 microseconds over NVLink. The wide way takes two such trips and is bound by its bytes.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/pdl.cuh"
#include "kernels/cuda/peers.h"

namespace {

// POLLS: between looks for lost ranks. Of these looks a warp takes one of HOST_LOOKS at the host's memory, and
// different warps take theirs at different times. When every warp looked each time, 2,048 warps of a sum
// of 512 KiB read over the bus for half a millisecond; so the other rank waited as long, looked as well, and
// each sum until the step's end took a millisecond.
enum { POLLS = 1024, HOST_LOOKS = 64 };

// Whether a rank is lost. The host tells one warp; `lost`, in this GPU's memory, tells all others.
__device__ __forceinline__ bool is_lost(const peer_channel &c, uint32_t polls) {
    if (polls % POLLS != 0) return false;
    if (*(volatile uint32_t *)c.lost) return true;
    const uint32_t warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if ((polls / POLLS + warp) % HOST_LOOKS != 0 || !*(const volatile uint32_t *)c.abandoned)
        return false;
    *(volatile uint32_t *)c.lost = 1;
    return true;
}

__device__ __forceinline__ void put(char *slot, int32_t i, uint2 v, uint32_t epoch) {
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"((uint4 *)slot + i),
                 "r"(v.x), "r"(epoch), "r"(v.y), "r"(epoch)
                 : "memory");
}

// After the ranks were abandoned the values are of no use; the step fails.
__device__ __forceinline__ uint2 get(const peer_channel &c, const char *slot, int32_t i,
                                     uint32_t epoch) {
    for (uint32_t polls = 1;; polls++) {
        uint4 v;
        asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"((const uint4 *)slot + i)
                     : "memory");
        if (v.y == epoch && v.w == epoch) return make_uint2(v.x, v.z);
        if (is_lost(c, polls)) return make_uint2(0, 0);
    }
}

// The exchange of vector i: calls take(rank, vector) for every rank in order, this one included.
template <typename Take>
__device__ __forceinline__ void trade(const peer_channel &c, int32_t i, uint2 mine, uint32_t epoch,
                                      Take take) {
    const size_t half = (size_t)(epoch & 1) * (size_t)c.n;
    for (int32_t d = 1; d < c.n; d++) { // each rank begins with another one
        const int32_t to = (c.me + d) % c.n;
        put(c.memory[to] + (half + (size_t)c.me) * PEERS_SLOT_BYTES, i, mine, epoch);
    }
    for (int32_t r = 0; r < c.n; r++) {
        const char *slot = c.memory[c.me] + (half + (size_t)r) * PEERS_SLOT_BYTES;
        take(r, r == c.me ? mine : get(c, slot, i, epoch));
    }
}

// A block's epoch is read before its first thread counts it on.
__device__ __forceinline__ uint32_t begin_epoch(const peer_channel &c) {
    pdl_trigger();
    pdl_wait();
    return c.epochs[blockIdx.x];
}
__device__ __forceinline__ void end_epoch(const peer_channel &c, uint32_t epoch) {
    __syncthreads();
    if (threadIdx.x == 0) c.epochs[blockIdx.x] = epoch + 1;
}

template <typename T> union vector { // 8 bytes of T
    uint2 bits;
    T of[8 / sizeof(T)];
    __device__ vector() : bits() {}
};

template <typename T>
__global__ void __launch_bounds__(PEERS_THREADS)
    peers_sum_kernel(const peer_channel c, T *x, int32_t n_vectors) {
    constexpr int N = 8 / (int)sizeof(T);
    const int32_t i = (int32_t)(blockIdx.x * PEERS_THREADS + threadIdx.x);
    const uint32_t epoch = begin_epoch(c);
    if (i < n_vectors) {
        float sum[N];
        trade(c, i, ((const uint2 *)x)[i], epoch, [&](int32_t rank, uint2 bits) {
            vector<T> v;
            v.bits = bits;
            for (int k = 0; k < N; k++)
                sum[k] = rank == 0 ? to_float(v.of[k]) : __fadd_rn(sum[k], to_float(v.of[k]));
        });
        vector<T> v;
        for (int k = 0; k < N; k++) v.of[k] = from_float<T>(sum[k]);
        ((uint2 *)x)[i] = v.bits;
    }
    end_epoch(c, epoch);
}

// --- the wide way --------------------------------------------------------------------------------

__device__ __forceinline__ void raise(uint32_t *flag, uint32_t epoch) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(epoch) : "memory");
}
__device__ __forceinline__ void await(const peer_channel &c, const uint32_t *flag, uint32_t epoch) {
    for (uint32_t polls = 1;; polls++) {
        uint32_t v;
        asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(flag) : "memory");
        if (v == epoch) return;
        if (is_lost(c, polls)) return;
    }
}

__device__ __forceinline__ uint32_t *flag_of(char *wide, int32_t n, int32_t phase, int32_t rank) {
    return (uint32_t *)(wide + (size_t)4 * PEERS_WIDE_BYTES) +
           ((size_t)phase * (size_t)n + (size_t)rank) * PEERS_WIDE_BLOCKS + blockIdx.x;
}

// What this block has sent has arrived, and so has what the others' blocks of this index sent.
__device__ __forceinline__ void meet(const peer_channel &c, int32_t phase, uint32_t epoch) {
    const int32_t r = (int32_t)threadIdx.x;
    __syncthreads();
    if (r < c.n && r != c.me) {
        raise(flag_of(c.wide[r], c.n, phase, c.me), epoch);
        await(c, flag_of(c.wide[c.me], c.n, phase, r), epoch);
    }
    __syncthreads();
}

template <typename T> union wide_vector { // 16 bytes of T
    uint4 bits;
    T of[16 / sizeof(T)];
    __device__ wide_vector() : bits() {}
};

// Vectors of 16 bytes; n is a template's so that the parts' loads are in flight together.
template <typename T, int N>
__global__ void __launch_bounds__(PEERS_WIDE_THREADS)
    peers_wide_kernel(const peer_channel c, uint4 *x, int32_t n_vectors) {
    constexpr int32_t STRIDE = PEERS_WIDE_BLOCKS * PEERS_WIDE_THREADS;
    constexpr int32_t ROOM = PEERS_WIDE_BYTES / 16 / N; // vectors of a part
    pdl_trigger();
    pdl_wait();
    const uint32_t epoch = c.wide_epochs[blockIdx.x];
    const size_t half = (size_t)(epoch & 1) * PEERS_WIDE_BYTES;
    const int32_t first = (int32_t)(blockIdx.x * PEERS_WIDE_THREADS + threadIdx.x);
    const int32_t part = (n_vectors + N - 1) / N;
    auto length = [&](int32_t r) {
        const int32_t rest = n_vectors - r * part;
        return rest < part ? rest : part; // less than 0 for a part beyond the end
    };
    auto parts = [&](int32_t of) { return (uint4 *)(c.wide[of] + half); };
    auto sums = [&](int32_t of) {
        return (uint4 *)(c.wide[of] + 2 * (size_t)PEERS_WIDE_BYTES + half);
    };
#pragma unroll
    for (int d = 1; d < N; d++) {
        const int32_t to = (c.me + d) % N, end = length(to);
        uint4 *slot = parts(to) + (size_t)c.me * ROOM;
        for (int32_t i = first; i < end; i += STRIDE) slot[i] = x[to * part + i];
    }
    meet(c, 0, epoch);
    const int32_t mine = length(c.me);
    for (int32_t i = first; i < mine; i += STRIDE) {
        wide_vector<T> v[N], s;
#pragma unroll
        for (int r = 0; r < N; r++)
            v[r].bits = r == c.me ? x[c.me * part + i] : __ldcg(parts(c.me) + (size_t)r * ROOM + i);
#pragma unroll
        for (int k = 0; k < (int)(16 / sizeof(T)); k++) {
            float sum = to_float(v[0].of[k]);
#pragma unroll
            for (int r = 1; r < N; r++) sum = __fadd_rn(sum, to_float(v[r].of[k]));
            s.of[k] = from_float<T>(sum);
        }
        x[c.me * part + i] = s.bits;
#pragma unroll
        for (int d = 1; d < N; d++) sums((c.me + d) % N)[(size_t)c.me * ROOM + i] = s.bits;
    }
    meet(c, 1, epoch);
#pragma unroll
    for (int d = 1; d < N; d++) {
        const int32_t from = (c.me + d) % N, end = length(from);
        const uint4 *slot = sums(c.me) + (size_t)from * ROOM;
        for (int32_t i = first; i < end; i += STRIDE) x[from * part + i] = __ldcg(slot + i);
    }
    if (threadIdx.x == 0) c.wide_epochs[blockIdx.x] = epoch + 1;
}

struct gathered {
    float *out;
    const float *part;
    int32_t first[PEERS_MAX + 1]; // columns
    int64_t at;                   // the piece's first element of each part
    int32_t n_rows;
};

__global__ void __launch_bounds__(PEERS_THREADS)
    peers_gather_kernel(const peer_channel c, const gathered g, int32_t n_vectors) {
    const int32_t i = (int32_t)(blockIdx.x * PEERS_THREADS + threadIdx.x);
    const uint32_t epoch = begin_epoch(c);
    if (i < n_vectors) {
        const int64_t at = g.at + 2 * (int64_t)i;
        const int64_t own = (int64_t)g.n_rows * (g.first[c.me + 1] - g.first[c.me]);
        uint2 mine = make_uint2(at < own ? __float_as_uint(g.part[at]) : 0,
                                at + 1 < own ? __float_as_uint(g.part[at + 1]) : 0);
        trade(c, i, mine, epoch, [&](int32_t rank, uint2 v) {
            const int64_t cols = g.first[rank + 1] - g.first[rank];
            for (int k = 0; k < 2 && c.me == 0 && at + k < g.n_rows * cols; k++)
                g.out[(at + k) / cols * g.first[c.n] + g.first[rank] + (at + k) % cols] =
                    __uint_as_float(k ? v.y : v.x);
        });
    }
    end_epoch(c, epoch);
}

__global__ void __launch_bounds__(PEERS_THREADS)
    peers_copy_kernel(const peer_channel c, uint2 *x, int32_t n_vectors, int32_t from) {
    const int32_t i = (int32_t)(blockIdx.x * PEERS_THREADS + threadIdx.x);
    const uint32_t epoch = begin_epoch(c);
    if (i < n_vectors) {
        uint2 got = make_uint2(0, 0);
        trade(c, i, x[i], epoch, [&](int32_t rank, uint2 v) {
            if (rank == from) got = v;
        });
        if (c.me != from) x[i] = got;
    }
    end_epoch(c, epoch);
}

template <typename T>
__global__ void sum_parts_kernel(T *x, const T *parts, int32_t n_parts, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = to_float(parts[i]);
    for (int32_t r = 1; r < n_parts; r++) sum = __fadd_rn(sum, to_float(parts[r * n + i]));
    x[i] = from_float<T>(sum);
}

int64_t piece(int64_t rest) {
    return rest < (int64_t)PEERS_PIECE_BYTES ? rest : (int64_t)PEERS_PIECE_BYTES;
}

unsigned blocks_for(int64_t n_vectors) {
    return (unsigned)((n_vectors + PEERS_THREADS - 1) / PEERS_THREADS);
}

} // namespace

template <typename T>
static void sum_wide(const struct peer_channel *c, char *x, int64_t bytes, cudaStream_t stream) {
    void (*kernels[PEERS_MAX + 1])(const peer_channel, uint4 *,
                                   int32_t) = {NULL,
                                               NULL,
                                               peers_wide_kernel<T, 2>,
                                               peers_wide_kernel<T, 3>,
                                               peers_wide_kernel<T, 4>,
                                               peers_wide_kernel<T, 5>,
                                               peers_wide_kernel<T, 6>,
                                               peers_wide_kernel<T, 7>,
                                               peers_wide_kernel<T, 8>};
    for (int64_t at = 0; at < bytes; at += PEERS_WIDE_BYTES) {
        const int64_t rest = bytes - at;
        const int64_t n = rest < (int64_t)PEERS_WIDE_BYTES ? rest : (int64_t)PEERS_WIDE_BYTES;
        pdl_launch(kernels[c->n], PEERS_WIDE_BLOCKS, PEERS_WIDE_THREADS, 0, stream, *c,
                   (uint4 *)(x + at), (int32_t)(n / 16));
    }
}

int peers_sum(const struct peer_channel *c, void *x, enum dtype dtype, int64_t n,
              cudaStream_t stream) {
    const int64_t bytes = n * (int64_t)dtype_size(dtype);
    if (c->wide_epochs && (c->n - 1) * bytes > (int64_t)PEERS_PIECE_BYTES && bytes % 16 == 0) {
        DISPATCH(dtype, sum_wide<T>(c, (char *)x, bytes, stream));
        return cuda_launched("peers_sum");
    }
    for (int64_t at = 0; at < bytes; at += PEERS_PIECE_BYTES) {
        const int32_t count = (int32_t)(piece(bytes - at) / 8);
        DISPATCH(dtype, pdl_launch(peers_sum_kernel<T>, blocks_for(count), PEERS_THREADS, 0, stream,
                                   *c, (T *)((char *)x + at), count));
    }
    return cuda_launched("peers_sum");
}

int peers_gather(const struct peer_channel *c, float *out, const float *part, int32_t n_rows,
                 const int32_t first[PEERS_MAX + 1], cudaStream_t stream) {
    struct gathered g = {};
    int64_t most = 0; // elements of the largest part: all ranks launch the same blocks
    for (int32_t r = 0; r <= c->n; r++) g.first[r] = first[r];
    for (int32_t r = 0; r < c->n; r++) {
        const int64_t all = (int64_t)n_rows * (first[r + 1] - first[r]);
        if (all > most) most = all;
    }
    g.out = out;
    g.part = part;
    g.n_rows = n_rows;
    for (; g.at < most; g.at += PEERS_PIECE_BYTES / 4) {
        const int64_t rest = (most - g.at + 1) / 2, limit = PEERS_PIECE_BYTES / 8;
        const int32_t count = (int32_t)(rest < limit ? rest : limit);
        pdl_launch(peers_gather_kernel, blocks_for(count), PEERS_THREADS, 0, stream, *c, g, count);
    }
    return cuda_launched("peers_gather");
}

int peers_copy(const struct peer_channel *c, void *x, int64_t bytes, int32_t from,
               cudaStream_t stream) {
    for (int64_t at = 0; at < bytes; at += PEERS_PIECE_BYTES) {
        const int32_t count = (int32_t)(piece(bytes - at) / 8);
        pdl_launch(peers_copy_kernel, blocks_for(count), PEERS_THREADS, 0, stream, *c,
                   (uint2 *)((char *)x + at), count, from);
    }
    return cuda_launched("peers_copy");
}

int cuda_sum_parts(void *x, const void *parts, enum dtype dtype, int32_t n_parts, int64_t n,
                   cudaStream_t stream) {
    const unsigned blocks = (unsigned)((n + 255) / 256);
    DISPATCH(dtype,
             sum_parts_kernel<<<blocks, 256, 0, stream>>>((T *)x, (const T *)parts, n_parts, n));
    return cuda_launched("sum_parts");
}
