// Attention of one step: rows that are alone in their sequence go to the decode kernel, the others
// in tiles to the prefill kernel; what one of them does not cover goes to the simple kernel. Where
// the same bits are asked for whatever the batch, one kernel takes both, or the simple one does.
#include "kernels/cuda/attention_exact.h"
#include "kernels/cuda/backend_cuda.h"

int cuda_op_attention(struct backend *be, void *out, const void *qkv, const struct kv_store *kv,
                      const struct batch *b, const struct attention_args *args) {
    struct cuda_backend *cuda = cuda_of(be);
    const struct cuda_step *s = &cuda->step;
    const struct cuda_attention a = {
        .out = out,
        .qkv = qkv,
        .dtype = be->act_dtype,
        .kv = cuda_kv_of(kv),
        .b = s->b,
        .layer = args->layer,
        .n_heads = args->n_heads,
        .scale = args->scale,
        .window = args->window,
        .alibi_slopes = args->alibi_slopes,
        .n_decode = s->n_decode,
        .n_tiles = s->n_tiles,
        .max_position = s->max_position,
        .work = cuda->attention_work,
        .work_bytes = cuda->attention_work_bytes,
    };
    int rc = 0;
    if (cuda->deterministic) {
        rc = cuda_attention_exact(&a, cuda->stream);
    } else {
        if (a.n_decode) rc = cuda_attention_decode(&a, cuda->stream);
        if (rc == 0 && a.n_tiles) rc = cuda_attention_prefill(&a, cuda->stream);
    }
    return rc == CUDA_NOT_MINE ? cuda_attention_simple(&a, NULL, b->n_rows, cuda->stream) : rc;
}
