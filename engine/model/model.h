// A loaded model: configuration plus the weights of this rank on a backend. Read-only after
// loading.
#pragma once
#include "engine/dist/split.h"
#include "engine/model/model_config.h"
#include "kernels/backend.h"
#include "kvcache/groups.h"

struct norm_weights {     // device f32; NULL where the family has none
    float *weight, *bias; // (width)
};

// A layer's experts and the feed-forward that all rows share.
struct experts_weights {
    struct weight router;             // (n_experts, width), never of 8 bits
    float *router_bias, *choice_bias; // (n_experts) or NULL
    struct weight *up, *down;   // (n_experts), as in struct experts_args; NULL: the layer has none
    float *up_bias, *down_bias; // likewise; down's on tp rank 0 only
    struct weight shared_up, shared_down, shared_switch; // data NULL where absent
    bool shared_joins; // up[n_experts] and down[n_experts] are the shared ones, too
    // Beside a dense feed-forward (experts_config.beside); else empty
    struct norm_weights dense_out_norm, norm, out_norm;
    float *router_norm;  // (width), the root of the width divided out
    float *expert_scale; // (n_experts) or NULL
};

// Latent attention. A head's matrices bring q into the latents' space, and latents to what o gets.
struct latent_weights {
    // What the layer's input becomes first: q_in (q_rank, width), or the queries (heads * (nope + rope), width) where q_rank
    // is 0; kv_in (kv_rank + rope, width), the latents first. In one matrix where their formats agree: q's rows come
    // first, and kv_in is empty.
    struct weight q_in, kv_in;
    float *q_bias, *kv_bias; // of the rows of q_in, of kv_in; or NULL
    struct weight q;         // (heads * (nope + rope), q_rank), or empty
    float *q_norm, *kv_norm; // (q_rank) or NULL, (kv_rank)
    struct weight *k,
        *v; // (heads) of (kv_rank, nope), of (v_head_dim, kv_rank); NULL: no such layer
};

struct layer_weights {
    struct norm_weights attn_norm, ffn_norm, attn_out_norm, ffn_out_norm;
    // ((heads + 2 kv_heads) * head_dim, width): q rows, k rows, v rows of this rank; q rows alone in a layer that
    // reads another layer's keys and values
    struct weight qkv;
    struct latent_weights latent; // in place of qkv
    float *qkv_bias;              // (rows) or NULL
    float *q_norm, *k_norm;       // (head_dim), or of all heads (QK_NORM_WIDTH), or NULL
    float *v_norm;                // (head_dim) ones, or NULL
    float *sinks;                 // (heads of this rank) or NULL
    struct weight o;              // (width, heads * head_dim)
    float *o_bias;                // (width) or NULL; on tp rank 0 only
    struct weight up; // gated: (2 * ffn, width), gate rows then up rows; else (ffn, width)
    float *up_bias;
    struct weight down; // (width, ffn)
    float *down_bias;
    struct experts_weights experts;
    float *xielu;         // (2) alpha_p and alpha_n as stored, or NULL
    float *output_scalar; // (1) or NULL
    // Gemma 4 E: (per_layer_width, width) and back, and the norm behind them
    struct weight layer_gate, layer_out;
    struct norm_weights layer_out_norm;
};

// This rank's part of a layer of one kind.
struct rank_shape {
    int32_t n_heads, n_kv_heads, ffn_width, expert_width, shared_width;
};

struct model {
    struct model_config config;
    struct split split;
    struct backend *backend;                    // borrowed
    int32_t first_layer, n_layers;              // of this rank
    struct rank_shape of_kind[MODEL_MAX_KINDS]; // (config.n_kinds)
    int32_t vocab_rows;                         // of this rank
    struct weight embed;                        // (vocab, embed_width); on every rank that embeds
    float *position_table;                      // (max_positions + offset, width) or NULL
    struct weight embed_in, embed_out;          // OPT-350m's projections; data NULL where absent
    struct norm_weights embed_norm, final_norm;
    struct weight head; // (vocab rows of this rank, width); when tied, a copy of embed's struct
    bool head_is_embed;
    float *head_bias;
    float *inv_freq[MODEL_MAX_ROPES], *alibi_slopes; // device copies
    float *short_inv_freq[MODEL_MAX_ROPES]; // likewise; NULL where the rope's short_len is 0
    // Gemma 4 E: (per_layer_vocab, n_layers * per_layer_width), (n_layers * per_layer_width, width), and the norm of
    // each layer's part of the latter's output
    struct weight layer_embed, layer_project;
    struct norm_weights layer_project_norm;
    struct layer_weights *layers;  // (n_layers)
    struct kv_groups cache_groups; // of this rank's layers
    size_t weight_bytes;
    struct checkpoint *files; // the mapped files of n_mapped weights; NULL if none is mapped
    int32_t n_mapped;
    char fingerprint[33];   // equal for equal models (fingerprint.h)
    char weight_format[24]; // model_weight_format
};

struct model_load_options {
    const char *dir;
    struct backend *backend; // borrowed until model_free
    const struct split *split;
    // The format of the matrices that linear multiplies by. Matrices stored in 8 bits keep theirs; asking
    // for the other 8-bit format is an error.
    enum weight_format weights;
    // Bytes done and in all, on the calling thread. May be NULL.
    void (*progress)(void *ctx, int64_t done, int64_t total);
    void *progress_ctx;
};
// Every tensor's presence, shape and dtype is checked before the first byte is read. Tensors are read into one
// staging area (not through the mapping, so that a truncated file is E_CORRUPT, not a signal) and
// packed; then the area is freed, so that memory holds the weights once. On the CPU, matrices that
// `parley quantize` stored in panels stay in the mapped file; README.md explains the consequences. A
// rank reads only its own slices. The error names the fault: a missing tensor (E_NOTFOUND), a wrong
// shape (E_FORMAT), no memory (E_NOMEM, with the bytes needed).
// A model that needs an op which the backend lacks (op_feature), or which several ranks cannot compute yet, is
// E_UNSUPPORTED by name.
int model_load(struct model **out, const struct model_load_options *o, struct err *err);
void model_free(struct model *m);
// A layer of this rank, from 0: its row, and the rank's part of it.
static inline const struct layer_config *model_row(const struct model *m, int32_t layer) {
    return model_layer(&m->config, m->first_layer + layer);
}
static inline const struct rank_shape *model_shape(const struct model *m, int32_t layer) {
    return &m->of_kind[m->config.kind_of[m->first_layer + layer]];
}
// The part of weight_bytes that a step of one row reads: all but the look-up tables and the experts that it
// does not choose.
size_t model_bytes_read(const struct model *m);

// What people call the number format of the matrices: of few bits as checkpoint_few_bits, else as
// model_config_weight_dtype. Borrowed from the checkpoint, or static.
const char *model_weight_format(const struct model_config *c, const struct checkpoint *cp);

// The roles of a checkpoint's tensors in a model.
enum tensor_role {
    TENSOR_UNUSED,
    TENSOR_OTHER,  // norms, biases, tables, an embedding that is only looked up: never quantised
    TENSOR_MATRIX, // linear multiplies by it; stored (outputs, inputs)
    TENSOR_TRANSPOSED, // the same, stored (inputs, outputs)
};
// Finds the role of every tensor. roles: (checkpoint_count(cp)). order: of the same size, or NULL;
// receives the indices of the used tensors in the model's order, in which the parts of a stacked matrix
// are adjacent. Checks every tensor as model_load does and reads none.
int model_tensor_roles(const struct model_config *c, struct checkpoint *cp, uint8_t *roles,
                       size_t *order, struct err *err);
