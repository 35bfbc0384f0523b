// Opens and closes a GPU. The CUDA runtime is linked statically and looks for the driver at its
// first call, so the program also starts on machines without a driver.
#include "kernels/cuda/backend_cuda.h"

#include <stdio.h>
#include <stdlib.h>

int backend_cuda_count(void) {
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess) {
        (void)cudaGetLastError();
        return 0;
    }
    return n;
}

// The program holds machine code for some architectures only. One kernel shows which.
static int check_code(const struct cudaDeviceProp *p, struct err *err) {
    if (cuda_has_code()) return 0;
    (void)cudaGetLastError();
    return err_set(err, E_UNSUPPORTED,
                   "this program has no code for %s (compute capability %d.%d): build it with "
                   "CUDA_ARCHS=sm_%d%d",
                   p->name, p->major, p->minor, p->major, p->minor);
}

static int open_device(struct cuda_backend *cuda, struct err *err) {
    struct cudaDeviceProp p;
    cudaError_t rc = cudaSetDevice(cuda->device);
    if (rc == cudaSuccess) rc = cudaGetDeviceProperties(&p, cuda->device);
    if (rc != cudaSuccess)
        return err_set(err, E_DEVICE, "GPU %d: %s", cuda->device, cudaGetErrorString(rc));
    TRY(check_code(&p, err));
    rc = cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking);
    if (rc != cudaSuccess)
        return err_set(err, E_DEVICE, "GPU %d: %s", cuda->device, cudaGetErrorString(rc));
    if (!cuda->deterministic) TRY(cublas_open(&cuda->blas, p.name, err));
    snprintf(cuda->description, sizeof cuda->description, "%.96s, %s%s%s", p.name,
             dtype_name(cuda->base.act_dtype), cuda->deterministic ? ", deterministic" : "",
             cuda->deterministic || cuda->blas.lib ? "" : ", without cuBLASLt");
    return 0;
}

int backend_cuda_open(struct backend **out, const struct backend_cuda_options *o, struct err *err) {
    int n = backend_cuda_count();
    if (o->device < 0 || o->device >= n)
        return err_set(err, E_NOTFOUND,
                       n ? "device: there is no GPU %d (GPUs found: %d)"
                         : "device: there is no GPU %d: CUDA finds none (%d); auto and cpu do "
                           "without",
                       o->device, n);
    struct cuda_backend *cuda = calloc(1, sizeof *cuda);
    if (!cuda) return err_set(err, E_NOMEM, "no memory for the CUDA backend");
    cuda->base = (struct backend){.ops = &cuda_ops,
                                  .act_dtype = o->compute,
                                  .n_threads = 1,
                                  .description = cuda->description};
    cuda->device = o->device;
    cuda->deterministic = o->deterministic;
    int rc = open_device(cuda, err);
    if (rc < 0) {
        cuda_close(&cuda->base);
        return rc;
    }
    *out = &cuda->base;
    return 0;
}

void cuda_close(struct backend *be) {
    if (!be) return;
    struct cuda_backend *cuda = cuda_of(be);
    if (cuda->stream) cudaStreamSynchronize(cuda->stream);
    cuda_staging_release(cuda);
    cuda_step_release(cuda);
    cublas_close(&cuda->blas);
    cuda_kv_copies_release(cuda);
    cuda_draws_release(cuda);
    cuda_idle_release(cuda);
    cudaFree(cuda->attention_work);
    if (cuda->stream) cudaStreamDestroy(cuda->stream);
    free(cuda);
}
