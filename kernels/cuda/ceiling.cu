// Measures the rate at which the GPU reads memory that no cache holds, the ceiling of a decode step.
// Each thread has eight loads of 16 bytes in flight.
#include "kernels/cuda/device.cuh"

enum { LOADS = 8 };

__global__ void read_kernel(const uint4 *words, int64_t n, uint32_t *out) {
    uint32_t sum = 0;
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + (LOADS - 1) * step < n; i += LOADS * step) {
        uint4 v[LOADS];
#pragma unroll
        for (int j = 0; j < LOADS; j++) v[j] = words[i + j * step];
#pragma unroll
        for (int j = 0; j < LOADS; j++) sum += v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
    }
    if (sum == 0x9e3779b9u) *out = sum; // never true; keeps the compiler from dropping the loads
}

int cuda_read_all(const void *data, size_t bytes, uint32_t *out, cudaStream_t stream) {
    read_kernel<<<132 * 16, 512, 0, stream>>>((const uint4 *)data, (int64_t)(bytes / 16), out);
    return cuda_launched("read_all");
}
