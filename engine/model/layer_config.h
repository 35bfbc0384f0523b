// One decoder layer as plain data. Layers of a model that are alike share a row: struct model_config has
// the distinct rows and, for each layer, the number of its row. A family fills the rows
// (families.h), the loader and forward read them; a switch that one family alone has is a field
// here, never a comparison with a family's name.
//
// A zeroed field means "none", "no" or "plain" in every case, so a row says only what a layer has.
// Fields of mixers and feed-forwards that have no code yet (recurrences, latent attention) are
// the place where they will stand; a model that needs one is refused by name.
#pragma once
#include "kernels/backend.h"
#include <stdbool.h>
#include <stdint.h>

#define MODEL_MAX_ROT 512
#define MODEL_MAX_ROPES 2  // Gemma 3, OLMo 3: one for windowed layers, one for the others
#define MODEL_MAX_KINDS 16 // distinct rows

// Rotary positions: the angle of pair i at position p is p * inv_freq[i], in F32.
struct rope {
    enum rope_style style;
    int32_t rot_dim; // rotated width of a head
    // (rot_dim / 2), scaling (linear, llama3, yarn ...) already applied. A pair of frequency 0 does not
    // turn (proportional).
    float inv_freq[MODEL_MAX_ROT / 2];
    float scale; // on cos and sin (yarn's and longrope's attention factor), else 1
    // longrope: sessions of at most so many tokens turn by short_inv_freq (rot_dim / 2), from their first token to
    // their last. 0: all sessions turn by inv_freq.
    int64_t short_len;
    float short_inv_freq[MODEL_MAX_ROT / 2];
};

enum mixer_kind {
    MIXER_ATTENTION,
    MIXER_DELTA_NET,   // Qwen3.5
    MIXER_MAMBA2,      // Granite 4, Nemotron-H
    MIXER_CONVOLUTION, // LFM2
    MIXER_NONE         // Nemotron-H: a layer that is a feed-forward alone
};

enum qk_norm {
    QK_NORM_NONE,
    QK_NORM_HEADS, // RMS norm of each q and k head (Qwen3, Gemma 3)
    QK_NORM_WIDTH  // RMS norm over all q heads together, and over all k heads (OLMo 2)
};

struct attention_config {
    int32_t n_heads, n_kv_heads, head_dim;
    int32_t v_head_dim;  // 0: head_dim
    float scale;         // on q.k
    bool scale_by_layer; // layer n (from 0) divides scale by n + 1 (a variant of GPT-2)
    float soft_cap;      // scores become cap * tanh(score / cap); 0: none (Gemma 2)
    // The query at position p is multiplied by 1 + query_beta * ln(1 + floor(p / query_length));
    // query_beta 0: it is not (Ministral 3).
    float query_beta, query_length;
    bool sinks;     // a logit for each head joins the softmax without a value (gpt-oss)
    int32_t window; // a token sees this many, itself included; 0: everything
    int32_t rope;   // 0: no rotation; n: by ropes[n - 1]
    enum qk_norm qk_norm;
    bool qk_norm_after_rope; // Hunyuan
    bool v_norm;             // each v head: RMS norm without a weight (Gemma 4)
    bool v_is_k;             // v is k before its norm and rotation, and has no weights (Gemma 4)
    float clip; // q, k and v are cut to [-clip, clip] after their norms; 0: they are not (OLMoE)
    bool gated; // the output is multiplied by sigmoid(gate), a second half of q (Qwen3.5)
    bool qkv_bias,
        o_bias; // qkv_bias with latents: on the first projections of q and of the latents
    // The layer has no keys and values of its own: it reads those of layer kv_from - 1, a layer below it with
    // the same heads and window. 0: it has.
    int32_t kv_from;
    // Latent attention (DeepSeek, GLM-4.7): ranks of the two projections (q_rank 0: q has one matrix), and how a head
    // of q divides. kv_rank 0: none. The cache has one head, (rope_dim + kv_rank): n_kv_heads is 1 and head_dim that
    // sum; v_head_dim is what a head gives to o.
    int32_t q_rank, kv_rank, nope_dim, rope_dim;
    float latent_eps; // of the norms between the projections
};

// The fixed-size state of a recurrent mixer, for each sequence.
struct state_config {
    int32_t n_heads, n_key_heads, key_dim, value_dim; // F32 (n_heads, key_dim, value_dim)
    int32_t conv_taps, conv_width;                    // the last conv_taps - 1 inputs of conv_width
};

struct experts_config {
    int32_t n_experts, n_chosen, width; // n_experts 0: none
    enum router_kind router;
    bool router_bias, choice_bias; // on the logits; on the scores, for choosing alone
    bool normalised;
    float factor;                                  // on the weights; 0: 1
    int32_t n_groups, n_chosen_groups, group_best; // as route_args
    bool bias;                                     // on up and down of each expert
    int32_t shared_width;                          // of the shared experts together; 0: none
    bool shared_gate;                              // a sigmoid gates them
    float limit; // gpt-oss: clamps the gate and the other half; 0: none
    // Beside a dense feed-forward: both have norms of their own around them, and the router reads the stream
    // through a norm of its own (Gemma 4).
    bool beside;
    bool expert_scale; // a stored number on the weights of each expert
};

struct feed_config {
    int32_t width; // of the dense feed-forward; 0: none
    enum activation activation;
    bool xielu; // the activation is xIELU with the layer's own numbers, not `activation` (Apertus)
    bool gated;
    bool bias;
    struct experts_config experts; // in place of the dense one, or beside it
};

// Where a layer's norms are; the same for both sub-layers.
enum norms {
    NORM_PRE = 1,  // y = x + f(norm(x))
    NORM_OUT = 2,  // y = x + norm(f(x)); with NORM_PRE x + norm2(f(norm1(x)))
    NORM_POST = 4, // y = norm(x + f(x)); alone
};

struct layer_config {
    enum mixer_kind mixer;
    struct attention_config attention;
    struct state_config state;
    struct feed_config feed;
    int32_t norms;        // of enum norms
    bool parallel;        // y = x + attention(n1(x)) + feed(n2(x))
    bool shared_norm;     // with parallel: n2 is n1 (GPT-J, Cohere)
    bool normed_residual; // NORM_PRE: residuals are added to the normed stream (a variant of BLOOM)
    float residual_scale; // on what a sub-layer adds to the stream; 0: 1 (Granite)
    bool output_scalar;   // the layer's output is multiplied by a stored number (Gemma 4)
};
