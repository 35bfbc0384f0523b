// The tokens in descending order of probability (equal logits: ascending id), sorted only where a filter
// or the draw needs it. Every filter of a turn keeps a prefix of that order, and the draw selects one
// place in it.
//
// The range from the best logit down is cut into SAMPLER_BUCKETS equal slices. One pass over the
// vocabulary notes each token's bucket and each bucket's count and mass (sum of weights e^((logit -
// best) / temperature)). To find the first k tokens, or the first 90 % of the mass, the code walks
// over the buckets, then collects and sorts only the bucket where it stops: of a vocabulary of 128k,
// a few hundred tokens.
//
// Tokens less probable than e^-NUCLEUS_DEPTH times the best one are left out: a draw has 24 bits, too
// few to select them.
#pragma once
#include "engine/run/sampler.h"

#define NUCLEUS_DEPTH 40.0f

// The first tokens of the order: all of the buckets before `bucket`, and n_inside of its own in
// order.
struct prefix {
    int32_t bucket, n_inside;
    int64_t count; // of tokens, in all
    double mass;
};

struct nucleus {
    struct sampler_work *work;
    const float *logits; // (n_vocab), adjusted
    int32_t n_vocab;
    float max, inverse_temperature;
    float slices_per_logit; // buckets to one unit of logit
    int32_t sorted;         // the bucket whose ids are in work->members, or -1
    struct prefix kept;     // the tokens that the filters so far have kept
};

// max: the greatest of logits, finite. temperature > 0. All tokens are kept at first.
void nucleus_init(struct nucleus *nu, struct sampler_work *w, const float *logits, int32_t n_vocab,
                  float max, float temperature);
void nucleus_keep_count(struct nucleus *nu, int32_t k); // the k best, k >= 1
// The fewest best tokens that hold p of the kept mass, p > 0
void nucleus_keep_mass(struct nucleus *nu, float p);
// The tokens at least p times as probable as the best one, p <= 1
void nucleus_keep_ratio(struct nucleus *nu, float p);

// The first token whose cumulative probability, among the kept tokens, exceeds u; 0 <= u < 1.
int32_t nucleus_draw(struct nucleus *nu, float u);
// probs (n_vocab): each token's probability among the kept tokens, 0 for the others.
void nucleus_probabilities(struct nucleus *nu, float *probs);
