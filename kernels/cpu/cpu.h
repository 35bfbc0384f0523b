// Shared by the CPU ops: the backend's struct, and the table of inner loops of one instruction set.
//
// An op is a launcher in <op>.c (checks, cuts the work into items, hands them to the workers) and
// inner loops in <op>.inc, written once over vec.h and compiled once for each set into a struct
// cpu_kernels.
#pragma once
#include "kernels/backend.h"
#include "kernels/cpu/pages.h"
#include "kernels/cpu/threads.h"
#include "kernels/cpu/weight.h"

// --- arguments of the inner loops that take many -------------------------------------------------
struct linear_args {
    enum linear_mode mode;
    float *y;       // (n, w->rows)
    const float *x; // (n, w->cols)
    int32_t n;
    const struct weight *w;
    const float *bias; // (w->rows) or NULL
    void *split_x;     // x prepared: in bf16 (linear_bf16.c), as bf16 parts in tile order
                       // (linear_amx.c), or for 8-bit weights as integers (linear_int8.inc);
    int32_t split_row; // from this row on
};

// A block of the result: rows [row, row + n_rows) of y, panels [panel, panel + n_panels) of the
// weight.
struct linear_item {
    int32_t row, n_rows, panel, n_panels;
    int32_t next_panel; // the probable start of the worker's next item; may be past the last
};

enum {
    LINEAR_GROUP_PANELS =
        16, // at most this many panels in an item: their unpacked block stays in L2
    LINEAR_BLOCK_ROWS = 512, // and this many rows
    // K is walked in blocks of this, a multiple of WEIGHT_TILE_K: a strip of it, 12 or 24 KiB,
    // stays in L1 of every processor, the rows of x in L2.
    LINEAR_BLOCK_K = 192,
    LINEAR_ROW_FLOATS =
        208,               // a block of a row of x as copied: neighbours fall into other cache sets
    LINEAR_FEW_ROWS = 16,  // up to here weights stream by in groups of eight panels
    ATTENTION_RUN = 64,    // keys are walked in runs of this many positions, aligned
    ATTENTION_SPLIT = 512, // and the online softmax starts anew at multiples of this
    ATTENTION_ROWS = 56,   // query rows (tokens x heads of a group) that share a run's load
};

struct attention_task {
    const struct attention_args *args;
    const float *qkv;
    int64_t qkv_stride;
    float *out; // (n, n_heads * head_dim)
    const struct kv_store *kv;
    const struct batch *b;
};

// Query rows that are walked together: tokens [token, token + n_tokens) of a sequence, heads
// [head, head + n_heads) which all read kv_head. Row r is token r / n_heads, head r % n_heads.
struct attention_tile {
    const struct batch_seq *seq;
    int32_t token, n_tokens, head, n_heads, kv_head;
    const struct attention_tile *next; // the same worker's probable next tile; NULL: unknown
};

// The online softmax of a tile: for row r the running maximum m[r], sum l[r] (kept by lane) and
// weighted values o[r]. Lives in a worker's scratch.
struct attention_state {
    float *m; // (ATTENTION_ROWS)
    float *l; // (ATTENTION_ROWS, 16)
    float *o; // (ATTENTION_ROWS, head_dim padded to 16)
};

