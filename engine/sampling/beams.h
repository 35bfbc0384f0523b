// Beam search: which hypotheses go on after each step. Pure bookkeeping; it knows no model, no logits,
// no cache and no thread.
//
// The rules are those of Hugging Face's beam search (transformers, generation/utils.py _beam_search, and
// BeamSearchScorer before it), for one prompt:
//   - a step ranks the best continuations of all running beams, max(2, 1 + n_eos) * width of them;
//   - of those that end (an eos, or the last token allowed), only one ranked among the first `width`
//     enters the pool of ended hypotheses, which holds the `width` best by score;
//   - the first `width` that do not end run on;
//   - score = sum of the log-probabilities / (number of generated tokens) ^ length_penalty. The eos
//     counts, the prompt does not (FasterTransformer counts the prompt too);
//   - with early_stopping the search is over when the pool is full; else when, besides, the best running
//     beam would not enter the pool if it ended now.
// Diversity is FasterTransformer's (online_softmax_beamsearch_kernels.cu): candidates are ranked by their
// score plus diversity * r, where r is a candidate's rank, from 0, among those of its own beam. Only the
// ranking changes, no reported score. Below 0 this is the diverse decoding of Li et al. (2016).
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
    const int32_t *eos_ids; // (n_eos) borrowed; none where an eos is an ordinary token
    int32_t n_eos;          // 0 .. BEAMS_MAX_EOS
    // Whether running beam number `beam` ends with this token, which is no eos. NULL: never.
    bool (*stops)(void *ctx, int32_t beam, int32_t id);
    void *stops_ctx;
};

enum beam_end { BEAM_RUNS, BEAM_EOS, BEAM_STOP, BEAM_LENGTH };

struct beam {
    int32_t *ids;    // (max_tokens) n of them are generated
    float *logprobs; // (max_tokens)
    int32_t n;
    int32_t parent; // of a running beam: the number, before the last step, of the beam it continues
    double sum;     // of its log-probabilities
    double score;   // of an ended one
    enum beam_end end;
};

struct beam_candidate {
    int32_t id, beam;
    float own;           // its log-probability as the model gave it, for the record
    double logprob, key; // as ranked, after penalties and bans; key: what it is ranked by
};

struct beam_search {
    struct beam_options o;
    int32_t n_running, n_ended, n_keep;
    bool over;
    struct beam running[BEAMS_MAX], spare[BEAMS_MAX]; // spare: storage of the next step's beams
    struct beam ended[BEAMS_MAX];                     // best first
    struct beam_candidate *rows; // (BEAMS_MAX, n_keep) each running beam's best continuations
    int32_t n_row[BEAMS_MAX];    // how many each has; 0: its logits have not come
};

// Begins with one running beam without tokens: the prompt. E_NOMEM.
int beam_search_init(struct beam_search *s, const struct beam_options *o, struct err *err);
void beam_search_release(struct beam_search *s); // a zeroed or released one is allowed

// Where the caller writes the n_keep best continuations of running beam number `beam` (fewer, if the
// model allows fewer): id, own and logprob, in descending order of logprob, lower ids first among equals.
struct beam_candidate *beam_search_row(struct beam_search *s, int32_t beam);
// n of them are written. Different beams may be written and ranked at once.
void beam_search_ranked(struct beam_search *s, int32_t beam, int32_t n);
// Every running beam is ranked: makes the running beams and the pool of the next step. With `over` the
// search has ended and `ended` is the result.
void beam_search_step(struct beam_search *s);
// The score of a running beam, if it ended now.
double beam_search_score(const struct beam_search *s, const struct beam *b);
