// `parley bench` of whole sessions: a later turn on a long cache, and a session far longer than its
// window.
#pragma once
#include "ws/cli/cli.h"

// A greedy turn of a new sequence, on n_ids random tokens, that samples n_draw.
int bench_submit(struct engine *e, const struct cli_model *m, uint64_t sequence, int64_t n_ids,
                 int64_t n_draw, struct err *err);
double bench_median(double *values, int64_t n); // sorts them; 0 if n is 0

// First-token time of a turn with n_new tokens on a cache of context_tokens. Medians of `repeat`
// runs in milliseconds: as the caller sees it, and as the engine measures it.
struct later_turn {
    double first_token_ms, engine_ms;
};
int bench_later_turn(struct engine *e, const struct cli_model *m, int64_t context_tokens,
                     int64_t n_new, int64_t repeat, struct later_turn *out, struct err *err);

// One session of `turns` turns, each with turn_tokens new and turn_tokens sampled tokens. Medians
// over turns of the microseconds for each sampled token after the first: for turns that begin with
// a log of one to two times memory_len, and of ten times and more; 0 if there is no such turn.
struct long_session {
    double us_at_1, us_at_10;
    double turn_ms_at_1, turn_ms_at_10; // a whole turn's, prefill included
    int64_t log_tokens;
};
int bench_long_session(struct engine *e, const struct cli_model *m, int64_t turns,
                       int64_t turn_tokens, struct long_session *out, struct err *err);

// The first two turns behind the opening, each a session of its own with n_tokens: milliseconds
// from the call to the first token. The second says what the first would take if nothing were left
// to prepare.
struct first_turns {
    double first_ms, second_ms;
};
int bench_first_turns(struct engine *e, const struct cli_model *m, int64_t n_tokens,
                      struct first_turns *out, struct err *err);

// Sessions that decode while new prompts arrive, n_arrivals of them, one in every_ms. Prompts and
// sessions have context_tokens each. Milliseconds between a session's tokens while prompts arrive,
// and from a prompt's call to its first token.
struct arrivals {
    double between_p50_ms, between_p99_ms, first_token_p50_ms;
    double alone_p50_ms, alone_p99_ms; // between tokens before the first prompt arrives
    double tokens_per_second;          // of the sessions, while prompts arrive
};
int bench_arrivals(struct engine *e, const struct cli_model *m, int64_t sessions,
                   int64_t context_tokens, int64_t n_arrivals, int64_t every_ms,
                   struct arrivals *out, struct err *err);
