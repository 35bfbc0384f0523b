// linear with weights of few bits (groups.h has their layout). W's codes become integers of 16 bits in registers and are
// the A of m16n8k16 products, x is B; the sum of a group is multiplied by its scale in F32. So the products are exact
// up to F32's sums, and the cost in registers is the same for 1 to 8 rows of x.
//
// Bytes: rows * cols / 2 and the scales. A block takes 16 rows of W, its 8 warps take chunks of 128 columns in turn; each
// lane has four chunks under way. The warps' sums are added in order.
#include "kernels/cuda/groups.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/pdl.cuh"

namespace {

constexpr int WARPS = 8, THREADS = WARPS * 32, AHEAD = 4, MOST_ROWS = 32;

struct groups_product {
    void *y;
    const void *x;
    const uint4 *codes;
    const float *scales, *book, *bias;
    int32_t n, rows, cols, chunks, group, n_groups, zero;
    bool add, y_f32;
};

// Two codes, less the zero, as two T. Exact: 128 + code (bf16), 1024 + code (f16), less as much.
__device__ __forceinline__ uint32_t code_pair(uint32_t word, int m, uint32_t bias, __nv_bfloat16) {
    uint32_t v = ((word >> (4 * m)) & 0x000f000fu) | 0x43004300u;
    __nv_bfloat162 d = __hsub2(*(__nv_bfloat162 *)&v, *(__nv_bfloat162 *)&bias);
    return *(uint32_t *)&d;
}
__device__ __forceinline__ uint32_t code_pair(uint32_t word, int m, uint32_t bias, __half) {
    uint32_t v = ((word >> (4 * m)) & 0x000f000fu) | 0x64006400u;
    __half2 d = __hsub2(*(__half2 *)&v, *(__half2 *)&bias);
    return *(uint32_t *)&d;
}
__device__ __forceinline__ uint32_t bias_of(int zero, __nv_bfloat16) {
    return pack2<__nv_bfloat16>(128.0f + (float)zero, 128.0f + (float)zero);
}
__device__ __forceinline__ uint32_t bias_of(int zero, __half) {
    return pack2<__half>(1024.0f + (float)zero, 1024.0f + (float)zero);
}

// table: (256) pairs of a book's numbers, by two codes.
template <typename T>
__device__ __forceinline__ void fill_table(uint32_t *table, const float *book) {
    for (int i = (int)threadIdx.x; i < 256; i += (int)blockDim.x)
        table[i] = pack2<T>(book[i % 16], book[i / 16]);
}

template <typename T, bool BOOK>
__device__ __forceinline__ uint32_t pair_of(uint32_t word, int m, uint32_t bias,
                                            const uint32_t *table) {
    if (BOOK) return table[(word >> (8 * m)) & 0xff];
    return code_pair(word, m, bias, T());
}

__device__ __forceinline__ uint32_t word_of(const uint4 &v, int i) {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// NB: tiles of 8 rows of x.
template <typename T, int NB, bool OFFSET, bool BOOK>
__global__ void __launch_bounds__(THREADS)
    groups_kernel(const __grid_constant__ struct groups_product p) {
    extern __shared__ float x_sums[]; // (n, units), OFFSET
    __shared__ float parts[WARPS][16][NB * 8];
    __shared__ uint32_t table[BOOK ? 256 : 1];
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4,
              t = lane % 4;
    const int64_t tile = blockIdx.x;
    const uint4 *codes = p.codes + tile * p.chunks * (GROUPS_CHUNK_BYTES / 16) + lane;
    const float *scales = p.scales + tile * p.n_groups * (OFFSET ? 32 : 16);
    const int unit = min(p.group, GROUPS_CHUNK), steps = unit / 16,
              n_units = p.chunks * GROUPS_CHUNK / unit;
    pdl_trigger();
    // Asked for before use: a chunk's codes to registers, its scales to L1.
    auto request = [&](uint4(&q)[2], int c) {
        if (c >= p.chunks) return;
        q[0] = __ldcs(codes + (int64_t)c * (GROUPS_CHUNK_BYTES / 16));
        q[1] = __ldcs(codes + (int64_t)c * (GROUPS_CHUNK_BYTES / 16) + 32);
        const int first = c * GROUPS_CHUNK / p.group,
                  floats = (GROUPS_CHUNK / unit) * (OFFSET ? 32 : 16);
        if (lane * 32 < floats)
            asm volatile("prefetch.global.L1 [%0];" ::"l"(
                scales + (int64_t)first * (OFFSET ? 32 : 16) + lane * 32));
    };
    uint4 q[AHEAD][2];
#pragma unroll
    for (int i = 0; i < AHEAD; i++) request(q[i], warp + i * WARPS);
    if (BOOK) fill_table<T>(table, p.book);
    pdl_wait();
    const T *x = (const T *)p.x;
    if (OFFSET)
        for (int i = (int)threadIdx.x; i < p.n * n_units; i += THREADS) {
            const int first = i % n_units * unit;
            float sum = 0.0f;
            for (int k = first; k < min(first + unit, p.cols); k++)
                sum += to_float(x[(int64_t)(i / n_units) * p.cols + k]);
            x_sums[i] = sum;
        }
    __syncthreads();

    const uint32_t bias = bias_of(p.zero, T());
    float sum[NB][4] = {};
    for (int c0 = warp; c0 < p.chunks; c0 += AHEAD * WARPS) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const int c = c0 + i * WARPS;
            if (c >= p.chunks) break;
            const uint4 low = q[i][0], high = q[i][1];
            request(q[i], c + AHEAD * WARPS);
            float of_group[NB][4] = {};
#pragma unroll
            for (int j = 0; j < 8; j++) {
                const uint32_t a[4] = {
                    pair_of<T, BOOK>(word_of(low, j / 2), j % 2 * 2, bias, table),
                    pair_of<T, BOOK>(word_of(high, j / 2), j % 2 * 2, bias, table),
                    pair_of<T, BOOK>(word_of(low, j / 2), j % 2 * 2 + 1, bias, table),
                    pair_of<T, BOOK>(word_of(high, j / 2), j % 2 * 2 + 1, bias, table)};
                const int k = c * GROUPS_CHUNK + 16 * j + 4 * t;
#pragma unroll
                for (int b = 0; b < NB; b++) {
                    const int row = b * 8 + g;
                    uint2 v = make_uint2(0, 0);
                    if (row < p.n && k < p.cols)
                        v = *(const uint2 *)(x + (int64_t)row * p.cols + k);
                    mma(of_group[b], a, v.x, v.y, T());
                }
                if ((j + 1) % steps) continue;
                const int at = (c * GROUPS_CHUNK + 16 * j) / p.group,
                          u = (c * GROUPS_CHUNK + 16 * j) / unit;
                const float *s = scales + (int64_t)at * (OFFSET ? 32 : 16);
                float2 first, second; // of rows g and g + 8
                if (OFFSET) {
                    first = *(const float2 *)(s + 2 * g),
                    second = *(const float2 *)(s + 2 * g + 16);
                } else {
                    first = make_float2(s[g], 0.0f), second = make_float2(s[g + 8], 0.0f);
                }
#pragma unroll
                for (int b = 0; b < NB; b++)
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        const float2 of = e < 2 ? first : second;
                        sum[b][e] = fmaf(of.x, of_group[b][e], sum[b][e]);
                        of_group[b][e] = 0.0f;
                        if (!OFFSET) continue;
                        const int row = b * 8 + 2 * t + e % 2;
                        if (row < p.n) sum[b][e] = fmaf(of.y, x_sums[row * n_units + u], sum[b][e]);
                    }
            }
        }
    }
