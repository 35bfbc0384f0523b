// The op table: everything that forward (engine/run/forward.c) needs from a device. One table per
// backend; `cpu` is the reference. All calls come from the engine's thread. No call allocates while
// serving or reads configuration. Only these calls wait for the device: those that copy to the host
// (`logits_read`, `draws_read`, `mem_read`), those that write or free device memory, and
// `kv_copies_done` with `wait`.
//
// Contract on numbers, for every exact backend (the CPU always is): a row's result depends only on
// that row, its sequence's cache and the weights, not on the other rows of the call, their number
// or the number of threads. Each output's sum over K runs in one fixed order, in F32.
//
// Activations are buffers of `act_dtype` (F32 on the CPU), row-major, rows packed unless a stride
// is given.
#pragma once
#include "base/dtype.h"
#include "base/err.h"
#include "kernels/batch.h"
#include "kernels/groups.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct backend;

// What ops can do beyond what every backend does. A backend names its features (backend_ops.features), and a model
// that needs another one is not loaded on it. OP_FEATURE_NAMES in the order of the bits.
enum op_feature {
    OP_SOFT_CAP = 1 << 0,      // attention_args.soft_cap
    OP_SINKS = 1 << 1,         // attention with sink logits
    OP_QUERY_SCALE = 1 << 2,   // qkv_args.query_beta
    OP_QK_NORM_WIDTH = 1 << 3, // qkv_args.all_heads
    OP_QK_NORM_LATE = 1 << 4,  // qkv_args.norm_late
    OP_V_NORM = 1 << 5,        // qkv_args.v_weight
    OP_Q_ONLY = 1 << 6,        // rows of q alone: attention_args.q_only, n_kv_heads 0 in qkv_shape
    OP_SCALE = 1 << 7,         // scale
    OP_XIELU = 1 << 8,         // xielu
    OP_LAYER_INPUTS = 1 << 9,  // multiply_rows
    OP_LOGITS = 1 << 10,       // finish_logits
    OP_EXPERTS = 1 << 11,      // route, experts, experts_bytes, add_gated
    OP_LATENT = 1 << 12,       // latent_attention, latent_bytes; caches of latents
    OP_GROUPS = 1 << 13,       // weights of few bits (kernels/groups.h)
    OP_GROUPS_LINEAR =
        1 << 14, // the same for linear and its fusions alone, not in embed, latent_attention
    // With OP_GROUPS_LINEAR: in experts too, where all of a layer's have one format.
    OP_GROUPS_EXPERTS = 1 << 15,
    OP_QKV_CLIP = 1 << 16,      // qkv_args.clip
    OP_EXPERTS_MIXED = 1 << 17, // experts of one layer may differ in dtype and format
    OP_GROUPS_EMBED = 1 << 18   // with OP_GROUPS_LINEAR: in embed too
};
#define OP_FEATURE_NAMES                                                                           \
    "soft caps on attention", "attention sinks", "queries scaled by position",                     \
        "norms over all heads of q and k", "norms of q and k after rotation", "norms of v",        \
        "keys and values shared by layers", "scaled outputs of layers", "xIELU",                   \
        "embeddings for each layer", "scaled or capped logits", "experts", "latent attention",     \
        "weights of few bits", "weights of few bits in linear alone", "experts of few bits",       \
        "clipped q, k and v", "experts of several formats", "embeddings of few bits"

// A slice of a mapped file: element (r, c) is at data + (r * row_stride + c * col_stride) elements.
// A stored (out, in) matrix has row_stride = in, col_stride = 1; the (in, out) matrix of a Conv1D has
// row_stride = 1, col_stride = out.
struct tensor_view {
    const void *data;
    enum dtype dtype;
    int64_t rows, cols; // of the matrix as used: rows = outputs, cols = inputs
    int64_t row_stride, col_stride;
    // DTYPE_I8 and DTYPE_F8_E4M3 only, else NULL. I8: (rows) of the view; element (r, c) stands for
    // scales[r] times an integer in -127 .. 127. F8_E4M3: (rows, fp8_blocks(cols, block_k)),
    // element (r, c) stands for the number times the scale of its row and c / block_k. No number is
    // a NaN (kernels/fp8.h).
    const float *scales;
    int32_t block_k; // F8_E4M3: 0, one scale for a row, or FP8_BLOCK
};
// A part of few bits is of DTYPE_U8, and its data is the source of its rows; beside that only rows and cols are read.
static inline const struct group_source *view_groups(const struct tensor_view *v) {
    return v->dtype == DTYPE_U8 ? (const struct group_source *)v->data : NULL;
}

