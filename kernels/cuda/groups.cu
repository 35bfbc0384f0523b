// linear with weights of few bits (groups.h has their layout). W's codes become numbers of 16 bits in registers and are
// the A of m16n8k16 products, x is B; the sum of a group is multiplied by its scale in F32. So the products are exact
// up to F32's sums, and the cost in registers is the same for 1 to 8 rows of x.
//
// A block takes 16 rows of W, its 8 warps take chunks in turn; each
// lane has four chunks under way. The warps' sums are added in order.
#include "kernels/cuda/groups.cuh"
#include "kernels/cuda/pdl.cuh"

namespace {

constexpr int WARPS = 8, THREADS = WARPS * 32, AHEAD = 4, MOST_ROWS = 32;

struct groups_product {
    struct groups_matrix w;
    void *y;
    const void *x;
    const float *bias;
    int32_t n, rows, cols;
    bool add, y_f32;
};

// NB: tiles of 8 rows of x.
template <typename T, int NB, int KIND>
__global__ void __launch_bounds__(THREADS)
    groups_kernel(const __grid_constant__ struct groups_product p) {
    constexpr bool OFFSET = groups_with_offsets(KIND);
    constexpr int CHUNK = groups_chunk_of(KIND), STEPS = CHUNK / 16;
    extern __shared__ float x_sums[]; // (n, units), OFFSET
    __shared__ float parts[WARPS][16][NB * 8];
    __shared__ uint32_t table[KIND == GROUPS_BOOKS ? 256 : 1];
    const struct groups_matrix &m = p.w;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4,
              t = lane % 4;
    const int64_t tile = blockIdx.x;
    const uint4 *codes = m.codes + tile * m.chunks * (GROUPS_CHUNK_BYTES / 16) + lane;
    using scale = typename scale_words<OFFSET>::type;
    const scale *scales = (const scale *)m.scales + tile * m.n_groups * 16;
    const int unit = m.unit, steps = unit / 16, n_units = m.chunks * CHUNK / unit;
    pdl_trigger();
    // Asked for before use: a chunk's codes to registers, its scales to L1.
    auto request = [&](uint4(&q)[2], int c) {
        if (c >= m.chunks) return;
        q[0] = __ldcs(codes + (int64_t)c * (GROUPS_CHUNK_BYTES / 16));
        q[1] = __ldcs(codes + (int64_t)c * (GROUPS_CHUNK_BYTES / 16) + 32);
        constexpr int LINE = 128 / scale_bytes(OFFSET); // of the cache
        const int first = c * CHUNK >> m.group_shift;
        if (lane * LINE < CHUNK / unit * 16)
            asm volatile(
                "prefetch.global.L1 [%0];" ::"l"(scales + (int64_t)first * 16 + lane * LINE));
    };
    uint4 q[AHEAD][2];
#pragma unroll
    for (int i = 0; i < AHEAD; i++) request(q[i], warp + i * WARPS);
    if (KIND == GROUPS_BOOKS) fill_table<T>(table, m.book);
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

    const struct code_constants constants = code_constants_of<T, KIND>(m.zero);
    float sum[NB][4] = {};
    for (int c0 = warp; c0 < m.chunks; c0 += AHEAD * WARPS) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const int c = c0 + i * WARPS;
            if (c >= m.chunks) break;
            const uint4 low = q[i][0], high = q[i][1];
            request(q[i], c + AHEAD * WARPS);
            float of_group[NB][4] = {};
            uint32_t top[4], bottom[4];
#pragma unroll
            for (int j = 0; j < STEPS; j++) {
                if (j % 2 == 0) {
                    code_pairs_at<T, KIND>(top, low, j / 2, constants, table);
                    code_pairs_at<T, KIND>(bottom, high, j / 2, constants, table);
                }
                const int at_pair = j % 2 * 2;
                const uint32_t a[4] = {top[at_pair], bottom[at_pair], top[at_pair + 1],
                                       bottom[at_pair + 1]};
                const int k = c * CHUNK + 16 * j + 2 * t;
#pragma unroll
                for (int b = 0; b < NB; b++) {
                    const int row = b * 8 + g;
                    const T *from = x + (int64_t)row * p.cols + k;
                    uint32_t first_x = 0, second_x = 0; // columns are multiples of 8
                    if (row < p.n && k < p.cols) first_x = *(const uint32_t *)from;
                    if (row < p.n && k + 8 < p.cols) second_x = *(const uint32_t *)(from + 8);
                    mma(of_group[b], a, first_x, second_x, T());
                }
                if ((j + 1) & (steps - 1)) continue;
                const int at = (c * CHUNK + 16 * j) >> m.group_shift,
                          u = (c * STEPS + j) >> m.unit_shift;
                const scale *s = scales + (int64_t)at * 16;
                const float2 first = scale_of(s[g]), second = scale_of(s[g + 8]); // rows
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

// The numbers of a lane's 16 bytes of codes: its columns of `chunk`, of row r of the tile.
template <typename T, int KIND>
__device__ __forceinline__ void widen_codes(T *to, const struct groups_product &p, int64_t tile,
                                            int r, int64_t chunk, int t, float factor,
                                            const uint32_t *table) {
    constexpr bool OFFSET = groups_with_offsets(KIND);
    constexpr int CHUNK = groups_chunk_of(KIND);
    const struct groups_matrix &m = p.w;
    const uint4 codes = m.codes[(tile * m.chunks + chunk) * 64 + r / 8 * 32 + r % 8 * 4 + t];
    const struct code_constants constants = code_constants_of<T, KIND>(m.zero);
#pragma unroll
    for (int j = 0; j < CHUNK / 16; j++) {
        uint32_t pairs[4];
        code_pairs_at<T, KIND>(pairs, codes, j / 2, constants, table);
        const int64_t first = chunk * CHUNK + 16 * j;
        if (first >= p.cols) break;
        const float2 by =
            scale_of(((const typename scale_words<OFFSET>::type *)
                          m.scales)[(tile * m.n_groups + (first >> m.group_shift)) * 16 + r]);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int64_t k = first + 8 * h + t * 2;
            if (k >= p.cols) break;
            const float2 v = unpack2(pairs[j % 2 * 2 + h], T());
            *(uint32_t *)(to + k) =
                pack2<T>(fmaf(by.x, v.x, by.y) * factor, fmaf(by.x, v.y, by.y) * factor);
        }
    }
}

// A thread for 16 bytes of a row's codes.
template <typename T, int KIND>
__global__ void __launch_bounds__(THREADS)
    groups_widen_kernel(T *dst, const __grid_constant__ struct groups_product p, int64_t n) {
    __shared__ uint32_t table[KIND == GROUPS_BOOKS ? 256 : 1];
    if (KIND == GROUPS_BOOKS) fill_table<T>(table, p.w.book);
    __syncthreads();
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n) return;
    const int64_t chunk = i / 64 % p.w.chunks, tile = i / 64 / p.w.chunks;
    const int r = (int)(i % 64 / 4);
    if (tile * 16 + r >= p.rows) return;
    widen_codes<T, KIND>(dst + (tile * 16 + r) * p.cols, p, tile, r, chunk, (int)(i % 4), 1.0f,
                         table);
}

// A block for a row of y, as embed.cu's.
template <typename T, int KIND>
__global__ void __launch_bounds__(THREADS)
    groups_embed_kernel(const int32_t *ids, const int32_t *drawn,
                        const __grid_constant__ struct groups_product p, float factor) {
    __shared__ uint32_t table[KIND == GROUPS_BOOKS ? 256 : 1];
    pdl_trigger();
    if (KIND == GROUPS_BOOKS) fill_table<T>(table, p.w.book);
    __syncthreads();
    int32_t id = ids[blockIdx.x];
    if (id < 0 && drawn) id = drawn[BATCH_DRAWN(id)];
    const bool known = id >= 0 && id < p.rows;
    T *y = (T *)p.y + (int64_t)blockIdx.x * p.cols;
    pdl_wait();
    for (int i = (int)threadIdx.x; known && i < p.w.chunks * 4; i += THREADS)
        widen_codes<T, KIND>(y, p, id / 16, id % 16, i / 4, i % 4, factor, table);
    for (int k = (int)threadIdx.x; !known && k < p.cols; k += THREADS) y[k] = from_float<T>(0.0f);
}

struct groups_product product_of(const struct cuda_linear *a) {
    return {groups_matrix_of(a), a->y, a->x, a->bias, a->n, a->rows, a->cols, a->add, a->y_f32};
}

template <typename T, int NB, int KIND>
void launch_rows(const struct groups_product &p, cudaStream_t stream) {
    auto kernel = groups_kernel<T, NB, KIND>;
    const size_t shared =
        groups_with_offsets(KIND)
            ? (size_t)p.n * (size_t)(p.w.chunks * groups_chunk_of(KIND) / p.w.unit) * sizeof(float)
            : 0;
    if (shared > 16384) cuda_allow_shared((const void *)kernel, shared);
    pdl_launch(kernel, dim3((unsigned)((p.rows + 15) / 16)), dim3(THREADS), shared, stream, p);
}

template <typename T, int KIND> int launch(struct groups_product p, cudaStream_t stream) {
    const int32_t n = p.n;
    for (int32_t row = 0; row < n; row += p.n) {
        p.n = n - row < MOST_ROWS ? n - row : MOST_ROWS;
        if (p.n <= 8)
            launch_rows<T, 1, KIND>(p, stream);
        else if (p.n <= 16)
            launch_rows<T, 2, KIND>(p, stream);
        else
            launch_rows<T, 4, KIND>(p, stream);
        TRY(cuda_launched("groups"));
        p.x = (const T *)p.x + (int64_t)p.n * p.cols;
        p.y = (char *)p.y + (size_t)p.n * (size_t)p.rows * (p.y_f32 ? 4 : sizeof(T));
    }
    return 0;
}

template <typename T, int KIND>
int widen(void *dst, const struct groups_product &p, cudaStream_t stream) {
    const int64_t n = ((int64_t)p.rows + 15) / 16 * p.w.chunks * 64;
    groups_widen_kernel<T, KIND>
        <<<(unsigned)((n + THREADS - 1) / THREADS), THREADS, 0, stream>>>((T *)dst, p, n);
    return cuda_launched("groups_widen");
}

} // namespace

