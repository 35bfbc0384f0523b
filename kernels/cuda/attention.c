// Attention of one step. Decode rows (the only row of their sequence) go to the decode kernel. The other
// rows go in tiles to the kernel of sm_90a, or to the prefill kernel for shapes that the former does not
// cover. The simple kernel takes the shapes that none of these covers. With `deterministic`, one kernel
// takes both kinds of rows; again the simple kernel takes the shapes that this one does not cover. Latents
// and heads of more than 256 have a kernel of their own for all rows.
#include "kernels/cuda/attention_exact.h"
#include "kernels/cuda/attention_fresh.h"
#include "kernels/cuda/attention_hopper.h"
#include "kernels/cuda/attention_wide.h"
#include "kernels/cuda/backend_cuda.h"
#include "kernels/cuda/latent.h"

static struct cuda_attention describe(struct cuda_backend *cuda, void *out, const void *qkv,
                                      const struct kv_store *kv, const struct batch *b,
                                      const struct attention_args *args) {
    const struct cuda_step *s = &cuda->step;
    return (struct cuda_attention){
        .out = out,
        .qkv = qkv,
        .dtype = cuda->base.act_dtype,
        .kv = cuda_kv_of(kv),
        .b = cuda_batch_of(cuda, kv),
        .layer = args->layer,
        .n_heads = args->n_heads,
        .row_heads = args->n_heads + (args->q_only ? 0 : (kv->latent ? 1 : 2) * args->n_kv_heads),
        .scale = args->scale,
        .soft_cap = args->soft_cap,
        .window = args->window,
        .alibi_slopes = args->alibi_slopes,
        .sinks = args->sinks,
        .n_decode = s->n_decode,
        .n_tiles = s->n_tiles,
        .early = !b->load, // a load's copies may be under way
        .max_position = s->max_position,
        .work = cuda->attention_work,
        .work_bytes = cuda->attention_work_bytes,
    };
}

int cuda_op_attention(struct backend *be, void *out, const void *qkv, const struct kv_store *kv,
                      const struct batch *b, const struct attention_args *args) {
    struct cuda_backend *cuda = cuda_of(be);
    const struct cuda_attention a = describe(cuda, out, qkv, kv, b, args);
    int rc = 0;
    if (kv->latent || kv->head_dim > 256) {
        rc = cuda_attention_wide(&a, cuda->deterministic, NULL, cuda->stream);
    } else if (cuda->deterministic) {
        rc = cuda_attention_exact(&a, cuda->stream);
    } else {
        if (a.n_decode) rc = cuda_attention_decode(&a, cuda->stream);
        if (rc == 0 && a.n_tiles) {
            rc = cuda_attention_hopper(&a, cuda->stream);
            if (rc == CUDA_UNSUPPORTED) rc = cuda_attention_prefill(&a, cuda->stream);
        }
    }
    return rc == CUDA_UNSUPPORTED ? cuda_attention_simple(&a, NULL, b->n_rows, cuda->stream) : rc;
}

// Up to this many decode rows, fewer launches gain more than equal shares of all keys do
// (attention_decode.cu): 2, 5 and 1 % more tokens/s with 16, 32 and 48 rows of Llama-8B, 1 % less
// with 64. With weights of 8 bits, whose products of 64 rows start early, 4 and 6 % more with 64 (fp8
// and int8); cuBLASLt's, which fp8_activations takes, do not, and it is 1 % less.
enum { FRESH_ROWS = 48, FRESH_ROWS_MANY = 64 };

// With more rows too, if all blocks run at once, because a rank has few kv heads or heads are small: 5 to 6 %
// more with 64 rows of Llama-8B's half, 5 % with those of Llama-1B. Not where rows are long: no row is divided
// here, so all would wait for the longest.
enum { FRESH_POSITIONS = 2048 };

static bool is_fresh(const struct cuda_backend *cuda, const struct cuda_attention *a) {
    if (a->n_decode <= FRESH_ROWS) return true;
    if (a->n_decode > FRESH_ROWS_MANY) return false;
    if (cuda->weights_8bit && !cuda->fp8.on) return true;
    return a->max_position <= FRESH_POSITIONS &&
           a->n_decode * a->kv.n_kv_heads <= cuda_attention_fresh_at_once(a->kv.head_dim);
}

int cuda_op_qkv_attention(struct backend *be, void *out, void *qkv, const struct kv_store *kv,
                          const struct batch *b, const struct attention_args *args,
                          const struct qkv_args *finish) {
    struct cuda_backend *cuda = cuda_of(be);
    const struct cuda_attention a = describe(cuda, out, qkv, kv, b, args);
    // The fused kernel reads the cache before it waits for its predecessor, so it would read cache
    // blocks that a load has not copied yet.
    if (b->load || finish->all_heads || finish->clip > 0 || kv->latent) return OP_DECLINED;
    if (cuda->deterministic || a.n_tiles || a.n_decode == 0 || !is_fresh(cuda, &a))
        return OP_DECLINED;
    if (args->layer == 0) TRY(cuda_check_blocks(kv, b));
    const struct cuda_kv_write w =
        cuda_kv_write_of(cuda, qkv, kv, b->n_rows, args->layer, args->n_heads, finish);
    int rc = cuda_attention_fresh(&a, &w, cuda->stream);
    return rc == CUDA_UNSUPPORTED ? OP_DECLINED : rc;
}

// Of the work space: the rows that attention reads, then what it gives.
static size_t latent_rows_bytes(const struct backend *be, int32_t n, const struct latent_args *a,
                                int32_t heads) {
    const size_t bytes =
        (size_t)n * (size_t)heads * (size_t)(a->rope_dim + a->rank) * dtype_size(be->act_dtype);
    return (bytes + 255) & ~(size_t)255;
}

size_t cuda_op_latent_bytes(struct backend *be, int32_t n, const struct latent_args *a) {
    return latent_rows_bytes(be, n, a, a->n_heads + 1) + latent_rows_bytes(be, n, a, a->n_heads);
}

int cuda_op_latent_attention(struct backend *be, void *out, const struct kv_store *kv,
                             const struct batch *b, const struct latent_args *args, void *work) {
    struct cuda_backend *cuda = cuda_of(be);
    const enum dtype t = be->act_dtype;
    void *attended = (char *)work + latent_rows_bytes(be, b->n_rows, args, args->n_heads + 1);
    const struct attention_args of = {.layer = args->layer,
                                      .n_heads = args->n_heads,
                                      .n_kv_heads = 1,
                                      .head_dim = kv->head_dim,
                                      .scale = args->scale};
    const struct cuda_attention a = describe(cuda, attended, work, kv, b, &of);
    struct latent_parts parts = {0};
    if (b->n_rows == 0) return 0;
    if (args->layer == 0) TRY(cuda_check_blocks(kv, b));
    TRY(cuda_latent_before(work, args, &a.kv, &a.b, t, b->n_rows, cuda->stream));
    int rc = cuda_attention_wide(&a, cuda->deterministic, &parts, cuda->stream);
    if (rc == CUDA_UNSUPPORTED) rc = cuda_attention_simple(&a, NULL, b->n_rows, cuda->stream);
    TRY(rc);
    parts.skip = args->rope_dim;
    const int32_t n = parts.parts ? a.n_decode : b->n_rows;
    return cuda_latent_behind(out, attended, &parts, args, t, n, cuda->stream);
}
