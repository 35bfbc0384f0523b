// Opens and closes a GPU. The CUDA runtime is linked statically and looks for the driver at its
// first call, so the program also starts on machines without a driver.
#include "kernels/cuda/backend_cuda.h"
#include "kernels/cuda/devices.h"

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

static cudaError_t look_at_gpu(struct backend_cuda_look *out) {
    struct cudaDeviceProp p;
    size_t left, total;
    cudaError_t rc = cudaGetDeviceProperties(&p, 0);
    if (rc == cudaSuccess) rc = cudaSetDevice(0);
    if (rc == cudaSuccess) rc = cudaMemGetInfo(&left, &total);
    if (rc != cudaSuccess) return rc;
    snprintf(out->name, sizeof out->name, "%.95s", p.name);
    out->left = (int64_t)left;
    out->total = (int64_t)total;
    return rc;
}

void backend_cuda_look(struct backend_cuda_look *out) {
    *out = (struct backend_cuda_look){.needed = CUDART_VERSION};
    (void)cudaDriverGetVersion(&out->driver);
    cudaError_t rc = cudaGetDeviceCount(&out->n_gpus);
    if (rc == cudaSuccess && out->n_gpus > 0) rc = look_at_gpu(out);
    if (rc == cudaSuccess) return;
    snprintf(out->problem, sizeof out->problem, "%s", cudaGetErrorString(rc));
    (void)cudaGetLastError();
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

// What multiplies e4m3 by e4m3: cuBLASLt, with scales for each row from Hopper on; kernels of our own where W has
// scales of blocks, on Hopper alone (elsewhere x keeps its 16 bits).
static int check_fp8(const struct cuda_backend *cuda, const struct cudaDeviceProp *p,
                     struct err *err) {
    if (p->major < 9)
        return err_set(err, E_UNSUPPORTED,
                       "fp8_activations needs a GPU of compute capability 9.0 or later, and %s has "
                       "%d.%d; turn it off",
                       p->name, p->major, p->minor);
    if (cuda->base.act_dtype == DTYPE_F32)
        return err_set(err, E_UNSUPPORTED,
                       "fp8_activations needs compute_dtype bf16 or f16, not f32");
    if (!cuda->blas.lib)
        return err_set(err, E_UNSUPPORTED,
                       "fp8_activations needs cuBLASLt, which is not found; turn it off");
    return 0;
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
    TRY(cuda_alloc((void **)&cuda->tickets, (CUDA_TICKETS + 2) * sizeof *cuda->tickets, err));
    TRY(cuda_alloc((void **)&cuda->chain.work, sizeof *cuda->chain.work, err));
    rc = cudaMemset(cuda->tickets, 0, (CUDA_TICKETS + 2) * sizeof *cuda->tickets);
    if (rc == cudaSuccess) rc = cudaMemset(cuda->chain.work, 0, sizeof *cuda->chain.work);
    if (rc != cudaSuccess)
        return err_set(err, E_DEVICE, "GPU %d: %s", cuda->device, cudaGetErrorString(rc));
    cuda->claimed = !cuda->deterministic && cuda_claim_device(cuda->device);
    if (!cuda->deterministic) TRY(cublas_open(&cuda->blas, p.name, err));
    if (cuda->fp8.on) TRY(check_fp8(cuda, &p, err));
    snprintf(cuda->description, sizeof cuda->description, "%.96s, %s%s%s%s", p.name,
             dtype_name(cuda->base.act_dtype), cuda->deterministic ? ", deterministic" : "",
             cuda->fp8.on ? ", fp8 activations" : "",
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
    cuda->fp8.on = o->fp8_activations;
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
    if (cuda->stream) (void)cuda_wait(cuda, "the last step");
    cuda_staging_release(cuda);
    cuda_step_release(cuda);
    cublas_close(&cuda->blas);
    cuda_kv_copies_release(cuda);
    cuda_draws_release(cuda);
    cuda_fp8_release(cuda);
    cuda_idle_release(cuda);
    cuda_ranks_release(cuda);
    cudaFree(cuda->attention_work);
    cudaFree(cuda->tickets);
    cudaFree(cuda->chain.work);
    if (cuda->claimed) cuda_disclaim_device(cuda->device);
    cudaFree(cuda->widened);
    if (cuda->stream) cudaStreamDestroy(cuda->stream);
    free(cuda);
}