int cuda_groups_linear(const struct cuda_linear *a, cudaStream_t stream) {
    const struct groups_product p = product_of(a);
    if (a->dtype == DTYPE_BF16)
        GROUPS_ALL_KINDS(p.w.kind, return (launch<__nv_bfloat16, KIND>(p, stream)));
    GROUPS_ALL_KINDS(p.w.kind, return (launch<__half, KIND>(p, stream)));
}

int cuda_groups_widen(void *dst, const struct cuda_linear *a, cudaStream_t stream) {
    const struct groups_product p = product_of(a);
    if (a->dtype == DTYPE_BF16)
        GROUPS_ALL_KINDS(p.w.kind, return (widen<__nv_bfloat16, KIND>(dst, p, stream)));
    GROUPS_ALL_KINDS(p.w.kind, return (widen<__half, KIND>(dst, p, stream)));
}

int cuda_groups_embed(void *y, const int32_t *ids, const int32_t *drawn, int32_t n,
                      const struct cuda_linear *w, float scale, cudaStream_t stream) {
    struct groups_product p = product_of(w);
    auto launch = [&](auto kernel) {
        pdl_launch(kernel, dim3((unsigned)n), dim3(THREADS), 0, stream, ids, drawn, p, scale);
        return cuda_launched("groups_embed");
    };
    p.y = y;
    if (w->dtype == DTYPE_BF16)
        GROUPS_ALL_KINDS(p.w.kind, return (launch(groups_embed_kernel<__nv_bfloat16, KIND>)));
    GROUPS_ALL_KINDS(p.w.kind, return (launch(groups_embed_kernel<__half, KIND>)));
}
