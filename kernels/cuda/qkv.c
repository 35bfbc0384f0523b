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

// One norm over all q heads and one over all k heads.
static int norm_widths(struct backend *be, void *qkv, int32_t n, const struct qkv_shape *s,
                       const struct qkv_args *args) {
    const int32_t q = s->n_heads * s->head_dim, k = s->n_kv_heads * s->head_dim;
    const int64_t stride = q + 2 * k;
    char *k_at = (char *)qkv + (size_t)q * dtype_size(be->act_dtype);
    const struct norm_args of_q = {NORM_RMS, args->q_weight, NULL, args->eps, 0};
    const struct norm_args of_k = {NORM_RMS, args->k_weight, NULL, args->eps, 0};
    cudaStream_t stream = cuda_of(be)->stream;
    if (args->q_weight) TRY(cuda_norm_strided(qkv, be->act_dtype, n, q, stride, &of_q, stream));
    if (k == 0 || !args->k_weight) return 0;
    return cuda_norm_strided(k_at, be->act_dtype, n, k, stride, &of_k, stream);
}

int cuda_op_qk_norm(struct backend *be, void *qkv, int32_t n, const struct qkv_shape *shape,
                    const struct qkv_args *args) {
    struct cuda_kv_write a = in_place(be, qkv, n, shape);
    if (args->all_heads) TRY(norm_widths(be, qkv, n, shape, args));
    a.q_weight = args->all_heads ? NULL : args->q_weight;
    a.k_weight = args->all_heads ? NULL : args->k_weight;
    a.v_weight = args->v_weight;
    a.eps = args->eps;
    a.clip = args->clip;
    if (!a.q_weight && !a.v_weight && a.clip == 0) return 0;
    return cuda_kv_write(&a, cuda_of(be)->stream);
}

int cuda_op_rope(struct backend *be, void *qkv, int32_t n, const struct qkv_shape *shape,
                 const struct qkv_args *args) {
    struct cuda_kv_write a = in_place(be, qkv, n, shape);
    a.style = args->style;
    a.rot_dim = args->rot_dim;
    a.cos_sin = args->cos_sin;
    a.query_beta = args->query_beta;
    a.query_length = args->query_length;
    a.positions = cuda_of(be)->step.b.positions;
    return cuda_kv_write(&a, cuda_of(be)->stream);
}

// Checked while a step is launched op by op. A recorded step is not checked again: block ids come
// from the pool, which has as many blocks as the cache.
int cuda_check_blocks(const struct kv_store *kv, const struct batch *b) {
    for (int32_t s = 0; s < b->n_seqs; s++) {
        const struct batch_seq *q = &b->seqs[s];
        const struct kv_map *map = &q->maps[kv->group];
        if (map->block_tokens != kv->block_tokens) return E_INVAL;
        for (int32_t r = q->first_row; r < q->first_row + q->n_rows; r++)
            if (map->blocks[kv_map_slot(map, b->positions[r])] >= kv->n_blocks) return E_INVAL;
    }
    return 0;
}

struct cuda_kv_write cuda_kv_write_of(const struct cuda_backend *cuda, void *qkv,
                                      const struct kv_store *kv, int32_t n_rows, int32_t layer,
                                      int32_t n_heads, const struct qkv_args *q) {
    return (struct cuda_kv_write){.qkv = qkv,
                                  .dtype = cuda->base.act_dtype,
                                  .kv = cuda_kv_of(kv),
                                  .b = cuda_batch_of(cuda, kv),
                                  .n_rows = n_rows,
                                  .layer = layer,
                                  .n_heads = n_heads,
                                  .store = true,
                                  .style = q->style,
                                  .rot_dim = q->rot_dim,
                                  .cos_sin = q->cos_sin,
                                  .q_weight = q->q_weight,
                                  .k_weight = q->k_weight,
                                  .v_weight = q->v_weight,
                                  .eps = q->eps,
                                  .norm_late = q->norm_late,
                                  .clip = q->clip,
                                  .query_beta = q->query_beta,
                                  .query_length = q->query_length,
                                  .positions = cuda->step.b.positions};
}

int cuda_op_qkv_finish(struct backend *be, void *qkv, const struct kv_store *kv,
                       const struct batch *b, int32_t layer, int32_t n_heads,
                       const struct qkv_args *args) {
    struct cuda_backend *cuda = cuda_of(be);
    if (layer == 0) TRY(cuda_check_blocks(kv, b));
    struct cuda_kv_write a = cuda_kv_write_of(cuda, qkv, kv, b->n_rows, layer, n_heads, args);
    if (args->all_heads && args->q_weight) {
        const struct qkv_shape shape = {n_heads, kv->n_kv_heads, kv->head_dim};
        if (args->norm_late) { // rotated first, without the rest
            a.store = false, a.query_beta = 0, a.clip = 0;
            a.q_weight = a.k_weight = a.v_weight = NULL;
            TRY(cuda_kv_write(&a, cuda->stream));
            a = cuda_kv_write_of(cuda, qkv, kv, b->n_rows, layer, n_heads, args);
            a.rot_dim = 0;
        }
        TRY(norm_widths(be, qkv, b->n_rows, &shape, args));
        a.q_weight = a.k_weight = NULL;
    }
    return cuda_kv_write(&a, cuda->stream);
}

int cuda_op_kv_write(struct backend *be, const struct kv_store *kv, int32_t layer, const void *qkv,
                     const struct batch *b, int32_t n_heads) {
    TRY(cuda_check_blocks(kv, b));
    const struct qkv_args nothing = {.style = ROPE_HALF};
    return cuda_op_qkv_finish(be, (void *)(uintptr_t)qkv, kv, b, layer, n_heads, &nothing);
}
