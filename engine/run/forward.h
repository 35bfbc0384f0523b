// The model's forward pass, written once over the op table. A struct model_config describes a model
// family, a struct backend_ops a device. On one of several ranks, the model's sizes are those of the
// rank's part, and the pass calls `comm` where ranks must agree.
//
//   forward_run:    embed -> layers (attention, feed-forward) -> final norm of the wanted rows
//                   -> head of the first max_logits of them
//   forward_logits: reads logits; computes the head for the other rows, max_logits at a time,
//                   because a vocabulary is wide
//
// So a step of one token each is forward_run alone, and a device may record it and launch it again
// (kernels/backend.h, STEP_REPLAYED).
//
// With several pipeline stages a step of many rows is computed in parts (parts.h).
//
// Wanted rows are those whose logits are needed (struct batch's logit_rows).
//
// Engine thread only. All buffers are sized at init; a step allocates nothing.
#pragma once
#include "engine/cache/stores.h"
#include "engine/dist/comm.h"
#include "engine/dist/lead.h"
#include "engine/model/model.h"
#include "engine/run/parts.h"
#include "kernels/batch.h"

enum { FORWARD_STAGED_ROWS = 64 };

struct forward {
    const struct model *model;
    struct backend *backend;
    struct comm *comm;
    struct lead *lead; // sends the other ranks each step; NULL on these, and with one rank
    const struct cache_stores *kv;
    int32_t max_rows, max_logits;
    size_t bytes;   // of the workspace
    void *arena;    // device memory of the buffers below, in the backend's act_dtype
    void *x;        // (max_rows, width) the residual stream
    void *rows;     // (max_rows, width) the stream of the rows whose logits are wanted
    void *normed;   // (max_rows, width)
    void *embedded; // (max_rows, embed_width); NULL where it is not projected
    // As wide as the widest layer's:
    void *qkv;                       // (max_rows, (n_heads + 2 n_kv_heads) * head_dim)
    void *attended;                  // (max_rows, n_heads * head_dim)
    void *up;                        // (max_rows, ffn_width, twice that when gated)
    void *activated;                 // (max_rows, ffn_width)
    float *cos_sin[MODEL_MAX_ROPES]; // (max_rows, rot_dim) f32 of each rope
    // (max_rows, width) what a sub-layer adds, where it is normed or scaled first; or NULL
    void *added;
    // Experts: (max_rows, n_experts) f32, (max_rows, n_chosen) each, and (max_rows, width) where shared experts are
    // gated or experts stand beside a dense feed-forward; NULL where no layer has any
    float *router_logits, *route_weights;
    int32_t *route_ids;
    void *shared;
    void *work; // work memory of ops that need any
    // Latent attention: (max_rows, q_rank) normed, and the results of latent_weights' q_in and kv_in; or NULL
    void *latent_q, *latent_in, *latent_kv;
    void *layer_inputs; // (max_rows, n_layers * per_layer_width) Gemma 4 E; or NULL
    void *layer_wanted; // the same of the wanted rows
    void *part;         // (max_logits, vocab rows of this rank)
    void *logits;       // (max_logits, vocab); the same as part where this rank has all rows
    float *host;  // (max_logits, vocab) f32, host memory; NULL if logits are such memory already
    void *out;    // after forward_run: (n_logits, width), the head's input beyond the first rows
    void *staged; // (FORWARD_STAGED_ROWS, stage_width) in act_dtype, host memory
    int64_t stage_width;
    struct batch_drawn *drawn; // (max_logits) of ranks in host memory: the followed step's draws
    bool one_layer;            // the step ends after the first layer (warm.c)
    int32_t n_parts; // of this step; the leader decides it, the others get it with the step
    struct parts parts;
};

// Bytes of the workspace, before anything is allocated.
size_t forward_bytes(const struct model *m, int32_t max_rows, int32_t max_logits);
struct forward_options { // its pointers are borrowed until forward_release
    const struct model *model;
    struct comm *comm;
    struct lead *lead; // NULL: not the leader of several ranks
    const struct cache_stores *kv;
    int32_t max_rows, max_logits;
    // Of measurements that the device makes first, if any. May be NULL.
    void (*progress)(void *ctx, int64_t done, int64_t total);
    void *progress_ctx;
};
// Allocates the workspace. On failure *f is zeroed. E_NOMEM, E_DEVICE.
int forward_init(struct forward *f, const struct forward_options *o, struct err *err);
void forward_release(struct forward *f); // a zeroed or released one is allowed

// Writes the batch's keys and values to the cache and prepares the wanted rows. b must not change
// until forward_done.
int forward_run(struct forward *f, const struct batch *b);
// The same in two parts, for a whole step of the leader: the other ranks may begin it when it is sent, and
// the leader computes its own part later. Several steps may have been sent; they run in the order of the sends. slot:
// see lead_step_ahead. n_logits <= max_logits; b has no load and no virtual rows, and stays as it is until
// forward_done.
static inline int forward_send(struct forward *f, const struct batch *b, int32_t slot) {
    return lead_step_ahead(f->lead, b, slot);
}
int forward_run_sent(struct forward *f, const struct batch *b); // E_DEVICE, as forward_run
// A step of one sequence's prefix: writes the keys and values of the rows, which are virtual, to the
// cache; nothing is computed. prefix: see engine/model/prompt.h.
int forward_prefix(struct forward *f, const struct batch *b);
// Logits (n, vocab) f32 of the wanted rows [first, first + n), n <= max_logits, first a multiple of
// max_logits. Calls are in ascending order of first. *logits is valid until the next call.
int forward_logits(struct forward *f, int32_t first, int32_t n, const float **logits);
// Draws that change their row's logits, on a device that supports it (kernels/backend.h: draw_adjust,
// draw_adjusted). Call them after forward_run and before forward_draws. OP_DECLINED: the host draws this
// row.
int forward_draw_adjust(struct forward *f, const struct batch_adjusted *a);
int forward_draw_adjusted(struct forward *f);
// The results of the batch's draws (b->draws not NULL, n = n_logits <= max_logits).
int forward_draws(struct forward *f, int32_t n, struct batch_drawn *out);
// The results of the step before, which the last one follows (kernels/backend.h, draws_read_before).
static inline int forward_draws_before(struct forward *f, int32_t n, struct batch_drawn *out) {
    return f->backend->ops->draws_read_before(f->backend, out, n);
}
// The hidden state (width) f32 of one wanted row: the output of the last layer, before the final norm.
// Between forward_run and forward_done.
int forward_hidden(struct forward *f, const struct batch *b, int32_t row, float *out);
int forward_done(struct forward *f);
