// The cache arena on the GPU, by layer, then by block: K (n_kv_heads, block_tokens, head_dim), V
// likewise, and for 8 bits the scales of both; of latents one vector is both. Attention reads all blocks of one layer. If a
// block's layers were adjacent, each 16 KB would lie in a memory page of its own, and address
// translation would take longer than the reads. Groups of layers of one shape share this: the i-th
// layer of each group has the same place in a block. Where the groups' shapes differ (kv_store.mixed),
// a block's layers are adjacent all the same, because blocks of one group must not overlap those of
// another.
#include "kernels/cuda/backend_cuda.h"
#include "kernels/kv_quant.h"
#include "kernels/kv_shape.h"

size_t cuda_kv_part_bytes(const struct kv_store *kv) {
    size_t vectors = (size_t)kv->n_kv_heads * (kv->latent ? 1 : 2) * (size_t)kv->block_tokens;
    size_t bytes = vectors * (size_t)kv->head_dim * dtype_size(kv->dtype);
    if (kv_is_8bit(kv->dtype)) bytes = ((bytes + 15) & ~(size_t)15) + vectors * sizeof(float);
    return (bytes + 255) & ~(size_t)255;
}

size_t cuda_kv_block_bytes(struct backend *be, const struct kv_store *kv) {
    return cuda_kv_part_bytes(kv) * (size_t)kv->n_layers;
}

int cuda_kv_store_init(struct backend *be, struct kv_store *kv, struct err *err) {
    kv->data = NULL;
    TRY(kv_shape_check(kv, "the GPU", err));
    if (kv->head_dim > 1024)
        return err_set(err, E_UNSUPPORTED, "heads of %d dimensions are not supported on the GPU",
                       kv->head_dim);
    kv->block_bytes = cuda_kv_block_bytes(be, kv);
    TRY(cuda_kv_copies_init(cuda_of(be), err));
    return cuda_alloc(&kv->data, kv->block_bytes * (size_t)kv->n_blocks, err);
}

void cuda_kv_store_release(struct backend *be, struct kv_store *kv) {
    cuda_kv_copies_finish(cuda_of(be));
    (void)cuda_wait(cuda_of(be), "the last step");
    cudaFree(kv->data);
    kv->data = NULL;
}

int cuda_kv_block_copy(struct backend *be, struct kv_store *kv, int32_t dst, int32_t src) {
    if (dst < 0 || dst >= kv->n_blocks || src < 0 || src >= kv->n_blocks) return E_INVAL;
    if (dst == src) return 0;
    cudaStream_t stream = cuda_of(be)->stream;
    CUDA_TRY(cudaSetDevice(cuda_of(be)->device)); // as in cuda_step_begin
    const struct cuda_pieces p = cuda_pieces_of(kv);
    char *to = (char *)kv->data + (size_t)dst * p.block;
    const char *from = (const char *)kv->data + (size_t)src * p.block;
    // One call, unless a layer has 2 GiB or more, which is more than a pitch may be.
    if (p.n > 1 && p.apart <= INT32_MAX)
        return cuda_check(cudaMemcpy2DAsync(to, p.apart, from, p.apart, p.bytes, (size_t)p.n,
                                            cudaMemcpyDeviceToDevice, stream),
                          "cudaMemcpy2DAsync");
    for (size_t i = 0; i < (size_t)p.n; i++)
        CUDA_TRY(cudaMemcpyAsync(to + i * p.apart, from + i * p.apart, p.bytes,
                                 cudaMemcpyDeviceToDevice, stream));
    return 0;
}

// A failure shows in the next op: device errors are sticky.
void cuda_kv_block_guard(struct backend *be, struct kv_store *kv, int32_t block, bool is_free) {
    if (!is_free || cudaSetDevice(cuda_of(be)->device) != cudaSuccess) return;
    const struct cuda_pieces p = cuda_pieces_of(kv);
    char *base = (char *)kv->data + (size_t)block * p.block;
    for (int32_t i = 0; i < p.n; i++)
        (void)cudaMemsetAsync(base + (size_t)i * p.apart, 0xff, p.bytes, cuda_of(be)->stream);
}
