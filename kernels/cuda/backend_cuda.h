// Shared by the host-side files of the CUDA backend. All ops use one stream, so they run in the order
// of their calls. Copies of blocks and of changes to logits have streams of their own, for which it waits. The
// engine's thread is the only caller.
#pragma once
#include "kernels/cuda/cublas.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/groups.h"
#include "kernels/cuda/ranks.h"
#include "kernels/cuda/step.h"

enum {
    CUDA_STAGING_BYTES = 16 << 20,
    CUDA_MAX_SHAPES = 64,
    CUDA_IDLE_GAPS = 256,
    CUDA_SHARED_MASKS = 256,
    CUDA_COPY_GROUPS = 8, // groups of layers of a load that runs beside a step
    CUDA_COPY_PARTS = 64, // parts of blocks in one call of CUDA
    CUDA_TICKETS = 64
};

// Least sizes of attention's work space. TILES: thread blocks share the keys of a later turn's rows.
// EXACT, with `deterministic`: a long context is summed in parts of 512 positions.
enum { CUDA_TILES_WORK_BYTES = 16 << 20, CUDA_EXACT_WORK_BYTES = 64 << 20 };

struct cuda_backend {
    struct backend base; // first: a struct backend * is a struct cuda_backend *
    int device;
    cudaStream_t stream;
    bool deterministic;
    struct cuda_ranks *ranks; // NULL: one rank
    struct cuda_step step;
    struct cublas blas;
    // Work space of products whose activations are e4m3 too (linear_fp8.c), for the largest step.
    struct cuda_fp8 {
        bool on;
        uint8_t *x; // (x_bytes)
        float *scale, *sums;
        size_t x_bytes, scale_bytes, sums_bytes;
    } fp8;
    // Buffers for loading weights: one is filled while the other is copied. Freed when the first
    // step is prepared.
    struct cuda_staging {
        char *pinned[2];
        void *device[2];
        cudaEvent_t copied[2];
        int next;
    } staging;
    // The distinct shapes of the weights, each with one weight to measure on.
    struct cuda_linear shapes[CUDA_MAX_SHAPES];
    int n_shapes;
    bool weights_8bit; // some weights have 8 bits
    void *widened;     // work space for the largest matrix of few bits, for products of many rows
    size_t widened_bytes;
    // Copies of blocks to host memory and back (kv_copies.c), created with the cache; one batch of
    // blocks at a time. A load that runs beside a step is copied in groups of layers, and the step
    // waits for each group before its layers; any other batch is one group.
    struct cuda_copies {
        cudaStream_t stream;
        cudaEvent_t stepped;        // in the steps' stream, before the copies
        const struct kv_load *load; // of the step that is being launched; NULL: none
        bool running;               // started; completion not observed yet
        int n_groups, n_begun, n_waited;
        cudaEvent_t begun[CUDA_COPY_GROUPS], done[CUDA_COPY_GROUPS];   // around a group's copies
        cudaEvent_t held[CUDA_COPY_GROUPS], went_on[CUDA_COPY_GROUPS]; // around the steps' waits
        void *to[CUDA_COPY_PARTS]; // n_parts, gathered for the next call
        const void *from[CUDA_COPY_PARTS];
        size_t bytes[CUDA_COPY_PARTS], n_parts;
    } copies;
    void *attention_work;
    size_t attention_work_bytes;
    // (CUDA_TICKETS + 2) device memory: of linears whose blocks stay (gemv_stay.cu), each launch the next one;
    // then two words of experts whose blocks stay.
    uint32_t *tickets;
    uint32_t next_ticket;
    bool claimed; // cuda_claim_device
    // Linears of one row that wait for those behind them, to be launched as one (cuda_groups_chain). Every other call to
    // the backend launches them first.
    struct cuda_chain {
        struct cuda_linear link[GROUPS_CHAIN];
        int n;
        int rc; // of a launch that failed; the step returns it
        struct cuda_chain_work *work;
    } chain;
    struct cuda_drawn drawn;  // its slot is part of the step's description
    cudaEvent_t drawn_before; // the end of the step that the present one follows
    void *draw_work;
    // Rows of the step whose draws change their logits: structs cuda_adjusted, then what they point to.
    struct cuda_adjustments {
        char *pinned, *device; // (bytes)
        cudaStream_t stream;   // their copy runs beside the step
        cudaEvent_t copied;
        void *work;
        size_t bytes, end;
        int32_t n;
        // Masks of this step that further rows may share, by serial number.
        struct cuda_shared_mask {
            uint64_t serial;
            bool with_ends;
            const void *device;
        } masks[CUDA_SHARED_MASKS];
    } adjustments;
    // Idle times between steps, while they are measured (idle.c).
    struct cuda_idle {
        bool watching, in_gap;
        int n;
        cudaEvent_t ended[CUDA_IDLE_GAPS], begun[CUDA_IDLE_GAPS];
    } idle;
    char description[160];
};

