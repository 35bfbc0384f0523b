// The host's side of the CUDA backend: what its files share. One stream carries everything, so ops
// run in the order in which they were called; the engine's thread is the only caller.
#pragma once
#include "kernels/cuda/cublas.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/step.h"

enum {
    CUDA_STAGING_BYTES = 16 << 20,
    CUDA_MAX_SHAPES = 64,
    CUDA_IDLE_GAPS = 256,
    CUDA_COPY_GROUPS = 8, // of layers, of a load with a step
    CUDA_COPY_PARTS = 64  // of blocks, in one call
};

// Room for attention's parts, at least: where blocks share a later turn's rows; and, deterministic,
// for the parts of 512 positions that a long context falls into.
enum { CUDA_TILES_WORK_BYTES = 16 << 20, CUDA_EXACT_WORK_BYTES = 64 << 20 };

struct cuda_backend {
    struct backend base; // first: a struct backend * is a struct cuda_backend *
    int device;
    cudaStream_t stream;
    bool deterministic;
    struct cuda_step step;
    struct cublas blas;
    // Where weights pass through on their way in: two halves of pinned memory, one being filled
    // while the other is copied. Given back when the first step is prepared.
    struct cuda_staging {
        char *pinned[2];
        void *device[2];
        cudaEvent_t copied[2];
        int next;
    } staging;
    // Shapes of the weights made so far, each once, with one weight of it to measure on.
    struct cuda_linear shapes[CUDA_MAX_SHAPES];
    int n_shapes;
    // Blocks to host memory and back (kv_copies.c), made with the cache. One batch at a time, in
    // groups of layers: whole blocks are one group, a load with a step is several.
    struct cuda_copies {
        cudaStream_t stream;
        cudaEvent_t stepped; // what the steps' stream had been asked for when the copies were
        const struct kv_load *load; // the step's, while it is being asked for; NULL: none
        bool under_way;             // begun and not yet seen to be done
        int n_groups, n_begun, n_waited;
        cudaEvent_t begun[CUDA_COPY_GROUPS], done[CUDA_COPY_GROUPS];   // around a group's copies
        cudaEvent_t held[CUDA_COPY_GROUPS], went_on[CUDA_COPY_GROUPS]; // around the steps' waits
        void *to[CUDA_COPY_PARTS]; // n_parts that have been gathered for the next call
        const void *from[CUDA_COPY_PARTS];
        size_t bytes[CUDA_COPY_PARTS], n_parts;
    } copies;
    void *attention_work;
    size_t attention_work_bytes;
    struct batch_drawn *drawn, *drawn_host; // (max_seqs) device memory, pinned
    void *draw_work;
    // Gaps between steps, while somebody measures them (idle.c).
    struct cuda_idle {
        bool watching, in_gap;
        int n;
        cudaEvent_t ended[CUDA_IDLE_GAPS], begun[CUDA_IDLE_GAPS];
    } idle;
    char description[160];
};

static inline struct cuda_backend *cuda_of(struct backend *be) {
    return (struct cuda_backend *)be;
}

// 0, or E_DEVICE after the log has been told what failed.
int cuda_check(cudaError_t rc, const char *what);
#define CUDA_TRY(call) TRY(cuda_check(call, #call))

void cuda_close(struct cuda_backend *cuda);

// Device memory; E_NOMEM says how much was asked for and how much there is.
int cuda_alloc(void **out, size_t bytes, struct err *err);

// The ops, one file each or, where they only unpack and launch, ops.c.
int cuda_weight_init(struct backend *be, struct weight *w, const struct tensor_view *parts,
                     int n_parts, struct err *err);
void cuda_weight_release(struct backend *be, struct weight *w);
void cuda_draws_release(struct cuda_backend *cuda);
void cuda_staging_release(struct cuda_backend *cuda);
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
void cuda_kv_copies_finish(struct cuda_backend *cuda);  // waits for what is under way
void cuda_kv_copies_release(struct cuda_backend *cuda); // of none: nothing
// Between step_begin's own copy and the step's ops: begins the step's load. end: always.
int cuda_kv_load_begin(struct cuda_backend *cuda, const struct kv_load *load);
void cuda_kv_load_end(struct cuda_backend *cuda);
void cuda_kv_block_guard(struct backend *be, struct kv_store *kv, int32_t block, bool is_free);
int cuda_op_linear(struct backend *be, enum linear_mode mode, void *y, const void *x, int32_t n,
                   const struct weight *w, const float *bias);
int cuda_op_linear_activate(struct backend *be, void *y, const void *x, int32_t n,
                            const struct weight *w, const float *bias, enum activation act,
                            bool gated);
int cuda_op_norm_linear(struct backend *be, const struct norm_args *norm, enum linear_mode mode,
                        void *y, const void *x, int32_t n, const struct weight *w,
                        const float *bias, const struct activate_args *act);
struct cuda_linear cuda_linear_of(const struct cuda_backend *cuda, const struct weight *w);
int cuda_op_attention(struct backend *be, void *out, const void *qkv, const struct kv_store *kv,
                      const struct batch *b, const struct attention_args *args);
int cuda_op_qkv_attention(struct backend *be, void *out, void *qkv, const struct kv_store *kv,
                          const struct batch *b, const struct attention_args *args,
                          const struct qkv_args *finish);
struct cuda_kv_write cuda_kv_write_of(const struct cuda_backend *cuda, void *qkv,
                                      const struct kv_store *kv, int32_t n_rows, int32_t layer,
                                      int32_t n_heads, const struct qkv_args *q);
// E_INVAL where a block that the batch writes is not one of the cache's.
int cuda_check_blocks(const struct kv_store *kv, const struct batch *b);

// What a step says of itself; nothing is recorded unless somebody measures.
void cuda_idle_step_begins(struct cuda_backend *cuda);
void cuda_idle_step_ends(struct cuda_backend *cuda);
void cuda_idle_release(struct cuda_backend *cuda);
int cuda_idle_time(struct backend *be, bool on, double *median_us);

struct cuda_kv cuda_kv_of(const struct kv_store *kv);

extern const struct backend_ops cuda_ops;
