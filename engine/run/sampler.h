// Draws one token from one position's logits, as the turn's sampling_params say.
//
// A draw is a pure function of (logits, params, the sequence's history, position, branch). Its
// random number is Philox of (seed, position, branch), its sums run in one fixed order, and a draw
// leaves no state; only sampler_begin and sampler_accept change the history. So a turn can be
// replayed from any token.
//
//   per sequence                    per drawing thread
//   struct sampler  (history) --+   struct sampler_work (scratch)
//                               v            v
//   logits (n_vocab) ----> sampler_draw ----> struct sampled ----> sampler_accept(id)
//
// Threads: one thread at a time uses a sampler or a work; different threads may use different ones.
// Nothing allocates after _init.
#pragma once
#include "base/err.h"
#include "engine/engine.h"
#include "engine/run/constraint.h"
#include "engine/sampling/params.h"
#include "kernels/batch.h"
#include <stdbool.h>
#include <stdint.h>

// --- scratch: one for each thread that draws -----------------------------------------------------

enum { SAMPLER_BUCKETS = 2048 }; // see nucleus.h

struct sampler_work {
    int32_t n_vocab;
    float *adjusted;   // (n_vocab) logits after penalties, bias and bans
    uint16_t *bucket;  // (n_vocab) which slice of the probability range each token falls in
    int32_t *members;  // (n_vocab) ids of one bucket, sorted
    double *mass;      // (SAMPLER_BUCKETS) sum of the weights in each bucket
    int32_t *count;    // (SAMPLER_BUCKETS)
    uint64_t *allowed; // ((n_vocab + 63) / 64) a bit for each token that may be drawn
    struct batch_penalty *penalties; // (n_vocab) for a device; biases likewise
    struct batch_bias biases[SAMPLING_MAX_BIAS];
};
int sampler_work_init(struct sampler_work *w, int32_t n_vocab, struct err *err); // E_NOMEM
void sampler_work_release(struct sampler_work *w); // a zeroed or released one is allowed

// --- history: one for each sequence that runs ----------------------------------------------------

struct sampler {
    const struct sampling_params *params; // borrowed from sampler_begin on
    const int32_t *eos_ids;               // borrowed likewise
    int32_t n_eos, n_vocab;
    uint32_t branch;
    int64_t n_generated; // accepted since sampler_begin
    struct constraint constraint;
    // Only turns that use a penalty touch these, so that other turns cost no resident memory.
    uint32_t *marks; // (n_vocab) top bit: occurs in the log; the rest: times generated in this turn
    int32_t *seen;   // (n_seen) the distinct ids whose mark is set
    int32_t n_seen;
    bool biases_distinct; // the parameters' biases have distinct ids
    float decayed_top_p;  // in force for the next draw; 0: params->top_p
    int32_t n_tail;       // the log's last tokens, for bad and stop words of several tokens
    int32_t tail[SAMPLING_WORD_TOKENS];
};
int sampler_init(struct sampler *s, int32_t n_vocab, struct err *err); // E_NOMEM
void sampler_release(struct sampler *s); // a zeroed or released one is allowed

// Starts a turn. *p has passed sampling_params_check and has its seed; it and eos_ids stay valid
// until the next sampler_begin or the release. log is the whole token log with the turn's input
// (read only during the call): the repetition penalty covers its distinct tokens; presence and
// frequency penalties count the tokens that sampler_accept adds. To continue in the middle of a turn,
// begin with the log as it was after the turn's input, then accept the tokens generated since.
// branch: the index of the continuation if one turn draws several, else 0. E_INVAL: an id of the log
// is not in the vocabulary.
int sampler_begin(struct sampler *s, const struct sampling_params *p, uint32_t branch,
                  const int32_t *eos_ids, int32_t n_eos, const int32_t *log, int64_t n_log,
                  struct err *err);

// Call after sampler_begin. The answer then matches g and has at most `most` tokens, its end included.
// The sampler holds g until the next sampler_begin or sampler_unconstrain. E_NOMEM.
int sampler_constrain(struct sampler *s, struct grammar *g, int64_t most, struct err *err);

void sampler_unconstrain(struct sampler *s); // without a constraint it does nothing

