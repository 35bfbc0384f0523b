// The op table, and the ops that only unpack their arguments and launch.
#include "kernels/cuda/backend_cuda.h"

static int op_embed(struct backend *be, void *y, const struct batch *b, const struct weight *w,
                    float scale) {
    struct cuda_backend *cuda = cuda_of(be);
    const struct cuda_linear table = cuda_linear_of(cuda, w);
    return cuda_embed(y, cuda->step.b.ids, cuda->drawn.ids, b->n_rows, &table, scale, cuda->stream);
}

static int op_embed_positions(struct backend *be, void *y, const struct batch *b,
                              const float *table, int32_t cols, int32_t offset) {
    struct cuda_backend *cuda = cuda_of(be);
    return cuda_embed_positions(y, be->act_dtype, cuda->step.b.positions, b->n_rows, table, cols,
                                offset, cuda->stream);
}

static int op_norm(struct backend *be, void *y, const void *x, int32_t n, int32_t width,
                   const struct norm_args *args) {
    return cuda_norm(y, x, be->act_dtype, n, width, args, cuda_of(be)->stream);
}

static int op_norm_add(struct backend *be, void *y, const void *x, int32_t n, int32_t width,
                       const struct norm_args *args) {
    return cuda_norm_add(y, x, be->act_dtype, n, width, args, cuda_of(be)->stream);
}

static int op_rope_angles(struct backend *be, float *cos_sin, const struct batch *b,
                          const float *inv_freq, const float *short_inv_freq, int32_t rot_dim,
                          float scale) {
    struct cuda_backend *cuda = cuda_of(be);
    return cuda_rope_angles(cos_sin, &cuda->step.b, b->n_rows, inv_freq, short_inv_freq, rot_dim,
                            scale, cuda->stream);
}

static int op_activate(struct backend *be, enum activation act, bool gated, void *y, const void *x,
                       int32_t n, int32_t width) {
    return cuda_activate(act, gated, y, x, be->act_dtype, n, width, cuda_of(be)->stream);
}

static int op_add(struct backend *be, void *y, const void *x, int64_t n_elements) {
    return cuda_add(y, x, be->act_dtype, n_elements, cuda_of(be)->stream);
}

static int op_scale(struct backend *be, void *x, int64_t n_elements, const float *by,
                    float factor) {
    return cuda_scale(x, be->act_dtype, n_elements, by, factor, cuda_of(be)->stream);
}

static int op_multiply_rows(struct backend *be, void *y, const void *x, int32_t n, int32_t width,
                            int64_t stride) {
    return cuda_multiply_rows(y, x, be->act_dtype, n, width, stride, cuda_of(be)->stream);
}

static int op_xielu(struct backend *be, void *y, const void *x, int32_t n, int32_t width,
                    const float *alpha) {
    return cuda_xielu(y, x, be->act_dtype, (int64_t)n * width, alpha, cuda_of(be)->stream);
}

static int op_finish_logits(struct backend *be, float *x, int64_t n_elements, float scale,
                            float cap) {
    return cuda_finish_logits(x, n_elements, scale, cap, cuda_of(be)->stream);
}

static int op_route(struct backend *be, int32_t *ids, float *weights, const float *logits,
                    int32_t n, const struct route_args *args) {
    return cuda_route(ids, weights, logits, n, args, cuda_of(be)->stream);
}

static int op_experts(struct backend *be, enum linear_mode mode, void *y, const void *x, int32_t n,
                      const int32_t *ids, const float *weights, const struct experts_args *args,
                      void *work) {
    const struct cuda_backend *cuda = cuda_of(be);
    const struct cuda_experts a = {.args = *args,
                                   .mode = mode,
                                   .dtype = be->act_dtype,
                                   .y = y,
                                   .x = x,
                                   .ids = ids,
                                   .weights = weights,
                                   .n = n,
                                   .work = work,
                                   .deterministic = cuda->deterministic,
                                   .meeting = cuda->claimed ? cuda->tickets + CUDA_TICKETS : NULL};
    const int rc = cuda_experts(&a, cuda->stream);
    return rc == CUDA_UNSUPPORTED ? OP_DECLINED : rc;
}

static size_t op_experts_bytes(struct backend *be, int32_t n, const struct experts_args *args) {
    return cuda_experts_bytes(n, args, be->act_dtype);
}

static int op_add_gated(struct backend *be, void *y, const void *x, const float *gate, int32_t n,
                        int32_t width) {
    return cuda_add_gated(y, x, be->act_dtype, gate, n, width, cuda_of(be)->stream);
}

static int op_gather(struct backend *be, void *y, const void *x, const struct batch *b,
                     int32_t width) {
    struct cuda_backend *cuda = cuda_of(be);
    return cuda_gather(y, x, be->act_dtype, cuda->step.b.logit_rows, b->n_logits, width,
                       cuda->stream);
}

