// The ops that only unpack and launch.
#include "kernels/cuda/backend_cuda.h"
#include <string.h>

static int op_embed(struct backend *be, void *y, const struct batch *b, const struct weight *w,
                    float scale) {
    struct cuda_backend *cuda = cuda_of(be);
    const struct cuda_linear table = cuda_linear_of(cuda, w);
    return cuda_embed(y, cuda->step.b.ids, b->n_rows, &table, scale, cuda->stream);
}

static int op_embed_positions(struct backend *be, void *y, const struct batch *b,
                              const float *table, int32_t cols, int32_t offset) {
    struct cuda_backend *cuda = cuda_of(be);
    return cuda_embed_positions(y, be->act_dtype, cuda->step.b.positions, b->n_rows, table, cols,
                                offset, cuda->stream);
}

static int op_norm(struct backend *be, enum norm_kind kind, void *y, const void *x, int32_t n,
                   int32_t width, const float *weight, const float *bias, float eps) {
    return cuda_norm(kind, y, x, be->act_dtype, n, width, width, weight, bias, eps,
                     cuda_of(be)->stream);
}

static int op_rope_angles(struct backend *be, float *cos_sin, const struct batch *b,
                          const float *inv_freq, int32_t rot_dim, float scale) {
    struct cuda_backend *cuda = cuda_of(be);
    return cuda_rope_angles(cos_sin, cuda->step.b.positions, b->n_rows, inv_freq, rot_dim, scale,
                            cuda->stream);
}

static int op_qk_norm(struct backend *be, void *qkv, int32_t n, int32_t n_heads, int32_t n_kv_heads,
                      int32_t head_dim, const float *q_weight, const float *k_weight, float eps) {
    const struct cuda_kv_write a = {.qkv = qkv,
                                    .dtype = be->act_dtype,
                                    .kv = {.n_kv_heads = n_kv_heads, .head_dim = head_dim},
                                    .n_rows = n,
                                    .n_heads = n_heads,
                                    .q_weight = q_weight,
                                    .k_weight = k_weight,
                                    .eps = eps};
    return cuda_kv_write(&a, cuda_of(be)->stream);
}

static int op_rope(struct backend *be, enum rope_style style, void *qkv, int32_t n, int32_t n_heads,
                   int32_t n_kv_heads, int32_t head_dim, int32_t rot_dim, const float *cos_sin) {
    const struct cuda_kv_write a = {.qkv = qkv,
                                    .dtype = be->act_dtype,
                                    .kv = {.n_kv_heads = n_kv_heads, .head_dim = head_dim},
                                    .n_rows = n,
                                    .n_heads = n_heads,
                                    .style = style,
                                    .rot_dim = rot_dim,
                                    .cos_sin = cos_sin};
    return cuda_kv_write(&a, cuda_of(be)->stream);
}