// A matrix W (rows, cols) prepared for `linear` (y = x W^T) and, if tied, `embed`. Each backend has
// its own layout of data.
struct weight {
    void *data;
    size_t bytes;
    enum dtype dtype;
    int32_t rows, cols;
    int32_t layout;  // backend's
    float *scales;   // of 8-bit weights: the backend's memory and layout; else NULL
    bool mapped;     // data belongs to a mapped file; do not free it (weight_map)
    int32_t block_k; // as the views'
};

// The cache arena: n_blocks blocks, each the K and V of block_tokens positions for n_layers layers
// and n_kv_heads heads of this rank. Each backend has its own layout: block after block on the CPU,
// layer after layer on a GPU. In host memory a block is block_bytes contiguous bytes.
struct kv_store {
    void *data;         // n_blocks * block_bytes
    size_t block_bytes; // set by kv_store_init
    enum dtype dtype;   // F32, F16, BF16; I8 and F8_E4M3 with scales (kernels/kv_quant.h)
    int32_t n_layers, n_kv_heads, head_dim, block_tokens, n_blocks;
    // Several cache groups (kvcache/groups.h) share an arena: each has a struct of its own with the same
    // data and block_bytes, and the shape of its layers. A layer is then one of the group's.
    int32_t group; // which of the sequences' maps (struct batch_seq) its ops read
    // A head has one vector for a position, which is both its key and its value (latent attention). Rows of q, k and
    // v then have no v: (n_heads + n_kv_heads) * head_dim.
    bool latent;
    bool mixed;        // the groups' layers differ in n_kv_heads or head_dim
    int32_t n_guarded; // debug builds: only blocks below have been guarded (kv_block_guard)
};

// Duration of copies by the device's clock, in microseconds; 0 if the device has none.
struct kv_copied {
    int64_t took_us; // the copies themselves
    int64_t held_us; // of a load with a step: how long the step's ops waited for it
};

enum norm_kind { NORM_RMS, NORM_LAYER };
struct norm_args {
    enum norm_kind kind;
    const float *weight, *bias; // (width); bias may be NULL
    float eps;
    int64_t x_row; // of `norm` alone: elements from one row of x to the next; 0: width
};
// As formulas of the input x. silu: x * sigmoid(x). gelu: x * Phi(x), by erf. gelu_tanh: the same by
// tanh. quick_gelu: x * sigmoid(1.702 x). relu2: relu(x)^2. relu6: min(relu(x), 6). leaky_relu: x,
// below zero 0.01 x. mish: x * tanh(ln(1 + e^x)). linear: x.
enum activation {
    ACT_SILU,
    ACT_GELU,
    ACT_GELU_TANH,
    ACT_RELU,
    ACT_QUICK_GELU,
    ACT_RELU2,
    ACT_RELU6,
    ACT_LEAKY_RELU,
    ACT_SIGMOID,
    ACT_TANH,
    ACT_MISH,
    ACT_LINEAR,
    ACT_COUNT
};
enum rope_style {
    ROPE_HALF,       // pairs (i, i + rot/2), as in NeoX and Llama
    ROPE_INTERLEAVED // pairs (2i, 2i + 1)
};
// y = ..., y += ..., or y = ... as F32 whatever act_dtype is (logits)
enum linear_mode { LINEAR_STORE, LINEAR_ADD, LINEAR_STORE_F32 };

// The largest step that will run, for a device that allocates in advance.
struct step_limits {
    int32_t max_rows, max_seqs;            // tokens, sequences
    int64_t max_map;                       // entries of all sequences' kv_maps together
    int32_t n_heads, n_kv_heads, head_dim; // of this rank
    int32_t vocab;
    // Called while the device measures its fastest kernels for this model, which takes seconds the
    // first time. May be NULL.
    void (*progress)(void *ctx, int64_t done, int64_t total);
    void *progress_ctx;
    int32_t n_groups; // of the cache; 0 is 1
};

