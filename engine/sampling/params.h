// How one turn samples: plain data, copied by value, part of the turn's record.
//
// Order of operations: repetition, presence and frequency penalties and logit bias; bad words;
// minimum length; temperature; top-k; top-p; min-p; draw (DESIGN: "Sampling"). Reported
// log-probabilities are the model's own, before all of this.
//
// Names, ranges, defaults and help of the fields are the rows of engine/sampling/rows.c.
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

#define SAMPLING_MAX_BIAS 300
#define SAMPLING_MAX_STOP 4
#define SAMPLING_STOP_BYTES 256
#define SAMPLING_MAX_BAD 16
#define SAMPLING_BAD_TOKENS 8
#define SAMPLING_MAX_TOP_LOGPROBS 20

struct logit_bias {
    int32_t id;
    float bias; // added to the logit: -100 .. 100, or -INFINITY to forbid the token
};

struct sampling_params {
    float temperature; // 0: greedy
    int32_t top_k;     // 0: off; 1: greedy
    float top_p;       // above 0; 1: off
    float min_p;       // 0: off
    // 1: off. l < 0 ? l * p : l / p for each distinct token of the log
    float repetition_penalty;
    float presence_penalty;  // subtracted once from the logit of each token of this answer
    float frequency_penalty; // subtracted once for each occurrence in this answer
    uint64_t seed;           // has_seed false: the session draws a seed and records it here
    bool has_seed;
    int32_t max_tokens; // 0: until eos or session_len
    int32_t min_tokens; // eos is not drawn before
    bool ignore_eos;
    int32_t end_id;       // -1: the model's; else the one token that ends the answer
    bool logprobs;        // clients get the log-probabilities; the engine computes them anyway
    int32_t top_logprobs; // alternatives reported with each token
    int64_t deadline_us;  // from the turn's start; 0: none
    int32_t n_bias, n_stop, n_bad;
    struct logit_bias bias[SAMPLING_MAX_BIAS];
    char stop[SAMPLING_MAX_STOP][SAMPLING_STOP_BYTES]; // NUL-terminated
    // token sequences that no answer contains, padded with -1
    int32_t bad[SAMPLING_MAX_BAD][SAMPLING_BAD_TOKENS];
};

void sampling_params_init(struct sampling_params *p); // the defaults of the rows
// Checks the ranges of the rows, refuses NaN, and checks that ids are below n_vocab. E_INVAL with
// the parameter's name and range.
int sampling_params_check(const struct sampling_params *p, int32_t n_vocab, struct err *err);

// Parameters, and which of them were given: one layer (the server's, a session's or a turn's).
// About 4 KiB: too large for small stacks.
struct turn_sampling {
    struct sampling_params params;
    uint32_t set; // one bit for each given parameter, in the order of the rows
};
#define SAMPLING_EVERY_KEY UINT32_MAX

void turn_sampling_init(struct turn_sampling *s); // the defaults, nothing given
// Copies every parameter that `over` gives into *base and marks it as given there. A list replaces
// the whole list below it.
void turn_sampling_overlay(struct turn_sampling *base, const struct turn_sampling *over);
