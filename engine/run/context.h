// Outputs of a turn's input, beside its answer (FasterTransformer's is_return_context_cum_log_probs and
// is_return_context_embeddings):
//
//   logprob    the sum of the log-probabilities of the input's tokens, each given all of the log before
//              it; the log's first token, virtual tokens and the first token after a prefix have none
//   scores     these log-probabilities one by one, with alternatives (engine_turn.scores_input)
//   embedding  the hidden states of the input's tokens, virtual ones included (those of a prefix have
//              none): the sum of the last layer's outputs, before the final norm (POOLING_SUM); or
//              after it their mean (POOLING_MEAN), or that of the last token (POOLING_LAST) or the first (POOLING_FIRST)
//
// The host computes all of them position by position, so chunks and pauses change no bit. A position
// that the cache already has (shared with another session, or of a turn that is regenerated) gives
// neither logits nor a hidden state. So the turn uses the cache only for positions before its input.
//
// Engine thread only, except context_init and context_reserve.
#pragma once
#include "engine/engine.h"

struct context_outputs {
    bool wants_logprob, wants_scores, wants_embedding;
    int64_t next_logits, next_hidden; // the next position whose logits, hidden state are added
    enum context_pooling pooling;
    int64_t n_hidden; // added so far
    int32_t width;
    double logprob;
    double *embedding;            // (width), or NULL; owned
    struct engine_scores *scores; // or NULL; owned
};

// Allocates nothing: context_reserve makes the outputs.
void context_init(struct context_outputs *c, const struct engine_turn *t);
// E_NOMEM
int context_reserve(struct context_outputs *c, const struct engine_turn *t, int32_t width,
                    struct err *err);

// How many of the log's n tokens the turn may look up in the cache. The cache serves at most all of these
// but the last one.
int64_t context_usable(const struct context_outputs *c, const struct engine_turn *t, int64_t n);
// At the turn's end. The embedding and the scores pass to the caller; NULL: none, or not complete.
bool context_has_logprob(const struct context_outputs *c, int64_t n_ids);
double *context_take_embedding(struct context_outputs *c, int64_t n_ids);
struct engine_scores *context_take_scores(struct context_outputs *c, int64_t n_ids);

// Whether the outputs still need rows that no draw needs. n_ids: length of the turn's log at its start.
bool context_waits(const struct context_outputs *c, int64_t n_ids);
bool context_takes_logits(const struct context_outputs *c, const struct engine_turn *t,
                          int64_t position);
bool context_takes_hidden(const struct context_outputs *c, const struct engine_turn *t,
                          int64_t position);
// Add the position for which a function above returned true. logits (n_vocab): E_INTERNAL if they are
// broken. hidden (width): before the final norm for POOLING_SUM, after it otherwise.
int context_add_logits(struct context_outputs *c, const struct engine_turn *t, const float *logits,
                       int32_t n_vocab, struct err *err);
void context_add_hidden(struct context_outputs *c, const float *hidden);
