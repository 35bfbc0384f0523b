// y += x, and biases. Moves three values of T for each addition.
#include "kernels/cuda/device.cuh"

template <typename T> __global__ void add_kernel(T *y, const T *x, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = from_float<T>(to_float(y[i]) + to_float(x[i]));
}

// y (n, width) = bias in every row, or y += bias.
template <typename T>
__global__ void add_bias_kernel(T *y, const float *bias, int64_t n, int32_t width, bool add) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = bias[i % width];
    y[i] = from_float<T>(add ? to_float(y[i]) + v : v);
}

int cuda_add_bias(void *y, enum dtype dtype, const float *bias, int32_t n, int32_t width, bool add,
                  cudaStream_t stream) {
    int64_t total = (int64_t)n * width;
    if (total == 0) return 0;
    unsigned blocks = (unsigned)((total + 255) / 256);
    DISPATCH(dtype,
             add_bias_kernel<T><<<blocks, 256, 0, stream>>>((T *)y, bias, total, width, add));
    return cuda_launched("add_bias");
}

int cuda_add(void *y, const void *x, enum dtype dtype, int64_t n_elements, cudaStream_t stream) {
    if (n_elements == 0) return 0;
    unsigned blocks = (unsigned)((n_elements + 255) / 256);
    DISPATCH(dtype, add_kernel<T><<<blocks, 256, 0, stream>>>((T *)y, (const T *)x, n_elements));
    return cuda_launched("add");
}

bool cuda_has_code(void) {
    struct cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, add_kernel<float>) == cudaSuccess;
}
