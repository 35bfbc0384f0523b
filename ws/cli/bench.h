// The two halves of `parley bench`: main_bench.c measures prefill and decode, and reports;
// bench_session.c measures whole sessions.
#pragma once
#include "ws/cli/cli.h"

struct bench_settings {
    struct model_settings model;
    int64_t prompt_tokens, context_tokens, decode_tokens, sequences, repeat;
    int64_t later_turn, turns, turn_tokens, first_turn, arrivals, arrival_ms;
    char *parts, *like;
    bool json;
};

struct bench {
    const struct bench_settings *settings;
    struct engine *engine;
    uint64_t next; // sequence and turn numbers
    struct err *err;
};

// All of these return 0, or a negative code with *b->err set.

// Submits a greedy turn of a new sequence, on n_ids random tokens, that samples n_draw; b->next is
// its number.
int bench_submit(struct bench *b, int64_t n_ids, int64_t n_draw);
double bench_median(double *values, int64_t n); // sorts them; 0 if n is 0

// First-token time of a turn with later_turn tokens on a cache of context_tokens. Medians in
// milliseconds: as the caller sees it, and as the engine measures it.
struct later_turn {
    double first_token_ms, engine_ms;
};
// This and the other measurements: b has an idle engine. E_NOMEM, or the engine's error in *b->err.
int bench_later_turn(struct bench *b, struct later_turn *out);

// One session of `turns` turns, each with turn_tokens new and turn_tokens sampled tokens. Medians
// over turns of the microseconds for each sampled token after the first: for turns that begin with
// a log of one to two times memory_len, and of ten times and more; 0 if there is no such turn.
struct long_session {
    double us_at_1, us_at_10;
    double turn_ms_at_1, turn_ms_at_10; // a whole turn's, prefill included
    int64_t log_tokens;
};
int bench_long_session(struct bench *b, struct long_session *out);

// The first two turns after opening, each a session of its own with first_turn tokens: milliseconds
// from the call to the first token. The second says what the first would take if nothing were left
// to prepare.
struct first_turns {
    double first_ms, second_ms;
};
int bench_first_turns(struct bench *b, struct first_turns *out);

// Sessions that decode while new prompts arrive, `arrivals` of them, one in arrival_ms. Prompts and
// sessions have context_tokens each. Milliseconds between a session's tokens while prompts arrive,
// and from a prompt's call to its first token.
struct arrivals {
    double between_p50_ms, between_p99_ms, first_token_p50_ms;
    double alone_p50_ms, alone_p99_ms; // between tokens before the first prompt arrives
    double tokens_per_second;          // of the sessions, while prompts arrive
};
int bench_arrivals(struct bench *b, struct arrivals *out);