// be: one that backend_cuda_open made. For ops that may join the linears that wait.
static inline struct cuda_backend *cuda_as_it_waits(struct backend *be) {
    return (struct cuda_backend *)be;
}
void cuda_chain_launch(struct cuda_backend *cuda); // what waits
// The same for all others: nothing waits any more.
static inline struct cuda_backend *cuda_of(struct backend *be) {
    struct cuda_backend *cuda = cuda_as_it_waits(be);
    if (cuda->chain.n > 0) cuda_chain_launch(cuda);
    return cuda;
}

// 0, or E_DEVICE after logging the error.
int cuda_check(cudaError_t rc, const char *what);
#define CUDA_TRY(call) TRY(cuda_check(call, #call))

// As backend_ops.close. Also closes a half-opened backend.
void cuda_close(struct backend *be);

// Device memory. The E_NOMEM message names the free and the missing memory.
int cuda_alloc(void **out, size_t bytes, struct err *err);

// memory.c
int cuda_mem_alloc(struct backend *be, size_t bytes, void **out, struct err *err);
void cuda_mem_free(struct backend *be, void *p);
int cuda_mem_write(struct backend *be, void *dst, const void *host_src, size_t bytes);
int cuda_mem_read(struct backend *be, void *host_dst, const void *src, size_t bytes);
int cuda_mem_info(struct backend *be, size_t *free_bytes, size_t *total_bytes);
int cuda_read_rate(struct backend *be, double *out, struct err *err);
int cuda_host_alloc(struct backend *be, size_t bytes, void **out, struct err *err);
void cuda_host_free(struct backend *be, void *p);

// draws.c
int cuda_draws_reserve(struct cuda_backend *cuda, const struct step_limits *l, struct err *err);
void cuda_draws_release(struct cuda_backend *cuda);
int cuda_op_draw(struct backend *be, const float *logits, const struct batch *b, int32_t n,
                 int32_t vocab);
int cuda_op_draws_read(struct backend *be, struct batch_drawn *out, int32_t n);
int cuda_op_draws_read_before(struct backend *be, struct batch_drawn *out, int32_t n);
int cuda_op_draw_adjust(struct backend *be, const struct batch_adjusted *a, int32_t vocab);
int cuda_op_draw_adjusted(struct backend *be, const float *logits, int32_t vocab);
int cuda_op_logits_read(struct backend *be, float *host, const void *logits, int32_t n,
                        int32_t vocab);

// qkv.c
int cuda_op_qk_norm(struct backend *be, void *qkv, int32_t n, const struct qkv_shape *shape,
                    const struct qkv_args *args);
int cuda_op_rope(struct backend *be, void *qkv, int32_t n, const struct qkv_shape *shape,
                 const struct qkv_args *args);
int cuda_op_qkv_finish(struct backend *be, void *qkv, const struct kv_store *kv,
                       const struct batch *b, int32_t layer, int32_t n_heads,
                       const struct qkv_args *args);
int cuda_op_kv_write(struct backend *be, const struct kv_store *kv, int32_t layer, const void *qkv,
                     const struct batch *b, int32_t n_heads);
int cuda_op_latent_attention(struct backend *be, void *out, const struct kv_store *kv,
                             const struct batch *b, const struct latent_args *args, void *work);
size_t cuda_op_latent_bytes(struct backend *be, int32_t n, const struct latent_args *a);
struct cuda_kv_write cuda_kv_write_of(const struct cuda_backend *cuda, void *qkv,
                                      const struct kv_store *kv, int32_t n_rows, int32_t layer,
                                      int32_t n_heads, const struct qkv_args *q);
// E_INVAL where the batch writes a block that the cache does not have.
int cuda_check_blocks(const struct kv_store *kv, const struct batch *b);

// The other ops, in files of their own. ops.c has the ops that only unpack and launch.
int cuda_weight_init(struct backend *be, struct weight *w, const struct tensor_view *parts,
                     int n_parts, struct err *err);
void cuda_weight_release(struct backend *be, struct weight *w);
// staging.c. E_NOMEM. Nothing where it is there already.
int cuda_staging_init(struct cuda_backend *cuda, struct err *err);
void cuda_staging_release(struct cuda_backend *cuda);
// Copies a view to row `row` of w and onwards.
int cuda_send_view(struct cuda_backend *cuda, const struct weight *w, const struct tensor_view *v,
                   int64_t row);
// groups.c. Of a weight of few bits whose rows and cols are set: data, layout, bytes, dtype (DTYPE_U8, or the
// activations' where it is widened). The caller releases data and scales after an error.
int cuda_groups_fill(struct cuda_backend *cuda, struct weight *w, const struct tensor_view *parts,
                     int n_parts, struct err *err);
// *a, of few bits, as the linear of 16 bits that it is when cuda_groups_widen has filled cuda->widened.
void cuda_groups_widened(const struct cuda_backend *cuda, struct cuda_linear *a);
size_t cuda_kv_block_bytes(struct backend *be, const struct kv_store *shape);
int cuda_kv_store_init(struct backend *be, struct kv_store *kv, struct err *err);
void cuda_kv_store_release(struct backend *be, struct kv_store *kv);
int cuda_kv_block_copy(struct backend *be, struct kv_store *kv, int32_t dst, int32_t src);
int cuda_kv_blocks_save(struct backend *be, const struct kv_store *kv, void *const *host,
                        const int32_t *blocks, int32_t n);