// Returned by step_begin: the step has been launched as a captured graph. Call no op; the ops'
// buffers hold their results.
enum { STEP_REPLAYED = 1 };
// Returned by a fusion that does not support this shape; nothing has been done.
enum { OP_DECLINED = 1 };

struct attention_args {
    int32_t layer;
    int32_t n_heads, n_kv_heads, head_dim; // of this rank
    float scale;                           // on q.k, usually head_dim^-0.5
    float soft_cap; // scores become cap * tanh(score / cap), before the mask; 0: they do not
    bool q_only;    // qkv's rows are n_heads q heads alone
    int32_t window; // the model's own sliding window in this layer, 0 for none
    const float *alibi_slopes; // (n_heads), device memory, or NULL
    // (n_heads), device memory, or NULL: a score of each head that joins the softmax and has no value (gpt-oss)
    const float *sinks;
};

struct activate_args {
    enum activation act;
    bool gated;
};

struct feed_forward_args {
    const struct norm_args *norm; // NULL: none
    const struct weight *up, *down;
    const float *up_bias, *down_bias; // as in linear
    struct activate_args activate;
};

// How a router chooses experts by their logits.
enum router_kind {
    ROUTER_SOFTMAX_TOPK, // a softmax over all; the largest
    ROUTER_TOPK_SOFTMAX, // the largest; a softmax over them alone
    ROUTER_SIGMOID       // a sigmoid of each; the largest
};
enum { ROUTE_MAX_EXPERTS = 1024 };

struct route_args {
    enum router_kind kind;
    int32_t n_experts, n_chosen; // n_chosen <= n_experts <= ROUTE_MAX_EXPERTS
    bool normalised;             // the weights of the chosen are divided by their sum
    float factor;                // then multiplied by this
    // Device memory (n_experts), or NULL. Added to the scores for choosing alone; on the weights.
    const float *choice_bias, *expert_scale;
    // The experts come in n_groups groups of equal size, and those of the n_chosen_groups best alone are
    // chosen; 0 or 1: no groups. A group counts as the sum of its group_best (1 or 2) largest scores.
    int32_t n_groups, n_chosen_groups, group_best;
};

// One layer's experts, those of all ids: y = down(act(up(x))) each.
struct experts_args {
    int32_t n_experts, n_chosen;
    // (n_experts) matrices of equal shapes and, without OP_EXPERTS_MIXED, of one format. up: gated (2 * width, H),
    // the gate's rows first, else (width, H); down: (H, width).
    const struct weight *up, *down;
    const float *up_bias,
        *down_bias; // (n_experts, up's rows), (n_experts, H), device memory; or NULL
    struct activate_args activate;
    // gated, and not 0: the gate is at most limit, the other half within -limit .. limit and increased by
    // 1 (gpt-oss).
    float limit;
    // up and down have one more matrix behind the others: an expert of every row, with weight 1. `experts` may be
    // OP_DECLINED then.
    bool shared;
};

// Latent attention (DeepSeek-V2) of one layer, with this rank's heads: the cache has one vector of a position for all
// heads, [rope_dim rotated | rank latents c], which is a key and, but for its first part, a value. Head h's query
// [nope_dim | rope_dim] becomes [rotated | k_h q], and what attention gives of c becomes v_h c.
struct latent_args {
    int32_t layer, n_heads, nope_dim, rope_dim, rank, v_dim;
    const struct weight *k, *v; // (n_heads) of (rank, nope_dim), of (v_dim, rank)
    // (n, n_heads * (nope_dim + rope_dim)) and (n, rank + rope_dim), rows q_row and latents_row elements apart
    const void *q, *latents;
    int64_t q_row, latents_row;
    const float *norm; // (rank) RMS norm of the latents
    float eps;
    enum rope_style style;
    const float *cos_sin; // (n, rope_dim)
    float scale;          // on q.k
};

// A row of qkv, (n_heads + 2 n_kv_heads) * head_dim: q heads, then k heads, then v heads, of this rank.
struct qkv_shape {
    int32_t n_heads, n_kv_heads, head_dim;
};