#pragma unroll
    for (int b = 0; b < NB; b++)
#pragma unroll
        for (int e = 0; e < 4; e++) parts[warp][g + e / 2 * 8][b * 8 + 2 * t + e % 2] = sum[b][e];
    __syncthreads();
    for (int i = (int)threadIdx.x; i < 16 * NB * 8; i += THREADS) {
        const int row = i % (NB * 8), r = i / (NB * 8);
        const int64_t o = tile * 16 + r;
        if (row >= p.n || o >= p.rows) continue;
        float v = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++) v += parts[w][r][row];
        if (p.bias) v += p.bias[o];
        const int64_t at = (int64_t)row * p.rows + o;
        if (p.y_f32) {
            ((float *)p.y)[at] = p.add ? ((float *)p.y)[at] + v : v;
        } else {
            T *y = (T *)p.y;
            y[at] = from_float<T>(p.add ? to_float(y[at]) + v : v);
        }
    }
}

// A thread for 32 codes of a row.
template <typename T, bool OFFSET, bool BOOK>
__global__ void __launch_bounds__(THREADS)
    groups_widen_kernel(T *dst, const __grid_constant__ struct groups_product p, int64_t n) {
    __shared__ uint32_t table[BOOK ? 256 : 1];
    if (BOOK) fill_table<T>(table, p.book);
    __syncthreads();
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n) return;
    const int lane = (int)(i % 32), half = (int)(i / 32 % 2);
    const int64_t chunk = i / 64 % p.chunks, tile = i / 64 / p.chunks;
    const int64_t row = tile * 16 + half * 8 + lane / 4;
    if (row >= p.rows) return;
    const uint4 codes = p.codes[i];
    const uint32_t bias = bias_of(p.zero, T());
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const int64_t k = chunk * GROUPS_CHUNK + 16 * j + lane % 4 * 4;
        if (k >= p.cols) break;
        const float *s =
            p.scales +
            (tile * p.n_groups + (chunk * GROUPS_CHUNK + 16 * j) / p.group) * (OFFSET ? 32 : 16);
        const int r = half * 8 + lane / 4;
        const float scale = OFFSET ? s[2 * r] : s[r], offset = OFFSET ? s[2 * r + 1] : 0.0f;
        const float2 a = unpack2(pair_of<T, BOOK>(word_of(codes, j / 2), j % 2 * 2, bias, table),
                                 T()),
                     b = unpack2(
                         pair_of<T, BOOK>(word_of(codes, j / 2), j % 2 * 2 + 1, bias, table), T());
        *(uint2 *)(dst + row * p.cols + k) =
            make_uint2(pack2<T>(fmaf(scale, a.x, offset), fmaf(scale, a.y, offset)),
                       pack2<T>(fmaf(scale, b.x, offset), fmaf(scale, b.y, offset)));
    }
}