// Call after sampler_begin and sampler_constrain. Watches the model's thinking in the answer that follows
// log (n_log), and forces the closing mark after params->thinking_budget tokens of thinking. A grammar
// applies only after the thinking, which ends while the answer still has room for its grammar. marks:
// borrowed. goes_on: as for thinking_begin.
void sampler_watch_thinking(struct sampler *s, const struct thinking_marks *marks,
                            const int32_t *log, int64_t n_log, bool goes_on);
// Records that the log now ends with id, a token in [0, n_vocab) from sampler_draw or a replayed record.
void sampler_accept(struct sampler *s, int32_t id);
// Makes the mask that a grammar needs for the next draw, as far as *effort goes (grammar/matcher.h); 0: only
// looks. True: the draw makes none, or one that takes little.
bool sampler_prepare(const struct sampler *s, int64_t *effort);
// Whether the log now ends with one of the token sequences of params->stop.
bool sampler_at_stop(const struct sampler *s);
// Whether the log would end with one after this token.
bool sampler_stops_with(const struct sampler *s, int32_t id);
// Copies the history of `from` to `to`, which has the same vocabulary. E_NOMEM: only if `from` has a
// grammar that `to` does not have.
int sampler_copy(struct sampler *to, const struct sampler *from, struct err *err);

// --- one draw ------------------------------------------------------------------------------------

struct sampled {
    int32_t id;
    float logprob; // of id: the model's own, log-softmax of the logits as given
    // params->top_logprobs; fewer if fewer tokens have a probability above 0
    int32_t n_alternatives;
    // the model's own best, best first
    struct engine_alternative alternatives[SAMPLING_MAX_TOP_LOGPROBS];
};

// logits (n_vocab) f32 in host memory, not changed. position: of the token to be drawn, its index
// in the log. Greedy (temperature 0 or top_k 1): the best adjusted logit, the lowest id among
// equals, no random number. Otherwise inverse CDF over the tokens that top-k, top-p and min-p
// leave, in descending order of probability, lower ids first among equals. ignore_eos: eos tokens
// are ordinary tokens (min_tokens does not hold them back), and the caller does not stop at them.
// E_INTERNAL: a logit is NaN or +inf, or all are -inf (a broken model); E_INVAL: the parameters
// leave no token; E_LIMIT, E_NOMEM: from the grammar (matcher.h).
int sampler_draw(struct sampler *s, struct sampler_work *w, const float *logits, int64_t position,
                 struct sampled *out, struct err *err);

// The same draw as a plan that a device can run on its own logits. kind DRAW_NONE: the draw needs more
// than the row's logits (history, bias, bans, alternatives). ahead: tokens before the position that are not accepted
// yet, because they are drafts.
struct batch_draw sampler_plan(const struct sampler *s, int64_t position, int32_t ahead);
// Whether the draw needs only the row's logits and changes to them that a device can make.
bool sampler_is_adjustment(const struct sampler *s);
// Describes that draw and the changes that sampler_draw makes to the logits. out's arrays belong to w and
// stay valid until its next use; the caller sets out->row. Errors of the grammar as in sampler_draw.
int sampler_adjustment(const struct sampler *s, struct sampler_work *w, int64_t position,
                       struct batch_adjusted *out, struct err *err);

// The n most likely tokens for beam search, best first, lower ids first among equals. Sets id, own and
// logprob in out (n). Penalties, bias, bans and minimum length change logprob; temperature, top-k, top-p
// and min-p do not. Returns how many tokens there are, or an error of sampler_draw.
int sampler_rank(struct sampler *s, struct sampler_work *w, const float *logits, int32_t n,
                 struct beam_candidate *out, struct err *err);

// The distribution that sampler_draw draws from: probs (n_vocab), summing to 1; one-hot if greedy.
// For tests and explanations; same errors.
int sampler_probabilities(struct sampler *s, struct sampler_work *w, const float *logits,
                          float *probs, struct err *err);

// The model's own log-probability of one token, the same bits as sampled.logprob: for scoring a
// given text. E_INTERNAL as above.
int sampler_logprob(const float *logits, int32_t n_vocab, int32_t id, float *logprob,
                    struct err *err);
// The n likeliest tokens, the likeliest first; fewer where the vocabulary has fewer.
int sampler_best(const float *logits, int32_t n_vocab, int32_t n, struct engine_alternative *out,
                 struct err *err);
