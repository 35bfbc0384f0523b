// How far the answers of one model are from those of another with the same tokens: what 8-bit
// weights cost beside the model's own, or a cache of 8 bits. Both are loaded, both read the same
// log, position by position.
#pragma once
#include "ws/cli/cli.h"

struct score_side { // of one model
    const char *model, *weight_dtype, *kv_dtype;
    int64_t weight_bytes, kv_bytes_per_token;
    double logprob, perplexity; // of the n_scored tokens given what precedes them
};

struct score_comparison {
    int64_t n_positions, n_scored; // logits compared; tokens that had a predecessor
    double top1_agreement;         // share of positions whose likeliest token is the same
    double mean_kl, max_kl;        // of the reference's distribution to the other's, in nats
    double rms_difference, max_difference, spread; // of logits; spread: their own deviation
    struct score_side reference, compared;
};

// Reads ids through both engines, in pieces of context_len tokens, each a log of its own. The
// strings in *out are the engines'.
int score_compare(struct engine *reference, struct engine *compared, const struct cli_model *m,
                  const int32_t *ids, int64_t n_ids, int64_t context_len,
                  struct score_comparison *out, struct err *err);
void score_comparison_print(const struct score_comparison *c, bool json);
