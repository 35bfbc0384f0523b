// The cache arena on the GPU: layer after layer, in a layer block after block, K (n_kv_heads,
// block_tokens, head_dim), then V; with 8 bits their scales behind both. Attention reads all blocks
// of one layer: were a block's layers together, each 16 KB would be in a page of its own, and
// finding pages would take longer than reading them.
#include "kernels/cuda/backend_cuda.h"
#include "kernels/kv_quant.h"

struct cuda_kv cuda_kv_of(const struct kv_store *kv) {
    size_t part = kv->block_bytes / (size_t)kv->n_layers;
    return (struct cuda_kv){.data = kv->data,
                            .layer_bytes = part * (size_t)kv->n_blocks,
                            .block_bytes = part,
                            .dtype = kv->dtype,
                            .n_layers = kv->n_layers,
                            .n_kv_heads = kv->n_kv_heads,
                            .head_dim = kv->head_dim,
                            .block_tokens = kv->block_tokens};
}

size_t cuda_kv_block_bytes(struct backend *be, const struct kv_store *kv) {
    size_t vectors = (size_t)kv->n_kv_heads * 2 * (size_t)kv->block_tokens;
    size_t bytes = vectors * (size_t)kv->head_dim * dtype_size(kv->dtype);
    if (kv_is_8bit(kv->dtype)) bytes = ((bytes + 15) & ~(size_t)15) + vectors * sizeof(float);
    return ((bytes + 255) & ~(size_t)255) * (size_t)kv->n_layers;
}

// A stream of its own: copies over the bus run beside the steps, not between them.
static int copies_init(struct cuda_backend *cuda, struct err *err) {
    if (cuda->copy_stream) return 0;
    cudaError_t rc = cudaStreamCreateWithFlags(&cuda->copy_stream, cudaStreamNonBlocking);
    if (rc == cudaSuccess) rc = cudaEventCreateWithFlags(&cuda->stepped, cudaEventDisableTiming);
    if (rc == cudaSuccess) rc = cudaEventCreateWithFlags(&cuda->copied, cudaEventDisableTiming);
    if (rc == cudaSuccess) return 0;
    return err_set(err, E_DEVICE, "GPU %d: %s", cuda->device, cudaGetErrorString(rc));
}

void cuda_kv_copies_release(struct cuda_backend *cuda) {
    if (cuda->copy_stream) cudaStreamSynchronize(cuda->copy_stream);
    if (cuda->copied) cudaEventDestroy(cuda->copied);
    if (cuda->stepped) cudaEventDestroy(cuda->stepped);
    if (cuda->copy_stream) cudaStreamDestroy(cuda->copy_stream);
    cuda->copy_stream = NULL;
    cuda->stepped = cuda->copied = NULL;
}

int cuda_kv_store_init(struct backend *be, struct kv_store *kv, struct err *err) {
    struct cuda_backend *cuda = cuda_of(be);
    kv->data = NULL;
    if (kv->dtype != DTYPE_F32 && kv->dtype != DTYPE_F16 && kv->dtype != DTYPE_BF16 &&
        !kv_is_8bit(kv->dtype))
        return err_set(err, E_UNSUPPORTED, "a cache of type %s is not supported on the GPU",
                       dtype_name(kv->dtype));
    if (kv->n_layers < 1 || kv->n_kv_heads < 1 || kv->head_dim < 1 || kv->n_blocks < 1 ||
        kv->block_tokens < 1 || (kv->block_tokens & (kv->block_tokens - 1)))
        return err_set(err, E_INVAL,
                       "a cache of %d blocks of %d tokens, %d layers, %d heads of %d is not valid",
                       kv->n_blocks, kv->block_tokens, kv->n_layers, kv->n_kv_heads, kv->head_dim);
    if (kv->head_dim > 1024)
        return err_set(err, E_UNSUPPORTED, "heads of %d dimensions are not supported on the GPU",
                       kv->head_dim);
    kv->block_bytes = cuda_kv_block_bytes(be, kv);
    cuda->kv_blocks = kv->n_blocks;
    TRY(copies_init(cuda, err));
    return cuda_alloc(&kv->data, kv->block_bytes * (size_t)kv->n_blocks, err);
}

void cuda_kv_store_release(struct backend *be, struct kv_store *kv) {
    if (cuda_of(be)->copy_stream) cudaStreamSynchronize(cuda_of(be)->copy_stream);
    cudaStreamSynchronize(cuda_of(be)->stream);
    cudaFree(kv->data);
    kv->data = NULL;
}

