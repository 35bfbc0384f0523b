// Latent attention around its softmax (kernels/backend.h, latent_attention): a matrix for each head, for its own part of a
// row, and what a row holds beside these products.
//
//   before   rows (n, n_heads + 1, rope + rank) of q and latents: for each head [rotated | k_h q]. Blocks behind the heads'
//            norm the latents, rotate what is beside them and write both to the cache.
//   behind   out (n, n_heads, v_dim) = v_h c of what attention gives. For few rows attention leaves the parts of its splits
//            (attention_wide.cu), and each block merges those of its head: one launch less.
//
// Few rows are bound by reading the matrices once, n_heads * rows * cols * 2 bytes; blocks of 32 outputs of one head, with
// all of a GLM-4.7-Flash key matrix under way at once. Many rows take tiles of 64 rows by 128 outputs through
// mma.sync. Both add the products of K in the same order, so a row's bits do not depend on the others; merging splits
// does. heads_any_kernel takes any shape and F32.
#include "kernels/cuda/kv_vector.cuh"
#include "kernels/cuda/latent.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/pdl.cuh"
#include "kernels/cuda/qkv_head.cuh"
#include <algorithm>

namespace {

constexpr int HEADS = 128; // of a launch

struct heads_table {
    const void *w[HEADS];
};

struct heads_product {
    void *y;
    const void *x;
    int32_t n, rows, cols, ld;
    int64_t x_row, x_head, y_row, y_head;
    int32_t first_head; // of this launch
};

// What a row holds beside the products; rows NULL: nothing.
struct place {
    void *rows; // (n, n_heads + 1, rope + rank)
    const void *q, *latents;
    int64_t q_row, latents_row;
    int32_t n, n_heads, nope, rope, rank, layer;
    enum rope_style style;
    const float *cos_sin, *norm;
    float eps;
    struct cuda_kv kv;
    struct cuda_batch b;
};

constexpr int WARPS = 4, THREADS = WARPS * 32, STEP = 64, STAGES = 4;

// MT tiles of 16 rows of x, and NT tiles of 8 outputs for each warp.
template <int MT, int NT> struct tile {
    static constexpr int rows = MT * 16, outputs = WARPS * NT * 8;
    static constexpr int x_bytes = rows * STEP * 2, stage = x_bytes + outputs * STEP * 2;
    static constexpr size_t bytes = (size_t)STAGES * stage;
};

// Byte offset of 16-byte word w of row r in a step's tile.
__device__ __forceinline__ uint32_t word_at(int r, int w) {
    return (uint32_t)(r * STEP * 2 + ((w ^ (r & 7)) * 16));
}

// A head's rotated parts of rows row0 .. row0 + n - 1, by all threads of a block.
template <typename T>
__device__ __forceinline__ void turn_queries(const struct place &p, int head, int row0, int n) {
    const int half = p.rope / 2, d = p.rope + p.rank;
    for (int i = (int)threadIdx.x; i < n * half; i += (int)blockDim.x) {
        const int pair = i % half;
        const int64_t row = row0 + i / half;
        const bool interleaved = p.style == ROPE_INTERLEAVED;
        const int at = interleaved ? 2 * pair : pair, to = interleaved ? at + 1 : pair + half;
        const T *q = (const T *)p.q + row * p.q_row + head * (p.nope + p.rope) + p.nope;
        T *y = (T *)p.rows + (row * (p.n_heads + 1) + head) * d;
        const float c = p.cos_sin[row * p.rope + pair], s = p.cos_sin[row * p.rope + half + pair];
        const float a = to_float(q[at]), b = to_float(q[to]);
        y[at] = from_float<T>(__fmaf_rn(a, c, -__fmul_rn(b, s)));
        y[to] = from_float<T>(__fmaf_rn(b, c, __fmul_rn(a, s)));
    }
}

// Of store_latents, for each block of n_warps: the norm's weights, and for each warp a vector and its angles.
__host__ __device__ inline size_t store_bytes(const struct place &p, int n_warps) {
    return (size_t)(p.rank + n_warps * (2 * p.rope + p.rank)) * sizeof(float);
}

// The cache's vectors of rows row0 .. row0 + n - 1, a warp for each: warp `first` of `apart` takes the first one. By all
// threads of a block, before its wait. buffer: store_bytes.
template <typename T>
__device__ __forceinline__ void store_latents(const struct place &p, int row0, int n, int first,
                                              int apart, float *buffer) {
    const int lane = (int)threadIdx.x % 32, d = p.rope + p.rank;
    float *weight = buffer, *head = buffer + p.rank + (int)threadIdx.x / 32 * (d + p.rope);
    float *angles = head + d;
    for (int i = (int)threadIdx.x; i < p.rank; i += (int)blockDim.x) weight[i] = p.norm[i];
    struct vector_place to = {};
    if (first < n) to = vector_place_of(p.kv, p.b, p.layer, row0 + first, 0);
    pdl_wait();
    __syncthreads();
    for (int r = first; r < n; r += apart) {
        const int64_t row = row0 + r;
        const T *x = (const T *)p.latents + row * p.latents_row;
        T *y = (T *)p.rows + (row * (p.n_heads + 1) + p.n_heads) * d;
#pragma unroll 6
        for (int i = lane; i < d; i += 32)
            head[i < p.rank ? p.rope + i : i - p.rank] = to_float(x[i]);
        for (int i = lane; i < p.rope; i += 32) angles[i] = p.cos_sin[row * p.rope + i];
        if (r != first) to = vector_place_of(p.kv, p.b, p.layer, (int32_t)row, 0);
        __syncwarp();
        norm_head<T>(head + p.rope, p.rank, weight, p.eps, lane);
        rotate_head<T>(head, p.style, p.rope, angles, lane);
        for (int i = lane; i < d; i += 32) y[i] = from_float<T>(head[i]);
        store_vector(p.kv, to, head, lane);
        __syncwarp();
    }
}

// Where the products are not this file's. Grid: heads and one more, groups of PLACE_ROWS rows.
enum { PLACE_ROWS = 16, PLACE_THREADS = 128 };
template <typename T>
__global__ void __launch_bounds__(PLACE_THREADS)
    place_kernel(const __grid_constant__ struct place p) {
    extern __shared__ __align__(128) char shared[];
    const int head = (int)blockIdx.x, row0 = (int)blockIdx.y * PLACE_ROWS,
              n = min(p.n - row0, (int)PLACE_ROWS);
    pdl_trigger();
    if (head == p.n_heads) {
        store_latents<T>(p, row0, n, (int)threadIdx.x / 32, PLACE_THREADS / 32, (float *)shared);
        return;
    }
    pdl_wait();
    turn_queries<T>(p, head, row0, n);
}

// Attention's splits of a row and head become x of the product, (rows, cols) of T from `to` on in steps of `step` bytes.
// factors (16, WIDE_SPLITS_MOST)
template <typename T>
__device__ __forceinline__ void merge_splits(const struct latent_parts &s, int head, int n,
                                             int cols, char *to, int step, float *factors) {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int chunk = head / s.lines, line = head % s.lines;
    for (int r = warp; r < n; r += WARPS) { // a split that saw nothing has a sum of 0
        const int64_t at = ((int64_t)r * s.n_chunks + chunk) * s.n_splits;
        float top = -INFINITY, sum = 0.0f;
        float2 end[WIDE_SPLITS_MOST / 32];
#pragma unroll
        for (int i = 0; i < WIDE_SPLITS_MOST / 32; i++) {
            const int split = i * 32 + lane;
            end[i] = split < s.n_splits
                         ? __ldcg((const float2 *)s.ends + (at + split) * s.lines + line)
                         : make_float2(-INFINITY, 0.0f);
            top = fmaxf(top, end[i].x);
        }
        top = warp_max(top);
#pragma unroll
        for (int i = 0; i < WIDE_SPLITS_MOST / 32; i++) {
            end[i].x = end[i].y == 0.0f ? 0.0f : power_of_two(end[i].x - top);
            sum += end[i].x * end[i].y;
        }
        sum = warp_sum(sum);
#pragma unroll
        for (int i = 0; i < WIDE_SPLITS_MOST / 32; i++)
            factors[r * WIDE_SPLITS_MOST + i * 32 + lane] = end[i].x / sum;
    }
    __syncthreads();
    const int words = (cols + STEP - 1) / STEP * (STEP / 8); // of 8 numbers
    for (int i = (int)threadIdx.x; i < n * words; i += THREADS) {
        const int r = i / words, w = i % words, n_splits = w * 8 < cols ? s.n_splits : 0;
        const int64_t at = ((int64_t)r * s.n_chunks + chunk) * s.n_splits;
        const float *from = s.parts + (at * s.lines + line) * s.dim + s.skip + w * 8;
        float v[8] = {};
#pragma unroll 4
        for (int split = 0; split < n_splits; split++, from += (int64_t)s.lines * s.dim) {
            const float f = factors[r * WIDE_SPLITS_MOST + split];
            const float4 a = __ldcg((const float4 *)from), b = __ldcg((const float4 *)from + 1);
            if (f == 0.0f) continue; // what it holds may be NaN
            v[0] += f * a.x, v[1] += f * a.y, v[2] += f * a.z, v[3] += f * a.w;
            v[4] += f * b.x, v[5] += f * b.y, v[6] += f * b.z, v[7] += f * b.w;
        }
        *(uint4 *)(to + w / 8 * step + word_at(r, w % 8)) = make_uint4(
            pack2<T>(v[0], v[1]), pack2<T>(v[2], v[3]), pack2<T>(v[4], v[5]), pack2<T>(v[6], v[7]));
    }
    __syncthreads();
}

// As many further "heads" store the latents of a tile's rows as give each a warp.
__host__ __device__ inline int store_slots(int rows, int output_tiles) {
    return (rows + output_tiles * WARPS - 1) / (output_tiles * WARPS);
}

// Grid: output tiles, heads (and those that store latents), row tiles. MERGED: x is in parts, of at most 16 rows.
template <typename T, int MT, int NT, bool MERGED>
__global__ void __launch_bounds__(THREADS)
    heads_kernel(const __grid_constant__ struct heads_table t,
                 const __grid_constant__ struct heads_product p,
                 const __grid_constant__ struct place beside,
                 const __grid_constant__ struct latent_parts splits) {
    using S = tile<MT, NT>;
    extern __shared__ __align__(128) char shared[];
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4,
              q = lane % 4;
    const int out0 = (int)blockIdx.x * S::outputs, head = (int)blockIdx.y,
              row0 = (int)blockIdx.z * S::rows;
    const int word = (int)threadIdx.x % 8, r0 = (int)threadIdx.x / 8; // 16 rows at a time
    pdl_trigger();
    if (beside.rows && p.first_head + head >= beside.n_heads) {
        const int slot = p.first_head + head - beside.n_heads;
        store_latents<T>(beside, row0, min(p.n - row0, S::rows),
                         (slot * (int)gridDim.x + (int)blockIdx.x) * WARPS + warp,
                         store_slots(S::rows, (int)gridDim.x) * (int)gridDim.x * WARPS,
                         (float *)shared);
        return;
    }
    const T *w = (const T *)t.w[head] + word * 8;
    const T *x = (const T *)p.x + head * p.x_head + word * 8;
    const uint32_t base = shared_address(shared);
    auto request_w = [&](int s) {
        const uint32_t to = base + (uint32_t)(s % STAGES * S::stage + S::x_bytes);
        const bool held = s * STEP + word * 8 < p.cols;
#pragma unroll
        for (int i = 0; i < S::outputs / 16; i++) {
            const int r = r0 + i * 16;
            const bool valid = held && out0 + r < p.rows;
            const T *from = valid ? w + (int64_t)(out0 + r) * p.ld + s * STEP : w;
            copy_async(to + word_at(r, word), from, valid);
        }
    };
    auto request_x = [&](int s) {
        const uint32_t to = base + (uint32_t)(s % STAGES * S::stage);
        const bool held = s * STEP + word * 8 < p.cols;
#pragma unroll
        for (int i = 0; i < MT; i++) {
            const int r = r0 + i * 16;
            const bool valid = held && row0 + r < p.n;
            const T *from = valid ? x + (row0 + r) * p.x_row + s * STEP : x;
            copy_async(to + word_at(r, word), from, valid);
        }
    };
    const int steps = (p.cols + STEP - 1) / STEP;
    for (int s = 0; s < STAGES - 1 && s < steps; s++) request_w(s); // not of an earlier kernel
    pdl_wait();
    for (int s = 0; s < STAGES - 1; s++) {
        if (!MERGED && s < steps) request_x(s);
        copy_commit();
    }
    // Merged rows lie behind the stages, a step's tile after the other, then their factors.
    constexpr int merged = STAGES * S::stage;
    if (MERGED)
        merge_splits<T>(splits, p.first_head + head, min(p.n, 16), p.cols, shared + merged,
                        S::x_bytes, (float *)(shared + merged + steps * S::x_bytes));
    float sum[MT][NT][4] = {};
    for (int s = 0; s < steps; s++) {
        copy_wait<STAGES - 2>();
        __syncthreads(); // the step has come, and the stage before is free
        if (s + STAGES - 1 < steps) {
            request_w(s + STAGES - 1);
            if (!MERGED) request_x(s + STAGES - 1);
        }
        copy_commit();
        const uint32_t stage = base + (uint32_t)(s % STAGES * S::stage), ws = stage + S::x_bytes;
        const uint32_t xs = MERGED ? base + (uint32_t)(merged + s * S::x_bytes) : stage;
#pragma unroll
        for (int k = 0; k < STEP / 32; k++) {
            uint32_t b[NT][4];
#pragma unroll
            for (int n = 0; n < NT; n++)
                load_matrices(b[n], ws + word_at((warp * NT + n) * 8 + lane % 8, k * 4 + lane / 8));
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    uint32_t a[4];
                    load_matrices(a,
                                  xs + word_at(m * 16 + lane % 16, k * 4 + half * 2 + lane / 16));
#pragma unroll
                    for (int n = 0; n < NT; n++)
                        mma(sum[m][n], a, b[n][half * 2], b[n][half * 2 + 1], T());
                }
        }
    }
    copy_wait<0>();
    T *y = (T *)p.y + head * p.y_head;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int r = row0 + m * 16 + g + e / 2 * 8,
                          o = out0 + (warp * NT + n) * 8 + 2 * q + e % 2;
                if (r >= p.n || o >= p.rows) continue;
                const int row = MERGED ? splits.rows[r] : r; // -1: none
                if (row >= 0) y[row * p.y_row + o] = from_float<T>(sum[m][n][e]);
            }
    if (beside.rows && blockIdx.x == 0)
        turn_queries<T>(beside, p.first_head + head, row0, min(p.n - row0, S::rows));
}