int cuda_kv_blocks_load(struct backend *be, struct kv_store *kv, const int32_t *blocks,
                        void *const *host, int32_t n);
int cuda_kv_copies_done(struct backend *be, bool wait, struct kv_copied *how);
int cuda_kv_layer_wait(struct backend *be, int32_t layer);
int cuda_kv_copies_init(struct cuda_backend *cuda, struct err *err);
void cuda_kv_copies_finish(struct cuda_backend *cuda);  // waits for running copies
void cuda_kv_copies_release(struct cuda_backend *cuda); // no effect before init
// begin starts the step's load; call it after step_begin's copy and before the step's ops. Call end after
// every step.
int cuda_kv_load_begin(struct cuda_backend *cuda, const struct kv_load *load);
void cuda_kv_load_end(struct cuda_backend *cuda);
void cuda_kv_block_guard(struct backend *be, struct kv_store *kv, int32_t block, bool is_free);
int cuda_op_linear(struct backend *be, enum linear_mode mode, void *y, const void *x, int32_t n,
                   const struct weight *w, const float *bias);
int cuda_op_linear_activate(struct backend *be, void *y, const void *x, int32_t n,
                            const struct weight *w, const float *bias, enum activation act,
                            bool gated);
int cuda_op_norm_route(struct backend *be, int32_t *ids, float *weights, void *normed,
                       const void *x, int32_t n, const struct norm_args *norm,
                       const struct weight *router, const float *bias,
                       const struct route_args *args);
int cuda_op_norm_linear(struct backend *be, const struct norm_args *norm, enum linear_mode mode,
                        void *y, const void *x, int32_t n, const struct weight *w,
                        const float *bias, const struct activate_args *act);
// linear_fp8.c
int cuda_fp8_reserve(struct cuda_backend *cuda, const struct step_limits *l, struct err *err);
void cuda_fp8_release(struct cuda_backend *cuda);
// Quantises x and multiplies in 8 bits. CUDA_UNSUPPORTED: nothing has changed; another kernel takes
// the linear (few rows, logits, weights that are not e4m3, odd shapes, fp8_activations off).
int cuda_linear_fp8(struct cuda_backend *cuda, const struct cuda_linear *a);
struct cuda_linear cuda_linear_of(const struct cuda_backend *cuda, const struct weight *w);
int cuda_op_attention(struct backend *be, void *out, const void *qkv, const struct kv_store *kv,
                      const struct batch *b, const struct attention_args *args);
int cuda_op_qkv_attention(struct backend *be, void *out, void *qkv, const struct kv_store *kv,
                          const struct batch *b, const struct attention_args *args,
                          const struct qkv_args *finish);

// Called by each step; they record only while idle times are measured.
void cuda_idle_step_begins(struct cuda_backend *cuda);
void cuda_idle_step_ends(struct cuda_backend *cuda);
void cuda_idle_release(struct cuda_backend *cuda);
int cuda_idle_time(struct backend *be, bool on, double *median_us);

// Bytes of a layer's part of a block.
size_t cuda_kv_part_bytes(const struct kv_store *kv);

// The cache as kernels see it (kv_store.c has the layout).
static inline struct cuda_kv cuda_kv_of(const struct kv_store *kv) {
    const size_t part = cuda_kv_part_bytes(kv);
    return (struct cuda_kv){.data = kv->data,
                            .layer_bytes = kv->mixed ? part : part * (size_t)kv->n_blocks,
                            .block_bytes = kv->mixed ? kv->block_bytes : part,
                            .bytes = kv->block_bytes * (size_t)kv->n_blocks,
                            .dtype = kv->dtype,
                            .n_layers = kv->n_layers,
                            .n_kv_heads = kv->n_kv_heads,
                            .head_dim = kv->head_dim,
                            .block_tokens = kv->block_tokens,
                            .latent = kv->latent};
}

// What is copied of a block at once: the parts of its layers, or the whole.
struct cuda_pieces {
    int32_t n;
    size_t bytes, apart, block; // of one; from one to the next; from a block's to the next block's
};
static inline struct cuda_pieces cuda_pieces_of(const struct kv_store *kv) {
    const struct cuda_kv c = cuda_kv_of(kv);
    if (kv->mixed) return (struct cuda_pieces){1, kv->block_bytes, 0, kv->block_bytes};
    return (struct cuda_pieces){kv->n_layers, c.block_bytes, c.layer_bytes, c.block_bytes};
}

// The step as the ops on a store see it: with the sequences of its group.
static inline struct cuda_batch cuda_batch_of(const struct cuda_backend *cuda,
                                              const struct kv_store *kv) {
    struct cuda_batch b = cuda->step.b;
    b.seqs += (int64_t)kv->group * cuda->step.max_seqs;
    return b;
}

extern const struct backend_ops cuda_ops;