struct qkv_args { // what happens to q, k and v before attention
    enum rope_style style;
    int32_t rot_dim;      // 0: no rotation
    const float *cos_sin; // (n, rot_dim)
    // (head_dim), both or neither NULL; with no k heads q_weight alone
    const float *q_weight, *k_weight;
    float eps;
    const float *v_weight; // (head_dim) RMS norm of each v head; or NULL
    bool all_heads; // one norm over all q heads, one over all k: weights of (heads * head_dim)
    bool norm_late; // the norms of q and k come after the rotation
    float clip; // > 0: q, k and v are cut to [-clip, clip], after the norms and before the rotation
    // q at position p is multiplied by 1 + query_beta * ln(1 + floor(p / query_length)), last of all;
    // query_beta 0: it is not. positions (n).
    float query_beta, query_length;
    const int32_t *positions;
};

// How a device with its own memory reaches those of the other ranks of its instance (engine/dist).
struct rank_links {
    int32_t rank, n_ranks;
    // Ranks first_tp .. first_tp + tp_size - 1 compute the same layers; tp_rank is this one's place among
    // them. before, after: the ranks with the same part of the layers before and after; -1: none.
    int32_t first_tp, tp_rank, tp_size;
    int32_t before, after;
    // Each rank's `each` bytes reach all ranks, in rank order. All ranks make the same calls.
    int (*exchange)(void *ctx, const void *mine, void *all, size_t each);
    // The host calls it while it waits for the device. It returns 0, or E_DEVICE if a rank has ended or
    // waited_us is past the limit. Then the device's own waits for other ranks are ended too.
    int (*check)(void *ctx, int64_t waited_us);
    void *ctx;
};

struct backend_ops {
    const char *name;  // "cpu"
    uint32_t features; // of enum op_feature
    // Ops read the map of a store's group. False: the maps of all groups are one, and so are their shapes.
    bool kv_groups;

    // --- memory ----------------------------------------------------------------------------------

    // 64-byte aligned
    int (*mem_alloc)(struct backend *be, size_t bytes, void **out, struct err *err);
    void (*mem_free)(struct backend *be, void *p);
    int (*mem_write)(struct backend *be, void *dst, const void *host_src, size_t bytes);
    int (*mem_read)(struct backend *be, void *host_dst, const void *src, size_t bytes);
    // For a device with its own memory; NULL: it uses the host's.
    int (*mem_info)(struct backend *be, size_t *free_bytes, size_t *total_bytes);
    // Measures the read rate of the device's memory in bytes per second; NULL: as the host's.
    int (*read_rate)(struct backend *be, double *out, struct err *err);
    // Returns the median idle time of the device between two steps since the last call with `on`,
    // in microseconds; 0: no gap was measured. on: measure the next steps (the first 256 gaps),
    // which costs each a microsecond. Not while a step runs. NULL: the device is the host itself.
    int (*idle_time)(struct backend *be, bool on, double *median_us);
    // Host memory that logits_read fills fastest; NULL: any memory.
    int (*host_alloc)(struct backend *be, size_t bytes, void **out, struct err *err);
    void (*host_free)(struct backend *be, void *p);

    // Stacks n_parts views along the rows (q, k and v in one matrix; gate and up in one) and
    // converts them to `linear`'s layout. All parts share dtype and cols. The views may be unmapped
    // afterwards. dtype is F32, F16, BF16 or, for weights of 8 bits with scales, I8 or F8_E4M3:
    // linear then sums x[k] times the stored numbers and multiplies by scales[r]; x is not quantised
    // except with backend_cuda_options.fp8_activations (kernels/int8.h, kernels/fp8.h). All parts have
    // the same block_k. With OP_GROUPS, all parts may be of few bits (view_groups), each in a format of
    // its own if parts are whole panels of GROUP_PANEL rows; x is not quantised (README.md).
    int (*weight_init)(struct backend *be, struct weight *w, const struct tensor_view *parts,
                       int n_parts, struct err *err);
    // The same for I8 whose rows, all parts stacked, lie at `panels` in the layout of
    // kernels/int8.h. They are used in place and must stay there until weight_release. Of the views
    // only rows, cols and scales are read; scales are copied. NULL: the backend has another layout.
    int (*weight_map)(struct backend *be, struct weight *w, const void *panels,
                      const struct tensor_view *parts, int n_parts, struct err *err);
    void (*weight_release)(struct backend *be, struct weight *w);

