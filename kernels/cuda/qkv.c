// The ops between the projection to q, k and v and attention; kv_write.cu has their kernel.
#include "kernels/cuda/backend_cuda.h"

// Without a cache: nothing is stored.
static struct cuda_kv_write in_place(const struct backend *be, void *qkv, int32_t n,
                                     const struct qkv_shape *s) {
    return (struct cuda_kv_write){.qkv = qkv,
                                  .dtype = be->act_dtype,
                                  .kv = {.n_kv_heads = s->n_kv_heads, .head_dim = s->head_dim},
                                  .n_rows = n,
                                  .n_heads = s->n_heads};
}

int cuda_op_qk_norm(struct backend *be, void *qkv, int32_t n, const struct qkv_shape *shape,
                    const struct qkv_args *args) {
    struct cuda_kv_write a = in_place(be, qkv, n, shape);
    a.q_weight = args->q_weight;
    a.k_weight = args->k_weight;
    a.eps = args->eps;
    return cuda_kv_write(&a, cuda_of(be)->stream);
}

int cuda_op_rope(struct backend *be, void *qkv, int32_t n, const struct qkv_shape *shape,
                 const struct qkv_args *args) {
    struct cuda_kv_write a = in_place(be, qkv, n, shape);
    a.style = args->style;
    a.rot_dim = args->rot_dim;
    a.cos_sin = args->cos_sin;
    return cuda_kv_write(&a, cuda_of(be)->stream);
}

// Checked while a step is launched op by op. A recorded step is not checked again: block ids come
// from the pool, which has as many blocks as the cache.
int cuda_check_blocks(const struct kv_store *kv, const struct batch *b) {
    for (int32_t s = 0; s < b->n_seqs; s++) {
        const struct batch_seq *q = &b->seqs[s];
        if (q->maps->block_tokens != kv->block_tokens) return E_INVAL;
        for (int32_t r = q->first_row; r < q->first_row + q->n_rows; r++)
            if (q->maps->blocks[kv_map_slot(q->maps, b->positions[r])] >= kv->n_blocks)
                return E_INVAL;
    }
    return 0;
}

struct cuda_kv_write cuda_kv_write_of(const struct cuda_backend *cuda, void *qkv,
                                      const struct kv_store *kv, int32_t n_rows, int32_t layer,
                                      int32_t n_heads, const struct qkv_args *q) {
    return (struct cuda_kv_write){.qkv = qkv,
                                  .dtype = cuda->base.act_dtype,
                                  .kv = cuda_kv_of(kv),
                                  .b = cuda->step.b,
                                  .n_rows = n_rows,
                                  .layer = layer,
                                  .n_heads = n_heads,
                                  .store = true,
                                  .style = q->style,
                                  .rot_dim = q->rot_dim,
                                  .cos_sin = q->cos_sin,
                                  .q_weight = q->q_weight,
                                  .k_weight = q->k_weight,
                                  .eps = q->eps};
}

int cuda_op_qkv_finish(struct backend *be, void *qkv, const struct kv_store *kv,
                       const struct batch *b, int32_t layer, int32_t n_heads,
                       const struct qkv_args *args) {
    struct cuda_backend *cuda = cuda_of(be);
    if (layer == 0) TRY(cuda_check_blocks(kv, b));
    const struct cuda_kv_write a = cuda_kv_write_of(cuda, qkv, kv, b->n_rows, layer, n_heads, args);
    return cuda_kv_write(&a, cuda->stream);
}

int cuda_op_kv_write(struct backend *be, const struct kv_store *kv, int32_t layer, const void *qkv,
                     const struct batch *b, int32_t n_heads) {
    TRY(cuda_check_blocks(kv, b));
    const struct qkv_args nothing = {.style = ROPE_HALF};
    return cuda_op_qkv_finish(be, (void *)(uintptr_t)qkv, kv, b, layer, n_heads, &nothing);
}
