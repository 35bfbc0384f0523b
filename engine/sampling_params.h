// How tokens are drawn in one turn: plain data, copied by value, part of the turn's record.
// Order of operations: repetition, presence and frequency penalties and logit bias; bad words;
// minimum length; temperature; top-k; top-p; min-p; draw (DESIGN: "Sampling"). Reported
// log-probabilities are the model's own, before all of this.
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
    float temperature;        // 0: greedy. 0 .. 100
    int32_t top_k;            // 0: off; 1: greedy
    float top_p;              // 0 < p <= 1; 1: off
    float min_p;              // 0 .. 1; 0: off
    float repetition_penalty; // 0.01 .. 100; 1: off. l < 0 ? l * p : l / p over distinct tokens of
                              // the log
    float presence_penalty;  // -100 .. 100: subtracted once from every token generated in this turn
    float frequency_penalty; // -100 .. 100: times its count in this turn
    uint64_t seed; // of this turn; has_seed false: the session draws one and records it here
    bool has_seed;
    int32_t max_tokens; // 0: until eos or session_len
    int32_t min_tokens; // eos is not drawn before
    bool ignore_eos;
    int32_t top_logprobs; // alternatives reported with each token, 0 .. SAMPLING_MAX_TOP_LOGPROBS
    int64_t deadline_us;  // of the turn, from its start; 0: none
    int32_t n_bias, n_stop, n_bad;
    struct logit_bias bias[SAMPLING_MAX_BIAS];
    char stop[SAMPLING_MAX_STOP][SAMPLING_STOP_BYTES]; // NUL-terminated
    int32_t bad[SAMPLING_MAX_BAD]
               [SAMPLING_BAD_TOKENS]; // token sequences never completed; padded with -1
};

void sampling_params_init(struct sampling_params *p); // temperature 1, everything else off
// Ranges as above, NaN refused, ids below n_vocab. E_INVAL with the field's name and range.
int sampling_params_check(const struct sampling_params *p, int32_t n_vocab, struct err *err);