    // The caller sets dtype, n_layers ... n_blocks; kv_store_init fills data and block_bytes.
    // kv_block_bytes returns the size of a block before anything is allocated.
    size_t (*kv_block_bytes)(struct backend *be, const struct kv_store *shape);
    int (*kv_store_init)(struct backend *be, struct kv_store *kv, struct err *err);
    void (*kv_store_release)(struct backend *be, struct kv_store *kv);
    int (*kv_block_copy)(struct backend *be, struct kv_store *kv, int32_t dst, int32_t src);
    // Copies n whole blocks to host memory and back: blocks[i] and host[i] (block_bytes each, from
    // host_alloc if the backend has it). Only the backend knows their layout. Copies run after all
    // earlier calls, in order, and beside the steps that follow: touch neither side until
    // kv_copies_done has returned 1 (0: not yet; with `wait` it waits and returns 1). NULL: a copy
    // is complete when its call returns.
    int (*kv_blocks_save)(struct backend *be, const struct kv_store *kv, void *const *host,
                          const int32_t *blocks, int32_t n);
    int (*kv_blocks_load)(struct backend *be, struct kv_store *kv, const int32_t *blocks,
                          void *const *host, int32_t n);
    int (*kv_copies_done)(struct backend *be, bool wait, struct kv_copied *how); // *how is zeroed
    // Loads blocks during a step whose rows read them (struct batch's load). step_begin starts the
    // copies, lowest layers first, and the step's ops are enqueued at once. Within the step, call
    // this once for each layer, ascending, before the first op that writes or reads the layer's
    // part of the cache: later ops wait until that part has arrived. Everything enqueued after the
    // step runs after the whole load. Do not touch the host memory until kv_copies_done has
    // returned 1. *load and its arrays must not move until step_end. NULL: no copy runs beside a
    // step, and no batch has a load.
    int (*kv_layer_wait)(struct backend *be, int32_t layer);
    // Gives the memory of these n free blocks back to the system until they are written again; their
    // contents are lost. NULL: the process keeps the cache's memory.
    void (*kv_blocks_unused)(struct backend *be, const struct kv_store *kv, const int32_t *blocks,
                             int32_t n);
    // Debug builds (PARLEY_DEBUG_KV): when a block becomes free, this fills it with NaNs, and on the
    // CPU AddressSanitizer then reports any access. When the block is taken again, access is allowed.
    // The call takes effect between the ops enqueued before and after it.
    void (*kv_block_guard)(struct backend *be, struct kv_store *kv, int32_t block, bool is_free);

    // --- one step --------------------------------------------------------------------------------

    // Once, after the weights and the cache, before the first step; NULL: nothing to prepare.
    int (*step_reserve)(struct backend *be, const struct step_limits *l, struct err *err);
    // Once before the ops of a step, or of a part of it; a device copies what it needs of *b. b stays valid until
    // step_end. Pass *run to the ops: it is b, or b padded to the width of a captured graph (then
    // n_rows = n_logits, and the host arrays still have b's length). STEP_REPLAYED: see above.
    int (*step_begin)(struct backend *be, const struct batch *b, const struct batch **run);
    // After a step's ops, before logits_read: a device that captured them launches the graph now.
    // Not after STEP_REPLAYED.
    int (*step_launch)(struct backend *be);
    int (*step_end)(struct backend *be); // always, also after a failure

