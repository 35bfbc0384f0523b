// Both ends of a product of 8 bits (linear_fp8.c): converts x to e4m3 with scales before it, and applies
// scales, bias and activation to F32 sums after it. Bound by bytes: 3 for each number of x; for each sum 4
// and those of y.
#include "kernels/cuda/linear_finish.cuh"
#include "kernels/cuda/pdl.cuh"
#include <cuda_fp8.h>

namespace {

constexpr int EACH = 8, WORDS = 4; // numbers in 16 bytes; such words of a thread
constexpr float LARGEST = 448.0f, LEAST_SCALE = 1.17549435e-38f; // whose reciprocal is finite

template <typename T> struct alignas(16) word { T of[EACH]; };

// max |x| of a word, ignoring NaN, which stays one below.
template <typename T> __device__ __forceinline__ float largest(const word<T> &w) {
    float most = 0.0f;
#pragma unroll
    for (int e = 0; e < EACH; e++) most = fmaxf(most, fabsf(to_float(w.of[e])));
    return most;
}

__device__ __forceinline__ float scale_of(float most) {
    float scale = most / LARGEST;
    return scale >= LEAST_SCALE ? scale : 0.0f;
}

// An infinite row has an infinite scale and so zeros, and NaN for its infinities.
template <typename T> __device__ __forceinline__ uint2 quantized(const word<T> &w, float scale) {
    const float by = scale > 0.0f ? 1.0f / scale : 0.0f;
    alignas(8) __nv_fp8x2_storage_t q[EACH / 2];
#pragma unroll
    for (int e = 0; e < EACH / 2; e++)
        q[e] = __nv_cvt_float2_to_fp8x2(
            make_float2(to_float(w.of[2 * e]) * by, to_float(w.of[2 * e + 1]) * by), __NV_SATFINITE,
            __NV_E4M3);
    return *(uint2 *)q;
}

__device__ __forceinline__ float block_max(float v) {
    __shared__ float part[32];
    int warps = (int)blockDim.x / 32, lane = (int)threadIdx.x % 32;
    v = warp_max(v);
    if (lane == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    return warp_max(lane < warps ? part[lane] : 0.0f);
}

// A block of threads for each row, which it keeps in registers.
template <typename T>
__global__ void __launch_bounds__(1024)
    quantize_kernel(uint8_t *q, float *scale, const T *x, int32_t cols) {
    const int words = cols / EACH, row = (int)blockIdx.x;
    const word<T> *from = (const word<T> *)(x + (int64_t)row * cols);
    uint2 *to = (uint2 *)(q + (int64_t)row * cols);
    word<T> w[WORDS];
    float most = 0.0f;
    pdl_trigger();
    pdl_wait();
#pragma unroll
    for (int k = 0; k < WORDS; k++) {
        int at = (int)threadIdx.x + k * (int)blockDim.x;
        if (at < words) w[k] = from[at];
    }
#pragma unroll
    for (int k = 0; k < WORDS; k++) {
        int at = (int)threadIdx.x + k * (int)blockDim.x;
        if (at < words) most = fmaxf(most, largest(w[k]));
    }
    const float s = scale_of(block_max(most));
    if (threadIdx.x == 0) scale[row] = s;
#pragma unroll
    for (int k = 0; k < WORDS; k++) {
        int at = (int)threadIdx.x + k * (int)blockDim.x;
        if (at < words) to[at] = quantized(w[k], s);
    }
}

constexpr int THREADS = 256, OUTPUTS = 4;

// Block (part of the outputs, row of x); a thread ends four neighbouring outputs.
template <typename T, bool GATED>
__global__ void __launch_bounds__(THREADS)
    end_kernel(const __grid_constant__ struct cuda_linear a, const float *sums) {
    const int i = (int)blockIdx.y, row = (int)(blockIdx.x * THREADS + threadIdx.x) * OUTPUTS;
    pdl_trigger();
    pdl_wait();
    if (row >= (GATED ? a.rows / 2 : a.rows)) return;
    const float *from = sums + (int64_t)i * a.rows + row;
    alignas(16) float v[OUTPUTS], up[OUTPUTS], before[OUTPUTS] = {};
    *(float4 *)v = *(const float4 *)from;
    if (GATED) *(float4 *)up = *(const float4 *)(from + a.rows / 2);
    load_outputs<T, OUTPUTS, GATED>(before, a, i, row);
    finish_outputs<T, OUTPUTS, GATED>(a, i, row, v, up, before);
}

template <typename T>
void launch_end(const struct cuda_linear &a, const float *sums, cudaStream_t s) {
    const bool gated = a.activate && a.gated;
    const int each = THREADS * OUTPUTS, width = gated ? a.rows / 2 : a.rows;
    const dim3 grid((unsigned)((width + each - 1) / each), (unsigned)a.n);
    pdl_launch(gated ? end_kernel<T, true> : end_kernel<T, false>, grid, dim3(THREADS), 0, s, a,
               sums);
}

template <typename T>
void launch_quantize(uint8_t *q, float *scale, const T *x, int32_t n, int32_t cols,
                     cudaStream_t stream) {
    const int words = cols / EACH, each = (words + 1023) / 1024;
    const dim3 threads((unsigned)(((words + each - 1) / each + 31) / 32 * 32));
    pdl_launch(quantize_kernel<T>, dim3((unsigned)n), threads, 0, stream, q, scale, x, cols);
}

} // namespace

int cuda_quantize(uint8_t *q, float *scale, const void *x, enum dtype dtype, int32_t n,
                  int32_t cols, cudaStream_t stream) {
    if (cols % 16 || cols > 1024 * WORDS * EACH || ((uintptr_t)x & 15)) return CUDA_UNSUPPORTED;
    if (dtype == DTYPE_BF16)
        launch_quantize(q, scale, (const __nv_bfloat16 *)x, n, cols, stream);
    else if (dtype == DTYPE_F16)
        launch_quantize(q, scale, (const __half *)x, n, cols, stream);
    else
        return CUDA_UNSUPPORTED;
    return cuda_launched("quantize");
}

int cuda_linear_end(const struct cuda_linear *a, const float *sums, cudaStream_t stream) {
    if (a->dtype == DTYPE_BF16)
        launch_end<__nv_bfloat16>(*a, sums, stream);
    else
        launch_end<__half>(*a, sums, stream);
    return cuda_launched("linear_end");
}
