// A matrix for each head, each for its own part of a row, and copies of parts of rows: latent attention's steps
// into the latents' space and back (engine/run/mixer_latent.c).
//
// linear_heads: y[r, h] = W_h x[r, h]. Few rows are bound by reading the matrices once, n_heads * rows * cols
// * 2 bytes; blocks of 32 outputs of one head, with all of a GLM-4.7-Flash key matrix under way at once. Many rows take tiles of 64 rows by 128 outputs through
// mma.sync. Both add the products of K in the same order, so a row's bits do not depend on the others.
// heads_any_kernel takes any shape and F32.
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/pdl.cuh"

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
};

constexpr int WARPS = 4, THREADS = WARPS * 32, STEP = 64, STAGES = 4;

// MT tiles of 16 rows of x, and NT tiles of 8 outputs for each warp.
template <int MT, int NT> struct tile {
    static constexpr int rows = MT * 16, outputs = WARPS * NT * 8;
    static constexpr int x_bytes = rows * STEP * 2, stage = x_bytes + outputs * STEP * 2;
    static constexpr size_t bytes = (size_t)STAGES * stage;
};

// Byte offset of 16-byte word w of row r in a step's tile.
__device__ __forceinline__ uint32_t place(int r, int w) {
    return (uint32_t)(r * STEP * 2 + ((w ^ (r & 7)) * 16));
}

// Grid: output tiles, heads, row tiles.
template <typename T, int MT, int NT>
__global__ void __launch_bounds__(THREADS)
    heads_kernel(const __grid_constant__ struct heads_table t,
                 const __grid_constant__ struct heads_product p) {
    using S = tile<MT, NT>;
    extern __shared__ __align__(128) char shared[];
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4,
              q = lane % 4;
    const int out0 = (int)blockIdx.x * S::outputs, head = (int)blockIdx.y,
              row0 = (int)blockIdx.z * S::rows;
    const int word = (int)threadIdx.x % 8, r0 = (int)threadIdx.x / 8; // 16 rows at a time
    const T *w = (const T *)t.w[head] + word * 8;
    const T *x = (const T *)p.x + head * p.x_head + word * 8;
    const uint32_t base = shared_address(shared);
    pdl_trigger();
    auto request_w = [&](int s) {
        const uint32_t to = base + (uint32_t)(s % STAGES * S::stage + S::x_bytes);
        const bool held = s * STEP + word * 8 < p.cols;
#pragma unroll
        for (int i = 0; i < S::outputs / 16; i++) {
            const int r = r0 + i * 16;
            const bool valid = held && out0 + r < p.rows;
            const T *from = valid ? w + (int64_t)(out0 + r) * p.ld + s * STEP : w;
            copy_async(to + place(r, word), from, valid);
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
            copy_async(to + place(r, word), from, valid);
        }
    };
    const int steps = (p.cols + STEP - 1) / STEP;
    for (int s = 0; s < STAGES - 1 && s < steps; s++) request_w(s); // not of an earlier kernel
    pdl_wait();
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) request_x(s);
        copy_commit();
    }
    float sum[MT][NT][4] = {};
    for (int s = 0; s < steps; s++) {
        copy_wait<STAGES - 2>();
        __syncthreads(); // the step has come, and the stage before is free
        if (s + STAGES - 1 < steps) request_w(s + STAGES - 1), request_x(s + STAGES - 1);
        copy_commit();
        const uint32_t xs = base + (uint32_t)(s % STAGES * S::stage), ws = xs + S::x_bytes;
#pragma unroll
        for (int k = 0; k < STEP / 32; k++) {
            uint32_t b[NT][4];
#pragma unroll
            for (int n = 0; n < NT; n++)
                load_matrices(b[n], ws + place((warp * NT + n) * 8 + lane % 8, k * 4 + lane / 8));
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    uint32_t a[4];
                    load_matrices(a, xs + place(m * 16 + lane % 16, k * 4 + half * 2 + lane / 16));
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
                if (r < p.n && o < p.rows) y[r * p.y_row + o] = from_float<T>(sum[m][n][e]);
            }
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

unsigned parts(int32_t n, int each) {
    return (unsigned)((n + each - 1) / each);
}

template <typename T, int MT, int NT>
void launch_tiles(const struct heads_table &t, const struct heads_product &p, int32_t n_heads,
                  cudaStream_t stream) {
    using S = tile<MT, NT>;
    auto kernel = heads_kernel<T, MT, NT>;
    cuda_allow_shared((const void *)kernel, S::bytes);
    pdl_launch(kernel, dim3(parts(p.rows, S::outputs), (unsigned)n_heads, parts(p.n, S::rows)),
               dim3(THREADS), S::bytes, stream, t, p);
}

// Words of 16 bytes throughout.
template <typename T>
int launch_fast(const struct heads_table &t, const struct heads_product &p, int32_t n_heads,
                cudaStream_t stream) {
    if (p.cols % 8 || p.x_row % 8 || p.x_head % 8 || (uintptr_t)p.x % 16) return CUDA_UNSUPPORTED;
    if (p.n <= 32)
        launch_tiles<T, 1, 1>(t, p, n_heads, stream);
    else
        launch_tiles<T, 4, 4>(t, p, n_heads, stream);
    return 0;
}
template <>
int launch_fast<float>(const struct heads_table &, const struct heads_product &, int32_t,
                       cudaStream_t) {
    return CUDA_UNSUPPORTED;
}

template <typename T>
int launch(struct heads_product p, const struct heads_args *a, cudaStream_t stream) {
    for (int32_t first = 0, n; first < a->n_heads; first += n) {
        struct heads_table t = {};
        n = a->n_heads - first < HEADS ? a->n_heads - first : HEADS;
        for (int32_t h = 0; h < n; h++) t.w[h] = a->w[first + h].data;
        if (launch_fast<T>(t, p, n, stream) != 0)
            pdl_launch(heads_any_kernel<T>,
                       dim3(parts(p.rows, ANY_TILE), (unsigned)n, parts(p.n, ANY_TILE)),
                       dim3(ANY_THREADS), 0, stream, t, p);
        TRY(cuda_launched("linear_heads"));
        p.x = (const T *)p.x + n * p.x_head;
        p.y = (T *)p.y + n * p.y_head;
    }
    return 0;
}

// --- copies --------------------------------------------------------------------------------------

template <typename W>
__global__ void copy_kernel(W *y, const W *x, const __grid_constant__ struct parts_args a,
                            int64_t n) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    pdl_trigger();
    pdl_wait();
    if (i >= n) return;
    const int64_t word = i % a.width, part = i / a.width % a.n_parts, row = i / a.width / a.n_parts;
    y[row * a.y_row + part * a.y_part + word] = x[row * a.x_row + part * a.x_part + word];
}