    // y (n, w->cols) = scale * W[ids[i]], ids = the batch's.
    int (*embed)(struct backend *be, void *y, const struct batch *b, const struct weight *w,
                 float scale);
    // y (n, cols) += table[positions[i] + offset], table (table_rows, cols) f32. Learned or
    // sinusoidal positions.
    int (*embed_positions)(struct backend *be, void *y, const struct batch *b, const float *table,
                           int32_t cols, int32_t offset);
    // y (n, width) = norm(x). RMS: x * rsqrt(mean(x^2) + eps) * w. Layer: (x - mean) * rsqrt(var +
    // eps) * w + b. y may be x.
    int (*norm)(struct backend *be, void *y, const void *x, int32_t n, int32_t width,
                const struct norm_args *args);
    // y (n, w->rows) =|+= x (n, w->cols) W^T + bias; bias (rows) f32 or NULL. y must not overlap x.
    int (*linear)(struct backend *be, enum linear_mode mode, void *y, const void *x, int32_t n,
                  const struct weight *w, const float *bias);
    // RMS norm of every q head with q_weight, of every k head with k_weight and of every v head with v_weight, in
    // place; those that are not NULL.
    int (*qk_norm)(struct backend *be, void *qkv, int32_t n, const struct qkv_shape *shape,
                   const struct qkv_args *args);
    // cos_sin (n, rot_dim): cos of angles 0..rot/2-1, then their sines, for this step's positions.
    // angle_i = position * inv_freq[i], computed in F32 as Hugging Face does; both scaled by
    // `scale`. short_inv_freq: those of sequences with short_rope; NULL: they have inv_freq too.
    int (*rope_angles)(struct backend *be, float *cos_sin, const struct batch *b,
                       const float *inv_freq, const float *short_inv_freq, int32_t rot_dim,
                       float scale);
    // Rotates the first rot_dim of each q and k head in place, then scales q by its position (query_beta).
    int (*rope)(struct backend *be, void *qkv, int32_t n, const struct qkv_shape *shape,
                const struct qkv_args *args);
    // Stores the batch's k and v (from qkv, k already rotated) in the cache.
    int (*kv_write)(struct backend *be, const struct kv_store *kv, int32_t layer, const void *qkv,
                    const struct batch *b, int32_t n_heads);
    // out (n, n_heads * head_dim): softmax(scale * q.k + alibi) v over the positions that each row
    // sees (kv_visible), which are in the cache. Key positions are processed in ascending order in
    // runs aligned to absolute multiples of a constant, so that the order of the sum never depends
    // on chunking or batch.
    int (*attention)(struct backend *be, void *out, const void *qkv, const struct kv_store *kv,
                     const struct batch *b, const struct attention_args *args);
    // gated: y (n, width) = act(x[:, 0:width]) * x[:, width:2*width], x (n, 2*width); else y =
    // act(x), x (n, width).
    int (*activate)(struct backend *be, enum activation act, bool gated, void *y, const void *x,
                    int32_t n, int32_t width);
    int (*add)(struct backend *be, void *y, const void *x, int64_t n_elements); // y += x
    // With their features (enum op_feature); else NULL.
    // x *= factor * by[0] (device memory; NULL: 1)
    int (*scale)(struct backend *be, void *x, int64_t n_elements, const float *by, float factor);
    // y (n, width) *= x, x's rows stride elements apart
    int (*multiply_rows)(struct backend *be, void *y, const void *x, int32_t n, int32_t width,
                         int64_t stride);
    // y (n, width) = xIELU(x) (Huang and Schlag 2024) with alpha_p = softplus(alpha[0]), beta = 0.5 and
    // alpha_n = beta + softplus(alpha[1]): x > 0: alpha_p x^2 + beta x; else
    // alpha_n (e^min(x, -1e-6) - 1 - x) + beta x. alpha (2) is device memory. y may be x.
    int (*xielu)(struct backend *be, void *y, const void *x, int32_t n, int32_t width,
                 const float *alpha);
    // x (n_elements) f32, whatever act_dtype is, becomes cap * tanh(scale * x / cap); cap 0: scale * x.
    int (*finish_logits)(struct backend *be, float *x, int64_t n_elements, float scale, float cap);
    // From a router's logits (n, n_experts) f32: ids (n, n_chosen) of the chosen experts, ascending in each
    // row, and their weights. Of equal scores the lower id is chosen. A row with a logit that is not finite
    // has the first ids and weights of NaN, so that what is computed of it is NaN too.
    int (*route)(struct backend *be, int32_t *ids, float *weights, const float *logits, int32_t n,
                 const struct route_args *args);
    // y (n, H) =|+= the sum over a row's ids, ascending, of weight times the expert's result for x (n, H), one
    // multiply-add each in F32. ids and weights as from route. An expert's weights are read once,
    // those of experts that no row has are not read. work: experts_bytes(n), aligned as by mem_alloc. y must not
    // overlap x.
    int (*experts)(struct backend *be, enum linear_mode mode, void *y, const void *x, int32_t n,
                   const int32_t *ids, const float *weights, const struct experts_args *args,
                   void *work);
    size_t (*experts_bytes)(struct backend *be, int32_t n, const struct experts_args *args);
    // y (n, width) += sigmoid(gate[r]) * x; gate (n) f32 whatever act_dtype is.
    int (*add_gated)(struct backend *be, void *y, const void *x, const float *gate, int32_t n,
                     int32_t width);
    // out (n, n_heads * v_dim): stores the rows' vectors in the cache, then attends to those that each row sees. work:
    // latent_bytes(n), aligned as by mem_alloc.
    int (*latent_attention)(struct backend *be, void *out, const struct kv_store *kv,
                            const struct batch *b, const struct latent_args *args, void *work);
    // Reads n_heads, rank, rope_dim, nope_dim, v_dim, k and v alone.
    size_t (*latent_bytes)(struct backend *be, int32_t n, const struct latent_args *args);
    // y (b->n_logits, width) = x[b->logit_rows]
    int (*gather_logit_rows)(struct backend *be, void *y, const void *x, const struct batch *b,
                             int32_t width);
    // Copies logits (n, vocab) f32 to host memory and waits for the copy. n 0: only waits, for all
    // earlier calls. NULL: logits are in host memory as soon as `linear` returns.
    int (*logits_read)(struct backend *be, float *host, const void *logits, int32_t n,
                       int32_t vocab);

