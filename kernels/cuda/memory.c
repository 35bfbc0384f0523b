// Device memory, pinned memory, and copies between them. A copy waits until the stream is empty.
#include "kernels/cuda/backend_cuda.h"

int cuda_mem_alloc(struct backend *be, size_t bytes, void **out, struct err *err) {
    return cuda_alloc(out, bytes, err);
}

void cuda_mem_free(struct backend *be, void *p) {
    (void)cuda_wait(cuda_of(be), "the last step");
    cudaFree(p);
}

static int copy(struct cuda_backend *cuda, void *dst, const void *src, size_t bytes,
                enum cudaMemcpyKind kind) {
    CUDA_TRY(cudaMemcpyAsync(dst, src, bytes, kind, cuda->stream));
    cuda_idle_step_ends(cuda);
    return cuda_wait(cuda, "a copy");
}

int cuda_mem_write(struct backend *be, void *dst, const void *host_src, size_t bytes) {
    return copy(cuda_of(be), dst, host_src, bytes, cudaMemcpyHostToDevice);
}

int cuda_mem_read(struct backend *be, void *host_dst, const void *src, size_t bytes) {
    return copy(cuda_of(be), host_dst, src, bytes, cudaMemcpyDeviceToHost);
}

int cuda_mem_info(struct backend *be, size_t *free_bytes, size_t *total_bytes) {
    CUDA_TRY(cudaMemGetInfo(free_bytes, total_bytes));
    return 0;
}

// The best of eight passes over 4 GiB, or over half of the free memory if that is less.
int cuda_read_rate(struct backend *be, double *out, struct err *err) {
    struct cuda_backend *cuda = cuda_of(be);
    size_t bytes = (size_t)4 << 30, left, total;
    cudaEvent_t begin, end;
    void *data;
    CUDA_TRY(cudaMemGetInfo(&left, &total));
    if (bytes > left / 2) bytes = left / 2 & ~(size_t)4095;
    TRY(cuda_alloc(&data, bytes, err));
    int rc = cuda_check(cudaMemsetAsync(data, 0x5a, bytes, cuda->stream), "cudaMemsetAsync");
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    *out = 0;
    for (int pass = 0; pass < 8 && rc == 0; pass++) {
        float ms = 0;
        cudaEventRecord(begin, cuda->stream);
        rc = cuda_read_all(data, bytes, data, cuda->stream);
        cudaEventRecord(end, cuda->stream);
        if (rc == 0) rc = cuda_check(cudaEventSynchronize(end), "a pass over memory");
        cudaEventElapsedTime(&ms, begin, end);
        if (ms > 0 && (double)bytes / ms * 1e3 > *out) *out = (double)bytes / ms * 1e3;
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    cudaFree(data);
    return rc < 0 ? err_set(err, rc, "the GPU's memory could not be measured") : 0;
}

int cuda_host_alloc(struct backend *be, size_t bytes, void **out, struct err *err) {
    if (cudaHostAlloc(out, bytes, cudaHostAllocDefault) == cudaSuccess) return 0;
    (void)cudaGetLastError();
    return err_set(err, E_NOMEM, "no pinned memory for %zu bytes", bytes);
}

void cuda_host_free(struct backend *be, void *p) {
    if (p) cudaFreeHost(p);
}