struct groups_product product_of(const struct cuda_linear *a) {
    struct groups_product p = {};
    p.y = a->y, p.x = a->x, p.bias = a->bias;
    p.book = (const float *)a->w;
    p.codes = (const uint4 *)((const char *)a->w + GROUPS_HEAD);
    p.scales = a->scale;
    p.n = a->n, p.rows = a->rows, p.cols = a->cols;
    p.group = a->ld & GROUPS_SIZE;
    p.zero = a->ld / GROUPS_ZERO;
    p.chunks = groups_chunks(a->cols);
    p.n_groups = groups_count(a->cols, p.group);
    p.add = a->add, p.y_f32 = a->y_f32;
    return p;
}

template <typename T, int NB, bool OFFSET, bool BOOK>
void launch_rows(const struct groups_product &p, cudaStream_t stream) {
    auto kernel = groups_kernel<T, NB, OFFSET, BOOK>;
    const int unit = p.group < GROUPS_CHUNK ? p.group : GROUPS_CHUNK;
    const size_t shared =
        OFFSET ? (size_t)p.n * (size_t)(p.chunks * GROUPS_CHUNK / unit) * sizeof(float) : 0;
    if (shared > 16384) cuda_allow_shared((const void *)kernel, shared);
    pdl_launch(kernel, dim3((unsigned)((p.rows + 15) / 16)), dim3(THREADS), shared, stream, p);
}

template <typename T, bool OFFSET, bool BOOK>
int launch(struct groups_product p, cudaStream_t stream) {
    const int32_t n = p.n;
    for (int32_t row = 0; row < n; row += p.n) {
        p.n = n - row < MOST_ROWS ? n - row : MOST_ROWS;
        if (p.n <= 8)
            launch_rows<T, 1, OFFSET, BOOK>(p, stream);
        else if (p.n <= 16)
            launch_rows<T, 2, OFFSET, BOOK>(p, stream);
        else
            launch_rows<T, 4, OFFSET, BOOK>(p, stream);
        TRY(cuda_launched("groups"));
        p.x = (const T *)p.x + (int64_t)p.n * p.cols;
        p.y = (char *)p.y + (size_t)p.n * (size_t)p.rows * (p.y_f32 ? 4 : sizeof(T));
    }
    return 0;
}

template <typename T, bool OFFSET, bool BOOK>
int widen(void *dst, const struct groups_product &p, cudaStream_t stream) {
    const int64_t n = ((int64_t)p.rows + 15) / 16 * p.chunks * 64;
    groups_widen_kernel<T, OFFSET, BOOK>
        <<<(unsigned)((n + THREADS - 1) / THREADS), THREADS, 0, stream>>>((T *)dst, p, n);
    return cuda_launched("groups_widen");
}

} // namespace

// call<T, OFFSET, BOOK>(...) by the layout.
#define GROUPS_TYPED(T_, a_, call_, ...)                                                           \
    ((a_)->ld & GROUPS_OFFSET ? ((a_)->ld & GROUPS_BOOK ? call_<T_, true, true>(__VA_ARGS__)       \
                                                        : call_<T_, true, false>(__VA_ARGS__))     \
                              : ((a_)->ld & GROUPS_BOOK ? call_<T_, false, true>(__VA_ARGS__)      \
                                                        : call_<T_, false, false>(__VA_ARGS__)))

int cuda_groups_linear(const struct cuda_linear *a, cudaStream_t stream) {
    const struct groups_product p = product_of(a);
    return a->dtype == DTYPE_BF16 ? GROUPS_TYPED(__nv_bfloat16, a, launch, p, stream)
                                  : GROUPS_TYPED(__half, a, launch, p, stream);
}

int cuda_groups_widen(void *dst, const struct cuda_linear *a, cudaStream_t stream) {
    const struct groups_product p = product_of(a);
    return a->dtype == DTYPE_BF16 ? GROUPS_TYPED(__nv_bfloat16, a, widen, dst, p, stream)
                                  : GROUPS_TYPED(__half, a, widen, dst, p, stream);
}