// In words of `of` elements of `size` bytes.
template <typename W>
void copy_words(void *y, const void *x, int32_t n, struct parts_args a, int of,
                cudaStream_t stream) {
    a.width /= of;
    a.x_row /= of, a.x_part /= of, a.y_row /= of, a.y_part /= of;
    const int64_t words = (int64_t)n * a.n_parts * a.width;
    const unsigned blocks = (unsigned)((words + 255) / 256);
    pdl_launch(copy_kernel<W>, dim3(blocks), dim3(256), 0, stream, (W *)y, (const W *)x, a, words);
}

} // namespace

int cuda_linear_heads(void *y, const void *x, enum dtype dtype, int32_t n,
                      const struct heads_args *a, cudaStream_t stream) {
    if (n == 0) return 0;
    if (a->w->dtype != dtype) return E_UNSUPPORTED;
    struct heads_product p = {};
    int rc = 0;
    p.y = y, p.x = x, p.n = n;
    p.rows = a->w->rows, p.cols = a->w->cols, p.ld = a->w->layout;
    p.x_row = a->x_row, p.x_head = a->x_head, p.y_row = a->y_row, p.y_head = a->y_head;
    DISPATCH(dtype, rc = launch<T>(p, a, stream));
    return rc;
}

int cuda_copy_parts(void *y, const void *x, enum dtype dtype, int32_t n, const struct parts_args *a,
                    cudaStream_t stream) {
    const int size = (int)dtype_size(dtype), of = 16 / size;
    const int64_t all = a->width | a->x_row | a->x_part | a->y_row | a->y_part;
    if (n == 0 || a->n_parts == 0 || a->width == 0) return 0;
    if (all % of == 0 && ((uintptr_t)x | (uintptr_t)y) % 16 == 0)
        copy_words<uint4>(y, x, n, *a, of, stream);
    else if (size == 4)
        copy_words<uint32_t>(y, x, n, *a, 1, stream);
    else
        copy_words<uint16_t>(y, x, n, *a, 1, stream);
    return cuda_launched("copy_parts");
}
