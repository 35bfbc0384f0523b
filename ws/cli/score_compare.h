// Measures how far the logits of one model are from those of another on the same tokens: the
// accuracy lost by 8-bit weights or an 8-bit cache, for example. Both models are loaded and read
// the same log, position by position.
#pragma once
#include "ws/cli/cli.h"

struct score_side { // of one model
    const char *model, *weight_dtype, *kv_dtype;
    int64_t weight_bytes, kv_bytes_per_token;
    double logprob, perplexity; // of the n_scored tokens, each given its predecessors
};

struct score_comparison {
    int64_t n_positions, n_scored; // compared positions; tokens with a predecessor
    double top1_agreement;         // share of positions with the same most likely token
    double mean_kl, max_kl;        // from the reference to the other, in nats
    double rms_difference, max_difference, spread; // of logits; spread: their standard deviation
    struct score_side reference, compared;
};

// Runs ids through both engines, in pieces of context_len tokens, each its own log. The engines own
// the strings in *out. E_INVAL: their vocabularies differ; E_NOMEM; or an error of an engine.
int score_compare(struct engine *reference, struct engine *compared, const struct model_settings *m,
                  const int32_t *ids, int64_t n_ids, int64_t context_len,
                  struct score_comparison *out, struct err *err);
// Prints to stdout.
int score_comparison_print(const struct score_comparison *c, bool json, struct err *err);