enum { ANY_TILE = 64, ANY_STEP = 16, ANY_EACH = 4, ANY_THREADS = 256 };

// As linear_simple.cu: 64 rows by 64 outputs, each result one chain over ascending K.
template <typename T>
__global__ void __launch_bounds__(ANY_THREADS)
    heads_any_kernel(const __grid_constant__ struct heads_table t,
                     const __grid_constant__ struct heads_product p) {
    __shared__ float xs[ANY_STEP][ANY_TILE + 4], ws[ANY_STEP][ANY_TILE + 4];
    const int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
    const int out0 = (int)blockIdx.x * ANY_TILE, head = (int)blockIdx.y,
              row0 = (int)blockIdx.z * ANY_TILE;
    const T *w = (const T *)t.w[head], *x = (const T *)p.x + head * p.x_head;
    pdl_trigger();
    pdl_wait();
    float sum[ANY_EACH][ANY_EACH] = {};
    for (int k0 = 0; k0 < p.cols; k0 += ANY_STEP) {
        for (int i = (int)threadIdx.x; i < ANY_TILE * ANY_STEP; i += ANY_THREADS) {
            const int r = i / ANY_STEP, k = i % ANY_STEP, at = k0 + k;
            const bool in_k = at < p.cols;
            xs[k][r] = in_k && row0 + r < p.n ? to_float(x[(row0 + r) * p.x_row + at]) : 0.0f;
            ws[k][r] =
                in_k && out0 + r < p.rows ? to_float(w[(int64_t)(out0 + r) * p.ld + at]) : 0.0f;
        }
        __syncthreads();
        for (int k = 0; k < ANY_STEP; k++)
            for (int i = 0; i < ANY_EACH; i++)
                for (int j = 0; j < ANY_EACH; j++)
                    sum[i][j] = fmaf(xs[k][ty * ANY_EACH + i], ws[k][tx + 16 * j], sum[i][j]);
        __syncthreads();
    }
    T *y = (T *)p.y + head * p.y_head;
    for (int i = 0; i < ANY_EACH; i++)
        for (int j = 0; j < ANY_EACH; j++) {
            const int r = row0 + ty * ANY_EACH + i, o = out0 + tx + 16 * j;
            if (r < p.n && o < p.rows) y[r * p.y_row + o] = from_float<T>(sum[i][j]);
        }
}