    // Work of the host between the ops, such as drawing tokens: calls fn(ctx, item) once for each
    // item of [0, n) on the compute threads, and returns when all are done. NULL: the device has no
    // such threads.
    void (*host_for)(struct backend *be, int n, void (*fn)(void *ctx, int item), void *ctx);

    // --- optional: drawing on the device; NULL: the host draws

    // draw: the token of each of the first n wanted rows by b->draws, from logits (n, vocab).
    // draws_read waits for the results and copies them.
    int (*draw)(struct backend *be, const float *logits, const struct batch *b, int32_t n,
                int32_t vocab);
    int (*draws_read)(struct backend *be, struct batch_drawn *out, int32_t n);
    // The same for the step before the last one, which follows it (struct batch): waits for that step
    // only. Its logits are lost, so id -1 then means that the row must be computed again. NULL: no step
    // follows another.
    int (*draws_read_before)(struct backend *be, struct batch_drawn *out, int32_t n);
    // `draw` leaves out a row whose draw changes the logits (DRAW_NONE). draw_adjust copies the changes
    // of such a row while the device computes the step; draw_adjusted then draws all such rows of the
    // step, and draws_read returns their tokens too. Call both between step_launch and draws_read.
    // OP_DECLINED: no room for this row's changes; the host draws it. Both NULL: the host draws all such
    // rows.
    int (*draw_adjust)(struct backend *be, const struct batch_adjusted *a, int32_t vocab);
    int (*draw_adjusted)(struct backend *be, const float *logits, int32_t vocab);

    // --- optional: several ranks; NULL: activations are in host memory, where comm reaches them

    // Connects the device with those of the other ranks. Every rank calls it once the caches have
    // their memory, and all succeed or all fail. *l is copied; l->ctx must outlive the backend.
    int (*ranks_open)(struct backend *be, const struct rank_links *l, struct err *err);
    // Ends all use of other ranks' memory; this rank's stays until the backend closes. Every rank
    // calls it before any of them closes its backend.
    void (*ranks_close)(struct backend *be);
    // As in struct comm_ops. They are enqueued like any op, and may be captured.
    int (*all_reduce)(struct backend *be, void *x, int64_t n);
    // first: (tp_size + 1) where each rank's columns begin, and the width.
    int (*gather_rows)(struct backend *be, void *out, const void *part, int32_t n_rows,
                       const int32_t *first);
    // The ids that the first of the ranks has drawn for n wanted rows (`draw`) reach the others: a step that
    // follows reads them (BATCH_DRAWN).
    int (*share_draws)(struct backend *be, int32_t n);
    // To and from the rank `after` or `before`.
    int (*send)(struct backend *be, const void *x, int64_t n);
    int (*recv)(struct backend *be, void *x, int64_t n);

    // --- optional fusions

    // NULL: forward composes the ops above. A fusion gives the same bits unless it says otherwise.

    // qk_norm (if q_weight) + rope (if rot_dim) + kv_write.
    int (*qkv_finish)(struct backend *be, void *qkv, const struct kv_store *kv,
                      const struct batch *b, int32_t layer, int32_t n_heads,
                      const struct qkv_args *args);

    // y (n, width) += norm(x), which is first rounded to act_dtype. y must not overlap x.
    int (*norm_add)(struct backend *be, void *y, const void *x, int32_t n, int32_t width,
                    const struct norm_args *args);

