// Ops on single values that some families need: products by a number or by rows, xIELU, the end of the
// logits, gated sums. Bound by moving each value once in and once out.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/pdl.cuh"

namespace {

constexpr int THREADS = 256;

inline dim3 blocks_for(int64_t n) {
    return dim3((unsigned)((n + THREADS - 1) / THREADS));
}
__device__ __forceinline__ int64_t my_index() {
    return (int64_t)blockIdx.x * THREADS + threadIdx.x;
}

template <typename T> __global__ void scale_kernel(T *x, int64_t n, const float *by, float factor) {
    const int64_t i = my_index();
    pdl_trigger();
    if (by) factor *= by[0];
    pdl_wait();
    if (i < n) x[i] = from_float<T>(to_float(x[i]) * factor);
}

template <typename T>
__global__ void multiply_rows_kernel(T *y, const T *x, int64_t n, int32_t width, int64_t stride) {
    const int64_t i = my_index();
    pdl_trigger();
    pdl_wait();
    if (i < n) y[i] = from_float<T>(to_float(y[i]) * to_float(x[i / width * stride + i % width]));
}

__device__ __forceinline__ float softplus(float x) {
    return x > 20.0f ? x : log1pf(expf(x));
}

template <typename T>
__global__ void xielu_kernel(T *y, const T *x, int64_t n, const float *alpha) {
    const float beta = 0.5f, least = -1e-6f;
    const int64_t i = my_index();
    pdl_trigger();
    const float positive = softplus(alpha[0]), negative = beta + softplus(alpha[1]);
    pdl_wait();
    if (i >= n) return;
    const float v = to_float(x[i]);
    y[i] = from_float<T>(v > 0.0f ? positive * v * v + beta * v
                                  : (expm1f(fminf(v, least)) - v) * negative + beta * v);
}

__global__ void finish_logits_kernel(float *x, int64_t n, float scale, float cap) {
    const int64_t i = my_index();
    pdl_trigger();
    pdl_wait();
    if (i >= n) return;
    const float v = x[i] * scale;
    x[i] = cap != 0.0f ? cap * tanhf(v / cap) : v;
}

template <typename T>
__global__ void add_gated_kernel(T *y, const T *x, const float *gate, int64_t n, int32_t width) {
    const int64_t i = my_index();
    pdl_trigger();
    pdl_wait();
    if (i >= n) return;
    const float by = 1.0f / (1.0f + expf(-gate[i / width]));
    y[i] = from_float<T>(fmaf(by, to_float(x[i]), to_float(y[i])));
}

} // namespace

int cuda_scale(void *x, enum dtype dtype, int64_t n, const float *by, float factor,
               cudaStream_t stream) {
    if (n == 0) return 0;
    DISPATCH(dtype, pdl_launch(scale_kernel<T>, blocks_for(n), dim3(THREADS), 0, stream, (T *)x, n,
                               by, factor));
    return cuda_launched("scale");
}

int cuda_multiply_rows(void *y, const void *x, enum dtype dtype, int32_t n, int32_t width,
                       int64_t stride, cudaStream_t stream) {
    const int64_t all = (int64_t)n * width;
    if (all == 0) return 0;
    DISPATCH(dtype, pdl_launch(multiply_rows_kernel<T>, blocks_for(all), dim3(THREADS), 0, stream,
                               (T *)y, (const T *)x, all, width, stride));
    return cuda_launched("multiply_rows");
}

int cuda_xielu(void *y, const void *x, enum dtype dtype, int64_t n, const float *alpha,
               cudaStream_t stream) {
    if (n == 0) return 0;
    DISPATCH(dtype, pdl_launch(xielu_kernel<T>, blocks_for(n), dim3(THREADS), 0, stream, (T *)y,
                               (const T *)x, n, alpha));
    return cuda_launched("xielu");
}

int cuda_finish_logits(float *x, int64_t n, float scale, float cap, cudaStream_t stream) {
    if (n == 0) return 0;
    pdl_launch(finish_logits_kernel, blocks_for(n), dim3(THREADS), 0, stream, x, n, scale, cap);
    return cuda_launched("finish_logits");
}

int cuda_add_gated(void *y, const void *x, enum dtype dtype, const float *gate, int32_t n,
                   int32_t width, cudaStream_t stream) {
    const int64_t all = (int64_t)n * width;
    if (all == 0) return 0;
    DISPATCH(dtype, pdl_launch(add_gated_kernel<T>, blocks_for(all), dim3(THREADS), 0, stream,
                               (T *)y, (const T *)x, gate, all, width));
    return cuda_launched("add_gated");
}