static int op_step_reserve(struct backend *be, const struct step_limits *l, struct err *err) {
    struct cuda_backend *cuda = cuda_of(be);
    cuda_staging_release(cuda);
    TRY(cuda_step_reserve(cuda, l->max_rows, l->max_seqs, l->max_map, l->n_groups, err));
    size_t work = cuda_attention_work_bytes(l->max_seqs, l->n_heads, l->n_kv_heads, l->head_dim);
    const size_t least = cuda->deterministic ? CUDA_EXACT_WORK_BYTES : CUDA_TILES_WORK_BYTES;
    if (work < least) work = least; // for few sequences it would be too little for tiles
    cudaFree(cuda->attention_work);
    cuda->attention_work = NULL;
    cuda->attention_work_bytes = 0;
    TRY(cuda_alloc(&cuda->attention_work, work + 256, err));
    cuda->attention_work_bytes = work; // each launch leaves its counters zero
    CUDA_TRY(cudaMemsetAsync(cuda->attention_work, 0, work + 256, cuda->stream));
    TRY(cuda_draws_reserve(cuda, l, err));
    TRY(cuda_fp8_reserve(cuda, l, err));
    if (!cuda->deterministic) {
        struct cuda_linear shapes[CUDA_MAX_SHAPES];
        for (int i = 0; i < cuda->n_shapes; i++) {
            shapes[i] = cuda->shapes[i];
            if (shapes[i].w_dtype == DTYPE_U8) cuda_groups_widened(cuda, &shapes[i]);
        }
        TRY(cublas_tune(&cuda->blas, shapes, cuda->n_shapes, l, cuda->stream, err));
    }
    cuda->step.graphs = true;
    return 0;
}

// NCCL ends only after the graphs that it is recorded in.
static void op_ranks_close(struct backend *be) {
    struct cuda_backend *cuda = cuda_of(be);
    (void)cuda_wait(cuda, "the last step");
    cuda_step_forget_graphs(&cuda->step);
    cuda_ranks_close(be);
}

const struct backend_ops cuda_ops = {
    .name = "cuda",
    .features = OP_SOFT_CAP | OP_SINKS | OP_QUERY_SCALE | OP_QK_NORM_WIDTH | OP_QK_NORM_LATE |
                OP_V_NORM | OP_QKV_CLIP | OP_Q_ONLY | OP_SCALE | OP_XIELU | OP_LAYER_INPUTS |
                OP_LOGITS | OP_EXPERTS | OP_LATENT | OP_GROUPS_LINEAR | OP_GROUPS_EXPERTS |
                OP_GROUPS_EMBED,
    .kv_groups = true,
    .mem_alloc = cuda_mem_alloc,
    .mem_free = cuda_mem_free,
    .mem_write = cuda_mem_write,
    .mem_read = cuda_mem_read,
    .mem_info = cuda_mem_info,
    .read_rate = cuda_read_rate,
    .idle_time = cuda_idle_time,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
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
    .qk_norm = cuda_op_qk_norm,
    .rope_angles = op_rope_angles,
    .rope = cuda_op_rope,
    .kv_write = cuda_op_kv_write,
    .attention = cuda_op_attention,
    .activate = op_activate,
    .add = op_add,
    .scale = op_scale,
    .multiply_rows = op_multiply_rows,
    .xielu = op_xielu,
    .finish_logits = op_finish_logits,
    .route = op_route,
    .experts = op_experts,
    .experts_bytes = op_experts_bytes,
    .add_gated = op_add_gated,
    .latent_attention = cuda_op_latent_attention,
    .latent_bytes = cuda_op_latent_bytes,
    .gather_logit_rows = op_gather,
    .logits_read = cuda_op_logits_read,
    .draw = cuda_op_draw,
    .draws_read = cuda_op_draws_read,
    .draws_read_before = cuda_op_draws_read_before,
    .draw_adjust = cuda_op_draw_adjust,
    .draw_adjusted = cuda_op_draw_adjusted,
    .qkv_finish = cuda_op_qkv_finish,
    .norm_add = op_norm_add,
    .linear_activate = cuda_op_linear_activate,
    .norm_linear = cuda_op_norm_linear,
    .norm_route = cuda_op_norm_route,
    .qkv_attention = cuda_op_qkv_attention,
    .ranks_open = cuda_ranks_open,
    .ranks_close = op_ranks_close,
    .all_reduce = cuda_all_reduce,
    .gather_rows = cuda_gather_rows,
    .share_draws = cuda_share_draws,
    .send = cuda_send,
    .recv = cuda_recv,
    .close = cuda_close,
};