    // linear, its result rounded to act_dtype, then activate: y (n, w->rows; if gated, half as
    // many). OP_DECLINED: compose it from the ops.
    int (*linear_activate)(struct backend *be, void *y, const void *x, int32_t n,
                           const struct weight *w, const float *bias, enum activation act,
                           bool gated);

    // norm of x (n, w->cols), its result rounded to act_dtype, then linear, or linear_activate where
    // act is not NULL (mode LINEAR_STORE). y must not overlap x. OP_DECLINED as above.
    int (*norm_linear)(struct backend *be, const struct norm_args *norm, enum linear_mode mode,
                       void *y, const void *x, int32_t n, const struct weight *w, const float *bias,
                       const struct activate_args *act);

    // norm of x (n, router->cols) into `normed`, its linear by the router in F32, and route by these logits,
    // which are not kept (within rounding). normed must not overlap x. OP_DECLINED as above.
    int (*norm_route)(struct backend *be, int32_t *ids, float *weights, void *normed, const void *x,
                      int32_t n, const struct norm_args *norm, const struct weight *router,
                      const float *bias, const struct route_args *args);

    // A whole feed-forward: y (n, down->rows) =|+= down(act(up(norm(x)))). y may be x. OP_DECLINED as
    // above.
    int (*feed_forward)(struct backend *be, enum linear_mode mode, void *y, const void *x,
                        int32_t n, const struct feed_forward_args *args);

    // qkv_finish, then attention (within rounding where the backend is not exact): qkv is linear's
    // result and is undefined afterwards. OP_DECLINED as above.
    int (*qkv_attention)(struct backend *be, void *out, void *qkv, const struct kv_store *kv,
                         const struct batch *b, const struct attention_args *args,
                         const struct qkv_args *finish);

    void (*close)(struct backend *be);
};

struct backend {
    const struct backend_ops *ops;
    enum dtype act_dtype; // of activations
    int32_t n_threads;    // CPU workers, the engine's own thread included
    bool bf16_products;   // of the CPU: rounds x of `linear` with bf16 weights to bf16
    // For `parley inspect` and bench: "AVX-512, 2 threads". Owned by the backend.
    const char *description;
};

// The CPU backend (kernels/cpu). n_threads 0: one per core that this process may use, at most 64.
// isa NULL or "auto": the best that the processor has; else "portable", "avx2", "avx512" or "amx":
// E_UNSUPPORTED if the processor lacks it. Different isa give different bits, one isa always the
// same.
int backend_cpu_open(struct backend **out, int n_threads, const char *isa, struct err *err);
// The same with a choice of the precision of `linear`'s products. F32 (as above): x is not rounded.
// BF16: for weights of bf16, x is first rounded to bf16, to nearest even; processors with
// AVX512-BF16 or AMX multiply it several times as fast. Sums stay F32, in one fixed order. Other
// weights use unrounded x. E_UNSUPPORTED: other processors.
int backend_cpu_open_for(struct backend **out, enum dtype compute, int n_threads, const char *isa,
                         struct err *err);

// The CUDA backend (kernels/cuda), where the build has it (PARLEY_CUDA). compute is the act_dtype:
// weights of another 16-bit or 32-bit type are converted to it when they are loaded. deterministic:
// the backend keeps the contract on numbers above, bit for bit on one kind of GPU, at a cost in
// speed. fp8_activations: with many rows, linear by e4m3 weights also rounds x to e4m3, with a scale for
// each row (and block of columns). E_NOTFOUND: no such GPU; E_UNSUPPORTED: this program has no code for it.
struct backend_cuda_options {
    int device;
    enum dtype compute; // F32, F16, BF16
    bool deterministic;
    bool fp8_activations; // not with deterministic
};
int backend_cuda_open(struct backend **out, const struct backend_cuda_options *o, struct err *err);
int backend_cuda_count(void); // GPUs that the driver shows; 0 without a driver
// What the driver says, for a diagnosis. Takes some of GPU 0's memory for the rest of the process.
struct backend_cuda_look {
    int n_gpus;
    int driver, needed; // CUDA's version of the driver (0: none) and of this program; 13000 is 13.0
    char name[96];      // of GPU 0
    int64_t total, left; // bytes of its memory
    char problem[160];   // "": none
};
void backend_cuda_look(struct backend_cuda_look *out);