unsigned tile_count(int32_t n, int each) {
    return (unsigned)((n + each - 1) / each);
}

template <typename T, int MT, int NT, bool MERGED>
void launch_tiles(const struct heads_table &t, const struct heads_product &p, int32_t n_heads,
                  const struct place &beside, const struct latent_parts &splits,
                  cudaStream_t stream) {
    using S = tile<MT, NT>;
    auto kernel = heads_kernel<T, MT, NT, MERGED>;
    const size_t x = MERGED ? (size_t)((p.cols + STEP - 1) / STEP * S::x_bytes) : 0;
    const size_t bytes = S::bytes + x + (MERGED ? 16 * WIDE_SPLITS_MOST * sizeof(float) : 0);
    const unsigned tiles = tile_count(p.rows, S::outputs);
    const bool last = beside.rows && p.first_head + n_heads == beside.n_heads;
    const int slots = last ? store_slots(S::rows, (int)tiles) : 0;
    cuda_allow_shared((const void *)kernel, bytes);
    pdl_launch(kernel, dim3(tiles, (unsigned)(n_heads + slots), tile_count(p.n, S::rows)),
               dim3(THREADS), bytes, stream, t, p, beside, splits);
}

// Words of 16 bytes throughout.
template <typename T>
int launch_fast(const struct heads_table &t, const struct heads_product &p, int32_t n_heads,
                const struct place &beside, const struct latent_parts &splits,
                cudaStream_t stream) {
    if (p.cols % 8 || store_bytes(beside, WARPS) > tile<1, 1>::bytes) return CUDA_UNSUPPORTED;
    if (splits.parts) {
        launch_tiles<T, 1, 1, true>(t, p, n_heads, beside, splits, stream);
        return 0;
    }
    if (p.x_row % 8 || p.x_head % 8 || (uintptr_t)p.x % 16) return CUDA_UNSUPPORTED;
    if (p.n <= 32)
        launch_tiles<T, 1, 1, false>(t, p, n_heads, beside, splits, stream);
    else
        launch_tiles<T, 4, 4, false>(t, p, n_heads, beside, splits, stream);
    return 0;
}
template <>
int launch_fast<float>(const struct heads_table &, const struct heads_product &, int32_t,
                       const struct place &, const struct latent_parts &, cudaStream_t) {
    return CUDA_UNSUPPORTED;
}

