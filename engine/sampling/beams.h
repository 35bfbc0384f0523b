// Beam search: the bookkeeping that chooses the hypotheses of the next step. It knows no model, no logits, no
// cache and no thread.
//
// The rules are those of Hugging Face's beam search (transformers, generation/utils.py _beam_search, and
// BeamSearchScorer before it), for one prompt:
//   - a step ranks the best continuations of all running beams, max(2, 1 + n_eos) * width of them;
//   - a continuation that ends (by an eos, or by the last token allowed) enters the pool of ended hypotheses
//     only if its rank is among the first `width`; the pool holds the `width` best by score;
//   - the first `width` continuations that do not end are the next running beams;
//   - score = sum of the log-probabilities / (number of generated tokens) ^ length_penalty. The eos
//     counts, the prompt does not (FasterTransformer counts the prompt too);
//   - with early_stopping the search is over when the pool is full; without it, when the pool is full and the
//     best running beam would not enter it if that beam ended now. It is also over when no beam runs.
// Diversity is FasterTransformer's (online_softmax_beamsearch_kernels.cu): candidates are ranked by their
// score plus diversity * r, where r is a candidate's rank, from 0, among those of its own beam. This changes the
// ranking and no reported score. A negative diversity gives the diverse decoding of Li et al. (2016).
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

enum { BEAMS_MAX = 64, BEAMS_MAX_EOS = 8, BEAMS_MAX_CANDIDATES = BEAMS_MAX * (1 + BEAMS_MAX_EOS) };

struct beam_options {
    int32_t width; // 1 .. BEAMS_MAX
    float length_penalty, diversity;
    bool early_stopping;
    int32_t max_tokens;     // >= 1: of the longest hypothesis
    const int32_t *eos_ids; // (n_eos) borrowed; empty if an eos is an ordinary token (ignore_eos)
    int32_t n_eos;          // 0 .. BEAMS_MAX_EOS
    // Whether running beam number `beam` ends with this token, which is not an eos. NULL: never.
    bool (*stops)(void *ctx, int32_t beam, int32_t id);
    void *stops_ctx;
};

enum beam_end { BEAM_RUNS, BEAM_EOS, BEAM_STOP, BEAM_LENGTH };

struct beam {
    int32_t *ids;    // (max_tokens) the first n are generated
    float *logprobs; // (max_tokens)
    int32_t n;
    int32_t parent; // of a running beam: the number that its prefix had before the last step
    double sum;     // of its log-probabilities
    double score;   // of an ended one
    enum beam_end end;
};

struct beam_candidate {
    int32_t id, beam;
    float own;           // the model's log-probability, for the record
    double logprob, key; // logprob: after penalties and bans; key: the value to rank by
};

struct beam_search {
    struct beam_options o;
    int32_t n_running, n_ended, n_keep;
    bool over;
    struct beam running[BEAMS_MAX], spare[BEAMS_MAX]; // spare: storage of the next step's beams
    struct beam ended[BEAMS_MAX];                     // best first
    struct beam_candidate *rows; // (BEAMS_MAX, n_keep) each running beam's best continuations
    int32_t n_row[BEAMS_MAX];    // the length of each row; 0: not written in this step
};

// Begins with the prompt: one running beam without tokens. E_NOMEM.
int beam_search_init(struct beam_search *s, const struct beam_options *o, struct err *err);
void beam_search_release(struct beam_search *s); // a zeroed or released one is allowed

// Returns the row into which the caller writes the n_keep best continuations of running beam number `beam` (or
// fewer, if fewer are allowed): id, own and logprob, in descending order of logprob, equal ones in ascending order
// of id.
struct beam_candidate *beam_search_row(struct beam_search *s, int32_t beam);
// Marks a row with n continuations as complete. Several threads may write and complete rows of different beams at
// once.
void beam_search_ranked(struct beam_search *s, int32_t beam, int32_t n);
// Makes the running beams and the pool of the next step; the row of every running beam is complete. If s->over is
// set afterwards, the search has ended and `ended` is the result.
void beam_search_step(struct beam_search *s);
// The score of a running beam, if it ended now.
double beam_search_score(const struct beam_search *s, const struct beam *b);