// --- the inner loops of one instruction set ------------------------------------------------------
struct cpu_kernels {
    int32_t bf16_layout; // layout of bf16 weights when memory bandwidth is the limit
    int32_t row_tile;    // rows of the GEMM's register block
    void (*norm_rows)(enum norm_kind kind, float *y, const float *x, int32_t n, int32_t width,
                      int64_t stride, const float *weight, const float *bias, float eps);
    void (*linear_item)(const struct linear_args *a, const struct linear_item *item, void *scratch);
    // AMX, and products of bf16; else NULL. bf16 weights go through these two: first all rows of x
    // are prepared in a->split_x, linear_row_bytes each.
    void (*linear_item_split)(const struct linear_args *a, const struct linear_item *item,
                              void *scratch);
    // row: from split_row
    void (*linear_split)(const struct linear_args *a, int32_t row, int32_t n_rows);
    size_t (*linear_row_bytes)(const struct weight *w);
    // For 8-bit weights: like the pair above, with x as integers. All sets give the same bits.
    void (*int8_item)(const struct linear_args *a, const struct linear_item *item, void *scratch);
    void (*int8_split)(const struct linear_args *a, int32_t row, int32_t n_rows);
    // For weights of few bits, likewise. All sets with fused multiply-adds give the same bits.
    void (*groups_item)(const struct linear_args *a, const struct linear_item *item, void *scratch);
    void (*groups_split)(const struct linear_args *a, int32_t row, int32_t n_rows);
    // With x in 8 bits, for weights of fewer; NULL: as above.
    void (*groups8_item)(const struct linear_args *a, const struct linear_item *item,
                         void *scratch);
    void (*groups8_split)(const struct linear_args *a, int32_t row, int32_t n_rows);
    void (*rope_rows)(enum rope_style style, float *qk, int32_t n, int64_t stride, int32_t n_heads,
                      int32_t head_dim, int32_t rot_dim, const float *cos_sin);
    void (*kv_put)(const struct kv_store *kv, int32_t block, int32_t layer, int32_t slot,
                   const float *k, const float *v);
    void (*attention_tile)(const struct attention_task *t, const struct attention_tile *tile,
                           void *scratch);
    // attention_split computes the part of a tile's softmax in positions [begin, end), which is one split;
    // attention_merge adds it to the total; attention_finish writes the tile's output.
    void (*attention_split)(const struct attention_task *t, const struct attention_tile *tile,
                            int64_t begin, int64_t end, struct attention_state *s, void *scratch);
    void (*attention_merge)(struct attention_state *total, const struct attention_state *s,
                            int32_t rows, int32_t head_dim);
    void (*attention_finish)(const struct attention_task *t, const struct attention_tile *tile,
                             const struct attention_state *s);
    void (*activate_row)(enum activation act, float *y, const float *x, const float *gate,
                         int32_t width);
    void (*add)(float *y, const float *x, int64_t n);
    void (*cap_values)(float *x, int64_t n, float scale, float cap);
    void (*add_weighted)(float *y, const float *x, float weight,
                         int32_t n); // y += weight * x, fused
    // A row (gate, other half) of `width` each, as experts_args.limit says.
    void (*limit_row)(float *x, int32_t width, float limit);
};

extern const struct cpu_kernels cpu_kernels_portable;
#if defined(__x86_64__)
extern const struct cpu_kernels cpu_kernels_avx2, cpu_kernels_avx512;
#endif

struct cpu_backend {
    struct backend base;               // first: a struct backend * is a struct cpu_backend *
    struct cpu_kernels table;          // of the set, as changed for AMX
    const struct cpu_kernels *kernels; // = &table
    struct threads *threads;
    // One buffer for each worker and one for all, grown when a weight or a cache is made, never in
    // a step.
    struct cpu_buffer {
        void *data;
        size_t bytes;
    } scratch[THREADS_MAX], shared;
    // If bf16_layout is PANEL_BF12: how many bytes of bf16 weights may still be PANEL_BF16, and the
    // largest such weight (weight.c, "packed or not"). Set when the backend is opened.
    size_t raw_left, raw_max;
    bool fuses; // bf16_linear_item is its linear: few rows can be fused (feed_forward.c)
    // The last job (below) for which worker i has prepared x, padded to a cache line of its own.
    struct own_x {
        uint64_t job;
        char apart[120];
    } own_x[THREADS_MAX];
    uint64_t n_own_jobs;
    bool packs_all;            // unpacking is no slower than reading a cache
    struct pages_pool weights; // all weights' data
    char description[64];
};

// be: one that backend_cpu_open made.
static inline struct cpu_backend *cpu_of(struct backend *be) {
    return (struct cpu_backend *)be;
}