// Block ids come from the pool, which is as large as the cache made last: where a step is recorded
// the host no longer looks at them.
int cuda_check_blocks(const struct kv_store *kv, const struct batch *b) {
    for (int32_t s = 0; s < b->n_seqs; s++) {
        const struct batch_seq *q = &b->seqs[s];
        if (q->map.block_tokens != kv->block_tokens) return E_INVAL;
        for (int32_t r = q->first_row; r < q->first_row + q->n_rows; r++)
            if (q->map.blocks[kv_map_slot(&q->map, b->positions[r])] >= kv->n_blocks)
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

static int op_qkv_finish(struct backend *be, enum rope_style style, void *qkv,
                         const struct kv_store *kv, const struct batch *b, int32_t layer,
                         int32_t n_heads, int32_t rot_dim, const float *cos_sin,
                         const float *q_weight, const float *k_weight, float eps) {
    struct cuda_backend *cuda = cuda_of(be);
    if (layer == 0) TRY(cuda_check_blocks(kv, b));
    const struct qkv_args q = {style, rot_dim, cos_sin, q_weight, k_weight, eps};
    const struct cuda_kv_write a = cuda_kv_write_of(cuda, qkv, kv, b->n_rows, layer, n_heads, &q);
    return cuda_kv_write(&a, cuda->stream);
}

static int op_kv_write(struct backend *be, const struct kv_store *kv, int32_t layer,
                       const void *qkv, const struct batch *b, int32_t n_heads) {
    TRY(cuda_check_blocks(kv, b));
    return op_qkv_finish(be, ROPE_HALF, (void *)(uintptr_t)qkv, kv, b, layer, n_heads, 0, NULL,
                         NULL, NULL, 0.0f);
}

static int op_activate(struct backend *be, enum activation act, bool gated, void *y, const void *x,
                       int32_t n, int32_t width) {
    return cuda_activate(act, gated, y, x, be->act_dtype, n, width, cuda_of(be)->stream);
}

static int op_add(struct backend *be, void *y, const void *x, int64_t n_elements) {
    return cuda_add(y, x, be->act_dtype, n_elements, cuda_of(be)->stream);
}

static int op_gather(struct backend *be, void *y, const void *x, const struct batch *b,
                     int32_t width) {
    struct cuda_backend *cuda = cuda_of(be);
    return cuda_gather(y, x, be->act_dtype, cuda->step.b.logit_rows, b->n_logits, width,
                       cuda->stream);
}

// --- memory and results --------------------------------------------------------------------------

static int op_mem_alloc(struct backend *be, size_t bytes, void **out, struct err *err) {
    return cuda_alloc(out, bytes, err);
}

static void op_mem_free(struct backend *be, void *p) {
    cudaStreamSynchronize(cuda_of(be)->stream);
    cudaFree(p);
}

static int copy(struct cuda_backend *cuda, void *dst, const void *src, size_t bytes,
                enum cudaMemcpyKind kind) {
    CUDA_TRY(cudaMemcpyAsync(dst, src, bytes, kind, cuda->stream));
    cuda_idle_step_ends(cuda);
    return cuda_check(cudaStreamSynchronize(cuda->stream), "a copy");
}

static int op_mem_write(struct backend *be, void *dst, const void *host_src, size_t bytes) {
    return copy(cuda_of(be), dst, host_src, bytes, cudaMemcpyHostToDevice);
}

static int op_mem_read(struct backend *be, void *host_dst, const void *src, size_t bytes) {
    return copy(cuda_of(be), host_dst, src, bytes, cudaMemcpyDeviceToHost);
}

static int op_mem_info(struct backend *be, size_t *free_bytes, size_t *total_bytes) {
    CUDA_TRY(cudaMemGetInfo(free_bytes, total_bytes));
    return 0;
}

// The best of some passes over 4 GiB, or over what is free.
static int op_read_rate(struct backend *be, double *out, struct err *err) {
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

static int op_host_alloc(struct backend *be, size_t bytes, void **out, struct err *err) {
    if (cudaHostAlloc(out, bytes, cudaHostAllocDefault) == cudaSuccess) return 0;
    (void)cudaGetLastError();
    return err_set(err, E_NOMEM, "no pinned memory for %zu bytes", bytes);
}

static void op_host_free(struct backend *be, void *p) {
    if (p) cudaFreeHost(p);
}

static int op_logits_read(struct backend *be, float *host, const void *logits, int32_t n,
                          int32_t vocab) {
    return op_mem_read(be, host, logits, (size_t)n * (size_t)vocab * sizeof(float));
}

static int op_draw(struct backend *be, const float *logits, const struct batch *b, int32_t n,
                   int32_t vocab) {
    struct cuda_backend *cuda = cuda_of(be);
    if (n > cuda->step.max_seqs) return 0; // nobody can have asked for a draw
    return cuda_draw(cuda->drawn, logits, cuda->step.draws, n, vocab, cuda->draw_work,
                     cuda->stream);
}

static int op_draws_read(struct backend *be, struct batch_drawn *out, int32_t n) {
    struct cuda_backend *cuda = cuda_of(be);
    TRY(op_mem_read(be, cuda->drawn_host, cuda->drawn, (size_t)n * sizeof *out));
    memcpy(out, cuda->drawn_host, (size_t)n * sizeof *out);
    return 0;
}

static int reserve_draws(struct cuda_backend *cuda, const struct step_limits *l, struct err *err) {
    size_t bytes = (size_t)l->max_seqs * sizeof *cuda->drawn;
    cuda_draws_release(cuda);
    TRY(cuda_alloc((void **)&cuda->drawn, bytes, err));
    TRY(op_host_alloc(&cuda->base, bytes, (void **)&cuda->drawn_host, err));
    return cuda_alloc(&cuda->draw_work, cuda_draw_work_bytes(l->max_seqs, l->vocab), err);
}

void cuda_draws_release(struct cuda_backend *cuda) {
    cudaFree(cuda->drawn);
    cudaFree(cuda->draw_work);
    op_host_free(&cuda->base, cuda->drawn_host);
    cuda->drawn = cuda->drawn_host = NULL;
    cuda->draw_work = NULL;
}

static int op_step_reserve(struct backend *be, const struct step_limits *l, struct err *err) {
    struct cuda_backend *cuda = cuda_of(be);
    cuda_staging_release(cuda);
    TRY(cuda_step_reserve(cuda, l->max_rows, l->max_seqs, l->max_map, err));
    size_t work = cuda_attention_work_bytes(l->max_seqs, l->n_heads, l->n_kv_heads, l->head_dim);
    const size_t least = cuda->deterministic ? CUDA_EXACT_WORK_BYTES : CUDA_TILES_WORK_BYTES;
    if (work < least) work = least; // what one sequence's decode rows need is far less
    cudaFree(cuda->attention_work);
    cuda->attention_work = NULL;
    cuda->attention_work_bytes = 0;
    TRY(cuda_alloc(&cuda->attention_work, work + 256, err));
    cuda->attention_work_bytes = work; // its counters are zero before and after each launch
    CUDA_TRY(cudaMemsetAsync(cuda->attention_work, 0, work + 256, cuda->stream));
    TRY(reserve_draws(cuda, l, err));
    if (!cuda->deterministic)
        TRY(cublas_tune(&cuda->blas, cuda->shapes, cuda->n_shapes, l, cuda->stream, err));
    cuda->step.graphs = true;
    return 0;
}

static void op_close(struct backend *be) {
    if (!be) return;
    struct cuda_backend *cuda = cuda_of(be);
    cuda_close(cuda);
}

const struct backend_ops cuda_ops = {
    .name = "cuda",
    .mem_alloc = op_mem_alloc,
    .mem_free = op_mem_free,
    .mem_write = op_mem_write,
    .mem_read = op_mem_read,
    .mem_info = op_mem_info,
    .read_rate = op_read_rate,
    .idle_time = cuda_idle_time,
    .host_alloc = op_host_alloc,
    .host_free = op_host_free,
    .weight_init = cuda_weight_init,
    .weight_release = cuda_weight_release,
    .kv_block_bytes = cuda_kv_block_bytes,
    .kv_store_init = cuda_kv_store_init,
    .kv_store_release = cuda_kv_store_release,
    .kv_block_copy = cuda_kv_block_copy,
    .kv_blocks_save = cuda_kv_blocks_save,
    .kv_blocks_load = cuda_kv_blocks_load,
    .kv_copies_done = cuda_kv_copies_done,
    .kv_layer_wait = cuda_kv_layer_wait,
    .kv_block_guard = cuda_kv_block_guard,
    .step_reserve = op_step_reserve,
    .step_begin = cuda_step_begin,
    .step_launch = cuda_step_launch,
    .step_end = cuda_step_end,
    .embed = op_embed,
    .embed_positions = op_embed_positions,
    .norm = op_norm,
    .linear = cuda_op_linear,
    .qk_norm = op_qk_norm,
    .rope_angles = op_rope_angles,
    .rope = op_rope,
    .kv_write = op_kv_write,
    .attention = cuda_op_attention,
    .activate = op_activate,
    .add = op_add,
    .gather_logit_rows = op_gather,
    .logits_read = op_logits_read,
    .draw = op_draw,
    .draws_read = op_draws_read,
    .qkv_finish = op_qkv_finish,
    .linear_activate = cuda_op_linear_activate,
    .norm_linear = cuda_op_norm_linear,
    .qkv_attention = cuda_op_qkv_attention,
    .close = op_close,
};
