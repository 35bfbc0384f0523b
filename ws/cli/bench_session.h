// What `parley bench` measures of sessions rather than of steps: a later turn on a long cache, and
// a session that has long outgrown its window.
#pragma once
#include "ws/cli/cli.h"

// The first token of a later turn: context_tokens are in the cache, n_new more come. Medians of
// repeat runs, milliseconds: from the call to the token in the caller's hands, and the engine's own
// time of it.
struct later_turn {
    double first_token_ms, engine_ms;
};
int bench_later_turn(struct engine *e, const struct cli_model *m, int64_t context_tokens,
                     int64_t n_new, int64_t repeat, struct later_turn *out, struct err *err);

// One session of so many turns, each with turn_tokens new tokens and as many drawn. Microseconds
// for each drawn token behind the first of its turn (medians over turns): in turns that began with
// a log of one to two times memory_len, and in those from ten times on; 0 where no turn did.
struct long_session {
    double us_at_1, us_at_10;
    double turn_ms_at_1, turn_ms_at_10; // a whole turn's, prefill included
    int64_t log_tokens;
};
int bench_long_session(struct engine *e, const struct cli_model *m, int64_t turns,
                       int64_t turn_tokens, struct long_session *out, struct err *err);
