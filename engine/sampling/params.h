// How one turn samples: plain data, copied by value, part of the turn's record.
//
// Order of operations: repetition, presence and frequency penalties and logit bias; bad words;
// minimum length; grammar (engine/grammar); temperature; top-k; top-p (which may decay); min-p;
// draw. Reported log-probabilities are the model's own, before all of these.
//
// Names, ranges, defaults and help of the fields are the rows of engine/sampling/rows.c.
#pragma once
#include "base/err.h"
#include "engine/grammar/text.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SAMPLING_MAX_BIAS 300
#define SAMPLING_MAX_WORDS 64     // entries of one list of words
#define SAMPLING_WORD_BYTES 256   // of one text, with its NUL
#define SAMPLING_WORD_TOKENS 32   // of one token sequence
#define SAMPLING_TEXTS_BYTES 2048 // of all texts of a list
#define SAMPLING_LISTS_TOKENS 512 // of all token sequences of a list
#define SAMPLING_MAX_TOP_LOGPROBS 20
#define SAMPLING_MAX_DRAFTS 64 // tokens of a step

// How an input's hidden states become one: their sum before the final norm, as in FasterTransformer; their mean
// after the final norm; the last one after the final norm.
enum context_pooling { POOLING_SUM, POOLING_MEAN, POOLING_LAST, POOLING_FIRST };

// Where stop strings apply (engine/text/stop_filter.h).
enum stop_in {
    STOP_IN_OLD_RECORD, // everywhere, and before min_tokens: as turns ran before this was recorded
    STOP_IN_ALL,        // everywhere: a plain prompt's text has no parts
    STOP_IN_ANSWER,     // behind the model's thinking
    STOP_IN_TEXT,       // behind the thinking, outside of tool calls
    N_STOP_IN,
};

struct logit_bias {
    int32_t id;
    float bias; // added to the logit: -100 .. 100, or -INFINITY to forbid the token
};

// Words as texts and as token sequences. Each kind is packed: an entry begins where the previous one
// ends.
struct sampling_words {
    int32_t n_texts, n_lists;
    uint16_t text_ends[SAMPLING_MAX_WORDS]; // (n_texts) after the NUL
    uint16_t list_ends[SAMPLING_MAX_WORDS]; // (n_lists)
    char texts[SAMPLING_TEXTS_BYTES];
    int32_t ids[SAMPLING_LISTS_TOKENS];
};
const char *sampling_word_text(const struct sampling_words *w, int32_t i); // NUL-terminated
// (*n), at least one; borrowed.
const int32_t *sampling_word_ids(const struct sampling_words *w, int32_t i, int32_t *n);
// Append an entry. E_INVAL: it is empty, has a NUL byte or is too long, or the list is full; *err
// names the list as `name`.
int sampling_words_add_text(struct sampling_words *w, const char *name, const char *text,
                            size_t len, struct err *err);
int sampling_words_add_ids(struct sampling_words *w, const char *name, const int32_t *ids, size_t n,
                           struct err *err);

struct sampling_params {
    float temperature; // 0: greedy
    int32_t top_k;     // 0: off; 1: greedy
    float top_p;       // above 0; 1: off
    // Factual nucleus sampling (Lee et al. 2022, arXiv 2206.04624), as in FasterTransformer: after
    // each token of the answer, top_p becomes max(top_p * top_p_decay, top_p_min). The token
    // top_p_reset_ids (-1: none) resets top_p to its first value.
    float top_p_decay; // 1: off
    float top_p_min;
    int32_t top_p_reset_ids;
    float min_p; // 0: off
    // 1: off. l < 0 ? l * p : l / p for each distinct token of the log
    float repetition_penalty;
    float presence_penalty;  // subtracted once from the logit of each token of this answer
    float frequency_penalty; // subtracted once for each occurrence in this answer
    uint64_t seed;           // has_seed false: the session draws a seed and records it here
    bool has_seed;
    int32_t max_tokens; // 0: until eos or session_len
    int32_t min_tokens; // no eos is drawn, and nothing stops, before the answer has so many tokens
    bool ignore_eos;
    int32_t start_id;        // the first token of an empty log; -1: none
    int32_t end_id;          // the only token that ends the answer; -1: the model's eos ids
    bool logprobs;           // clients get the log-probabilities; the engine computes them anyway
    int32_t top_logprobs;    // alternatives reported with each token
    bool context_logprob;    // the turn's end reports the log-probability of its input
    bool context_embedding;  // and the input's hidden states (engine/run/context.h), pooled by
    int32_t context_pooling; // enum context_pooling
    int64_t deadline_us;     // from the turn's start; 0: none
    // The turn's branches (engine.h): n independent samples, or a search of beam_width beams
    // (beams.h). At most one of the two is above 1.
    int32_t n, beam_width;
    float len_penalty, beam_search_diversity_rate;
    bool early_stopping;
    // Tokens drafted for a step (engine/run/drafts.h); 0: none. The answer is the same.
    int32_t draft_tokens;
    // The most tokens of the model's thinking (engine/run/thinking.h); -1: no limit
    int32_t thinking_budget;
    int32_t n_bias;
    struct logit_bias bias[SAMPLING_MAX_BIAS];
    // The answer ends when its text contains one of the texts, which is cut out, or when the log ends
    // with one of the token sequences, which stays. A sequence may begin in the input.
    struct sampling_words stop;
    int32_t stop_in; // enum stop_in, of the texts
    // No answer contains these token sequences. A text stands for two of them: its tokens inside a
    // longer text, with and without a space before it.
    struct sampling_words bad_words;
    // The grammar of the answer; NULL: none. The struct turn_sampling that reads or overlays it holds
    // a reference (turn_sampling_release drops it), and so do a request's copy and a turn of the
    // engine. A plain copy of this struct borrows it.
    const struct grammar_text *grammar;
};

void sampling_params_init(struct sampling_params *p); // the defaults of the rows
// Checks the ranges of the rows, refuses NaN, and checks that ids are below n_vocab. E_INVAL with
// the parameter's name and range.
int sampling_params_check(const struct sampling_params *p, int32_t n_vocab, struct err *err);

// Parameters and the set of given ones: one layer (the server's, a session's or a turn's).
// About 10 KiB: too large for small stacks.
struct turn_sampling {
    struct sampling_params params;
    uint64_t set; // one bit for each given parameter, in the order of the rows
};
#define SAMPLING_EVERY_KEY UINT64_MAX

void turn_sampling_init(struct turn_sampling *s);    // the defaults, none given; no grammar
void turn_sampling_release(struct turn_sampling *s); // drops the grammar; *s may be used again
void turn_sampling_free(struct turn_sampling *s);    // releases and free()s; NULL is allowed
// Copies every parameter that is given in `over` into *base and marks it as given there. A list
// replaces the whole list of *base. A grammar replaces one of any kind, and *base holds a reference
// to it.
void turn_sampling_overlay(struct turn_sampling *base, const struct turn_sampling *over);