template <typename T> int launch_place(const struct place &p, cudaStream_t stream) {
    const size_t bytes = store_bytes(p, PLACE_THREADS / 32);
    pdl_launch(place_kernel<T>, dim3((unsigned)p.n_heads + 1, tile_count(p.n, PLACE_ROWS)),
               dim3(PLACE_THREADS), bytes, stream, p);
    return cuda_launched("latent_place");
}

// A matrix for each of n_heads heads: y[r, h] = w_h x[r, h].
template <typename T>
int launch(struct heads_product p, const struct weight *w, int32_t n_heads, struct place beside,
           const struct latent_parts &splits, cudaStream_t stream) {
    for (int32_t n; p.first_head < n_heads; p.first_head += n) {
        struct heads_table t = {};
        n = std::min(n_heads - p.first_head, HEADS);
        for (int32_t h = 0; h < n; h++) t.w[h] = w[p.first_head + h].data;
        if (launch_fast<T>(t, p, n, beside, splits, stream) != 0) {
            if (beside.rows) TRY(launch_place<T>(beside, stream));
            beside.rows = NULL;
            pdl_launch(heads_any_kernel<T>,
                       dim3(tile_count(p.rows, ANY_TILE), (unsigned)n, tile_count(p.n, ANY_TILE)),
                       dim3(ANY_THREADS), 0, stream, t, p);
        }
        TRY(cuda_launched("latent_heads"));
        p.x = (const T *)p.x + n * p.x_head;
        p.y = (T *)p.y + n * p.y_head;
    }
    return 0;
}

