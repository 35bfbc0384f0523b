// The feed-forward's activation, gated or plain: 3 (2) values of T move for each result; the
// exponentials hide behind them.
#include "kernels/cuda/activation.cuh"

template <typename T>
__global__ void activate_kernel(enum activation act, bool gated, T *y, const T *x, int64_t n,
                                int32_t width) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    if (!gated) {
        y[i] = from_float<T>(activated(act, to_float(x[i])));
        return;
    }
    const T *gate = x + i / width * 2 * width + i % width;
    y[i] = from_float<T>(activated(act, to_float(gate[0])) * to_float(gate[width]));
}

int cuda_activate(enum activation act, bool gated, void *y, const void *x, enum dtype dtype,
                  int32_t n, int32_t width, cudaStream_t stream) {
    int64_t total = (int64_t)n * width;
    if (total == 0) return 0;
    unsigned blocks = (unsigned)((total + 255) / 256);
    DISPATCH(dtype, activate_kernel<T>
             <<<blocks, 256, 0, stream>>>(act, gated, (T *)y, (const T *)x, total, width));
    return cuda_launched("activate");
}
