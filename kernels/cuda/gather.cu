// Copies the rows whose logits the step wants.
#include "kernels/cuda/device.cuh"

template <typename T>
__global__ void gather_kernel(T *y, const T *x, const int32_t *rows, int32_t width) {
    y += (int64_t)blockIdx.x * width;
    x += (int64_t)rows[blockIdx.x] * width;
    for (int32_t i = threadIdx.x; i < width; i += blockDim.x) y[i] = x[i];
}

int cuda_gather(void *y, const void *x, enum dtype dtype, const int32_t *rows, int32_t n,
                int32_t width, cudaStream_t stream) {
    if (n == 0) return 0;
    DISPATCH(dtype, gather_kernel<T><<<n, 256, 0, stream>>>((T *)y, (const T *)x, rows, width));
    return cuda_launched("gather");
}