struct heads_product product_of(const struct weight *w, int32_t n) {
    struct heads_product p = {};
    p.n = n, p.rows = w->rows, p.cols = w->cols, p.ld = w->layout;
    return p;
}

} // namespace

int cuda_latent_before(void *rows, const struct latent_args *a, const struct cuda_kv *kv,
                       const struct cuda_batch *b, enum dtype dtype, int32_t n,
                       cudaStream_t stream) {
    const int64_t d = a->rope_dim + a->rank;
    struct heads_product p = product_of(a->k, n);
    p.x = a->q, p.x_row = a->q_row, p.x_head = a->nope_dim + a->rope_dim;
    p.y_row = (a->n_heads + 1) * d, p.y_head = d;
    struct place beside = {rows,     a->q,       a->latents,  a->q_row,    a->latents_row,
                           n,        a->n_heads, a->nope_dim, a->rope_dim, a->rank,
                           a->layer, a->style,   a->cos_sin,  a->norm,     a->eps,
                           *kv,      *b};
    if (a->k->dtype != dtype) return E_UNSUPPORTED;
    int rc = 0;
    DISPATCH(dtype, p.y = (T *)rows + a->rope_dim;
             rc = launch<T>(p, a->k, a->n_heads, beside, {}, stream));
    return rc;
}

int cuda_latent_behind(void *out, const void *attended, const struct latent_parts *splits,
                       const struct latent_args *a, enum dtype dtype, int32_t n,
                       cudaStream_t stream) {
    const int64_t d = a->rope_dim + a->rank;
    struct heads_product p = product_of(a->v, n);
    p.y = out, p.y_row = (int64_t)a->n_heads * a->v_dim, p.y_head = a->v_dim;
    p.x_row = a->n_heads * d, p.x_head = d;
    if (a->v->dtype != dtype) return E_UNSUPPORTED;
    int rc = 0;
    DISPATCH(dtype, p.x = (const T *)attended + a->rope_dim;
             rc = launch<T>(p, a->v, a->n_heads, {}, *splits, stream));
    return rc;
}
