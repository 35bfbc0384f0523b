// Checks calls of the CUDA runtime, and allocates device memory.
#include "kernels/cuda/backend_cuda.h"

#include "base/log.h"

int cuda_check(cudaError_t rc, const char *what) {
    char call[200];
    if (rc == cudaSuccess) return 0;
    log_error("cuda.failed", "call=%s error=%s why=\"%s\"", log_quote(call, sizeof call, what),
              cudaGetErrorName(rc), cudaGetErrorString(rc));
    return E_DEVICE;
}

int cuda_launched(const char *what) {
    return cuda_check(cudaGetLastError(), what);
}

int cuda_alloc(void **out, size_t bytes, struct err *err) {
    *out = NULL;
    if (cudaMalloc(out, bytes ? bytes : 1) == cudaSuccess) return 0;
    size_t left = 0, total = 0;
    (void)cudaGetLastError(); // clears the error: the device still works
    cudaMemGetInfo(&left, &total);
    return err_set(err, E_NOMEM, "the GPU has %zu MiB free of %zu MiB, and %zu MiB more are needed",
                   left >> 20, total >> 20, (bytes >> 20) + 1);
}