// Makes every worker's scratch, and the shared buffer, at least this large.
int cpu_reserve(struct cpu_backend *cpu, size_t scratch_bytes, size_t shared_bytes,
                struct err *err);

// Sets how many bytes of later bf16 weights stay unpacked, by the size of the last-level cache; 0
// packs all (weight.c).
void cpu_raw_budget_set(struct cpu_backend *cpu, size_t cache_bytes);

// --- x of a few rows

// Each worker prepares x for itself. If one core prepared x for all, it would write cache lines that the
// other cores still hold from the last call, and these would fetch the lines back one by one. The result
// is the same either way.
struct own_job {
    const struct norm_args *norm; // applied to x first; or NULL
    uint64_t number;
};
// Whether each worker prepares x of n rows times w for itself.
bool cpu_own_takes(const struct cpu_backend *cpu, int32_t n, const struct weight *w);
struct own_job cpu_own_begin(struct cpu_backend *cpu, const struct norm_args *norm);
// Sets a->split_x to this worker's x, and prepares it unless an earlier item of the job did.
void cpu_own_x(struct cpu_backend *cpu, const struct own_job *job, struct linear_args *a,
               int worker);

// linear with an x that is already prepared in split_x. n <= LINEAR_BLOCK_ROWS.
// The loops of linear by w: split prepares x, NULL where it is used as it is; row_bytes of a prepared row, with
// header_bytes before the first. Prepared rows are a whole number of 16.
struct linear_loops {
    void (*split)(const struct linear_args *a, int32_t row, int32_t n_rows);
    void (*item)(const struct linear_args *a, const struct linear_item *item, void *scratch);
    size_t row_bytes, header_bytes;
};
struct linear_loops cpu_linear_loops(const struct cpu_backend *cpu, const struct weight *w);
void cpu_linear_prepared(struct cpu_backend *cpu, enum linear_mode mode, float *y, int32_t n,
                         const struct weight *w, const float *bias, void *split_x);

// Room for `linear` with this weight.
int cpu_linear_reserve(struct cpu_backend *cpu, const struct weight *w, struct err *err);

// Room for attention of heads of this size.
int cpu_attention_reserve(struct cpu_backend *cpu, int32_t head_dim, struct err *err);

// qk_norm and rope of one row of q, k and v, for ops that do them together. row: its number in the batch.
void cpu_qk_norm_row(const struct cpu_kernels *kernels, const struct qkv_shape *s,
                     const struct qkv_args *a, float *q);
void cpu_rope_row(const struct cpu_kernels *kernels, const struct qkv_shape *s,
                  const struct qkv_args *a, int32_t row, float *q);

// Runs fn over rows [0, n) in chunks, in parallel if rows * work_per_row is worth a hand-over.
typedef void cpu_rows_fn(void *ctx, int32_t row, int32_t n_rows);
void cpu_for_rows(struct cpu_backend *cpu, int32_t n, int64_t work_per_row, cpu_rows_fn *fn,
                  void *ctx);

// The ops (kernels/backend.h says what each does).
int cpu_weight_init(struct backend *be, struct weight *w, const struct tensor_view *parts,
                    int n_parts, struct err *err);
// Of few bits (groups.c): w has rows, cols and layout already.
int group_weight_init(struct cpu_backend *cpu, struct weight *w, const struct tensor_view *parts,
                      int n_parts, struct err *err);
void group_weight_row(const struct weight *w, int32_t row, float *out);
int cpu_weight_map(struct backend *be, struct weight *w, const void *panels,
                   const struct tensor_view *parts, int n_parts, struct err *err);
void cpu_weight_release(struct backend *be, struct weight *w);
size_t cpu_kv_block_bytes(struct backend *be, const struct kv_store *shape);
int cpu_kv_store_init(struct backend *be, struct kv_store *kv, struct err *err);
void cpu_kv_store_release(struct backend *be, struct kv_store *kv);
int cpu_kv_block_copy(struct backend *be, struct kv_store *kv, int32_t dst, int32_t src);
int cpu_kv_blocks_save(struct backend *be, const struct kv_store *kv, void *const *host,
                       const int32_t *blocks, int32_t n);