// One call, unless the arena has 2 GiB and more for a layer: that is more than a pitch may be.
int cuda_kv_copy_rows(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
                      size_t rows, enum cudaMemcpyKind kind, cudaStream_t stream) {
    if (dst_pitch <= INT32_MAX && src_pitch <= INT32_MAX)
        return cuda_check(
            cudaMemcpy2DAsync(dst, dst_pitch, src, src_pitch, width, rows, kind, stream),
            "cudaMemcpy2DAsync");
    for (size_t i = 0; i < rows; i++)
        CUDA_TRY(cudaMemcpyAsync((char *)dst + i * dst_pitch, (const char *)src + i * src_pitch,
                                 width, kind, stream));
    return 0;
}

int cuda_kv_block_copy(struct backend *be, struct kv_store *kv, int32_t dst, int32_t src) {
    if (dst < 0 || dst >= kv->n_blocks || src < 0 || src >= kv->n_blocks) return E_INVAL;
    if (dst == src) return 0;
    CUDA_TRY(cudaSetDevice(cuda_of(be)->device)); // as in cuda_step_begin
    struct cuda_kv c = cuda_kv_of(kv);
    char *base = kv->data;
    return cuda_kv_copy_rows(base + (size_t)dst * c.block_bytes, c.layer_bytes,
                             base + (size_t)src * c.block_bytes, c.layer_bytes, c.block_bytes,
                             (size_t)kv->n_layers, cudaMemcpyDeviceToDevice, cuda_of(be)->stream);
}

// In host memory a block is layer after layer, without what lies between them in the arena.
static int copy_blocks(struct backend *be, const struct kv_store *kv, void *const *host,
                       const int32_t *blocks, int32_t n, enum cudaMemcpyKind kind) {
    struct cuda_backend *cuda = cuda_of(be);
    struct cuda_kv c = cuda_kv_of(kv);
    for (int32_t i = 0; i < n; i++) {
        if (blocks[i] < 0 || blocks[i] >= kv->n_blocks) return E_INVAL;
    }
    CUDA_TRY(cudaSetDevice(cuda->device)); // as in cuda_step_begin
    CUDA_TRY(cudaEventRecord(cuda->stepped, cuda->stream));
    CUDA_TRY(cudaStreamWaitEvent(cuda->copy_stream, cuda->stepped, 0));
    bool save = kind == cudaMemcpyDeviceToHost;
    for (int32_t i = 0; i < n; i++) {
        char *block = (char *)kv->data + (size_t)blocks[i] * c.block_bytes;
        TRY(cuda_kv_copy_rows(save ? host[i] : block, save ? c.block_bytes : c.layer_bytes,
                              save ? block : host[i], save ? c.layer_bytes : c.block_bytes,
                              c.block_bytes, (size_t)kv->n_layers, kind, cuda->copy_stream));
    }
    CUDA_TRY(cudaEventRecord(cuda->copied, cuda->copy_stream));
    cuda->copying = true;
    return 0;
}

int cuda_kv_blocks_save(struct backend *be, const struct kv_store *kv, void *const *host,
                        const int32_t *blocks, int32_t n) {
    return copy_blocks(be, kv, host, blocks, n, cudaMemcpyDeviceToHost);
}

int cuda_kv_blocks_load(struct backend *be, struct kv_store *kv, const int32_t *blocks,
                        void *const *host, int32_t n) {
    return copy_blocks(be, kv, host, blocks, n, cudaMemcpyHostToDevice);
}

int cuda_kv_copies_done(struct backend *be, bool wait) {
    struct cuda_backend *cuda = cuda_of(be);
    if (!cuda->copying) return 1;
    cudaError_t rc = wait ? cudaEventSynchronize(cuda->copied) : cudaEventQuery(cuda->copied);
    if (rc == cudaErrorNotReady) return 0;
    cuda->copying = false;
    CUDA_TRY(rc);
    return 1;
}

// A failure shows in the next op: the device stays failed.
void cuda_kv_block_guard(struct backend *be, struct kv_store *kv, int32_t block, bool is_free) {
    if (!is_free || cudaSetDevice(cuda_of(be)->device) != cudaSuccess) return;
    struct cuda_kv c = cuda_kv_of(kv);
    char *base = (char *)kv->data + (size_t)block * c.block_bytes;
    for (int32_t i = 0; i < kv->n_layers; i++)
        (void)cudaMemsetAsync(base + (size_t)i * c.layer_bytes, 0xff, c.block_bytes,
                              cuda_of(be)->stream);
}