int cpu_kv_blocks_load(struct backend *be, struct kv_store *kv, const int32_t *blocks,
                       void *const *host, int32_t n);
void cpu_kv_blocks_unused(struct backend *be, const struct kv_store *kv, const int32_t *blocks,
                          int32_t n);
void cpu_kv_block_guard(struct backend *be, struct kv_store *kv, int32_t block, bool is_free);
int cpu_embed(struct backend *be, void *y, const struct batch *b, const struct weight *w,
              float scale);
int cpu_embed_positions(struct backend *be, void *y, const struct batch *b, const float *table,
                        int32_t cols, int32_t offset);
int cpu_norm(struct backend *be, void *y, const void *x, int32_t n, int32_t width,
             const struct norm_args *args);
int cpu_linear(struct backend *be, enum linear_mode mode, void *y, const void *x, int32_t n,
               const struct weight *w, const float *bias);
int cpu_qk_norm(struct backend *be, void *qkv, int32_t n, const struct qkv_shape *shape,
                const struct qkv_args *args);
int cpu_rope_angles(struct backend *be, float *cos_sin, const struct batch *b,
                    const float *inv_freq, const float *short_inv_freq, int32_t rot_dim,
                    float scale);
int cpu_rope(struct backend *be, void *qkv, int32_t n, const struct qkv_shape *shape,
             const struct qkv_args *args);
int cpu_kv_write(struct backend *be, const struct kv_store *kv, int32_t layer, const void *qkv,
                 const struct batch *b, int32_t n_heads);
int cpu_attention(struct backend *be, void *out, const void *qkv, const struct kv_store *kv,
                  const struct batch *b, const struct attention_args *args);
int cpu_activate(struct backend *be, enum activation act, bool gated, void *y, const void *x,
                 int32_t n, int32_t width);
int cpu_add(struct backend *be, void *y, const void *x, int64_t n_elements);
int cpu_route(struct backend *be, int32_t *ids, float *weights, const float *logits, int32_t n,
              const struct route_args *args);
int cpu_experts(struct backend *be, enum linear_mode mode, void *y, const void *x, int32_t n,
                const int32_t *ids, const float *weights, const struct experts_args *args,
                void *work);
size_t cpu_experts_bytes(struct backend *be, int32_t n, const struct experts_args *args);
int cpu_latent_attention(struct backend *be, void *out, const struct kv_store *kv,
                         const struct batch *b, const struct latent_args *a, void *work);
size_t cpu_latent_bytes(struct backend *be, int32_t n, const struct latent_args *a);
int cpu_scale(struct backend *be, void *x, int64_t n_elements, const float *by, float factor);
int cpu_multiply_rows(struct backend *be, void *y, const void *x, int32_t n, int32_t width,
                      int64_t stride);
int cpu_xielu(struct backend *be, void *y, const void *x, int32_t n, int32_t width,
              const float *alpha);
int cpu_finish_logits(struct backend *be, float *x, int64_t n_elements, float scale, float cap);
int cpu_add_gated(struct backend *be, void *y, const void *x, const float *gate, int32_t n,
                  int32_t width);
int cpu_norm_linear(struct backend *be, const struct norm_args *norm, enum linear_mode mode,
                    void *y, const void *x, int32_t n, const struct weight *w, const float *bias,
                    const struct activate_args *act);
int cpu_feed_forward(struct backend *be, enum linear_mode mode, void *y, const void *x, int32_t n,
                     const struct feed_forward_args *args);
int cpu_gather_logit_rows(struct backend *be, void *y, const void *x, const struct batch *b,
                          int32_t width);
int cpu_qkv_finish(struct backend *be, void *qkv, const struct kv_store *kv, const struct batch *b,
                   int32_t layer, int32_t n_heads, const struct qkv_args *args);
